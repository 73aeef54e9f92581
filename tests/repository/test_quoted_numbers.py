"""The check of `make lint` finds numbers in the text, and verdicts of remarks, that differ from their table."""

from __future__ import annotations

import runpy
from pathlib import Path

CHECK = runpy.run_path(str(Path(__file__).parents[2] / "workshop" / "quoted_numbers.py"))
wrong_numbers, outdated_remarks = CHECK["wrong_numbers"], CHECK["outdated_remarks"]
TABLE = """
## Ends

<!-- table: ends -->

| model | runs | error |
| --- | --- | --- |
| scoRNN | 1,035 | -0.25 [3, 1.5e-06] |
| LSTM&#95;2 | 12 (94 %) | – |

<!-- end of table -->
"""


def test_numbers_of_the_table_pass(tmp_path):
    (tmp_path / "README.md").write_text(
        'Of [1,035](#ends) runs, [94 %](#ends "LSTM_2") end at [-0.25](#ends "scoRNN"), [1.5e-06](#ends) or '
        "`[7](#ends)`." + TABLE
    )
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "other.md").write_text("[12](../README.md#ends) and [3](../README.md#ends)\n")
    assert list(wrong_numbers(tmp_path)) == []


def test_numbers_of_the_commentary_are_those_of_the_tables(tmp_path):
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "REPRODUCTION.md").write_text(TABLE)
    commentary = tmp_path / "reports" / "commentary.toml"
    commentary.write_text("title = 'Of [1,035](REPRODUCTION.md#ends \"scoRNN\")'\n")
    assert list(wrong_numbers(tmp_path)) == []
    commentary.write_text("title = 'Of [1,036](REPRODUCTION.md#ends \"scoRNN\")'\n")
    assert list(wrong_numbers(tmp_path)) == [
        'reports/commentary.toml:1: 1,036 is not in the row "scoRNN" of table ends'
    ]


def test_wrong_numbers_are_listed_with_file_line_and_table(tmp_path):
    (tmp_path / "README.md").write_text(
        '# Title\n\n`code` [35](#ends) runs,\nand [12](#ends\n"scoRNN") and [2](#ends) and [0.25](#ends)\n' + TABLE
    )
    (tmp_path / "CHANGELOG.md").write_text("[12](README.md#starts)\n[12](absent.md#ends)\n")
    assert list(wrong_numbers(tmp_path)) == [
        "CHANGELOG.md:1: 12 is not in table starts",
        "CHANGELOG.md:2: 12 is not in table ends",
        "README.md:3: 35 is not in table ends",
        'README.md:4: 12 is not in the row "scoRNN" of table ends',
        "README.md:5: 2 is not in table ends",
        "README.md:5: 0.25 is not in table ends",
    ]


REMARK = """
[[remark]]
paper = "k"
artifact = "{0}"
about = "{1}"
verdict = "{2}"
"""
MEASURED = """
<!-- table: measured -->

| paper | result | published | measured | seeds | verdict |
| --- | --- | --- | --- | --- | --- |
| k | figure 1 | a\\_b falls | 1 | 3 | held (3 of 3 seeds), not counted |
| k | table 1: rnn, mse | 0.25 | 0.2 | 3 | differs, better |

<!-- end of table -->
"""


def test_remarks_on_other_verdicts_are_listed(tmp_path):
    reports = tmp_path / "reports"
    reports.mkdir()
    (reports / "REPRODUCTION.md").write_text(MEASURED)
    places = (("figure 1", "a_b falls"), ("table 1", "rnn, mse"), ("figure 2", "it falls"))

    def found(*verdicts: str) -> list[str]:
        remarks = [REMARK.format(*place, verdict) for place, verdict in zip(places, verdicts, strict=True)]
        (reports / "commentary.toml").write_text("".join(remarks))
        return list(outdated_remarks(tmp_path))

    assert found("held", "differs, better", "not decided") == []
    assert found("did not hold", "undecided", "held") == [
        "reports/commentary.toml: written for 'did not hold', now 'held (3 of 3 seeds), not counted': "
        "k, figure 1: a_b falls",
        "reports/commentary.toml: written for 'undecided', now 'differs, better': k, table 1: rnn, mse",
        "reports/commentary.toml: written for 'held', now 'not decided': k, figure 2: it falls",
    ]
