"""The norm of the gradient's mean over the batch, by the state at every step."""

from __future__ import annotations

import torch

from orthobench.probe import Probe, ProbeContext, ProbeResult
from orthobench.recurrence import GradientTrace

MOST_STATES = 1 << 23
"""Numbers in the states of all steps above which the probe measures nothing: PyTorch keeps some ten times as many."""


class GradientNormOfMean(Probe):
    """The norm of the loss's gradient by h_t, summed over the probe batch, `[T]`.

    The loss is a mean over the batch, so the sum is the mean of the samples' own gradients. The norms of the probe
    `gradient_norm` scale with the batch size, and this one does not: samples with errors of opposite sign cancel.
    PyTorch computes it before and after training. A model with more than eight million numbers in the states of all
    steps has no such vector.
    """

    title = "norm of the mean over the batch of the loss's gradient by the state, at every step"
    paper = "Helfrich, Willmott, Ye 2018, figure 5"
    every_epochs = 0
    default = True

    def __call__(self, context: ProbeContext) -> ProbeResult:
        model, batch = context.model, context.batch
        steps, sequences = batch.inputs.shape[:2]
        if steps * sum(part.numel() for part in model.initial_state(sequences)) > MOST_STATES:
            return ProbeResult()
        trace = GradientTrace(of_sum=True)
        outputs, _ = batch.through(model, trace=trace)
        loss = context.task.loss(outputs, batch.targets)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        torch.autograd.grad(loss, parameters, allow_unused=True)
        longest = steps if batch.lengths is None else int(batch.lengths.max())
        return ProbeResult(
            vectors={f"gradient_norm_of_mean/{state}": norms[:longest].tolist() for state, norms in trace.sums.items()}
        )
