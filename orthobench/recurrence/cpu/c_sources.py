"""The C files of the kernels, and the instruction sets for which they are compiled.

setup.py runs this file before anything is installed, so it imports only the standard library.
"""

from __future__ import annotations

import functools
import hashlib
import platform
from collections.abc import Mapping
from pathlib import Path

CODE = Path(__file__).resolve().parents[1]
SOURCES = sorted(CODE.rglob("*.c"))
"""The library's files: every C file of the operations and of their shared code. No two have the same name."""
HEADERS = sorted(CODE.rglob("*.h"))
# Parts of -ffast-math and not the whole, because the whole assumes that no number is NaN or infinite.
FLAGS = ("-O3", "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fPIC")
DIGEST = "kernel_sources"
"""The name of the text in a library that has the digest of the C files from which it was built."""

# The processor's flags as Linux names them, and the compiler's. They spell -march=x86-64-v3 and -v4 out, because the
# compilers of older clusters do not know these names.
_V3 = {
    "avx2": "-mavx2",
    "bmi1": "-mbmi",
    "bmi2": "-mbmi2",
    "f16c": "-mf16c",
    "fma": "-mfma",
    "abm": "-mlzcnt",
    "movbe": "-mmovbe",
    "popcnt": "-mpopcnt",
}
_V4 = _V3 | {name: f"-m{name}" for name in ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")}


def variants(machine: str | None = None) -> dict[str, Mapping[str, str]]:
    """Return the instruction sets of a kind of machine, the widest first.

    Args:
        machine: as `platform.machine` names it; None for this one.

    Returns:
        For each name the processor's flags that it needs, with the compiler's flag for each.
    """
    machine = machine or platform.machine()
    if machine == "x86_64":
        return {"x86-64-v4": _V4, "x86-64-v3": _V3, "x86-64": {}}
    return {machine: {}}  # on arm64 the compiler's default has NEON, and the kernels use nothing wider


def file_name(variant: str) -> str:
    """Return the name of a library, which lies in this folder."""
    return f"kernels-{variant}.so"


@functools.cache
def digest() -> str:
    """Return a hash of the C files and of this one, whose flags count as well."""
    result = hashlib.sha256()
    for file in (*HEADERS, *SOURCES, Path(__file__)):
        result.update(f"{file.name}\0".encode() + file.read_bytes() + b"\0")
    return result.hexdigest()[:32]
