"""A page of 123 runs, and a search."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pages import add_run

from orthobench.reporting.account.scope import Scope
from orthobench.reporting.page.html import write_html
from orthobench.store import open_store

LONG = "x" * 10_000
SETTINGS = {"sequence_length": "10", "hidden_size": "8"}


@pytest.fixture(scope="session")
def keys() -> dict[str, str]:
    """The runs of the page, by their names in these tests."""
    return {}


@pytest.fixture(scope="session")
def page(tmp_path_factory, keys) -> Path:
    """A page of runs of two models, 120 runs of a sweep, one with a long message, and a search."""
    folder = tmp_path_factory.mktemp("page")
    with open_store(str(folder / "results.db"), create=True) as store:
        keys["good"] = add_run(store, "lstm", 0, SETTINGS, final=0.01)
        keys["other"] = add_run(store, "rnn", 1, SETTINGS, final=0.15)
        keys["failed"] = add_run(store, "rnn", 2, SETTINGS, final=0.5, status="failed", message=LONG)
        for number in range(120):
            settings = {**SETTINGS, "learning_rate": f"{1e-4 * (1 + number):.4g}"}
            keys[f"sweep {number}"] = add_run(store, "scornn", 0, settings, final=(1 + number) / 1000)
        for number in range(12):
            chosen = {"learning_rate": f"{1e-4 * (1 + number):.4g}", "activation": ("modrelu", "tanh")[number % 2]}
            results = {"chosen": chosen, "run": keys[f"sweep {number}"]}
            store.add_benchmark("search abc", results, {})
    with open_store(str(folder / "results.db")) as store:
        return write_html(store, folder / "page.html", Scope(), {})
