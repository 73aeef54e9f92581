"""Measure in the background: train the runs of checks/papers.toml, and fold their results into results.db.

    python -m checks.measure start     start or resume the runs at the lowest priority, and return
    python -m checks.measure status    show which runs train, their progress, and which runs are next
    python -m checks.measure stop      stop them within 20 seconds, and fold their results into results.db

The runs train into their own database in measured/, which git ignores: results.db may change meanwhile. `stop` merges
the runs of the list into results.db, and keeps checkpoints of unfinished ones in reports/checkpoints. `start` resumes
from both, also in another clone.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen
from typing import TYPE_CHECKING

import psutil

from orthobench.errors import OrthobenchError, UsageError
from orthobench.system.cores import cores, set_session_niceness

if TYPE_CHECKING:
    from orthobench.planning.plan import SweepRun
    from orthobench.store import Run, Store

CHECKPOINT_SECONDS = 300
"""Seconds between two checkpoints of a run: what a kill loses at most."""
STOP_SECONDS = 12.0
"""Seconds that the runs have for their checkpoints before they are killed."""
SUFFIX = ".pt.gz"
"""The end of a kept checkpoint's name."""
LARGEST = 1 << 30
"""The most bytes of an unpacked checkpoint."""
LIMIT_MB = 20.0
"""Size that all kept checkpoints have together."""
NEXT = 5
"""Runs that `status` shows as the next ones."""


@dataclass(frozen=True)
class Files:
    """The files of a measurement.

    Attributes:
        runs: the list of runs.
        results: the database into which results are folded.
        folder: the working folder: the database of the runs in training, their checkpoints, the log, the process.
        checkpoints: the folder of the checkpoints from which a fresh clone resumes.
    """

    runs: Path
    results: Path
    folder: Path
    checkpoints: Path

    @property
    def database(self) -> Path:
        return self.folder / "runs.db"

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    @property
    def process(self) -> Path:
        return self.folder / "process.json"

    def working(self, key: str) -> Path:
        """Return the newest checkpoint of a run in training; the file may be missing."""
        from orthobench.training.checkpoint import NEWEST, PREVIOUS, checkpoint_root

        folder = Path(str(checkpoint_root(str(self.database))), key)
        return folder / (NEWEST if (folder / NEWEST).exists() or not (folder / PREVIOUS).exists() else PREVIOUS)

    def checkpoint_of(self, key: str) -> Path:
        """Return the kept checkpoint of a run; the file may be missing."""
        return self.checkpoints / f"{key}{SUFFIX}"


