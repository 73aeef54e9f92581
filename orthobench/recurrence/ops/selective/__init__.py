"""Mamba's selective scan: linear units whose factors depend on the inputs."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import linear, softplus

from orthobench.recurrence.call import State, Step
from orthobench.recurrence.operation import operation


def _check_selection(
    n: int, rates: Tensor, step_weight: Tensor, step_bias: Tensor, state_size: int, negative: bool, reads: bool
) -> str | None:
    if state_size < 1 or n % state_size:
        return f"a state of {n} features is not {state_size} units of each feature"
    width = n // state_size
    expected = {"rates": (rates, (n,)), "step_bias": (step_bias, (width,))}
    for name, (tensor, shape) in expected.items():
        if tensor.shape != shape:
            return f"{name} {list(tensor.shape)} should be {list(shape)}"
    if step_weight.dim() != 2 or len(step_weight) != width or not step_weight.shape[1]:
        return f"step_weight {list(step_weight.shape)} should be [{width}, rank]"
    return None


def _selection_widths(
    n: int, rates: Tensor, step_weight: Tensor, step_bias: Tensor, state_size: int, negative: bool, reads: bool
) -> tuple[int, int]:
    return n // state_size, step_weight.shape[1] + 2 * state_size


def selected(
    coefficients: Tensor,
    rates: Tensor,
    step_weight: Tensor,
    step_bias: Tensor,
    state_size: int,
    negative: bool,
    reads: bool = True,
) -> tuple[Tensor, Tensor]:
    """Return a `[..., N, D]` and Delta `[..., 1, D]` of `selective_scan`, from coefficients `[..., rank + 2N]`."""
    rank = step_weight.shape[1]
    delta = softplus(linear(coefficients[..., :rank], step_weight, step_bias)).unsqueeze(-2)
    a = (delta * rates.unflatten(0, (state_size, -1))).exp()
    return (2 * a - 1 if negative else a), delta


def _read_selected(
    x: Tensor, weight: Tensor, h: Tensor, state_size: int, reads: bool, **others: Tensor | bool
) -> Tensor:
    if not reads:
        return x[..., :0]
    y: Tensor = (h.unflatten(-1, (state_size, -1)) * weight[..., -state_size:, None]).sum(-2)
    return y


@operation(check=_check_selection, widths=_selection_widths, output=_read_selected, forms=None)
def selective_scan(
    weight: Tensor,
    rates: Tensor,
    step_weight: Tensor,
    step_bias: Tensor,
    state_size: int,
    negative: bool = False,
    reads: bool = True,
) -> Step:
    """h_t = a_t o h_{t-1} + Delta_t B_t x_t, read as y_t = C_t h_t: Mamba's selective scan (S6).

    Each of the D features of x has N = `state_size` units. A step's weight is rank numbers r_t, then B_t and C_t `[N]`.
    The weights may also be P x_t for a matrix P `[rank + 2N, D]`; the CPU's kernel computes this product itself.
    Without `reads`, the outputs have 0 features, because the final state is the result.
    Delta_t is softplus(W r_t + b) `[D]`. W is `step_weight` `[D, rank]`, and b is `step_bias` `[D]`. The factor a_t is
    exp(Delta_t A), or 2 exp(Delta_t A) - 1 with `negative`. A is `rates` `[N * D]`. The state is `[N * D]` too, the
    first unit of every feature first.

    A. Gu, T. Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", COLM 2024, algorithm 2.
    """
    a, delta = selected(weight, rates, step_weight, step_bias, state_size, negative)
    b = weight[..., -2 * state_size : -state_size, None]

    def step(x: Tensor, h: Tensor) -> State:
        return (a.flatten(-2) * h + (b * (delta * x.unsqueeze(-2))).flatten(-2),)

    return step
