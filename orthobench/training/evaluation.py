"""Evaluate a model during training: test and validation metrics, probes, and whether it has diverged."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from orthobench import environment
from orthobench.errors import lacks_memory, one_line
from orthobench.model import State
from orthobench.probe import Probe, ProbeContext
from orthobench.recurrence import runtime
from orthobench.store import MetricRow, TraceRow
from orthobench.task import Batch, Split
from orthobench.training.batches import as_stream
from orthobench.training.events import Evaluation, RunProgress
from orthobench.training.trainer import Trainer, backend_names

if TYPE_CHECKING:
    from orthobench.training.by_length import ScoresByLength

_logger = logging.getLogger("orthobench")


class Evaluator:
    """Evaluates a trainer's model, and keeps the best value and the plateaus up to date.

    Args:
        after_part: called after every batch and every probe; an exception from it ends the evaluation.
    """

    def __init__(self, trainer: Trainer, after_part: Callable[[], None] = lambda: None) -> None:
        self.after_part = after_part
        self.trainer, self.task, self.training = trainer, trainer.task, trainer.training
        config = trainer.config
        self.probes: dict[str, Probe] = {name: probe() for name, probe in config.probes.items()}
        main = config.task_class.main_metric()
        self.metric, self.better = main.name, min if main.goal == "min" else max
        self.loss_metric = config.task_class.divergence_metric()
        self.baselines = self.task.baselines(config.task_settings)

    def evaluate(self, *, probe: bool) -> Evaluation:
        """Measure the current model, with the probes if `probe`, and update best value, plateaus and `solved`.

        An exception leaves the trainer's state unchanged, so that the evaluation can be repeated.
        """
        trainer, state = self.trainer, self.trainer.state
        epoch = state.iteration // trainer.iterations_per_epoch
        rows: list[MetricRow] = []
        with trainer.timer("test"):
            scores = None
            if self.task.length_metric:
                from orthobench.training.by_length import ScoresByLength, length_vectors

                scores = ScoresByLength(self.task)
            test = self.measure(self.task.test, scores=scores)
            validation = {} if self.task.validation is None else self.measure(self.task.validation)
        solved = self._is_solved(test[self.metric])
        probe_rows, vectors = self._run_probes(epoch, last=solved) if probe or solved else ([], [])
        if scores is not None:
            by_name = length_vectors(self.task, trainer.config.task_settings, scores.means())
            vectors += [TraceRow(name, epoch, state.iteration, vector) for name, vector in by_name.items()]
        loss = trainer.take_loss()
        if loss is not None:
            rows.append(MetricRow("train", "loss", epoch, state.iteration, loss))
        for split, metrics in (("test", test), ("valid", validation)):
            rows += [MetricRow(split, name, epoch, state.iteration, value) for name, value in metrics.items()]
        if validation and state.iteration and state.iteration % trainer.iterations_per_epoch == 0:
            self._update_plateau(validation[self.metric])
        rows += probe_rows
        value = test[self.metric]
        if self._improves(value, state.best and state.best[0]):
            trainer.set_best(value)
        state.solved = solved
        finite = value if math.isfinite(value) else None
        return Evaluation(state.iteration, epoch, rows, vectors, finite, self.progress(), solved)

    @torch.no_grad()
    def measure(
        self, split: Split, max_batches: int | None = None, scores: ScoresByLength | None = None
    ) -> dict[str, float]:
        """Return every metric over a split, or over its first `max_batches` batches; fill `scores`, if given.

        Evaluation and training use different batch sizes, so neither keeps the large tensors of the other.
        """
        model = self.trainer.model
        model.eval()
        runtime.release()
        totals: dict[str, tuple[Tensor, float]] = {}
        state: State | None = None
        for batch in islice(self._evaluation_batches(split), max_batches):
            outputs, final_state = batch.through(model, state)
            state = final_state if self.task.carries_state else None
            for name, (total, weight) in self.task.measure(outputs, batch.targets).items():
                sum_before, weight_before = totals.get(name, (0.0, 0.0))
                totals[name] = (sum_before + total.double(), weight_before + weight)
            if scores is not None:
                scores.add(outputs, batch)
            self.after_part()
        model.train()
        runtime.release()
        return self.task.summarise({name: float(total) / weight for name, (total, weight) in totals.items()})

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

        self.trainer.model.eval()
        try:
            return self.task.final_metrics(self.trainer.model, watched), ""
        except Exception as error:
            if error in stops or lacks_memory(error):  # because the resumed run may fit on another machine
                raise
            problem = f"the final metrics failed: {one_line(error)}"
            _logger.warning("run %s: %s", self.trainer.config.spec.key, problem)
            return {}, problem

    def divergence(self, evaluation: Evaluation) -> str:
        """Return why and when the model has diverged, or "" if it has not.

        A run has diverged if its test metric or training loss is not finite, or if its test loss exceeds
        `diverged_above` times the baseline.
        """
        per_epoch = self.trainer.iterations_per_epoch
        when = f"at iteration {evaluation.iteration} (epoch {evaluation.iteration / per_epoch:.4g})"
        loss, metrics = evaluation.loss, evaluation.metrics
        if not math.isfinite(metrics[self.metric]) or not (loss is None or math.isfinite(loss)):
            return f"not finite {when}"
        name, limit = self.loss_metric, self.training.diverged_above
        if name is None or limit is None:
            return ""
        baseline = self.baselines[name]
        if metrics[name] <= limit * baseline:
            return ""
        return f"{name} {metrics[name]:.4g} {when}, above {limit:g} times the baseline of {baseline:.4g}"

    def progress(self) -> RunProgress:
        """Return the run's columns that change while it trains."""
        value, iteration = self.trainer.state.best or (None, None)
        return RunProgress(
            iterations=self.trainer.state.iteration,
            backend=backend_names(self.trainer.backends()),
            best_value=value,
            best_iteration=iteration,
            seconds={phase: round(seconds, 4) for phase, seconds in self.trainer.timer.seconds.items()},
            peak_memory=environment.peak_memory(),
        )

    def _evaluation_batches(self, split: Split) -> Iterator[Batch]:
        """Yield the batches of a whole split, in order."""
        size = self.training.evaluation_batch_size
        stream = as_stream(self.task, split)
        if stream is None:
            return map(split.batch, torch.arange(len(split), device=self.trainer.device).split(size))
        return (stream.piece(position, size) for position in range(stream.pieces(size)))

    def _is_solved(self, value: float) -> bool:
        """Return whether a test metric of trained weights reaches `solved_at`."""
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
        context = ProbeContext(trainer.model, self.task, self.task.train.batch(examples))
        rows: list[MetricRow] = []
        vectors: list[TraceRow] = []
        for name, probe in self.probes.items():
            scheduled = probe.every_epochs and epoch % probe.every_epochs == 0
            if not (scheduled or last or iteration in (0, trainer.total_iterations)):
                continue
            trainer.model.eval()
            with trainer.timer(f"probe {name}"):
                result = probe(context)
            self.after_part()
            rows += [MetricRow("probe", name, epoch, iteration, value) for name, value in result.values.items()]
            vectors += [TraceRow(name, epoch, iteration, vector) for name, vector in result.vectors.items()]
        trainer.model.train()
        return rows, vectors

    def _update_plateau(self, value: float) -> None:
        """Keep an epoch's validation metric if it is the best one, or else count a plateau."""
        if self._improves(value, self.trainer.state.best_validation):
            self.trainer.state.best_validation = value
        else:
            self.trainer.state.plateaus += 1

    def _improves(self, value: float, best: float | None) -> bool:
        return math.isfinite(value) and (best is None or self.better(value, best) != best)
