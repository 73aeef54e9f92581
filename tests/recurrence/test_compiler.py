"""Kernels of cells that users write: what they compute, what is refused and why, and where they are kept."""

from __future__ import annotations

import copy
import random
import re
import shutil
import subprocess
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support import emulation
from support.own_cells import STATES, LongExpressive
from torch import Tensor, nn
from torch.nn.utils import parametrize

from docs.cells import JANET, MGU, STAR, LayerNormLSTM, Multiplicative, Oscillators
from orthobench.nn import CompiledLayer, compile
from orthobench.recurrence import GradientTrace, backends
from orthobench.recurrence.compiler import build, kernel, plan
from orthobench.recurrence.compiler import cell as compiler_cell
from orthobench.recurrence.compiler.expressions import UnfitError
from orthobench.recurrence.compiler.kernel import StepKernel
from orthobench.recurrence.compiler.text import VERSION
from orthobench.recurrence.cpu import library
from orthobench.recurrence.cuda import plans

INPUTS = 5


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def start(units: int, states: int, batch: int = 6):
    parts = [0.5 * torch.randn(batch, units) for _ in range(states)]
    return parts[0] if states == 1 else tuple(parts)


def kernel_of(layer: CompiledLayer, state) -> StepKernel | str:
    is_single = isinstance(state, Tensor)
    given = (state,) if is_single else state
    return layer._loops[is_single].compiled._kernel(torch.zeros(1, 1, INPUTS), given)


def evaluated(layer: CompiledLayer, x: Tensor, state, of_x: bool, backend: str) -> dict[str, Tensor]:
    """Return outputs, final states and gradients of a loss of both."""
    x = x.clone().requires_grad_(of_x)
    parts = [each.clone().requires_grad_() for each in ((state,) if isinstance(state, Tensor) else state)]
    with backends.use_backend(backend):
        outputs, final = layer(x, parts[0] if isinstance(state, Tensor) else tuple(parts))
    final = [final] if isinstance(final, Tensor) else list(final)
    loss = (outputs * torch.linspace(-1, 1, outputs.numel(), dtype=x.dtype).view_as(outputs)).sum()
    loss = loss + sum(each.sin().sum() for each in final)
    leaves = {f"state {k}": each for k, each in enumerate(parts)} | dict(layer.named_parameters())
    leaves |= {"x": x} if of_x else {}
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    results = {"outputs": outputs, **{f"final {k}": each for k, each in enumerate(final)}}
    return {name: each.detach() for name, each in (results | dict(zip(leaves, gradients, strict=True))).items()}


def assert_exact(layer: CompiledLayer, x: Tensor, state, of_x: bool) -> None:
    """Compare the kernel with the cell's own steps in float64."""
    actual = evaluated(layer, x, state, of_x, "cpu")
    exact = compile(copy.deepcopy(layer.cell).double())
    doubled = state.double() if isinstance(state, Tensor) else tuple(each.double() for each in state)
    for name, expected in evaluated(exact, x.double(), doubled, of_x, "auto").items():
        error = float((actual[name].double() - expected).norm() / expected.norm())
        assert error < 1e-6, (name, error)


# 20 units do not fill a vector, and the sums of 210 units do not fit the cache.
@pytest.mark.parametrize(("units", "of_x"), [(20, True), (20, False), (210, True), (210, False)])
@pytest.mark.parametrize("cell", STATES, ids=lambda cell: cell.__name__)
def test_values_and_gradients_are_those_of_the_steps_in_float64(cell, units, of_x):
    layer, state = compile(cell(INPUTS, units)), start(units, STATES[cell])
    for each in layer.modules():
        if isinstance(each, nn.LayerNorm):  # with gains of 1 such a cell may be chaotic, which amplifies roundings
            nn.init.normal_(each.weight, 0.3, 0.1), nn.init.normal_(each.bias, 0, 0.1)
    assert isinstance(kernel_of(layer, state), StepKernel)
    assert_exact(layer, torch.randn(9, 6, INPUTS), state, of_x)


ON_CPU_ALONE = {"BRC": "a matrix", "FiringRate": "a matrix", "Independent": "a matrix"} | dict.fromkeys(
    ("LayerNormGRU", "LayerNormLSTM"), "no means over the units"
)


