"""The selective scan's skip and gate in C, against the equation in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import linear

from orthobench.recurrence import (
    Convolution,
    GradientTrace,
    Projection,
    gated_scan,
    reference,
    selective_scan,
    use_backend,
)
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.passes.convolution import in_pytorch

pytestmark = pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")
SIZES = {"steps": 19, "batch": 4, "width": 37, "size": 5, "rank": 3, "negative": True, "seed": 3}


def results_of(
    backend: str | None, sizes: dict[str, Any], inputs: int, taps: int, gate: str, maps: bool, loss: str
) -> dict[str, Tensor]:
    """Outputs, final state, norms and gradients: of `gated_scan` on a back end, or of the equation."""
    steps, batch, width, size, rank = (sizes[name] for name in ("steps", "batch", "width", "size", "rank"))
    generator = torch.Generator().manual_seed(sizes["seed"])
    dtype = torch.float32 if backend == "cpu" else torch.float64

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype).requires_grad_()

    numbers = rank + 2 * size
    leaves = {
        "weight": (0.3 * (normal(numbers, width) / width**0.5 if maps else normal(steps, batch, numbers))).detach(),
        "start": normal(batch, size * width),
        "rates": (-normal(size * width).detach().exp()).requires_grad_(),
        "step_weight": normal(width, rank),
        "step_bias": normal(width),
        "skip": (10 * normal(width)).detach(),  # what it adds is of the size of y
        "taps": normal(taps or 2, width),
        "before": normal((taps or 2) - 1, batch, width),
        "U": normal(width, inputs or 1),
        "W": normal(width, 3 if gate == "other inputs" else inputs or width),
    }
    leaves = {name: leaf.detach().requires_grad_() for name, leaf in leaves.items()}
    u, other = normal(steps, batch, inputs or width), normal(steps, batch, 3)
    source: Any = u.detach() if inputs else u
    gated = other if gate == "other inputs" else source
    leaves |= {"x": u} | ({"z": other} if gate == "other inputs" else {})
    weight, skip, parameters = leaves["weight"], leaves["skip"], (leaves["rates"], leaves["step_weight"])
    trace = GradientTrace()
    if backend:
        x: Any = Projection(source, leaves["U"]) if inputs else source
        x = Convolution(x, leaves["taps"], leaves["before"]) if taps else x
        z: Any = None if gate == "none" else Projection(gated, leaves["W"])
        named = {"rates": parameters[0], "step_weight": parameters[1], "step_bias": leaves["step_bias"]}
        with use_backend(backend):
            o, (final,) = gated_scan(
                x, weight, (leaves["start"],), trace, skip, z, **named, state_size=size, negative=sizes["negative"]
            )
    else:
        x = linear(source, leaves["U"]) if inputs else source
        x = in_pytorch(x, leaves["taps"], leaves["before"]) if taps else x
        weight = linear(x, weight) if maps else weight
        call = selective_scan.call(
            x, weight, (leaves["start"],), trace, *parameters, leaves["step_bias"], size, sizes["negative"]
        )
        y, (final,) = reference.run(call)
        o = y + skip * x
        if gate != "none":
            z = linear(gated, leaves["W"])
            o = o * z / (1 + torch.exp(-z))
    results = {"o": o, "final": final}
    ways = {name: torch.randn(each.shape, generator=generator).to(dtype) for name, each in results.items()}
    chosen = [name for name in results if loss in ("both", name)]
    inputs_of_loss = {name: leaf for name, leaf in leaves.items() if not (name == "x" and inputs)}
    gradients = torch.autograd.grad(
        [results[name] for name in chosen],
        [*inputs_of_loss.values()],
        [ways[name] for name in chosen],
        allow_unused=True,
    )
    by_name = {
        f"gradient of {name}": torch.zeros_like(leaf) if each is None else each
        for (name, leaf), each in zip(inputs_of_loss.items(), gradients, strict=True)
    }
    return {name: each.detach() for name, each in results.items()} | by_name | {"norms": trace.norms["h"]}


def assert_agrees(sizes: dict[str, Any], *form: Any) -> None:
    actual, expected = results_of("cpu", sizes, *form), results_of(None, sizes, *form)
    for name, value in expected.items():
        scale = float(value.norm()) + 0.1 * value.numel() ** 0.5
        assert float((actual[name].double() - value).norm()) <= 5e-5 * scale, name


@settings(max_examples=80, deadline=None)
@given(
    inputs=st.sampled_from([0, 1, 3, 8]),
    taps=st.sampled_from([0, 2, 4, 7]),
    gate=st.sampled_from(["none", "other inputs", "same inputs"]),
    maps=st.booleans(),
    loss=st.sampled_from(["o", "final", "both"]),
    steps=st.sampled_from([1, 3, 16, 17, 40]),
    batch=st.integers(1, 13),
    width=st.integers(1, 40),
    size=st.sampled_from([1, 5, 16]),
    rank=st.integers(1, 9),
    negative=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_gate_matches_the_equation(inputs: int, taps: int, gate: str, maps: bool, loss: str, **sizes: Any) -> None:
    """In value, in every gradient and in the trace; of a gate that the kernel projects, and of one that it reads."""
    assert_agrees(sizes, inputs, taps, gate, maps, loss)


@pytest.mark.usefixtures("lesser_machine")
@pytest.mark.parametrize("form", [(0, 4, "other inputs", True), (2, 4, "same inputs", False), (0, 0, "none", True)])
def test_gate_matches_on_narrower_vectors(form: Any) -> None:
    assert_agrees(SIZES, *form, "both")


@pytest.mark.parametrize("gate", ["other inputs", "same inputs"])
def test_thread_count_changes_no_number(gate: str, restored_threads: None) -> None:
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        results.append(results_of("cpu", {**SIZES, "steps": 70, "batch": 9}, 1, 4, gate, True, "both"))
    for result in results[1:]:
        assert all(torch.equal(value, results[0][name]) for name, value in result.items())


@pytest.mark.parametrize("gate", ["none", "other inputs", "same inputs"])
def test_other_back_ends_compute_the_gate_in_torch(gate: str) -> None:
    form = (SIZES, 2, 4, gate, True, "both")
    torch.testing.assert_close(results_of("reference", *form), results_of(None, *form))
