from __future__ import annotations

from pathlib import Path

import pytest
from support.databases import RunDatabase
from support.pages import HOSTILE
from support.records import columns_of

from orthobench.store import MetricRow, open_store


@pytest.fixture
def browser(chromium):
    return chromium


@pytest.fixture
def database(tmp_path):
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        yield RunDatabase(store)


@pytest.fixture
def page(after, tiny_options, tmp_path) -> Path:
    """The report of a small sweep: two models, two seeds, two conditions."""
    sweep = ("sweep", "adding", "--models", "scornn,lstm", "--seeds", "2", *tiny_options)
    after(sweep, ("run", "copying", "rnn", *tiny_options), ("report", "--html"))
    return tmp_path / "reports" / "report.html"


@pytest.fixture
def hostile_page(after, tiny_options, tmp_path) -> Path:
    orthobench = after(("run", "adding", "rnn", *tiny_options))
    with open_store(str(tmp_path / "results.db")) as store:
        run = store.runs()[0]
        spec = run.spec | {"model": HOSTILE, "task_settings": run.spec["task_settings"] | {"marker_layout": HOSTILE}}
        store.update(run.id, columns_of(spec) | {"message": HOSTILE})
        store.log(run.id, [MetricRow("probe", f"orthogonality/{HOSTILE}", 0, 0, 1.0)], [], {})
    return Path(orthobench("report", "--html").out.strip())
