"""Profile a job in another process, so that nothing of it stays in this one."""

from __future__ import annotations

import signal
from multiprocessing.connection import Connection
from typing import cast

from orthobench.errors import OrthobenchError, UsageError
from orthobench.executors.job import Job
from orthobench.executors.processes import CONTEXT, prepare_forks
from orthobench.isolation import isolated
from orthobench.options.data_folder import use_data_folder
from orthobench.system.own_code import described
from orthobench.system.spawn import start
from orthobench.training.device import pick_device
from orthobench.training.profiling import ProfileError, RunProfile, profile_run


def profile_job(job: Job) -> RunProfile:
    """Profile a job in another process, without using its database and checkpoints.

    Raises:
        UsageError: the run cannot start.
        ProfileError: the steps failed, or the process was killed.
    """
    prepare_forks().join()
    receiver, sender = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_send_profile, args=(job, sender), daemon=True)
    with sender:
        start(process)
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


def _send_profile(job: Job, sender: Connection) -> None:
    """Profile a job and send the profile, or the error, to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent receives Ctrl-C as well, and ends this process
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
