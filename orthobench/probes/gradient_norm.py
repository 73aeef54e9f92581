"""The norm of the loss's gradient with respect to the state at every step, ||dL/dh_t|| (scoRNN paper, figure 5)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from orthobench.metric import GRADIENT_NORM
from orthobench.probe import Probe, ProbeContext, ProbeResult
from orthobench.recurrence import GradientTrace
from orthobench.sequences import valid_steps
from orthobench.task import loss_of


class GradientNorm(Probe):
    """The Frobenius norm of the whole probe batch's gradient, and the mean norm over its samples, `[T]` each.

    T is the length of the longest sequence. The mean at a step covers the sequences that have this step.

    The loss is a mean over the batch, so a sample's norm scales with 1/B, where B is the batch size, and the norm of
    the whole batch with 1/sqrt(B). Compare these levels only at equal batch sizes. The norm of the probe
    `gradient_norm_of_mean` tends to a limit as the batch grows.
    """

    title = "norm of the loss's gradient by the state, at every step"
    paper = "Helfrich, Willmott, Ye 2018, figure 5"
    default = True

    def __call__(self, context: ProbeContext) -> ProbeResult:
        trace = GradientTrace()
        outputs, _ = context.batch.through(context.model, trace=trace)
        loss = loss_of(context.task, outputs, context.batch.targets)
        parameters = [parameter for parameter in context.model.parameters() if parameter.requires_grad]
        torch.autograd.grad(loss, parameters, allow_unused=True)
        vectors: dict[str, Sequence[float]] = {}
        lengths = context.batch.lengths
        for state, norms in trace.norms.items():
            steps = len(norms) if lengths is None else int(lengths.max())
            per_sample = norms.mean(-1) if lengths is None else _mean_of_valid(norms, lengths)
            vectors[f"{GRADIENT_NORM}/{state}"] = trace.frobenius(state)[:steps].tolist()
            vectors[f"gradient_norm_per_sample/{state}"] = per_sample[:steps].tolist()
        return ProbeResult(vectors=vectors)


def _mean_of_valid(norms: Tensor, lengths: Tensor) -> Tensor:
    """Return the mean of norms `[T, B]` over the sequences that have the step, `[T]`; NaN if none has it."""
    valid = valid_steps(lengths, len(norms)).to(norms.dtype)
    return (norms * valid).sum(1) / valid.sum(1)
