"""The CUDA C++ row kernels without a GPU: their numbers and races by emulation, and what the compiler makes of them.

g++ compiles the same source with a thread for each CUDA thread. NVRTC comes with torch for CUDA; cuobjdump with Triton.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from support.emulation import NO_WAITS, emulate, emulated, runner, sanitizes
from support.machine_code import check_limits, machine_code
from torch import Tensor

from orthobench.recurrence import (
    IDENTITY,
    LEAKY_RELU,
    MODRELU,
    RELU,
    TANH,
    Activation,
    Kind,
    comparison,
    lstm,
    recurrence,
    reference,
)
from orthobench.recurrence.cuda import backend as cuda
from orthobench.recurrence.cuda import nvrtc, nvrtc_row, self_test, verdicts
from orthobench.recurrence.kernels import Arguments, Tape

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Case:
    activation: Activation
    n: int
    step_size: float | None = None
    final: bool = False
    steps: int = 4
    batch: int = 2


def title(form: Case) -> str:
    """The form as a test's name."""
    euler, final = "" if form.step_size is None else "-euler", "-final" if form.final else ""
    return f"{form.activation.kind}-{form.n}{euler}{final}"


CASES = [
    Case(MODRELU, 170),
    Case(MODRELU, 192, final=True),
    Case(Activation(Kind.MODRELU, epsilon=0.01), 64, step_size=0.3),
    Case(TANH, 116),
    Case(TANH, 65, step_size=0.1, final=True),
    Case(RELU, 33, steps=1),
    Case(LEAKY_RELU, 129, steps=2, batch=1),
    Case(IDENTITY, 1, steps=3),
]