@pytest.mark.parametrize("clusters", [1, 2])
@pytest.mark.parametrize(
    "cell", [MGU, *(pytest.param(each, marks=pytest.mark.slow) for each in STATES)], ids=lambda cell: cell.__name__
)
def test_kernels_for_a_gpu_have_the_values_and_gradients_of_the_steps(cell, clusters, monkeypatch):
    """In the emulator, on tensors of the CPU, and first in the comparison that precedes each kernel's use."""
    of_cuda = kernel._for_cuda
    monkeypatch.setattr(kernel, "_for_cpu", lambda planned: of_cuda(planned, 20, torch.device("cpu")))
    layer, state = compile(cell(INPUTS, 20)), start(20, STATES[cell])
    with emulation.emulated(plans.GPU(90, {clusters: 3}, 232448)):
        if reason := ON_CPU_ALONE.get(cell.__name__):
            assert reason in str(kernel_of(layer, state))
            return
        assert isinstance(kernel_of(layer, state), StepKernel)
        for of_x in (True, False):
            assert_exact(layer, torch.randn(9, 6, INPUTS), state, of_x)


@pytest.mark.parametrize("cell", [nn.LSTMCell, MGU, Multiplicative, STAR, LayerNormLSTM])
def test_threads_change_no_number(cell):
    layer, state = compile(cell(INPUTS, 40)), start(40, STATES[cell], batch=70)
    x, results = torch.randn(50, 70, INPUTS), []
    before = torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(evaluated(layer, x, state, False, "cpu"))
    torch.set_num_threads(before)
    for name, one in results[0].items():
        assert torch.equal(one, results[1][name]), name


@pytest.mark.parametrize("cell", [nn.LSTMCell, MGU, LongExpressive, Oscillators, LayerNormLSTM])
def test_trace_has_the_norms_of_the_loop(cell):
    layer, state = compile(cell(INPUTS, 20)), start(20, STATES[cell])
    loop = layer._loops[isinstance(state, Tensor)].compiled
    norms = []
    for run in (loop.run, loop.loop):
        trace = GradientTrace()
        outputs, _ = run(torch.randn(8, 6, INPUTS, generator=torch.Generator().manual_seed(1)),
                         (state,) if isinstance(state, Tensor) else state, trace)  # fmt: skip
        outputs.cos().sum().backward()
        norms.append(trace.norms["h"])
        assert list(trace.norms) == ["h"]
    torch.testing.assert_close(*norms, rtol=1e-5, atol=1e-6)


def test_run_records_whether_a_kernel_ran_and_the_version_of_the_compiler():
    layer, state = compile(JANET(INPUTS, 20)), start(20, 1)
    backends.forget_used()
    layer(torch.randn(3, 6, INPUTS), state)
    assert backends.last_used() == {"cpu"}
    assert backends.last_self_tests() == {"cell_compiler": VERSION, "tests": {"JANET": "passed"}}
    backends.forget_used()
    compile(Soft())(torch.randn(3, 6, INPUTS), start(12, 1))
    assert not backends.last_used()
    assert backends.last_self_tests()["tests"]["Soft"].startswith("softmax over the units")


class Function(nn.Module):
    """A function of a product, which is exactly zero for inputs and states of zeros, and of the state."""

    def __init__(self, function, inputs: int = INPUTS, units: int = 12) -> None:
        super().__init__()
        self.function = function
        self.x, self.h = nn.Linear(inputs, units, bias=False), nn.Linear(units, units, bias=False)

    def forward(self, x, h):
        return self.function(self.x(x) + self.h(h), h)


# Random numbers, with which a kernel is compared before its use, are at no edge.
@pytest.mark.parametrize(
    ("function", "size"),
    [
        (lambda z, h: nn.functional.relu6(z), 0),
        (lambda z, h: nn.functional.hardtanh(z + 1, -2, 1), 0),
        (lambda z, h: torch.maximum(z, h), 0),
        (lambda z, h: torch.minimum(z, h), 0),
        (lambda z, h: torch.clamp(z, 0, 1), 0),
        (lambda z, h: nn.functional.elu(z), 0),
        (lambda z, h: torch.clamp(z, max=h), 0),
        (lambda z, h: 0.3 * nn.functional.softplus(z, threshold=5), 40),
        (lambda z, h: 0.3 * nn.functional.softplus(z, beta=2), 40),
        (lambda z, h: z + h.norm(dim=-1, keepdim=True), 0),
        (lambda z, h: z + h.std(-1, keepdim=True), 0),
        (lambda z, h: z * (z > 0) + (h == 0).float() * torch.sigmoid(z), 0),
        (lambda z, h: torch.where(torch.ones_like(h) > 0, z, h), 0),
        (lambda z, h: torch.where((z > 1) * (h < 1), z, h), 0),
        (lambda z, h: torch.where(torch.arange(12) < 4, z, h), 0),
        (lambda z, h: z + h.sum(1, keepdim=True, dtype=torch.float32), 0),
    ],
    ids=[
        "relu6",
        "hardtanh",
        "maximum",
        "minimum",
        "clamp",
        "elu",
        "clamp-tensor",
        "softplus-threshold",
        "softplus-beta",
        "norm",
        "standard-deviation",
        "comparison-as-number",
        "constant-condition",
        "product-of-comparisons",
        "mask",
        "sum-with-a-type",
    ],
)
def test_functions_are_torchs_at_their_edges(function, size):
    layer, h = compile(Function(function)), torch.zeros(6, 12)
    assert isinstance(kernel_of(layer, h), StepKernel)
    x = size * torch.randn(5, 6, INPUTS)
    actual, expected = (evaluated(layer, x, h, True, backend) for backend in ("cpu", "reference"))
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=1e-5, atol=1e-5 * float(value.norm()))


