"""Runs killed with SIGKILL at any moment: asked again, they end with the numbers of an uncut run."""

from __future__ import annotations

import random
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.crash import Kill, call

from orthobench.store import open_store

TEXT = "".join("state carried over from piece to piece"[(k * k + k // 5) % 38] for k in range(400))
TASKS = {
    "adding": ["adding", "scornn", "-s", "sequence_length=10", "-s", "train_size=40", "-s", "test_size=20"],
    "ptb": ["ptb", "lstm", "-s", "text=text.txt", "-s", "unroll_length=8", "-s", "evaluation_batch_size=3"],
}
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


@pytest.fixture(scope="module")
def uncut(tmp_path_factory) -> dict[str, tuple[list, list[str], float]]:
    """Of every task's run: what is in the database at the end, the stages of the lines executed, and the seconds."""
    results = {}
    for task in TASKS:
        folder, lines = prepare(tmp_path_factory.mktemp("uncut") / task), tmp_path_factory.mktemp("lines") / task
        assert call(folder, command(task), lines=lines) == 0, output(folder)
        again = prepare(tmp_path_factory.mktemp("timed") / task)
        start_time = time.perf_counter()
        assert call(again, command(task)) == 0, output(again)
        results[task] = contents(folder), lines.read_text().split(), time.perf_counter() - start_time
        assert contents(again) == results[task][0]
    return results


def at_stage(rng: random.Random, stages: list[str], stage: str) -> Kill:
    return Kill(line=rng.choice([number for number, name in enumerate(stages) if name == stage]))


def kill_and_ask_again(folder: Path, task: str, kills: list[Kill]) -> int:
    """Ask for a run until it is done, killed as often as it lasts; how often it was."""
    killed = 0
    for kill in kills:
        code = call(folder, command(task), kill)
        if code != -signal.SIGKILL:
            assert code == 0, output(folder)
            break
        killed += 1
    assert call(folder, command(task)) == 0, output(folder)
    return killed


def check(folder: Path, expected: list) -> None:
    assert contents(folder) == expected
    assert not list(folder.glob("*.part*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "first", "then"),
    [("adding", "migration", "checkpointing"), ("ptb", "logging", "start"), ("adding", "end", "training")],
)
def test_killed_run_ends_with_the_numbers_of_an_uninterrupted_one(task, first, then, uncut, tmp_path):
    expected, stages, _ = uncut[task]
    rng = random.Random(f"{task} {first} {then}")
    folder = prepare(tmp_path / "run")
    kills = [at_stage(rng, stages, first), Kill(half=2), at_stage(rng, stages, then)]
    assert kill_and_ask_again(folder, task, kills) >= 1
    check(folder, expected)


@pytest.mark.slow
def test_hundred_kills_end_with_the_numbers_of_an_uninterrupted_run(uncut, tmp_path):
    """First at a line of a given stage, then at any line, after a delay, or half-way through a checkpoint's file."""
    rng, killed, case = random.Random(0), 0, 0
    while killed < 100:
        task = rng.choice(list(TASKS))
        expected, stages, seconds = uncut[task]
        names = sorted(set(stages))
        kills = [at_stage(rng, stages, names[case % len(names)])]
        for _ in range(4):
            kind = rng.choice(["line", "delay", "delay", "half"])
            kills.append(
                at_stage(rng, stages, rng.choice(names))
                if kind == "line"
                else Kill(delay=rng.uniform(0, seconds))
                if kind == "delay"
                else Kill(half=rng.randint(1, 3))
            )
        folder = prepare(tmp_path / str(case))
        times = kill_and_ask_again(folder, task, kills)
        assert times >= 1  # the first kill is at a line that is certainly reached
        check(folder, expected)
        killed += times
        case += 1
