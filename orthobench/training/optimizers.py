"""Optimisers of the papers' programs, whose frameworks differ in where epsilon is added and how averages start.

On the CPU, C steps all parameters of a group at once, with the same rounding as torch (`optimiser.c`). Torch takes all
other steps, such as those of parameters in float64, and the first one, which creates the averages.

On CUDA the learning rate and the step counters are tensors (`set_capturable`), because a CUDA graph would repeat a
number that it has recorded. Each update of all the parameters in a group is a single launch (`torch._foreach_*`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial, wraps
from inspect import unwrap
from types import MethodType
from typing import Any, cast, get_args

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from orthobench.errors import unknown
from orthobench.model import OptimizerName
from orthobench.recurrence import plain_tensors
from orthobench.recurrence.cpu import call_c, optimiser

Tensors = list[Tensor] | tuple[Tensor, ...]


class PlainOptimizer(Optimizer):
    """An optimiser without the wrappers that import torch's compiler, which takes nearly as long as torch itself."""

    # Torch wraps these for torch.compile. Unwrapped, because the wrapper's first call imports the compiler: 1.3 of
    # the 5 seconds of CPU time of a short run.
    add_param_group = unwrap(Optimizer.add_param_group)
    state_dict = unwrap(Optimizer.state_dict)
    load_state_dict = unwrap(Optimizer.load_state_dict)