class Late(nn.Module):
    """An input that only the second phase reads, and the backward pass too."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(INPUTS, 12), nn.Linear(12, 12, bias=False)

    def forward(self, x, h):
        return torch.tanh(self.x(x) * self.h(torch.relu(h)))


class CayleyMap(nn.Module):
    """A weight from a factorisation, some of whose results are no tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.A = nn.Linear(INPUTS, 12), nn.Parameter(0.2 * torch.randn(12, 12))

    def forward(self, x, h):
        skew, one = self.A - self.A.T, torch.eye(12)
        return torch.relu(self.x(x) + h @ torch.linalg.solve(one + skew, one - skew))


class Toeplitz(nn.Module):
    """A weight by whole-number indices, and an integer buffer next to the state."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.a = nn.Linear(INPUTS, 12), nn.Parameter(0.3 * torch.randn(23))
        self.register_buffer("sizes", torch.arange(12) % 3)

    def forward(self, x, h):
        index = torch.arange(12)[:, None] - torch.arange(12)[None] + 11
        return torch.tanh(self.x(x) + h @ self.a[index] + 0.1 * self.sizes * h)


class ScaleFree(nn.Module):
    """The gradient of its gain is zero but for rounding errors."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(INPUTS, 12), nn.Linear(12, 12, bias=False)
        self.gain = nn.Parameter(torch.tensor(1.5))

    def forward(self, x, h):
        return nn.functional.normalize(self.gain * (self.x(x) + self.h(h)), dim=1)


@pytest.mark.parametrize("cell", [Late, CayleyMap, Toeplitz])
def test_kernels_of_unusual_steps_are_exact(cell):
    layer, h = compile(cell()), start(12, 1)
    assert isinstance(kernel_of(layer, h), StepKernel)
    assert_exact(layer, torch.randn(5, 6, INPUTS), h, of_x=True)


def test_gradient_that_is_zero_but_for_rounding_is_no_difference():
    assert isinstance(kernel_of(compile(ScaleFree()), start(12, 1)), StepKernel)


def test_softplus_keeps_its_small_gradients():
    layer = compile(Function(lambda z, h: nn.functional.softplus(h - 16 + z)))
    for weight in layer.parameters():
        nn.init.zeros_(weight)
    h = torch.zeros(6, 12, requires_grad=True)
    assert isinstance(kernel_of(layer, h), StepKernel)
    (gradient,) = torch.autograd.grad(layer(torch.randn(1, 6, INPUTS), h)[0].sum(), h)
    torch.testing.assert_close(gradient, torch.full_like(h, -16).sigmoid(), rtol=1e-5, atol=0)


