"""DeltaNet, DeltaProduct and their gated forms against a literal transcription, and as layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.models import (
    assert_kernels_are_the_definition,
    assert_two_parts_equal_the_whole,
    make,
    short_convolved,
    sigmoid,
    silu,
)

from orthobench.errors import UsageError
from orthobench.plugins import Catalog
from orthobench.recurrence import GradientTrace, short_convolution
from orthobench.recurrence.passes.convolution import in_pytorch

NAMES = ("deltanet", "deltaproduct", "gated_deltanet")
FORMS: list[tuple[str, dict[str, Any]]] = [
    ("deltanet", {}),
    ("deltanet", {"negative_eigenvalues": True, "output_gate": True, "key_size": 5, "heads": 3}),
    ("deltanet", {"convolution": None, "heads": 1}),
    ("gated_deltanet", {"convolution": 2}),
    ("deltaproduct", {"householders": 3, "heads": 2}),
    ("gated_deltaproduct", {"householders": 2, "negative_eigenvalues": False, "output_gate": False}),
]


def transcribed(model: Any, inputs: np.ndarray) -> np.ndarray:
    """The outputs of every step, one step, row and head at a time."""
    p = {name: value.detach().numpy() for name, value in model.named_parameters()}
    heads, keys, values = model.settings.heads, model.settings.keys, model.settings.head_size
    factors = getattr(model.settings, "householders", 1)
    steps, batch, _ = inputs.shape
    outputs = np.zeros((steps, batch, model.signature.output_size))
    for row in range(batch):
        memory = np.zeros((heads, keys, values))
        projected = [np.zeros(len(p["input_weight"])) for _ in range(7)]
        for t in range(steps):
            u = inputs[t, row]
            projected.append(p["input_weight"] @ u)
            x = short_convolved(projected, p)
            beta = sigmoid(p["beta_weight"] @ u) * (2 if model.settings.negative_eigenvalues else 1)
            q = x[: heads * keys].reshape(heads, keys)
            k = x[heads * keys : heads * keys * (1 + factors)].reshape(factors, heads, keys)
            v = x[heads * keys * (1 + factors) :].reshape(factors, heads, values)
            read = np.zeros((heads, values))
            for head in range(heads):
                if "decay_weight" in p:
                    z = (p["decay_weight"] @ u)[head] + p["decay_bias"][head]
                    memory[head] *= np.exp(-np.exp(p["decay_rate"][head]) * np.log1p(np.exp(z)))
                for j in range(factors):
                    unit = k[j, head] / np.sqrt((k[j, head] ** 2).sum() + 1e-6)
                    transition = np.eye(keys) - beta[j * heads + head] * np.outer(unit, unit)
                    memory[head] = transition @ memory[head] + beta[j * heads + head] * np.outer(unit, v[j, head])
                # The library divides queries by the square root of the key size, and its norm has 1e-5.
                unit = q[head] / np.sqrt((q[head] ** 2).sum() + 1e-6) / np.sqrt(keys)
                y = memory[head].T @ unit
                read[head] = y / np.sqrt((y**2).mean() + 1e-5) * p["norm_weight"]
            h = read.reshape(-1)
            if "gate_weight" in p:
                h = h * silu(p["gate_weight"] @ u)
            outputs[t, row] = p["output_weight"] @ (p["mixing_weight"] @ h) + p["output_bias"]
    return outputs


@pytest.mark.parametrize(("name", "settings"), FORMS)
@pytest.mark.parametrize("steps", [9, 2, 1])
def test_matches_a_literal_transcription(name: str, settings: dict[str, Any], steps: int) -> None:
    """At every step, and at the last one alone, which has a query of its own; also of less steps than taps."""
    inputs = torch.randn(steps, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for readout in ("all", "last"):
        model = make(name, inputs=3, hidden_size=12, readout=readout, **settings).double()
        with torch.no_grad():
            model.norm_weight.copy_(torch.linspace(0.5, 2, model.settings.head_size))
        outputs, _ = model(inputs)
        expected = transcribed(model, inputs.numpy())
        expected = expected if readout == "all" else expected[-1]
        np.testing.assert_allclose(outputs.detach().numpy(), expected, rtol=1e-9, atol=1e-12)


def test_defaults_match_the_library() -> None:
    def read(name: str, **settings: Any) -> Any:
        return Catalog().load("model", name).Settings.read({"hidden_size": 12, **settings})

    for name in NAMES:
        settings = read(name)
        assert settings.convolution == 4
        assert settings.negative_eigenvalues == (name == "deltaproduct")
        assert settings.output_gate == (name != "deltanet")
        assert settings.has_decay == (name == "gated_deltanet")
        assert settings.steps_of_token == (2 if name == "deltaproduct" else 1)
        assert (settings.keys, read(name, key_size=5).keys) == (3, 5)
        for taps in (1, 9):
            with pytest.raises(UsageError, match="convolution"):
                read(name, convolution=taps)
    product = read("deltaproduct", householders=3, decay=True)
    assert (product.steps_of_token, product.has_decay) == (3, True)


@pytest.mark.parametrize("name", NAMES)
def test_starts_match_the_library(name: str) -> None:
    """Maps of m inputs start as U(-m^(-1/2), m^(-1/2)), a convolution of 4 as U(-1/2, 1/2)."""
    m, n = 9, 64
    model = make(name, inputs=m, hidden_size=n, output_gate=True)
    sizes = {"input_weight": m, "beta_weight": m, "gate_weight": m, "convolution_weight": 4, "mixing_weight": n}
    sizes |= {"decay_weight": m} if name == "gated_deltanet" else {}
    for weight, inputs in sizes.items():
        largest = float(getattr(model, weight).detach().abs().max())
        assert 0.85 < largest * inputs**0.5 <= 1, weight
    assert torch.equal(model.norm_weight, torch.ones(n // 4))


def test_decays_start_as_in_the_library() -> None:
    """exp(A) is U(0, 16), and softplus(d) is uniform in its logarithm from 0.001 to 0.1."""
    model = make("gated_deltanet", inputs=3, hidden_size=2000, heads=1000)
    rates = np.sort(model.decay_rate.detach().double().exp().numpy())
    steps = np.sort(torch.nn.functional.softplus(model.decay_bias.detach().double()).log().numpy())
    uniform = (np.arange(1000) + 0.5) / 1000
    assert rates[-1] <= 16
    assert steps[-1] <= np.log(0.1) + 1e-6
    np.testing.assert_allclose(rates, 16 * uniform, atol=16 * 0.06)
    np.testing.assert_allclose(steps, np.log(1e-3) + uniform * np.log(100), atol=np.log(100) * 0.06)


def test_gated_deltaproduct_without_decay_is_deltaproduct() -> None:
    """With exp(A) = 0 the decay is 1; with one correction it is Gated DeltaNet."""
    inputs = torch.randn(9, 2, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    cases: list[tuple[str, dict[str, Any]]] = [
        ("deltaproduct", {}),
        ("gated_deltanet", {"householders": 1, "negative_eigenvalues": False}),
    ]
    for other, settings in cases:
        gated = make("gated_deltaproduct", inputs=3, hidden_size=12, **settings).double()
        plain = make(other, inputs=3, hidden_size=12).double()
        names = dict(plain.named_parameters())
        with torch.no_grad():
            for name, parameter in gated.named_parameters():
                if name in names:
                    parameter.copy_(names[name])
            if other == "deltaproduct":
                assert not torch.allclose(gated(inputs)[0], plain(inputs)[0])
                gated.decay_rate.fill_(-torch.inf)
        torch.testing.assert_close(gated(inputs)[0], plain(inputs)[0], rtol=1e-12, atol=1e-14)


def test_state_holds_the_memories_and_the_last_inputs() -> None:
    model = make("deltaproduct", inputs=3, hidden_size=12, heads=2, key_size=5, householders=3)
    channels = 2 * (5 + 3 * (5 + 6))
    assert model.state_parts() == {"h": slice(0, 60), "convolution": slice(60, 60 + 3 * channels)}
    assert make("deltanet", inputs=3, hidden_size=12, convolution=None).state_parts() == {"h": slice(0, 36)}


@pytest.mark.parametrize(("name", "settings"), FORMS)
def test_kernels_match_the_reference(name: str, settings: dict[str, Any]) -> None:
    assert_kernels_are_the_definition(make(name, inputs=3, hidden_size=12, readout="last", **settings), steps=30)


@pytest.mark.parametrize(("name", "settings"), FORMS)
@pytest.mark.parametrize("cut", [1, 2, 3, 8])
def test_two_parts_equal_the_whole_sequence(name: str, settings: dict[str, Any], cut: int) -> None:
    """The convolution's last inputs are in the state, also after parts that are shorter than it."""
    model = make(name, inputs=3, hidden_size=12, readout="all", **settings).double()
    assert_two_parts_equal_the_whole(model, cut)


