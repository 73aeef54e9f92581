"""Features that heads share, normalised, with a bias of each head, and turned by angles of each head, as in Mamba-3.

On the CPU a C kernel (`rotation.c`) runs both directions in float32, each in one pass over memory. Torch's
operations would copy pairs of features several times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from orthobench.recurrence import first_derivative, workspace
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.passes.head_norm import head_norm


def turned_heads(
    features: Tensor, weight: Tensor, bias: Tensor, cosine: Tensor, sine: Tensor, epsilon: float
) -> Tensor:
    """Return features / sqrt(mean(features^2) + epsilon) o weight + bias, whose first pairs are turned by angles.

    Args:
        features: `[T, B, N]`.
        weight: `[N]`.
        bias: `[heads, N]`.
        cosine, sine: of the angles, `[T, B, heads, pairs]`, for at most N / 2 pairs.
        epsilon: a number added to the mean of the squares.

    Returns:
        `[T, B, heads, N]`.
    """
    tensors = features, weight, bias, cosine, sine
    fits = 2 * cosine.shape[-1] <= features.shape[-1]
    if fits and call_c.serves("T B n, n, h n, T B h p, T B h p", *tensors):
        return in_c(*tensors, epsilon)
    return in_pytorch(*tensors, epsilon)


def in_c(features: Tensor, weight: Tensor, bias: Tensor, cosine: Tensor, sine: Tensor, epsilon: float) -> Tensor:
    """Return the turned features by the C kernels, for float32 on the CPU."""
    tensors = [each.contiguous() for each in (features, weight, bias, cosine, sine)]
    result: Tensor = _TurnedHeads.apply(*tensors, epsilon)
    return result


def in_pytorch(features: Tensor, weight: Tensor, bias: Tensor, cosine: Tensor, sine: Tensor, epsilon: float) -> Tensor:
    """Return the turned features by torch's operations, which define them."""
    vectors = head_norm(features, weight, epsilon)[..., None, :] + bias
    turning, still = vectors.tensor_split((2 * cosine.shape[-1],), dim=-1)
    first, second = turning.unflatten(-1, (cosine.shape[-1], 2)).unbind(-1)
    pairs = torch.stack((cosine * first - sine * second, sine * first + cosine * second), dim=-1)
    return torch.cat((pairs.flatten(-2), still), dim=-1)


class _TurnedHeads(Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        *tensors, ctx.epsilon = arguments
        ctx.save_for_backward(*tensors)
        out = workspace.take(*tensors[3].shape[:-1], tensors[0].shape[-1])
        _run("turned_heads_forward", tensors, ctx.epsilon, out=out)
        return out

    @staticmethod
    @first_derivative.once_differentiable
    def backward(ctx: Any, tensors: tuple[Tensor, ...], gradient: Tensor) -> Any:
        features, weight, bias, cosine, sine = tensors
        by_row = {"dfeatures": features, "dcosine": cosine, "dsine": sine}
        gradients = {name: workspace.take(*each.shape) for name, each in by_row.items()}
        shapes, dout = {"dweight": weight.shape, "dbias": bias.shape}, gradient.contiguous()
        sums = _run("turned_heads_backward", tensors, ctx.epsilon, shapes, dout=dout, **gradients)
        dfeatures, *others = gradients.values()
        return dfeatures, sums["dweight"], sums["dbias"], *others, None


def _run(
    function: str, arguments: Any, epsilon: float, sums: Mapping[str, Sequence[int]] | None = None, /, **tensors: Tensor
) -> dict[str, Tensor]:
    """Run a pass over all rows, and return its sums over them, which have these shapes."""
    tensors |= dict(zip(("features", "weight", "bias", "cosine", "sine"), arguments, strict=True))
    heads, size = tensors["bias"].shape
    sizes = {"heads": heads, "size": size, "pairs": tensors["cosine"].shape[-1], "epsilon": epsilon}
    rows = tensors["features"].numel() // size
    return call_c.run_rows(function, rows, heads * size, sums, **sizes, **tensors)