NORMS = {
    "layer norm": lambda z, h: torch.tanh(nn.functional.layer_norm(z, (12,))),
    "of the new state": lambda z, h: nn.functional.layer_norm(h + 0.2 * torch.tanh(z), (12,)),
    "of two": lambda z, h: sum(torch.tanh(nn.functional.layer_norm(torch.cat((z, h), 1), (24,))).chunk(2, 1)) / 2,
    "of groups": lambda z, h: sum(torch.tanh(nn.functional.group_norm(torch.cat((z, h), 1), 2)).chunk(2, 1)) / 2,
    "root mean square": lambda z, h: nn.functional.rms_norm(z, (12,), eps=1e-5) + h,
    "by hand": lambda z, h: torch.tanh((d := z - z.mean(-1, keepdim=True)) / (d.square().mean(-1, True) + 1e-5).sqrt()),
    "variance": lambda z, h: torch.tanh((z - z.mean(1)[:, None]) * (z.var(1, keepdim=True) + 1e-5).rsqrt()),
    "biased": lambda z, h: (m := torch.var_mean(z, 1, correction=0, keepdim=True))[0].log() * (z - m[1]) + h,
    "standard deviation": lambda z, h: torch.tanh(z) / h.std(-1, keepdim=True),
    "length": lambda z, h: nn.functional.normalize(z + 3 * h, dim=-1),
    "sum": lambda z, h: torch.tanh(z) * torch.sigmoid((z * h).sum(-1, keepdim=True)),
    "of a mean": lambda z, h: torch.tanh(z + (h * (h + z).mean(-1, keepdim=True)).square().mean(-1, keepdim=True)),
    "of a mean that has one": lambda z, h: torch.tanh(z + (m := h.mean(1, True))) * (h - m).square().mean(1, True),
    "softmax by hand": lambda z, h: (e := torch.exp(0.3 * z)) * h / e.sum(-1, keepdim=True) + 0.5 * h,
}


@pytest.mark.parametrize("norm", NORMS)
def test_means_over_the_units_have_the_gradients_of_the_steps(norm):
    layer, state = compile(Function(NORMS[norm])), start(12, 1)
    assert isinstance(kernel_of(layer, state), StepKernel)
    assert_exact(layer, torch.randn(4, 6, INPUTS), state, of_x=True)


def test_mean_of_the_first_phase_may_be_read_in_the_second_alone():
    class Second(Function):
        def forward(self, x, h):
            z = torch.tanh(self.x(x) + self.h(h))
            return torch.tanh(self.h(z)) + (z * h).mean(-1, keepdim=True)

    layer, state = compile(Second(None)), start(12, 1)
    assert isinstance(kernel_of(layer, state), StepKernel)
    assert_exact(layer, torch.randn(4, 6, INPUTS), state, of_x=False)


def test_exponential_overflows_as_torchs():
    layer, h = compile(Function(lambda z, h: 0.001 * torch.exp(z))), torch.zeros(400, 12)
    assert isinstance(kernel_of(layer, h), StepKernel)
    with torch.no_grad():
        layer.cell.x.weight.fill_(1 / INPUTS)
        x = torch.arange(-200.0, 200.0)[:, None].expand(1, 400, INPUTS)
        actual, expected = layer(x, h)[0], 0.001 * torch.exp(layer.cell.x(x))
    assert expected.isinf().any()
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-37)


def test_page_on_the_engine_shows_the_text_of_its_cell():
    page = (Path(__file__).parents[2] / "docs" / "engine.md").read_text()
    functions = re.search(r"```c\n(.*?)```", page, re.DOTALL).group(1).strip().split("\n\n")
    text = kernel_of(compile(JANET(INPUTS, 8)), start(8, 1)).text
    assert len(functions) == 2
    for each in functions:
        assert each in text


def test_plan_knows_the_room_of_the_driver():
    text = (library.FOLDER / "cell.h").read_text("utf-8")
    unit = text[text.index("struct unit {") : text.index("typedef void rule")]
    room = {name: int(size) for name, size in re.findall(r"vf (\w+)\[(\d+)\];", unit)}
    planned = {"product": plan.PRODUCTS, "own": plan.PRODUCTS, "input": plan.ALONE, "output": plan.INPUTS}
    planned |= {"vector": plan.VECTORS, "sum": plan.VECTORS, "saved": plan.SAVED, "kept": plan.KEPT}
    planned |= {"mean": plan.MEANS}
    assert room == planned | dict.fromkeys(("state", "before", "after", "trace"), plan.STATES)


# -------------------------------------------------------------------- what is refused


