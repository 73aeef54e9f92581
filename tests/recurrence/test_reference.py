"""The definition against literal transcriptions of the equations, torch's own modules and finite differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from support.definition import assert_finite_differences
from support.gradients import gradient
from torch import Tensor

from orthobench.recurrence import (
    IDENTITY,
    MODRELU,
    RELU,
    TANH,
    Activation,
    GradientTrace,
    Kind,
    Projection,
    SparseLayers,
    cornn,
    diagonal_recurrence,
    gated_recurrence,
    gru,
    lem,
    lipschitz,
    lstm,
    recurrence,
    reference,
    sparse_recurrence,
)

pytestmark = pytest.mark.grid


def sigmoid(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


def activated(activation: Activation, z: np.ndarray, b: np.ndarray) -> np.ndarray:
    """One sample's units, one after another, as the papers write them."""
    out = np.zeros_like(z)
    for j in range(len(b)):
        if activation.is_complex:
            value = complex(z[2 * j], z[2 * j + 1])
            if activation.kind is Kind.COMPLEX_MODRELU_SMOOTH:
                rho = np.sqrt(activation.epsilon + abs(value) ** 2)
                value = value * max(rho + b[j], 0) / (rho + activation.epsilon)
            else:
                q = abs(value) + activation.epsilon
                value = value / q * max(q + b[j], 0)
            out[2 * j], out[2 * j + 1] = value.real, value.imag
            continue
        match activation.kind:
            case Kind.IDENTITY:
                out[j] = z[j] + b[j]
            case Kind.TANH:
                out[j] = np.tanh(z[j] + b[j])
            case Kind.RELU:
                out[j] = max(z[j] + b[j], 0)
            case Kind.LEAKY_RELU:
                out[j] = z[j] + b[j] if z[j] + b[j] >= 0 else activation.slope * (z[j] + b[j])
            case Kind.MODRELU:
                out[j] = np.sign(z[j]) * max(abs(z[j]) + activation.epsilon + b[j], 0)
    return out


