"""Exported programs run over any number of steps, with the numbers of the model that ran step by step."""

from __future__ import annotations

import io

import pytest
import torch
from support.layers import LAYERS
from torch import Tensor, nn

from orthobench.foreign.model_of_layer import model_of
from orthobench.model import Signature
from orthobench.recurrence import use_backend

OTHERS = 1, 2, 3, 21
"""Lengths other than the one with which a program is traced; torch may treat sizes of 1 on their own, also of 2 - 1."""
QUICK = {("LSTM", 1), ("Mamba", 3)}
"""A layer of each kind of operation, the dense recurrence and the parallel scan, and each batch size."""
ONNX_QUICK = {("ScoRNN", True), ("LSTM", False)}
WITHOUT_ONNX = {"LRU"}

pytestmark = pytest.mark.filterwarnings("ignore")


def inputs(steps: int, batch: int = 3) -> Tensor:
    return torch.randn(steps, batch, 2, generator=torch.Generator().manual_seed(steps))


def loaded(program: nn.Module, dynamic=({0: torch.export.Dim.DYNAMIC},), batch: int = 3) -> nn.Module:
    """Return the program after it has been exported, saved and loaded."""
    content = io.BytesIO()
    x = inputs(5, batch)
    torch.export.save(torch.export.export(program, (x,), dynamic_shapes=dynamic, strict=False), content)
    content.seek(0)
    return torch.export.load(content).module()


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        (name, batch) if (name, batch) in QUICK else pytest.param(name, batch, marks=pytest.mark.slow)
        for name in LAYERS
        for batch in (3, 1)
    ],
)
def test_program_of_a_layer_has_the_same_numbers_at_other_lengths(name, batch):
    """Also with a single row, whose parts have the strides of the whole."""
    layer = LAYERS[name](2, 8, generator=torch.Generator().manual_seed(0)).for_inference()
    program = loaded(layer, batch=batch)
    for steps in OTHERS:
        x = inputs(steps, batch)
        with torch.no_grad(), use_backend("reference"):
            for actual, expected in zip(tensors_in(program(x)), tensors_in(layer(x)), strict=True):
                assert torch.equal(actual, expected), steps


def tensors_in(value) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else [each for part in value for each in tensors_in(part)]


def test_length_and_batch_size_may_both_be_open():
    layer = LAYERS["RNN"](2, 8, generator=torch.Generator().manual_seed(0)).for_inference()
    program = loaded(layer, ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},))
    x = torch.cat((inputs(9), inputs(9)), dim=1)
    with torch.no_grad(), use_backend("reference"):
        assert torch.equal(program(x)[0], layer(x)[0])


def test_steps_of_a_long_sequence_are_one_operation():
    """Without `scan` the program would have the nodes of each step."""
    layer = LAYERS["RNN"](2, 8, generator=torch.Generator().manual_seed(0)).for_inference()
    x = inputs(40)
    program = torch.export.export(layer, (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), strict=False)
    assert sum("scan" in str(node.target) for node in program.graph.nodes if node.op == "call_function") == 1
    unrolled = torch.export.export(layer, (x,), strict=False)
    assert len(unrolled.graph.nodes) > 40 > len(program.graph.nodes)


@pytest.mark.parametrize(
    ("name", "is_open"),
    [
        pytest.param(name, is_open, marks=() if (name, is_open) in ONNX_QUICK else pytest.mark.slow)
        for name in sorted(set(LAYERS) - WITHOUT_ONNX)
        for is_open in (True, False)
    ],
)
def test_onnx_file_of_a_layer_has_the_same_numbers(name, is_open):
    """For any number of steps, or a fixed one, with which the program is unrolled."""
    pytest.importorskip("onnxscript", reason="the extra orthobench[onnx] is not installed")
    runtime = pytest.importorskip("onnxruntime")
    layer = LAYERS[name](2, 8, generator=torch.Generator().manual_seed(0)).for_inference()
    axes = ({0: "T"},) if is_open else None
    program = torch.onnx.export(layer, (inputs(5),), dynamo=True, verbose=False, dynamic_shapes=axes)
    assert program is not None
    session = runtime.InferenceSession(program.model_proto.SerializeToString())
    (given,) = session.get_inputs()
    assert given.shape == ["T" if is_open else 5, 3, 2]
    for steps in OTHERS if is_open else (5,):
        x = inputs(steps).flip(0)
        output, *_ = session.run(None, {given.name: x.numpy()})
        with torch.no_grad():
            torch.testing.assert_close(torch.from_numpy(output), layer(x)[0])


class Leaky(nn.Module):
    """A layer of a user's own, with a loop over time."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.read, self.recurrent = nn.Linear(input_size, hidden_size), nn.Linear(hidden_size, hidden_size)

    def forward(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        h = x.new_zeros(x.shape[1], self.recurrent.in_features) if h is None else h
        outputs = []
        for x_t in x:
            h = 0.9 * h + torch.tanh(self.read(x_t) + self.recurrent(h))
            outputs.append(h)
        return torch.stack(outputs), h


@pytest.mark.parametrize(
    "layer", [nn.LSTM, Leaky, *(pytest.param(each, marks=pytest.mark.slow) for each in (nn.GRU, nn.RNN, nn.GRUCell))]
)
def test_program_of_a_foreign_layer_runs_over_other_lengths(layer):
    """A step at a time, so a layer whose own kernel rounds differently may differ in the last digits."""
    cls = model_of(layer, layer.__name__)
    model = cls(cls.Settings.read({"hidden_size": 8}), Signature(2, 3, "all"), torch.Generator().manual_seed(0)).eval()
    program = loaded(model)
    for steps in OTHERS:
        x = inputs(steps)
        with torch.no_grad():
            torch.testing.assert_close(program(x)[0], model(x)[0], rtol=1e-6, atol=1e-6)
