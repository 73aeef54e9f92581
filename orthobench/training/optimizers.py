"""Optimisers of the papers' programs: frameworks differ in the place of epsilon and the start of averages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor
from torch.optim import Optimizer

from orthobench.model import OptimizerName


class RMSProp(Optimizer):
    """RMSProp: r <- d r + (1 - d) g^2, then w <- w - lr g / root.

    `root` is sqrt(r + epsilon) if `epsilon_inside`, else sqrt(r) + epsilon. r starts at `initial`; TensorFlow 1's start
    of one damps about the first 130 steps (for |g| = 1e-3 and d = 0.9).

    Without an epsilon, r underflows to 0 where a gradient vanishes for a thousand steps, such as that of h_0 in long
    sequences. The step is then zero.
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

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["mean_square"] = torch.full_like(parameter, group["initial"])
                mean_square = state["mean_square"]
                mean_square.lerp_(parameter.grad.square(), 1 - group["decay"])
                if group["epsilon_inside"]:
                    root = (mean_square + group["epsilon"]).sqrt_()
                else:
                    root = mean_square.sqrt().add_(group["epsilon"])
                if not group["epsilon"]:
                    root.masked_fill_(root == 0, torch.inf)
                parameter.addcdiv_(parameter.grad, root, value=-group["lr"])
        return loss


class AdamTF1(Optimizer):
    """Adam of TensorFlow 1: epsilon is added to sqrt(v) before the bias correction ("epsilon-hat")."""

    def __init__(
        self, params: Iterable[Tensor], lr: float, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "epsilon": epsilon})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state.update(step=0, m=torch.zeros_like(parameter), v=torch.zeros_like(parameter))
                state["step"] += 1
                state["m"].lerp_(parameter.grad, 1 - beta1)
                state["v"].lerp_(parameter.grad.square(), 1 - beta2)
                rate = group["lr"] * (1 - beta2 ** state["step"]) ** 0.5 / (1 - beta1 ** state["step"])
                parameter.addcdiv_(state["m"], state["v"].sqrt().add_(group["epsilon"]), value=-rate)
        return loss


class CayleyStep(Optimizer):
    """W <- (I + lr/2 B)^{-1} (I - lr/2 B) W with B = G W* - W G*: descent along the unitary matrices.

    Parameters are orthogonal `[n, n]`, or unitary with real and imaginary parts last, `[n, n, 2]`. B is skew, so each
    factor is unitary to rounding; nothing brings W back, so rounding adds up (scoRNN paper, figure 4). With
    `normalise`, G is first divided by sqrt(r) + 1e-8 of Keras 1's RMSprop, number by number (full-capacity uRNN,
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
                    w, g = torch.view_as_complex(parameter), torch.view_as_complex(gradient.contiguous())
                else:
                    w, g = parameter, gradient
                outer = g @ w.mH
                half = (group["lr"] / 2) * (outer - outer.mH)
                identity = torch.eye(len(w), dtype=w.dtype, device=w.device)
                w.copy_(torch.linalg.solve(identity + half, w - half @ w))
        return loss


_MAKERS: dict[str, Callable[..., Optimizer]] = {
    "adagrad_tf1": partial(torch.optim.Adagrad, initial_accumulator_value=0.1, eps=0.0),
    "adam": torch.optim.Adam,
    "adam_nnrnn": partial(torch.optim.Adam, betas=(0.0, 0.9)),
    "adam_tf1": AdamTF1,
    "cayley": CayleyStep,
    "cayley_rmsprop_keras1": partial(CayleyStep, normalise=True),
    "rmsprop_keras1": partial(RMSProp, epsilon=1e-8, epsilon_inside=False, initial=0.0),
    "rmsprop_lasagne": partial(RMSProp, epsilon=1e-6, initial=0.0),
    "rmsprop_scurnn": partial(RMSProp, epsilon=1e-8, initial=0.0),
    "rmsprop_tf1": RMSProp,
    "rmsprop_theano": partial(RMSProp, epsilon=0.0, initial=1e-3),
    "rmsprop_torch": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
    "sgd_momentum": partial(torch.optim.SGD, momentum=0.9),
}
assert set(_MAKERS) == set(get_args(OptimizerName))


def make_optimizer(name: OptimizerName, parameters: list[torch.nn.Parameter], learning_rate: float) -> Any:
    """Return the named optimiser for these parameters."""
    return _MAKERS[name](parameters, lr=learning_rate)
