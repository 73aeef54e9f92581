"""Train runs one after another in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from orthobench.executors.job import Job, JobOutcome, SinkFactory, attempt
from orthobench.store import Store


@dataclass
class SerialExecutor:
    """An executor that trains in this process, into the open database of the jobs."""

    store: Store
    open_sink: SinkFactory
    should_stop: Callable[[], bool]

    def run(self, jobs: Sequence[Job], may_start: Callable[[], bool] = lambda: True) -> Iterator[JobOutcome]:
        """Train jobs and yield their outcomes."""
        for job in jobs:
            if self.should_stop() or not may_start():
                return
            with self.open_sink(job) as sink:
                outcome = attempt(job, sink, self.should_stop, self.store)
            yield outcome