@pytest.mark.parametrize("name", NAMES)
def test_padding_changes_nothing(name: str) -> None:
    """Outputs at the last valid step do not see the steps behind it."""
    model = make(name, inputs=3, hidden_size=8, readout="last_valid").double()
    inputs = torch.randn(9, 2, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    padded, _ = model(inputs, lengths=torch.tensor([5, 9]))
    changed = inputs.clone()
    changed[5:, 0] = 7.0
    again, _ = model(changed, lengths=torch.tensor([5, 9]))
    alone, _ = model(inputs[:5, :1], lengths=torch.tensor([5]))
    torch.testing.assert_close(padded, again)
    torch.testing.assert_close(padded[:1], alone)


@pytest.mark.parametrize("name", NAMES)
def test_eigenvalues_stay_in_the_stated_range(name: str) -> None:
    """Betas reach 1 or 2, so that I - beta k k^T has an eigenvalue from 0 or -1 to 1; decays are at most 1."""
    for negative in (False, True):
        model = make(name, inputs=3, hidden_size=8, negative_eigenvalues=negative)
        inputs = 50 * torch.randn(200, 2, 3, generator=torch.Generator().manual_seed(4))
        count = model.settings.steps_of_token * model.settings.heads
        coefficients = model.coefficients(inputs).detach()
        betas, decays = coefficients[..., :count], coefficients[..., count:]
        assert float(betas.max()) == pytest.approx(2 if negative else 1, abs=1e-3)
        assert float(betas.min()) == pytest.approx(0, abs=1e-3)
        assert bool((decays <= 0).all())


def test_trace_covers_the_memories() -> None:
    model = make("deltanet", inputs=3, hidden_size=8, readout="all")
    trace = GradientTrace()
    outputs, _ = model(torch.randn(6, 2, 3, generator=torch.Generator().manual_seed(5)), trace=trace)
    outputs[-1].sum().backward()
    assert trace.norms["h"].shape == (6, 2)
    assert bool((trace.norms["h"] > 0).all())
    assert bool((trace.norms["h"][1:] >= trace.norms["h"][:-1] * (1 - 1e-5)).all())  # each step contracts


@pytest.mark.parametrize("name", NAMES)
def test_default_number_of_heads_follows_the_hidden_size(name: str) -> None:
    settings = Catalog().load("model", name).Settings
    assert [settings.read({"hidden_size": n}).heads for n in (128, 170, 7)] == [4, 2, 1]
    with pytest.raises(UsageError, match="heads=4 should divide hidden_size"):
        settings.read({"hidden_size": 170, "heads": 4})


@pytest.mark.parametrize(("steps", "taps", "width"), [(1, 4, 3), (3, 4, 16), (16, 2, 17), (40, 4, 33), (33, 8, 5)])
def test_short_convolution_matches_torch_conv1d(steps: int, taps: int, width: int) -> None:
    """Of torch's conv1d in float64, in value and gradient, by the kernels and by torch's operations."""
    generator = torch.Generator().manual_seed(7)
    shapes = ((steps, 3, width), (taps, width), (taps - 1, 3, width))
    leaves = [torch.randn(*shape, generator=generator).requires_grad_() for shape in shapes]
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    way = torch.randn(steps, 3, width, generator=generator)
    padded = torch.cat((wide[2], wide[0])).permute(1, 2, 0)
    exact = torch.nn.functional.conv1d(padded, wide[1].T[:, None], groups=width).permute(2, 0, 1)
    exact = torch.nn.functional.silu(exact)
    expected = [exact, *torch.autograd.grad(exact, wide, way.double())]
    for function in (short_convolution, in_pytorch):
        y = function(*leaves)
        for actual, truth in zip((y, *torch.autograd.grad(y, leaves, way)), expected, strict=True):
            torch.testing.assert_close(actual.double(), truth, rtol=1e-5, atol=1e-5)


def test_deltaproduct_program_starts_with_smaller_maps() -> None:
    """Each map of its own Glorot-uniform, times 2^-2.5: queries, each key, each value, each beta, the gate, the output.

    The maps of the program's layer of 24 features have a standard deviation of 0.036.
    """
    m, n, keys = 40, 96, 60
    settings: dict[str, Any] = {"heads": 2, "key_size": 30, "householders": 2, "decay": True, "convolution": None}
    model: Any = make("deltaproduct", inputs=m, hidden_size=n, map_start="xavier", **settings)
    outputs = (keys, keys, keys, n, n)
    maps = [*model.input_weight.split(outputs), *model.beta_weight.split(2), model.decay_weight]
    maps += [model.gate_weight, model.mixing_weight]
    for weight in maps:
        bound = 2**-2.5 * (6 / sum(weight.shape)) ** 0.5
        assert 0.85 * bound < weight.abs().max() <= bound
    default: Any = make("deltaproduct", inputs=m, hidden_size=n, **settings)
    assert 0.99 / m**0.5 < default.input_weight.abs().max() <= 1 / m**0.5
    layer: Any = make("deltaproduct", inputs=24, hidden_size=24, heads=1, map_start="xavier")
    assert layer.input_weight.std().item() == pytest.approx(0.036, abs=0.001)
