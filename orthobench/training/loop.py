"""Run a trainer from its first iteration, or a checkpoint, to its end: train, evaluate, send events, save checkpoints.

An evaluation consists of test and validation metrics, probes, and the verdict whether the model has diverged.

Rows are committed before the checkpoint that follows them. On resume, rows after the checkpoint are deleted. A
checkpoint after the newest row is not used, because the database may be an older copy or have lost commits in a power
failure. A run interrupted anywhere therefore ends with the same numbers as an uninterrupted one.

Divergence is a result, which is stored with its iteration. With `on_divergence="continue"` the run trains on for as
long as every weight is finite. The iterations are the same in both modes, so the mode is not part of the run's key. If
a diverged run could continue, its checkpoint stays.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TypeVar

import torch
from torch import Tensor

from orthobench.errors import StorageError, UsageError, lacks_memory
from orthobench.metric import VALIDATION
from orthobench.model import State
from orthobench.options.arguments import OnDivergence
from orthobench.probe import Probe, ProbeContext
from orthobench.recurrence import workspace
from orthobench.store import MetricRow, Status, TraceRow, WeightsRow
from orthobench.system import environment
from orthobench.system.own_code import described
from orthobench.task import Batch, Split, Task, as_stream, means_of, measured
from orthobench.training.by_length import ScoresByLength, length_vectors
from orthobench.training.checkpoint import Checkpoints
from orthobench.training.events import Evaluation, EventSink, RunEnd, RunProgress, RunStart, Tee
from orthobench.training.recording import WeightsKeeper
from orthobench.training.state import backend_names
from orthobench.training.trainer import Trainer

_logger = logging.getLogger("orthobench")
MOST_NUMBERS = 10_000
"""The most numbers of a vector that an evaluation logs, because it is written each time."""


class Evaluator:
    """Evaluates a trainer's model, and keeps the best value and the plateaus up to date.

    Args:
        after_part: called after every batch and every probe; an exception from it ends the evaluation.

    Attributes:
        expected: the baselines of the task with these settings.
        baselines: those of this run's own sequences, where the task has them.
        tests: whether the test data are used at all.
        judge: the split, "test" or "valid", that decides when a run is solved or has diverged, and which weights are
            best.

    Raises:
        UsageError: the task's baselines are wrong.
    """

    def __init__(self, trainer: Trainer, after_part: Callable[[], None] = lambda: None) -> None:
        self.after_part = after_part
        self.trainer, self.task, self.training = trainer, trainer.task, trainer.training
        config = trainer.config
        self.tests = self.training.judged_by != "validation_only"
        # A trial of a search has no probes, because nobody looks at it and there are ten times as many as results.
        self.probes: dict[str, Probe] = {name: probe() for name, probe in config.probes.items()} if self.tests else {}
        self.judge = "test" if self.training.judged_by == "test" else "valid"
        main = config.task_class.main_metric()
        self.metric, self.better = main.name, min if main.goal == "min" else max
        self.loss_metric = config.task_class.divergence_metric()
        self.expected = self.task.checked_baselines(config.task_settings)
        self.baselines = self.expected | self._constants()

    def evaluate(self, *, probe: bool) -> Evaluation:
        """Measure the current model, with the probes if `probe`, and update best value, plateaus and `solved`.

        An exception leaves the trainer's state unchanged, so that the evaluation can be repeated.

        Raises:
            UsageError: the task does not measure its main metric.
        """
        trainer, state = self.trainer, self.trainer.state
        epoch = state.iteration // trainer.iterations_per_epoch
        rows: list[MetricRow] = []
        with trainer.timer("test"):
            scores = None
            if self.task.length_metric and self.tests:
                scores = ScoresByLength(self.task)
            totals = self.totals(self.task.test, scores=scores) if self.tests else {}
            test = self.task.summarise(means_of(totals)) if self.tests else {}
            validation = {} if self.task.validation is None else self.measure(self.task.validation)
            judged = test if self.judge == "test" else validation
            if self.metric not in judged:
                names = ", ".join(judged) or "nothing"
                raise UsageError(f"{type(self.task).__name__} measured {names}: its first metric is {self.metric}")
        solved = self._is_solved(judged[self.metric])
        probe_rows, vectors = self._run_probes(epoch, last=solved) if probe or solved else ([], [])
        if scores is not None:
            by_name = length_vectors(self.task, trainer.config.task_settings, scores.means())
            vectors += [TraceRow(name, epoch, state.iteration, vector) for name, vector in by_name.items()]
        vectors += [
            TraceRow(name, epoch, state.iteration, total.flatten().tolist())
            for name, (total, _) in totals.items()
            if 1 < total.numel() <= MOST_NUMBERS
        ]
        loss = trainer.take_loss()
        if loss is not None:
            rows.append(MetricRow("train", "loss", epoch, state.iteration, loss))
        for split, metrics in (("test", test), ("valid", validation)):
            rows += [MetricRow(split, name, epoch, state.iteration, value) for name, value in metrics.items()]
        if validation and state.iteration and state.iteration % trainer.iterations_per_epoch == 0:
            self._update_plateau(validation[self.metric])
        rows += probe_rows
        shown = test.get(self.metric)
        finite = shown if shown is not None and math.isfinite(shown) else None
        if self._improves(judged[self.metric], state.best and state.best[0]):
            trainer.set_best(judged[self.metric], finite)
        state.solved = solved
        return Evaluation(state.iteration, epoch, rows, vectors, finite, self.progress(), solved, self.judge)

    def _constants(self) -> dict[str, float]:
        """Return the scores of the best constant on this run's own sequences, by metric; "valid/" for validation."""
        task = self.task
        # An error of a plugin's `measure` is raised by the first evaluation again, and the run then has a record.
        with suppress(Exception):
            return self._measured_constants(task)
        return {}

    def _measured_constants(self, task: Task) -> dict[str, float]:
        scores = task.constant(task.test) if self.tests else {}
        if self.tests and scores:
            scores |= {
                f"{task.longer_metric}_{n}t": task.constant(split)[task.longer_metric]
                for n, split in task.longer_tests.items()
            }
        validation = {} if task.validation is None else task.constant(task.validation)
        constants = scores | {VALIDATION + name: value for name, value in validation.items()}
        # Without infinite ones, such as the cross-entropy if a right answer is none that the constant knows: no zero.
        return {name: value for name, value in constants.items() if math.isfinite(value)}

    def measure(
        self, split: Split, max_batches: int | None = None, scores: ScoresByLength | None = None
    ) -> dict[str, float]:
        """Return every metric over a split, or over its first `max_batches` batches; fill `scores`, if given."""
        return self.task.summarise(means_of(self.totals(split, max_batches, scores)))

    @torch.no_grad()
    def totals(
        self, split: Split, max_batches: int | None = None, scores: ScoresByLength | None = None
    ) -> dict[str, tuple[Tensor, float]]:
        """Return the sums of the totals and weights of `measure`, as `measure` of this class does.

        Evaluation and training use different batch sizes, so neither keeps the large tensors of the other.
        """
        model = self.trainer.judged
        model.eval()
        workspace.release()
        totals: dict[str, tuple[Tensor, float]] = {}
        state: State | None = None
        for batch in islice(self._evaluation_batches(split), max_batches):
            outputs, final_state = batch.through(model, state)
            state = final_state if self.task.carries_state else None
            for name, (total, weight) in measured(self.task, outputs, batch.targets).items():
                sum_before, weight_before = totals.get(name, (0.0, 0.0))
                # Tensors until the end, because reading a number in each batch would wait for the
                # GPU; float64, because the sums are long.
                totals[name] = (sum_before + total.double(), weight_before + weight)
            if scores is not None:
                scores.add(outputs, batch)
            self.after_part()
        model.train()
        workspace.release()
        return totals

    def measure_final(self, report: Callable[[int, int], None]) -> tuple[dict[str, float], str]:
        """Return the task's final metrics and "", or no metrics and the reason if they fail.

        They are measured after all training, so a failure loses nothing else and only causes a warning. Exceptions from
        `report` and a lack of memory are raised nevertheless.
        """
        stops: list[BaseException] = []

        def watched(done: int, total: int) -> None:
            try:
                report(done, total)
            except BaseException as error:
                stops.append(error)
                raise

        model = self.trainer.judged.eval()
        try:
            return self.task.final_metrics(model, watched), ""
        except Exception as error:
            if error in stops or lacks_memory(error):  # because the resumed run may fit on another machine
                raise
            problem = f"the final metrics failed: {described(error)}"
            _logger.warning("run %s: %s", self.trainer.config.spec.key, problem)
            return {}, problem

    def divergence(self, evaluation: Evaluation) -> str:
        """Return why and when the model has diverged, or "" if it has not.

        A run has diverged if its metric or training loss is not finite, or if its loss exceeds `diverged_above` times
        the baseline, on the data that judge it.
        """
        per_epoch = self.trainer.iterations_per_epoch
        when = f"at iteration {evaluation.iteration} (epoch {evaluation.iteration / per_epoch:.4g})"
        loss, metrics = evaluation.loss, evaluation.metrics_of(self.judge)
        if not math.isfinite(metrics[self.metric]) or not (loss is None or math.isfinite(loss)):
            return f"not finite {when}"
        name, limit = self.loss_metric, self.training.diverged_above
        if name is None or limit is None:
            return ""
        baseline = self.expected[name]  # of all sequences, so that equal runs diverge alike whatever their seed
        if metrics[name] <= limit * baseline:
            return ""
        return f"{name} {metrics[name]:.4g} {when}, above {limit:g} times the baseline of {baseline:.4g}"

    def progress(self) -> RunProgress:
        """Return the run's columns that change while it trains."""
        state = self.trainer.state
        value, iteration = state.best or (None, None)
        if self.judge != "test":
            value = state.best_test
        return RunProgress(
            iterations=self.trainer.state.iteration,
            backend=backend_names(self.trainer.backends()),
            best_value=value,
            best_iteration=None if value is None else iteration,
            seconds=self.trainer.timer.rounded(),
            peak_memory=environment.peak_memory(),
        )

    def _evaluation_batches(self, split: Split) -> Iterator[Batch]:
        """Yield the batches of a whole split, in order."""
        size = self.training.evaluation_batch_size
        stream = as_stream(self.task, split)
        if stream is None:
            return map(partial(Batch.of, split), torch.arange(len(split), device=self.trainer.device).split(size))
        return (stream.piece(position, size) for position in range(stream.pieces(size)))

    def _is_solved(self, value: float) -> bool:
        """Return whether a metric of trained weights reaches `solved_at`."""
        limit = self.training.solved_at
        if limit is None or not self.trainer.state.iteration or not math.isfinite(value):
            return False
        return self.better(value, limit) == value

    def _run_probes(self, epoch: int, last: bool) -> tuple[list[MetricRow], list[TraceRow]]:
        """Run the probes that are due, or all of them at the `last` evaluation.

        The probes use the same batch in the whole run, and the model is in evaluation mode.
        """
        trainer, iteration = self.trainer, self.trainer.state.iteration
        self.task.epoch = 0  # so that a task that draws new data in every epoch gives the same batch
        examples = torch.arange(self.training.batch_size, device=trainer.device)
        context = ProbeContext(trainer.judged, self.task, Batch.of(self.task.train, examples))
        rows: list[MetricRow] = []
        vectors: list[TraceRow] = []
        for name, probe in self.probes.items():
            scheduled = probe.every_epochs and epoch % probe.every_epochs == 0
            if not (scheduled or last or iteration in (0, trainer.total_iterations)):
                continue
            trainer.judged.eval()
            with trainer.timer(f"probe {name}"):
                result = probe(context)
            self.after_part()
            rows += [MetricRow("probe", name, epoch, iteration, value) for name, value in result.values.items()]
            vectors += [TraceRow(name, epoch, iteration, vector) for name, vector in result.vectors.items()]
        trainer.judged.train()
        return rows, vectors

    def _update_plateau(self, value: float) -> None:
        """Keep an epoch's validation metric if it is the best one, or else count a plateau."""
        if self._improves(value, self.trainer.state.best_valid):
            self.trainer.state.best_valid = value
        else:
            self.trainer.state.plateaus += 1

    def _improves(self, value: float, best: float | None) -> bool:
        return math.isfinite(value) and (best is None or self.better(value, best) != best)


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
