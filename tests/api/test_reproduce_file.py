"""A list of runs with trials: their tags, and the whole run that follows from them in the same call."""

from __future__ import annotations

import pytest
from support.paper_runs import TRIAL

from orthobench.api import SweepOptions, reproduce_file
from orthobench.planning.budget import Budget
from orthobench.session import session
from orthobench.store import open_store

SIZES = "sequence_length = 10, hidden_size = 8, train_size = 40, test_size = 20, batch_size = 10, evaluate_every = 2"


@pytest.mark.slow
def test_whole_run_follows_its_trials_in_the_same_call(tmp_path, monkeypatch):
    file, database = tmp_path / "list.toml", tmp_path / "runs.db"
    file.write_text(
        f"{TRIAL}settings = {{ {SIZES}, learning_rate = 1e-3, epochs = 1 }}\ntags = ['tried', 'rates']\n"
        f"{TRIAL}settings = {{ {SIZES}, learning_rate = 1e-2, epochs = 1 }}\ntags = ['tried', 'rates']\n"
        f"{TRIAL}best_of = 'rates'\nsettings = {{ epochs = 3 }}\ntags = ['whole']\n"
    )
    options = SweepOptions(device="cpu", jobs=0, keep_weights="none", tags=("now",), budget=3600.0)
    planned = reproduce_file(file, db=database, options=options, dry_run=True)
    assert len(planned.plan.runs) == 2
    budgets = []
    monkeypatch.setattr(session, "Budget", lambda seconds: budgets.append(Budget(seconds)) or budgets[-1])
    result = reproduce_file(file, db=database, options=options)
    assert len(budgets) == 1  # of the command, not of each of its two passes
    assert (len(result.plan.runs), len(result.outcomes)) == (3, 3)
    with open_store(str(database)) as store:
        trials = store.runs(keys=[run.key for run in planned.plan.runs])
        (whole,) = (run for run in store.runs() if "whole" in run.tags)
    assert [run.tags for run in trials] == [["now", "rates", "tried"]] * 2
    assert whole.tags == ["now", "whole"]
    best = min(trials, key=lambda run: run.best_value)
    assert whole.spec["model_settings"]["learning_rate"] == best.spec["model_settings"]["learning_rate"]
    assert (whole.status, whole.iterations) == ("finished", 12)
