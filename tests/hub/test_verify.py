"""`verify` trains a run again: equal numbers, a spread of other seeds, and no stranger's code."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from orthobench.analysis.verification import largest_difference

CELL = "from pathlib import Path\n\nimport torch\n\n\nclass Mine(torch.nn.RNN):\n    pass\n"


@pytest.fixture
def keys(orthobench, prepared, tiny_options, tmp_path) -> list[str]:
    """The keys of five seeds of one variant in results.db, by seed."""
    sweep = ("sweep", "adding", "--models", "lstm", "--seeds", "5", *tiny_options, "-q")
    shutil.copytree(prepared(sweep), tmp_path, dirs_exist_ok=True)
    return [run["run"] for run in sorted(json.loads(orthobench("ls", "--json").out), key=lambda run: run["seed"])]


def change(statement: str, *values: object) -> None:
    with closing(sqlite3.connect("results.db")) as database, database:
        assert database.execute(statement, values).rowcount > 0


def move_elsewhere() -> None:
    """Let the stored runs be of a machine with another processor."""
    change("UPDATE environment SET facts = json_set(facts, '$.cpu_model', 'another')")


def verified(orthobench, key: str, code: int, *words: str) -> dict[str, object]:
    done = orthobench("verify", key, "--json", "-q", *words)
    assert done.code == code, done.err
    return dict(json.loads(done.out))


@pytest.mark.parametrize("place", ["results.db", "./pub"])
def test_the_same_environment_gives_the_same_numbers(orthobench, keys, place):
    orthobench("publish", "--hub", "./pub")
    before = Path("results.db").read_bytes()
    result = verified(orthobench, keys[0], 0, "--db", place)
    assert result["outcome"] == "identical"
    assert result["environment"] == {}
    assert result["numbers"] == result["equal"] > 20
    assert result["stored"] == result["again"]
    assert Path("results.db").read_bytes() == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE metric SET value = value * (1 + 1e-15) WHERE iteration = (SELECT max(iteration) FROM metric)",
        "UPDATE run SET final_value = 0.01, best_value = 0.01",
        "UPDATE run SET best_iteration = best_iteration - 1",
        "DELETE FROM metric WHERE iteration = (SELECT max(iteration) FROM metric)",
    ],
    ids=["last bit", "result", "best", "left out"],
)
def test_a_changed_number_differs(orthobench, keys, statement):
    change(statement)
    result = verified(orthobench, keys[0], 1)
    assert result["outcome"] == "differs"
    assert result["reason"] == "the environments are equal, and the numbers are not"


def test_elsewhere_the_other_seeds_give_the_tolerance(orthobench, keys):
    """The margin is 3.182 * sqrt(2) * s: Student's t at 97.5 % with 3 degrees of freedom, from a table."""
    move_elsewhere()
    assert verified(orthobench, keys[0], 0)["outcome"] == "identical"  # equal numbers need no tolerance
    with closing(sqlite3.connect("results.db")) as database:
        values = dict(database.execute("SELECT key, final_value FROM run"))
    margin = 3.1824 * np.sqrt(2) * np.std([values[key] for key in keys[1:]], ddof=1)
    for shift, code, outcome in ((0.9, 0, "agrees"), (1.1, 1, "differs")):
        change("UPDATE run SET final_value = ? WHERE key = ?", values[keys[0]] + shift * margin, keys[0])
        result = verified(orthobench, keys[0], code)
        assert result["outcome"] == outcome
        assert result["margin"] == pytest.approx(margin, rel=1e-4)
        assert result["seeds"] == 4
        assert result["environment"] == {"cpu_model": [["another"], [result["environment"]["cpu_model"][1][0]]]}


def test_two_other_seeds_decide_nothing(orthobench, keys):
    move_elsewhere()
    assert orthobench("delete", "--where", "seed=3,4", "--yes").code == 0
    change("UPDATE run SET final_value = final_value * 1.0001 WHERE key = ?", keys[0])
    assert "too few other seeds of this variant" in str(verified(orthobench, keys[0], 1)["reason"])


def test_the_margin_is_exceeded_by_five_of_a_hundred_pairs():
    rng = np.random.default_rng(0)
    draws = rng.normal(3.0, 0.2, (20_000, 6))
    exceeded = [abs(a - b) > (largest_difference(others) or 0) for a, b, *others in draws.tolist()]
    assert np.mean(exceeded) == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / 20_000))
    assert largest_difference([1.0, 2.0]) is None


def test_a_strangers_code_runs_only_if_it_is_named(orthobench, tmp_path, tiny_options):
    Path("cell.py").write_text(CELL)
    assert orthobench("run", "adding", "./cell.py:Mine", *tiny_options, "--db", "a.db").code == 0
    (run,) = json.loads(orthobench("ls", "--json", "--db", "a.db").out)
    orthobench("publish", "--hub", "./pub", "a.db")
    refused = orthobench("verify", run["run"], "--db", "./pub", "-q")
    assert refused.code == 2
    assert refused.err.rstrip().endswith("if you trust it, add --model ./cell.py:Mine")
    assert verified(orthobench, run["run"], 0, "--db", "./pub", "--model", "./cell.py:Mine")["outcome"] == "identical"
    Path("cell.py").write_text(CELL + "\n# another text\n")
    other = orthobench("verify", run["run"], "--db", "./pub", "--model", "./cell.py:Mine", "-q")
    assert other.code == 2
    assert "does not match this code" in other.err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("0123456789abcdef",), "there is no run '0123456789abcdef'"),
        (("KEY", "--db", "none.db"), "there is no database none.db"),
        (("KEY", "-s", "text=x"), "has no setting text that names a file"),
        (("KEY", "-s", "text"), "KEY=VALUE"),
    ],
)
def test_what_cannot_be_verified_is_one_line(orthobench, keys, words, reason):
    done = orthobench("verify", *(keys[0] if word == "KEY" else word for word in words), "-q")
    assert done.code == 2
    assert reason in done.err
    assert len(done.err.splitlines()) == 1


def test_a_run_without_a_result_cannot_be_verified(orthobench, keys):
    change("UPDATE run SET status = 'failed' WHERE key = ?", keys[0])
    assert "is failed and has no result to verify" in orthobench("verify", keys[0], "-q").err
