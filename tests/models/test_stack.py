"""Stacks of cells against literal transcriptions in torch's modules, and the contract of every model in a stack."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from support.models import assert_gradients
from torch import Tensor, nn

from orthobench.errors import UsageError
from orthobench.model import Model, Signature
from orthobench.model.build import build_model
from orthobench.model.norm import BatchNorm
from orthobench.plugins import Catalog
from orthobench.recurrence import GradientTrace
from orthobench.spec.resolve import resolve
from orthobench.testing import problems
from orthobench.training.trainer import Trainer

pytestmark = pytest.mark.grid

T, B, M, P, N, D = 7, 3, 4, 5, 8, 6
BLOCK: dict[str, Any] = {"layers": 2, "block": "residual", "block_size": D}


def build(name: str, readout: Any = "all", seed: int = 0, inputs: int = M, **settings: Any) -> Model:
    cls = Catalog().load("model", name)
    read = cls.Settings.read({"hidden_size": N, **settings})
    return build_model(cls, read, Signature(inputs, P, readout), torch.Generator().manual_seed(seed))


def noise(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Glu(nn.Module):
    """GLU as the programs have it: two linear maps."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.w1, self.w2 = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.w1(x) * torch.sigmoid(self.w2(x))


class PublishedBlock(nn.Module):
    """LinOSS's block around torch's RNN."""

    def __init__(self, norm: str | None, p: float) -> None:
        super().__init__()
        self.norm = {"batch": nn.BatchNorm1d(D, affine=False), "layer": nn.LayerNorm(D), None: nn.Identity()}[norm]
        self.layer, self.glu, self.drop = nn.RNN(D, N), Glu(N, D), nn.Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        skip = x
        x = (
            self.norm(x.permute(1, 2, 0)).permute(2, 0, 1).contiguous()
            if isinstance(self.norm, nn.BatchNorm1d)
            else self.norm(x)
        )
        x, _ = self.layer(x)
        x = self.drop(nn.functional.gelu(x))
        return self.drop(self.glu(x)) + skip


class PublishedStack(nn.Module):
    def __init__(self, blocks: list[nn.Module], encodes: bool = True) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(M, D) if encodes else nn.Identity(), nn.Linear(D, P)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        x = self.encoder(x)
        for block in self.blocks:
            x = block(x)
        return self.decoder(x)


def set_linear(linear: nn.Linear, weight: Tensor, bias: Tensor | None) -> None:
    linear.weight.copy_(weight)
    if bias is not None:
        linear.bias.copy_(bias)


def set_rnn(rnn: nn.RNN, cell: Any, layer: int = 0) -> None:
    getattr(rnn, f"weight_ih_l{layer}").copy_(cell.input_weight)
    getattr(rnn, f"weight_hh_l{layer}").copy_(cell.recurrent_weight)
    getattr(rnn, f"bias_ih_l{layer}").copy_(cell.bias)
    getattr(rnn, f"bias_hh_l{layer}").zero_()


@pytest.mark.parametrize("norm", ["batch", "layer", None])
def test_residual_blocks_match_the_published_program(norm: str | None) -> None:
    """In training with dropout, and in evaluation: outputs, gradients and running statistics."""
    stack: Any = build("rnn", **BLOCK, block_norm=norm, dropout=0.3)
    published: Any = PublishedStack([PublishedBlock(norm, 0.3) for _ in range(2)])
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.copy_(0.4 * noise(*parameter.shape, seed=parameter.numel()))
        set_linear(published.encoder, stack.encoder_weight, stack.encoder_bias)
        set_linear(published.decoder, stack.output_weight, stack.output_bias)
        for layer, block in zip(stack.layers, published.blocks, strict=True):
            set_rnn(block.layer, layer.cell)
            for half, linear in enumerate((block.glu.w1, block.glu.w2)):
                rows = slice(half * D, (half + 1) * D)
                set_linear(linear, layer.gate_weight[rows], layer.gate_bias[rows])
            if norm == "layer":
                set_linear(block.norm, layer.norm.weight, layer.norm.bias)
    for step in range(3):
        x = noise(T, B, M, seed=step)
        torch.manual_seed(step)
        actual, _ = stack(x)
        torch.manual_seed(step)
        expected = published(x)
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    actual.square().sum().backward()
    expected.square().sum().backward()
    pairs = [(stack.encoder_weight, published.encoder.weight)]
    pairs += [
        (a.cell.recurrent_weight, b.layer.weight_hh_l0) for a, b in zip(stack.layers, published.blocks, strict=True)
    ]
    for layer, twin in pairs:
        torch.testing.assert_close(layer.grad, twin.grad, rtol=1e-4, atol=1e-4)
    stack.eval(), published.eval()
    torch.testing.assert_close(stack(x)[0], published(x), rtol=1e-5, atol=1e-5)
    stack.train()
    assert not torch.allclose(stack(x)[0], stack(x)[0])  # new masks


