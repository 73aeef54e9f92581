"""The minimal cells and the oscillators in pieces, for CUDA, against the loop over their steps and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from orthobench.recurrence import GradientTrace, kernels, min_gru, min_lstm, oscillators, reference
from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.cpu import native as cpu
from orthobench.recurrence.ops.minimal.cuda import Minimal
from orthobench.recurrence.ops.oscillators.cuda import Oscillators

pytestmark = pytest.mark.grid

CASES = [
    (min_gru, Minimal, (True,)),
    (min_gru, Minimal, (False,)),
    (min_lstm, Minimal, (True,)),
    (min_lstm, Minimal, (False,)),
    (oscillators, Oscillators, ()),
]


@pytest.mark.parametrize("steps", [1, 2, 7, 10])
@pytest.mark.parametrize(("operation", "kernel", "parameters"), CASES)
@pytest.mark.parametrize("at_the_end", [False, True])
def test_chunks_match_the_reference(operation, kernel, parameters, steps, at_the_end):
    """In value, in every gradient and in the trace; also where the loss reads the final state alone."""
    generator = torch.Generator().manual_seed(steps)
    n, width = 4, len(operation.states)
    shapes = [(steps, 2, operation.gates * n), (operation.rows * n,), *[(2, n)] * width]
    arguments = [0.7 * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]

    def in_pieces(call: Call) -> Result:
        return kernels.run(kernel, call)

    results = []
    for run in (in_pieces, reference.run):
        x, weight, *state = inputs = [each.clone().requires_grad_() for each in arguments]
        trace = GradientTrace()
        outputs, final = run(operation.call(x, weight, tuple(state), trace, *parameters))
        loss = sum(each.square().sum() for each in final) + (0 if at_the_end else outputs.pow(3).sum())
        results.append([outputs, *final, *torch.autograd.grad(loss, inputs), *trace.norms.values()])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("steps", [1, 5, 200])
def test_oscillators_equal_powers_of_their_matrices(steps):
    """Without inputs the states are M^t times the start: NumPy's matrix power."""
    generator = torch.Generator().manual_seed(0)
    a, b, c, d = (0.5 * torch.randn(4, 5, generator=generator, dtype=torch.float64)).numpy()
    weight = torch.from_numpy(np.concatenate((a, b, c, d)))
    start = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64)
    call = oscillators.call(torch.zeros(steps, 3, 5, dtype=torch.float64), weight, (start[0], start[1]))
    for run in (reference.run, lambda call: kernels.run(Oscillators, call)):
        _, (y, z) = run(call)
        for unit in range(5):
            kick, drift = np.array([[1, 0], [b[unit], a[unit]]]), np.array([[1, d[unit]], [0, 1]])  # of (y, z)
            power = np.linalg.matrix_power(drift @ kick, steps)
            expected = power @ start[:, :, unit].numpy()
            np.testing.assert_allclose([y[:, unit], z[:, unit]], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")
@pytest.mark.parametrize("operation", [min_gru, min_lstm])
def test_extreme_gates_stay_finite_in_single_precision(operation):
    """Gates at +-200 are 0 or 1 to the rounding; the two of minLSTM stay normalised where both are tiny."""
    n, signs = 2, torch.tensor([-200.0, 200.0])
    first = signs.repeat_interleave(2)
    blocks = [first, first.flip(0)] if operation is min_lstm else [first]
    if operation is min_lstm:
        blocks = [torch.tensor([-200.0, 200, -200, 200]), torch.tensor([-200.0, 200, 200, -200])]
    x = torch.stack([*blocks, torch.tensor([3.0, -3, 3, -3])]).reshape(-1, 2, n).permute(1, 0, 2).reshape(1, 2, -1)
    leaves = [each.requires_grad_() for each in (x, torch.zeros(operation.gates * n), torch.ones(2, n))]
    outputs, _ = cpu.run(operation.call(leaves[0], leaves[1], (leaves[2],)))
    wide = [each.detach().double().requires_grad_() for each in leaves]
    expected, _ = reference.run(operation.call(wide[0], wide[1], (wide[2],)))
    torch.testing.assert_close(outputs.double(), expected)
    gradients = torch.autograd.grad(outputs.sum(), leaves), torch.autograd.grad(expected.sum(), wide)
    for actual, truth in zip(*gradients, strict=True):
        torch.testing.assert_close(actual.double(), truth)


@pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")
def test_minlstm_weighs_two_tiny_gates():
    """Where e^-f and e^-i exceed float32, their ratio does not. Two gates of exactly 0 have none."""
    f = torch.tensor([-200.0, -100, -90, -89, -95, -81, -79, -torch.inf])
    i = torch.tensor([-100.0, -200, -89, -90, -95, -80, -80, -torch.inf])
    leaves = [torch.cat((f, i, torch.full((8,), 3.0))).view(1, 1, -1), torch.zeros(24), torch.full((1, 8), 10.0)]
    results = []
    for module, dtype in ((cpu, torch.float32), (reference, torch.float64)):
        x, bias, start = (each.to(dtype).requires_grad_() for each in leaves)
        outputs, _ = module.run(min_lstm.call(x, bias, (start,)))
        gradients = torch.autograd.grad(outputs.sum(), (x, bias, start))
        results.append([each.detach().float() for each in (outputs, *gradients)])
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, equal_nan=True)
