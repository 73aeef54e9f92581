"""How often the gate fails code that did not change: `orthobench check` on seeds that the baseline has not seen.

    python workshop/benchmarks/check_false_alarms.py [--groups 20] [--only adding/gru ...] [--db fresh.db]

With --db each group of seeds is trained and checked, and no two have a seed in common. The database keeps the runs, so
the same command resumes where it was stopped, also with more groups.

Without it nothing is trained: each group is drawn from the seeds of the baseline itself, as many as a check takes, and
compared with the rest. The allowed loss, though, is that of all of them. Exact runs have no spread and are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from orthobench.gate.baseline import CheckedRun, read_baseline
from orthobench.gate.results import SeedResult
from orthobench.gate.verdict import judge

BASELINE = Path(__file__).parents[2] / "checks" / "baseline.toml"
FIRST = 100
"""The baseline's own seeds are below this."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--db")
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    runs = [run for run in read_baseline(BASELINE).select(options.only) if not run.exact]
    passed = 0
    for group in range(options.groups):
        failed = trained(runs, options.db, group) if options.db else drawn(runs, group)
        passed += not failed
        print(f"group {group + 1}: {'; '.join(failed) or 'passes'}", flush=True)
    print(f"{passed} of {options.groups} groups pass, {len(runs)} runs in each")


def trained(runs: Sequence[CheckedRun], db: str, group: int) -> list[str]:
    """What fails on a group of fresh seeds."""
    first = FIRST + group * max(len(run.seeds) for run in runs)
    command = [sys.executable, "-m", "orthobench", "check", str(BASELINE), "--json", "--db", db]
    command += [word for run in runs for word in ("--only", run.name)]
    # Runs this small gain nothing from a second thread.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, "--first-seed", str(first)], stdout=subprocess.PIPE, env=environment)
    findings = json.loads(done.stdout)["findings"]
    return [
        f"{finding['run']} {finding['metric']} {finding['verdict']}" for finding in findings if not finding["passes"]
    ]


def drawn(runs: Sequence[CheckedRun], group: int) -> list[str]:
    """Return the failures of a part of the baseline's seeds against the other seeds."""
    failed = []
    for run in runs:
        seeds = sorted({seed for metric in run.metrics.values() for seed in metric.values})
        taken = random.Random(f"{run.name} {group}").sample(seeds, len(run.seeds))
        left = {}
        for name, metric in run.metrics.items():
            values = {seed: value for seed, value in metric.values.items() if seed not in taken}
            left[name] = metric.model_copy(update={"values": values, "allowed_loss": metric.margin})
        now = {
            seed: SeedResult({metric.key(name): metric.values[seed] for name, metric in run.metrics.items()})
            for seed in taken
        }
        findings = judge(run.model_copy(update={"metrics": left}), None, now, False)
        failed += [f"{finding.run} {finding.metric} {finding.verdict}" for finding in findings if not finding.passes]
    return failed


if __name__ == "__main__":
    main()
