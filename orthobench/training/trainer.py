"""Train a model on a task, one iteration at a time.

A resumed run ends with the same numbers as an uninterrupted one. The order of examples depends only on seed and epoch,
so a checkpoint needs only the iteration to restore it. If a task carries the state from batch to batch (truncated
back-propagation through time), the state is part of the checkpoint.
"""

from __future__ import annotations

import math
from inspect import getattr_static
from typing import Any

import torch
from torch import Tensor

from orthobench.errors import UsageError
from orthobench.model import Model
from orthobench.model.build import build_model, check_size
from orthobench.options.arguments import GraphMode
from orthobench.recurrence.backends import last_used
from orthobench.spec.resolve import RunConfig
from orthobench.task import Batches, Task, loss_of, seeded_generator
from orthobench.training.graph import CudaRecorder, StepGraph, graph_problem
from orthobench.training.learning_rates import learning_rate
from orthobench.training.optimizers import build_optimizer, set_capturable, set_learning_rate
from orthobench.training.state import FORMAT, Checkpoint, TrainingState, kernel_facts
from orthobench.training.timer import PhaseTimer, events_of


class Trainer:
    """A model, its optimisers and its batches. The constructor reads and writes nothing.

    Attributes:
        state: counters and sums, see `TrainingState`.
        timer: seconds by phase, see `training.timer`.
        keeps_best: whether the state holds the weights of the best test.
        total_iterations, iterations_per_epoch, evaluate_every: lengths and intervals of the run, in iterations.

    Raises:
        UsageError: the training settings do not fit the data.
    """

    def __init__(self, config: RunConfig, task: Task, device: torch.device) -> None:
        spec, self.training = config.spec, config.training
        if missing := [name for name in ("signature", "train", "test") if getattr_static(task, name, None) is None]:
            raise UsageError(f"{type(task).__name__}.__init__ does not set {' and '.join(missing)}: set {missing[0]}")
        if self.training.plateau_decay != 1 and task.validation is None:
            raise UsageError(f"{spec.task} has no validation data to judge a plateau by: leave plateau_decay at 1")
        if self.training.judged_by != "test" and task.validation is None:
            fields = type(config.task_settings).model_fields
            sized = [name for name in ("validation_size", "validation_share") if name in fields]
            remedy = f"give a {sized[0]}" if sized else "leave it at test"
            raise UsageError(
                f"judged_by={self.training.judged_by} needs validation data, and {spec.task} has none: {remedy}"
            )
        self.config, self.task, self.device = config, task, device
        check_size(config.model_class, config.model_settings, task.signature)
        # A generator of its own, because the data must stay the same if a model draws more numbers.
        generator = seeded_generator(spec.seed, *config.purpose_of_weights)
        self.model = build_model(config.model_class, config.model_settings, task.signature, generator).to(device)
        if task.carries_state and not self.model.initial_state(1):
            raise UsageError(
                f"{spec.task} carries the state from batch to batch, and {spec.model} cannot continue from a given "
                "state, or its state does not start at zero: choose another task or model"
            )
        self._parameters = list(self.model.parameters())
        self.groups = self.model.parameter_groups()
        self.optimizers = self._build_optimizers()
        self.batches = Batches(task, self.training, spec.seed, device)
        self.iterations_per_epoch = self.batches.per_epoch
        total = self.training.epochs * self.iterations_per_epoch
        self.total_iterations = min(total, self.training.max_iterations or total)
        if self.total_iterations.bit_length() > 63:  # the database holds no more
            raise UsageError(f"{self.total_iterations:.3g} iterations are too many: choose fewer epochs")
        self.evaluate_every = self.training.evaluate_every or self.iterations_per_epoch
        self.state = TrainingState(torch.zeros((), dtype=torch.float64, device=device))
        self.timer = PhaseTimer(events_of(device))
        self.keeps_best = False
        self.graph: StepGraph | None = None
        self._rates: list[float] = []  # the optimisers' learning rates

    def use_graph(self, mode: GraphMode) -> None:
        """Run the next iterations as a CUDA graph; with "auto" only if device and model allow it.

        Raises:
            UsageError: the mode is "on", but the device or the model does not allow it.
        """
        self.graph = None
        if mode == "off" or (mode == "auto" and self.device.type != "cuda"):
            return
        problem = graph_problem(self.model, self.device)
        if problem is None:
            self.graph = StepGraph(self._train_on, CudaRecorder(self.device), required=mode == "on")
        elif mode == "on":
            raise UsageError(f"`cuda_graph='on'`: {problem}; use `cuda_graph='auto'`")

    @property
    def judged(self) -> Model:
        """The model whose weights are tested and kept: the one that trains.

        A setting that judges other weights, such as their average over the iterations, has only to return these.
        """
        return self.model

    @property
    def is_over(self) -> bool:
        """Whether no iteration is left, because all are done or the task is solved."""
        return self.state.solved or self.state.iteration >= self.total_iterations

    @property
    def ends_epoch(self) -> bool:
        """Whether an epoch or the run ends with the state's iteration."""
        iteration = self.state.iteration
        return iteration % self.iterations_per_epoch == 0 or iteration == self.total_iterations

    @property
    def is_evaluation_due(self) -> bool:
        """Whether the model is evaluated at the state's iteration."""
        return self.ends_epoch or self.state.iteration % self.evaluate_every == 0

    @property
    def evaluations(self) -> int:
        """The number of evaluations of the whole run, of which the first one is before the first iteration."""
        every, epoch = self.evaluate_every, self.iterations_per_epoch
        before_the_end = [-(-self.total_iterations // each) for each in (every, epoch, math.lcm(every, epoch))]
        return before_the_end[0] + before_the_end[1] - before_the_end[2] + 1

    @property
    def is_evaluation_cut_off(self) -> bool:
        """Whether the state lacks the evaluation of its iteration because the run was asked to stop during it."""
        return self.is_evaluation_due and self.state.logged < self.state.iteration

    @property
    def rows_end(self) -> int:
        """The last iteration whose rows belong to the state; this process computes the rows after it."""
        return self.state.iteration - 1 if self.is_evaluation_cut_off else self.state.iteration

    def advance(self) -> None:
        """Train one iteration: a batch, its gradient, a step of every optimiser."""
        state = self.state
        with self.timer("train"):
            batch = self.batches.at(state.iteration)
            starts_epoch = state.iteration % self.iterations_per_epoch == 0
            carried = () if starts_epoch or state.carried is None else state.carried
            self._set_learning_rates()
            tensors = batch.inputs, batch.targets, batch.lengths, batch.positions
            final_state = (self.graph or self._train_on)(*tensors, *carried)
            if self.task.carries_state:
                state.carried = final_state
            state.loss_count += 1
            state.iteration += 1

    def step(self) -> None:
        """Step every optimiser with the groups' weight decay."""
        for group, optimizer in zip(self.groups, self.optimizers, strict=True):
            if group.weight_decay and group.optimizer != "adamw":
                for parameter in group.parameters:
                    if parameter.grad is not None:
                        parameter.grad.add_(parameter, alpha=group.weight_decay)
            optimizer.step()

    def take_loss(self) -> float | None:
        """Return the mean training loss since the last call, or None if there was no iteration."""
        state = self.state
        if not state.loss_count:
            return None
        loss = float(state.loss_sum) / state.loss_count
        state.loss_sum.zero_()
        state.loss_count = 0
        return loss

    def set_best(self, value: float, test: float | None) -> None:
        """Record the metric of the current weights, on the data that judge the run, as the best one.

        Args:
            test: the metric on the test data; None without a finite one.
        """
        self.state.best, self.state.best_test = (value, self.state.iteration), test
        if self.keeps_best:
            weights = self.judged.state_dict()
            # Clones, because training goes on in the same memory.
            self.state.best_weights = {name: tensor.detach().clone() for name, tensor in weights.items()}
        else:
            self.state.best_weights = None

    def weights_are_finite(self) -> bool:
        """Return whether every weight is a finite number."""
        return all(bool(parameter.isfinite().all()) for parameter in self.model.parameters())

    def backends(self) -> set[str]:
        """Return the back ends of the recurrence that the run has used so far."""
        return last_used() | self.state.earlier_backends

    def checkpoint(self) -> Checkpoint:
        """Return the whole state of the run, for `restore`."""
        state = self.state
        return Checkpoint(
            iteration=state.iteration,
            logged=state.logged,
            model=self.model.state_dict(),
            optimizers=[optimizer.state_dict() for optimizer in self.optimizers],
            state=state.carried,
            # A clone, because `take_loss` sets the sum to zero in place.
            loss_sum=state.loss_sum.clone(),
            loss_count=state.loss_count,
            best=state.best,
            best_test=state.best_test,
            best_valid=state.best_valid,
            best_weights=state.best_weights,
            plateaus=state.plateaus,
            solved=state.solved,
            seconds=self.timer.read(),
            threads=torch.get_num_threads(),
            random=torch.get_rng_state(),
            random_cuda=torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
            key=self.config.spec.key,
            segments=state.segments,
            kernels=kernel_facts() | {"backends": sorted(self.backends())},
            format=FORMAT,
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Return to the state of a checkpoint, including the random generators."""
        self.model.load_state_dict(checkpoint.model)
        for optimizer, saved in zip(self.optimizers, checkpoint.optimizers, strict=True):
            optimizer.load_state_dict(saved)
            set_capturable(optimizer, self.device.type == "cuda")
        # Forgotten because the loaded state brings its own rates into the groups.
        self._rates = []
        if self.graph is not None:  # the graph has recorded the addresses of the previous state
            self.graph = type(self.graph)(self._train_on, self.graph.recorder, self.graph.required)
        carried = checkpoint.state
        self.state = TrainingState(
            loss_sum=checkpoint.loss_sum.to(self.device),
            loss_count=checkpoint.loss_count,
            iteration=checkpoint.iteration,
            logged=checkpoint.logged,
            best=checkpoint.best,
            best_test=checkpoint.best_test,
            best_valid=checkpoint.best_valid,
            best_weights=checkpoint.best_weights,
            plateaus=checkpoint.plateaus,
            solved=checkpoint.solved,
            carried=carried and tuple(part.to(self.device) for part in carried),
            earlier_backends=frozenset(checkpoint.kernels["backends"]),
        )
        self.timer.restore(checkpoint.seconds)
        torch.set_rng_state(checkpoint.random)
        if checkpoint.random_cuda is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(checkpoint.random_cuda, self.device)

    def _train_on(
        self,
        inputs: Tensor,
        targets: Tensor,
        lengths: Tensor | None,
        positions: Tensor | None,
        *carried: Tensor,
    ) -> tuple[Tensor, ...]:
        """Train on a batch, from the carried state if there is one, and return the next state to carry.

        All effects are on persistent tensors, so that a CUDA graph can repeat them.
        """
        outputs, final_state = self.model(inputs, carried or None, lengths=lengths, positions=positions)
        loss = loss_of(self.task, outputs, targets)
        penalty = self.model.penalty()
        for parameter in self._parameters:
            # None and not zero, because an optimiser skips parameters without a gradient, and
            # the backward pass need not add to zeros.
            parameter.grad = None
        (loss if penalty is None else loss + penalty).backward()
        self._clip_gradients()
        with torch.no_grad():
            self.step()
            self.model.after_step()
        self.state.loss_sum += loss.detach()
        if not self.task.carries_state:
            return ()
        return tuple(part.detach().clone() for part in final_state)  # a view would keep all states alive

    def _build_optimizers(self) -> list[Any]:
        """Return an optimiser for each group of parameters.

        Raises:
            UsageError: there is a weight decay, but no group is trained with adamw.
        """
        settings = self.config.model_settings
        decay = 0.0 if self.model.penalises_weights else settings.weight_decay
        if decay and all(group.optimizer != "adamw" for group in self.groups):
            raise UsageError(f"weight_decay={decay:g} needs adamw: set optimizer=adamw, or leave it at 0")
        exempt = [
            parameter
            for name, parameter in self.model.named_parameters()
            if (settings.decay_exempt is not None and name.rpartition(".")[2] == "embedding")
            or (settings.decay_exempt == "vectors" and parameter.dim() < 2)
        ]
        return [
            build_optimizer(group.optimizer, group.parameters, group.learning_rate, group.weight_decay or decay, exempt)
            for group in self.groups
        ]

    def _set_learning_rates(self) -> None:
        """Set the optimisers' learning rates for the iteration."""
        iteration, training = self.state.iteration, self.training
        decays = iteration // self.iterations_per_epoch // training.decay_every
        factor = training.learning_rate_decay**decays * training.plateau_decay**self.state.plateaus
        rates = [
            learning_rate(group.learning_rate, iteration, self.total_iterations, training) * factor
            for group in self.groups
        ]
        # Only on a change, because a rate that is a tensor costs a launch in each step.
        if rates != self._rates:
            for rate, optimizer in zip(rates, self.optimizers, strict=True):
                set_learning_rate(optimizer, rate)
            self._rates = rates

    def _clip_gradients(self) -> None:
        if self.training.clip_value is not None:
            torch.nn.utils.clip_grad_value_(self.model.parameters(), self.training.clip_value)
        if self.training.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.training.clip_norm)
