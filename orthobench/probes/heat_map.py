"""The gradient of every state with respect to every earlier input: ||ds_tau / dx_t||_F (ENRNN paper, figures 4 and 5).

Each part of the state has a separate map: ENRNN's long-term and short-term state, an LSTM's h and c. The gradients are
products of one-step Jacobians,

    ds_tau / dx_t = J_tau ... J_{t+1} K_t,   J_t = ds_t / ds_{t-1},   K_t = ds_t / dx_t,

and the map is the mean over the run's probe batch, at each tau over the sequences that have this step. It has T^2
numbers, so use it for short sequences. The paper does not say which norm it uses.
"""

from __future__ import annotations

import torch

from orthobench.probe import Probe, ProbeContext, ProbeResult
from orthobench.probes._jacobians import advance, input_numbers, start, step_jacobians


class HeatMap(Probe):
    """`heat_map/<part>`: T x T numbers row by row, of the state at tau by the input at t; zeros where t > tau."""

    title = "gradient of every state by every input"
    paper = "Helfrich, Ye 2020, figures 4 and 5"
    every_epochs = 0

    def __call__(self, context: ProbeContext) -> ProbeResult:
        if not context.model.initial_state(1):  # a layer of another program that takes no state
            return ProbeResult()
        model, inputs = context.model, input_numbers(context.batch, context.task.signature.input_size)
        length, batch, width = inputs.shape
        parts = model.state_parts()
        maps = {name: inputs.new_zeros(length, length) for name in parts}
        state = start(model, batch)
        size = sum(part.shape[-1] for part in state)
        lengths = context.batch.lengths
        by_inputs = inputs.new_zeros(0, batch, size, width)  # ds_tau / dx_t of t = 1, ..., tau
        for tau in range(length):
            by_state, by_input = step_jacobians(model, inputs[tau], state)
            earlier = torch.einsum("bij,tbjm->tbim", by_state, by_inputs)
            by_inputs = torch.cat((earlier, by_input.unsqueeze(0)))
            for name, part in parts.items():
                norms = torch.linalg.matrix_norm(by_inputs[:, :, part])
                maps[name][tau, : tau + 1] = (norms if lengths is None else norms[:, lengths > tau]).mean(-1)
            state = advance(model, inputs[tau : tau + 1], state)
        return ProbeResult(vectors={f"heat_map/{name}": norms.flatten().tolist() for name, norms in maps.items()})
