"""Which clock and which machine the times of a run are of, from its segments and environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.records import run_record

from orthobench.analysis.variants import Variant, briefs
from orthobench.store import Run, open_store
from orthobench.store.result import SEVERAL_MACHINES, UNTIMED

SECONDS = {"train": 30.0, "test": 10.0, "cpu": 20.0}


def stored(folder: Path, *parts: tuple[str, dict[str, Any]], seconds: dict[str, float] = SECONDS, **columns) -> Run:
    """Store a run of two epochs with a segment for each back end and environment, and read it back."""
    with open_store(str(folder / "r.db"), create=True) as store:
        for number, (backend, machine) in enumerate(parts):
            run = store.start(run_record(), {"cpu": "a CPU", "accelerator": None, "threads": 1} | machine)
            store.rewind(run.id, 2 * number or -1, f"t{number}")
            store.log(run.id, [], [], {}, backend)
        store.update(run.id, {"status": "finished", "iterations": 10, "seconds": seconds, "backend": "cpu", **columns})
        return store.get(run.key)


@pytest.mark.parametrize("parts", [1, 3])
def test_time_of_one_thread_is_cpu_time_of_which_a_phase_has_its_share(tmp_path, parts):
    """Two epochs in 15 of 20 CPU seconds, because training took 30 of 40 seconds."""
    run = stored(tmp_path, *[("cpu", {})] * parts)
    assert (run.own_seconds, run.training_seconds, run.seconds_per_epoch) == (20.0, 15.0, 7.5)
    assert (run.timed_on, run.trained_with) == ("a CPU, CPU time", "cpu on cpu")
    assert run.phases == {"train": 30.0, "test": 10.0}
    assert [row["CPU s/epoch"] for row in briefs([Variant("rnn", [run])])] == [7.5]


@pytest.mark.parametrize(
    ("machine", "seconds", "device"),
    [
        ({"threads": 2}, SECONDS, "cpu"),
        ({"threads": None}, SECONDS, "cpu"),
        ({}, {"train": 30.0, "test": 10.0}, "cpu"),
        ({"accelerator": "a CPU"}, SECONDS | {"clock": "events"}, "cuda"),
    ],
)
def test_wall_clock_counts_for_threads_a_gpu_and_without_cpu_seconds(tmp_path, machine, seconds, device):
    run = stored(tmp_path, ("cpu", machine), seconds=seconds, device=device)
    assert (run.own_seconds, run.seconds_per_epoch, run.timed_on) == (40.0, 15.0, "a CPU")
    assert [row["s/epoch"] for row in briefs([Variant("rnn", [run])])] == [15.0]


def test_wall_clock_counts_if_an_earlier_segment_had_two_threads(tmp_path):
    run = stored(tmp_path, ("cpu", {"threads": 2}), ("cpu", {}))
    assert (run.own_seconds, run.timed_on) == (40.0, "a CPU")


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (("cuda", {"accelerator": "a GPU"}), "cuda, then cpu"),
        (("cpu", {"cpu": "another CPU"}), "cpu on cpu"),
        (("cpu", {"cpu_model": "26/2/1"}), "cpu on cpu"),
        (("reference", {"cpu": "another CPU"}), "reference, then cpu"),
    ],
)
def test_run_of_several_machines_has_no_time_and_names_its_back_ends(tmp_path, first, words):
    run = stored(tmp_path, first, ("cpu", {}), ("cpu", {}))
    assert len(run.machines) == 2
    assert (run.seconds_per_epoch, run.training_seconds, run.phases) == (None, None, {})
    assert run.untimed == SEVERAL_MACHINES
    assert (run.own_seconds, run.trained_with) == (40.0, words)
    variant = Variant("rnn", [run])
    assert (variant.seconds_per_epoch, variant.timed_on) == (None, "")
    assert variant.backend_note == (f"trained on {words}" if "then" in words else "")


def test_phases_on_a_gpu_without_events_are_unknown_on_one_machine_too(tmp_path):
    run = stored(tmp_path, ("cuda", {"accelerator": "a GPU"}), device="cuda")
    assert (run.seconds_per_epoch, run.untimed, run.own_seconds) == (None, UNTIMED, 40.0)
