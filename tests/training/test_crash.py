"""Runs killed with SIGKILL at any moment: asked again, they end with the numbers of an uncut run."""

from __future__ import annotations

import random
import signal
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.crash import FILES, FUNCTIONS, Kill, call, stages

from orthobench.store import open_store

TEXT = "".join("state carried over from piece to piece"[(k * k + k // 5) % 38] for k in range(400))
TASKS = {
    "adding": ["adding", "scornn", "-s", "sequence_length=10", "-s", "train_size=40", "-s", "test_size=20"],
    "ptb": ["ptb", "lstm", "-s", "text=text.txt", "-s", "unroll_length=8", "-s", "evaluation_batch_size=3"],
}
HALF = Kill(half=2)
SHARED = ["-s", "hidden_size=6", "-s", "batch_size=5", "-s", "epochs=3", "-s", "evaluate_every=3"]


def command(task: str) -> list[str]:
    order = ["-s", "shuffle=true"] if task == "adding" else []
    return ["run", *TASKS[task], *SHARED, *order, "--checkpoint-every", "0"]


def prepare(folder: Path) -> Path:
    """A folder without a database, which a run has to create before it begins."""
    folder.mkdir()
    (folder / "text.txt").write_text(TEXT)
    return folder


def contents(folder: Path) -> list:
    """All that is in the database but times, machines and the rows' numbers; the database is in order."""
    with closing(sqlite3.connect(folder / "results.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    rows: list[Any] = []
    with open_store(str(folder / "results.db")) as store:
        for run in store.runs():
            metrics = [(m.split, m.name, m.epoch, m.iteration, m.value) for m in store.metrics([run.id])]
            traces = [(t.name, t.epoch, t.iteration, list(t.values)) for t in store.traces([run.id])]
            rows.append((run.task, run.model, run.status, run.message, run.iterations, run.final_value, run.best_value))
            rows.append((run.best_iteration, metrics, traces))
    return rows


def output(folder: Path) -> str:
    return (folder / "output").read_text()


@dataclass(frozen=True)
class Uncut:
    """A run of a task that nothing kills.

    Attributes:
        contents: what is in the database at its end.
        stages: of the lines executed.
        resumed: the stages of the lines that a run executes if it was killed half-way through its second checkpoint.
        seconds: the time that it takes.
    """

    contents: list
    stages: list[str]
    resumed: list[str]
    seconds: float


@pytest.fixture(scope="module")
def uncut(tmp_path_factory) -> dict[str, Uncut]:
    """Each task's run, after a check that the trace has seen all files and functions that have a stage."""
    results, seen = {}, set()
    for task in TASKS:
        folder, resumed = (prepare(tmp_path_factory.mktemp(name) / task) for name in ("uncut", "resumed"))
        lines, resumed_lines = (tmp_path_factory.mktemp("lines") / name for name in ("uncut", "resumed"))
        assert call(folder, command(task), lines=lines) == 0, output(folder)
        assert call(resumed, command(task), HALF) == -signal.SIGKILL
        assert call(resumed, command(task), lines=resumed_lines) == 0, output(resumed)
        again = prepare(tmp_path_factory.mktemp("timed") / task)
        start_time = time.perf_counter()
        assert call(again, command(task)) == 0, output(again)
        seconds = time.perf_counter() - start_time
        results[task] = Uncut(contents(folder), stages(lines), stages(resumed_lines), seconds)
        assert contents(again) == contents(resumed) == results[task].contents
        seen |= {*lines.read_text().split(), *resumed_lines.read_text().split()}
    assert seen >= {*FILES, *FUNCTIONS}
    return results


def at_stage(rng: random.Random, stages: list[str], stage: str) -> Kill:
    return Kill(line=rng.choice([number for number, name in enumerate(stages) if name == stage]))


def kill_and_ask_again(folder: Path, task: str, kills: list[Kill]) -> int:
    """Ask for a run until it is done, killed as often as it lasts; how often it was."""
    killed = 0
    for kill in (*kills, Kill()):
        code = call(folder, command(task), kill)
        # Neither a damaged checkpoint nor none, either of which would go unnoticed, because a run that starts
        # over has the same numbers.
        assert "starts over" not in output(folder), output(folder)
        if code != -signal.SIGKILL:
            assert code == 0, output(folder)
            break
        killed += 1
    return killed


def check(folder: Path, expected: list) -> None:
    assert contents(folder) == expected
    assert not list(folder.rglob("*.part*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "first", "then"),
    [("adding", "migration", "replacement"), ("ptb", "recording", "resumption"), ("adding", "end", "checkpoint")],
)
def test_killed_run_ends_with_the_numbers_of_an_uninterrupted_one(task, first, then, uncut, tmp_path):
    rng = random.Random(f"{task} {first} {then}")
    folder = prepare(tmp_path / "run")
    kills = [at_stage(rng, uncut[task].stages, first), HALF, at_stage(rng, uncut[task].resumed, then)]
    assert kill_and_ask_again(folder, task, kills) >= 1
    check(folder, uncut[task].contents)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["replacement", "renaming", "checkpoint", "resumption"])
def test_resumed_run_that_is_killed_ends_with_the_numbers_of_an_uninterrupted_one(stage, uncut, tmp_path):
    """Both kills are certain, because the second one is at a line of a run that resumes from the same checkpoint."""
    rng = random.Random(stage)
    folder = prepare(tmp_path / "run")
    assert kill_and_ask_again(folder, "ptb", [HALF, at_stage(rng, uncut["ptb"].resumed, stage)]) == 2
    check(folder, uncut["ptb"].contents)


@pytest.mark.slow
def test_hundred_kills_end_with_the_numbers_of_an_uninterrupted_run(uncut, tmp_path):
    """First at a line of a given stage, then at any line, after a delay, or half-way through a checkpoint's file."""
    rng, killed, case = random.Random(0), 0, 0
    while killed < 100:
        task = rng.choice(list(TASKS))
        whole = uncut[task]
        names = sorted(set(whole.stages))
        kills = [at_stage(rng, whole.stages, names[case % len(names)])]
        for _ in range(4):
            kind = rng.choice(["line", "delay", "delay", "half"])
            kills.append(
                at_stage(rng, whole.resumed, rng.choice(sorted(set(whole.resumed))))
                if kind == "line"
                else Kill(delay=rng.uniform(0, whole.seconds))
                if kind == "delay"
                else Kill(half=rng.randint(1, 3))
            )
        folder = prepare(tmp_path / str(case))
        times = kill_and_ask_again(folder, task, kills)
        assert times >= 1  # the first kill is at a line that is certainly reached
        check(folder, whole.contents)
        killed += times
        case += 1
