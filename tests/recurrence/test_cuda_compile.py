"""The CUDA kernels compiled for sm_90 without a GPU: what ptxas says of registers, spills and shared memory.

A spill or a barrier in a row kernel would be paid at every time step. The kernels are specialised as the launches of a
run specialise them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.interpreter import INTERPRETED, version

from orthobench.recurrence.cuda import launch

triton = pytest.importorskip("triton")
if INTERPRETED:
    pytest.skip("the interpreter does not compile", allow_module_level=True)

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from orthobench.recurrence.cuda import triton_row, triton_step  # noqa: E402

SHARED_LIMIT = 227 * 1024
REGISTER_FILE = 65536
NUMBERS = {"T", "B", "n", "t", "t_other", "t_previous"}
OPTIONS = {"num_warps", "num_stages", "maxnreg", "enable_fp_fusion"}


def nvidia_tool(name: str) -> str:
    bundled = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    path = str(bundled) if bundled.exists() else shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is neither in Triton's wheel nor installed")
    return path


@dataclass
class Compiled:
    """A compiled kernel; `instructions` and `barriers` are those of the time loop, or of the product's slices."""

    registers: int
    spilled: int
    shared: int
    warps: int
    instructions: int
    barriers: int
    mnemonics: set[str]
    text: str

    def check_limits(self) -> None:
        assert self.registers * 32 * self.warps <= REGISTER_FILE, self.registers
        assert self.shared < SHARED_LIMIT, self.shared
        assert not unguarded_roots(self.text)


