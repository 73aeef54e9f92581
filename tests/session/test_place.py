"""Where a cell stands among the built-in ones: ranks, a real small run, and a cell that is broken on purpose."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from support.command import call_here

import orthobench as ob
from orthobench.analysis import placement
from orthobench.analysis.placement import Place, Rival, rivals, step_milliseconds
from orthobench.api.placement import Placement, latex_row
from orthobench.planning.tuned_protocol import protocol

SIZES = {
    "sequence_length": "4",
    "batch_size": "20",
    "train_size": "3200",
    "max_iterations": "160",
    "evaluate_every": "20",
    "validation_size": "200",
    "test_size": "200",
}
CELLS = """
import torch


class Good(torch.nn.Module):
    def __init__(self, input_size: int, hidden_size: int):
        super().__init__()
        self.cell = torch.nn.GRUCell(input_size, hidden_size)

    def forward(self, x, h):
        return self.cell(x, h)


class Deaf(Good):
    '''Hears the markers and not the values.'''

    def forward(self, x, h):
        return self.cell(torch.cat((torch.zeros_like(x[:, :1]), x[:, 1:]), 1), h)
"""


def rival(model: str, *scores: float, condition: str = "c") -> Rival:
    return Rival("adding", condition, model, 500, 1.5, scores, "learning_rate=0.01")


def test_ranks_follow_from_medians_and_seeds():
    """Two rivals are better in every seed, one overlaps, one is equal within a tie, two are worse in every seed."""
    others = [(0.99, 0.98), (0.97, 0.96), (0.95, 0.6), (0.8, 0.8), (0.3, 0.2), (-0.1, -0.2)]
    place = Place((0.803, 0.79, 0.801), tuple(rival(f"m{number}", *scores) for number, scores in enumerate(others)))
    assert (place.score, place.count) == (0.801, 7)
    assert (place.best_rank, place.rank, place.worst_rank) == (3, 3, 5)
    assert [each.model for each in place.nearest] == ["m3", "m2", "m1"]


def test_rank_of_each_cell_of_a_column_is_between_its_limits():
    scores = [[(7 * number + 3 * seed) % 11 / 10 for seed in range(3)] for number in range(12)]
    for number, own in enumerate(scores):
        others = [rival(f"m{other}", *each) for other, each in enumerate(scores) if other != number]
        place = Place(tuple(own), tuple(others))
        assert 1 <= place.best_rank <= place.rank <= place.worst_rank <= 12
        assert place.rank == 1 + sum(each.score > place.score + 0.005 for each in others)


def test_row_of_the_file_is_read_back():
    written = Rival("copying", "abc", "scornn", 4970, 5.25, (0.9987, -0.25), "learning_rate=0.001")
    assert Rival.read(written.row()) == written
    assert Rival.read(Rival("a", "b", "c", 1, None, (1.0,), "").row()).milliseconds is None


def test_file_of_the_installation_has_columns_of_the_protocol():
    names = [column.name for column in protocol().columns]
    own = [name for name, _ in itertools.groupby(each.column for each in rivals())]
    assert own == [name for name in names if name in own]
    assert len({(each.column, each.model) for each in rivals()}) == len(rivals())


def test_row_of_a_latex_table():
    place = Place((0.803, 0.79, 0.801), (rival("a", 0.9), rival("b", 0.1)))
    assert latex_row("./my_cell.py:My_Cell", [Placement(None, place), Placement(None, None)]) == (  # type: ignore[arg-type]
        r"My\_Cell & 80 (2/3) & -- \\"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    (folder / "cells.py").write_text(CELLS)
    return folder


@pytest.fixture(scope="module")
def table(folder: Path) -> Path:
    """The results of two built-in cells under the sizes of these tests, in place of those of the installation."""
    (column,) = ob.compare_tuned("adding", ["gru", "rnn"], settings=SIZES, seeds=2, jobs=0, db=folder / "t.db")
    with ob.open_results(folder / "t.db") as results:
        zero = {run.key: run.baselines["mse"] for run in results.store.runs()}
    rows = [
        Rival(
            "adding",
            model.runs[0].condition,
            model.word,
            500,
            step_milliseconds(model.runs[0]),
            tuple(1 - value / zero[key] for key, value in model.values.items()),
            "",
        )
        for model in column.models
    ]
    file = folder / "table.csv"
    file.write_text("\n".join([",".join(placement.HEADINGS), *(",".join(row.row()) for row in rows)]))
    return file


@pytest.fixture
def planted(table: Path, monkeypatch: pytest.MonkeyPatch):
    rows = [Rival.read(line.split(",")) for line in table.read_text().splitlines()[1:]]
    monkeypatch.setattr(placement, "rivals", lambda: tuple(rows))
    return rows


def test_cell_broken_on_purpose_ends_last(folder, planted, monkeypatch, capsys):
    """A working copy of the GRU stands beside it, and the deaf one is behind all in every seed."""
    monkeypatch.chdir(folder)
    placed = {}
    for name in ("Good", "Deaf"):
        given = [word for key, value in SIZES.items() for word in ("-s", f"{key}={value}")]
        command = [
            "place",
            f"./cells.py:{name}",
            "--columns",
            "adding",
            "--seeds",
            "2",
            "-j",
            "0",
            "-q",
            "--db",
            "p.db",
        ]
        assert call_here(monkeypatch, [*command, *given, "-o", f"{name}.svg"]) == 0
        placed[name] = capsys.readouterr().out
        assert f">{name}<" in Path(f"{name}.svg").read_text()
    assert "place 3 of 3, between 3 and 3 by its seeds" in placed["Deaf"]
    assert "place 3" not in placed["Good"]
    assert "nearest: " in placed["Good"]
    assert "ms of CPU time a step, the LSTM" not in placed["Good"]  # it is not in this table
