"""Torch's default type and device belong to the program around a layer: they change no result of a built layer."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from support.layers import LAYERS

# Another process, since numbers that are written past the end of a tensor may end it.
PROGRAM = """
import copy, sys
import torch
import orthobench.nn

torch.set_num_threads(1)
layers = {name: getattr(orthobench.nn, name) for name in orthobench.nn.cells.LAYERS if not name.endswith("Cell")}
x = torch.randn(7, 4, 3, generator=torch.Generator().manual_seed(1))


def results(layer):
    layer = copy.deepcopy(layer)
    inputs = x.clone().requires_grad_()
    outputs, state = layer(inputs)
    state = state if isinstance(state, tuple) else (state,)
    torch.autograd.backward([outputs, *state], [each.detach().cos() for each in (outputs, *state)])
    return [outputs, *state, inputs.grad, *(parameter.grad for parameter in layer.parameters())]


built = {name: layer(3, 16, generator=torch.Generator().manual_seed(0)) for name, layer in layers.items()}
right = {name: results(layer) for name, layer in built.items()}
for default in sys.argv[1:]:
    if default == "meta":
        torch.set_default_device("meta")
    else:
        torch.set_default_dtype(getattr(torch, default))
    found = {}
    for name, layer in built.items():
        try:
            found[name] = results(layer)
        except Exception as error:
            print(default, name, error)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device("cpu")
    for name, tensors in found.items():
        if not all(
            (actual is None and expected is None) or torch.equal(actual, expected)
            for actual, expected in zip(tensors, right[name], strict=True)
        ):
            print(default, name, "differs")
"""


@pytest.mark.parametrize(
    "defaults", [("float64", "meta"), pytest.param(("bfloat16", "float16"), marks=pytest.mark.slow)], ids="-".join
)
def test_every_layer_gives_the_same_result_under_another_default(defaults):
    command = [sys.executable, "-c", PROGRAM, *defaults]
    run = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.parametrize("name", LAYERS)
def test_layer_built_under_default_float64_has_that_type(name):
    torch.set_default_dtype(torch.float64)
    try:
        layer = LAYERS[name](3, 16, num_layers=2, generator=torch.Generator().manual_seed(0))
        x = torch.randn(7, 4, 3, generator=torch.Generator().manual_seed(1))
        tensors = [*layer.parameters(), *(buffer for buffer in layer.buffers() if buffer.is_floating_point())]
        assert {tensor.dtype for tensor in tensors} == {torch.float64}
        outputs, _ = layer(x)
        outputs.square().sum().backward()
    finally:
        torch.set_default_dtype(torch.float32)
    assert outputs.dtype == torch.float64
    outputs, exact = layer.float()(x.float())[0], outputs
    torch.testing.assert_close(outputs, exact.float(), rtol=1e-4, atol=1e-4)
