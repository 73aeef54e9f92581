"""Break the code in small ways, one at a time, and list the breaks that no test notices: `make mutants`.

mutmut makes the mutants and runs the tests that reach them. It needs one folder with the layout of the package. So it
works on a copy of the checkout in `build/mutants`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from support.checkout import ROOT, copy_checkout

COPY = ROOT / "build" / "mutants"
MUTMUT = Path(sys.executable).with_name("mutmut")
SEED = 0
PREPARE = ("none",)
ROOMS = {
    "trainer": ["orthobench/training/trainer.py", "orthobench/training/loop.py", "orthobench/training/evaluator.py"],
    "matrices": ["orthobench/matrices/*.py"],
    "models": ["orthobench/models/*.py"],
    "report": ["orthobench/reporting/*.py"],
}
TESTS = ["tests/matrices", "tests/models", "tests/papers/test_sizes.py", "tests/reporting", "tests/training"]
CONFIG = """
[tool.mutmut]
source_paths = ["orthobench"]
only_mutate = {files}
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["-m", "not slow and not browser", "--ignore", "tests/training/test_crash.py"]
process_isolation = "forkserver"  # torch's threads do not survive a fork
timeout_multiplier = 5.0
use_git_change_detection = false
"""


def prepare_copy(files: list[str], tests: list[str]) -> None:
    """Copy the checkout, and add mutmut's settings."""
    copy_checkout(COPY)
    with (COPY / "pyproject.toml").open("a", encoding="utf-8") as settings:
        settings.write(CONFIG.format(files=json.dumps(files), tests=json.dumps(tests)))


def run_mutmut(*names: str, jobs: int, end: float) -> None:
    """Generate the mutants and record the tests that reach each, both once; test the mutants of these names.

    mutmut stops at the time `end` of the monotonic clock; the verdicts until then count.
    """
    command = [str(MUTMUT), "run", "--max-children", str(jobs), *names]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    errors = subprocess.DEVNULL if names == PREPARE else None  # a traceback, since no mutant has this name
    process = subprocess.Popen(command, cwd=COPY, env=environment, start_new_session=True, stderr=errors)
    try:
        process.wait(max(1.0, end - time.monotonic()))
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def exit_codes(room: str) -> dict[str, int | None]:
    """Return the exit codes of the tests by the name of the mutant; None for a mutant without a test run."""
    paths = sorted(path for pattern in ROOMS[room] for path in (COPY / "mutants").glob(f"{pattern}.meta"))
    return {
        name: code for path in paths for name, code in json.loads(path.read_text("utf-8"))["exit_code_by_key"].items()
    }


def change(name: str) -> str:
    """Return the lines that a mutant removes and adds."""
    command = [str(MUTMUT), "show", name]
    lines = subprocess.run(command, cwd=COPY, check=True, capture_output=True, text=True).stdout.splitlines()
    return "\n".join(f"    {line}" for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---"))


def main() -> None:
    from mutmut.stats import status_by_exit_code

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=60, help="mutants of each room")
    parser.add_argument("--room", choices=ROOMS, action="append", help="mutate this room only")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="tests that may notice a mutant")
    parser.add_argument("--jobs", type=int, default=2, help="mutants tested at a time")
    parser.add_argument("--minutes", type=float, default=20, help="stop after this time")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    rooms = options.room or list(ROOMS)

    prepare_copy([pattern for room in rooms for pattern in ROOMS[room]], options.tests)
    run_mutmut(*PREPARE, jobs=options.jobs, end=end)
    sample = {}
    for room in rooms:
        names = sorted(exit_codes(room))
        sample[room] = random.Random(SEED).sample(names, min(options.sample, len(names)))
    run_mutmut(*(name for names in sample.values() for name in names), jobs=options.jobs, end=end)
    tested = 0
    for room, names in sample.items():
        codes = exit_codes(room)
        statuses = {name: status_by_exit_code[codes[name]] for name in names if codes[name] is not None}
        tested += len(statuses)
        killed = sum(status in ("killed", "timeout") for status in statuses.values())
        print(f"\n{room}: {killed} of {len(statuses)} mutants killed (sample of {len(names)} from {len(codes)})")
        for name, status in statuses.items():
            if status not in ("killed", "timeout"):
                print(f"  {status}: {name}\n{change(name)}")
    if not tested:
        sys.exit("no mutant was tested: mutmut says why above")


if __name__ == "__main__":
    main()
