"""What Python reads of the C sources is what the compiler makes of them."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
import torch

from orthobench.recurrence.cpu import c_sources, call_c, signatures
from orthobench.recurrence.cpu import library as compiled

in_c = pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")
STRUCTS = ["constants", "dense", "units", "slstm", "mlstm", "delta", "selective", "head_norm"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (Debian: gcc, libc6-dev)")
@pytest.mark.parametrize("struct", STRUCTS)
def test_fields_have_the_offsets_of_the_compiler(struct: str, tmp_path: Path) -> None:
    (file,) = (
        path
        for path in (*c_sources.HEADERS, *c_sources.SOURCES)
        if re.search(rf"^struct {struct} {{", path.read_text("utf-8"), re.M)
    )
    structure = signatures.structure(struct)
    offsets = {f"offsetof(struct {struct}, {name})": getattr(structure, name).offset for name, *_ in structure._fields_}
    offsets[f"sizeof(struct {struct})"] = ctypes.sizeof(structure)
    checks = "".join(
        f'_Static_assert({expression} == {number}, "{expression}");\n' for expression, number in offsets.items()
    )
    source = tmp_path / "probe.c"
    source.write_text(f'#include "{file}"\n#include <stddef.h>\n{checks}')
    command = ["cc", "-std=gnu11", "-w", "-fsyntax-only", f"-I{Path(signatures.__file__).parent}", str(source)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr


def test_signature_has_names_and_types() -> None:
    signature = signatures.signature("cross_entropy")
    assert signature.result is ctypes.c_double
    assert list(signature.parameters) == ["first", "last", "classes", "scale", "logits", "targets", "gradient"]
    assert signature.parameters["scale"].kind is ctypes.c_float
    assert signature.parameters["targets"].dtype is torch.int64
    assert signatures.signature("vector_length") == signatures.CSignature(ctypes.c_int64, {})


@pytest.mark.parametrize("name", ["no_such_function", "carve"])
def test_function_that_python_cannot_call_is_refused(name: str) -> None:
    with pytest.raises(LookupError, match=name):
        signatures.signature(name)


@in_c
def test_two_threads_that_ask_for_a_function_get_its_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    library, is_reading, may_go_on = compiled.Library(call_c.kernels()._name), threading.Event(), threading.Event()

    def slow(name: str) -> signatures.CSignature:
        if threading.current_thread() is first:
            is_reading.set()
            assert may_go_on.wait(60)
        return signatures.signature(name)

    monkeypatch.setattr(compiled, "signature", slow)
    first = threading.Thread(target=lambda: library.weight_gradient)
    first.start()
    assert is_reading.wait(60)
    try:
        found = library.weight_gradient.argtypes
    finally:
        may_go_on.set()
        first.join()
    expected = [value.kind for value in signatures.signature("weight_gradient").parameters.values()]
    assert list(found) == expected
    assert list(library.weight_gradient.argtypes) == expected


@in_c
def test_function_without_a_signature_is_never_found() -> None:
    library = compiled.Library(call_c.kernels()._name)
    for _ in range(2):  # the first failure must not leave a function behind
        with pytest.raises(LookupError, match="no C file defines malloc"):
            _ = library.malloc


def test_file_names_are_unique() -> None:
    assert len({path.name for path in c_sources.SOURCES}) == len(c_sources.SOURCES)


@in_c
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"totl": 2}, "linear has no totl"),
        ({"total": torch.ones(2)}, "linear takes a number as total, not Tensor"),
        ({"bias": 2}, "linear takes a tensor as bias, not int"),
        ({"bias": torch.ones(2, dtype=torch.float64)}, "float64"),
        ({"bias": torch.ones(1).expand(2)}, "strides"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call_c.bind("linear", **arguments)


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(TypeError, match="head_norm_forward has no epsilom"):
        call_c.bind("head_norm_forward", epsilom=0.1)


def test_structure_has_the_fields_of_its_parts() -> None:
    problem = signatures.structure("dense")(steps=3, b=0.5)
    assert (problem.steps, problem.constants.b) == (3, 0.5)
    assert {"steps", "a", "b", "c"} <= signatures.fields("dense").keys()


def test_phases_have_the_numbers_of_the_cell() -> None:
    z, y = signatures.phases("lem")
    assert (z.reads, z.products, z.inputs, z.saved) == ("BEFORE", 3, 3, 3)
    assert (y.reads, y.products, y.inputs, y.saved) == ("SECOND_NOW", 1, 1, 1)
    (lipschitz,) = signatures.phases("lipschitz")
    assert (lipschitz.products, lipschitz.inputs, lipschitz.own, lipschitz.alone) == (2, 1, 1, 0)
    with pytest.raises(LookupError, match="cell no_such_cell"):
        signatures.phases("no_such_cell")
