"""The CUDA C++ kernels on the CPU: compiled by g++ with `emulator.h` in place of the GPU's functions."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from orthobench.recurrence.cuda import nvrtc, persistent, plans

HERE = Path(__file__).parent
FOLDER = Path(tempfile.gettempdir()) / "orthobench-emulation"
H100 = plans.GPU(90, {1: 132, 2: 66, 4: 32, 8: 15, 16: 7}, 232448)
WITHOUT_CLUSTERS = plans.GPU(75, {1: 40}, 65536)


def build(program: str, *flags: str) -> Path:
    """Compile a program to a shared object, once for each text."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler (Debian: g++)")
    texts = [program, *flags, *(path.read_text() for path in (HERE / "emulator.h", *plans.headers()))]
    target = FOLDER / f"{hashlib.sha256(chr(0).join(texts).encode()).hexdigest()[:24]}.so"
    if target.exists():
        return target
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        source, built = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
        source.write_text(program)
        command = [compiler, "-std=c++20", "-O1", "-w", "-fPIC", "-shared", *flags]
        command += ["-include", str(HERE / "emulator.h"), f"-I{plans.CODE}", str(source), "-o", str(built), "-pthread"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr[:3000]
        built.replace(target)
    return target


def load(
    program: str, name: str, device: torch.device, threads: int, shared: int = 0, cluster: int = 1
) -> nvrtc.Launch:
    """Return the function that runs a kernel in the emulator; see `nvrtc.load`."""
    function = getattr(ctypes.CDLL(str(build(program))), name)

    def launch(grid: int, arguments: bytes) -> None:
        function(ctypes.c_int(grid), ctypes.c_size_t(shared), arguments)

    return launch


@contextmanager
def emulated(device: plans.GPU = H100) -> Iterator[None]:
    """Run the CUDA C++ kernels of calls on the CPU in the emulator, as planned for a device."""
    caches = (persistent.problem, persistent.find, persistent.plan, persistent.loaded, persistent.pair_of)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvrtc, "describe", lambda _: device)
        patch.setattr(nvrtc, "load", load)
        for cache in caches:
            cache.cache_clear()
        yield
    for cache in caches:
        cache.cache_clear()


def races(direction: plans.Direction, plan: plans.Plan, columns: int, rows: int, batch: int, steps: int) -> str:
    """Run a kernel with a thread for each CUDA thread under ThreadSanitizer, and return what that reports.

    Args:
        direction: the direction of the cell.
        plan: its plan.
        columns: the blocks of n columns of the weight.
        rows: the blocks of n rows of the weight.
        batch: the rows of the batch.
        steps: the steps.
    """
    numbers, n = direction.constants, plan.units * plan.heads
    sizes = {
        "input": steps * batch * numbers["INPUTS"] * n,
        "second": steps * batch * n,
        "weight": rows * n * columns * plan.units,
        "output": steps * batch * numbers["OUTPUTS"] * n,
        "saved": steps * batch * max(1, numbers["SAVED"]) * n,
    }
    fields = "".join(f"    arguments.{name} = numbers({size});\n" for name, size in sizes.items())
    fields += "".join(f"    arguments.start[{i}] = numbers({batch * n});\n" for i in range(numbers["STATES"]))
    fields += "".join(f"    arguments.end[{i}] = numbers({batch * n});\n" for i in range(numbers["STATES"]))
    fields += "".join(f"    arguments.vectors[{i}] = numbers({n});\n" for i in range(numbers["VECTORS"]))
    fields += "".join(f"    arguments.sums[{i}] = numbers({batch * n});\n" for i in range(numbers["SUMS"]))
    fields += "".join(f"    arguments.trace[{i}] = numbers({steps * batch * n});\n" for i in range(numbers["TRACED"]))
    program = f"""{plans.source(direction, plan)}
static float *numbers(size_t count) {{
    float *const all = new float[count];
    for (size_t i = 0; i < count; i++) all[i] = 0.01f * (float)(i * 7919 % 101) - 0.3f;
    return all;
}}
int main() {{
    Arguments arguments = {{}};
{fields}    arguments.steps = {steps}, arguments.batch = {batch};
    arguments.constants = {{0.3f, 1.5f, 0.1f}};
    persistent({plan.grid(batch)}, {plan.shared}, &arguments);
}}
"""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler (Debian: g++)")
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder, "kernel.cpp"), Path(folder, "kernel")
        source.write_text(program)
        command = [compiler, "-std=c++20", "-O1", "-g", "-w", "-DTHREADED", "-fsanitize=thread"]
        command += ["-include", str(HERE / "emulator.h"), f"-I{plans.CODE}", str(source), "-o", str(built), "-pthread"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr[:3000]
        done = subprocess.run([built], capture_output=True, text=True, check=False, timeout=100)
    return done.stdout + done.stderr
