"""The folder of a database's checkpoints has one name for each database; folders of earlier versions are adopted."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from orthobench import api
from orthobench.options import RunOptions
from orthobench.plugins import Catalog
from orthobench.spec import RunConfig, resolve
from orthobench.store import open_store
from orthobench.training.checkpoint import GUARD, CheckpointFolder, checkpoint_root, checkpoints_at
from orthobench.training.earlier_checkpoints import adopt_checkpoints
from orthobench.training.lifecycle import train
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
    return checkpoints


def rows(database: str, config: RunConfig) -> list:
    with open_store(database) as store:
        run = store.find(config.spec.key)
        return [(row.split, row.name, row.iteration, row.value) for row in store.metrics([run.id])]


def resumed(database: str, tiny, caplog) -> str:
    """Run the command again, and return its warnings."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "orthobench"):
        assert api.run("adding", "rnn", db=database, settings=tiny).status == "finished"
    return caplog.text


def test_each_database_has_a_folder_of_its_own():
    names = ["exp.1", "exp.2", "a.db", "a.sqlite", "a", "a.db.1"]
    assert len({checkpoint_root(name) for name in names}) == len(names)
    assert checkpoint_root("results.db") == Path.cwd() / "results.db.checkpoints"


@pytest.mark.parametrize("link", ["link.db", "inner/../link.db", "linked/real.db"])
def test_a_link_has_the_folder_and_locks_of_its_file(link):
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


def test_finishing_in_one_database_leaves_the_checkpoints_of_another(config, tiny, caplog):
    cut = interrupted("exp.1", config)
    assert not resumed("exp.2", tiny, caplog)
    assert cut.exists()
    assert STARTS_OVER not in resumed("exp.1", tiny, caplog)
    assert rows("exp.1", config) == rows("exp.2", config)
    assert not cut.exists()


@pytest.mark.parametrize("name", ["results.db", "link.db", "results"])
def test_a_run_of_an_earlier_version_resumes_from_its_checkpoint(name, config, tiny, caplog):
    """Earlier versions named the folder after the database as the user wrote it, without the suffix."""
    file = "inner/real.db" if name == "link.db" else name
    Path("inner").mkdir()
    if name == "link.db":
        Path("link.db").symlink_to(file)
    cut = interrupted(name, config)
    earlier = Path(name).with_suffix(".checkpoints")
    cut.root.rename(earlier)
    (earlier / "0123456789abcdef.lock").touch()  # of a finished run
    assert STARTS_OVER not in resumed(name, tiny, caplog)
    resumed("uncut.db", tiny, caplog)
    assert rows(name, config) == rows("uncut.db", config)
    assert cut.root == Path.cwd() / f"{file}.checkpoints"
    assert not cut.exists()
    assert earlier.exists() == (earlier.absolute() == cut.root)


def test_a_run_with_a_folder_of_the_present_version_beside_resumes(config, tiny, caplog):
    cut = interrupted("results.db", config)
    earlier = Path("results.checkpoints")
    earlier.mkdir()
    cut.folder.rename(earlier / config.spec.key)
    assert cut.root.exists()
    assert STARTS_OVER not in resumed("results.db", tiny, caplog)
    assert not earlier.exists()


def test_a_folder_that_two_databases_shared_serves_the_one_that_wrote_last(config, tiny, caplog):
    """The checkpoint is of exp.1. So exp.2 starts over, with a warning, and ends with the same rows."""
    for name in ("exp.2", "exp.1"):
        cut = interrupted(name, config)
    cut.root.rename("exp.checkpoints")
    checkpoint_root("exp.2").rename("unused")
    for name in ("exp.1", "exp.2"):
        assert (STARTS_OVER in resumed(name, tiny, caplog)) == (name == "exp.2")
        assert (Path("exp.checkpoints") / config.spec.key / "checkpoint.pt").exists()
        assert not checkpoints_at(checkpoint_root(name), config.spec.key).exists()
    assert rows("exp.1", config) == rows("exp.2", config)


def test_the_present_folder_of_another_database_stays(config, tiny, caplog):
    """`exp` has its checkpoints where earlier versions kept those of `exp.db`."""
    cut = interrupted("exp", config)
    interrupted("exp.db", config)
    checkpoint_root("exp.db").rename("unused")
    resumed("exp.db", tiny, caplog)
    assert cut.exists()
    assert STARTS_OVER not in resumed("exp", tiny, caplog)


def test_the_checkpoint_of_a_run_under_way_stays(config):
    cut = interrupted("results.db", config)
    cut.root.rename("results.checkpoints")
    earlier = CheckpointFolder(Path("results.checkpoints"), config.spec.key)
    with open_store("results.db") as store:
        with earlier.lock():  # a process of an earlier version trains it
            adopt_checkpoints("results.db", store)
            assert earlier.exists()
            assert not cut.exists()
        adopt_checkpoints("results.db", store)
    assert cut.exists()
    assert not earlier.root.exists()


def test_checkpoints_of_other_runs_stay(config):
    with open_store("results.db", create=True) as store:
        other = Path("results.checkpoints") / config.spec.key
        other.mkdir(parents=True)
        (other / "checkpoint.pt").touch()
        adopt_checkpoints("results.db", store)
        adopt_checkpoints("sqlite://", store)
    assert (other / "checkpoint.pt").exists()


def test_a_finished_run_leaves_no_lock(config, tiny):
    api.run("adding", "rnn", db="results.db", settings=tiny)
    api.sweep("adding", "rnn", seeds=2, db="results.db", settings=tiny, jobs=0)
    assert {path.name for path in Path("results.db.checkpoints").iterdir()} <= {GUARD}