def main() -> int:
    """Run a command; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["start", "status", "stop", "train"], help="train: for `start` alone")
    parser.add_argument("--file", type=Path, default=Path("checks/papers.toml"), help="the list of runs")
    parser.add_argument("--results", type=Path, default=Path("results.db"), help="the database of results")
    parser.add_argument("--folder", type=Path, default=Path("measured"), help="the working folder")
    parser.add_argument(
        "--checkpoints", type=Path, default=Path("reports/checkpoints"), help="checkpoints to resume from"
    )
    parser.add_argument("--jobs", type=int, default=cores(), help="number of parallel runs [one per core]")
    parser.add_argument("--checkpoint-every", type=float, default=CHECKPOINT_SECONDS, metavar="SECONDS")
    parser.add_argument("--limit", type=float, default=LIMIT_MB, metavar="MB", help="size of the kept checkpoints")
    options = parser.parse_args()
    files = Files(options.file, options.results, options.folder, options.checkpoints)
    try:
        if options.command == "train":
            train(files, options.jobs, options.checkpoint_every)
        elif options.command == "start":
            start(files, options.jobs, options.checkpoint_every)
        elif options.command == "stop":
            stop(files, round(options.limit * 1e6))
        else:
            status(files)
        sys.stdout.flush()
    except OrthobenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # of a reader such as head; the interpreter flushes once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def start(files: Files, jobs: int, checkpoint_every: float) -> None:
    """Start the runs in another process.

    Raises:
        UsageError: they run already, or the list is invalid.
    """
    from filelock import FileLock

    files.folder.mkdir(parents=True, exist_ok=True)
    with FileLock(files.folder / "start.lock"):
        if process := running(files):
            raise UsageError(f"the runs train already (process {process.pid}): see `make measure-status`")
        pending = take_up(files)
        if not pending:
            print(f"every run of {files.runs} has its result: nothing is started")
            return
        words = [sys.executable, __file__, "train", "--jobs", str(jobs), "--checkpoint-every", str(checkpoint_every)]
        words += ["--file", str(files.runs), "--folder", str(files.folder)]
        with files.log.open("ab") as log:
            child = Popen(words, stdin=DEVNULL, stdout=log, stderr=STDOUT, start_new_session=True)
        content = {"pid": child.pid, "created": psutil.Process(child.pid).create_time()}
        files.process.write_text(json.dumps(content))
    print(
        f"{pending} runs of {files.runs} train in the background, {jobs} at once (process {child.pid}); "
        f"log: {files.log}; stop: make measure-stop"
    )


def train(files: Files, jobs: int, checkpoint_every: float) -> None:
    """Become the process that trains, at the lowest priority and with a thread for each run."""
    os.nice(19)
    set_session_niceness(19)
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError, AttributeError, psutil.Error):
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
    words = ["reproduce", "--file", str(files.runs), "--db", str(files.database), "--jobs", str(jobs)]
    words += ["--checkpoint-every", str(checkpoint_every), "--keep-weights", "none", "--device", "cpu"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    os.execve(sys.executable, [sys.executable, "-P", "-m", "orthobench", *words], environment)


def running(files: Files) -> psutil.Process | None:
    """Return the process that trains; None without one. A process that has its number later is another one."""
    try:
        content = json.loads(files.process.read_text())
        process = psutil.Process(content["pid"])
        alive = process.create_time() == content["created"] and process.status() != psutil.STATUS_ZOMBIE
        return process if alive else None
    except (OSError, ValueError, KeyError, psutil.Error):
        return None


def take_up(files: Files) -> int:
    """Bring results and kept checkpoints into the working folder; return the number of runs to train."""
    from orthobench.data.limits import LimitedReader
    from orthobench.store import Status, open_store
    from orthobench.store.merge import merge, opened_unchanged
    from orthobench.system.files import write_bytes
    from orthobench.training.checkpoint import NEWEST, checkpoint_root

    with ExitStack() as opened:
        store = opened.enter_context(open_store(str(files.database), create=True))
        source = opened.enter_context(opened_unchanged(str(files.results))) if files.results.exists() else None
        keys = listed(files, [store] if source is None else [store, source], "cpu")
        if source is not None:
            merged = merge(source, store, keys=keys)
            further = {*merged.added, *merged.replaced}
        else:
            further = set()
        records = {run.key: run for run in store.runs(keys=keys)}
    final = {key for key, run in records.items() if Status(run.status).is_final}
    for key in records.keys() - final:
        shipped, working = files.checkpoint_of(key), files.working(key)
        if shipped.exists() and (key in further or not working.exists()):
            folder = Path(str(checkpoint_root(str(files.database))), key)
            folder.mkdir(parents=True, exist_ok=True)
            for earlier in folder.iterdir():
                earlier.unlink()
            with gzip.open(shipped) as packed:
                write_bytes(folder / NEWEST, LimitedReader(packed, LARGEST, shipped).read())
    return len(set(keys) - final)


def listed(files: Files, stores: Sequence[Store], device: str | None = None) -> list[str]:
    """Return the keys of the list's runs, in order; on a CPU without those for a GPU."""
    return [run.config.spec.key for run in runs_of(files, stores, device)]


def runs_of(files: Files, stores: Sequence[Store], device: str | None = None) -> list[SweepRun]:
    """Return the runs of the list. The databases have the results of its trials; the first one counts."""
    from orthobench.planning.listed import runs_in
    from orthobench.plugins import Catalog

    def find(keys: Sequence[str]) -> list[Run]:
        records = {run.key: run for store in reversed(stores) for run in store.runs(keys=keys)}
        return list(records.values())

    return runs_in(files.runs, Catalog(), find, device)


def stop(files: Files, limit: int) -> None:
    """End the runs, fold their results in, and keep the checkpoints of unfinished runs within a number of bytes."""
    process = running(files)
    if process is None:
        print("no runs train")
    else:
        end(process)
        print(f"the runs have ended (process {process.pid})")
    files.process.unlink(missing_ok=True)
    if files.database.exists():
        fold(files, limit)


def end(process: psutil.Process) -> None:
    """Ask a process and its workers to stop; kill those that have not done so in time."""
    with suppress(psutil.Error):
        family = [process, *process.children(recursive=True)]
        for each in family:  # at the lowest priority a busy machine would leave no time for a checkpoint
            raise_priority(each)
        os.killpg(process.pid, signal.SIGTERM)
        _, alive = psutil.wait_procs(family, timeout=STOP_SECONDS)
        for each in alive:
            with suppress(psutil.Error):
                each.kill()
        psutil.wait_procs(alive, timeout=3)


def raise_priority(process: psutil.Process) -> None:
    """Give all threads of a process the usual priority, where the system allows it."""
    with suppress(OSError, AttributeError, psutil.Error):
        for thread in process.threads():
            os.sched_setscheduler(thread.id, os.SCHED_OTHER, os.sched_param(0))
            os.setpriority(os.PRIO_PROCESS, thread.id, 0)
    set_session_niceness(0, process.pid)


