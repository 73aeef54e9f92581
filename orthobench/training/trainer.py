"""One run from start to end: train, test, probe, log, checkpoint; go on from a checkpoint if there is one.

The order of things makes a run cut off anywhere end with the numbers of an uncut one. Rows are committed before the
checkpoint that stands after them. On the way back, rows beyond the checkpoint are forgotten, and a checkpoint beyond
the rows serves no more: the database is an older copy, or lost its last commits with the power. The order of examples
is a function of seed and epoch, so a checkpoint holds no more of it than the iteration. Where the state is carried
from batch to batch (truncated back-propagation through time), it is part of the checkpoint. So is the number of
threads: sums that torch splits over them are rounded differently for another number.

A run diverges where a test or the training loss is not finite, or the test loss is above the limit that the training
settings declare. That is a result, kept with the iteration. `on_divergence="continue"` trains on in spite of it, as
long as every weight is finite: what stands in the weights as NaN never leaves them. It is no part of a run's key: the
course is the same, of which the one sees a shorter part; where a run ended that could go on, its checkpoint is kept,
and asked for again with "continue" it goes on from there.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Literal

import torch
from torch import Tensor

from orthobench import environment, seeds
from orthobench.errors import UsageError
from orthobench.model import State
from orthobench.probe import Probe, Subject
from orthobench.recurrence.dispatch import last_used
from orthobench.spec import RunConfig
from orthobench.store import MetricRow, Status, Store, TraceRow
from orthobench.task import Batch, Split
from orthobench.training.batches import Batches, as_stream
from orthobench.training.checkpoint import Checkpoints
from orthobench.training.events import Observer, Point
from orthobench.training.optimizers import make_optimizer

OnDivergence = Literal["stop", "continue"]

_logger = logging.getLogger(__name__)


class Interrupted(Exception):
    """The run was asked to stop; its checkpoint is written."""


class Trainer:
    """A run under way: its model, its data, where it stands and how it goes on.

    Args:
        should_stop: asked after every iteration; when true a checkpoint is written and Interrupted raised.
        checkpoint_every: seconds between checkpoints; more where they would take over a hundredth of the time.
    """

    def __init__(
        self,
        config: RunConfig,
        store: Store,
        checkpoints: Checkpoints,
        device: torch.device,
        observer: Observer,
        should_stop: Callable[[], bool],
        checkpoint_every: float,
        on_divergence: OnDivergence,
        tags: Sequence[str],
    ) -> None:
        spec = config.spec
        self.training = config.training
        self.store, self.checkpoints, self.device = store, checkpoints, device
        self.observer, self.should_stop, self.checkpoint_every = observer, should_stop, checkpoint_every
        self.on_divergence = on_divergence
        self.seed = spec.seed
        begun = store.find(spec.key)
        self.saved = checkpoints.load(store.last_iteration(begun.id)) if begun is not None else None
        if self.saved is not None and 1 <= (threads := self.saved.get("threads", 0)) <= (os.cpu_count() or 1):
            torch.set_num_threads(threads)
        if self.saved is None and begun is not None and begun.iterations:
            _logger.warning(
                "run %s starts over: no checkpoint of its %d iterations can be read", spec.key, begun.iterations
            )

        torch.set_flush_denormal(True)
        torch.manual_seed(seeds.derive(self.seed, "global"))
        self.task = config.task_class(config.task_settings, self.seed, device)
        model = config.model_class.build(
            config.model_settings, self.task.signature, seeds.generator(self.seed, "model", spec.model)
        )
        self.model = model.to(device)
        self.groups = self.model.parameter_groups()
        self.optimizers = [
            make_optimizer(group.optimizer, group.parameters, group.learning_rate) for group in self.groups
        ]
        self.probes: dict[str, Probe] = {name: probe() for name, probe in config.probes.items()}
        self.metric = config.task_class.metric
        self.loss_metric = config.task_class.loss_metric
        if self.loss_metric is None and config.task_class.goal == "min":
            self.loss_metric = self.metric
        self.better = min if config.task_class.goal == "min" else max
        self.baselines = self.task.baselines(config.task_settings)
        if self.training.plateau_decay != 1 and self.task.validation is None:
            raise UsageError(f"{spec.task} has no validation data to judge a plateau by: leave plateau_decay at 1")

        self.batches = Batches(self.task, self.training, self.seed, device)
        self.per_epoch = self.batches.per_epoch
        total = self.training.epochs * self.per_epoch
        self.total = min(total, self.training.max_iterations or total)
        self.test_every = self.training.evaluate_every or self.per_epoch

        self.iteration = 0
        self.logged = -1  # the iteration of the last rows written
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)  # since the last test
        self.loss_count = 0
        self.best: tuple[float, int] | None = None
        self.best_valid: float | None = None  # of the epochs so far
        self.plateaus = 0  # epochs that did not improve on it
        self.state: State | None = None  # that the last batch ended with, where it is carried on
        self.seconds: dict[str, float] = {}
        self.saved_at = time.perf_counter()
        self.save_cost = 0.0
        self.could_go_on = False  # though it has ended as diverged
        self.doing = "train"

        facts = environment.describe(device)
        self.run = store.start(
            spec.record()
            | {
                "device": device.type,
                "backend": None,
                "parameter_count": self.model.parameter_count(),
                "metric": self.metric,
                "goal": config.task_class.goal,
                "baselines": self.baselines,
                "total_iterations": self.total,
                "iterations_per_epoch": self.per_epoch,
            },
            environment.digest(facts),
            facts,
            tags,
        )

    # The course of a run

    def run_to_end(self) -> None:
        self.observer.started(self.run)
        if not self._restore():
            self.store.rewind(self.run.id, -1)
            self._look(probe=True)  # which judges nothing: untrained weights may be anywhere
        while self.iteration < self.total:
            self.advance()
            self.observer.iterated(self.iteration)
            epoch_ends = self.iteration % self.per_epoch == 0 or self.iteration == self.total
            test = epoch_ends or self.iteration % self.test_every == 0
            if test and (trouble := self._look(probe=epoch_ends)):
                hopeful = self.iteration < self.total and self._is_finite()
                if not (hopeful and self.on_divergence == "continue"):
                    self.close(Status.DIVERGED, trouble)
                    if hopeful:
                        self._save()
                        self.could_go_on = True
                    return None
            if self.should_stop():
                self._save()
                raise Interrupted
            if test and self._checkpoint_is_due():
                self._save()
        return self._conclude()

    def advance(self) -> None:
        """One iteration: a batch, its gradient, a step of every optimiser."""
        with self._timed("train"):
            batch = self.batches.at(self.iteration)
            outputs, end = self.model(batch.inputs, self.state if self.iteration % self.per_epoch else None)
            loss = self.task.loss(outputs, batch.targets)
            penalty = self.model.penalty()
            self.model.zero_grad()
            (loss if penalty is None else loss + penalty).backward()
            self._clip()
            with torch.no_grad():
                self.step()
                self.model.after_step()
            if self.task.carries_state:
                self.state = tuple(part.detach().clone() for part in end)  # a view would keep all states alive
            self.loss_sum += loss.detach()
            self.loss_count += 1
            self.iteration += 1

    def _clip(self) -> None:
        if self.training.clip_value is not None:
            torch.nn.utils.clip_grad_value_(self.model.parameters(), self.training.clip_value)
        if self.training.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.training.clip_norm)

    def step(self) -> None:
        """A step of every optimiser, at the epoch's learning rate and with the groups' weight decay."""
        decays = self.iteration // self.per_epoch // self.training.decay_every
        factor = self.training.learning_rate_decay**decays * self.training.plateau_decay**self.plateaus
        for group, optimizer in zip(self.groups, self.optimizers, strict=True):
            if group.weight_decay:
                for parameter in group.parameters:
                    if parameter.grad is not None:
                        parameter.grad.add_(parameter, alpha=group.weight_decay)
            for entry in optimizer.param_groups:
                entry["lr"] = group.learning_rate * factor
            optimizer.step()

    def _look(self, *, probe: bool) -> str:
        """Test, and if asked probe, the model as it stands and log what was found; by what it diverged, if it has."""
        epoch = self.iteration // self.per_epoch
        rows: list[MetricRow] = []
        vectors: list[TraceRow] = []
        loss = None
        if self.loss_count:
            loss = float(self.loss_sum) / self.loss_count
            rows.append(MetricRow("train", "loss", epoch, self.iteration, loss))
            self.loss_sum.zero_()
            self.loss_count = 0
        with self._timed("test"):
            metrics = self.test(self.task.test)
            valid = {} if self.task.validation is None else self.test(self.task.validation)
        for split, measured in (("test", metrics), ("valid", valid)):
            rows += [MetricRow(split, name, epoch, self.iteration, value) for name, value in measured.items()]
        if valid and self.iteration and self.iteration % self.per_epoch == 0:
            self._judge(valid[self.metric])
        if probe:
            values, vectors = self._probe(epoch)
            rows += values
        value = metrics[self.metric]
        if self._improves(value, self.best and self.best[0]):
            self.best = (value, self.iteration)
        with self._timed("log"):
            progress = self._progress() | {"final_value": value if math.isfinite(value) else None}
            self.store.log(self.run.id, rows, vectors, progress)
        self.logged = self.iteration
        self.observer.tested(Point(self.iteration, epoch, loss, metrics))
        return self._divergence(loss, metrics)

    def _judge(self, valid: float) -> None:
        """Keep an epoch's validation if it is the best so far, else count it as a plateau."""
        if self._improves(valid, self.best_valid):
            self.best_valid = valid
        else:
            self.plateaus += 1

    def _improves(self, value: float, best: float | None) -> bool:
        return math.isfinite(value) and (best is None or self.better(value, best) != best)

    def _divergence(self, loss: float | None, metrics: dict[str, float]) -> str:
        """What says that the model has diverged, and when; empty if nothing does."""
        when = f"at iteration {self.iteration} (epoch {self.iteration / self.per_epoch:.4g})"
        if not math.isfinite(metrics[self.metric]) or not (loss is None or math.isfinite(loss)):
            return f"not finite {when}"
        name, limit = self.loss_metric, self.training.diverged_above
        if name is None or limit is None:
            return ""
        baseline = self.baselines[name]
        if metrics[name] <= limit * baseline:
            return ""
        return f"{name} {metrics[name]:.4g} {when}, above {limit:g} times the baseline of {baseline:.4g}"

    def _is_finite(self) -> bool:
        """Whether every weight is a number."""
        return all(bool(parameter.isfinite().all()) for parameter in self.model.parameters())

    @torch.no_grad()
    def test(self, split: Split, most: int | None = None) -> dict[str, float]:
        """Every metric over the whole of a split, or over at most so many of its batches."""
        self.model.eval()
        totals: dict[str, tuple[Tensor, float]] = {}
        state: State | None = None
        for batch in islice(self._test_batches(split), most):
            outputs, end = self.model(batch.inputs, state)
            state = end if self.task.carries_state else None
            for name, (total, weight) in self.task.measure(outputs, batch.targets).items():
                before, weights = totals.get(name, (0.0, 0.0))
                totals[name] = (before + total.double(), weights + weight)
        self.model.train()
        return {name: float(total) / weight for name, (total, weight) in totals.items()}

    def _test_batches(self, split: Split) -> Iterator[Batch]:
        """A whole split, in order."""
        size = self.training.evaluation_batch_size
        stream = as_stream(self.task, split)
        if stream is None:
            return map(split.batch, torch.arange(len(split), device=self.device).split(size))
        return (stream.piece(position, size) for position in range(stream.pieces(size)))

    def _conclude(self) -> None:
        """What the task measures once, and the end of the run, in one transaction."""
        with self._timed("test"):
            self.doing = "last measurements"
            self.model.eval()
            metrics = self.task.final_metrics(self.model, self._concluding)
        epoch = self.iteration // self.per_epoch
        rows = [MetricRow("test", name, epoch, self.iteration, value) for name, value in metrics.items()]
        self.store.log(self.run.id, rows, [], self._progress() | {"status": Status.FINISHED})

    def _concluding(self, done: int, total: int) -> None:
        self.observer.concluding(done, total)
        if self.should_stop():
            self._save()
            raise Interrupted

    def _probe(self, epoch: int) -> tuple[list[MetricRow], list[TraceRow]]:
        self.task.epoch = 0  # one batch for the whole run, also of a task that draws anew in every epoch
        examples = torch.arange(self.training.batch_size, device=self.device)
        subject = Subject(self.model, self.task, self.task.train.batch(examples))
        rows: list[MetricRow] = []
        vectors: list[TraceRow] = []
        for name, probe in self.probes.items():
            scheduled = probe.every_epochs and epoch % probe.every_epochs == 0
            if not (scheduled or self.iteration in (0, self.total)):
                continue
            with self._timed(f"probe {name}"):
                reading = probe(subject)
            rows += [MetricRow("probe", name, epoch, self.iteration, value) for name, value in reading.values.items()]
            vectors += [TraceRow(name, epoch, self.iteration, vector) for name, vector in reading.vectors.items()]
        return rows, vectors

    # Where a run stands, and how it goes on

    def close(self, status: Status, message: str | None = None) -> None:
        self.store.update(self.run.id, self._progress() | {"status": status, "message": message})

    def _progress(self) -> dict[str, Any]:
        best, at = self.best or (None, None)
        return {
            "iterations": self.iteration,
            "backend": ", ".join(sorted(last_used())) or None,
            "best_value": best,
            "best_iteration": at,
            "seconds": {what: round(spent, 4) for what, spent in self.seconds.items()},
            "peak_memory": environment.peak_memory(),
        }

    def _checkpoint_is_due(self) -> bool:
        slow = self.save_cost / (0.01 * self.checkpoint_every) if self.checkpoint_every else 0.0
        return time.perf_counter() - self.saved_at >= self.checkpoint_every * max(1.0, slow)

    def _save(self) -> None:
        begun = time.perf_counter()
        with self._timed("checkpoint"):
            self.checkpoints.save(
                {
                    "iteration": self.iteration,
                    "logged": self.logged,
                    "model": self.model.state_dict(),
                    "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
                    "state": self.state,
                    "loss_sum": self.loss_sum,
                    "loss_count": self.loss_count,
                    "best": self.best,
                    "best_valid": self.best_valid,
                    "plateaus": self.plateaus,
                    "seconds": dict(self.seconds),
                    "threads": torch.get_num_threads(),
                    "random": torch.get_rng_state(),
                    "random_cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
                }
            )
        self.saved_at = time.perf_counter()
        self.save_cost = self.saved_at - begun

    def _restore(self) -> bool:
        """Go back to the checkpoint, in memory and in the database; false if there is none."""
        state, self.saved = self.saved, None
        if state is None:
            return False
        self.iteration, self.logged = state["iteration"], state["logged"]
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.state = state["state"] and tuple(part.to(self.device) for part in state["state"])
        self.loss_sum = state["loss_sum"].to(self.device)
        self.loss_count = state["loss_count"]
        self.best = state["best"]
        self.best_valid, self.plateaus = state.get("best_valid"), state.get("plateaus", 0)  # younger than the rest
        self.seconds = state["seconds"]
        torch.set_rng_state(state["random"])
        if state["random_cuda"] is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(state["random_cuda"], self.device)
        self.store.rewind(self.run.id, self.iteration)
        return True

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        """Add the time spent inside to the run's account. Queued CUDA work is counted where it is waited for."""
        begun = time.perf_counter()
        self.doing = what
        try:
            yield
        finally:
            self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - begun
