"""What NVRTC makes of a kernel: registers, shared memory and the instructions of its time loop, by cuobjdump."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from orthobench.recurrence.cuda import nvrtc

REGISTER_FILE, SHARED_LIMIT = 65536, 48 << 10  # of a multiprocessor, and of a block's static memory


@dataclass
class MachineCode:
    """What the compiler made of one kernel; `loop` counts the instructions of a step."""

    registers: int
    spilled: int
    shared: int
    loop: Counter[str]


def machine_code(source: Path, name: str, macros: dict[str, int], folder: Path) -> MachineCode:
    """Compile a source for sm_90 and read one kernel's code."""
    triton = pytest.importorskip("triton")
    bundled = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    cuobjdump = str(bundled) if bundled.exists() else shutil.which("cuobjdump")
    if cuobjdump is None:
        pytest.skip("cuobjdump is neither in Triton's wheel nor installed")
    file = folder / "kernel.cubin"
    file.write_bytes(nvrtc.compile_source(source.read_text(), source.name, "sm_90", macros))

    def dump(*options: str) -> str:
        return subprocess.run([cuobjdump, *options, file], capture_output=True, text=True, check=True).stdout

    usage = re.search(rf"Function {name}:\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)", dump("-res-usage"))
    assert usage is not None
    text = dump("-sass", "-fun", name)
    instructions = [(int(at, 16), line.strip()) for at, line in re.findall(r"/\*([0-9a-f]{4,})\*/\s+(.*?);", text)]
    bodies = []
    for at, line in instructions:
        jump = re.search(r"\bBRA\b.*0x([0-9a-f]+)", line)
        if jump and int(jump[1], 16) < at:
            inside = [line for other, line in instructions if int(jump[1], 16) <= other <= at]
            bodies.append(Counter(re.sub(r"^@!?U?P\w+\s+", "", each).split()[0].split(".")[0] for each in inside))
    return MachineCode(*map(int, usage.groups()), max(bodies, key=lambda body: body["FFMA"]))


def check_limits(kernel: MachineCode, threads: int) -> None:
    """Nothing is spilled, and a block fits a multiprocessor."""
    assert kernel.spilled == kernel.loop["LDL"] == kernel.loop["STL"] == 0
    assert kernel.registers * threads <= REGISTER_FILE
    assert kernel.shared <= SHARED_LIMIT
