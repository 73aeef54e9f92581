"""Threads that divide the rows of a batch."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

_pools: dict[int, ThreadPoolExecutor] = {}

if hasattr(os, "register_at_fork"):  # because threads do not survive a fork
    os.register_at_fork(after_in_child=_pools.clear)


def run_all(tasks: Sequence[Callable[[], None]]) -> None:
    """Run all tasks, in list order, on up to torch.get_num_threads() threads, including the caller's."""
    helpers = min(torch.get_num_threads(), len(tasks)) - 1 if len(tasks) > 1 else 0
    if helpers < 1:
        for task in tasks:
            task()
        return
    waiting = deque(tasks)

    def work() -> None:
        while True:
            try:
                task = waiting.popleft()
            except IndexError:
                return
            task()

    pool = _pools.get(helpers)
    if pool is None:  # two threads may get here at once, and then share the pool of the first
        pool = _pools.setdefault(helpers, ThreadPoolExecutor(helpers, thread_name_prefix="recurrence"))
    futures = [pool.submit(work) for _ in range(helpers)]
    try:
        work()
    finally:
        # Awaited after an error too, because these threads still write into the caller's tensors.
        for future in futures:
            future.result()


def ranges(size: int, count: int) -> list[tuple[int, int]]:
    """Divide [0, size) into at most `count` ranges of nearly equal length."""
    count = max(1, min(count, size))
    return [(size * i // count, size * (i + 1) // count) for i in range(count)]
