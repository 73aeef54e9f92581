"""The folder of a database's checkpoints has one name for each database."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from orthobench import api
from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.spec.resolve import RunConfig, resolve
from orthobench.store import open_store
from orthobench.training.checkpoint import CheckpointFolder, checkpoint_root, checkpoints_at
from orthobench.training.lifecycle import train
from orthobench.training.locks import GUARD
from orthobench.training.loop import Interrupted

LAST = 8
"""The iteration after which the runs here are interrupted."""
STARTS_OVER = "starts over"


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def config(tiny) -> RunConfig:
    return resolve(Catalog(), "adding", "rnn", tiny)


def interrupted(database: str, config: RunConfig) -> CheckpointFolder:
    """Train a run into a database until iteration `LAST`, and return its checkpoints."""
    iterations = iter(range(LAST))
    checkpoints = checkpoints_at(checkpoint_root(database), config.spec.key)
    with open_store(database, create=True) as store, pytest.raises(Interrupted):
        train(config, store, RunOptions(device="cpu"), should_stop=lambda: next(iterations, None) is None)
    assert checkpoints.exists()
    assert isinstance(checkpoints, CheckpointFolder)
    return checkpoints


def rows(database: str, config: RunConfig) -> list:
    with open_store(database) as store:
        run = store.find(config.spec.key)
        assert run is not None
        return [(row.split, row.name, row.iteration, row.value) for row in store.metrics([run.id])]


def resumed(database: str, tiny, caplog) -> str:
    """Run the command again, and return its warnings."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "orthobench"):
        assert api.run("adding", "rnn", db=database, settings=tiny).status == "finished"
    return caplog.text


def test_each_database_has_its_own_folder():
    names = ["exp.1", "exp.2", "a.db", "a.sqlite", "a", "a.db.1"]
    assert len({checkpoint_root(name) for name in names}) == len(names)
    assert checkpoint_root("results.db") == Path.cwd() / "results.db.checkpoints"


@pytest.mark.parametrize("link", ["link.db", "inner/../link.db", "linked/real.db"])
def test_link_shares_the_folder_and_locks_of_its_file(link):
    Path("inner").mkdir()
    (Path("inner") / "real.db").touch()
    Path("link.db").symlink_to("inner/real.db")
    Path("linked").symlink_to("inner", target_is_directory=True)
    root = checkpoint_root("inner/real.db")
    assert root == Path.cwd() / "inner" / "real.db.checkpoints"
    assert checkpoint_root(link) == checkpoint_root(str(Path(link).absolute())) == root
    assert checkpoint_root(f"sqlite:///{link}") == root
    with checkpoints_at(root, "key").lock():
        assert checkpoints_at(checkpoint_root(link), "key").is_locked()


def test_finishing_in_one_database_keeps_checkpoints_of_another(config, tiny, caplog):
    cut = interrupted("exp.1", config)
    assert not resumed("exp.2", tiny, caplog)
    assert cut.exists()
    assert STARTS_OVER not in resumed("exp.1", tiny, caplog)
    assert rows("exp.1", config) == rows("exp.2", config)
    assert not cut.exists()


def test_finished_run_leaves_no_lock(config, tiny):
    api.run("adding", "rnn", db="results.db", settings=tiny)
    api.sweep("adding", "rnn", seeds=2, db="results.db", settings=tiny, jobs=0)
    assert {path.name for path in Path("results.db.checkpoints").iterdir()} <= {GUARD}
