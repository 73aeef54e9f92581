"""The compiled library: the one for this processor's instruction set, with the signatures of the C files."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from orthobench.recurrence.cpu import c_sources
from orthobench.recurrence.cpu.signatures import signature
from orthobench.system.location import variable

INSTRUCTIONS = "ORTHOBENCH_MARCH"
"""The environment variable that chooses another instruction set than the widest of the processor."""
FOLDER = Path(__file__).parent
"""The folder of the libraries and of the headers."""
FIX = (
    "install a C compiler, such as apt install gcc; then `make kernels` in a checkout, or install orthobench again "
    "with pip's --no-cache-dir"
)
"""What to do if there is no library."""


class MissingError(Exception):
    """There is no library that can be used; the message gives the reason."""


class Library(ctypes.CDLL):
    """A shared object, whose functions have the signatures of the C files.

    A function becomes an attribute only with its signature, because other threads may call it from then on.
    """

    @functools.cached_property
    def lanes(self) -> int:
        """The number of floats in a vector."""
        lanes: int = self.vector_length()
        return lanes

    @property
    def digest(self) -> str | None:
        """The digest of the C files from which the library was built, or None for another library."""
        try:
            text = ctypes.c_char.in_dll(self, c_sources.DIGEST)
        except ValueError:
            return None
        return ctypes.string_at(ctypes.addressof(text)).decode()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._declared(name, self[name])  # ctypes' own method would set the attribute at once

    def add(self, shared: ctypes.CDLL, names: Iterable[str]) -> None:
        """Add functions of another library, whose signatures are known."""
        for name in names:
            self._declared(name, shared[name])

    def _declared(self, name: str, function: Any) -> Any:
        declared = signature(name)
        function.restype = declared.result
        function.argtypes = [value.kind for value in declared.parameters.values()]
        setattr(self, name, function)
        return function


def load() -> Library:
    """Load the library for this processor.

    Raises:
        MissingError: it was not built, does not load, or was built from other C files.
    """
    file = FOLDER / c_sources.file_name(variant())
    if not file.exists():
        raise MissingError(f"the C kernels are not built ({file.name} is missing)")
    try:
        library = Library(str(file))
    except OSError as error:
        raise MissingError(f"the C kernels do not load: {error}") from error
    # Python passes structures as the C files describe them now, so another library would read memory at random.
    if library.digest != c_sources.digest():
        raise MissingError(f"the C files have changed since {file.name} was built: run `make kernels`")
    return library


def variant() -> str:
    """Return the name of the instruction set to use: $ORTHOBENCH_MARCH, or the widest that the processor has.

    Raises:
        MissingError: the variable names none that the processor has.
    """
    usable = usable_variants()
    chosen = variable(INSTRUCTIONS)
    if chosen and chosen not in usable:
        raise MissingError(f"${INSTRUCTIONS} is {chosen!r}: this processor runs the C kernels for {', '.join(usable)}")
    return chosen or usable[0]


def usable_variants() -> list[str]:
    """Return the names of the instruction sets that this processor has, the widest first."""
    flags = _processor_flags()
    return [name for name, needed in c_sources.variants().items() if needed.keys() <= flags]


def _processor_flags() -> set[str]:
    """Return the processor's flags as Linux reports them, which are those that its system supports too."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return set()
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())
