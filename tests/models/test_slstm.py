"""sLSTM against a literal transcription of its equations, its trace, its stabiliser, and its starts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.models import B, M, P, T, assert_gradients, expected_outputs, make, run, sigmoid

from orthobench.errors import UsageError
from orthobench.recurrence import GradientTrace, slstm

FORGET = {"sigmoid": sigmoid, "exponential": np.exp}


@pytest.mark.parametrize("readout", ["all", "last"])
@pytest.mark.parametrize("forget_gate", FORGET)
@pytest.mark.parametrize("heads", [1, 2, 3])
def test_matches_the_equations_without_a_stabiliser(heads, forget_gate, readout):
    """The paper's first form: exponentials as they stand, and each head's products alone."""
    n, d = 6, 6 // heads
    x, outputs, p = run(make("slstm", readout, hidden_size=n, heads=heads, forget_gate=forget_gate))
    weights, bias = p["input_weight"].reshape(4, n, M), p["bias"].reshape(4, n)

    def step(x_t, state):
        h, c, total = (np.zeros(n),) * 3 if state is None else state
        mixed = [
            np.concatenate([p["recurrent_blocks"][gate, k] @ h[k * d : (k + 1) * d] for k in range(heads)])
            for gate in range(4)
        ]
        i, f, z, o = (weights[gate] @ x_t + mixed[gate] + bias[gate] for gate in range(4))
        c = FORGET[forget_gate](f) * c + np.exp(i) * np.tanh(z)
        total = FORGET[forget_gate](f) * total + np.exp(i)
        return sigmoid(o) * c / total, c, total

    expected = expected_outputs(x, step, n, p)
    np.testing.assert_allclose(outputs, expected if readout == "all" else expected[-1], rtol=1e-9, atol=1e-12)


def arguments(gates=None, steps=5, batch=2, n=4, dtype=torch.float64):
    generator = torch.Generator().manual_seed(4)
    x, weight = (torch.randn(*s, generator=generator, dtype=dtype) for s in ((steps, batch, 4 * n), (4 * n, n)))
    if gates is not None:
        x[..., : 2 * n] = torch.tensor(gates, dtype=dtype).repeat_interleave(n)
    state = [torch.randn(batch, n, generator=generator, dtype=dtype) for _ in range(4)]
    return x, weight / 2, (*state[:2], 0.5 + state[2].abs(), state[3])


@pytest.mark.parametrize("exponential", [False, True])
def test_stabiliser_matches_the_authors_program(exponential):
    """The states step by step, with m_1 = i from zeros and the larger of the two exponents from any other state."""
    x, weight, start = arguments()
    for state in (tuple(torch.zeros_like(part) for part in start), start):
        h, c, n, m = (part.numpy() for part in state)
        _, final = slstm(x, weight, state, None, exponential)
        for x_t in x.numpy():
            i, f, z, o = np.split(x_t + h @ weight.numpy().T, 4, axis=-1)
            faded = m + (f if exponential else np.log(sigmoid(f)))
            m = i if not n.any() else np.maximum(i, faded)
            c = np.exp(faded - m) * c + np.exp(i - m) * np.tanh(z)
            n = np.exp(faded - m) * n + np.exp(i - m)
            h = sigmoid(o) * c / n
        for actual, expected in zip(final, (h, c, n, m), strict=True):
            np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-11, atol=1e-13)


def test_gradients_match_finite_differences():
    x, weight, state = arguments()
    tensors = [tensor.requires_grad_() for tensor in (x, weight, *state)]

    def function(x, weight, *state):
        outputs, final = slstm(x, weight, state)
        return outputs, *final

    assert torch.autograd.gradcheck(function, tensors)
    assert_gradients(make("slstm", hidden_size=4, heads=2, recurrent_start="uniform"))


def test_trace_is_the_derivative_by_a_shifted_state():
    """By a run that starts again at each step; h_t = s(o_t) c_t / n_t carries c_t and n_t to the loss as well."""
    x, weight, start = arguments()
    trace, way = GradientTrace(), torch.randn(5, 2, 4, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    (way * slstm(leaf, weight, start, trace)[0]).sum().backward()
    assert trace.norms.keys() == {"h", "c", "n"}
    state = start
    for t in range(len(x)):
        opened = (x[t] + state[0] @ weight.T).chunk(4, dim=-1)[3].sigmoid()
        _, state = slstm(x[t : t + 1], weight, state)
        h, c, n = (part.detach().requires_grad_() for part in state[:3])

        def loss(h, t=t, c=c, n=n, state=state):
            later = slstm(x[t + 1 :], weight, (h, c, n, state[3]))[0] if t < len(x) - 1 else way[:0]
            return (way[t] * h).sum() + (way[t + 1 :] * later).sum()

        expected = {"h": torch.autograd.grad(loss(h), h)[0]}
        expected |= dict(zip("cn", torch.autograd.grad(loss(opened * c / n), (c, n)), strict=True))
        for name, gradient in expected.items():
            torch.testing.assert_close(trace.norms[name][t], gradient.norm(dim=-1))


@pytest.mark.parametrize("i", [-1e4, -100.0, 100.0, 1e4])
@pytest.mark.parametrize("f", [-1e4, -100.0, 100.0, 1e4])
@pytest.mark.parametrize("exponential", [False, True])
def test_extreme_gates_stay_finite_in_float32(i, f, exponential):
    """From zeros, whose first step has exp(-i) of a c and an n of 0."""
    x, weight, state = arguments((i, f), steps=40, dtype=torch.float32)
    leaves = [tensor.requires_grad_() for tensor in (x, weight)]
    outputs, final = slstm(x, weight, tuple(torch.zeros_like(part) for part in state), None, exponential)
    assert outputs.abs().max() <= 1
    assert all(part.isfinite().all() for part in final)
    assert (final[2] >= 1).all()
    for gradient in torch.autograd.grad(outputs.square().sum() + final[1].sum() + final[2].sum(), leaves):
        assert gradient.isfinite().all()


def test_outputs_do_not_depend_on_the_stabiliser():
    """A shift of m by s multiplies the true c and n by exp(s), which cancels where nothing new is written."""
    x, weight, (h, c, n, m) = arguments((-60.0, 3.0))
    whole = slstm(x, weight, (h, c, n, m))[0]
    torch.testing.assert_close(slstm(x, weight, (h, c, n, m + 7))[0], whole)
    torch.testing.assert_close(slstm(x, weight, (h, 3 * c, 3 * n, m))[0], whole)


def test_starts_as_its_program():
    model = make("slstm", inputs=40, hidden_size=256, heads=4)
    bias = model.bias.detach().reshape(4, 4, 64)
    assert not bias[[0, 2, 3]].any()
    for head in bias[1]:
        np.testing.assert_allclose(head, [5 - 12 * (j / 63) ** 0.3 for j in range(64)], rtol=1e-5, atol=1e-5)
    assert not model.recurrent_blocks.any()
    assert 0.098 < model.input_weight.std() < 0.102  # sqrt(2 / 200)
    linear = make("slstm", hidden_size=8, heads=2, forget_start="linear", recurrent_start="uniform")
    np.testing.assert_allclose(linear.bias[8:16].detach(), [3, 4, 5, 6] * 2, rtol=1e-6)
    assert 0.3 < linear.recurrent_blocks.abs().max() <= 8**-0.5


def test_matrices_are_zero_between_heads():
    matrices = make("slstm", hidden_size=6, heads=3, recurrent_start="uniform").recurrent_matrices()
    assert list(matrices) == ["R_i", "R_f", "R_z", "R_o"]
    within = torch.block_diag(*[torch.ones(2, 2)] * 3)
    for matrix in matrices.values():
        assert torch.equal(matrix != 0, within != 0)


def test_parameter_counts_and_divisibility_by_heads():
    model = make("slstm", hidden_size=8)
    assert model.recurrent_blocks.shape == (4, 4, 2, 2)
    assert model.parameter_count() == 4 * 8 * (M + 1) + 4 * 4 * 2 * 2 + (8 * P + P)
    assert make("slstm", hidden_size=7).recurrent_blocks.shape == (4, 1, 7, 7)
    assert make("slstm", hidden_size=6).recurrent_blocks.shape == (4, 2, 3, 3)
    with pytest.raises(UsageError, match=r"heads=3 should divide hidden_size \(8\)"):
        make("slstm", hidden_size=8, heads=3)


def test_two_halves_equal_the_whole_sequence():
    model = make("slstm", hidden_size=8, recurrent_start="uniform").double()
    x = torch.randn(T, B, M, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    first, state = model(x[:2])
    torch.testing.assert_close(torch.cat((first, model(x[2:], state)[0])), model(x)[0], rtol=1e-12, atol=1e-12)
