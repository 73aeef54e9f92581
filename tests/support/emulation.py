"""Launches of the kernels in CUDA C++ on the CPU: g++ compiles the source with a thread for each CUDA thread."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from orthobench.recurrence import kernels
from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.cuda import nvrtc
from orthobench.recurrence.kernels import Kernel

COMPILER = shutil.which("g++")
emulated = pytest.mark.skipif(COMPILER is None, reason="no g++")
NO_WAITS = ("-DWITHOUT_WAITS", "-DWITHOUT_BARRIERS")


@dataclass
class Emulator:
    """Takes the place of `nvrtc.load`; `launches` gathers names, blocks, threads and macros."""

    options: tuple[str, ...] = ()
    launches: list[tuple[str, int, int, dict[str, int]]] = field(default_factory=list)
    errors: str = ""

    def load(self, source: Path, device: torch.device, macros: Mapping[str, int]) -> Module:
        return Module(self, source, dict(macros))


@dataclass
class Module:
    """Takes the place of `nvrtc.Module`."""

    emulator: Emulator
    source: Path
    macros: dict[str, int]

    def launch(self, name: str, blocks: int, threads: int, arguments: Sequence[Tensor | int | float]) -> None:
        self.emulator.launches.append((name, blocks, threads, self.macros))
        program = compiled(self.source, name, tuple(self.macros.items()), self.emulator.options)
        words = [argument.numel() if isinstance(argument, Tensor) else argument for argument in arguments]
        tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
        assert all(tensor.is_contiguous() and tensor.dtype is torch.float32 for tensor in tensors)
        sizes = (blocks, self.macros.get("CLUSTER", 1), threads)
        command = [program, *map(str, (*sizes, *words))]
        content = b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)
        done = subprocess.run(command, input=content, capture_output=True, check=False, timeout=500)
        self.emulator.errors += done.stderr.decode()
        if done.returncode and not self.emulator.options:
            raise AssertionError(f"{name} ended with {done.returncode}: {done.stderr.decode()[:2000]}")
        self._write(name, tensors, np.frombuffer(done.stdout, np.float32))

    def _write(self, name: str, tensors: Sequence[Tensor], values: Any) -> None:
        """Copy the written arrays to their tensors; one may stand for several arguments, which a kernel then skips."""
        parameters = re.search(rf"\b{name}\(([^)]*)\)", self.source.read_text())
        assert parameters is not None
        pointers = [each for each in parameters[1].split(",") if "*" in each]
        seen = set()
        for pointer, tensor in zip(pointers, tensors, strict=True):
            if "const" not in pointer:
                part, values = values[: tensor.numel()], values[tensor.numel() :]
                if tensor.data_ptr() not in seen:
                    tensor.copy_(torch.from_numpy(part.copy()).view(tensor.shape))
                seen.add(tensor.data_ptr())
        assert not len(values)


@functools.cache
def compiled(source: Path, kernel: str, macros: tuple[tuple[str, int], ...], options: tuple[str, ...]) -> Path:
    """The program of one kernel's form."""
    target = Path(_folder().name, f"{len(list(Path(_folder().name).iterdir()))}")
    subprocess.run(
        [
            *(str(COMPILER), "-std=c++20", "-O1", "-pthread", "-Wno-unknown-pragmas", *options),
            *(f"-D{name}={value}" for name, value in macros),
            *(f'-DSOURCE="{source}"', f"-DKERNEL={kernel}"),
            *(str(Path(__file__).with_suffix(".cpp")), "-o", str(target)),
        ],
        check=True,
    )
    return target


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="emulation-")


def runner(kernel: type[Kernel]) -> Callable[[Call], Result]:
    """A function that runs calls by a kernel, as its module does on a device."""
    return lambda call: kernels.run(kernel, call)


@functools.cache
def sanitizes() -> bool:
    """Whether a program with the thread sanitizer can be made and run."""
    source, program = Path(_folder().name, "empty.cpp"), Path(_folder().name, "empty")
    source.write_text("int main() {}")
    build = subprocess.run(
        [str(COMPILER), "-fsanitize=thread", source, "-o", program], capture_output=True, check=False
    )
    return build.returncode == 0 and subprocess.run([program], capture_output=True, check=False).returncode == 0


def emulate(monkeypatch: pytest.MonkeyPatch, *options: str) -> Emulator:
    """Put the emulation in the place of NVRTC and the driver."""
    emulator = Emulator(options)
    monkeypatch.setattr(nvrtc, "load", emulator.load)
    return emulator
