"""A SLURM cluster: groups of runs are the tasks of a few array jobs, which submitit submits.

This module talks to SLURM; `orthobench.executors.slurm_executor` decides what to submit and when. submitit is imported
where it is used, because it is an extra.
"""

from __future__ import annotations

import io
import math
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from orthobench.errors import UsageError, needs_extra
from orthobench.executors.cluster import check_shared
from orthobench.executors.job import Job
from orthobench.executors.slurm_settings import read_settings
from orthobench.executors.slurm_task import RunGroup
from orthobench.options.run_options import SweepOptions
from orthobench.system.location import Location
from orthobench.training.checkpoint import checkpoint_root

WARNING_SECONDS = 90
"""Seconds before the time limit at which SLURM asks the runs for their checkpoints."""


class SlurmCluster:
    """The SLURM cluster of this machine.

    Attributes:
        device: the kind of device on which the runs train.
        folder: the folder of the tasks' scripts and logs, which only this user can enter.
        group_minutes: the estimated minutes of training in one task.
    """

    def __init__(self, database: Location, options: SweepOptions) -> None:
        """Check that SLURM would accept the runs, and that its machines can share the database and the checkpoints.

        A task gets one CPU per thread of a run, unless the options of sbatch give a number. The device "auto" means a
        GPU if these options ask for one.

        Raises:
            UsageError: submitit or SLURM is missing, SLURM refuses the options, or the machines cannot share the files.
        """
        settings = read_settings(options.slurm)
        try:
            import submitit
        except ImportError as error:
            raise needs_extra("`executor='slurm'`", "submitit", "slurm") from error
        for program in ("sbatch", "squeue", "scancel", "srun"):
            if shutil.which(program) is None:
                raise UsageError(
                    f"`executor='slurm'` needs SLURM's {program}, which is not on this machine: run the "
                    "command on a login node of the cluster"
                )
        self.submitit = submitit
        self.options, self.threads = options, options.threads or 1
        self.group_minutes = options.group_minutes or 60.0
        requested = {"cpus_per_task": str(self.threads), "job_name": "orthobench", **settings.options}
        self.device = settings.device(options.device)
        if self.device == "cuda" and not settings.asks_for_gpus:
            requested["gpus_per_node"] = "1"
        options.check_gpu_share(self.device)
        self.settings = replace(settings, options=requested)
        nodes = self._nodes()
        if nodes != {socket.gethostname().partition(".")[0]}:
            # Only for other machines, because a cluster of this one alone may share a file.
            check_shared(database, options.checkpoints)
        self._check_options()
        checkpoints = checkpoint_root(database, options.checkpoints)
        usual = Path("slurm") if isinstance(checkpoints, Location) else checkpoints / "slurm"
        # A folder of its own, because others may use the user's folder, and may not read this one: the tasks' files may
        # contain the database URL with its password.
        self.folder = (settings.folder or usual).absolute() / f"sweep-{uuid4().hex[:12]}"

    def close(self) -> None:
        """Do nothing, because there is no connection."""

    def room(self) -> int:
        """Return how many tasks may be in the queue at the same time."""
        return self.options.jobs or max(1, self._largest_array())

    def _nodes(self) -> set[str]:
        """Return the short host names of the nodes on which the runs may train."""
        partition = str(self.settings.options.get("partition", ""))
        known = _call("sinfo", "--noheader", "--format=%R").split()
        for name in filter(None, partition.split(",")):
            if name not in known:
                choice = " or ".join(sorted(set(known)))
                raise UsageError(f"SLURM has no partition '{name}': give partition={choice} in `slurm`")
        chosen = [f"--partition={partition}"] if partition else []
        names = _call("sinfo", "--noheader", "--Node", "--format=%n", *chosen).split()
        return {name.partition(".")[0] for name in names}

    def _check_options(self) -> None:
        """Ask sbatch whether it would accept the options, without submitting anything."""
        try:
            # --wrap, because sbatch wants a script even for a test.
            _call("sbatch", "--test-only", *self.settings.arguments(), "--wrap=true")
        except UsageError as error:
            raise UsageError(f"SLURM refuses {' '.join(self.settings.arguments())}: {error}: change `slurm`") from error

    def _largest_array(self) -> int:
        with suppress(UsageError):
            for line in _call("scontrol", "show", "config").splitlines():
                name, _, value = line.partition("=")
                if name.strip() == "MaxArraySize":
                    return int(value) - 1
        return 1000

    def groups(self, jobs: Sequence[Job], seconds: Mapping[str, float | None]) -> list[list[Job]]:
        """Divide the jobs, in order, into groups of at most `group_minutes` of training.

        A job without an estimate gets its own group.

        Args:
            seconds: the estimated time of each run by key.
        """
        groups: list[list[Job]] = []
        left = 0.0
        for job in jobs:
            cost = seconds.get(job.spec.key)
            if cost is None or cost > left or not groups:
                groups.append([])
                left = 0.0 if cost is None else 60 * self.group_minutes
            groups[-1].append(job)
            left -= cost or 0.0
        return groups

    def submit(
        self, groups: Sequence[Sequence[Job]], resumed: frozenset[str], no_more: Path, longest: float
    ) -> list[Any]:
        """Submit groups as array jobs, and return submitit's job of each group.

        Args:
            resumed: the keys of runs that were lost on another machine.
            no_more: a file whose existence tells tasks to start no further run.
            longest: the estimated seconds of the longest group.

        Raises:
            UsageError: sbatch refuses the jobs.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        # -P, because a file in the folder of the task could take the place of one of Python's modules.
        executor = self.submitit.SlurmExecutor(self.folder, python=f"{shlex.quote(sys.executable)} -P")
        # Twice the estimate, because a task that reaches its limit has to wait in the queue again.
        minutes = math.ceil(2 * max(self.group_minutes, longest / 60)) + 5
        executor.update_parameters(
            time=minutes,
            # None, because submitit sends a key of its own, which a cluster that accounts by keys refuses.
            wckey=None,
            array_parallelism=self.options.jobs or 100_000,
            additional_parameters={"signal": f"TERM@{WARNING_SECONDS}", **self.settings.options},
        )
        tasks, size, share = [], self._largest_array(), self.options.gpu_share
        for start in range(0, len(groups), size):
            part = groups[start : start + size]
            calls = [RunGroup(tuple(group), self.threads, share, resumed, no_more) for group in part]
            printed = io.StringIO()  # submitit also prints the error of sbatch
            try:
                with redirect_stderr(printed):
                    tasks += executor.submit_array(calls) if len(calls) > 1 else [executor.submit(calls[0])]
            except Exception as error:
                raise UsageError(f"sbatch refused the runs: {_last_line(str(error))}") from error
        return tasks

    def active(self, tasks: Sequence[Any]) -> set[str] | None:
        """Return the ids of the tasks in SLURM's queue; None if SLURM does not answer."""
        numbers = ",".join(sorted({task.job_id.partition("_")[0] for task in tasks}))
        try:
            listed = _call("squeue", "--noheader", "--array", "--format=%F_%K %T %F", f"--jobs={numbers}")
        except UsageError as error:
            # An unknown number means that the tasks are gone, because SLURM forgets a job some minutes after its end.
            return set() if "Invalid job id" in str(error) else None
        ids = set[str]()
        for line in listed.splitlines():
            element, state, number = line.split()
            if state in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED", "STOPPED"):
                ids.add(number if element.endswith("_N/A") else element)
        return ids

    def cancel(self, tasks: Sequence[Any], pending_only: bool = False) -> None:
        """Cancel tasks; SLURM asks running tasks to stop."""
        if tasks:
            with suppress(UsageError):  # they have ended in the meantime
                _call("scancel", *(["--state=PENDING"] if pending_only else []), *(task.job_id for task in tasks))

    def state(self, task: Any) -> str:
        """Return the state that SLURM gives to a finished task, such as TIMEOUT or NODE_FAIL."""
        with suppress(UsageError):
            for word in _call("scontrol", "--oneliner", "show", "job", task.job_id).split():
                if word.startswith("JobState="):
                    return word.removeprefix("JobState=")
        return "lost"

    def end(self, task: Any) -> tuple[list[tuple[str, str, str]], str]:
        """Return the endings that a task reported, or one line that says why there are none."""
        from submitit.core.utils import pickle_load

        log = task.paths.stderr
        if not task.paths.result_pickle.exists():
            return [], f"SLURM job {task.job_id} ended without a result ({self.state(task)}): see {log}"
        kind, content = pickle_load(task.paths.result_pickle)
        if kind == "success":
            return content, ""
        return [], f"SLURM job {task.job_id} failed: {_last_line(content)}: see {log}"


def _call(*command: str) -> str:
    """Call one of SLURM's programs, and return its output.

    Raises:
        UsageError: the program refuses its arguments, or SLURM does not answer.
    """
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip() and "warning: " not in line]
        if "configuration source" in done.stderr:  # the first lines are of the look-up of its name
            raise UsageError("no SLURM controller answers this machine: run the command on a login node of the cluster")
        raise UsageError(lines[0] if lines else f"{command[0]} ended with exit code {done.returncode}")
    return done.stdout


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2].strip()
