"""`orthobench delete`: runs go with their rows and checkpoints, after a copy and a question."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from io import StringIO
from pathlib import Path

import pytest

import orthobench as ob
from orthobench.store import open_store
from orthobench.training.checkpoint import checkpoint_root, checkpoints_at


@pytest.fixture
def keys(after, tiny_options) -> list[str]:
    """Two runs of the LSTM and one of the RNN in results.db."""
    seeds = (("lstm", "0"), ("lstm", "1"), ("rnn", "0"))
    after(*(("run", "adding", model, *tiny_options, "--seed", seed) for model, seed in seeds))
    return stored()


def stored(name: str = "results.db") -> list[str]:
    with open_store(name) as store:
        return [run.key for run in store.runs()]


def row_counts() -> dict[str, int]:
    """Return the number of rows in metric and trace, by the key of their run; "" for rows without a run."""
    counts: dict[str, int] = {}
    with closing(sqlite3.connect("results.db")) as database:
        for table in ("metric", "trace"):
            query = f"SELECT coalesce(key, ''), count(*) FROM {table} LEFT JOIN run ON run.id = run_id GROUP BY 1"
            for key, count in database.execute(query):
                counts[key] = counts.get(key, 0) + count
    return counts


def test_dry_run_deletes_nothing(orthobench, keys):
    outcome = orthobench("delete", "--model", "lstm", "--dry-run")
    assert outcome.code == 0
    assert keys[0] in outcome.out
    assert keys[2] not in outcome.out
    assert outcome.out.splitlines()[-1] == "2 runs would be deleted"
    assert stored() == keys


@pytest.mark.parametrize(
    ("answer", "code", "error"),
    [("y\n", 0, ""), ("n\n", 130, ""), ("", 2, r"error: 'Delete 2 runs\?' has no answer, .* terminal: add --yes\n")],
)
def test_question_is_answered_by_the_input(orthobench, keys, monkeypatch, answer, code, error):
    monkeypatch.setattr("sys.stdin", StringIO(answer))
    outcome = orthobench("delete", "--model", "lstm")
    assert outcome.code == code
    assert re.fullmatch(error, outcome.err), outcome.err
    assert stored() == (keys if code else keys[2:])


def test_deleted_runs_take_rows_and_checkpoints_and_stay_in_the_backup(orthobench, keys):
    before = row_counts()
    checkpoints = checkpoints_at(checkpoint_root("results.db"), keys[0])
    checkpoints.save({"logged": 0})
    outcome = orthobench("delete", "--where", "model=lstm", "--yes")
    assert outcome.code == 0, outcome.err
    assert stored() == keys[2:]
    assert row_counts() == {keys[2]: before[keys[2]]}
    assert not checkpoints.exists()
    (copy,) = Path().glob("results.db.backup-*")
    assert outcome.out.splitlines()[-1] == f"2 runs deleted; {copy} is the backup"
    assert stored(str(copy)) == keys


def test_run_is_named_by_its_first_digits(orthobench, keys):
    assert orthobench("delete", keys[1][:8], "--yes").code == 0
    assert stored() == [keys[0], keys[2]]


def test_unanswered_question_deletes_nothing(orthobench, keys):
    assert orthobench("delete", keys[0]).code != 0
    assert stored() == keys
    assert not list(Path().glob("*.backup-*"))


def test_run_in_training_blocks_the_whole_deletion(orthobench, keys):
    with checkpoints_at(checkpoint_root("results.db"), keys[1]).lock():
        outcome = orthobench("delete", "--model", "lstm", "--yes")
    assert outcome.code == 2
    assert keys[1] in outcome.err
    assert stored() == keys


@pytest.mark.parametrize("words", [(), ("0123", "--model", "lstm"), ("nix",), ("--status", "faild")])
def test_invalid_arguments_delete_nothing(orthobench, keys, words):
    assert orthobench("delete", *words, "--yes").code == 2
    assert stored() == keys


def test_python_api_deletes_runs(keys):
    with ob.open_results() as results:
        results.delete(results.runs(model="rnn"))
        with pytest.raises(ob.UsageError, match="`runs=None`: give a table"):
            results.delete(None)
    assert stored() == keys[:2]


def test_selection_without_a_match_deletes_nothing(orthobench, keys):
    outcome = orthobench("delete", "--status", "failed", "--yes")
    assert (outcome.code, outcome.out) == (
        0,
        "no run has status=failed; runs have status finished: nothing is deleted\n",
    )
    assert stored() == keys
