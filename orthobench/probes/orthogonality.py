"""How far a step is from orthogonal: ||W* W - I||_F of its matrices (scoRNN paper, figure 4), and of its Jacobian.

There are three scores, because a recurrent matrix does not mean the same in every cell:

* `orthogonality/W`, of a matrix by which a step multiplies the state, h_t = act(W h_{t-1} + ...), or of I + eps W for
  an Euler step h_{t-1} + eps act(W h_{t-1} + ...). It is measured twice. The product in double precision measures the
  stored numbers exactly. The product in the run's own precision (`orthogonality_own_precision/W`) adds rounding about
  as large as the distance of a well constrained matrix.
* `orthogonality_inside/W_i`, of a matrix inside a gate or a derivative. An orthogonal one does not make the step so.
* `orthogonality_jacobian/J`, of the step itself, J = ds_t / ds_{t-1}, in the middle of the first sequences of the run's
  probe batch. Every cell with a state has it. s_t is everything that the cell carries from step to step, in the form in
  which it carries it.

The last one is the mean of ||J J^T - I||_F over the sequences, which equals that of J^T J because J is square. A state
of N numbers needs N rows of J. If N is above `EXACT`, as for the matrices of a delta rule, there is an estimate
instead, `orthogonality_jacobian/J_estimated`. For independent vectors u and v of random signs, the expectation of
(u^T (J J^T - I) v)^2 is the squared distance. The estimate is 0 if J is orthogonal. The vectors are the same at every
epoch. With 128 of them the standard error is largest for a distance of rank one, about 13 %.

The step runs on at most 2048 rows, and the state before it comes from half of four sequences. That is less work than
one training iteration on fifty sequences of a hundred steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from orthobench.errors import lacks_memory, wrong_value
from orthobench.metric import INSIDE, JACOBIAN, STEP, undefined
from orthobench.model import Model
from orthobench.probe import Probe, ProbeContext, ProbeResult
from orthobench.probes._jacobians import advance, input_numbers, products, start
from orthobench.task import Batch

SEQUENCES = 4
"""The most sequences of the batch in which the step's Jacobian is measured."""
EXACT, VECTORS = 512, 128
"""The most numbers of a state whose whole Jacobian is computed, and how many random vectors estimate a larger one."""


def orthogonality(weight: Tensor, dtype: torch.dtype = torch.float64) -> float:
    """Return ||W* W - I||_F of a real or complex matrix `[n, n]`, computed in the precision of this real type."""
    w = weight.to(dtype.to_complex() if weight.is_complex() else dtype)
    identity = torch.eye(w.shape[-1], dtype=w.dtype, device=w.device)
    return float(torch.linalg.matrix_norm(w.mH @ w - identity))


class Orthogonality(Probe):
    title = "distance from orthogonal of the recurrent matrices and of the step's Jacobian"
    paper = "Helfrich, Willmott, Ye 2018, figure 4"
    default = True

    @torch.no_grad()
    def __call__(self, context: ProbeContext) -> ProbeResult:
        values = {}
        matrices: Any = context.model.recurrent_matrices()
        if not isinstance(matrices, Mapping):
            raise wrong_value(context.model, "recurrent_matrices", matrices, "a dictionary of matrices by name")
        for name, matrix in matrices.items():
            if name in context.model.step_matrices:
                values[f"{STEP}/{name}"] = orthogonality(matrix)
                values[f"{STEP}_own_precision/{name}"] = orthogonality(matrix, matrix.dtype.to_real())
            else:  # MLflow refuses the brackets of "weight_hh_l0[1]"
                values[f"{INSIDE}/{name.replace('[', '.').replace(']', '')}"] = orthogonality(matrix)
        return ProbeResult(values | score_of_step(context))


def score_of_step(context: ProbeContext) -> dict[str, float]:
    """Return the mean of ||J^T J - I||_F by its name, or NaN by a name that says why it is not defined.

    A layer that trains may still fail when it continues from a state, so an error of its own does not end the run.
    """
    model = context.model
    first = model.initial_state(1)
    if not first:
        return undefined("no_state")
    if not all(part.is_floating_point() for part in first):
        return undefined("not_real")
    devices = [context.batch.inputs.device] if context.batch.inputs.is_cuda else []
    # A layer that draws random numbers must not draw others in training. And cuDNN has no backward pass in evaluation.
    with torch.random.fork_rng(devices), torch.backends.cudnn.flags(enabled=False):
        try:
            x, state = _middle(model, context.batch, context.task.signature.input_size)
            size = sum(part.shape[-1] for part in state)
            is_exact = size <= EXACT
            vectors = torch.eye(size) if is_exact else _signs(size)
            vectors = vectors.to(state[0])
            rows = products(model, x.unsqueeze(0), state, vectors)
        except Exception as error:
            if lacks_memory(error):
                raise
            return undefined("fails")
    if rows is None:
        return undefined("no_gradient")
    distances = distance(rows.double(), vectors.double(), is_exact=is_exact)
    return {f"{JACOBIAN}/{'J' if is_exact else 'J_estimated'}": float(distances.mean())}


def distance(rows: Tensor, vectors: Tensor, *, is_exact: bool) -> Tensor:
    """Return ||J J^T - I||_F, `[B]`, from the rows J^T u `[B, k, N]` of vectors u `[k, N]`.

    Args:
        is_exact: the vectors are the unit vectors; else they are independent vectors of random signs.
    """
    entries = rows @ rows.mT - vectors @ vectors.T  # u^T (J J^T - I) v for each pair, [B, k, k]
    if is_exact:
        exact: Tensor = torch.linalg.matrix_norm(entries)
        return exact
    pairs = ~torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)  # of different, so independent, vectors
    mean: Tensor = entries[:, pairs].square().mean(1)
    return mean.sqrt()


def _signs(size: int) -> Tensor:
    """Return random signs `[VECTORS, size]`, always the same."""
    return torch.randint(2, (VECTORS, size), generator=torch.Generator().manual_seed(0)).mul(2).sub(1).float()


def _middle(model: Model, batch: Batch, size: int) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the inputs `[B, m]` of the step in the middle of the first sequences, and the state before it.

    The middle is that of the shortest of these sequences.

    Args:
        size: m.
    """
    shortest = len(batch.inputs) if batch.lengths is None else max(1, int(batch.lengths[:SEQUENCES].min()))
    step = (shortest + 1) // 2
    inputs = input_numbers(replace(batch, inputs=batch.inputs[:step, :SEQUENCES], lengths=None), size)
    return inputs[-1], advance(model, inputs[:-1], start(model, inputs.shape[1]))
