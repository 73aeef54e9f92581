"""Layers leave the program by `torch.export` and `torch.jit.trace`; tests/nn/test_any_length.py has ONNX."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from support.layers import LAYERS

import orthobench.nn

DOCUMENT = Path(__file__).parents[2] / "docs" / "layers.md"
WITHOUT_ONNX = {"LRU"}


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(3, 3, 2, generator=torch.Generator().manual_seed(1))


def layer_of(name: str) -> torch.nn.Module:
    return LAYERS[name](2, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", LAYERS)
def test_fixed_matrices_give_the_same_outputs(name, x):
    layer = layer_of(name)
    torch.testing.assert_close(layer.for_inference()(x)[0], layer(x)[0])


@pytest.mark.parametrize(
    "name",
    [*list(LAYERS)[::3], *(pytest.param(n, marks=pytest.mark.slow) for n in LAYERS if n not in list(LAYERS)[::3])],
)
@pytest.mark.filterwarnings("ignore")
def test_exported_program_gives_the_same_outputs(name, x):
    layer = layer_of(name)
    program = torch.export.export(layer.for_inference(), (x,), strict=False)
    other = x.flip(1) * 0.5
    with torch.no_grad():
        torch.testing.assert_close(program.module()(other)[0], layer(other)[0])


@pytest.mark.parametrize("name", ["PDSSM", "EXPRNN", "LSTM"])
@pytest.mark.filterwarnings("ignore")
def test_exported_program_takes_other_batch_sizes(name, x):
    layer = layer_of(name).for_inference()
    sizes = ({1: torch.export.Dim("batch", min=2, max=64)},)
    program = torch.export.export(layer, (x,), dynamic_shapes=sizes, strict=False)
    other = torch.cat((x, 0.5 * x), dim=1)
    torch.testing.assert_close(program.module()(other)[0], layer(other)[0])


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.filterwarnings("ignore")
def test_traced_program_has_the_same_outputs_and_gradients(name, x):
    """`torch.jit.trace` is what TensorBoard's `add_graph` calls."""
    layer = layer_of(name)
    program = torch.jit.trace(layer, (x,), check_trace=False)
    other = x.flip(1) * 0.5
    results = []
    for run in (program, layer):
        output = run(other)[0]
        gradients = torch.autograd.grad(
            output.sin().sum(), list(layer.parameters()), materialize_grads=True, allow_unused=True
        )
        results.append([output, *gradients])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_export_leaves_no_cached_tensors(x):
    """The first use of a size inside an exported program must not serve later calls."""
    size = 9
    layer = orthobench.nn.Antisymmetric(2, size, generator=torch.Generator().manual_seed(0))
    torch.export.export(layer, (x,), strict=False)
    entries = layer.cells[0].recurrent_entries.detach()
    expected = torch.zeros(size, size)
    expected[tuple(torch.triu_indices(size, size, 1))] = entries
    torch.testing.assert_close(layer.cells[0].weight().detach(), expected - expected.T - 0.01 * torch.eye(size))


@pytest.mark.filterwarnings("ignore")
def test_examples_of_the_document_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text("utf-8"), re.S)
    names = {"MyModel": orthobench.nn.RNN.model}
    for block in blocks:
        exec(compile(block, "docs/layers.md", "exec"), names)
    assert len(blocks) == 8
    assert (tmp_path / "layer.onnx").stat().st_size > 0


def test_document_names_the_cells_without_onnx():
    (line,) = re.findall(r"^No ONNX: (.*?):", DOCUMENT.read_text("utf-8"), re.M)
    assert set(re.findall(r"`(\w+)`", line)) == WITHOUT_ONNX
