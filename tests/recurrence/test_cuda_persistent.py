"""The CUDA C++ kernels on the CPU: values, gradients and gradient norms in the emulator, against float64.

Each form runs with clusters or without, with several rows and groups of rows, and with sizes that are no multiples of a
warp's. NVRTC compiles the plans of the sizes in use for a GPU that is not there.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support import emulation

from orthobench.recurrence import kernel_case, kernels, reference
from orthobench.recurrence.call import Form, Projection
from orthobench.recurrence.cuda import nvrtc, plans, self_test
from orthobench.recurrence.cuda.persistent import PersistentKernel
from orthobench.recurrence.operation import resolved
from orthobench.recurrence.ops import operations
from orthobench.recurrence.ops.lstm import lstm

TOLERANCE = 2e-6
"""Ten times the rounding of these few steps in float32. A wrong term is orders above it."""


def of_clusters(size: int, count: int) -> plans.GPU:
    """A GPU that runs only clusters of this size, and this many of them at the same time."""
    return plans.GPU(90, {size: count}, 232448)


@dataclass(frozen=True)
class Case:
    """A form of an operation by its place in the declaration, its sizes, and the emulated GPU; None for a real one."""

    op: str
    form: int
    n: int
    batch: int
    steps: int
    device: plans.GPU | None
    traced: bool = True


def parts(case: Case) -> tuple[Any, Form, dict[str, Any]]:
    (operation,) = [each for each in operations() if each.name == case.op]
    form = list(operation.forms(case.n))[case.form]  # type: ignore[misc]
    vectors = {name: torch.empty(size) for name, size in form.vectors.items()}
    return operation, form, operation.bind(None, **form.parameters, **vectors)


def errors(case: Case) -> dict[str, float]:
    operation, form, parameters = parts(case)
    place = "cuda" if case.device is None else "cpu"
    problem = self_test.problem(operation, parameters, case.n, case.batch, case.steps)
    arguments = [each.to(place) for each in problem]
    options = (operation, form.parameters, tuple(form.vectors), arguments)
    expected = kernel_case.evaluate(reference.run, *options, torch.float64, case.traced)
    kernel = kernels.find(operation, "cuda")
    assert kernel is not None
    with nullcontext() if case.device is None else emulation.emulated(case.device):
        if case.device is None:  # in the memory that the results reuse, so that one that no kernel writes is seen
            torch.full((1 << 26,), torch.nan, device=place)
        actual = kernel_case.evaluate(kernel.run, *options, torch.float32, case.traced)
    return {name: kernel_case.distance(actual[name], value) for name, value in expected.items()}


BY_FORM = ("recurrence", "gru", "lstm", "slstm", "independent_recurrence")
"""Cells of which several forms, or sizes of their own, are tested."""
OTHERS = sorted(
    each.name
    for each in operations()
    if issubclass(kernels.find(each, "cuda") or object, PersistentKernel) and each.name not in BY_FORM
)

ALONE, PAIRS, FOURS = of_clusters(1, 4), of_clusters(2, 2), of_clusters(4, 1)
QUICK = [
    Case("lstm", 0, 20, 3, 3, PAIRS),
    Case("gru", 0, 20, 2, 3, ALONE),
    Case("recurrence", 17, 20, 5, 3, of_clusters(2, 1)),
    Case("recurrence", 20, 40, 5, 3, ALONE),
]
SLOW = [
    *(Case("recurrence", form, 30, 3, 3, ALONE if form % 3 else PAIRS, form % 2 == 0) for form in range(28)),
    *(Case("gru", form, 30, 3, 3, device) for form in range(4) for device in (ALONE, PAIRS)),
    *(Case("lstm", 0, n, batch, 3, device) for n, batch, device in ((30, 1, ALONE), (60, 9, FOURS), (62, 5, PAIRS))),
    *(Case("slstm", form, 60, 3, 4, device) for form in (0, 1) for device in (ALONE, PAIRS)),
    *(Case(op, 0, 30, 3, 3, device) for op in OTHERS for device in (ALONE, PAIRS)),
    *(Case(op, 0, 60, 9, 2, FOURS, traced=False) for op in OTHERS),
    *(Case("independent_recurrence", form, 30, 3, 11, ALONE) for form in range(3)),
    *(Case(op, 0, 20, 1, 1, PAIRS, traced=False) for op in ("lstm", "gru", "lem", "slstm", "recurrence")),
    Case("lstm", 0, 20, 3, 3, emulation.WITHOUT_CLUSTERS),
]


def name_of(case: Case) -> str:
    sizes = "" if case.device is None else "-".join(str(size) for size in case.device.clusters)
    return f"{case.op}-{case.form}-n{case.n}-B{case.batch}-T{case.steps}-cluster{sizes}"


@pytest.mark.parametrize(
    "problem", [*QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)], ids=name_of
)
def test_kernels_agree_with_float64(problem: Case) -> None:
    wrong = {name: error for name, error in errors(problem).items() if not error < TOLERANCE}
    assert not wrong, wrong


TIMED = ((128, 128), (128, 50), (256, 128), (350, 128), (512, 50), (20, 300))
"""Units and rows of the layers and models that are timed on a GPU, and of other clusters."""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize(("n", "batch"), TIMED)
@pytest.mark.parametrize(
    ("op", "form"), [("lstm", 0), ("gru", 1), ("recurrence", 4), ("recurrence", 17), ("lem", 0), ("slstm", 0)]
)
def test_kernels_of_large_sizes_agree_with_float64(op: str, form: int, n: int, batch: int) -> None:
    wrong = {name: error for name, error in errors(Case(op, form, n, batch, 10, None)).items() if not error < 3e-6}
    assert not wrong, wrong


def test_projection_agrees_with_float64_for_views() -> None:
    """The kernel's own projection, for inputs, weights and a state that are not contiguous, in another default type."""
    inputs, weight, bias = (kernel_case.normal(*sizes, seed=i) for i, sizes in enumerate(((2, 3, 5), (3, 80), (80,))))
    recurrent, h, c = (kernel_case.normal(*sizes, seed=3 + i) for i, sizes in enumerate(((20, 80), (20, 2), (20, 2))))
    results = []
    for dtype in (torch.float64, torch.float32):
        leaves = [each.to(dtype).requires_grad_() for each in (inputs, weight, bias, recurrent / 4, h, c)]
        u, matrix, b, w, h0, c0 = leaves
        x = Projection(u.permute(2, 0, 1), matrix.T, b)
        call = lstm.call(x, w.T, (h0.T, c0.T))
        if dtype == torch.float64:
            outputs, final = reference.run(replace(call, x=resolved(x)))
            gradients = torch.autograd.grad(_loss(outputs, final), leaves)
        else:
            torch.set_default_dtype(torch.float64)
            try:
                with emulation.emulated(PAIRS):
                    outputs, final = kernels.find(lstm, "cuda").run(call)  # type: ignore[union-attr]
                    gradients = torch.autograd.grad(_loss(outputs, final), leaves)
            finally:
                torch.set_default_dtype(torch.float32)
        results.append([outputs, *final, *gradients])
    for exact, actual in zip(*results, strict=True):
        assert actual.dtype == torch.float32
        assert kernel_case.distance(actual.detach(), exact.detach()) < TOLERANCE


