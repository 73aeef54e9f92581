"""Read the data of a report's page, and fill databases for pages with runs that were never trained."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from itertools import accumulate
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


def content_of(text: str, name: str) -> bytes:
    """The bytes of a block of data that a page carries."""
    packed = re.search(rf'<script type="text/plain" id="data-{re.escape(name)}">(.*?)</script>', text)
    assert packed is not None
    return gzip.decompress(base64.b64decode(packed[1]))


def block(text: str, name: str) -> Any:
    """A block of data that a page carries."""
    return json.loads(content_of(text, name))


def numbered(content: bytes) -> tuple[dict[str, Any], list[int]]:
    """The record of a block and the whole numbers after it (`WholeNumbers`), as the page's script reads them."""
    line, _, planes = content.partition(b"\n")
    count = len(planes) // 4
    steps = (int.from_bytes(planes[at::count], "little") for at in range(count))
    sums = accumulate(-(step + 1) // 2 if step % 2 else step // 2 for step in steps)
    return json.loads(line), [(number + 2**31) % 2**32 - 2**31 for number in sums]


def decimal(code: int, count: int) -> float | None:
    """The number of a code (`decimal_codes`), as the page's script computes it."""
    least = 10 ** (count - 1)
    if code in (0, 1):
        return (None, 0.0)[code]
    exponent, rest = divmod(abs(code) - 2, 9 * least)
    return float(f"{'-' if code < 0 else ''}{least + rest}e{exponent - 400 - count + 1}")


def unpacked_figures(content: bytes) -> dict[str, Any]:
    """The figures of `packed_figures`, as the page's script reads them."""
    loaded, whole = numbered(content)
    for trace in (trace for figure in loaded["figures"].values() for trace in figure["data"]):
        if isinstance(trace.get("x"), int):
            trace["x"] = loaded["axes"][trace["x"]]
        if isinstance(trace.get("y"), int):
            trace["y"] = [decimal(code, 5) for code in whole[trace["y"] : trace["y"] + len(trace["x"])]]
    return loaded["figures"]


def unpacked_runs(content: bytes) -> dict[str, Any]:
    """The details of runs as `run_details` packs them, by key, with the numbers of their curves and axes."""
    loaded, whole = numbered(content)
    for run in loaded["runs"].values():
        for kind, digits in loaded["digits"].items():
            for curve in run[kind]:
                start, length = loaded["axes"][curve["x"]]
                curve["x"] = whole[start : start + length]
                curve["y"] = [decimal(code, digits) for code in whole[curve["y"] : curve["y"] + length]]
    return loaded["runs"]


def figures(text: str) -> dict[str, dict[str, Any]]:
    """All figures of a page, by the key of their data and their name.

    Raises:
        ValueError: Plotly refuses a figure.
    """
    names = re.findall(r'<script type="text/plain" id="data-figures-([\w-]+)">', text)
    named = {}
    for name in names:
        named[name] = unpacked_figures(content_of(text, f"figures-{name}"))
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
        MetricRow(split, name, epoch, 4 * epoch, final + (1 - final) * math.exp(-epoch) * scale)
        for split, name, scale in (
            ("test", metric.name, 1.0),
            ("train", "loss", 0.9),
            ("probe", "orthogonality/W", 0.1),
        )
        for epoch in range(11)
    ]
    vectors = [TraceRow("gradient_norm/h", epoch, 4 * epoch, [0.5, 0.1 + epoch, 2.0]) for epoch in (0, 10)]
    progress = {"status": Status.FINISHED, "iterations": 40, "final_value": final, "best_value": final}
    store.log(run.id, rows, vectors, {**progress, "seconds": {"train": 20.0}, **changes})
    return run.key


def waiting(browser, seconds: int):
    """An object whose `until` waits for a condition; it looks often, because most of them hold after milliseconds."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, seconds, poll_frequency=0.02)
