"""The author's commentary: a text, and remarks that are shown next to the verdict for which they were written."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from support.claims import stated
from support.databases import RunDatabase, experiment, paper

from orthobench.analysis.conditions import collect
from orthobench.errors import UsageError
from orthobench.papers import Printed
from orthobench.reporting.account.account import account_of
from orthobench.reporting.account.commentary import LEFT_OUT, Commentary, read_commentary
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.page.commentary import prose
from orthobench.reporting.page.html import build_page
from orthobench.reporting.page.templates import environment
from orthobench.reporting.tables.reproduction import reproduction
from orthobench.store import open_store

WHOLE = paper(
    experiment("rnn", "last", [Printed(metric="mse", value=0.05)]),
    experiment("lstm", "curve", [Printed(metric="mse", outcome="falls")], "figure 1"),
    artifacts=[
        {
            "name": "figure 1",
            "shows": "learning_curves",
            "claims": [stated("ends_below", "lstm", text="it falls towards zero", share=0.5)],
        }
    ],
)
FILE = """
text = "# Mine\\n\\nWith *care* and <b>markup</b> from [elsewhere](https://example.org)."

[[remark]]
paper = "k"
artifact = "figure 1"
about = "it falls towards zero"
verdict = "held"
written = 2026-01-02
commit = "abc"
text = "Because of `rate`, see D-07 & <i>others</i>."

[[remark]]
paper = "k"
artifact = "table 1"
about = "rnn, n = 8, mse"
verdict = "undecided"
written = 2026-01-03
text = "A single seed."
"""


@pytest.fixture
def database(tmp_path, monkeypatch):
    monkeypatch.setattr("orthobench.reporting.account.commentary.find_paper", lambda key: WHOLE)
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        made = RunDatabase(store)
        made.baseline = 2.0
        made.run(WHOLE.experiments()[0], 0, test=[1.0, 0.05])
        yield made


@pytest.fixture
def commentary(tmp_path) -> Commentary:
    (tmp_path / "mine.toml").write_text(FILE)
    return read_commentary(tmp_path / "mine.toml")


def shown(database: RunDatabase, commentary: Commentary) -> tuple[str, str]:
    """The reproduction, and the page's overview of verdicts and parts of a paper's page."""
    conditions, view = collect(database.store), database.view(WHOLE)
    account = account_of(conditions, [view], [], commentary=commentary)
    template = environment().from_string(
        '{% from "macros.html.j2" import claim_list, remarks with context %}'
        "{{ claim_list(part.claim_results, view.paper, part) }}"
        '{{ remarks(view.paper, table, "rnn, n = 8, mse", table.table.cells[0].words) }}'
    )
    parts = {part.artifact.name: part for part in view.artifacts}
    page = environment().get_template("verdicts.html.j2").render(account=account)
    page += template.render(account=account, view=view, part=parts["figure 1"], table=parts["table 1"])
    return reproduction(conditions, [view], [], commentary=commentary), page


def test_remark_is_shown_only_while_its_verdict_stands(database, commentary, caplog):
    assert [each.about for each, _ in commentary.outdated([database.view(WHOLE)])] == ["it falls towards zero"]
    for seed in range(3):
        database.run(WHOLE.experiments()[1], seed, test=[1.0, 0.01])
    text, page = shown(database, commentary)
    assert "* **it falls towards zero**: Because of `rate`, see D-07 & <i>others</i>. (2026-01-02, abc)\n" in text
    assert "* **rnn, n = 8, mse**: A single seed. (2026-01-03)\n" in text
    words = 'Because of <code>rate</code>, see <a href="#D-07" title="where sources disagree">D-07</a> &amp; &lt;i&gt;'
    assert page.count(words) == 2  # in the overview, and below the figure
    assert "A single seed. (2026-01-03)" in page
    assert list(commentary.outdated([database.view(WHOLE)])) == []

    database.run(WHOLE.experiments()[0], 1, test=[1.0, 0.05])
    for run in database.store.runs(model="lstm"):
        database.store.delete(run.id)
    for seed in range(3):
        database.run(WHOLE.experiments()[1], seed, test=[1.0, 1.5])
    text, page = shown(database, commentary)
    assert "Because" not in text + page
    assert [place.count(f"{LEFT_OUT} (held, 2026-01-02, abc)") for place in (text, page)] == [1, 2]
    with caplog.at_level(logging.WARNING, "orthobench"):
        commentary.check([database.view(WHOLE)])
    assert (
        "remark left out: it was written for 'held', now 'did not hold': k, figure 1, it falls towards zero"
        in caplog.messages
    )


def test_page_has_the_text_and_neither_its_links_nor_its_markup(database, commentary):
    page, _ = build_page(database.store, Scope(), {}, commentary=commentary.model_copy(update={"remark": ()}))
    about = page.partition('id="commentary"')[2].partition("</div>")[0]
    assert "<h2>Mine</h2>\n<p>With <em>care</em> and &lt;b&gt;markup&lt;/b&gt; from elsewhere.</p>" in about
    assert prose(commentary.text) in page


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        (
            "falls towards",
            "rises towards",
            "unknown claim or number of k, figure 1 'it rises towards zero': did you mean",
        ),
        ('"figure 1"', '"figure 2"', "unknown table or figure of k 'figure 2': did you mean figure 1"),
        ("rnn, n = 8, mse", "rnn, n = 9, mse", "unknown claim or number of k, table 1 'rnn, n = 9, mse'"),
    ],
)
def test_remark_about_nothing_is_refused(database, tmp_path, wrong, right, message):
    (tmp_path / "mine.toml").write_text(FILE.replace(wrong, right))
    with pytest.raises(UsageError, match=re.escape(message)):
        read_commentary(tmp_path / "mine.toml").check([database.view(WHOLE)])


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        ("written = 2026-01-02", 'written = "soon"', "commentary mine.toml: remark 1 written: "),
        ('verdict = "undecided"', "", "commentary mine.toml: remark 2 verdict: field required"),
        ("about =", "abuot =", "commentary mine.toml: remark 1 about: field required"),
        ("[[remark]]", "[[remark", "commentary mine.toml is not TOML: "),
    ],
)
def test_mistake_in_the_file_is_one_line(orthobench, wrong, right, message):
    with open_store("results.db", create=True):
        pass
    Path("mine.toml").write_text(FILE.replace(wrong, right))
    failed = orthobench("report", "--html", "--commentary", "mine.toml")
    assert failed.code == 2
    assert message in failed.err
    assert failed.err.count("\n") == 1


def test_missing_file_is_one_line(orthobench):
    with open_store("results.db", create=True):
        pass
    failed = orthobench("report", "--format", "reproduction", "--commentary", "none.toml")
    assert (failed.code, failed.err.count("\n")) == (2, 1)
    assert "commentary none.toml cannot be read: No such file or directory" in failed.err
