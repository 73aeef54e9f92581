"""The gradient of the loss by the state at every step, ||dL/dh_t|| (scoRNN paper, figure 5)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from orthobench.probe import Probe, ProbeContext, ProbeResult
from orthobench.recurrence import GradientTrace


class GradientNorm(Probe):
    """The Frobenius norm of the whole probe batch's gradient, and the mean norm over its samples, `[T]` each."""

    title = "norm of the loss's gradient by the state, at every step"
    paper = "Helfrich, Willmott, Ye 2018, figure 5"
    default = True

    def __call__(self, context: ProbeContext) -> ProbeResult:
        trace = GradientTrace()
        outputs, _ = context.model(context.batch.inputs, trace=trace)
        loss = context.task.loss(outputs, context.batch.targets)
        parameters = [parameter for parameter in context.model.parameters() if parameter.requires_grad]
        torch.autograd.grad(loss, parameters, allow_unused=True)
        vectors: dict[str, Sequence[float]] = {}
        for state, norms in trace.norms.items():
            vectors[f"gradient_norm/{state}"] = trace.frobenius(state).tolist()
            vectors[f"gradient_norm_per_sample/{state}"] = norms.mean(-1).tolist()
        return ProbeResult(vectors=vectors)
