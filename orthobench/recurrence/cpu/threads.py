"""Run the parts of a call on torch's number of threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

_pools: dict[int, ThreadPoolExecutor] = {}
if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_pools.clear)


def run(tasks: Sequence[Callable[[], None]]) -> None:
    """Run all tasks, in list order, on up to torch.get_num_threads() threads, including the caller's."""
    helpers = min(torch.get_num_threads(), len(tasks)) - 1
    waiting = deque(tasks)

    def work() -> None:
        while True:
            try:
                task = waiting.popleft()
            except IndexError:
                return
            task()

    if helpers < 1:
        return work()
    if helpers not in _pools:
        _pools[helpers] = ThreadPoolExecutor(helpers, thread_name_prefix="recurrence")
    futures = [_pools[helpers].submit(work) for _ in range(helpers)]
    try:
        work()
    finally:
        for future in futures:
            future.result()
    return None


def ranges(size: int, parts: int) -> list[tuple[int, int]]:
    """Divide [0, size) into at most `parts` ranges of nearly equal length."""
    parts = max(1, min(parts, size))
    return [(size * i // parts, size * (i + 1) // parts) for i in range(parts)]
