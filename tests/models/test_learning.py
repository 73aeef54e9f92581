"""Every model learns what its class says it does: below the task's baseline in well under a minute, small."""

from __future__ import annotations

import pytest

from orthobench.plugins import Catalog
from orthobench.store import open_store

SMALL = {
    "copying": {"sequence_length": 20, "train_size": 2_000, "test_size": 200, "batch_size": 20, "epochs": 15},
    "adding": {"sequence_length": 30, "train_size": 5_000, "test_size": 500, "batch_size": 50, "epochs": 20},
}
CATALOG = Catalog()
LEARNS = {name: CATALOG.load("model", name).learns for name in CATALOG.names("model")}


def test_every_model_declares_what_it_learns():
    assert {name for name, learns in LEARNS.items() if learns is None} == set()


@pytest.mark.slow
@pytest.mark.parametrize("model", LEARNS)
def test_model_beats_the_baseline(model, orthobench):
    learns = LEARNS[model]
    overrides = {"hidden_size": 64, "evaluate_every": 500, **SMALL[learns.task], **learns.settings}
    options = [part for name, value in overrides.items() for part in ("-s", f"{name}={value}")]
    outcome = orthobench("run", learns.task, model, *options)
    assert outcome.code == 0, outcome.err
    with open_store("results.db") as store:
        (run,) = store.runs()
    assert run.final_value < learns.share * run.baselines[run.metric]
