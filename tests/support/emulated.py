"""A program that calls C kernels on another processor, emulated by qemu, and compares their results with the truth."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support.kernels import compile_all
from torch import Tensor

from orthobench.recurrence.cpu import c_sources

COMPARE = """
/* Prints the relative distance between [rows, columns], rows `ld` floats apart, and what is expected. */
static void compare(const char *name, const float *actual, int64_t ld, const double *expected, int64_t rows,
                    int64_t columns) {
    double error = 0, size = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            const double e = expected[i * columns + j], d = actual[i * ld + j] - e;
            error += d * d, size += e * e;
        }
    printf("%s %.9g\\n", name, sqrt(error) / (sqrt(size) + 0.1 * sqrt((double)(rows * columns))));
}
"""


class Program:
    """The text of a program in C, with tensors as its constants, and the names of its comparisons."""

    def __init__(self) -> None:
        self._data: list[str] = []
        self._calls: list[str] = []
        self._structs: list[str] = []
        self.names: list[str] = []

    def constants(self, **tensors: Tensor) -> None:
        """Add arrays with these names: of int64 for such tensors, else of float."""
        for name, tensor in tensors.items():
            kind = "float" if tensor.is_floating_point() else "int64_t"
            self._data.append(_array(kind, name, tensor.float() if kind == "float" else tensor))

    def memory(self, **sizes: str | int) -> None:
        """Add zeroed arrays of this number of floats, which may be an expression of constants."""
        self._data += [f"_Alignas(64) static float {name}[{size}];" for name, size in sizes.items()]

    def struct(self, name: str) -> None:
        """Add the structure of an operation, which only its own C file declares."""
        found = re.search(rf"^struct {name} \{{.*?^\}};", _text(), re.M | re.S)
        assert found, name
        self._structs.append(found[0])

    def call(self, text: str) -> None:
        """Add a statement."""
        self._calls.append(text)

    def expect(self, name: str, array: str, expected: Tensor, ld: int | str | None = None) -> None:
        """Compare an array, whose rows are `ld` floats apart, with a tensor."""
        columns = expected.shape[-1] if expected.dim() else 1
        truth = f"expected_{len(self.names)}"
        self._data.append(_array("double", truth, expected.detach().double()))
        self.names.append(name)
        rows = expected.numel() // columns
        self._calls.append(f'compare("{name}", {array}, {columns if ld is None else ld}, {truth}, {rows}, {columns});')

    def run(self, compiler: Sequence[str], emulator: Sequence[str], folder: Path) -> dict[str, float]:
        """Compile all kernels with the flags of a build, link the program with them, and return the distances."""
        objects = compile_all(folder / "objects", compiler)
        source = folder / "program.c"
        source.write_text(self._text())
        program = str(folder / "program")
        include, files = f"-I{Path(c_sources.__file__).parent}", map(str, objects)
        _run([*compiler, "-O1", "-std=gnu11", "-static", include, str(source), *files, "-o", program, "-lm"])
        lines = _run([*emulator, program]).splitlines()
        return {name: float(distance) for name, distance in (line.split() for line in lines)}

    def _text(self) -> str:
        body = "\n".join(f"    {call}" for call in self._calls)
        declared = sorted(set(re.findall(r"\b(\w+)\(", body)) - {"compare", "sizeof", "padded"})
        prototypes = [match[1] + ";" for name in declared if (match := _definition(name))]
        parts = [
            "#include <math.h>\n#include <stdio.h>",
            *(f'#include "{name}.h"' for name in ("activations", "weight_sums", "units")),
            *self._structs,
            *prototypes,
            COMPARE,
            *self._data,
            f"int main(void) {{\n{body}\n    return 0;\n}}\n",
        ]
        return "\n".join(parts)


def _array(kind: str, name: str, tensor: Tensor) -> str:
    values = [value if kind == "int64_t" else float(value).hex() for value in tensor.flatten().tolist()]
    return f"_Alignas(64) static const {kind} {name}[] = {{{', '.join(map(str, values))}}};"


def _definition(function: str) -> re.Match[str] | None:
    return re.search(rf"^(\w+ {function}\([^()]*\)) \{{", _text(), re.M)


def _text() -> str:
    return "\n".join(path.read_text("utf-8") for path in c_sources.SOURCES)


def _run(command: Sequence[str]) -> str:
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, f"{command[0]} ended with {run.returncode}: {run.stderr[-2000:]}"
    return run.stdout