class SlicedBlock(nn.Module):
    """SLiCE's block around torch's RNN."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.layer, self.linear, self.norm, self.drop = nn.RNN(D, n), nn.Linear(D, D), nn.LayerNorm(D), nn.Dropout(0.3)
        self.project = nn.Linear(n, D, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)[0]
        y = (y if y.shape == x.shape else self.project(y)) + x
        y = y + torch.tanh(self.linear(y))
        return self.drop(self.norm(y))


@pytest.mark.parametrize("n", [D, N])
def test_post_norm_blocks_match_slices(n: int) -> None:
    """With an embedding of the blocks' size there is no other map of the inputs."""
    stack: Any = build("rnn", **BLOCK | {"block": "post_norm", "hidden_size": n}, embedding_size=D, dropout=0.3)
    published: Any = PublishedStack([SlicedBlock(n) for _ in range(2)], encodes=False)
    assert stack.encoder_weight is None
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.copy_(0.4 * noise(*parameter.shape, seed=parameter.numel()))
        set_linear(published.decoder, stack.output_weight, stack.output_bias)
        for layer, block in zip(stack.layers, published.blocks, strict=True):
            set_rnn(block.layer, layer.cell)
            set_linear(block.linear, layer.map_weight, layer.map_bias)
            set_linear(block.norm, layer.norm.weight, layer.norm.bias)
            assert (layer.projection is None) == (n == D)
            if layer.projection is not None:
                set_linear(block.project, layer.projection, None)
    x = noise(T, B, M)
    torch.manual_seed(0)
    actual, _ = stack(x)
    torch.manual_seed(0)
    expected = published(x @ stack.embedding.T)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("readout", ["last", "all"])
def test_layers_without_blocks_equal_torch(readout: str) -> None:
    """torch.nn.LSTM of three layers, with dropout between them and none after the last."""
    stack: Any = build("lstm", readout, layers=3, dropout=0.4, forget_bias=0.0)
    published: Any
    published, decoder = nn.LSTM(M, N, 3, dropout=0.4), nn.Linear(N, P)
    with torch.no_grad():
        set_linear(decoder, stack.output_weight, stack.output_bias)
        for number, layer in enumerate(stack.layers):
            set_rnn(published, layer.cell, number)
    x = noise(T, B, M)
    torch.manual_seed(0)
    actual, final = stack(x)
    torch.manual_seed(0)
    outputs, (h, c) = published(x)
    expected = decoder(outputs)
    torch.testing.assert_close(actual, expected if readout == "all" else expected[-1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.stack(final[::2]), h, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.stack(final[1::2]), c, rtol=1e-5, atol=1e-5)


def test_published_lru_stack_matches_sums_written_out() -> None:
    """Each layer's sums written out in complex numbers, in float64."""
    model: Any = build("lru", block="residual", layers=3, block_size=D, block_norm="batch", dropout=0.1).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "nu" not in name and "theta" not in name:
                parameter.copy_(0.5 * noise(*parameter.shape, seed=parameter.numel()).double())
    model.eval()
    x = noise(T, B, M).double()
    v = x @ model.encoder_weight.T + model.encoder_bias
    for layer in model.layers:
        layer.norm.mean.copy_(noise(D, seed=8)), layer.norm.variance.copy_(noise(D, seed=9).square() + 0.5)
        u = (v - layer.norm.mean) / (layer.norm.variance + 1e-5).sqrt()
        cell = layer.cell
        lam = torch.exp(-torch.exp(cell.nu) + 1j * torch.exp(cell.theta))
        b = torch.complex(cell.input_weight[::2], cell.input_weight[1::2])
        c = torch.complex(cell.state_weight[:, ::2], -cell.state_weight[:, 1::2])
        s, ys = torch.zeros(B, N, dtype=torch.complex128), []
        for u_t in u:
            s = lam * s + torch.exp(cell.gain) * (u_t.to(b.dtype) @ b.T)
            ys.append((s @ c.T).real + cell.feedthrough * u_t)
        y = torch.stack(ys)
        y = y / 2 * (1 + torch.erf(y / math.sqrt(2)))
        a, g = layer.gate_weight[:D], layer.gate_weight[D:]
        v = v + (y @ a.T + layer.gate_bias[:D]) * torch.sigmoid(y @ g.T + layer.gate_bias[D:])
    torch.testing.assert_close(model(x)[0], v @ model.output_weight.T + model.output_bias)
    assert [group.learning_rate for group in model.parameter_groups()] == [1e-3, *[1e-3, 5e-4] * 3]


KINDS = {
    "residual": {"block": "residual", "block_size": D},
    "post_norm": {"block": "post_norm", "block_size": D},
    "bare": {},
}


@pytest.mark.parametrize(
    "kind", ["residual", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("post_norm", "bare"))]
)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if number % 2 else ())
        for number, name in enumerate(Catalog().names("model"))
    ],
)
def test_stack_of_every_model_meets_the_contract(name: str, kind: str) -> None:
    cls = Catalog().load("model", name)
    fields = {"layers": 2, **KINDS[kind]}
    members = {**fields, "__annotations__": {field: cls.Settings.__annotations__.get(field, Any) for field in fields}}
    members["__annotations__"] = {field: cls.Settings.model_fields[field].annotation for field in fields}
    settings = type("Stacked", (cls.Settings,), members)
    assert problems("model", type(cls.__name__, (cls,), {"Settings": settings})) == []