class Linear(nn.Module):
    def __init__(self, inputs: int = INPUTS, units: int = 12) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(inputs, units), nn.Linear(units, units)
        self.small = nn.Parameter(torch.randn(4, units // 4, units // 4))


class OverBatch(Linear):
    def forward(self, x, h):
        z = self.x(x) + self.h(h)
        return torch.tanh(z - z.mean(0))


class Soft(Linear):
    def forward(self, x, h):
        return torch.softmax(self.x(x) + self.h(h), -1)


class Branching(Linear):
    def forward(self, x, h):
        return torch.tanh(self.x(x) + self.h(h)) if self.small[0, 0, 0] > 0 else torch.relu(self.x(x) + self.h(h))


class Heads(Linear):
    def forward(self, x, h):
        heads = h.view(-1, 4, 3).transpose(0, 1)
        return torch.tanh(self.x(x) + torch.bmm(heads, self.small).transpose(0, 1).reshape(h.shape))


class Noisy(Linear):
    def forward(self, x, h):
        return torch.tanh(self.x(x) + nn.functional.dropout(self.h(h), 0.1))


class Deep(Linear):
    def forward(self, x, h):
        return torch.tanh(self.x(x) + self.h(torch.relu(self.h(torch.relu(self.h(h))))))


class Counting(Linear):
    steps = 0

    def forward(self, x, h):
        self.steps += 1
        return torch.tanh(self.x(x) + self.h(h))


class Changing(Linear):
    def forward(self, x, h):
        h.mul_(0.5)
        return torch.tanh(self.x(x) + self.h(h))


class Detached(Linear):
    def forward(self, x, h):
        return torch.tanh(self.x(x) + self.h(h.detach()))


class Other(Linear):
    def forward(self, x, h):
        h = torch.tanh(self.x(x) + self.h(h))
        return 2 * h, h


class Wrong(Linear):
    def forward(self, x, h):
        return torch.tanh(self.x(x) + self.h(h).missing)


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        return h.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clamp(-100, 100)


class OwnGradient(Linear):
    def forward(self, x, h):
        return torch.tanh(self.x(x) + Clipped.apply(self.h(h)))


class Hooked(Linear):
    def forward(self, x, h):
        h = torch.tanh(self.x(x) + self.h(h))
        h.register_hook(lambda gradient: gradient.clamp(-100, 100)) if h.requires_grad else None
        return h


class Doubled(Linear):
    def forward(self, x, h):
        return torch.tanh((self.x(x) + self.h(h)).double()).float()


class Alone(Linear):
    def forward(self, x, h):
        return torch.tanh(self.x(x) + self.h(h)) * (0.5 if len(x) == 1 else 1)


class Remembering(Linear):
    last = None

    def forward(self, x, h):
        self.last = h
        return torch.tanh(self.x(x) + self.h(h))


class Hidden(Linear):
    """A list of numbers is no operation that a program could see."""

    def forward(self, x, h):
        return torch.tanh(self.x(x) + self.h(h) * abs(h.tolist()[0][0]))


class HiddenBuffer(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("leak", torch.tensor(0.5))

    def forward(self, x, h):
        return torch.tanh(self.x(x) + self.h(h) * float(np.asarray(self.leak)))


class WithoutGradient(Linear):
    """On small random numbers the clipping does nothing."""

    def forward(self, x, h):
        h = torch.relu(self.x(x) + self.h(h))
        with torch.no_grad():
            size = (h.norm(dim=1, keepdim=True) / 5).clamp(min=1)
        return h / size


class Rare(Linear):
    def forward(self, x, h):
        after = torch.tanh(self.x(x) + self.h(h))
        return h if random.random() < 1e-9 else after


class RareOfNumpy(Linear):
    def forward(self, x, h):
        after = torch.tanh(self.x(x) + self.h(h))
        return h if np.random.rand() < 1e-9 else after


class OwnGenerator(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.random = np.random.default_rng(0)

    def forward(self, x, h):
        after = torch.tanh(self.x(x) + self.h(h))
        return h if self.random.random() < 1e-9 else after


class Queue(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.sizes: deque[int] = deque(maxlen=1000)

    def forward(self, x, h):
        self.sizes.append(len(h))
        return torch.tanh(self.x(x) + self.h(h))


class Normalised(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(12))
        self.register_buffer("variance", torch.ones(12))

    def forward(self, x, h):
        z = nn.functional.batch_norm(self.x(x), self.mean, self.variance, training=self.training)
        return torch.tanh(z + self.h(h))


class Logarithm(Linear):
    def forward(self, x, h):
        return torch.sigmoid(self.x(x) + self.h(h)) * h.log()


REASONS = {
    OverBatch: "a sum along another axis than that of the units (test_compiler.py:",
    Soft: "softmax over the units (test_compiler.py:{}: return torch.softmax(self.x(x) + self.h(h), -1))",
    Branching: "the step branches on the values of tensors (test_compiler.py:{}: return torch.tanh(",
    Heads: "a state is viewed as [-1, 4, 3], for example in heads (test_compiler.py:{}: heads = h.view(-1, 4, 3)",
    Noisy: "the step draws random numbers (test_compiler.py:{}: return torch.tanh(",
    Deep: "three products that follow one another in a step",
    Counting: "the step changes an attribute of its module",
    Changing: "the step changes a tensor that outlives it (test_compiler.py:{}: h.mul_(0.5))",
    Detached: "the step detaches a state from its gradient (test_compiler.py:{}: return torch.tanh(",
    Other: "its output is not the first of its states",
    Wrong: "test_compiler.py:{} raises",
    OwnGradient: "Clipped has a backward pass of its own",
    Hooked: "the step registers a hook of a tensor (test_compiler.py:",
    Doubled: "a state in float64 (test_compiler.py:{}: return torch.tanh(",
    Alone: "its kernel and its loop differ in the output",
    Remembering: "the step changes an attribute of its module",
    Hidden: "the step reads the numbers of a tensor (test_compiler.py:{}: return torch.tanh(",
    HiddenBuffer: "the step reads the numbers of a tensor (test_compiler.py:{}: return torch.tanh(",
    WithoutGradient: "the step computes without gradients, as in `torch.no_grad()` (test_compiler.py:",
    Rare: "the step draws random numbers",
    RareOfNumpy: "the step draws random numbers",
    OwnGenerator: "the step changes an attribute of its module",
    Queue: "the step changes an attribute of its module",
    Normalised: "batch norm in training has no kernel (test_compiler.py:{}: z = ",
    Logarithm: "the step gives NaN or infinity for random inputs and states",
}


@pytest.mark.parametrize("cell", REASONS, ids=lambda cell: cell.__name__)
def test_cell_without_kernel_runs_as_a_loop_and_says_why(cell, caplog, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # because messages name files below the current folder with their folders
    monkeypatch.setattr(compiler_cell, "_said", set())
    line = cell.forward.__code__.co_firstlineno + 1
    layer, x, h = compile(cell()), torch.randn(4, 3, INPUTS), torch.randn(3, 12)
    if cell is Wrong:
        with pytest.raises(AttributeError, match="missing"):
            layer(x, h)
    else:
        for _ in range(2):
            torch.manual_seed(1)
            outputs, _ = layer(x, h.clone())
        torch.manual_seed(1)
        loop, _ = layer._loops[True].compiled.loop(x, (h.clone(),))
        torch.testing.assert_close(outputs, loop, rtol=0, atol=0, equal_nan=True)
    (record,) = caplog.records
    assert record.message.startswith(f"{cell.__name__} runs as a loop in PyTorch: {REASONS[cell].format(line)}")
    assert record.message.count("\n") == 0


def test_products_of_both_states_and_then_of_a_third_value_are_refused():
    class Both(Linear):
        def forward(self, x, state):
            y = torch.tanh(self.x(x) + self.h(state[0]) + self.h(state[1]))
            return y, torch.tanh(self.h(y))

    layer = compile(Both())
    assert layer.explain(INPUTS, start(12, 2)).endswith("products of both states, and then one of a third value")


def test_hooks_are_called(caplog):
    layer, seen = compile(JANET(INPUTS, 20)), []
    layer.cell.x.register_forward_hook(lambda *_: seen.append(1))
    layer(torch.randn(4, 6, INPUTS), start(20, 1))
    assert len(seen) == 4
    assert caplog.messages == ["JANET runs as a loop in PyTorch: x has hooks"]


# -------------------------------------------------------------------- what a recorded step takes for granted


@dataclass(slots=True)
class Slots:
    a: float


class Settings:
    a = 0.5


class Leaky(nn.Module):
    of_class = 0.5

    def __init__(self, setting, leak_of, inputs: int = INPUTS, units: int = 12) -> None:
        super().__init__()
        self.setting, self.leak_of = setting, leak_of
        self.x, self.h = nn.Linear(inputs, units), nn.Linear(units, units)
        self.bias = nn.Parameter(torch.randn(units))
        self.tied = nn.Linear(units, units)
        self.tied.weight = self.h.weight

    def forward(self, x, h):
        z = self.x(x) + self.h(h)
        z = z if self.bias is None else z + self.bias
        return self.leak_of(self) * h + torch.tanh(z) * torch.sigmoid(self.tied(h))


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, cell) -> float:
        return self.factor

    __hash__ = None  # type: ignore[assignment] # as that of a data class


SETTINGS = {
    "number": (0.5, lambda cell: cell.setting, lambda cell: setattr(cell, "setting", 0.25)),
    "number of NumPy": (
        np.float32(0.5),
        lambda cell: float(cell.setting),
        lambda cell: setattr(cell, "setting", np.float32(0.25)),
    ),
    "array": (
        np.full(3, 0.5),
        lambda cell: float(cell.setting.sum()),
        lambda cell: cell.setting.__setitem__(0, 0.25),
    ),
    "tensor": (
        torch.tensor(0.5),
        lambda cell: cell.setting,
        lambda cell: setattr(cell, "setting", torch.tensor(0.25)),
    ),
    "dictionary": (
        {"a": [0.5]},
        lambda cell: cell.setting["a"][0],
        lambda cell: cell.setting["a"].__setitem__(0, 0.25),
    ),
    "object": (SimpleNamespace(a=0.5), lambda cell: cell.setting.a, lambda cell: setattr(cell.setting, "a", 0.25)),
    "callable": (Scale(0.5), lambda cell: cell.setting(cell), lambda cell: setattr(cell.setting, "factor", 0.25)),
    "method": (
        Scale(0.5).__call__,
        lambda cell: cell.setting(cell),
        lambda cell: setattr(cell.setting.__self__, "factor", 0.25),
    ),
    "slots": (Slots(0.5), lambda cell: cell.setting.a, lambda cell: setattr(cell.setting, "a", 0.25)),
    "class of settings": (
        Settings,
        lambda cell: cell.setting.a,
        lambda cell: setattr(cell, "setting", type("Settings", (Settings,), {"a": 0.25})),
    ),
    "queue": (deque([0.5]), lambda cell: cell.setting[0], lambda cell: cell.setting.__setitem__(0, 0.25)),
    "array of objects": (
        np.array([0.5, None]),
        lambda cell: cell.setting[0],
        lambda cell: cell.setting.__setitem__(0, 0.25),
    ),
    "class": (None, lambda cell: cell.of_class, lambda cell: setattr(type(cell), "of_class", 0.25)),
    "no bias": (0.5, lambda cell: cell.setting, lambda cell: setattr(cell, "bias", None)),
    "untied": (
        0.5,
        lambda cell: cell.setting,
        lambda cell: setattr(cell.tied, "weight", nn.Parameter(torch.randn(12, 12))),
    ),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_kernel_follows_what_the_step_reads_besides_its_weights(setting, monkeypatch):
    monkeypatch.setattr(Leaky, "of_class", 0.5)
    value, leak_of, change = SETTINGS[setting]
    layer, x, h = compile(Leaky(copy.deepcopy(value), leak_of)), torch.randn(5, 6, INPUTS), start(12, 1)
    results = []
    for _ in range(2):
        assert isinstance(kernel_of(layer, h), StepKernel)
        assert_exact(layer, x, h, of_x=False)
        results.append(layer(x, h)[0])
        change(layer.cell)
    assert not torch.allclose(*results)


def test_gradient_of_a_weight_that_was_frozen_is_compared():
    layer, h = compile(JANET(INPUTS, 12)), start(12, 1)
    layer.cell.h.requires_grad_(False)
    of_frozen = kernel_of(layer, h)
    layer.cell.h.requires_grad_(True)
    of_trained = kernel_of(layer, h)
    assert isinstance(of_frozen, StepKernel)
    assert isinstance(of_trained, StepKernel)
    assert of_trained is not of_frozen


def test_step_that_changes_its_module_in_training_has_a_kernel_otherwise():
    class Counted(Linear):
        steps = 0

        def forward(self, x, h):
            self.steps += self.training
            return torch.tanh(self.x(x) + self.h(h))

    layer, h = compile(Counted()), start(12, 1)
    assert kernel_of(layer, h) == "the step changes an attribute of its module"
    layer.eval()
    assert isinstance(kernel_of(layer, h), StepKernel)


def test_settings_that_change_again_and_again_are_not_compiled_each_time(monkeypatch):
    layer, h, made = compile(Leaky(0.0, lambda cell: cell.setting)), start(12, 1), []
    load = build.load
    monkeypatch.setattr(build, "load", lambda text: made.append(text) or load(text))
    for step in range(2 * compiler_cell._MOST_SETTINGS):
        layer.cell.setting = step / 100
        last = kernel_of(layer, h)
    assert len(made) == compiler_cell._MOST_SETTINGS
    assert last == "its attributes have had more than 8 values"


class Squared(nn.Module):
    def forward(self, weight):
        return weight.square()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_cached_weights_are_no_constants(mode):
    layer, x, h = compile(Function(lambda z, h: torch.tanh(z))), torch.randn(5, 6, INPUTS), start(12, 1)
    parametrize.register_parametrization(layer.cell.h, "weight", Squared())
    with mode(), parametrize.cached():
        if mode is torch.no_grad:
            assert layer.cell.h.weight.grad_fn is None  # now it is cached
        assert isinstance(kernel_of(layer, h), StepKernel)
        assert layer.cell.h.weight.requires_grad == (mode is torch.enable_grad)
    with torch.no_grad():
        layer.cell.h.parametrizations.weight.original.mul_(2)
    assert_exact(layer, x, h, of_x=False)


# -------------------------------------------------------------------- compiling


def test_cell_is_compiled_once_for_all_processes(monkeypatch, tmp_path):
    monkeypatch.setenv("ORTHOBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "_loaded", set())
    commands, run = [], subprocess.run
    monkeypatch.setattr(
        build.subprocess, "run", lambda command, **given: commands.append(command) or run(command, **given)
    )
    for _ in range(2):
        layer = compile(JANET(INPUTS, 20))
        assert isinstance(kernel_of(layer, start(20, 1)), StepKernel)
        build._loaded.clear()  # as in another process
    assert len(commands) == 1
    assert [each.suffix for each in (tmp_path / "cells").iterdir()] == [".so"]
    assert (tmp_path / "cells").stat().st_mode & 0o777 == 0o700


def test_damaged_kernel_is_compiled_again(monkeypatch, tmp_path):
    for cache in (tmp_path / "whole", tmp_path / "damaged"):
        monkeypatch.setenv("ORTHOBENCH_CACHE", str(cache))
        monkeypatch.setattr(build, "_loaded", set())
        assert isinstance(kernel_of(compile(JANET(INPUTS, 20)), start(20, 1)), StepKernel)
        (file,) = (cache / "cells").iterdir()
        assert file.stat().st_size > 1000
        (tmp_path / "damaged" / "cells").mkdir(parents=True, exist_ok=True, mode=0o700)
        (tmp_path / "damaged" / "cells" / file.name).touch()


def test_another_compiler_and_processor_have_kernels_of_their_own(monkeypatch, tmp_path):
    monkeypatch.setenv("ORTHOBENCH_CACHE", str(tmp_path))
    monkeypatch.setenv("CC", "gcc")
    text, names = kernel_of(compile(JANET(INPUTS, 20)), start(20, 1)).text, set()
    monkeypatch.setattr(build, "_load", lambda name, *_: names.add(name))
    for variant, command in (("x86-64", "gcc"), ("x86-64", "clang"), ("aarch64", "gcc")):
        monkeypatch.setattr(build.library, "variant", lambda: variant)  # noqa: B023 - called at once
        monkeypatch.setattr(build.c_sources, "variants", lambda: {variant: {}})  # noqa: B023
        monkeypatch.setenv("CC", command)
        build.load(text)
    assert len(names) == 3


def test_reason_names_no_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("ORTHOBENCH_CACHE", str(tmp_path))
    monkeypatch.setenv("CC", "cc")
    with pytest.raises(UnfitError, match=r"cc does not compile its kernel: cell\.c:1:1: error: "):
        build.load("}")
    assert not list((tmp_path / "cells").iterdir())


def test_other_users_programs_are_not_loaded(monkeypatch, tmp_path):
    monkeypatch.setenv("ORTHOBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "_loaded", set())
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells").chmod(0o777)
    assert "other users can write to" in kernel_of(compile(JANET(INPUTS, 20)), start(20, 1))


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (None, "there is no C compiler: install one, such as apt install gcc, or pip install 'orthobench[cells]'"),
        ("no-such-compiler", "its kernel cannot be compiled: [Errno 2] No such file or directory: 'no-such-compiler'"),
        ("false", "false does not compile its kernel"),
    ],
)
def test_without_a_compiler_the_cell_runs_as_a_loop(monkeypatch, tmp_path, command, reason):
    monkeypatch.setenv("ORTHOBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "_loaded", set())
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("CC", raising=False)
    if command is None:
        monkeypatch.setattr(shutil, "which", lambda name: None)
    else:
        monkeypatch.setenv("CC", command)
    layer, x, h = compile(JANET(INPUTS, 20)), torch.randn(4, 6, INPUTS), start(20, 1)
    assert kernel_of(layer, h).startswith(reason)
    assert torch.equal(layer(x, h)[0], layer._loops[True].compiled.loop(x, (h,))[0])
    assert not list((tmp_path / "cells").iterdir())
