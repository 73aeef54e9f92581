"""The seconds of a run: by phase, and the CPU seconds of all phases, which a busy machine does not add to."""

from __future__ import annotations

import time

import orthobench as ob
from orthobench.store.result import CPU_SECONDS
from orthobench.training.trainer import PhaseTimer

SETTINGS = {"sequence_length": 10, "train_size": 40, "test_size": 20, "batch_size": 10, "epochs": 1, "hidden_size": 8}


def test_waiting_takes_no_cpu_seconds():
    timer = PhaseTimer()
    with timer("train"):
        time.sleep(0.05)
    assert timer.seconds["train"] >= 0.05
    assert timer.seconds[CPU_SECONDS] < timer.seconds["train"]


def test_run_stores_cpu_seconds_and_leaves_them_out_of_sums(tmp_path):
    run = ob.run("adding", "rnn", settings=SETTINGS, db=tmp_path / "r.db")
    assert run.seconds[CPU_SECONDS] > 0
    phases = {name: value for name, value in run.seconds.items() if name != CPU_SECONDS}
    assert run.wall_seconds == sum(phases.values())
    with ob.open_results(tmp_path / "r.db") as results:
        assert results.runs()["seconds"].tolist() == [run.wall_seconds]
