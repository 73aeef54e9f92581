"""The CUDA C++ row kernels without a GPU: their numbers and races by emulation, and what the compiler makes of them.

g++ compiles the same source with a thread for each CUDA thread. NVRTC comes with torch for CUDA; cuobjdump with Triton.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from orthobench.recurrence import (
    IDENTITY,
    LEAKY_RELU,
    MODRELU,
    RELU,
    TANH,
    Activation,
    GradientTrace,
    Kind,
    comparison,
    cuda,
    lstm,
    nvrtc,
    nvrtc_row,
    recurrence,
    reference,
    self_test,
    verdicts,
)

SUPPORT = Path(__file__).parents[1] / "support"
COMPILER = shutil.which("g++")
emulated = pytest.mark.skipif(COMPILER is None, reason="no g++")


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


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function that compiles the emulation of a case, with further options."""

    def compile_case(case: Case, *options: str) -> Path:
        target = tmp_path_factory.mktemp("emulation") / "row"
        macros = nvrtc_row.constants(case.activation, case.n, case.step_size is not None, case.final, True)
        subprocess.run(
            [
                *(str(COMPILER), "-std=c++20", "-O1", "-pthread", "-Wno-unknown-pragmas", *options),
                *(f"-D{name}={value}" for name, value in macros.items()),
                *(f'-DROW_SOURCE="{nvrtc_row.SOURCE}"', str(SUPPORT / "row_emulation.cpp"), "-o", str(target)),
            ],
            check=True,
        )
        return target

    return compile_case


def emulate(program: Path, case: Case, arrays: Sequence[Tensor], runs: int = 1) -> subprocess.CompletedProcess[bytes]:
    scalars = (case.step_size or 0.0, case.activation.slope, case.activation.epsilon)
    command = [program, *map(str, (case.steps, case.batch, case.n, *scalars, runs))]
    content = b"".join(array.float().numpy().tobytes() for array in arrays)
    return subprocess.run(command, input=content, capture_output=True, check=False, timeout=300)


