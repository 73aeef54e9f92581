"""Evaluate a trainer's model: test and validation metrics, probes, and the verdict whether it has diverged.

Divergence is a result, which is stored with its iteration.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from orthobench.errors import UsageError, lacks_memory
from orthobench.metric import VALIDATION
from orthobench.model import State
from orthobench.probe import Probe, ProbeContext
from orthobench.recurrence import workspace
from orthobench.store import MetricRow, TraceRow
from orthobench.system import environment
from orthobench.system.own_code import described
from orthobench.task import Batch, Split, Task, as_stream, means_of, measured
from orthobench.training.by_length import ScoresByLength, length_vectors
from orthobench.training.events import Evaluation, RunProgress
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
        return f"{name} {metrics[name]:.4g} {when}, above {limit:g} times {baseline:.4g}, the expected loss of a guess"

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
