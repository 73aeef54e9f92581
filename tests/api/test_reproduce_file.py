"""A list of runs: its runs train once, with the tags of the list and of the call."""

from __future__ import annotations

import pytest
from support.paper_runs import ENTRY

from orthobench.api import SweepOptions, reproduce_file
from orthobench.store import open_store

SIZES = "sequence_length = 10, hidden_size = 8, train_size = 40, test_size = 20, batch_size = 10, evaluate_every = 2"


@pytest.mark.slow
def test_listed_runs_train_once_with_their_tags(tmp_path):
    file, database = tmp_path / "list.toml", tmp_path / "runs.db"
    file.write_text(
        f"{ENTRY}settings = {{ {SIZES}, epochs = 1 }}\ntags = ['tried', 'rates']\n"
        f"{ENTRY}settings = {{ {SIZES}, epochs = 3 }}\ntags = ['whole']\n"
    )
    options = SweepOptions(device="cpu", jobs=0, keep_weights="none", tags=("now",))
    assert len(reproduce_file(file, db=database, options=options, dry_run=True).plan.runs) == 2
    assert len(reproduce_file(file, db=database, options=options).outcomes) == 2
    with open_store(str(database)) as store:
        ended = {tuple(run.tags): (run.status, run.iterations) for run in store.runs()}
    assert ended == {("now", "rates", "tried"): ("finished", 4), ("now", "whole"): ("finished", 12)}
    again = reproduce_file(file, db=database, options=options)
    assert [run.state for run in again.plan.runs] == ["finished"] * 2