def transcribed(case: Any, arguments: list[Any]) -> np.ndarray:
    """h of every step, or what is read from a memory; every sample and step on its own."""
    x, weight, h0, *given = [a.numpy() if isinstance(a, Tensor) else a for a in arguments]
    rest: list[Any] = given
    steps, batch, _ = x.shape
    n = h0.shape[1]
    states = np.zeros((steps, batch, n // 2 if case.has_memory else n))
    for sample in range(batch):
        h = h0[sample]
        c: Any = rest[0][sample] if len(case.states) == 2 else None
        z: Any = c
        for t in range(steps):
            x_t = x[t, sample]
            match case.op:
                case "recurrence":
                    activation, bias, step_size = rest
                    bias = np.zeros(activation.bias_size(n)) if bias is None else bias
                    update = activated(activation, x_t + weight @ h, bias)
                    h = update if step_size is None else h + step_size * update
                case "sparse_recurrence":
                    layers, activation, bias = rest
                    bias = np.zeros(activation.bias_size(n)) if bias is None else bias
                    units, taps = h[::2] + 1j * h[1::2] if case.is_complex else h, 0
                    for index in layers.index:
                        numbers = weight[taps : taps + len(index)]
                        numbers = numbers[:, ::2] + 1j * numbers[:, 1::2] if case.is_complex else numbers
                        units = np.array(
                            [
                                sum(numbers[j, i] * units[index[j, i]] for j in range(len(index)))
                                for i in range(len(units))
                            ]
                        )
                        taps += len(index)
                    mapped = np.stack((units.real, units.imag), axis=-1).ravel() if case.is_complex else units
                    h = activated(activation, x_t + mapped, bias)
                case "gated_recurrence":
                    h = h + rest[0] * sigmoid(weight @ h + x_t[n:]) * np.tanh(weight @ h + x_t[:n])
                case "lstm":
                    i, f, g, o = np.split(x_t + weight @ h, 4)
                    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                    h = sigmoid(o) * np.tanh(c)
                case "gru":
                    bias, reset_after, activation, outer = rest
                    r = sigmoid(x_t[:n] + weight[:n] @ h)
                    z = sigmoid(x_t[n : 2 * n] + weight[n : 2 * n] @ h)
                    inner = weight[2 * n :] @ h + (0 if bias is None else bias)
                    mixed = r * inner if reset_after else weight[2 * n :] @ (r * h)
                    outer_bias = np.zeros(n) if outer is None else outer
                    h = z * h + (1 - z) * activated(activation, x_t[2 * n :] + mixed, outer_bias)
                case "cornn":
                    _, dt, gamma, epsilon = rest
                    force = np.tanh(x_t + weight[:, :n] @ h + weight[:, n:] @ z)
                    z = z + dt * (force - gamma * h - epsilon * z)
                    h = h + dt * z
                case "lem":
                    gate_z, candidate_z, gate_y, candidate_y = weight.reshape(4, n, n)
                    input_gate_z, input_z, input_gate_y, input_y = np.split(x_t, 4)
                    dt_z = rest[1] * sigmoid(gate_z @ h + input_gate_z)
                    dt_y = rest[1] * sigmoid(gate_y @ h + input_gate_y)
                    z = (1 - dt_z) * z + dt_z * np.tanh(candidate_z @ h + input_z)
                    h = (1 - dt_y) * h + dt_y * np.tanh(candidate_y @ z + input_y)
                case "lipschitz":
                    h = h + rest[0] * (weight[:n] @ h + np.tanh(weight[n:] @ h + x_t))
                case "independent_recurrence":
                    z = (weight[t, sample] if case.per_step else weight) * h + x_t
                    h = {"identity": z, "relu": np.maximum(z, 0), "tanh": np.tanh(z)}[str(rest[0].kind)]
                case "diagonal_recurrence":
                    a = weight[t, sample] if case.per_step else weight
                    if case.is_complex:
                        units = (a[::2] + 1j * a[1::2]) * (h[::2] + 1j * h[1::2]) + x_t[::2] + 1j * x_t[1::2]
                        h = np.stack((units.real, units.imag), axis=-1).ravel()
                    else:
                        h = a * h + x_t
                case "min_gru" | "min_lstm":
                    *gates, candidate = np.split(x_t + weight, case.gates)
                    if case.positive:
                        candidate = np.array([c + 0.5 if c >= 0 else sigmoid(c) for c in candidate])
                    opened = [sigmoid(gate) for gate in gates]
                    keep = 1 - opened[0] if len(gates) == 1 else opened[0] / (opened[0] + opened[1])
                    write = opened[0] if len(gates) == 1 else opened[1] / (opened[0] + opened[1])
                    h = keep * h + write * candidate
                case "oscillators":
                    a, b, factor, length = weight.reshape(4, n)
                    z = a * z + b * h + factor * x_t
                    h = h + length * z
                case "delta_rule":
                    q, *keys = x_t[: 2 + 2 * case.corrections].reshape(-1, 2)
                    values = x_t[2 + 2 * case.corrections :].reshape(case.corrections, -1)
                    memory = np.exp(weight[t, sample, -1]) * h.reshape(2, -1)
                    for beta, k, v in zip(weight[t, sample], keys, values, strict=False):
                        unit = k / np.sqrt(k @ k + 1e-6)
                        memory = memory + beta * np.outer(unit, v - unit @ memory)
                    h = memory.ravel()
                case _:
                    raise NotImplementedError(f"write a step of {case.op} with NumPy as a case of `transcribed`")
            states[t, sample] = q @ memory / np.sqrt(q @ q + 1e-6) if case.has_memory else h
    return states


def test_reference_matches_the_equations(case: Any, call: Any) -> None:
    arguments = case.arguments(4, 3, 6, seed=1)
    states, _ = reference.run(call(case, arguments))
    np.testing.assert_allclose(states.numpy(), transcribed(case, arguments), rtol=1e-12, atol=1e-12)


def test_gradients_match_finite_differences(case: Any, call: Any) -> None:
    arguments = case.arguments(3, 2, 4, seed=2)
    assert case.margin(arguments) > 2e-6, "choose another seed: finite differences must not cross a kink"
    assert_finite_differences(lambda values: call(case, values), arguments)


def h_of_second(case: Any, arguments: list[Any], x: Tensor, before: Tensor, second: Tensor) -> Tensor:
    """h_t as a function of the second state at t, all else of the step being given."""
    weight, n = arguments[1], second.shape[1]
    match case.op:
        case "lstm":
            return (x + before @ weight.T).chunk(4, dim=-1)[3].sigmoid() * second.tanh()
        case "cornn":
            return before + arguments[4] * second
        case "oscillators":
            return before + weight[3 * n :] * second
        case "lem":
            length = arguments[4] * (x[:, 2 * n : 3 * n] + before @ weight[2 * n : 3 * n].T).sigmoid()
            return (1 - length) * before + length * (x[:, 3 * n :] + second @ weight[3 * n :].T).tanh()
        case _:
            raise NotImplementedError(f"write h of {case.op} over its second state as a case of `h_of_second`")


def test_trace_is_the_total_derivative_at_every_step(case: Any, evaluate: Any, call: Any) -> None:
    """Against a run that starts at h_t as a leaf."""
    if case.has_memory:
        pytest.skip("the outputs are not the states; test_delta.py has its trace")
    steps, batch, n = 5, 2, 4
    arguments = case.arguments(steps, batch, n, seed=3)
    norms = evaluate(reference, case, arguments)
    generator = torch.Generator().manual_seed(0)
    shapes = [(steps, batch, n), *[(batch, n)] * len(case.states)]
    way, *ways_of_final = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    x, weight, *rest = arguments
    outputs, _ = reference.run(call(case, arguments))
    for t in range(steps):
        until, after = (weight[: t + 1], weight[t + 1 :]) if weight.dim() == 3 else (weight, weight)
        _, state = reference.run(call(case, [x[: t + 1], until, *rest]))
        start = [part.detach().requires_grad_() for part in state]
        final: Sequence[Tensor] = start
        loss = (way[t] * start[0]).sum()
        if t < steps - 1:
            later, final = reference.run(call(case, [x[t + 1 :], after, *start, *rest[len(start) :]]))
            loss = loss + (way[t + 1 :] * later).sum()
        loss = loss + sum((w * part).sum() for w, part in zip(ways_of_final, final, strict=True))
        if len(start) == 2:  # the second state reaches the loss through h_t as well
            gradient_h = torch.autograd.grad(loss, start[0], retain_graph=True)[0]
            before = outputs[t - 1] if t else arguments[2]
            loss = loss + (gradient_h.detach() * h_of_second(case, arguments, x[t], before, start[1])).sum()
            gradients = [gradient_h, torch.autograd.grad(loss, start[1])[0]]
        else:
            gradients = list(torch.autograd.grad(loss, start))
        for name, back in zip(case.states, gradients, strict=True):
            torch.testing.assert_close(norms[f"norms of {name}"][t], back.norm(dim=-1))


def test_trace_norm_covers_the_batch() -> None:
    trace = GradientTrace()
    weight, x = torch.eye(2), torch.zeros(3, 2, 2, requires_grad=True)
    recurrence(x, weight, (torch.zeros(2, 2),), trace, IDENTITY)[0][-1].sum().backward()
    torch.testing.assert_close(trace.frobenius(), torch.full((3,), 2.0))


@pytest.mark.parametrize("activation", [TANH, RELU])
def test_plain_recurrence_equals_torch_rnn(activation: Activation) -> None:
    net: Any = torch.nn.RNN(3, 5, nonlinearity=str(activation.kind)).double()
    inputs, h0 = torch.randn(7, 4, 3).double(), torch.randn(4, 5).double()
    x = torch.nn.functional.linear(inputs, net.weight_ih_l0, net.bias_ih_l0 + net.bias_hh_l0)
    actual, (final,) = recurrence(x, net.weight_hh_l0, (h0,), None, activation)
    expected, expected_final = net(inputs, h0[None])
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(final, expected_final[0])


def test_lstm_equals_torch() -> None:
    net: Any = torch.nn.LSTM(3, 5).double()
    inputs, h0, c0 = torch.randn(7, 4, 3).double(), torch.randn(4, 5).double(), torch.randn(4, 5).double()
    x = torch.nn.functional.linear(inputs, net.weight_ih_l0, net.bias_ih_l0 + net.bias_hh_l0)
    outputs, (h, c) = lstm(x, net.weight_hh_l0, (h0, c0))
    expected, (expected_h, expected_c) = net(inputs, (h0[None], c0[None]))
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(h, expected_h[0])
    torch.testing.assert_close(c, expected_c[0])


def test_gru_equals_torch() -> None:
    net: Any = torch.nn.GRU(3, 5).double()
    inputs, h0 = torch.randn(7, 4, 3).double(), torch.randn(4, 5).double()
    gate_bias = torch.cat((net.bias_hh_l0[:10], torch.zeros(5)))
    x = torch.nn.functional.linear(inputs, net.weight_ih_l0, net.bias_ih_l0 + gate_bias)
    actual, _ = gru(x, net.weight_hh_l0, (h0,), None, net.bias_hh_l0[10:], reset_after=True)
    torch.testing.assert_close(actual, net(inputs, h0[None])[0])


def test_zero_stays_zero_in_modrelu() -> None:
    bias = torch.full((3,), 0.5, requires_grad=True)
    states, _ = recurrence(torch.zeros(2, 1, 3), torch.eye(3), (torch.zeros(1, 3),), None, MODRELU, bias)
    states.sum().backward()
    assert not states.any()
    assert not gradient(bias).any()


X, W, H = torch.zeros(3, 2, 4), torch.zeros(4, 4), torch.zeros(2, 4)
SHIFT = SparseLayers((torch.arange(4).roll(1)[None],))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: recurrence(X[:0], W, (H,)), "none of them 0"),
        (lambda: recurrence(X[:, :0], W, (H[:0],)), "none of them 0"),
        (lambda: recurrence(X[0], W, (H,)), "time, batch, features"),
        (lambda: recurrence(X, W, (H, H)), "the state should be 1 tensors, not 2"),
        (lambda: recurrence(X, W[:3], (H,)), "weight"),
        (lambda: recurrence(X, W, (H[:1],)), "h0"),
        (lambda: recurrence(X, W, (H,), bias=torch.zeros(3)), "bias"),
        (lambda: recurrence(X, W.double(), (H,)), "float64"),
        (lambda: recurrence(X, W, (H,), bias=torch.zeros(4).double()), "float64"),
        (lambda: recurrence(X[..., :3], W[:3, :3], (H[:, :3],), None, Activation(Kind.COMPLEX_MODRELU)), "even"),
        (lambda: sparse_recurrence(X, W, (H,), None, SHIFT), r"weight \[4, 4\] should be \[1, 4\]"),
        (lambda: sparse_recurrence(X[..., :3], W[:1], (H[:, :3],), None, SHIFT), "for a state of 4 features, not 3"),
        (lambda: SparseLayers((torch.zeros(1, 4, dtype=torch.int64),)), "as often as it has taps"),
        (lambda: SparseLayers((torch.arange(4)[None], torch.arange(3)[None])), "as often as it has taps"),
        (lambda: gated_recurrence(X, W, (H,), None, 0.1), "x"),
        (lambda: lstm(X, W, (H, H)), "x"),
        (lambda: lstm(torch.zeros(3, 2, 16), torch.zeros(16, 4), (H, H[:1])), "c0"),
        (lambda: lstm(torch.zeros(3, 2, 16), torch.zeros(16, 4), (H, H), None, torch.zeros(4)), "cell_weight"),
        (lambda: cornn(X, W, (H, H), None, 0.1, 1.0, 1.0), "weight"),
        (lambda: cornn(X, torch.zeros(4, 8), (H[:1], H), None, 0.1, 1.0, 1.0), "y0"),
        (lambda: cornn(X, torch.zeros(4, 8), (H, H[:1]), None, 0.1, 1.0, 1.0), "z0"),
        (lambda: lem(X, torch.zeros(16, 4), (H, H), None, 0.1), "x"),
        (lambda: lem(torch.zeros(3, 2, 16), torch.zeros(16, 4), (H, H[:1]), None, 0.1), "z0"),
        (lambda: lipschitz(X, W, (H,), None, 0.1), "weight"),
        (lambda: diagonal_recurrence(X, W, (H,)), r"weight \[4, 4\] should be \[4\]"),
        (lambda: diagonal_recurrence(X, X[:2], (H,)), r"weight \[2, 2, 4\] should be \[3, 2, 4\]"),
        (lambda: diagonal_recurrence(X[..., :3], W[0, :3], (H[:, :3],), is_complex=True), "even number"),
        (lambda: gru(torch.zeros(3, 2, 12), torch.zeros(12, 4), (H,), None, torch.zeros(4)), "reset_after"),
        (lambda: gru(torch.zeros(3, 2, 12), torch.zeros(12, 4), (H,), activation=RELU), "tanh or modrelu, not relu"),
        (
            lambda: gru(torch.zeros(3, 2, 12), torch.zeros(12, 4), (H,), activation_bias=torch.zeros(4)),
            "needs modrelu",
        ),
    ],
)
def test_incompatible_shapes_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_arguments_are_checked_also_after_others_have_fit() -> None:
    """One tensor or parameter of a call that fitted before changes its shape, type or device."""
    U, b, bias = torch.zeros(4, 5), torch.zeros(4), torch.zeros(4)
    fitting: dict[str, Any] = {"u": torch.zeros(3, 2, 5), "U": U, "b": b, "W": W, "h": H, "bias": bias, "kind": TANH}

    def run(**changes: Any) -> None:
        each = {**fitting, **changes}
        x = Projection(each["u"], each["U"], each["b"])
        recurrence(x, each["W"], (each["h"],), None, each["kind"], each["bias"])

    for _ in range(2):
        run()
        run(b=None)
        run(bias=None)
    for name in ("u", "U", "b", "W", "h", "bias"):
        for changed in (fitting[name].double(), fitting[name].to("meta"), fitting[name][..., :-1]):
            with pytest.raises(ValueError, match=r"fit|should be|float64|meta"):
                run(**{name: changed})
    with pytest.raises(ValueError, match="bias"):
        run(kind=Activation(Kind.COMPLEX_MODRELU))
    run()
