"""The scoRNN paper's table of minutes per epoch, from the record that `orthobench bench --models` stores."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

import pytest

from orthobench.analysis.claims import count_claims
from orthobench.bench.models import PER_EPOCH, TABLE_3
from orthobench.reporting.account.load import load_views
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.account.verdict_sheet import square
from orthobench.spec.index import built_in
from orthobench.store import open_store

MACHINE = {"cpu": "a CPU", "accelerator": None, "threads": 1}
STEPS = (0.9, 1.0, 1.1)
"""The seconds of a step in each round, in units of the row's."""


def record(quick: bool = False, rounds: int = 3, **facts: str) -> dict:
    """Build a record in which every row takes a tenth of the published minutes, in the middle round."""
    rows = []
    for printed in TABLE_3:
        seconds = 60 * printed.minutes / 10 / PER_EPOCH
        samples = [{"seconds": share * seconds, "foreign": 0.0} for share in STEPS[:rounds]]
        own = {"model": printed.model, "hidden_size": printed.hidden_size, "printed": printed.minutes}
        rows.append({**own, "seconds": seconds, "minutes": printed.minutes / 10, "samples": samples})
    other = {"model": "gru", "hidden_size": 128, "printed": None, "seconds": 1.0, "minutes": 9.0, "samples": []}
    shapes = [{"shape": {"name": "equal size"}, "rows": [other]}, {"shape": {"name": "table 3"}, "rows": rows}]
    return {"device": "cpu", "quick": quick, "shapes": shapes, **facts}


@pytest.fixture
def database(tmp_path):
    return str(tmp_path / "r.db")


def table_of(database: str):
    with open_store(database) as store:
        _, (view,), *_ = load_views(store, Scope(paper="helfrich2018"), built_in()["variants"])
    (part,) = (part for part in view.artifacts if part.artifact.name == "table 3")
    return part


@pytest.mark.parametrize(("facts", "clock"), [({}, ""), ({"clock": "wall"}, ""), ({"clock": "cpu"}, ", CPU time")])
def test_table_has_the_rounds_of_the_benchmark(database, orthobench, facts, clock):
    """A record of an earlier version names no clock, which was the wall clock."""
    with open_store(database, create=True) as store:
        assert store.add_benchmark("models", record(**facts), MACHINE)
    part = table_of(database)
    cells = {row.label: row.cells["minutes per epoch"] for row in part.table.rows}
    assert len(cells) == len(TABLE_3) == 14
    for cell in cells.values():
        assert cell.measured.value == pytest.approx(cell.printed.value / 10)
        assert (cell.verdict, cell.runs) == ("another machine", [])
        assert cell.reason == f"measured on a CPU{clock}, 3 rounds of `orthobench bench --models`"
    assert part.missing == []
    claims = {result.claim.text: result for result in part.claim_results}
    assert len(claims) == 9
    assert {result.is_decided for result in claims.values()} == {True}
    assert claims["The RNN is the fastest"].conclusion == "held"
    assert {result.uncounted for result in claims.values()} == {"times of another machine"}
    counts = count_claims([*claims.values()])
    assert (counts.decided, counts.undecided) == (0, 0)
    assert re.fullmatch(r"\d of 9 held with times of another machine", counts.words.removeprefix("not counted: "))
    assert (square(part).confirmed, square(part).against) == (0, 0)
    # 2.3 to 2.4 minutes: the ratio of rounds is 1.04 times 0.82 to 1.22, which is within a quarter.
    same_size = claims["The RNN's size hardly matters: 2.3 minutes with 116 units, 2.4 with 512"]
    assert str(same_size.share) == "100 % of 9 pairs"
    report = Path(orthobench("report", "--format", "reproduction", "--db", database).out.strip()).read_text()
    assert "| minutes per epoch | 10.8 " in report
    assert "Not measured: scoRNN, n = 170" not in report


def test_rounds_of_toy_sizes_and_missing_rows_are_not_measured(database):
    with open_store(database, create=True) as store:
        store.add_benchmark("models", record(quick=True), MACHINE)
    part = table_of(database)
    assert [cell.verdict for cell in part.table.cells] == ["not measured"] * 14
    assert {cell.command for cell in part.table.cells} == {"orthobench bench --models"}
    with sqlite3.connect(database) as connection:
        ((text,),) = connection.execute("SELECT results FROM benchmark")
        content = json.loads(text) | {"quick": False}
        del content["shapes"][1]["rows"][0]
        connection.execute("UPDATE benchmark SET results = ?", [json.dumps(content)])
    part = table_of(database)
    (missing,) = (cell for cell in part.table.cells if cell.measured is None)
    assert (missing.printed.value, [each.label for each in part.missing]) == (2.3, ["RNN, n = 116"])


def test_claims_of_two_rounds_do_not_count(database):
    with open_store(database, create=True) as store:
        store.add_benchmark("models", record(rounds=2), MACHINE)
    results = table_of(database).claim_results
    assert {result.is_hollow for result in results} == {True}
    assert {result.uncounted for result in results} == {"fewer than three seeds"}