def problem(case: Case) -> tuple[list[Tensor], Tensor]:
    """x, W, h_0 and b away from the kinks, and the gradient of the states or of the last one, in float64."""
    parameters = {"activation": case.activation, "bias": torch.empty(case.n), "step_size": case.step_size}
    x, weight, h0, bias = self_test.problem(recurrence, parameters, case.n, case.batch)
    x = x.repeat(-(-case.steps // len(x)), 1, 1)[: case.steps]
    shape = (case.batch, case.n) if case.final else (case.steps, case.batch, case.n)
    return [x, weight, h0, bias], comparison.normal(*shape, seed=5)


def expected(case: Case) -> dict[str, Tensor]:
    arguments, direction = problem(case)
    x, weight, h0, bias = (argument.requires_grad_() for argument in arguments)
    trace = GradientTrace()
    states, (last,) = reference.run(recurrence.call(x, weight, (h0,), trace, case.activation, bias, case.step_size))
    dx, dh0, dbias = torch.autograd.grad(last if case.final else states, (x, h0, bias), direction)
    return {"states": states.detach(), "dx": dx, "dh0": dh0, "dbias": dbias, "norms": trace.norms["h"]}


def results(case: Case, output: bytes) -> dict[str, Tensor]:
    values = torch.from_numpy(np.frombuffer(output, np.float32).astype(np.float64))
    rows, every = (case.batch, case.n), (case.steps, case.batch, case.n)
    shapes = {"states": every, "dx": every, "dh0": rows, "dbias": rows, "total": every}
    parts = values.split([int(np.prod(shape)) for shape in shapes.values()])
    by_name = {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
    by_name["dbias"] = by_name["dbias"].sum(0)
    by_name["norms"] = by_name.pop("total").norm(dim=-1)
    return by_name


@emulated
@pytest.mark.parametrize("form", [CASES[0], CASES[4]], ids=title)
def test_runs_in_one_launch_have_the_bits_that_they_have_alone(form: Case, build: Callable[..., Path]) -> None:
    """Each run has its own matrix, bias, inputs and gradients."""
    arguments, direction = problem(form)
    first = [*(a.detach() for a in arguments), direction]
    both = [torch.stack((each, each.flip(0).mul(0.9))) for each in first]
    program = build(form)
    together = np.frombuffer(emulate(program, form, both, runs=2).stdout, np.float32)
    alone = [np.frombuffer(emulate(program, form, [each[run] for each in both]).stdout, np.float32) for run in (0, 1)]
    sizes = [form.steps, form.steps, 1, 1, form.steps]  # of the states, dx, dh0, dbias and the total, in slabs
    at = np.cumsum(sizes)[:-1] * form.batch * form.n
    for actual, *expected in zip(np.split(together, 2 * at), *(np.split(each, at) for each in alone), strict=True):
        assert np.array_equal(actual, np.concatenate(expected))


def sanitizes(folder: Path) -> bool:
    """Whether a program with the thread sanitizer can be made and run."""
    source, program = folder / "empty.cpp", folder / "empty"
    source.write_text("int main() {}")
    build = subprocess.run(
        [str(COMPILER), "-fsanitize=thread", source, "-o", program], capture_output=True, check=False
    )
    return build.returncode == 0 and subprocess.run([program], capture_output=True, check=False).returncode == 0


@emulated
@pytest.mark.parametrize("form", CASES, ids=title)
def test_values_and_gradients_are_the_references(form: Case, build: Callable[..., Path]) -> None:
    arguments, direction = problem(form)
    done = emulate(build(form), form, [*(a.detach() for a in arguments), direction])
    assert done.returncode == 0, done.stderr
    actual = results(form, done.stdout)
    errors = {name: comparison.distance(actual[name], value) for name, value in expected(form).items()}
    assert {name: error for name, error in errors.items() if not error < 1e-6} == {}


@emulated
@pytest.mark.parametrize("form", [Case(MODRELU, 70, steps=3, batch=1)], ids=title)
def test_no_thread_reads_what_another_writes_between_barriers(
    form: Case, build: Callable[..., Path], tmp_path: Path
) -> None:
    arguments, direction = problem(form)
    arrays = [*(a.detach() for a in arguments), direction]
    if not sanitizes(tmp_path):
        pytest.skip("g++ has no thread sanitizer that runs here")
    done = emulate(build(form, "-fsanitize=thread"), form, arrays)
    assert done.returncode == 0, done.stderr.decode()[:2000]
    races = emulate(build(form, "-fsanitize=thread", "-DWITHOUT_BARRIERS"), form, arrays)
    assert b"data race" in races.stderr, "the sanitizer sees a missing barrier"


@pytest.fixture(scope="session")
def _nvrtc() -> None:
    try:
        nvrtc.library()
    except nvrtc.NvrtcError as error:
        pytest.skip(str(error))


@dataclass
class Compiled:
    """What the compiler made of one kernel; `loop` counts the instructions of a step."""

    registers: int
    spilled: int
    loop: Counter[str]


def compiled(name: str, macros: dict[str, int], folder: Path) -> Compiled:
    triton = pytest.importorskip("triton")
    bundled = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    cuobjdump = str(bundled) if bundled.exists() else shutil.which("cuobjdump")
    if cuobjdump is None:
        pytest.skip("cuobjdump is neither in Triton's wheel nor installed")
    file = folder / "row.cubin"
    file.write_bytes(nvrtc.compile_source(nvrtc_row.SOURCE.read_text(), "row.cu", "sm_90", macros))

    def dump(*options: str) -> str:
        return subprocess.run([cuobjdump, *options, file], capture_output=True, text=True, check=True).stdout

    usage = re.search(rf"Function {name}:\s+REG:(\d+) STACK:(\d+)", dump("-res-usage"))
    assert usage is not None
    text = dump("-sass", "-fun", name)
    instructions = [(int(at, 16), line.strip()) for at, line in re.findall(r"/\*([0-9a-f]{4,})\*/\s+(.*?);", text)]
    bodies = []
    for at, line in instructions:
        jump = re.search(r"\bBRA\b.*0x([0-9a-f]+)", line)
        if jump and int(jump[1], 16) < at:
            inside = [line for other, line in instructions if int(jump[1], 16) <= other <= at]
            bodies.append(Counter(re.sub(r"^@!?U?P\w+\s+", "", each).split()[0].split(".")[0] for each in inside))
    return Compiled(int(usage[1]), int(usage[2]), max(bodies, key=lambda body: body["FFMA"]))


@pytest.mark.usefixtures("_nvrtc")
@pytest.mark.parametrize("name", ["row_forward", "row_backward"])
@pytest.mark.parametrize("activation", [MODRELU, TANH], ids=lambda activation: activation.kind)
@pytest.mark.parametrize(("n", "instructions"), [(116, 145), (170, 215), (190, 230)])
def test_a_step_is_short_and_spills_nothing(
    n: int, instructions: int, activation: Activation, name: str, tmp_path: Path
) -> None:
    """Triton's kernel has 269 instructions and 8 barriers at n = 170."""
    kernel = compiled(name, nvrtc_row.constants(activation, n, False, False, False), tmp_path)
    assert kernel.spilled == 0
    assert kernel.registers * nvrtc_row.THREADS <= 65536
    assert kernel.registers <= 200
    assert kernel.loop["BAR"] == 1
    assert kernel.loop["SHFL"] == 3
    assert kernel.loop["LDL"] == kernel.loop["STL"] == 0
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
