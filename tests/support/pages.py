"""Read the data of a report's page, and fill databases for pages with runs that were never trained."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from orthobench.metric import run_columns
from orthobench.papers import Experiment
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import MetricRow, Status, Store, TraceRow

HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
"""A name that would run a script if it became markup."""
FACTS = {"python": "3", "packages": {"torch": "2"}, "commit": None, "dirty": False, "accelerator": None, "cpu": "a CPU"}


def block(text: str, name: str) -> Any:
    """A block of data that a page carries."""
    packed = re.search(rf'<script type="text/plain" id="data-{re.escape(name)}">(.*?)</script>', text)
    assert packed is not None
    return json.loads(gzip.decompress(base64.b64decode(packed[1])))


def figures(text: str) -> dict[str, dict[str, Any]]:
    """All figures of a page, by the key of their data and their name.

    Raises:
        ValueError: Plotly refuses a figure.
    """
    names = re.findall(r'<script type="text/plain" id="data-figures-([\w-]+)">', text)
    named = {name: block(text, f"figures-{name}")["figures"] for name in names}
    for drawn in named.values():
        for figure in drawn.values():
            go.Figure(figure)
    return named


def table_of_runs(page: Path) -> list[dict[str, Any]]:
    """The rows of a page's table of runs, with their models."""
    index = block(page.read_text("utf-8"), "index")
    rows = [dict(zip(index["columns"], row, strict=True)) for row in index["rows"]]
    return [row | {"model": index["variants"][row["variant"]]["model"]} for row in rows]


def add_run(
    store: Store,
    model: str = "lstm",
    seed: int = 0,
    settings: dict[str, str] | None = None,
    final: float = 0.1,
    task: str = "adding",
    experiment: Experiment | None = None,
    environment: dict[str, Any] | None = None,
    **changes: Any,
) -> str:
    """Add a run of ten epochs whose test metric falls from 1 to `final`, and return its key.

    Args:
        experiment: the experiment of a paper whose settings the run has.
        environment: facts of the environment, in addition to `FACTS`.
        changes: columns of the run.
    """
    config = resolve(Catalog(), task, model, settings or {}, seed=seed, experiment=experiment)
    metric = config.task_class.metrics[0]
    facts = config.spec.record() | {
        "device": "cpu",
        "backend": "cpu",
        "parameter_count": 100 + len(config.spec.model),
        **run_columns(config.task_class.metrics),
        "baselines": {metric.name: 1 / 6},
        "total_iterations": 40,
        "iterations_per_epoch": 4,
    }
    run = store.start(facts, FACTS | (environment or {}))
    rows = [
        MetricRow(split, name, epoch, 4 * epoch, final + (1 - final) * math.exp(-epoch) * scale * (epoch < 10))
        for split, name, scale in (
            ("test", metric.name, 1.0),
            ("train", "loss", 0.9),
            ("probe", "orthogonality/W", 0.1),
        )
        for epoch in range(11)
    ]
    vectors = [TraceRow("gradient_norm/h", epoch, 4 * epoch, [0.5, 0.1 + epoch, 2.0]) for epoch in (0, 10)]
    # With the first test in mind, because a value above 1 is worse than that.
    best = min(final, 1.0) if metric.goal == "min" and math.isfinite(final) else final
    progress = {"status": Status.FINISHED, "iterations": 40, "final_value": final, "best_value": best}
    store.log(run.id, rows, vectors, {**progress, "seconds": {"train": 20.0}, **changes})
    return run.key


def waiting(browser, seconds: int):
    """An object whose `until` waits for a condition; it looks often, because most of them hold after milliseconds."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, seconds, poll_frequency=0.02)