class CompiledOptimizer(PlainOptimizer):
    """An optimiser whose steps C computes where it can, with torch's options as `build_optimizer` sets them.

    A step without hooks has no name in torch's profiles, because torch's wrapper takes longer than the step of a small
    model.
    """

    _ready: list[_Ready] = []  # the groups that C can step; empty if one of them has changed

    @staticmethod
    # Replaced and not dropped, because torch calls the hooks of an optimiser in this wrapper alone.
    def profile_hook_step(step: Callable[..., Any]) -> Callable[..., Any]:
        hooked = Optimizer.profile_hook_step(step)

        @wraps(step)
        def short(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
            has_hooks = (
                self._optimizer_step_pre_hooks
                or self._optimizer_step_post_hooks
                or _global_optimizer_pre_hooks
                or _global_optimizer_post_hooks
            )
            return (hooked if has_hooks else step)(self, *args, **kwargs)

        return short

    def averages(self, group: dict[str, Any]) -> tuple[str, str]:
        """Return the names of the state's averages of the gradient and of its square, or ""."""
        raise NotImplementedError

    def rule(self, group: dict[str, Any], step: float) -> dict[str, float]:
        """Return the numbers of a step, counted from 1; see `struct rule` in optimiser.c."""
        raise NotImplementedError

    def step_in_torch(self) -> None:
        # Unwrapped too, because the wrapper of torch's own steps ends a compiled
        # graph, for which it imports the compiler.
        unwrap(cast(MethodType, super().step).__func__)(self)  # as in `PlainOptimizer`

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None if closure is None else torch.enable_grad()(closure)()
        if not self._step_in_c():
            self._ready = []
            with torch.no_grad():
                self.step_in_torch()
        return loss

    def _step_in_c(self) -> bool:
        """Step every parameter, or none if C cannot step all of them; return whether it did."""
        if any(isinstance(group["lr"], Tensor) for group in self.param_groups):
            return False
        if plain_tensors.in_torch() or call_c.missing():
            return False
        try:
            ready = self._ready or [_Ready(self, group) for group in self.param_groups]
        except TypeError:
            return False
        # Compared because a program may add a group of parameters between two steps.
        if len(ready) != len(self.param_groups) or not all(each.find_gradients(self) for each in ready):
            return False
        for each, group in zip(ready, self.param_groups, strict=True):
            each.step(self, group)
        self._ready = ready
        return True


class _Ready:
    """A group's parameters with their state, as C steps them.

    Raises:
        TypeError: C cannot read them.
    """

    def __init__(self, optimizer: CompiledOptimizer, group: dict[str, Any]) -> None:
        self.parameters, self.names, self.state = [*group["params"]], optimizer.averages(group), optimizer.state
        self.states: list[dict[str, Any]] = [self.state.get(each, {}) for each in self.parameters]
        tensors = [
            (parameter, *(state.get(name) for name in self.names))
            for parameter, state in zip(self.parameters, self.states, strict=True)
        ]
        if any(each is not None and each.shape != row[0].shape for row in tensors for each in row):
            raise TypeError("an average has another shape than its parameter")
        if not all(map(plain_tensors.are_plain, tensors)):
            raise TypeError("a parameter or an average is not plain")
        self.weights = optimiser.SteppedWeights(tensors)
        self.steps = [state.get("step") for state in self.states]
        # The memory of the counters that are tensors, because a tensor's own sum would take longer.
        self.counters = [each.numpy() if isinstance(each, Tensor) else None for each in self.steps]
        self.gradients: list[Tensor | None] = []

    def find_gradients(self, optimizer: CompiledOptimizer) -> bool:
        """Return whether C can still read everything, and the gradients too."""
        # Looked at in every step, because `load_state_dict` replaces the dictionary, and `module.to` the memory.
        if self.state is not optimizer.state or not self.weights.are_in_place():
            return False
        self.gradients, first, second = [each.grad for each in self.parameters], *self.names
        if not plain_tensors.are_plain(self.gradients):
            return False
        rows = zip(self.gradients, self.states, self.steps, self.weights.tensors, strict=True)
        for gradient, state, step, (_, m, v) in rows:
            if gradient is None:
                continue
            if isinstance(step, Tensor) and state["step"] is not step:
                return False
            if not (gradient.is_cpu and gradient.dtype is torch.float32 and gradient.is_contiguous()):
                return False
            if state.get(first) is not m or state.get(second) is not v:
                return False
            if (m is None) is bool(first) or (v is None) is bool(second):
                return False  # torch creates the averages in the parameter's first step
        return True

    def step(self, optimizer: CompiledOptimizer, group: dict[str, Any]) -> None:
        """Step the parameters that have a gradient, together if they have the same number of earlier steps."""
        numbers = []
        for state, counter, gradient in zip(self.states, self.counters, self.gradients, strict=True):
            if gradient is None:
                numbers.append(0.0)
                continue
            if counter is not None:
                counter += 1
            elif "step" in state:
                state["step"] += 1
            numbers.append(float(state.get("step", 1) if counter is None else counter))
        for step in set(numbers) - {0.0}:
            pairs = zip(numbers, self.gradients, strict=True)
            gradients = [each if number == step else None for number, each in pairs]
            self.weights.step(gradients, optimizer.rule(group, step))


class RMSProp(CompiledOptimizer):
    """RMSProp: r <- d r + (1 - d) g^2, then w <- w - lr g / root.

    `root` is sqrt(r + epsilon) if `epsilon_inside`, else sqrt(r) + epsilon. r starts at `initial`. TensorFlow 1 starts
    at 1, which damps about the first 130 steps (for |g| = 1e-3 and d = 0.9).

    Without an epsilon, r underflows to 0 if a gradient vanishes for a thousand steps, as the gradient of h_0 does in
    long sequences. The step is then zero.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        decay: float = 0.9,
        epsilon: float = 1e-10,
        epsilon_inside: bool = True,
        initial: float = 1.0,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "decay": decay, "epsilon": epsilon, "epsilon_inside": epsilon_inside, "initial": initial}
        )

    def averages(self, group: dict[str, Any]) -> tuple[str, str]:
        return "", "mean_square"

    def rule(self, group: dict[str, Any], step: float) -> dict[str, float]:
        place = "inside" if group["epsilon_inside"] else "outside"
        return {"second": 1 - group["decay"], place: group["epsilon"], "scale": -group["lr"]}

    def step_in_torch(self) -> None:
        for group, parameters, gradients in _trained(self.param_groups):
            for parameter in parameters:
                if not self.state[parameter]:
                    self.state[parameter]["mean_square"] = torch.full_like(parameter, group["initial"])
            mean_squares = [self.state[parameter]["mean_square"] for parameter in parameters]
            torch._foreach_lerp_(mean_squares, _squares(gradients), 1 - group["decay"])
            if group["epsilon_inside"]:
                roots = torch._foreach_add(mean_squares, group["epsilon"])
                torch._foreach_sqrt_(roots)
            else:
                roots = torch._foreach_sqrt(mean_squares)
                torch._foreach_add_(roots, group["epsilon"])
            if not group["epsilon"]:
                for root in roots:
                    root.masked_fill_(root == 0, torch.inf)
            _descend(parameters, gradients, roots, group["lr"])


class AdamTF1(CompiledOptimizer):
    """Adam of TensorFlow 1: epsilon is added to sqrt(v) before the bias correction ("epsilon-hat")."""

    def __init__(
        self, params: Iterable[Tensor], lr: float, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "epsilon": epsilon})

    def averages(self, group: dict[str, Any]) -> tuple[str, str]:
        return "m", "v"

    def rule(self, group: dict[str, Any], step: float) -> dict[str, float]:
        beta1, beta2 = group["betas"]
        rate = group["lr"] * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
        return {"first": 1 - beta1, "second": 1 - beta2, "outside": group["epsilon"], "scale": -rate}

    def step_in_torch(self) -> None:
        for group, parameters, gradients in _trained(self.param_groups):
            (beta1, beta2), rate = group["betas"], group["lr"]
            start: int | Tensor = torch.zeros_like(rate) if isinstance(rate, Tensor) else 0
            by_step: dict[int, list[Tensor]] = {}  # nearly always a single group
            for parameter in parameters:
                state = self.state[parameter]
                if not state:
                    state.update(step=start, m=torch.zeros_like(parameter), v=torch.zeros_like(parameter))
                step = state["step"]
                by_step.setdefault(id(step) if isinstance(step, Tensor) else step, []).append(parameter)
            first, second = ([self.state[parameter][name] for parameter in parameters] for name in "mv")
            torch._foreach_lerp_(first, gradients, 1 - beta1)
            torch._foreach_lerp_(second, _squares(gradients), 1 - beta2)
            roots = torch._foreach_sqrt(second)
            torch._foreach_add_(roots, group["epsilon"])
            means_and_roots = dict(zip(parameters, zip(first, roots, strict=True), strict=True))
            for together in by_step.values():
                step = self.state[together[0]]["step"]
                step += 1
                for parameter in together:
                    self.state[parameter]["step"] = step
                corrected = rate * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
                means, their_roots = zip(*(means_and_roots[parameter] for parameter in together), strict=True)
                _descend(together, list(means), list(their_roots), corrected)


class Adagrad(CompiledOptimizer, torch.optim.Adagrad):
    """Torch's Adagrad, which here can also read the learning rate from a tensor without waiting for the device."""

    def averages(self, group: dict[str, Any]) -> tuple[str, str]:
        return "", "sum"

    def rule(self, group: dict[str, Any], step: float) -> dict[str, float]:
        rate = group["lr"] / (1 + (step - 1) * group["lr_decay"])
        return {"adds_second": 1, "second": 1, "outside": group["eps"], "scale": -rate}

    def step_in_torch(self) -> None:
        if not isinstance(self.param_groups[0]["lr"], Tensor):
            return super().step_in_torch()
        for group, parameters, gradients in _trained(self.param_groups):
            sums = [self.state[parameter]["sum"] for parameter in parameters]
            torch._foreach_addcmul_(sums, gradients, gradients, value=1)
            roots = torch._foreach_sqrt(sums)
            torch._foreach_add_(roots, group["eps"])
            _descend(parameters, gradients, roots, group["lr"])
        return None


class _Adam(CompiledOptimizer):
    """Adam of torch, with decoupled weight decay if the group says so."""

    def averages(self, group: dict[str, Any]) -> tuple[str, str]:
        return "exp_avg", "exp_avg_sq"

    def rule(self, group: dict[str, Any], step: float) -> dict[str, float]:
        (beta1, beta2), rate = group["betas"], group["lr"]
        return {
            "keep": 1 - rate * group["weight_decay"],
            "first": 1 - beta1,
            "adds_second": 1,
            "kept": beta2,
            "second": 1 - beta2,
            "divisor": (1 - beta2**step) ** 0.5,
            "outside": group["eps"],
            "scale": -(rate / (1 - beta1**step)),
        }


class Adam(_Adam, torch.optim.Adam):
    pass


class AdamW(_Adam, torch.optim.AdamW):
    pass


class TorchRMSprop(CompiledOptimizer, torch.optim.RMSprop):
    def averages(self, group: dict[str, Any]) -> tuple[str, str]:
        return "", "square_avg"

    def rule(self, group: dict[str, Any], step: float) -> dict[str, float]:
        alpha = group["alpha"]
        return {"adds_second": 1, "kept": alpha, "second": 1 - alpha, "outside": group["eps"], "scale": -group["lr"]}


class SGD(CompiledOptimizer, torch.optim.SGD):
    def averages(self, group: dict[str, Any]) -> tuple[str, str]:
        return "momentum_buffer" if group["momentum"] else "", ""

    def rule(self, group: dict[str, Any], step: float) -> dict[str, float]:
        return {"adds_first": 1, "kept": group["momentum"], "scale": -group["lr"]}


def _trained(groups: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], list[Tensor], list[Tensor]]]:
    """Yield each group in which a parameter has a gradient, with these parameters and their gradients."""
    for group in groups:
        parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
        if parameters:
            yield group, parameters, [parameter.grad for parameter in parameters]


