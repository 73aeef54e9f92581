"""The diagonal recurrence by PyTorch's kernels, for CUDA."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.cuda.scan import scan, scan_gradients
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel
from orthobench.recurrence.ops.diagonal import diagonal_recurrence


@kernel(diagonal_recurrence, "cuda")
class Diagonal(Kernel):
    """The kernel of `diagonal_recurrence`."""

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        u, a, start = (_units(tensor, arguments) for tensor in (x, arguments.weight, arguments.state[0]))
        return (_features(scan(u, a, start), arguments),), ()

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        tensors = (tape.all_steps(), tape.states[0], arguments.weight, arguments.state[0])
        gradient, states, a, start = (_units(tensor, arguments) for tensor in tensors)
        total, weight, dstart = scan_gradients(gradient, states, a, start)
        for norms in tape.norms:
            norms.copy_(torch.linalg.vector_norm(total, dim=-1))
        weight = weight if a.dim() == 3 else weight.sum((0, 1))
        return Gradients(_features(total, arguments), _features(weight, arguments), (_features(dstart, arguments),))


def _units(features: Tensor, arguments: Arguments) -> Tensor:
    """Return features `[..., 2n]` as complex units `[..., n]`; real units are the features."""
    if not arguments.parameters["is_complex"]:
        return features
    return torch.view_as_complex(features.unflatten(-1, (-1, 2)))


def _features(units: Tensor, arguments: Arguments) -> Tensor:
    # Resolved because view_as_real refuses a conjugate that is not computed yet.
    return torch.view_as_real(units.resolve_conj()).flatten(-2) if arguments.parameters["is_complex"] else units
