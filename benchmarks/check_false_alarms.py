"""How often the gate fails code that did not change: `orthobench check` on seeds that the baseline has not seen.

    python benchmarks/check_false_alarms.py fresh.db [--groups 20] [--only adding/gru ...]

Each group of seeds is a check of its own; no two have a seed in common. The runs are kept in the database, so that the
same command goes on where it was stopped, and with more groups.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from orthobench.check.baseline import read_baseline

BASELINE = Path(__file__).parents[1] / "checks" / "baseline.toml"
FIRST = 100
"""The baseline's own seeds are below this."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("db")
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    runs = read_baseline(BASELINE).select(options.only)
    size = max(len(run.seeds) for run in runs)
    command = [sys.executable, "-m", "orthobench", "check", str(BASELINE), "--json", "--db", options.db]
    command += [word for name in options.only for word in ("--only", name)]
    passed = 0
    for group in range(options.groups):
        first = FIRST + size * group
        # Runs this small gain nothing from a second thread.
        done = subprocess.run(
            [*command, "--first-seed", str(first)], stdout=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        findings = json.loads(done.stdout)["findings"]
        failed = [f"{one['run']} {one['metric']} {one['verdict']}" for one in findings if not one["passes"]]
        passed += done.returncode == 0
        print(f"seeds {first} to {first + size - 1}: {'; '.join(failed) or 'passes'}", flush=True)
    print(f"{passed} of {options.groups} groups pass, {len(runs)} runs in each")


if __name__ == "__main__":
    main()
