"""The C functions and structures that Python uses, parsed from the sources so that no signature is written twice."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import re
from dataclasses import dataclass
from typing import Any

import torch

from orthobench.recurrence.cpu.c_sources import HEADERS, SOURCES

_NUMBERS: dict[str, Any] = {
    "int": ctypes.c_int,
    "int64_t": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}
_ELEMENTS = {"float": torch.float32, "double": torch.float64, "int64_t": torch.int64}


@dataclass(frozen=True)
class CValue:
    """A parameter of a function or a field of a structure.

    Attributes:
        kind: its type for ctypes.
        dtype: the type of the tensor to which it points, or None for a number or another pointer.
        struct: the name of the structure to which it points, or None.
    """

    kind: Any
    dtype: torch.dtype | None = None
    struct: str | None = None


@dataclass(frozen=True)
class CSignature:
    """The result of a C function, for ctypes, and its parameters by name and in order."""

    result: Any
    parameters: dict[str, CValue]


@functools.cache
def signature(function: str) -> CSignature:
    """Return the signature of a C function.

    Raises:
        LookupError: no source defines it with types that Python can pass.
    """
    match = re.search(rf"^(\w+) {function}\(([^()]*)\) \{{", _text(), re.M)
    if match is None:
        raise LookupError(f"no C file defines {function}")
    parameters = {} if match[2] == "void" else dict(_values(part)[0] for part in match[2].split(","))
    return CSignature(None if match[1] == "void" else _NUMBERS[match[1]], parameters)


@functools.cache
def fields(struct: str) -> dict[str, CValue]:
    """Return the numbers and pointers of a C structure by name, including those of the structures in it.

    Raises:
        LookupError: no source defines it with types that Python can pass.
    """
    result: dict[str, CValue] = {}
    for name, value in _members(struct).items():
        result |= fields(value.kind.__name__) if issubclass(value.kind, ctypes.Structure) else {name: value}
    return result


@functools.cache
def structure(struct: str) -> type[ctypes.Structure]:
    """Return a C structure for ctypes; it has the fields of the structures in it as its own."""
    members = {name: value.kind for name, value in _members(struct).items()}
    inner = [name for name, kind in members.items() if issubclass(kind, ctypes.Structure)]
    return type(struct, (ctypes.Structure,), {"_anonymous_": inner, "_fields_": list(members.items())})


@functools.cache
def _members(struct: str) -> dict[str, CValue]:
    match = re.search(rf"^struct {struct} \{{(.*?)^\}};", _text(), re.M | re.S)
    if match is None:
        raise LookupError(f"no C file defines struct {struct}")
    declarations = [part for part in match[1].split(";") if part.strip()]
    return dict(value for declaration in declarations for value in _values(declaration))


@dataclass(frozen=True)
class Phase:
    """A phase of a dense cell, with the names of `struct phase` in `cell.h`; numbers that it does not give are 0."""

    reads: str
    products: int
    inputs: int
    own: int
    saved: int
    means: int

    @property
    def shared(self) -> int:
        """The number of products to each of which an input is added."""
        return self.products - self.own

    @property
    def alone(self) -> int:
        """The number of inputs that no product takes."""
        return self.inputs - self.shared


@functools.cache
def phases(cell: str) -> tuple[Phase, ...]:
    """Return the phases of a dense cell.

    Raises:
        LookupError: no source defines it.
    """
    match = re.search(rf"^static const struct cell {cell} = \{{(.*?)^\}};", _text(), re.M | re.S)
    if match is None:
        raise LookupError(f"no C file defines the cell {cell}")
    texts = re.findall(r"\.phase\[\d\] = \{(.*?)\}", match[1], re.S)
    given = [dict(re.findall(r"\.(\w+) = (\w+)", text)) for text in texts]
    numbers = [field.name for field in dataclasses.fields(Phase) if field.name != "reads"]
    return tuple(Phase(each["reads"], *(int(each.get(name, 0)) for name in numbers)) for each in given)


def _values(declaration: str) -> list[tuple[str, CValue]]:
    """Return the values of a declaration such as `const float *x, *u`."""
    match = re.fullmatch(r"\s*(?:const )?((?:struct )?\w+) (.*)", declaration, re.S)
    if match is None:
        raise LookupError(f"not a declaration of numbers and pointers: {declaration.strip()}")
    return [_value(match[1], each.strip()) for each in match[2].split(",")]


def _value(element: str, declarator: str) -> tuple[str, CValue]:
    name, struct = declarator.removeprefix("*"), element.removeprefix("struct ")
    if name.isidentifier() and name != declarator:
        return name, CValue(ctypes.c_void_p, _ELEMENTS.get(element), None if struct == element else struct)
    if name.isidentifier() and struct != element:
        return name, CValue(structure(struct))
    if name.isidentifier() and element in _NUMBERS:
        return name, CValue(_NUMBERS[element])
    raise LookupError(f"Python cannot pass {element} {declarator}")


def add(text: str) -> None:
    """Add the source of functions and cells that are not in the package's files; its names are new."""
    _added.append(_without_comments(text))


_added: list[str] = []


def _text() -> str:
    """Return all sources without their comments."""
    return "\n".join((_package_text(), *_added))


@functools.cache
def _package_text() -> str:
    return _without_comments("\n".join(path.read_text("utf-8") for path in (*HEADERS, *SOURCES)))


def _without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)
