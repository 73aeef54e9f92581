"""The view of gradient norms gives every stored number to programs that know only SQL."""

from __future__ import annotations

import csv
import itertools
import math
import random
import re
import shutil
import sqlite3
import struct
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from support.records import run_record
from support.trained import train_in

import orthobench as ob
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import TraceRow, open_store
from orthobench.store.blocks import pack

PROGRAMS = ("Python", *(("sqlite3",) if shutil.which("sqlite3") else ()))
"""The command line program is not on every machine."""
SHOWN = 5e-15
"""Half a unit in the last of the 15 digits that the command line program prints, relative to the number."""
MOST_CALLS = 1000
"""Calls, after 1000 instructions of SQLite each, within which a query of a few numbers has to end."""


def every_kind() -> list[float]:
    """Return float32 numbers: all exponents with four fractions and both signs, and random ones."""
    parts = itertools.product((0, 1), range(256), (0, 1, 1 << 22, (1 << 23) - 1))
    words = [sign << 31 | exponent << 23 | fraction for sign, exponent, fraction in parts]
    words += [random.Random(1).getrandbits(32) for _ in range(3000)]
    return list(struct.unpack(f"<{len(words)}f", struct.pack(f"<{len(words)}I", *words)))


def log(file: Path, vectors: dict[str, list[float]], iteration: int = 7) -> None:
    """Add vectors to the database's only run."""
    with open_store(file, create=True) as store:
        run = store.find(run_record()["key"]) or store.start(run_record(), {})
        rows = [TraceRow(name, 1, iteration, values) for name, values in vectors.items()]
        store.log(run.id, [], rows, {"iterations": iteration})


def ask(program: str, file: Path, sql: str) -> list[tuple[str, ...]]:
    """Return the answer of a program without any code of orthobench, each value as text."""
    if program == "sqlite3":
        done = subprocess.run(["sqlite3", "-csv", file, sql], capture_output=True, text=True, check=True)
        return [tuple(row) for row in csv.reader(done.stdout.splitlines())]
    with closing(sqlite3.connect(file)) as connection:
        return [tuple("" if value is None else str(value) for value in row) for row in connection.execute(sql)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_kind_of_number_is_read_exactly(program, tmp_path):
    expected = every_kind()
    log(tmp_path / "r.db", {"gradient_norm/h": expected})
    rows = ask(program, tmp_path / "r.db", "SELECT step, value, kind FROM gradient_norms")
    assert [int(step) for step, _, _ in rows] == list(range(len(expected)))
    kinds = {math.inf: "inf", -math.inf: "-inf"}
    for (_, value, kind), number in zip(rows, expected, strict=True):
        if math.isfinite(number):
            assert kind == ""
            assert float(value) == (pytest.approx(number, rel=SHOWN, abs=0) if program == "sqlite3" else number)
        else:
            assert (value, kind) == ("", kinds.get(number, "nan"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_state_has_its_steps_in_order_and_other_vectors_are_absent(program, tmp_path):
    norms = {f"state{length}": [float(length + step) for step in range(length)] for length in (3, 0, 1, 2, 7, 8, 100)}
    vectors = {"by_length/mse": [0.5], "gradient_norm_of_mean/h": [1.0, 2.0], "gradient_norm_per_sample/h": [4.0]}
    vectors |= {f"gradient_norm/{state}": values for state, values in norms.items()}
    log(tmp_path / "r.db", vectors)
    log(tmp_path / "r.db", {"heat_map/h": [1.0]}, iteration=8)
    rows = ask(program, tmp_path / "r.db", "SELECT run, task, model, seed, epoch, iteration FROM gradient_norms")
    assert set(rows) == {(run_record()["key"], "adding", "rnn", "0", "1", "7")}
    rows = ask(program, tmp_path / "r.db", "SELECT state, step, value FROM gradient_norms")
    expected = [(state, step, value) for state, values in norms.items() for step, value in enumerate(values)]
    assert [(state, int(step), float(value)) for state, step, value in rows] == expected


@pytest.mark.parametrize("program", PROGRAMS)
def test_norms_of_a_trained_run_are_those_that_the_store_reads(program, tmp_path, tiny):
    run, _, _ = train_in(tmp_path, resolve(Catalog(), "adding", "lstm", tiny))
    with ob.open_results(tmp_path / "r.db") as results:
        traces = [each for each in results.store.traces([run.id]) if each.name.startswith("gradient_norm/")]
    expected = {(each.name, each.iteration, at): value for each in traces for at, value in enumerate(each.values)}
    assert {name for name, _, _ in expected} == {"gradient_norm/c", "gradient_norm/h"}
    rows = ask(
        program, tmp_path / "r.db", f"SELECT state, iteration, step, value FROM gradient_norms WHERE run = '{run.key}'"
    )
    read = {(f"gradient_norm/{state}", int(i), int(step)): float(value) for state, i, step, value in rows}
    assert read == pytest.approx(expected, rel=SHOWN, abs=0)


def test_the_norms_of_one_run_are_found_by_index(tmp_path):
    log(tmp_path / "r.db", {"gradient_norm/h": [1.0]})
    plan = " ".join(
        map(str, ask("Python", tmp_path / "r.db", "EXPLAIN QUERY PLAN SELECT * FROM gradient_norms WHERE run = 'x'"))
    )
    assert "SEARCH run USING INDEX" in plan
    assert "SEARCH trace USING INDEX ix_trace_run_id (run_id=?)" in plan


@pytest.mark.parametrize(
    "line",
    [
        "999999999999",
        "1e300",
        "-9223372036854775808",
        "-3",
        "2.5",
        "null",
        '"x"',
        "[[[9]]]",
        '9,"gradient_norm/h":9',
        "}",
    ],
)
def test_damaged_block_ends(line, tmp_path):
    log(tmp_path / "r.db", {"gradient_norm/h": [1.0, 2.0, 3.0]})
    damaged = pack({"gradient_norm/h": [1.0, 2.0, 3.0]}).replace(b"3}", line.encode() + b"}", 1)
    calls: list[int] = []
    with closing(sqlite3.connect(tmp_path / "r.db")) as connection:
        connection.set_progress_handler(lambda: calls.append(0) or len(calls) > MOST_CALLS, 1000)
        for block in (damaged, damaged[:30], damaged[:27], damaged[:5], b"", 7, "text"):
            connection.execute("UPDATE trace SET vectors = ?", [block])
            assert re.search("malformed JSON|^[0-9]$", rows_or_error(connection))


def rows_or_error(connection: sqlite3.Connection) -> str:
    """Return the number of rows of the view, or the error."""
    try:
        return str(len(connection.execute("SELECT * FROM gradient_norms").fetchall()))
    except sqlite3.OperationalError as error:
        return str(error)
