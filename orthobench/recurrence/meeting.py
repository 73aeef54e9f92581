"""Runs that train together on one device: equal passes of their kernels become one launch.

Each run has a thread, and one thread at a time has the turn. A thread that comes to a kernel gives the turn away. When
all threads wait or have ended, one of them runs the equal passes for all runs at once, with a leading dimension `runs`.
All else (parameters, autograd, optimisers, random streams) stays each run's own. Threads, because autograd calls the
backward passes from C++, where Python can pause nothing else.

Alone, a run would have the same numbers. So the first passes of each form are also run for each run alone. Where the
results differ, this form is never run together again.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
Tensors = Sequence[Tensor | None]

_logger = logging.getLogger("orthobench.recurrence")
_thread = threading.local()


@dataclass(frozen=True)
class Pass:
    """A pass of a kernel over one run's tensors, or over those of several runs with a leading dimension `runs`.

    Attributes:
        form: passes of equal forms, shapes and types do the same.
        tensors: the run's own tensors, without that dimension.
        run: computes the results from the tensors, both with that dimension or without it; it changes no tensor.
        tolerance: the distance between the results of both ways, relative to the largest value; 0: bit by bit.
    """

    form: Hashable
    tensors: Tensors
    run: Callable[[Tensors], Tensors]
    tolerance: float = 0.0

    @property
    def signature(self) -> Hashable:
        """Equal for passes that can be one launch."""
        return self.form, tuple(None if t is None else (t.shape, t.dtype, t.device) for t in self.tensors)

    def alone(self) -> Tensors:
        """Return the results for this run."""
        return self.run(self.tensors)


def run(work: Pass) -> Tensors:
    """Return the results of a pass: of this run alone, or in a meeting together with those of the others."""
    member: _Member[Any] | None = getattr(_thread, "member", None)
    return work.alone() if member is None else member.meet(work)


def is_on() -> bool:
    """Return whether this thread is in a meeting."""
    return getattr(_thread, "member", None) is not None


@contextmanager
def apart() -> Iterator[None]:
    """Run the passes of the block alone, such as those of a test that holds a lock."""
    member, _thread.member = getattr(_thread, "member", None), None
    try:
        yield
    finally:
        _thread.member = member


class Meeting(Generic[T]):
    """Runs functions at the same time, so that equal passes of their kernels meet; it may run again.

    Attributes:
        is_cancelled: whether the caller of `run` has left; functions should end soon.
        launches: number of passes that were run for several functions at once.
    """

    def __init__(self) -> None:
        self.is_cancelled = False
        self.launches = 0
        self.turn_is_back = threading.Semaphore(0)
        self._is_trusted: dict[Hashable, bool] = {}

    def run(self, functions: Sequence[Callable[[], T]]) -> Generator[tuple[int, T], None, None]:
        """Yield the number and the result of each function when it ends. Its exception is raised here.

        An exception here, such as KeyboardInterrupt, ends the functions by a KeyboardInterrupt at their next kernel.
        """
        self.is_cancelled = False
        members = [_Member(self, function) for function in functions]
        numbers = {id(member): number for number, member in enumerate(members)}
        living, ready = list(members), list(members)
        try:
            while living:
                for member in ready:
                    member.resume()
                    if member.has_ended:
                        living.remove(member)
                        yield numbers[id(member)], member.take_result()
                ready = self._next_team(living)
                if len(ready) > 1:
                    ready[0].team = ready
        finally:
            self.is_cancelled = True
            for member in sorted(living, key=lambda member: member.is_waiting):
                member.leave()

    @staticmethod
    def _next_team(waiting: Sequence[_Member[T]]) -> list[_Member[T]]:
        """Return the smallest set of members with equal passes: they catch up with the others, who wait for them."""
        teams: dict[Hashable, list[_Member[T]]] = {}
        for member in waiting:
            assert member.work is not None
            teams.setdefault(member.work.signature, []).append(member)
        return min(teams.values(), key=len, default=[])

    def serve(self, team: Sequence[_Member[T]]) -> None:
        """Run the equal passes of a team at once. Members without results then run their own."""
        works = [member.work for member in team if member.work is not None]
        signature = works[0].signature
        if self._is_trusted.get(signature) is False:
            return
        try:
            results = together(works)
            if signature not in self._is_trusted:
                self._is_trusted[signature] = not _tests_are_on() or all(map(_agrees, works, results))
        except Exception as error:
            self._is_trusted[signature] = False
            _logger.warning("a kernel does not run for %d runs at once: %s", len(works), str(error).partition("\n")[0])
            return
        if not self._is_trusted[signature]:
            _logger.warning("a kernel gives other numbers for %d runs at once: each run has its own launch", len(works))
            return
        self.launches += 1
        for member, result in zip(team, results, strict=True):
            member.results = result


class _Member(Generic[T]):
    """A function in its thread, which runs only between `resume` and the next kernel or the end."""

    def __init__(self, meeting: Meeting[T], function: Callable[[], T]) -> None:
        self.meeting, self.function = meeting, function
        self.work: Pass | None = None
        self.results: Tensors | None = None
        self.team: Sequence[_Member[T]] = ()
        self.is_waiting, self.has_ended = True, False
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._turn = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._live, name="a run of a group", daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Give the thread the turn, and wait until it gives it back."""
        self._turn.release()
        self.meeting.turn_is_back.acquire()

    def leave(self) -> None:
        """Wait until the function has ended in a meeting that is cancelled, where none waits for a turn."""
        self._turn.release()
        self._thread.join()

    def take_result(self) -> T:
        """Return the function's result, or raise its exception."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value[0]

    def meet(self, work: Pass) -> Tensors:
        """Wait for the turn, and return the results of a pass."""
        self.work, random = work, _random_states()
        self._wait()
        _set_random_states(random)
        team, self.team = self.team, ()
        if team:
            self.meeting.serve(team)
        results, self.work, self.results = self.results, None, None
        return work.alone() if results is None else results

    def _wait(self) -> None:
        """Give the turn back, and wait for the next one."""
        self.is_waiting = True
        self.meeting.turn_is_back.release()
        if not self.meeting.is_cancelled:
            self._turn.acquire()
        if self.meeting.is_cancelled:
            raise KeyboardInterrupt
        self.is_waiting = False

    def _live(self) -> None:
        self._turn.acquire()
        self.is_waiting, _thread.member = False, self
        torch.autograd.set_multithreading_enabled(False)  # else the backward passes of all runs share one thread
        try:
            if self.meeting.is_cancelled:
                raise KeyboardInterrupt
            self._value.append(self.function())
        except BaseException as error:
            self._error = error
        finally:
            self.has_ended = True
            self.meeting.turn_is_back.release()


def together(works: Sequence[Pass]) -> list[Tensors]:
    """Run equal passes at once and return the results of each, in views of the common tensors."""
    columns = zip(*(work.tensors for work in works), strict=True)
    results = works[0].run([_stacked([t for t in column if t is not None]) for column in columns])
    # Detached: to autograd, views of one tensor would be relatives.
    return [[None if result is None else result[i].detach() for result in results] for i in range(len(works))]


def _stacked(tensors: list[Tensor]) -> Tensor | None:
    """Return the tensors with a leading dimension; no copy is made of those that `together` has returned."""
    if not tensors:
        return None
    first = tensors[0]
    size, start = first.numel(), first.storage_offset()
    if type(first) is Tensor and all(
        t.is_contiguous()
        and t.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        and t.storage_offset() == start + i * size
        for i, t in enumerate(tensors)
    ):
        return first.as_strided((len(tensors), *first.shape), (size, *first.stride()))
    return torch.stack(tensors)


def _tests_are_on() -> bool:
    """Return whether the user has kernels tested; imported here, since the tests import this module."""
    return bool(importlib.import_module("orthobench.recurrence.cuda.verdicts").are_on())


def _agrees(work: Pass, results: Tensors) -> bool:
    """Return whether the pass alone gives these results, within its tolerance."""
    for result, alone in zip(results, work.alone(), strict=True):
        if result is None or alone is None:
            if result is not alone:
                return False
            continue
        margin = work.tolerance * float(alone.abs().max()) if work.tolerance and alone.numel() else 0.0
        if not torch.allclose(result, alone, rtol=work.tolerance, atol=margin, equal_nan=True):
            return False
    return True


def _random_states() -> list[Tensor]:
    """Return the states of torch's generators, which all threads share."""
    on_cuda = [torch.cuda.get_rng_state()] if torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *on_cuda]


def _set_random_states(states: Sequence[Tensor]) -> None:
    cpu, *on_cuda = states
    torch.set_rng_state(cpu)
    for state in on_cuda:
        torch.cuda.set_rng_state(state)
