"""A model that always predicts the same confirms no published number, whatever the number is."""

from __future__ import annotations

from typing import Any

import pytest
from support.databases import paper

from orthobench import RunOptions, run
from orthobench.analysis.conditions import collect
from orthobench.papers import Experiment, Printed
from orthobench.plugins import Catalog
from orthobench.reporting.account.paper_views import group_of, view_paper
from orthobench.spec.resolve import resolve
from orthobench.store import open_store

BLIND = """
import torch
from torch import nn
from orthobench.model import Model
from orthobench.recurrence import RELU, recurrence


class Blind(Model):
    title = "a constant, learnt by the bias of the output layer"
    paper = "none"

    def __init__(self, settings, signature, generator):
        super().__init__(settings, signature, generator)
        self.weight = nn.Parameter(0.1 * torch.randn(settings.hidden_size, signature.input_size, generator=generator))
        self.recurrent_weight = nn.Parameter(torch.eye(settings.hidden_size))

    def states(self, inputs, state, trace):
        silent = 0 * nn.functional.linear(inputs, self.weight)
        return recurrence(silent, self.recurrent_weight, state, trace, RELU)

    def recurrent_matrices(self):
        return {"W": self.recurrent_weight}
"""
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "adding": ("mse", {"sequence_length": 10, "train_size": 2000, "test_size": 1000, "batch_size": 50, "epochs": 4}),
    "formal_language": (
        "accuracy",
        {"language": "parity", "train_size": 2000, "test_size": 1000, "batch_size": 50, "epochs": 1},
    ),
}
RATE = {"hidden_size": 4, "optimizer": "adam", "learning_rate": 0.01}


@pytest.fixture(scope="module")
def blind_runs(tmp_path_factory):
    """Three seeds of the constant predictor on each task, and the catalog that knows it."""
    folder = tmp_path_factory.mktemp("blind")
    (folder / "blind.py").write_text(BLIND)
    for task, (_, settings) in TASKS.items():
        for seed in range(3):
            run(
                task,
                "blind",
                settings={**settings, **RATE},
                seed=seed,
                preset="paper",
                db=folder / "r.db",
                options=RunOptions(device="cpu", plugins=[folder / "blind.py"]),
            )
    with open_store(str(folder / "r.db")) as store:
        yield store, Catalog([folder / "blind.py"])


def cells(blind_runs, task: str, values: list[float]):
    """Return the cells of a table that prints these numbers for the constant predictor, one in each row."""
    store, catalog = blind_runs
    metric, settings = TASKS[task]
    rows = [
        Experiment(
            artifact="table 1",
            task=task,
            model="blind",
            row=f"row {number}",
            training={**settings, **RATE},
            selection="last",
            printed=[Printed(metric=metric, value=value)],
        )
        for number, value in enumerate(values)
    ]
    whole = paper(*rows)
    complete = whole.experiments()
    keys = {
        each.identity: resolve(
            catalog, task, "blind", {name: str(value) for name, value in {**settings, **RATE}.items()}
        ).spec.variant
        for each in complete
    }
    (part,) = view_paper(whole, collect(store), keys).artifacts
    assert part.table is not None
    return part.table.cells


@pytest.mark.parametrize(
    ("task", "values"),
    [
        ("adding", [1e-5, 1e-3, 0.01, 0.05, 0.1, 0.12, 0.14, 0.16, 0.167, 0.17, 0.2, 0.25, 1.0]),
        ("formal_language", [0.3, 0.45, 0.49, 0.495, 0.5, 0.505, 0.51, 0.54, 0.56, 0.6, 0.9, 0.96, 0.996, 1.0]),
    ],
)
def test_constant_predictor_confirms_no_published_number(blind_runs, task, values):
    table = cells(blind_runs, task, values)
    assert len(table) == len(values)
    assert all(cell.measured.n == 3 for cell in table)
    for cell in table:
        assert "agrees" not in cell.words, (cell.printed.value, cell.words, cell.reason)
        assert not cell.is_confirmed
        assert group_of(cell) != "agree"
    assert table[0].words.startswith("differs")
    assert all(cell.limit for cell in table if not cell.is_refuted)
    if task == "adding":
        (at_baseline,) = (cell for cell in table if cell.printed.value == 0.167)
        assert (at_baseline.words, group_of(at_baseline)) == ("at the baseline, as published", "at_limit")
