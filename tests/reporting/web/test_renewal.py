"""A served page is renewed in parts: a new run rebuilds what shows it, and the page equals one built from nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.pages import add_run, block

from orthobench.reporting.account import load
from orthobench.reporting.account.part_cache import PartCache
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.page.html import build_page
from orthobench.reporting.page.run_records import points_for
from orthobench.spec.index import index
from orthobench.store import Store, open_store

SHORT, LONG = {"sequence_length": "10"}, {"sequence_length": "20"}


def page(store: Store, cache: PartCache | None = None) -> str:
    """A page without the time at which it was created."""
    text, _ = build_page(store, Scope(), index()["variants"], sweeps=[], cache=cache)
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "", text)


@pytest.fixture
def store(tmp_path):
    with open_store(str(tmp_path / "results.db"), create=True) as store:
        for settings in (SHORT, LONG):
            for seed in range(2):
                add_run(store, seed=seed, settings=settings)
        add_run(store, task="copying")
        yield store


def condition(store: Store, key: str) -> str:
    run = store.find(key)
    assert run is not None
    return run.condition


def test_unchanged_database_rebuilds_nothing(store):
    cache = PartCache()
    first = page(store, cache)
    assert len(cache.built) == len(set(cache.built)) > 9
    cache.built.clear()
    assert (page(store, cache), cache.built) == (first, [])


def test_new_run_rebuilds_the_parts_of_its_condition(store, monkeypatch):
    cache, read = PartCache(), []
    page(store, cache)
    cache.built.clear()

    def collect(store, runs):
        read.append(sorted(run.seed for run in runs))
        return original(store, runs)

    original = load.collect
    monkeypatch.setattr(load, "collect", collect)
    key = condition(store, add_run(store, seed=7, settings=LONG, final=0.05))
    renewed = page(store, cache)
    built = sorted(name for name in cache.built if not name.startswith("paper "))  # claims may name all runs of a task
    assert built == [f"condition {key}", f"figures-{key}", f"leaderboard {key}", f"runs-{key}", "styles"]
    assert read == [[0, 1, 7]]
    assert renewed == page(store)


def change(store: Store, what: str) -> None:
    """Change the database in one of the ways in which commands change it."""
    run = store.runs(task="copying")[0]
    if what == "tag":
        store.tag([run.key], ["named"])
    elif what == "status":
        store.update(run.id, {"status": "interrupted"})
    elif what == "deleted":
        store.delete(run.id)
    elif what == "new condition":
        add_run(store, settings={"sequence_length": "33"})
    elif what == "new model":
        add_run(store, "gru", task="copying", final=0.001)


@pytest.mark.parametrize("what", ["tag", "status", "deleted", "new condition", "new model"])
def test_renewed_page_equals_a_page_from_nothing(store, what):
    cache = PartCache()
    before = page(store, cache)
    change(store, what)
    renewed = page(store, cache)
    assert renewed != before
    assert renewed == page(store)


def test_run_that_a_process_has_left_gets_its_current_status(store):
    run = store.runs(task="copying")[0]
    store.update(run.id, {"status": "running"})
    cache = PartCache()
    statuses = []
    for current in ("running", "interrupted"):
        scope = Scope(status_of=lambda run, current=current: current if run.status == "running" else run.status)
        text, _ = build_page(store, scope, index()["variants"], sweeps=[], cache=cache)
        rows = block(text, "index")["rows"]
        statuses.append(next(row[3] for row in rows if row[0] == run.key))
    assert statuses == ["running", "interrupted"]


def test_one_more_run_seldom_changes_the_points_of_all_curves():
    counts = [points_for(count) for count in range(1, 2_000)]
    assert len(set(counts)) < 20
    assert counts == sorted(counts, reverse=True)
    assert all(2 * points >= 24_000 // count for count, points in enumerate(counts, 1) if 16 < count < 1_000)
    assert (counts[0], counts[-1]) == (1_500, 24)


@pytest.mark.slow
def test_shipped_page_is_renewed_in_few_parts(tmp_path):
    """One more seed of a paper's experiment, in the reference results."""
    shipped = Path(__file__).parents[3] / "results.db"
    (tmp_path / "results.db").write_bytes(shipped.read_bytes())
    with open_store(str(tmp_path / "results.db")) as store:
        cache = PartCache()
        page(store, cache)
        parts = len(cache.built)
        cache.built.clear()
        model = store.runs(task="adding", model="scornn", status="finished")[0]
        settings = {name: str(value) for name, value in model.spec["model_settings"].items() if name == "hidden_size"}
        key = condition(store, add_run(store, "scornn", seed=99, settings=settings))
        renewed = page(store, cache)
        assert f"runs-{key}" in cache.built
        assert [name for name in cache.built if name.startswith("runs-")] == [f"runs-{key}"]
        assert len(cache.built) < parts / 4
        assert renewed == page(store)