def parts(form: Case) -> tuple[dict[str, Any], list[Tensor]]:
    """The scalars of a case, and x, W, h_0 and b away from the kinks."""
    parameters = {"activation": form.activation, "step_size": form.step_size}
    x, *others = self_test.problem(recurrence, parameters | {"bias": torch.empty(form.n)}, form.n, form.batch)
    return parameters, [x.repeat(-(-form.steps // len(x)), 1, 1)[: form.steps], *others]


@emulated
@pytest.mark.parametrize("form", [CASES[0], CASES[4]], ids=title)
def test_runs_in_one_launch_have_the_bits_that_they_have_alone(form: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run has its own matrix, bias, inputs and gradients."""
    emulate(monkeypatch)
    parameters, arguments = parts(form)
    direction = comparison.normal(form.steps, form.batch, form.n, seed=5)
    both = [torch.stack((each, each.flip(0).mul(0.9))).float() for each in (*arguments, direction)]

    def passes(x: Tensor, weight: Tensor, h0: Tensor, bias: Tensor, gradient: Tensor) -> list[Tensor]:
        inputs = Arguments(weight, (h0,), {**parameters, "bias": bias})
        states, saved = nvrtc_row.Row.forward(x, inputs, True)
        last = gradient.select(-3, 0).contiguous()
        tape = Tape(states, saved, None if form.final else gradient, (last if form.final else None,), (), True)
        gradients = nvrtc_row.Row.backward(inputs, tape)
        values = (states[0], gradients.x, gradients.weight, gradients.state[0], gradients.parameters["bias"])
        return [each for each in values if each is not None]

    together = passes(*both)
    assert len(together) == 5
    for run in range(2):
        alone = passes(*(each[run].contiguous() for each in both))
        assert all(torch.equal(each[run], own) for each, own in zip(together, alone, strict=True))


@emulated
@pytest.mark.parametrize("form", CASES, ids=title)
def test_values_and_gradients_are_the_references(form: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch)
    parameters, arguments = parts(form)

    def evaluate(run: self_test.Run, dtype: torch.dtype) -> dict[str, Tensor]:
        return comparison.evaluate(run, recurrence, parameters, ("bias",), arguments, dtype, traced=not form.final)

    actual = evaluate(runner(nvrtc_row.Row), torch.float32)
    expected = evaluate(reference.run, torch.float64)
    errors = {name: comparison.distance(actual[name], value) for name, value in expected.items()}
    assert {name: error for name, error in errors.items() if not error < 1e-6} == {}


@emulated
def test_no_thread_reads_what_another_writes_between_barriers(monkeypatch: pytest.MonkeyPatch) -> None:
    if not sanitizes():
        pytest.skip("g++ has no thread sanitizer that runs here")
    parameters, arguments = parts(Case(MODRELU, 70, steps=3, batch=1))
    for options, is_sound in (((), True), (NO_WAITS, False)):
        emulator = emulate(monkeypatch, "-fsanitize=thread", *options)
        comparison.evaluate(runner(nvrtc_row.Row), recurrence, parameters, ("bias",), arguments, torch.float32, True)
        assert ("data race" not in emulator.errors) == is_sound, emulator.errors[:2000]
        assert len(emulator.launches) == 2


@pytest.fixture(scope="session")
def _nvrtc() -> None:
    try:
        nvrtc.library()
    except nvrtc.NvrtcError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("_nvrtc")
@pytest.mark.parametrize("name", ["row_forward", "row_backward"])
@pytest.mark.parametrize("activation", [MODRELU, TANH], ids=lambda activation: activation.kind)
@pytest.mark.parametrize(("n", "instructions"), [(116, 145), (170, 215), (190, 230)])
def test_a_step_is_short_and_spills_nothing(
    n: int, instructions: int, activation: Activation, name: str, tmp_path: Path
) -> None:
    """Triton's kernel has 269 instructions and 8 barriers at n = 170."""
    macros = nvrtc_row.constants(activation, n, False, False, False)
    kernel = machine_code(nvrtc_row.SOURCE, name, macros, tmp_path)
    check_limits(kernel, nvrtc_row.THREADS)
    assert kernel.registers <= 200
    assert kernel.loop["BAR"] == 1
    assert kernel.loop["SHFL"] == 3
    assert sum(kernel.loop.values()) <= instructions
    products = -(-n // 64) * 4 * -(-n // 16)
    assert products <= kernel.loop["FFMA"] <= products + 12


@pytest.mark.usefixtures("_nvrtc")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_it_compiles_for_every_architecture(architecture: str) -> None:
    macros = nvrtc_row.constants(LEAKY_RELU, 192, True, True, True)
    assert nvrtc.compile_source(nvrtc_row.SOURCE.read_text(), "row.cu", architecture, macros)[:4] == b"\x7fELF"


@pytest.mark.usefixtures("_nvrtc")
def test_a_refusal_has_the_compilers_words() -> None:
    with pytest.raises(nvrtc.NvrtcError, match=r"NVRTC refuses bad.cu: .*undefined"):
        nvrtc.compile_source("__global__ void f() { nothing(); }", "bad.cu", "sm_90", {})


def test_without_nvrtc_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(nvrtc.ctypes, "CDLL", missing)
    nvrtc.library.cache_clear()
    try:
        with pytest.raises(nvrtc.NvrtcError, match="it comes with torch for CUDA"):
            nvrtc.library()
    finally:
        nvrtc.library.cache_clear()


def call(n: int, activation: Activation = TANH) -> Any:
    x, weight = torch.empty(1, 2, n), torch.empty(n, n)
    return recurrence.call(x, weight, (torch.empty(2, n),), None, activation)


def test_it_serves_what_it_has() -> None:
    assert nvrtc_row.serves(call(192))
    assert not nvrtc_row.serves(call(193))
    assert not nvrtc_row.serves(call(64, Activation(Kind.COMPLEX_MODRELU, epsilon=0.01)))
    weight = torch.empty(16, 4)
    assert not nvrtc_row.serves(lstm.call(torch.empty(1, 2, 16), weight, (torch.empty(2, 4), torch.empty(2, 4))))


def test_it_is_chosen_only_after_its_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's kernel stays where this one fails, and where both fail the reason is Triton's."""
    tested: list[str] = []
    failing: set[str] = set()

    def failure(call: Any, run: Any, kernels: str) -> str | None:
        tested.append(kernels)
        return f"{kernels} fails" if kernels in failing else None

    monkeypatch.setattr(verdicts, "failure", failure)
    assert cuda.unusable(call(64)) is None
    assert tested == ["nvrtc"], "Triton's kernel needs no test where it does not run"
    failing.add("nvrtc")
    assert cuda.unusable(call(64)) is None
    assert tested[1:] == ["nvrtc", "triton"], "Triton's kernel stays"
    failing.add("triton")
    assert cuda.unusable(call(64)) == "triton fails"
    assert tested[-1] == "triton"
    assert cuda.unusable(call(300)) == "triton fails"
    assert tested[-2:] == ["triton", "triton"], "there is no kernel for 300 features"


def test_it_never_serves_untested(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(cuda.runs(call(64))) == ["nvrtc", "triton"]
    monkeypatch.setenv(verdicts.SWITCH, "off")
    assert list(cuda.runs(call(64))) == ["triton"]
