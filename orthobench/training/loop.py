"""Run a trainer from its first iteration, or a checkpoint, to its end: train, evaluate, send events, save checkpoints.

Rows are committed before the checkpoint that follows them. On resume, rows after the checkpoint are deleted. A
checkpoint after the newest row is not used, because the database may be an older copy or have lost commits in a power
failure. A run interrupted anywhere therefore ends with the same numbers as an uninterrupted one.

With `on_divergence="continue"` a diverged run trains on for as long as every weight is finite. The iterations are the
same in both modes, so the mode is not part of the run's key. If a diverged run could continue, its checkpoint stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import torch

from orthobench.errors import StorageError
from orthobench.options.arguments import OnDivergence
from orthobench.store import MetricRow, Status, WeightsRow
from orthobench.training.checkpoint import Checkpoints
from orthobench.training.evaluator import Evaluator
from orthobench.training.events import EventSink, RunEnd, RunStart, Tee
from orthobench.training.recording import WeightsKeeper
from orthobench.training.trainer import Trainer

T = TypeVar("T")


class Interrupted(Exception):
    """The run was asked to stop; its checkpoint is written, unless it has not trained any iteration yet."""


class CheckpointSchedule:
    """Decides when the next checkpoint is due.

    Args:
        every: seconds between checkpoints; the interval grows if saving takes more than a hundredth of the time.
    """

    def __init__(self, every: float) -> None:
        self.every = every
        self.saved_at = time.perf_counter()
        self.save_seconds = 0.0

    def is_due(self) -> bool:
        """Return whether a checkpoint is due."""
        slowdown = self.save_seconds / (0.01 * self.every) if self.every else 0.0
        return time.perf_counter() - self.saved_at >= self.every * max(1.0, slowdown)

    def saved(self, start: float) -> None:
        """Record that a checkpoint was saved, from `start` until now."""
        self.saved_at = time.perf_counter()
        self.save_seconds = self.saved_at - start


class TrainingLoop:
    """One run in this process, from its start or a checkpoint to its end.

    Args:
        sinks: receive every event, in this order.
        should_stop: called after every iteration and between the batches of an evaluation; if true, a checkpoint is
            written (not before the first iteration) and Interrupted raised.
        keeper: keeps the weights at the end.

    Attributes:
        keep_checkpoint: whether the run has diverged but could continue.
    """

    def __init__(
        self,
        trainer: Trainer,
        sinks: Sequence[EventSink],
        checkpoints: Checkpoints,
        schedule: CheckpointSchedule,
        should_stop: Callable[[], bool],
        on_divergence: OnDivergence,
        keeper: WeightsKeeper,
    ) -> None:
        self.keeper = keeper
        trainer.keeps_best = keeper.keeps_any
        self.trainer, self.evaluator = trainer, Evaluator(trainer, self._check_stop)
        self.sink, self.checkpoints, self.schedule = Tee(*sinks), checkpoints, schedule
        self.should_stop, self.on_divergence = should_stop, on_divergence
        self.keep_checkpoint = False

    def start(self) -> None:
        """Send the record of the run to the sinks."""
        trainer = self.trainer
        record = RunStart.of(
            trainer.config,
            trainer.device.type,
            parameter_count=trainer.model.parameter_count(),
            baselines=self.evaluator.baselines,
            total_iterations=trainer.total_iterations,
            iterations_per_epoch=trainer.iterations_per_epoch,
        )
        self.sink.on_start(record)

    def run(self, *, resumed: bool) -> None:
        """Train from the trainer's state, or from the beginning if the run is not resumed, to the end.

        Raises:
            Interrupted: `should_stop` returned true; a checkpoint is written once an iteration has trained.
        """
        trainer = self.trainer
        if resumed:
            self.sink.on_resume(trainer.rows_end)
            if trainer.is_evaluation_cut_off and self._evaluate_and_end():
                return
        else:
            # Also for a new record, because a run that starts over for want of a
            # checkpoint still has the rows of its first try.
            self.sink.on_resume(-1)
            self._evaluate(probe=True)  # the result is ignored: untrained weights cannot have diverged
        while not trainer.is_over:
            trainer.advance()
            self.sink.on_iteration(trainer.state.iteration)
            if trainer.is_evaluation_due and self._evaluate_and_end():
                return
            self._stop_if_asked()
            if self.schedule.is_due():
                self._save()
        self._finish()

    def end(
        self,
        status: Status,
        message: str | None = None,
        rows: Sequence[MetricRow] = (),
        weights: Sequence[WeightsRow] = (),
    ) -> None:
        """Send the end of the run to the sinks."""
        end = RunEnd(status, message, rows, self.evaluator.progress(), weights)
        self.sink.on_end(end)

    def _evaluate_and_end(self) -> bool:
        """Evaluate; end the run if it has diverged, and return whether it has ended."""
        trainer = self.trainer
        ends = trainer.state.iteration == trainer.total_iterations
        # Taken before the evaluation, because a longer run repeats it, and it takes
        # the summed loss and moves the best value.
        before = trainer.checkpoint() if ends or trainer.training.solved_at is not None else None
        if before and ends:
            self._storing(lambda: self.keeper.keep_state(trainer, before))
        cause = self._evaluate(probe=trainer.ends_epoch)
        if not cause:
            if before and trainer.state.solved and not ends:
                self._storing(lambda: self.keeper.keep_state(trainer, before))
            return False
        can_continue = trainer.state.iteration < trainer.total_iterations and trainer.weights_are_finite()
        if can_continue and self.on_divergence == "continue":
            return False
        self.end(Status.DIVERGED, cause, weights=self._storing(lambda: self.keeper.keep(trainer, finished=False)))
        if can_continue:
            self._save()
            self.keep_checkpoint = True
        return True

    def _evaluate(self, *, probe: bool) -> str:
        """Evaluate, send the results to the sinks, and return why the model has diverged, or "".

        If the run is asked to stop, the evaluation is aborted, and the resumed run repeats it.
        """
        # Kept because the resumed run repeats an aborted evaluation, which has to draw the same numbers again.
        random_state = torch.get_rng_state()
        try:
            evaluation = self.evaluator.evaluate(probe=probe)
        except Interrupted:
            torch.set_rng_state(random_state)
            if self.trainer.state.iteration:
                self._save()
            raise
        with self.trainer.timer("log"):
            self.sink.on_evaluation(evaluation)
        # Only after the sinks, because a checkpoint must not claim rows that were never committed.
        self.trainer.state.logged = evaluation.iteration
        return self.evaluator.divergence(evaluation)

    def _finish(self) -> None:
        """Keep the weights, measure the final metrics and end the run.

        The final metrics may kill the process, so the results of the training are stored before them.
        """
        trainer = self.trainer
        weights = self._storing(lambda: self.keeper.keep(trainer, finished=True))
        metrics: dict[str, float] = {}
        problem = ""
        if trainer.task.has_final_metrics and self.evaluator.tests:
            self._save()
            with trainer.timer("test"):
                trainer.timer.phase = "final metrics"
                metrics, problem = self.evaluator.measure_final(self._on_final_metrics)
        iteration = trainer.state.iteration
        epoch = iteration // trainer.iterations_per_epoch
        rows = [MetricRow("test", name, epoch, iteration, value) for name, value in metrics.items()]
        message = "; ".join(part for part in (self._why_over(), problem) if part)
        self.end(Status.FINISHED, message or None, rows, weights)

    def _why_over(self) -> str:
        """Return at which iteration the task was solved, or "" if the run has all its iterations."""
        trainer = self.trainer
        if not trainer.state.solved or trainer.state.iteration == trainer.total_iterations:
            return ""
        return f"solved at iteration {trainer.state.iteration}: {self.evaluator.metric} reached solved_at"

    def _storing(self, keep: Callable[[], T]) -> T:
        """Call a function that stores weights and return its result; if it fails, save the run's state in a checkpoint.

        Raises:
            StorageError: the weights cannot be written.
        """
        try:
            with self.trainer.timer("checkpoint"):
                return keep()
        except StorageError:
            with suppress(StorageError):
                self._save()
            raise

    def _on_final_metrics(self, done: int, total: int) -> None:
        self.sink.on_final_metrics(done, total)
        self._stop_if_asked()

    def _check_stop(self) -> None:
        if self.should_stop():
            raise Interrupted

    def _stop_if_asked(self) -> None:
        if self.should_stop():
            self._save()
            raise Interrupted

    def _save(self) -> None:
        with self.trainer.timer("checkpoint"):
            state = vars(self.trainer.checkpoint())
            # Only here, because the state waits for the iterations that a GPU has queued, and
            # their time must not count as the time of saving.
            start = time.perf_counter()
            self.checkpoints.save(state)
        self.schedule.saved(start)
