"""How much of the loss's gradient reaches each step: ||dL/dh_t|| for every t (scoRNN paper, figure 5)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from orthobench.probe import Probe, Reading, Subject
from orthobench.recurrence import GradientTrace


class GradientNorm(Probe):
    """Over the run's probe batch: the Frobenius norm of the whole batch's gradient, and the mean norm of a sample's."""

    title = "norm of the loss's gradient by the state, at every step"
    paper = "Helfrich, Willmott, Ye 2018, figure 5"
    default = True

    def __call__(self, subject: Subject) -> Reading:
        trace = GradientTrace()
        outputs, _ = subject.model(subject.batch.inputs, trace=trace)
        loss = subject.task.loss(outputs, subject.batch.targets)
        parameters = [parameter for parameter in subject.model.parameters() if parameter.requires_grad]
        torch.autograd.grad(loss, parameters, allow_unused=True)
        vectors: dict[str, Sequence[float]] = {}
        for state, norms in trace.norms.items():
            vectors[f"gradient_norm/{state}"] = trace.frobenius(state).tolist()
            vectors[f"gradient_norm_per_sample/{state}"] = norms.mean(-1).tolist()
        return Reading(vectors=vectors)
