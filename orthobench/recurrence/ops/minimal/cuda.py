"""The minimal cells by PyTorch's kernels, in about 2 sqrt(T) operations, for CUDA."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.cuda.scan import scan, scan_gradients
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel
from orthobench.recurrence.ops.minimal import min_gru, min_lstm, minimal_terms


@kernel(min_gru, "cuda")
@kernel(min_lstm, "cuda")
class Minimal(Kernel):
    """The kernel of `min_gru` and `min_lstm`."""

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        a, driven = _terms(x, arguments.weight, arguments)
        return (scan(driven, a, arguments.state[0]),), (x if keep else None,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (x,), (h,), (h0,) = tape.saved, tape.states, arguments.state
        assert x is not None
        leaves = x.detach().requires_grad_(), arguments.weight.detach().requires_grad_()
        with torch.enable_grad():
            a, driven = _terms(*leaves, arguments)
        total, by_a, dh0 = scan_gradients(tape.all_steps(), h, a.detach(), h0)
        for norms in tape.norms:
            norms.copy_(torch.linalg.vector_norm(total, dim=-1))
        dx, dbias = torch.autograd.grad((a, driven), leaves, (by_a, total))
        return Gradients(dx, dbias, (dh0,))


def _terms(x: Tensor, bias: Tensor, arguments: Arguments) -> tuple[Tensor, Tensor]:
    """Return a and u in h_t = a o h_{t-1} + u, `[T, B, n]`."""
    blocks = (x + bias).split(arguments.state[0].shape[-1], dim=-1)
    a, candidate = minimal_terms(blocks, arguments.parameters["positive"])
    return a, (1 - a) * candidate
