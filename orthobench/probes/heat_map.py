"""How strongly every input is felt in every later state: ||ds_tau / dx_t||_F (ENRNN paper, figures 4 and 5).

For every part of the state that the model tells apart (ENRNN's long-term and short-term state, an LSTM's h and c), as
products of one-step Jacobians,

    ds_tau / dx_t = J_tau ... J_{t+1} K_t,   J_t = ds_t / ds_{t-1},   K_t = ds_t / dx_t,

and the mean over the run's probe batch. Takes T^2 numbers of T steps: for short sequences. Which norm the paper shows
it does not say.
"""

from __future__ import annotations

import torch

from orthobench.probe import Probe, Reading, Subject
from orthobench.probes._jacobians import advance, start, step_jacobians


class HeatMap(Probe):
    """`heat_map/<part>`: T x T numbers by rows, row tau the state's step, column t the input's; zeros where t > tau."""

    title = "gradient of every state by every input"
    paper = "Maduranga, Helfrich, Ye 2020, figures 4 and 5"
    every_epochs = 0

    def __call__(self, subject: Subject) -> Reading:
        model, inputs = subject.model, subject.batch.inputs
        length, batch, width = inputs.shape
        parts = model.state_parts()
        maps = {name: inputs.new_zeros(length, length) for name in parts}
        state = start(model, batch)
        size = sum(part.shape[-1] for part in state)
        felt = inputs.new_zeros(0, batch, size, width)  # ds_tau / dx_t of t = 1, ..., tau
        for tau in range(length):
            by_state, by_input = step_jacobians(model, inputs[tau], state)
            felt = torch.cat((torch.einsum("bij,tbjm->tbim", by_state, felt), by_input.unsqueeze(0)))
            for name, part in parts.items():
                maps[name][tau, : tau + 1] = torch.linalg.matrix_norm(felt[:, :, part]).mean(-1)
            state = advance(model, inputs[tau : tau + 1], state)
        return Reading(vectors={f"heat_map/{name}": found.flatten().tolist() for name, found in maps.items()})