@pytest.mark.parametrize("readout", ["last", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("block", ["residual", "post_norm"])
def test_gradients_match_finite_differences(block: str, readout: str) -> None:
    assert_gradients(build("scornn", readout, **BLOCK | {"block": block, "block_norm": "batch"}))


@pytest.mark.parametrize("block", ["residual", "post_norm"])
@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_last_step_alone_equals_the_last_of_all_steps(block: str, norm: str) -> None:
    """Also in training with batch statistics, which include the steps that nothing reads."""
    last, everything = (
        build("gru", readout, **BLOCK | {"block": block, "block_norm": norm}) for readout in ("last", "all")
    )
    x = noise(T, B, M)
    torch.testing.assert_close(last(x)[0], everything(x)[0][-1], rtol=1e-5, atol=1e-6)


def test_batch_statistics_exclude_padding() -> None:
    """Those of torch's BatchNorm1d over the valid steps as one batch; padding may be anything."""
    stack, published = BatchNorm(D), nn.BatchNorm1d(D, affine=False)
    for step in range(3):
        x, lengths = noise(T, B, D, seed=step), torch.tensor([2 + step, T, 1])
        valid = (torch.arange(T)[:, None] < lengths)[..., None]
        rows = valid[..., 0]
        expected = published(x[rows])
        torch.testing.assert_close(stack(x.where(valid, 1e3), valid)[rows], expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(stack.mean, published.running_mean)
    torch.testing.assert_close(stack.variance, published.running_var)


@pytest.mark.parametrize("readout", ["last_valid", "mean", "positions"])
def test_stack_reads_valid_steps_only(readout: str) -> None:
    """In training with batch statistics: what is in the padding changes nothing."""
    model = build("gru", readout, **BLOCK, block_norm="batch")
    lengths, positions = torch.tensor([3, T, 5]), torch.tensor([[1, 2, 4], [2, 6, 0]])
    valid = (torch.arange(T)[:, None] < lengths)[..., None]
    x = noise(T, B, M)
    outputs = [model(x.where(valid, padding), lengths=lengths, positions=positions)[0] for padding in (0.0, 50.0)]
    torch.testing.assert_close(*outputs)
    assert outputs[0].shape == model.signature.output_shape(T, B, 2)


def test_matrices_states_and_traces_name_their_layer() -> None:
    model, trace = build("lstm", layers=2), GradientTrace()
    model(noise(T, B, M), trace=trace)[0].square().sum().backward()
    assert list(model.state_parts()) == ["1.h", "1.c", "2.h", "2.c"]
    assert [part.start for part in model.state_parts().values()] == [0, N, 2 * N, 3 * N]
    assert set(trace.norms) == {"1.h", "1.c", "h", "c"}
    scornn = build("scornn", **BLOCK)
    assert scornn.step_matrices == ("1.W", "2.W") == tuple(scornn.recurrent_matrices())
    assert all((norms > 0).any() for norms in trace.norms.values())


def test_trace_of_a_lower_layer_is_the_derivative() -> None:
    """By autograd through the two layers' equations, step by step."""
    model, trace = build("rnn", layers=2).double(), GradientTrace()
    x = noise(T, B, M).double()
    model(x, trace=trace)[0].square().sum().backward()
    below: list[Tensor] = [torch.zeros(B, N).double()]
    above, loss = [below[0]], torch.zeros(()).double()
    low, high = model.cells()  # type: ignore[operator]
    for x_t in x:
        below.append(torch.tanh(below[-1] @ low.recurrent_weight.T + x_t @ low.input_weight.T + low.bias))
        above.append(torch.tanh(above[-1] @ high.recurrent_weight.T + below[-1] @ high.input_weight.T + high.bias))
        below[-1].retain_grad()
        above[-1].retain_grad()
        loss = loss + (above[-1] @ model.output_weight.T + model.output_bias).square().sum()
    loss.backward()
    for name, states in (("1.h", below), ("h", above)):
        expected = torch.stack([state.grad.norm(dim=-1) for state in states[1:] if state.grad is not None])
        torch.testing.assert_close(trace.norms[name], expected)


def test_parameter_counts_match_the_formulas() -> None:
    """An LSTM of d inputs has 4 n (n + d + 1) numbers, a block 2 d (n + 1) and 2 d for its norm."""
    block = 4 * N * (N + D + 1) + 2 * D * (N + 1) + 2 * D
    assert build("lstm", **BLOCK).parameter_count() == D * (M + 1) + 2 * block + P * (D + 1)
    bare = 4 * N * (N + M + 1) + 4 * N * (2 * N + 1) + P * (N + 1)
    assert build("lstm", layers=2).parameter_count() == bare


def test_each_layer_has_its_optimiser_penalty_and_constraint() -> None:
    model = build("scornn", **BLOCK)
    assert [group.optimizer for group in model.parameter_groups()] == ["rmsprop_tf1"] * 5
    assert len({group.learning_rate for group in model.parameter_groups()}) == 2
    alone = build("soft_orthogonal").penalty()
    two = build("soft_orthogonal", layers=2).penalty()
    assert alone is not None
    assert two is not None
    unitary: Any = build("full_urnn", layers=2)
    with torch.no_grad():
        for cell in unitary.cells():
            for parameter in cell.parameters():
                parameter.add_(0.1)
        unitary.retract()
    for matrix in unitary.recurrent_matrices().values():
        torch.testing.assert_close(matrix.mH @ matrix, torch.eye(N) + 0j, rtol=0, atol=1e-5)


def test_neutral_settings_build_the_plain_model_with_the_same_key() -> None:
    plain = resolve(Catalog(), "adding", "scornn", {})
    neutral = {"layers": "1", "block": "none", "block_size": "128", "block_norm": "layer", "dropout": "0"}
    assert resolve(Catalog(), "adding", "scornn", neutral).spec.key == plain.spec.key
    assert type(build("scornn")).__name__ == "ScoRNN"
    stack = resolve(Catalog(), "adding", "scornn", {"layers": "2", "block": "residual"}).spec
    assert stack.model_settings["layers"] == 2
    assert stack.key != plain.spec.key


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"block_norm": "batch"}, "block_norm=batch needs blocks: add block=residual"),
        ({"block_size": "9"}, "block_size=9 needs blocks"),
        ({"dropout": "0.1"}, "acts in blocks or between layers"),
        ({"layers": "0"}, "layers=0"),
        ({"dropout": "1", "layers": "2"}, "dropout=1"),
        ({"block": "other"}, "block=other"),
    ],
)
def test_settings_without_effect_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve(Catalog(), "adding", "lstm", settings)


def test_parameters_beyond_the_memory_are_refused_by_every_size(monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"total": 1 << 20}))
    config = resolve(Catalog(), "adding", "rnn", {"layers": "40", "block": "residual", "hidden_size": "64"})
    with pytest.raises(UsageError, match="hidden_size=64, block_size=128, layers=40: the parameters alone need"):
        Trainer(config, config.task_class(config.task_settings, 0, torch.device("cpu")), torch.device("cpu"))