def fold(files: Files, limit: int) -> None:
    """Merge the list's results, and the unfinished runs whose checkpoints fit, into the database of results."""
    from orthobench.store import Status, open_store
    from orthobench.store.merge import merge, opened_unchanged
    from orthobench.system.files import write_bytes

    with opened_unchanged(str(files.database)) as source, open_store(str(files.results), create=True) as target:
        keys = listed(files, [source, target])
        known = {run.key: run for store in (target, source) for run in store.runs(keys=keys)}
        results = {run.key for store in (target, source) for run in store.runs() if Status(run.status).is_final}
        unfinished = [run for key, run in known.items() if key not in results and files.working(key).exists()]
        unfinished.sort(key=lambda run: run.iterations / run.total_iterations, reverse=True)
        packed = [(run.key, gzip.compress(files.working(run.key).read_bytes(), 6, mtime=0)) for run in unfinished]
        own = {run.key for run in unfinished} | results
        others = [file for file in files.checkpoints.glob(f"*{SUFFIX}") if key_of(file) not in own]
        chosen, left = fitting(packed, limit - sum(file.stat().st_size for file in others))
        merged = merge(source, target, keys={*(results & set(keys)), *chosen})
    files.checkpoints.mkdir(parents=True, exist_ok=True)
    for file in files.checkpoints.glob(f"*{SUFFIX}"):
        if key_of(file) in results or key_of(file) in left:
            file.unlink()
    for key, content in chosen.items():
        write_bytes(files.checkpoint_of(key), content)
    with suppress(OSError):
        files.checkpoints.rmdir()  # if it is empty
    final = [key for key in (*merged.added, *merged.replaced) if key in results]
    size = sum(map(len, chosen.values())) / 1e6
    print(f"{len(final)} results folded into {files.results}")
    print(f"{len(chosen)} checkpoints kept in {files.checkpoints}, {size:.1f} MB together")
    for key in left:
        run = known[key]
        print(f"does not fit: the checkpoint of {key} ({run.task} {run.model}), which stays in {files.folder} alone")


def key_of(file: Path) -> str:
    """Return the key of the run that a kept checkpoint belongs to."""
    return file.name.removesuffix(SUFFIX)


def fitting(checkpoints: Sequence[tuple[str, bytes]], limit: int) -> tuple[dict[str, bytes], list[str]]:
    """Return the first checkpoints that fit into a number of bytes together, and the keys of the others."""
    chosen: dict[str, bytes] = {}
    left = []
    for key, content in checkpoints:
        if sum(map(len, chosen.values())) + len(content) <= limit:
            chosen[key] = content
        else:
            left.append(key)
    return chosen, left


def status(files: Files) -> None:
    """Print which runs train, their progress, and which runs are next."""
    import torch

    from orthobench.planning.budget import show_duration
    from orthobench.planning.estimate import Estimator
    from orthobench.planning.plan import plan
    from orthobench.store.merge import opened_unchanged
    from orthobench.training.checkpoint import checkpoint_root

    process = running(files)
    if process is None:
        print("no runs train; start: make measure")
        if files.log.exists() and (lines := files.log.read_text(errors="replace").splitlines()):
            print(f"the last line of {files.log}: {lines[-1]}")
    else:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(process.create_time()))
        print(f"training since {since} (process {process.pid}); log: {files.log}; stop: make measure-stop")
    database = next((file for file in (files.database, files.results) if file.exists()), None)
    with ExitStack() as opened:
        names = [file for file in (database, files.results) if file is not None and file.exists()]
        stores = [opened.enter_context(opened_unchanged(str(file))) for file in dict.fromkeys(names)]
        store = stores[0] if stores else None
        planned = plan(runs_of(files, stores, "cpu"), store, checkpoint_root(str(database or files.database)))
        estimator = Estimator(stores[-1] if stores else None, torch.device("cpu"))
        left = {run.key: estimator.of(run).seconds for run in planned if run.is_pending or run.is_locked}
        shown = 0
        for run in planned:
            if not (run.is_locked or (run.is_pending and (run.existing_run or shown < NEXT))):
                continue
            shown += not run.is_locked
            word = "now" if run.is_locked else "next" if run.existing_run is None else run.state
            far = ""
            if (record := run.existing_run) is not None:
                share = f"{record.iterations} of {record.total_iterations} iterations"
                epochs = record.total_iterations / record.iterations_per_epoch
                far = f": epoch {record.epochs:.2f} of {epochs:g}, {share}"
            seconds = left[run.key]
            time_left = "time unknown" if seconds is None else f"about {show_duration(seconds)} left"
            print(f"{word}: {run.key} {run.config.spec.task} {run.label} seed {run.config.spec.seed}{far}, {time_left}")
        states = [run.state for run in planned]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        known = [seconds for seconds in left.values() if seconds is not None]
        total = f"; about {show_duration(sum(known))} of core time left" if known else ""
        unknown = f"; {len(left) - len(known)} runs without an estimate" if len(known) < len(left) else ""
        print(f"{counts}{total}{unknown}")


if __name__ == "__main__":
    sys.exit(main())
