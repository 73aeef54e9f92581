"""How long the report and the list take on a large database: generated runs of the papers' experiments.

python benchmarks/report_speed.py [RUNS]        (1 000, each with 100 epochs of five metrics)
"""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from orthobench.metric import Metric, run_columns
from orthobench.papers import papers
from orthobench.plugins import Catalog
from orthobench.spec import RunSpec, resolve
from orthobench.store import MetricRow, Status, Store, TraceRow, open_store

EPOCHS, PER_EPOCH, STEPS = 100, 10, 200
FACTS = {"python": "3", "packages": {"torch": "2"}, "commit": None, "dirty": False, "accelerator": None, "cpu": "a CPU"}


def fill(database: Path, count: int) -> None:
    """Add runs of every experiment, seed by seed, with smooth and noisy curves."""
    catalog, draw, seed, known = Catalog(), random.Random(0), 0, set[str]()
    experiments = [experiment for paper in papers() for experiment in paper.experiments()]
    with open_store(str(database), create=True) as store:
        while len(known) < count:
            for experiment in experiments:
                config = resolve(catalog, experiment.task, experiment.model, {}, seed=seed, experiment=experiment)
                if config.spec.key not in known and len(known) < count:
                    known.add(config.spec.key)
                    enter(store, config.spec, config.task_class.metrics, draw)
            seed += 1


def enter(store: Store, spec: RunSpec, metrics: tuple[Metric, ...], draw: random.Random) -> None:
    main = metrics[0]
    facts = spec.record() | {
        "device": "cpu",
        "backend": "cpu",
        "parameter_count": draw.randrange(10_000, 100_000),
        **run_columns(metrics),
        "baselines": {main.name: 1.0},
        "total_iterations": EPOCHS * PER_EPOCH,
        "iterations_per_epoch": PER_EPOCH,
    }
    run = store.start(facts, "benchmark", FACTS)
    pace = draw.uniform(5, 80)
    values = [math.exp(-epoch / pace) * draw.uniform(0.95, 1.05) for epoch in range(EPOCHS + 1)]
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
        TraceRow("gradient_norm/h", epoch, PER_EPOCH * epoch, [draw.random() for _ in range(STEPS)])
        for epoch in (0, EPOCHS)
    ]
    best = max(values) if main.goal == "max" else min(values)
    progress = {"status": Status.FINISHED, "iterations": EPOCHS * PER_EPOCH, "final_value": values[-1]}
    store.log(run.id, rows, vectors, progress | {"best_value": best, "seconds": {"train": draw.uniform(100, 900)}})


def timed(*arguments: str) -> tuple[float, float]:
    """Seconds, and the largest memory of all commands so far in GB."""
    import resource

    start_time = time.perf_counter()
    subprocess.run([sys.executable, "-m", "orthobench", *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start_time, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    with tempfile.TemporaryDirectory() as folder:
        database, page = Path(folder) / "results.db", Path(folder) / "report.html"
        fill(database, count)
        listing = timed("ls", "--db", str(database))
        report = timed("report", "--html", "--db", str(database), "-o", str(page))
        measurements = {"runs": count, "ls": listing, "report": report, "page_mb": page.stat().st_size / 1e6}
        print(json.dumps(measurements, indent=2))


if __name__ == "__main__":
    main()
