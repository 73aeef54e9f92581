"""Threads that divide the rows of a batch."""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch

_WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_pools: dict[int, ThreadPoolExecutor] = {}
_is_forked: list[bool] = []


def _forget_threads() -> None:  # because threads do not survive a fork, and OpenMP waits for its own forever
    _pools.clear()
    _is_forked.append(True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def run_all(tasks: Sequence[Callable[[], None]]) -> None:
    """Run all tasks, in list order, on up to torch.get_num_threads() threads, including the caller's.

    The threads are torch's own if it uses OpenMP. After the first error no further task begins, and the error is raised
    when all threads have ended, because these still write into the caller's tensors.
    """
    count = torch.get_num_threads() if len(tasks) > 1 else 1
    if count < 2:
        for task in tasks:
            task()
        return
    waiting = deque([*tasks, *[None] * count])  # a None ends the work of a thread
    errors: list[BaseException] = []
    begun: list[int] = []

    def work(_: object = None) -> None:
        try:
            begun.append(threading.get_ident())
            while (task := waiting.popleft()) is not None and not errors:
                task()
        except BaseException as error:  # an interrupt, too, because it would be lost in a function that C calls
            errors.append(error)

    team = None if _is_forked else _openmp()
    if team is not None:
        # As many threads as torch has, because OpenMP ends the threads that a smaller team does not need.
        team(_WORK(work), None, count, 0)
        if threading.get_ident() not in begun:  # an interrupt came before the first line, and ctypes drops it
            errors.append(KeyboardInterrupt())
    else:
        helpers = min(count, len(tasks)) - 1
        pool = _pools.get(helpers)
        if pool is None:  # two threads may get here at once, and then share the pool of the first
            pool = _pools.setdefault(helpers, ThreadPoolExecutor(helpers, thread_name_prefix="recurrence"))
        futures = [pool.submit(work) for _ in range(helpers)]
        work()
        for future in futures:
            future.result()
    if errors:
        raise errors[0]


@cache
def _openmp() -> Callable[..., None] | None:
    """Return the function that calls one function in torch's threads, the caller's included; None without OpenMP.

    Other threads would wait for a processor, because torch's wait for their next work in a loop for milliseconds.
    """
    if not torch.backends.openmp.is_available():
        return None
    try:
        function = ctypes.CDLL(None).GOMP_parallel  # the symbols of torch's OpenMP are those of the whole process
    except (AttributeError, OSError, TypeError):  # a system whose OpenMP has another interface
        return None
    function.argtypes, function.restype = (_WORK, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint), None
    call: Callable[..., None] = function
    return call


def ranges(size: int, count: int) -> list[tuple[int, int]]:
    """Divide [0, size) into at most `count` ranges of nearly equal length."""
    count = max(1, min(count, size))
    return [(size * i // count, size * (i + 1) // count) for i in range(count)]
