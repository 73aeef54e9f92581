"""Every operation with every setting, and how a back end is held against the definition in float64."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
import torch
from support import kernels
from support.definition import cast
from torch import Tensor

from orthobench.recurrence import IDENTITY, RELU, TANH, Activation, GradientTrace, Kind, reference, workspace
from orthobench.recurrence.call import Call
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.cpu import native as cpu
from orthobench.recurrence.cpu.dense import OperationKernel
from orthobench.recurrence.kernels import find
from orthobench.recurrence.ops import operations
from orthobench.recurrence.ops.sparse import SparseLayers

EPSILON = {Kind.COMPLEX_MODRELU: 0.01, Kind.COMPLEX_MODRELU_SMOOTH: 1e-5}


@dataclass(frozen=True)
class Case:
    """One operation with its settings."""

    name: str
    op: str
    activation: Activation | None = None
    step_size: float | None = None
    has_bias: bool = False
    reset_after: bool = False
    is_complex: bool = False
    per_step: bool = False
    positive: bool = True
    corrections: int = 1
    parameters: tuple[float, ...] = ()

    @property
    def operation(self) -> Any:
        return next(each for each in operations() if each.name == self.op)

    @property
    def gates(self) -> int:
        gates: int = self.operation.gates
        return gates

    @property
    def states(self) -> tuple[str, ...]:
        """The names of its states in a trace."""
        return "h", *self.operation.states[1:]

    def layers(self, n: int) -> SparseLayers:
        """Two layers for n features, of three and of two taps, one of which reads its units in a random order."""
        units = torch.arange(n // 2 if self.is_complex else n)
        order = torch.randperm(len(units), generator=torch.Generator().manual_seed(0))
        index = torch.stack((units.roll(1), units, order)), torch.stack((order, units.flip(0)))
        return SparseLayers(index, self.is_complex)

    @property
    def has_memory(self) -> bool:
        """Whether the state is a matrix, which each step's output is read from."""
        return self.op == "delta_rule"

    def features(self, n: int) -> int:
        """The nearest size from n up that the case takes."""
        return (
            n + n % 2 if self.has_memory or self.is_complex or (self.activation and self.activation.is_complex) else n
        )

    def arguments(self, steps: int, batch: int, n: int, seed: int) -> list[Any]:
        """x, the weight, the initial states and the operation's parameters; tensors in float64."""
        n = self.features(n)
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        if self.has_memory:  # a head with 2 keys: a query, and a key and a value for each correction
            x, betas = normal(steps, batch, 2 + self.corrections * (2 + n // 2)), normal(steps, batch, self.corrections)
            weight = torch.cat((2 * betas.sigmoid(), -normal(steps, batch, 1).exp()), dim=-1)
            return [x, weight, normal(batch, n), 1, 2, self.corrections, True, 1e-6]
        x = normal(steps, batch, self.gates * n)
        if self.op in ("diagonal_recurrence", "independent_recurrence"):
            weight = 0.8 * normal(*((steps, batch, n) if self.per_step else (n,))).tanh()
        elif self.op in ("min_gru", "min_lstm", "oscillators"):
            weight = 0.5 * normal(n * self.operation.rows)
        elif self.op == "sparse_recurrence":
            weight = 0.5 * normal(5, n)
        else:
            weight = normal(*self.operation.matrix_shape(n, {})) / n**0.5
        arguments: list[Any] = [x, weight, *(normal(batch, n) for _ in self.states)]
        match self.op:
            case "recurrence":
                assert self.activation is not None
                # The complex kinds' gradients have condition numbers up to |b| / |z|^2.
                scale = 0.1 if self.activation.is_complex else 0.5
                bias = scale * normal(self.activation.bias_size(n)) if self.has_bias else None
                arguments += [self.activation, bias, self.step_size]
            case "sparse_recurrence":
                assert self.activation is not None
                scale = 0.1 if self.activation.is_complex else 0.5
                bias = scale * normal(self.activation.bias_size(n)) if self.has_bias else None
                arguments += [self.layers(n), self.activation, bias]
            case "independent_recurrence":
                arguments += [self.activation]
            case "diagonal_recurrence":
                arguments += [self.is_complex]
            case "min_gru" | "min_lstm":
                arguments += [self.positive]
            case "gru":
                activation = self.activation or TANH
                inner = normal(n) if self.has_bias and self.reset_after else None
                outer = 0.5 * normal(n) if self.has_bias and self.activation else None
                arguments += [inner, self.reset_after, activation, outer]
            case _:
                arguments += self.parameters
        return arguments

    @property
    def tolerance(self) -> float:
        """For float32; the complex kinds are worse conditioned near z = 0, which `margin` keeps at a distance."""
        return 2e-5 if self.activation and self.activation.is_complex else 5e-6

    def margin(self, arguments: list[Any]) -> float:
        """Distance of the closest pre-activation to a place where the derivative jumps or is ill conditioned."""
        if self.activation is None:
            return float("inf")
        z, activation, bias = self._activated(arguments)
        shift = 0 if bias is None else bias
        match activation.kind:
            case Kind.RELU | Kind.LEAKY_RELU:
                distance = (z + shift).abs()
            case Kind.MODRELU:
                distance = torch.minimum(z.abs(), (z.abs() + activation.epsilon + shift).abs())
            case Kind.COMPLEX_MODRELU | Kind.COMPLEX_MODRELU_SMOOTH:
                size = z.unflatten(-1, (-1, 2)).norm(dim=-1)
                smooth = activation.kind is Kind.COMPLEX_MODRELU_SMOOTH
                modulus = (size.square() + activation.epsilon).sqrt() if smooth else size + activation.epsilon
                distance = torch.minimum(size / 1000, (modulus + shift).abs())
            case _:
                return float("inf")
        return float(distance.min())

    def _activated(self, arguments: list[Any]) -> tuple[Tensor, Activation, Tensor | None]:
        """All steps' pre-activations, what they go through, and its bias."""
        x, weight, h0, *rest = arguments
        states, _ = reference.run(call_of(self, arguments))
        before = torch.cat((h0[None], states[:-1]))
        if self.op == "recurrence":
            activation, bias, _ = rest
            return x + before @ weight.T, activation, bias
        if self.op == "independent_recurrence":
            return x + before * weight, rest[0], None
        if self.op == "sparse_recurrence":
            layers, activation, bias = rest
            return x + torch.stack([layers.apply(weight, each) for each in before]), activation, bias
        inner, reset_after, activation, bias = rest
        (w_r, _, w_g), (x_r, _, x_g) = weight.chunk(3), x.chunk(3, dim=-1)
        r = (x_r + before @ w_r.T).sigmoid()
        shift = 0 if inner is None else inner
        return x_g + (r * (before @ w_g.T + shift) if reset_after else (r * before) @ w_g.T), activation, bias


def _cases() -> Iterator[Case]:
    activations = [Activation(kind, epsilon=EPSILON.get(kind, 0.0)) for kind in Kind]
    for activation in (*activations, Activation(Kind.MODRELU, epsilon=0.01)):
        for step_size in (None, 0.1):
            for has_bias in (False, True):
                extras = ("" if step_size is None else "-euler") + ("-bias" if has_bias else "")
                name = f"{activation.kind}{'-epsilon' if activation.epsilon else ''}{extras}"
                yield Case(name, "recurrence", activation, step_size, has_bias)
    for operation in operations():
        if issubclass(find(operation, "cpu") or object, OperationKernel) and operation.name != "gru":
            for k, form in enumerate(operation.forms(1) if operation.forms else ()):
                name = f"{operation.name}-{k}" if k else operation.name
                yield Case(name, operation.name, parameters=(*form.parameters.values(),))
    yield Case("gru", "gru")
    yield Case("gru-after", "gru", reset_after=True)
    yield Case("gru-after-bias", "gru", reset_after=True, has_bias=True)
    modrelu = Activation(Kind.MODRELU, epsilon=0.001)
    yield Case("gru-modrelu", "gru", modrelu, has_bias=True)
    yield Case("gru-after-modrelu", "gru", modrelu, reset_after=True)
    yield Case("gru-after-modrelu-bias", "gru", modrelu, reset_after=True, has_bias=True)
    for is_complex in (False, True):
        for per_step in (False, True):
            name = f"diagonal{'-complex' * is_complex}{'-per-step' * per_step}"
            yield Case(name, "diagonal_recurrence", is_complex=is_complex, per_step=per_step)
    for activation in (IDENTITY, RELU, TANH):
        for per_step in (False, True):
            name = f"independent-{activation.kind}{'-per-step' * per_step}"
            yield Case(name, "independent_recurrence", activation, per_step=per_step)
    for activation in activations:
        is_complex = activation.is_complex or activation.kind is Kind.TANH
        yield Case(
            f"sparse-{activation.kind}",
            "sparse_recurrence",
            activation,
            has_bias=activation.is_complex,
            is_complex=is_complex,
        )
    for op in ("min_gru", "min_lstm"):
        yield Case(f"{op}-positive", op)
        yield Case(op, op, positive=False)
    yield Case("oscillators", "oscillators")
    for corrections in (1, 2):
        yield Case(f"delta_rule-{corrections}", "delta_rule", corrections=corrections)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", list(_cases()), ids=lambda case: case.name)


def call_of(case: Any, arguments: list[Any], trace: GradientTrace | None = None) -> Call:
    """The operation's call with these arguments."""
    operation: Any = next(each for each in operations() if each.name == case.op)  # of any case with the name of one
    x, weight, *rest = arguments
    width = len(operation.states)
    called: Call = operation.call(x, weight, tuple(rest[:width]), trace, *rest[width:])
    return called


def run(module: ModuleType, case: Any, arguments: list[Any], seed: int = 0) -> dict[str, Tensor]:
    """Outputs and final states, gradients of a random linear loss of them all, and gradient norms, by name."""
    arguments = [a.detach().clone().requires_grad_() if isinstance(a, Tensor) else a for a in arguments]
    trace = GradientTrace()
    outputs, final = module.run(call_of(case, arguments, trace))
    results = (outputs, *final)
    generator = torch.Generator().manual_seed(seed)
    ways = [torch.randn(result.shape, generator=generator, dtype=torch.float64) for result in results]
    torch.autograd.backward(results, [way.to(result) for way, result in zip(ways, results, strict=True)])
    result = {f"output {i}": output.detach() for i, output in enumerate(results)}
    result |= {f"gradient {i}": a.grad for i, a in enumerate(arguments) if isinstance(a, Tensor) and a.grad is not None}
    return result | {f"norms of {state}": norms for state, norms in trace.norms.items()}


def distances(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """Relative Frobenius distance of each tensor, with a floor for sums that cancel."""
    assert actual.keys() == expected.keys()
    result = {}
    for name, value in expected.items():
        assert actual[name].shape == value.shape
        scale = float(value.norm()) + 0.1 * max(1, value.numel()) ** 0.5
        result[name] = float((actual[name].double() - value.double()).norm()) / scale
    return result


@pytest.fixture(scope="session")
def case_named() -> Callable[[str], Case]:
    cases = {case.name: case for case in _cases()}
    return cases.__getitem__


@pytest.fixture(scope="session")
def evaluate() -> Callable[..., dict[str, Tensor]]:
    return run


@pytest.fixture(scope="session")
def call() -> Callable[..., Call]:
    return call_of


@pytest.fixture(scope="session")
def agree() -> Callable[..., None]:
    """Fail unless the module gives what the reference gives in float64, to `tolerance`."""

    def check(module: ModuleType, case: Any, arguments: list[Any], dtype: torch.dtype, tolerance: float) -> None:
        # Both start from the numbers that the narrower type can hold.
        arguments = cast(cast(arguments, dtype), torch.float64)
        expected = run(reference, case, arguments)
        actual = run(module, case, cast(arguments, dtype))
        wrong = {name: d for name, d in distances(actual, expected).items() if not d <= tolerance}
        assert not wrong, wrong

    return check


@pytest.fixture
def runs_in_c(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail unless the passes over float32 of the test run in C, and not in torch, their fallback."""
    if call_c.missing():
        pytest.skip("no C compiler (Debian: gcc, libc6-dev)")
    serves, answers = call_c.serves, []

    def noting(layout: str, *tensors: Tensor | None) -> bool:
        answer = serves(layout, *tensors)
        if any(tensor is not None and tensor.dtype is torch.float32 for tensor in tensors):
            answers.append(answer)
        return answer

    monkeypatch.setattr(call_c, "serves", noting)
    yield
    assert answers, "the test calls no pass over float32 that a C kernel could serve"
    assert all(answers), "a pass over float32 ran in torch"


@pytest.fixture(scope="session", autouse=True)
def _poison() -> Iterator[None]:
    """Uninitialised memory holds NaN: what is read before it is written shows."""
    take, empty, empty_like, new_empty = workspace.take, torch.empty, torch.empty_like, Tensor.new_empty

    def poisoned(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(*args: Any, **kwargs: Any) -> Tensor:
            result = function(*args, **kwargs)
            return result.fill_(torch.nan) if result.is_floating_point() and not result.requires_grad else result

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workspace, "take", poisoned(take))
        patch.setattr(torch, "empty", poisoned(empty))
        patch.setattr(torch, "empty_like", poisoned(empty_like))
        patch.setattr(Tensor, "new_empty", poisoned(new_empty))
        yield


@pytest.fixture
def restored_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def same_with_threads(restored_threads: None) -> Callable[..., None]:
    """Fail unless the C kernels give the same numbers in float32 with one, two and three threads."""

    def check(case: Any, arguments: list[Any]) -> None:
        results = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(run(cpu, case, cast(arguments, torch.float32)))
        for result in results[1:]:
            assert all(torch.equal(value, results[0][name]) for name, value in result.items())

    return check


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.slow) for name in ("avx2", "scalar")])
def lesser_machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """C kernels that are built for a machine without AVX-512, or without vector instructions."""
    if platform.machine() != "x86_64":
        pytest.skip("the flags are x86's")
    yield from _library("-DCACHED=0", variant={"avx2": "x86-64-v3", "scalar": "x86-64"}[request.param])


@pytest.fixture(scope="module")
def no_cache() -> Iterator[None]:
    """C kernels that take no tensor for one that the caches hold."""
    yield from _library("-DCACHED=0")


def _library(*flags: str, variant: str | None = None) -> Iterator[None]:
    library = kernels.library(*flags, variant=variant)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(call_c, "kernels", lambda: library)
        yield