def test_gradients_are_not_rounded_where_backward_runs_under_autocast() -> None:
    """A program may leave `loss.backward()` in its block of autocast, whose products would be in bfloat16."""
    leaves = [kernel_case.normal(*sizes, seed=i).float() for i, sizes in enumerate(((3, 2, 5), (80, 5), (80, 20)))]
    u, matrix, w = (each.requires_grad_() for each in leaves)
    results = []
    with emulation.emulated(PAIRS):
        for autocast in (False, True):
            call = lstm.call(Projection(u, matrix), w, (torch.zeros(2, 20), torch.zeros(2, 20)))
            outputs, final = kernels.find(lstm, "cuda").run(call)  # type: ignore[union-attr]
            loss = _loss(outputs, final)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                results.append(torch.autograd.grad(loss, leaves))
    for outside, inside in zip(*results, strict=True):
        assert torch.equal(outside, inside)


def _loss(outputs: torch.Tensor, final: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return outputs.square().sum() + sum((i + 2) * each.square().sum() for i, each in enumerate(final))


def test_damaged_kernel_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def compile_program(program: str, capability: int) -> tuple[bytes, str]:
        compiled.append(program)
        return f"code of {program}".encode(), ""

    monkeypatch.setenv("ORTHOBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(nvrtc, "compile_program", compile_program)
    monkeypatch.setattr(nvrtc, "_key", lambda program, capability: f"{program}-{capability}")
    nvrtc._folder.cache_clear()
    try:
        nvrtc.machine_code("a", 90)
        (file,) = tmp_path.rglob("*.cubin")
        whole = file.read_bytes()
        for damaged in (whole, b"", whole[:-1], whole.replace(b"code", b"mode"), b"\n".join((b"", whole))):
            compiled.clear()
            file.write_bytes(damaged)
            assert nvrtc.machine_code("a", 90) == b"code of a"
            assert len(compiled) == (damaged != whole)
            assert file.read_bytes() == whole
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file]
        file.parent.chmod(0o777)  # another user could have written the file
        nvrtc._folder.cache_clear()
        compiled.clear()
        nvrtc.machine_code("a", 90)
        assert compiled == ["a"]
    finally:
        nvrtc._folder.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize(("op", "form"), [("lstm", 0), ("recurrence", 17), ("recurrence", 20), ("lem", 0), ("gru", 0)])
@pytest.mark.parametrize("device", [PAIRS, ALONE], ids=["cluster2", "alone"])
def test_threads_have_no_races(op: str, form: int, device: plans.GPU) -> None:
    """ThreadSanitizer sees every access of a run with a thread for each CUDA thread."""
    operation, _, parameters = parts(Case(op, form, 20, 3, 3, device))
    kernel: Any = kernels.find(operation, "cuda")
    cells = kernel.cells(parameters)
    for direction in (cells.forward, cells.backward):
        plan = plans.plan(direction, 20, 1, 3, device)
        assert plan is not None
        assert not emulation.races(direction, plan, operation.sources, operation.rows, batch=3, steps=3)


def report(direction: plans.Direction, plan: plans.Plan, capability: int) -> tuple[int, int]:
    """Compile a plan; return the registers of a thread and the bytes that it spills."""
    try:
        _, text = nvrtc.compile_program(plans.source(direction, plan), capability)
    except nvrtc.UnavailableError as error:
        pytest.skip(f"no NVRTC: {error}")
    registers, spilled = re.search(r"Used (\d+) registers", text), re.search(r"(\d+) bytes spill stores", text)
    assert registers is not None
    assert spilled is not None
    return int(registers[1]), int(spilled[1])


# The sizes of the timed layers and models, and the bytes that a thread may spill.
SIZES = [
    ("lstm", 0, 128, 128, 0),
    ("gru", 1, 128, 128, 0),
    ("recurrence", 17, 128, 50, 0),
    ("recurrence", 17, 512, 50, 0),
]
MORE = [
    *(("lstm", 0, n, batch, 0) for n, batch in ((64, 50), (128, 50), (170, 50), (256, 128))),
    ("lstm", 0, 350, 128, 140),
    ("gru", 1, 350, 128, 48),
    *(("gru", form, n, batch, 0) for form in (0, 1) for n, batch in ((128, 50), (256, 128))),
    *(("recurrence", 5, n, batch, 0) for n, batch in ((60, 50), (170, 50), (256, 128), (360, 50), (512, 128))),
    *(("recurrence", form, 128, 50, 0) for form in range(0, 28, 3)),
    *((op, 0, n, 50, 0) for op in ("slstm", *OTHERS) for n in (128, 256)),
]


@pytest.mark.parametrize(
    ("op", "form", "n", "batch", "spilled"), [*SIZES, *(pytest.param(*each, marks=pytest.mark.slow) for each in MORE)]
)
def test_weights_fit_into_registers(op: str, form: int, n: int, batch: int, spilled: int) -> None:
    operation, _, parameters = parts(Case(op, form, n, batch, 1, emulation.H100))
    kernel: Any = kernels.find(operation, "cuda")
    cells, heads = kernel.cells(parameters), parameters.get("heads", 1)
    for direction in (cells.forward, cells.backward):
        plan = plans.plan(direction, n // heads, heads, batch, emulation.H100)
        assert plan is not None
        registers, bytes_ = report(direction, plan, 90)
        assert registers * plan.threads * plan.blocks <= plans.REGISTERS, plan
        assert bytes_ <= spilled, plan
