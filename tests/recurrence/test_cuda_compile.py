"""The CUDA kernels compiled for sm_90 without a GPU: what ptxas says of registers, spills and shared memory.

The bounds are those of Triton 3.6 and 3.8. A spill in a row kernel would be paid at every time step.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orthobench.recurrence import cuda_launch

triton = pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("the interpreter does not compile", allow_module_level=True)

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from orthobench.recurrence import triton_row, triton_step  # noqa: E402

SHARED_LIMIT = 227 * 1024
INTEGERS = {"T", "B", "n", "t", "t_other", "t_previous"}
OPTIONS = {"num_warps", "num_stages", "maxnreg", "enable_fp_fusion"}


def nvidia_tool(name: str) -> str:
    bundled = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    path = str(bundled) if bundled.exists() else shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is neither in Triton's wheel nor installed")
    return path


@dataclass
class Compiled:
    registers: int
    spilled: int
    shared: int
    instructions: set[str]


def compiled(kernel: Any, constants: dict[str, Any], folder: Path) -> Compiled:
    """Compile as a call with tensors would be: pointers and the batch are multiples of 16."""
    cuobjdump = nvidia_tool("cuobjdump")
    nvidia_tool("ptxas")
    options = {k: constants[k] for k in OPTIONS & constants.keys()}
    constants = {k: v for k, v in constants.items() if k not in OPTIONS}
    kinds = {a: "*fp32" if a.endswith("_ptr") else "i32" if a in INTEGERS else "fp32" for a in kernel.arg_names}
    signature = kinds | dict.fromkeys(constants, "constexpr")
    aligned = [i for i, a in enumerate(kernel.arg_names) if a.endswith("_ptr") or (a == "B" and a not in constants)]
    attributes = {(i,): [["tt.divisibility", 16]] for i in aligned}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
    result = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    cubin = folder / "kernel.cubin"
    cubin.write_bytes(result.asm["cubin"])

    def dump(option: str) -> str:
        return subprocess.run([cuobjdump, option, cubin], capture_output=True, text=True, check=True).stdout

    usage = re.search(r"REG:(\d+) STACK:(\d+)", dump("-res-usage"))
    assert usage is not None
    mnemonics = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z0-9]+)", dump("-sass"))
    return Compiled(int(usage[1]), int(usage[2]), result.metadata.shared, set(mnemonics))


# Features, and the bytes a thread may spill: none but where W (256 x 256) fills the register file by itself.
@pytest.mark.parametrize(("n", "spill"), [(64, 0), (128, 0), (170, 0), (256, 192)])
@pytest.mark.parametrize("kind", ["tanh", "modrelu", pytest.param("complex_modrelu", marks=pytest.mark.slow)])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_row_kernels_hold_the_matrix_in_registers(
    n: int, spill: int, kind: str, direction: str, tmp_path: Path
) -> None:
    plan = cuda_launch.row_plan(n)
    assert plan is not None
    constants = {"KIND": kind, "RESIDUAL": False, **plan.constants()}
    if direction == "forward":
        kernel = compiled(triton_row.row_forward, constants | {"KEEP": kind == "complex_modrelu"}, tmp_path)
    else:
        kernel = compiled(triton_row.row_backward, constants | {"BIAS": True, "TRACE": True}, tmp_path)
    assert kernel.spilled <= spill, kernel
    assert kernel.shared < 16 * 1024, kernel
    assert "FFMA" in kernel.instructions
    assert not {i for i in kernel.instructions if re.match(r"[HIQ]G?MMA", i)}, "float32 means no tensor cores"


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("n", [17, 170])
def test_gated_row_kernels(n: int, direction: str, tmp_path: Path) -> None:
    plan = cuda_launch.row_plan(n)
    assert plan is not None
    constants = {"KIND": "gated", "RESIDUAL": True, **plan.constants()}
    kernel, extra = (
        (triton_row.row_forward, {"KEEP": True})
        if direction == "forward"
        else (triton_row.row_backward, {"BIAS": False, "TRACE": False})
    )
    assert compiled(kernel, constants | extra, tmp_path).spilled == 0


PLAIN = {"KIND": "modrelu", "RESIDUAL": False}
INTERLEAVED = {"lstm_forward", "gru_forward", "gru_gates_forward"}
STEP_KERNELS = {
    "step_forward": {**PLAIN, "KEEP": False},
    "step_backward": {**PLAIN, "BIAS": True, "TOTAL": False, "LAST": False},
    "lstm_forward": {},
    "lstm_backward": {"TRACE": False, "LAST": False},
    "gru_forward": {},
    "gru_backward": {"TRACE": False, "LAST": False},
    "gru_gates_forward": {},
    "gru_candidate_forward": {},
    "gru_candidate_backward": {"TRACE": False, "LAST": False},
    "gru_gates_backward": {},
}


@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("step_forward", 512),
        ("step_forward", 1030),
        ("step_backward", 512),
        ("step_backward", 1030),
        ("lstm_forward", 128),
        ("lstm_backward", 128),
        ("gru_forward", 128),
        ("gru_backward", 128),
        ("gru_gates_forward", 128),
        ("gru_candidate_forward", 128),
        ("gru_candidate_backward", 128),
        ("gru_gates_backward", 128),
    ],
)
def test_step_kernels(name: str, n: int, tmp_path: Path) -> None:
    plan = cuda_launch.step_plan(128, n, 132, gates=4 if name in INTERLEAVED else 1)
    kernel = compiled(getattr(triton_step, name), {"n": n, **STEP_KERNELS[name], **plan.constants()}, tmp_path)
    assert kernel.spilled <= 64, kernel
    assert kernel.shared < SHARED_LIMIT, kernel
    assert {i for i in kernel.instructions if re.match(r"HG?MMA", i)}, "the product should run on tensor cores"


# Triton turns an argument that is 1 into a constant, which compiles differently (and never does in the interpreter).
def test_row_kernels_of_one(tmp_path: Path) -> None:
    plan = cuda_launch.row_plan(1)
    assert plan is not None
    constants = {"KIND": "gated", "RESIDUAL": True, **plan.constants(), "T": 1, "B": 1, "n": 1}
    compiled(triton_row.row_forward, constants | {"KEEP": True}, tmp_path)
    compiled(triton_row.row_backward, constants | {"BIAS": False, "TRACE": True}, tmp_path)


@pytest.mark.parametrize("name", STEP_KERNELS)
def test_step_kernels_of_one(name: str, tmp_path: Path) -> None:
    plan = cuda_launch.step_plan(1, 1, 132, gates=4 if name in INTERLEAVED else 1)
    compiled(getattr(triton_step, name), {"n": 1, "B": 1, **STEP_KERNELS[name], **plan.constants()}, tmp_path)
