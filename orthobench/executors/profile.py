"""Profile a job in another process, so that nothing of it stays in this one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import cast

from orthobench.errors import OrthobenchError, UsageError
from orthobench.executors.job import Job
from orthobench.isolation import isolated
from orthobench.options.data_folder import use_data_folder
from orthobench.system.own_code import described
from orthobench.system.spawn import Spawning
from orthobench.training.device import pick_device
from orthobench.training.profiling import ProfileError, RunProfile, profile_run


def profile_job(job: Job) -> RunProfile:
    """Profile a job in another process, without using its database and checkpoints.

    Raises:
        UsageError: the run cannot start.
        ProfileError: the steps failed, or the process was killed.
    """
    spawn = Spawning()
    receiver, sender = spawn.Pipe(duplex=False)
    # A daemon, because it must not outlive this process, whose Ctrl-C it does not receive.
    process = spawn.Process(target=_send_profile, args=(job, sender), daemon=True)
    with _interrupts_held():
        process.start()
    sender.close()
    try:
        message = receiver.recv()
    except EOFError:
        raise ProfileError("its first steps ended the process: out of memory?") from None
    finally:
        process.kill()
        process.join()
        receiver.close()
    if isinstance(message, Exception):
        raise message
    return cast(RunProfile, message)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Block Ctrl-C in the `with` block. A process that starts there never receives it, so its parent must end it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # starting it later would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _send_profile(job: Job, sender: Connection) -> None:
    """Profile a job and send the profile, or the error, to the parent."""
    message: RunProfile | Exception
    try:
        with isolated(job.threads), use_data_folder(job.options.data_folder):
            config = job.resolve()
            message = profile_run(config, pick_device(job.options.device), job.options.backend, job.options.cuda_graph)
    except OrthobenchError as error:
        message = UsageError(str(error))
    except Exception as error:
        message = ProfileError(f"its first steps failed: {described(error)}")
    sender.send(message)
