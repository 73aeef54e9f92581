"""The CUDA back end against the reference in float64, in value and in every gradient.

With a GPU these tests run on it. Without one they run in Triton's interpreter, which must be chosen before Triton is
imported: `test_in_the_interpreter` starts a process of its own, where the tensors are on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.gradients import gradient
from support.interpreter import INTERPRETED, ON_GPU, run_interpreted
from torch import Tensor

from orthobench import recurrence as recurrences
from orthobench.recurrence import (
    IDENTITY,
    LEAKY_RELU,
    MODRELU,
    RELU,
    TANH,
    Activation,
    GradientTrace,
    Kind,
    recurrence,
    reference,
)
from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.cuda import backend as cuda

pytestmark = pytest.mark.grid

DEVICE = "cuda" if ON_GPU else "cpu"

runs_kernels = [
    pytest.mark.gpu,
    pytest.mark.skipif(not (ON_GPU or INTERPRETED), reason="no GPU: covered by test_in_the_interpreter"),
]

# Rounding at T <= 6; a wrong term is orders above it. Gradients of biases and weights sum terms of both signs.
TOLERANCE = 3e-6

ACTIVATIONS = [
    IDENTITY,
    TANH,
    RELU,
    LEAKY_RELU,
    MODRELU,
    Activation(Kind.MODRELU, epsilon=0.01),
    Activation(Kind.COMPLEX_MODRELU, epsilon=0.01),
    Activation(Kind.COMPLEX_MODRELU_SMOOTH, epsilon=1e-5),
]


@dataclass
class Case:
    """A call: the tensors that have gradients, and the rest."""

    op: str
    tensors: list[Tensor | None]
    rest: tuple[object, ...] = ()
    traced: bool = True
    seed: int = field(default=0)
    final_alone: bool = False  # the loss uses the final states alone

    def run(self, back_end: Any, dtype: torch.dtype, device: str) -> list[Tensor]:
        """Outputs, final states, gradients, gradient norms."""
        tensors = [None if t is None else t.detach().to(device, dtype).requires_grad_() for t in self.tensors]
        trace = GradientTrace() if self.traced else None
        first, final = back_end.run(self.call(tensors, trace))
        outputs = (first, *final)
        generator = torch.Generator().manual_seed(self.seed)
        weights = [torch.randn(o.shape, generator=generator).to(device, dtype) for o in outputs]
        used = slice(1, None) if self.final_alone else slice(None)
        torch.autograd.backward(outputs[used], weights[used])
        norms = list(trace.norms.values()) if trace is not None else []
        return [*(o.detach() for o in outputs), *(t.grad for t in tensors if t is not None), *norms]

    @property
    def whole(self) -> list[Tensor]:
        """The tensors, of a call that leaves none out."""
        found = [tensor for tensor in self.tensors if tensor is not None]
        assert len(found) == len(self.tensors)
        return found

    def call(self, tensors: Sequence[Tensor | None], trace: GradientTrace | None) -> Call:
        operation: Any = getattr(recurrences, self.op)
        x, weight, *rest = tensors
        width = len(operation.states)
        parameters = [*rest[width:], *self.rest]
        if self.op == "recurrence":
            activation, step_size = self.rest
            parameters = [activation, *rest[width:], step_size]
        return operation.call(x, weight, tuple(rest[:width]), trace, *parameters)

    def check(self) -> None:
        actual = self.run(cuda, torch.float32, DEVICE)
        expected = self.run(reference, torch.float64, "cpu")
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            error = torch.linalg.vector_norm(a.cpu().double() - e) / torch.linalg.vector_norm(e).clamp_min(1e-3)
            shapes = [list(t.shape) for t in self.tensors if t is not None]
            assert error < TOLERANCE, f"result {i} of {self.op} {shapes}"


def run(x: Tensor, weight: Tensor, h0: Tensor, *parameters: Any) -> Result:
    """The plain recurrence by the CUDA back end."""
    return cuda.run(recurrence.call(x, weight, (h0,), None, *parameters))


def orthogonal(n: int) -> Tensor:
    return torch.linalg.qr(torch.randn(n, n)).Q


def plain(
    n: int,
    activation: Activation,
    *,
    steps: int = 3,
    batch: int = 2,
    bias: bool = True,
    step_size: float | None = None,
    traced: bool = True,
) -> Case:
    # Negative, so that modReLU has no jump: a unit that falls on the other side would differ by more than rounding.
    b = -0.3 * torch.rand(activation.bias_size(n)) if bias else None
    x, h0 = torch.randn(steps, batch, n), torch.randn(batch, n)
    return Case("recurrence", [x, orthogonal(n), h0, b], (activation, step_size), traced)


def gated(n: int, steps: int, batch: int) -> Case:
    x, w, h0 = torch.randn(steps, batch, 2 * n), orthogonal(n), torch.randn(batch, n)
    return Case("gated_recurrence", [x, w - w.T, h0], (0.1,))


def gates(op: str, n: int, steps: int, batch: int, reset_after: bool | None = None) -> Case:
    """An LSTM, or a GRU far from saturation, where 1 - g^2 would lose digits in any float32 arithmetic."""
    if op == "lstm":
        x, w = torch.randn(steps, batch, 4 * n), torch.randn(4 * n, n) / n**0.5
        return Case("lstm", [x, w, torch.randn(batch, n), torch.randn(batch, n)])
    x, w = 0.3 * torch.randn(steps, batch, 3 * n), 0.3 * torch.randn(3 * n, n) / n**0.5
    return Case("gru", [x, w, torch.randn(batch, n), None], (reset_after, TANH, None))


def name(value: object) -> str | None:
    return f"{value.kind}-{value.epsilon:g}" if isinstance(value, Activation) else None


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


class TestKernels:
    pytestmark = runs_kernels

    @pytest.mark.parametrize("step_size", [None, 0.1], ids=["plain", "euler"])
    @pytest.mark.parametrize("n", [18, pytest.param(140, marks=pytest.mark.slow), 258], ids=["row", "tiled", "step"])
    @pytest.mark.parametrize("activation", ACTIVATIONS, ids=name)
    def test_activations_match_the_reference(self, activation: Activation, n: int, step_size: float | None) -> None:
        plain(n, activation, step_size=step_size).check()

    @pytest.mark.parametrize("n", [1, 17, 64, 65, 128, 129, 170, 192, 193, 256, 257, 300])
    def test_sizes_match_the_reference(self, n: int) -> None:
        plain(n, TANH).check()

    def test_complex_pairs_in_tiles_match(self) -> None:
        plain(170, Activation(Kind.COMPLEX_MODRELU, epsilon=0.01)).check()

    @pytest.mark.parametrize("n", [17, 257])
    @pytest.mark.parametrize(("steps", "batch"), [(1, 1), (1, 3), (2, 1), (3, 37)])
    def test_short_and_ragged_sizes_match(self, steps: int, batch: int, n: int) -> None:
        plain(n, MODRELU, steps=steps, batch=batch).check()
        plain(n, TANH, steps=steps, batch=batch, bias=False, traced=False, step_size=0.5).check()

    @pytest.mark.parametrize("traced", [True, False])
    @pytest.mark.parametrize("n", [1, 17, 170, 257])
    def test_gated_matches_the_reference(self, n: int, traced: bool) -> None:
        x, w, h0 = torch.randn(4, 3, 2 * n), orthogonal(n), torch.randn(3, n)
        Case("gated_recurrence", [x, w - w.T, h0], (0.1,), traced).check()

    @pytest.mark.parametrize("traced", [True, False])
    @pytest.mark.parametrize(("n", "steps", "batch"), [(1, 1, 1), (17, 3, 2), (70, 4, 33)])
    def test_lstm_matches_the_reference(self, n: int, steps: int, batch: int, traced: bool) -> None:
        x, w = torch.randn(steps, batch, 4 * n), torch.randn(4 * n, n) / n**0.5
        Case("lstm", [x, w, torch.randn(batch, n), torch.randn(batch, n)], traced=traced).check()

    @pytest.mark.parametrize("reset_after", [True, False])
    @pytest.mark.parametrize("bias", [True, False])
    @pytest.mark.parametrize(("n", "steps", "batch"), [(1, 1, 1), (17, 3, 2), (70, 4, 33)])
    def test_gru_matches_the_reference(self, n: int, steps: int, batch: int, bias: bool, reset_after: bool) -> None:
        # Far from saturation, where 1 - g^2 would lose digits in any float32 arithmetic.
        x, w = 0.3 * torch.randn(steps, batch, 3 * n), 0.3 * torch.randn(3 * n, n) / n**0.5
        b = 0.3 * torch.randn(n) if bias and reset_after else None
        Case("gru", [x, w, torch.randn(batch, n), b], (reset_after, TANH, None), traced=bias).check()

    @pytest.mark.parametrize("traced", [True, False])
    @pytest.mark.parametrize("name", ["row", "tiled", "step", "euler", "gated", "lstm", "gru", "gru_before"])
    def test_loss_of_the_last_step_alone_matches(self, name: str, traced: bool) -> None:
        case = {
            "row": lambda: plain(18, TANH),
            "tiled": lambda: plain(140, MODRELU),
            "step": lambda: plain(258, TANH),
            "euler": lambda: plain(257, TANH, step_size=0.3),
            "gated": lambda: gated(17, 4, 3),
            "lstm": lambda: gates("lstm", 17, 3, 2),
            "gru": lambda: gates("gru", 17, 3, 2, True),
            "gru_before": lambda: gates("gru", 17, 3, 2, False),
        }[name]()
        case.final_alone, case.traced = True, traced
        case.check()

    def test_loss_of_the_last_cells_alone_matches(self) -> None:
        case = gates("lstm", 17, 3, 2)
        tensors = [t.to(DEVICE).requires_grad_() for t in case.whole]
        doubles = [t.detach().cpu().double().requires_grad_() for t in tensors]
        for back_end, arguments in ((cuda, tensors), (reference, doubles)):
            back_end.run(case.call(arguments, None))[1][1].square().sum().backward()
        for actual, expected in zip(tensors, doubles, strict=True):
            torch.testing.assert_close(gradient(actual).cpu().double(), gradient(expected), rtol=1e-5, atol=1e-5)

    def test_pair_with_a_denormal_square_matches(self) -> None:
        """The approximate root of a GPU takes it for 0, and a quotient by it would be infinite."""
        activation = Activation(Kind.COMPLEX_MODRELU)
        x, h0 = torch.full((2, 1, 4), 3e-20, device=DEVICE, requires_grad=True), torch.zeros(1, 4, device=DEVICE)
        bias = torch.ones(2, device=DEVICE)
        states, _ = run(x, torch.eye(4, device=DEVICE), h0, activation, bias)
        states.sum().backward()
        assert (states == 0).all()
        assert not gradient(x).any()

    @given(
        n=st.integers(1, 270),
        steps=st.integers(1, 5),
        batch=st.integers(1, 4),
        activation=st.sampled_from([TANH, RELU, MODRELU]),
        step_size=st.sampled_from([None, 0.3]),
        bias=st.booleans(),
        traced=st.booleans(),
    )
    @settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def test_random_shapes_match(self, n: int, activation: Activation, **options: Any) -> None:
        plain(n, activation, **options).check()

    @pytest.mark.parametrize("n", [20, 257])
    def test_strided_inputs_match(self, n: int) -> None:
        case = plain(n, TANH)
        contiguous = case.run(cuda, torch.float32, DEVICE)
        x, w, h0, b = case.whole
        strided = [x.movedim(0, 2).contiguous().movedim(2, 0), w.T.contiguous().T, h0.T.contiguous().T, b]
        case.tensors = [*strided]
        for a, e in zip(case.run(cuda, torch.float32, DEVICE), contiguous, strict=True):
            torch.testing.assert_close(a, e, rtol=0, atol=0)

    @pytest.mark.parametrize("bad", [float("nan"), float("inf")])
    @pytest.mark.parametrize("n", [18, pytest.param(170, marks=pytest.mark.slow), 258])
    @pytest.mark.parametrize("activation", ACTIVATIONS, ids=name)
    def test_nan_stays_in_its_sequence(self, activation: Activation, n: int, bad: float) -> None:
        """A NaN, or an infinity that the product meets twice, spoils its own sequence and no other."""
        if activation.kind is Kind.TANH and bad == float("inf"):
            pytest.skip("tanh maps infinity to 1")
        case = plain(n, activation, steps=3)
        x, w, h0, b = (t.to(DEVICE) for t in case.whole)
        x[0, 0, 3] = bad
        states, _ = run(x, w, h0, activation, b)
        assert states[2, 0].isnan().all()
        assert states[:, 1].isfinite().all()

    def test_only_requested_gradients_are_computed(self) -> None:
        x, w, h0, _ = (t.to(DEVICE) for t in plain(17, TANH).whole)
        w.requires_grad_()
        run(x, w, h0)[0].sum().backward()
        assert w.grad is not None
        assert x.grad is None

    @pytest.mark.parametrize("n", [17, 257])
    def test_long_sequence_stays_accurate(self, n: int) -> None:
        case = plain(n, TANH, steps=12, batch=1)
        actual = case.run(cuda, torch.float32, DEVICE)
        expected = case.run(reference, torch.float64, "cpu")
        baseline = case.run(reference, torch.float32, "cpu")
        for a, e, b in zip(actual, expected, baseline, strict=True):
            error = torch.linalg.vector_norm(a.cpu() - e)
            assert error < 3 * torch.linalg.vector_norm(b - e) + 1e-6 * torch.linalg.vector_norm(e)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["gpu and not slow", "gpu and slow"])
@pytest.mark.skipif(ON_GPU or INTERPRETED, reason="the kernels' tests run in this process")
def test_in_the_interpreter(which: str) -> None:
    run_interpreted(__file__, which)


def reason(operation: Any, x: Tensor, weight: Tensor, *parameters: Any) -> str | None:
    """The reason why the CUDA back end does not serve, with a state of zeros."""
    n = weight.shape[1]
    state = tuple(x.new_zeros(x.shape[1], n) for _ in operation.states)
    return cuda.unsupported(operation.call(x, weight, state, None, *parameters))


def test_cpu_tensors_are_refused_with_the_reason() -> None:
    assert "cpu" in str(reason(recurrence, torch.zeros(1, 1, 2), torch.zeros(2, 2), TANH))


@pytest.mark.gpu
@pytest.mark.skipif(not ON_GPU, reason="no GPU")
def test_unsupported_calls_on_a_gpu_state_the_reason() -> None:
    x, w = torch.zeros(1, 1, 2, device="cuda"), torch.zeros(2, 2, device="cuda")
    assert reason(recurrence, x, w, TANH) is None
    assert reason(recurrences.lstm, x.repeat(1, 1, 4), w.repeat(4, 1)) is None
    assert "candidate" in str(reason(recurrences.gru, x.repeat(1, 1, 3), w.repeat(3, 1), None, True, MODRELU))
    assert "float64" in str(reason(recurrence, x.double(), w.double(), TANH))
    assert "slope" in str(reason(recurrence, x, w, Activation(Kind.LEAKY_RELU, slope=0.0)))


@pytest.mark.gpu
@pytest.mark.skipif(not ON_GPU, reason="no GPU")
@pytest.mark.parametrize("n", [170, 300])
def test_results_match_in_a_cuda_graph(n: int) -> None:
    case = plain(n, TANH, steps=5, batch=8)
    x, w, h0, b = (t.to("cuda").requires_grad_() for t in case.whole)

    def step() -> tuple[Tensor, ...]:
        return torch.autograd.grad(run(x, w, h0, TANH, b)[0].sum(), (x, w, h0, b))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        expected = step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        actual = step()
    graph.replay()
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e)