def _squares(tensors: list[Tensor]) -> list[Tensor]:
    return list(torch._foreach_mul(tensors, tensors))


def _descend(parameters: list[Tensor], numerators: list[Tensor], roots: Tensors, rate: float | Tensor) -> None:
    """Subtract rate a / b from each parameter, with the rate as a number or as a scalar on the device."""
    if isinstance(rate, Tensor):
        steps = torch._foreach_mul(numerators, -rate.to(parameters[0].dtype))
        torch._foreach_div_(steps, roots)
        torch._foreach_add_(parameters, steps)
    else:
        torch._foreach_addcdiv_(parameters, numerators, roots, value=-rate)


class CayleyStep(PlainOptimizer):
    """W <- (I + lr/2 B)^{-1} (I - lr/2 B) W with B = G W* - W G*: descent along the unitary matrices.

    Parameters are orthogonal `[n, n]`, or unitary with real and imaginary parts last, `[n, n, 2]`. B is skew, so each
    factor is unitary up to rounding. Nothing brings W back, so rounding errors add up (scoRNN paper, figure 4). With
    `normalise`, G is first divided element-wise by sqrt(r) + 1e-8 of Keras 1's RMSprop (full-capacity uRNN,
    Wisdom et al. 2016, on MNIST). B in this order, with the factor on the left, always descends; the released programs'
    G* W - W* G does not.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, normalise: bool = False, decay: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "normalise": normalise, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                gradient = parameter.grad
                if group["normalise"]:
                    state = self.state[parameter]
                    if not state:
                        state["mean_square"] = torch.zeros_like(parameter)
                    state["mean_square"].lerp_(gradient.square(), 1 - group["decay"])
                    gradient = gradient / state["mean_square"].sqrt().add_(1e-8)
                if parameter.dim() == 3:
                    # Contiguous, because a complex view needs real and imaginary part next to each other.
                    w, g = torch.view_as_complex(parameter), torch.view_as_complex(gradient.contiguous())
                else:
                    w, g = parameter, gradient
                outer = g @ w.mH
                half = (group["lr"] / 2) * (outer - outer.mH)
                identity = torch.eye(len(w), dtype=w.dtype, device=w.device)
                # Unlike solve, solve_ex does not wait for an error code.
                w.copy_(torch.linalg.solve_ex(identity + half, w - half @ w).result)
        return loss


OWN = (Adagrad, AdamTF1, CayleyStep, RMSProp)

_MAKERS: dict[str, Callable[..., Optimizer]] = {
    "adagrad_tf1": partial(Adagrad, initial_accumulator_value=0.1, eps=0.0),
    "adam": Adam,
    "adam_nnrnn": partial(Adam, betas=(0.0, 0.9)),
    "adam_tf1": AdamTF1,
    "adamw": partial(AdamW, weight_decay=0.0),
    "cayley": CayleyStep,
    "cayley_rmsprop_keras1": partial(CayleyStep, normalise=True),
    "rmsprop_keras1": partial(RMSProp, epsilon=1e-8, epsilon_inside=False, initial=0.0),
    "rmsprop_lasagne": partial(RMSProp, epsilon=1e-6, initial=0.0),
    "rmsprop_scurnn": partial(RMSProp, epsilon=1e-8, initial=0.0),
    "rmsprop_tf1": RMSProp,
    "rmsprop_theano": partial(RMSProp, epsilon=0.0, initial=1e-3),
    "rmsprop_torch": TorchRMSprop,
    "sgd": SGD,
    "sgd_momentum": partial(SGD, momentum=0.9),
}
assert set(_MAKERS) == set(get_args(OptimizerName))


def build_optimizer(
    name: OptimizerName,
    parameters: list[torch.nn.Parameter],
    learning_rate: float,
    weight_decay: float = 0.0,
    exempt: Collection[torch.nn.Parameter] = (),
) -> Any:
    """Return the named optimiser for these parameters, capturable on CUDA.

    Args:
        weight_decay: decoupled decay, for `adamw` only (Loshchilov and Hutter, Decoupled Weight Decay Regularization,
            ICLR 2019).
        exempt: parameters without this decay.

    Raises:
        UsageError: a plugin's own setting names an optimiser that does not exist.
    """
    make = _MAKERS.get(name)
    if make is None:
        raise unknown("optimiser", name, _MAKERS)
    if name == "adamw":
        free = {id(parameter) for parameter in exempt}
        parts = [(weight_decay, [p for p in parameters if id(p) not in free])]
        parts.append((0.0, [p for p in parameters if id(p) in free]))
        groups = [{"params": members, "weight_decay": decay} for decay, members in parts if members]
        optimizer = make(groups, lr=learning_rate)
    else:
        optimizer = make(parameters, lr=learning_rate)
    if parameters and parameters[0].is_cuda:
        set_capturable(optimizer, True)
    return optimizer


def set_capturable(optimizer: Optimizer, capturable: bool) -> None:
    """Keep the learning rate and the step counters in tensors on the parameters' device, or as numbers.

    A loaded state may keep them the other way, so this is called again after loading.
    """
    for group in optimizer.param_groups:
        shared: dict[int, Tensor] = {}
        rate, first = float(group["lr"]), group["params"][0]
        # Ours keep float64, because they compute with Python's numbers on the CPU, and the
        # results are to be the same bit for bit.
        dtype = torch.float64 if isinstance(optimizer, OWN) else torch.float32  # torch's fused kernels read float32
        group["lr"] = torch.full((), rate, dtype=dtype, device=first.device) if capturable else rate
        if "capturable" in optimizer.defaults:
            # Without foreach, the host reads the learning rate.
            group.update(capturable=capturable, foreach=capturable or None)
        if isinstance(optimizer, torch.optim.SGD):
            group["fused"] = capturable  # without fused, the host reads the learning rate
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            if "step" not in state or isinstance(optimizer, Adagrad):  # whose rate does not decay with the steps
                continue
            if isinstance(optimizer, AdamTF1):
                step = int(state["step"])
                state["step"] = shared.setdefault(step, torch.full_like(group["lr"], step)) if capturable else step
            else:
                state["step"] = state["step"].to(parameter.device if capturable else "cpu")


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate of every group, in place if it is a tensor that a CUDA graph reads."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
