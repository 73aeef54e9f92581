"""Measure the report, its page, lists and comparisons on large databases: generated runs of the papers' experiments.

python workshop/benchmarks/report_speed.py [RUNS ...]        (1 000 and 3 000, each with 100 epochs of five metrics)

It prints seconds of CPU, the largest memory in GB and the page in MB. In headless Chromium it measures the seconds
until the page can be used, and the frames of the table of runs while it scrolls, in ms. The first command of changed
code also resolves the papers' experiments, so the report is written twice and the second one is measured.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from orthobench.metric import Metric, run_columns
from orthobench.papers import papers
from orthobench.plugins import Catalog
from orthobench.spec.resolve import RunSpec, resolve
from orthobench.store import MetricRow, Status, Store, TraceRow, open_store

EPOCHS, PER_EPOCH, STEPS, SEEDS = 100, 10, 200, 3
FACTS = {"python": "3", "packages": {"torch": "2"}, "commit": None, "dirty": False, "accelerator": None, "cpu": "a CPU"}


def fill(database: Path, count: int) -> None:
    """Add runs of every experiment: three seeds, and then three more with each further learning rate.

    Curves and gradient norms fall exponentially, with 5 % of noise. The first seed is entered as a run enters it. The
    others are copies in SQL with other values, so that twenty thousand runs take a minute.
    """
    catalog, draw, specs = Catalog(), random.Random(0), dict[str, RunSpec]()
    with open_store(str(database), create=True) as store:
        for experiment in (experiment for paper in papers() for experiment in paper.experiments()):
            config = resolve(catalog, experiment.task, experiment.model, {}, seed=0, experiment=experiment)
            if config.spec.key not in specs and len(specs) < count:
                specs[config.spec.key] = config.spec
                enter(store, config.spec, config.task_class.metrics, draw)
        first = {run.id: specs[run.key] for run in store.runs()}
    with closing(sqlite3.connect(database)) as connection, connection:
        for number in range(len(first), count):
            original, spec = list(first.items())[number % len(first)]
            rate, seed = divmod(number // len(first), SEEDS)
            settings = spec.model_settings | {"learning_rate": spec.model_settings["learning_rate"] * 1.1**rate}
            record = replace(spec, seed=seed, model_settings=settings).record()
            changed = record | {"spec": json.dumps(record["spec"])}
            run = copy(connection, "run", "id", original, changed | {"final_value": draw.random()})
            for table, scaled in (("metric", f"value * {draw.uniform(0.8, 1.2)}"), ("trace", None), ("segment", None)):
                copy(connection, table, "run_id", original, {"run_id": run}, {"value": scaled} if scaled else {})


def copy(
    connection: sqlite3.Connection,
    table: str,
    where: str,
    number: int,
    changed: Mapping[str, object],
    computed: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Copy rows of a table with some columns changed, and return the number of the last one."""
    columns = [name for _, name, *_ in connection.execute(f"pragma table_info({table})") if name != "id"]
    values = [f":{name}" if name in changed else computed.get(name, name) for name in columns]
    statement = (
        f"insert into {table} ({', '.join(columns)}) select {', '.join(values)} from {table} where {where} = :at"
    )
    return connection.execute(statement, {**changed, "at": number}).lastrowid or 0


def enter(store: Store, spec: RunSpec, metrics: tuple[Metric, ...], draw: random.Random) -> None:
    main = metrics[0]
    facts = spec.record() | {
        "device": "cpu",
        "backend": "cpu",
        "parameter_count": draw.randrange(10_000, 100_000),
        **run_columns(metrics),
        "baselines": {main.name: 0.5 if main.goal == "max" else 1.0},
        "total_iterations": EPOCHS * PER_EPOCH,
        "iterations_per_epoch": PER_EPOCH,
    }
    run = store.start(facts, FACTS)
    pace = draw.uniform(5, 80)
    values = [math.exp(-epoch / pace) * draw.uniform(0.95, 1.05) for epoch in range(EPOCHS + 1)]
    falls = [math.exp((step - STEPS) / pace) for step in range(STEPS)]
    series = (
        ("test", main.name),
        ("test", "other"),
        ("train", "loss"),
        ("train", "norm"),
        ("probe", "orthogonality/W"),
    )
    rows = [
        MetricRow(split, name, epoch, PER_EPOCH * epoch, value)
        for split, name in series
        for epoch, value in enumerate(values)
    ]
    vectors = [
        TraceRow("gradient_norm/h", epoch, PER_EPOCH * epoch, [fall * draw.uniform(0.95, 1.05) for fall in falls])
        for epoch in (0, EPOCHS)
    ]
    best = max(values) if main.goal == "max" else min(values)
    progress = {"status": Status.FINISHED, "iterations": EPOCHS * PER_EPOCH, "final_value": values[-1]}
    store.log(run.id, rows, vectors, progress | {"best_value": best, "seconds": {"train": draw.uniform(100, 900)}})


LISTS = (("ls",), ("ls", "--where", "model=scornn"), ("compare", "task=adding,model=scornn", "task=adding,model=lstm"))
"""Commands that read many runs."""
SMALL_PARENT = """
import json, resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([code, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e6]))
"""
"""Runs a command and prints what it used. Linux counts the memory of the parent too, as it was at the start."""


def measured(*arguments: str) -> dict[str, float]:
    """Seconds of CPU and the largest memory in GB of one command."""
    command = [sys.executable, "-S", "-c", SMALL_PARENT, sys.executable, "-m", "orthobench", *arguments]
    code, cpu_seconds, memory = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    if code:
        raise SystemExit(f"orthobench {' '.join(arguments)} failed")
    return {"cpu_seconds": cpu_seconds, "memory_gb": memory}


SCROLL = """
const done = arguments[0], box = document.getElementById("run-table"), frames = [];
let last = null;
const step = (now) => {
  if (last !== null) frames.push(now - last);
  last = now;
  box.scrollTop += 400;
  if (frames.length < 200) requestAnimationFrame(step);
  else done(frames);
};
requestAnimationFrame(step);
"""


def in_browser(page: Path) -> dict[str, float]:
    """Seconds until the page can be used, and the median and the 95th percentile of the table's frames in ms."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.support.ui import WebDriverWait

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1200,1600",
    ):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.get(f"{page.as_uri()}#runs")
        ready = "return 'ready' in document.documentElement.dataset && !!document.querySelector('tr[data-run]')"
        WebDriverWait(driver, 120, 0.02).until(lambda _: driver.execute_script(ready))
        seconds = driver.execute_script("return performance.now()") / 1000  # since the page was asked for
        driver.set_script_timeout(120)
        frames = sorted(driver.execute_async_script(SCROLL))
    finally:
        driver.quit()
    part = {name: frames[int(share * (len(frames) - 1))] for name, share in (("median", 0.5), ("p95", 0.95))}
    return {"interactive_seconds": seconds, **{f"frame_{name}_ms": value for name, value in part.items()}}


def main() -> None:
    for count in [int(word) for word in sys.argv[1:]] or [1_000, 3_000]:
        with tempfile.TemporaryDirectory() as folder:
            database, page = Path(folder) / "results.db", Path(folder) / "report.html"
            fill(database, count)
            results = {
                "runs": count,
                **{" ".join(command): measured(*command, "--db", str(database)) for command in LISTS},
            }
            report = ("report", "--html", "--db", str(database), "-o", str(page))
            measured(*report)
            results |= {"report": measured(*report), "page_mb": page.stat().st_size / 1e6, "browser": in_browser(page)}
            print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
