"""Train a stored run again, in a temporary database, and compare its numbers with the stored ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from orthobench.analysis.verification import Verification, compare_again
from orthobench.display.display import Display
from orthobench.errors import UsageError
from orthobench.executors.job import Job, train_job
from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.session.single_run import check_device
from orthobench.settings import CHECKSUM, whole_path
from orthobench.spec.resolve import RunSpec, resolve_again
from orthobench.store import Run, Status, Store, open_store
from orthobench.system.location import Location
from orthobench.system.signals import Stopped, StopRequest, stop_on_signals
from orthobench.training.loop import Interrupted


def train_again(
    store: Store, run: Run, catalog: Catalog, options: RunOptions, files: Mapping[str, str], display: Display
) -> Verification:
    """Train a stored run again from its beginning, and compare the two. The store does not change.

    Args:
        catalog: the plugins; a layer of another program is used only if the user has named it.
        options: the device and the back end.
        files: the files and folders of this machine that settings name, by the name of the setting.

    Raises:
        UsageError: the run has no result, needs other code than this, or cannot start here.
        Stopped: the user stopped the run.
    """
    if not Status(run.status).is_final:
        raise UsageError(f"run {run.key} is {run.status} and has no result to verify: train it with `orthobench run`")
    spec = _with_files(RunSpec(**run.spec), files)
    if spec.key != run.key:
        raise UsageError(f"run {run.key} is damaged: its key is not the hash of its spec, which is {spec.key}")
    check_device(options)
    config = resolve_again(catalog, spec)
    stop = StopRequest(display.on_stop_request)
    with TemporaryDirectory(prefix="orthobench-") as folder:
        database = Location(str(Path(folder) / "again.db"))
        label = f"{spec.task} {spec.model} seed {spec.seed}"
        job = Job(spec, label, database, options, catalog.files, _threads(run), config=config)
        with (
            open_store(database, create=True) as again_store,
            stop_on_signals(stop),
            display.open_jobs(1, in_this_process=True) as shown,
            shown.open_sink(label) as sink,
        ):
            try:
                again = train_job(job, sink, stop, again_store)
            except Interrupted:
                raise Stopped from None
            return compare_again(store, run, again_store, again)


def _with_files(spec: RunSpec, files: Mapping[str, str]) -> RunSpec:
    """Return a spec with this machine's files in place of those of the machine that trained it.

    Raises:
        UsageError: a file is not given, because a stranger's path is never opened, or the spec has no such file.
    """
    groups = {name: dict(getattr(spec, name)) for name in ("task_settings", "model_settings", "training")}
    unused = dict(files)
    for settings in groups.values():
        for name in [name for name in settings if settings.get(name + CHECKSUM) is not None]:
            if name not in unused:
                raise UsageError(
                    f"run {spec.key} reads a file or folder, {name}, with the MD5 {settings[name + CHECKSUM]!s:.40}: "
                    f"give its path on this machine, {name}=PATH"
                )
            settings[name] = whole_path(unused.pop(name))
    if unused:
        raise UsageError(f"run {spec.key} has no setting {min(unused)} that names a file: leave it out")
    return RunSpec(**{**vars(spec), **groups})


def _threads(run: Run) -> int | None:
    """Return the number of threads with which a run was trained, if this machine has as many cores."""
    threads: Any = run.environment.facts.get("threads")
    return threads if type(threads) is int and 1 <= threads <= (os.cpu_count() or 1) else None
