"""What the process that forks workers does before it forks; `multiprocessing` imports this module there.

A run needs all of this, and it takes longer than a short run trains. It starts no thread and opens no CUDA context,
because neither survives a fork.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from pathlib import Path

import torch

from orthobench.executors import worker as worker
from orthobench.plugins import Catalog
from orthobench.system import environment
from orthobench.system.signals import REQUESTS

PRELOADED = "numpy.ctypeslib", "numpy.random", "safetensors.torch", "sqlalchemy.dialects.sqlite"
"""Modules that libraries import when a run first uses them."""


def _unblock() -> None:
    """Let this fork receive signals again; a worker lets SIGINT through once it handles it, in a session of its own."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, set(REQUESTS) - {signal.SIGINT})


def _prepare() -> None:
    for name in PRELOADED:
        import_module(name)
    # The path of the workers, because the catalogue reads again what is installed if the path differs. It is not known
    # if multiprocessing has replaced a server that was killed.
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if {place for place in sys.path if Path(place).exists()} <= set(path):
        sys.path[:] = path
    Catalog()
    Catalog(installed=False).probes(())
    environment.describe(torch.device("cpu"))


os.register_at_fork(after_in_child=_unblock)
_prepare()