def compiled(kernel: Any, constants: dict[str, Any], sizes: dict[str, int], folder: Path) -> Compiled:
    """Compile as the launch with these sizes would: Triton makes a kernel of its own for 1 and for multiples of 16."""
    cuobjdump = nvidia_tool("cuobjdump")
    nvidia_tool("ptxas")
    options = {k: constants[k] for k in OPTIONS & constants.keys()}
    constants = {k: v for k, v in constants.items() if k not in OPTIONS}
    specialised = {p.name for p in kernel.params if not p.do_not_specialize} - constants.keys()
    special = {k: v for k, v in sizes.items() if k in specialised}
    constants |= {k: 1 for k, v in special.items() if v == 1}
    kinds = {a: "*fp32" if a.endswith("_ptr") else "i32" if a in NUMBERS else "fp32" for a in kernel.arg_names}
    signature = kinds | dict.fromkeys(constants, "constexpr")
    wide = {k for k, v in special.items() if v != 1 and v % 16 == 0}
    aligned = [i for i, a in enumerate(kernel.arg_names) if a.endswith("_ptr") or a in wide]
    attributes = {(i,): [["tt.divisibility", 16]] for i in aligned}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
    result = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    cubin = folder / "kernel.cubin"
    cubin.write_bytes(result.asm["cubin"])

    def dump(option: str) -> str:
        return subprocess.run([cuobjdump, option, cubin], capture_output=True, text=True, check=True).stdout

    usage = re.search(r"REG:(\d+) STACK:(\d+)", dump("-res-usage"))
    assert usage is not None
    code = [(int(a, 16), i) for a, i in re.findall(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+ )?(.*?) ?;", dump("-sass"))]
    loop = longest_loop(code)
    return Compiled(
        registers=int(usage[1]),
        spilled=int(usage[2]),
        shared=result.metadata.shared,
        warps=options["num_warps"],
        instructions=len(loop),
        barriers=sum(i.startswith("BAR") for i in loop),
        mnemonics={re.split(r"[ .]", i)[0] for _, i in code},
        text=result.asm["ptx"],
    )


def longest_loop(code: list[tuple[int, str]]) -> list[str]:
    """The instructions between a branch backwards and its target; empty without a loop."""
    loops = []
    for address, instruction in code:
        target = re.match(r"BRA.*?0x([0-9a-f]+)", instruction)
        if target and int(target[1], 16) < address:
            loops.append([i for a, i in code if int(target[1], 16) <= a <= address])
    return max(loops, key=len, default=[])


def unguarded_roots(ptx: str) -> list[str]:
    """The approximate roots of numbers that no comparison has chosen: they take a small number for 0."""
    chosen = set(re.findall(r"selp\.f32\s+(%\w+)", ptx)) | set(re.findall(r"max(?:\.NaN)?\.f32\s+(%\w+)", ptx))
    return [line for line, of in re.findall(r"(sqrt\.approx\S*\s+%\w+, (%\w+))", ptx) if of not in chosen]


@dataclass
class Bounds:
    """The most that a row kernel may have: the figures of Triton 3.8, with 5 % of instructions to spare."""

    instructions: int
    barriers: int
    spilled: int = 0


# By features. At 256 alone W fills the register file by itself, and a thread spills.
BOUNDS = {64: Bounds(151, 2), 128: Bounds(270, 2), 170: Bounds(289, 8), 192: Bounds(289, 8), 256: Bounds(547, 2, 128)}
OTHER_KINDS = 45  # more instructions of other activations than modReLU
OLDER = version(triton.__version__) < (3, 8)


def row_kernel(n: int, sizes: dict[str, int], direction: str, cell: dict[str, Any], folder: Path) -> Compiled:
    plan = launch.row_plan(n)
    assert plan is not None
    if direction == "forward":
        kernel, extra = triton_row.row_forward, {"KEEP": cell["KIND"] in ("gated", "complex_modrelu")}
    else:
        kernel, extra = triton_row.row_backward, {"BIAS": cell["KIND"] != "gated", "TRACE": False, "FINAL": True}
    return compiled(kernel, {**cell, **extra, **plan.constants()}, {"n": n} | sizes, folder)


@pytest.mark.parametrize(
    ("n", "kind"),
    [
        *((n, "modrelu") for n in BOUNDS),
        (170, "complex_modrelu"),
        *(pytest.param(n, kind, marks=pytest.mark.slow) for n in BOUNDS for kind in ("tanh", "complex_modrelu")),
    ],
)
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.slow
def test_row_kernels_hold_the_matrix_in_registers(n: int, kind: str, direction: str, tmp_path: Path) -> None:
    kernel = row_kernel(n, {"T": 784, "B": 50}, direction, {"KIND": kind, "RESIDUAL": False}, tmp_path)
    kernel.check_limits()
    assert kernel.shared < 16 * 1024
    assert "FFMA" in kernel.mnemonics
    assert not {i for i in kernel.mnemonics if re.match(r"[HIQ]G?MMA", i)}, "float32 means no tensor cores"
    bounds = BOUNDS[n]
    if OLDER:
        pytest.skip("the bounds of instructions are those of newer Tritons")
    assert kernel.spilled <= bounds.spilled
    assert kernel.barriers <= bounds.barriers
    assert kernel.instructions <= bounds.instructions + (0 if kind == "modrelu" else OTHER_KINDS)


def test_sizes_do_not_change_a_row_kernel(tmp_path: Path) -> None:
    """Of 48, 784 and 128, all multiples of 16, nothing follows: the loop is that of 60, 783 and 20."""
    cell = {"KIND": "modrelu", "RESIDUAL": False}
    wide = row_kernel(48, {"T": 784, "B": 128}, "forward", cell, tmp_path)
    other = row_kernel(60, {"T": 783, "B": 20}, "forward", cell, tmp_path)
    assert (wide.instructions, wide.barriers, wide.registers) == (other.instructions, other.barriers, other.registers)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_gated_row_kernels_fit_in_registers(direction: str, tmp_path: Path) -> None:
    kernel = row_kernel(170, {"T": 784, "B": 20}, direction, {"KIND": "gated", "RESIDUAL": True}, tmp_path)
    kernel.check_limits()
    assert kernel.spilled == 0


def test_plans_of_any_number_of_warps_can_launch() -> None:
    """A launch fails whose threads together want more registers than a multiprocessor has."""
    for warps in (1, 2, 4, 8, 16, 32):
        options = launch.RowPlan(256, False, warps).constants()
        assert options["maxnreg"] * 32 * warps <= REGISTER_FILE
        assert options["maxnreg"] <= 255


PLAIN = {"KIND": "modrelu", "RESIDUAL": False}
INTERLEAVED = {"lstm_forward", "gru_forward", "gru_gates_forward"}
BACK = {"TRACE": False, "FINAL": True, "LAST": False}
STEP_KERNELS: dict[str, dict[str, Any]] = {
    "step_forward": {**PLAIN, "KEEP": False},
    "step_backward": {**PLAIN, "BIAS": True, "TOTAL": False, "FINAL": True, "LAST": False},
    "lstm_forward": {},
    "lstm_backward": BACK,
    "gru_forward": {},
    "gru_backward": BACK,
    "gru_gates_forward": {},
    "gru_candidate_forward": {},
    "gru_candidate_backward": BACK,
    "gru_gates_backward": {},
}


@pytest.mark.parametrize(
    ("name", "n", "batch", "instructions"),
    [
        ("step_forward", 360, 50, 375),
        ("step_forward", 512, 128, 370),
        ("step_forward", 1030, 20, 420),
        ("step_backward", 512, 50, 375),
        ("step_backward", 1030, 20, 420),
        ("lstm_forward", 128, 50, 470),
        ("lstm_backward", 128, 50, 365),
        ("gru_forward", 128, 50, 470),
        ("gru_backward", 128, 50, 365),
        ("gru_gates_forward", 128, 50, 470),
        ("gru_candidate_forward", 128, 50, 355),
        ("gru_candidate_backward", 128, 50, 365),
        ("gru_gates_backward", 128, 50, 340),
    ],
)
@pytest.mark.slow
def test_step_kernels_do_not_spill(name: str, n: int, batch: int, instructions: int, tmp_path: Path) -> None:
    plan = launch.step_plan(batch, n, 132, gates=4 if name in INTERLEAVED else 1)
    constants = {"n": n, **STEP_KERNELS[name], **plan.constants()}
    kernel = compiled(getattr(triton_step, name), constants, {"B": batch}, tmp_path)
    kernel.check_limits()
    assert kernel.spilled == 0
    assert {i for i in kernel.mnemonics if re.match(r"HG?MMA", i)}, "the product should run on tensor cores"
    if OLDER:
        pytest.skip("the bounds of instructions are those of newer Tritons")
    assert kernel.instructions <= instructions
    assert kernel.barriers <= 2


def test_slices_of_a_product_are_added_outside_the_tensor_cores(tmp_path: Path) -> None:
    """A compiler that gave the sum to the tensor core again would round it towards zero."""
    constants = {"n": 512, **STEP_KERNELS["step_forward"], **launch.step_plan(128, 512, 132).constants()}
    text = compiled(triton_step.step_forward, constants, {"B": 128}, tmp_path).text
    product = text[text.index("mma.sync") : text.rindex("mma.sync")]
    chains = re.findall(r"mma\.sync\S+\s*\{([^}]*)\},\s*\{[^}]*\},\s*\{[^}]*\},\s*\{([^}]*)\}", text)
    results = {register.strip() for out, _ in chains for register in out.split(",")}
    added = re.findall(r"add(?:\.rn)?\.f32\s+%\w+, (%\w+), (%\w+)", text)
    assert any(results & set(terms) for terms in added), product[:200]


# Triton turns an argument that is 1 into a constant, which compiles differently (and never does in the interpreter).
def test_row_kernels_of_size_one_compile(tmp_path: Path) -> None:
    for direction in ("forward", "backward"):
        row_kernel(1, {"T": 1, "B": 1}, direction, {"KIND": "gated", "RESIDUAL": True}, tmp_path)


@pytest.mark.parametrize("name", STEP_KERNELS)
def test_step_kernels_of_size_one_compile(name: str, tmp_path: Path) -> None:
    plan = launch.step_plan(1, 1, 132, gates=4 if name in INTERLEAVED else 1)
    constants = {"n": 1, **STEP_KERNELS[name], **plan.constants()}
    compiled(getattr(triton_step, name), constants, {"B": 1}, tmp_path)
