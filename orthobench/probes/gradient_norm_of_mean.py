"""The norm of the batch mean of the loss's gradient with respect to the state at every step."""

from __future__ import annotations

import torch

from orthobench.probe import Probe, ProbeContext, ProbeResult
from orthobench.recurrence import GradientTrace
from orthobench.task import loss_of

MOST_STATES = 1 << 23
"""If the states of all steps have more numbers, the probe is skipped: PyTorch would keep about ten times as many."""


class GradientNormOfMean(Probe):
    """The norm of the gradient of the loss with respect to h_t, summed over the probe batch, `[T]`.

    The loss is a mean over the batch, so the sum is the mean of the samples' own gradients. Unlike the norms of the
    probe `gradient_norm`, this one does not scale with the batch size, because samples with errors of opposite sign
    cancel. PyTorch computes it before and after training. It is skipped if the states of all steps have more than eight
    million numbers.
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
        loss = loss_of(context.task, outputs, batch.targets)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        torch.autograd.grad(loss, parameters, allow_unused=True)
        longest = steps if batch.lengths is None else int(batch.lengths.max())
        return ProbeResult(
            vectors={f"gradient_norm_of_mean/{state}": norms[:longest].tolist() for state, norms in trace.sums.items()}
        )
