"""The compiled library: its instruction sets, the choice among them, and what happens without one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from setuptools.errors import CompileError
from support.scripts import script

import setup
from orthobench.diagnosis import Level
from orthobench.diagnosis import kernel_findings as diagnosis
from orthobench.recurrence.compiler import build
from orthobench.recurrence.cpu import c_sources, call_c, library

in_c = pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")
ROOT = Path(setup.__file__).parent
X86 = ["x86-64-v4", "x86-64-v3", "x86-64"]
HASWELL = "fpu sse sse2 popcnt fma movbe f16c abm avx avx2 bmi1 bmi2"
SKYLAKE = f"{HASWELL} avx512f avx512bw avx512cd avx512dq avx512vl"


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that gives this process another processor: its machine and its flags."""

    def install(machine: str, flags: str) -> None:
        monkeypatch.delenv("ORTHOBENCH_MARCH", raising=False)
        monkeypatch.setattr("platform.machine", lambda: machine)
        monkeypatch.setattr(library, "_processor_flags", lambda: set(flags.split()))

    return install


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder in which this process looks for its library."""

    def forget() -> None:
        call_c.missing.cache_clear()
        call_c.kernels.cache_clear()
        build._loaded.clear()  # because the cells of other tests were added to the library that goes

    monkeypatch.setattr(library, "FOLDER", tmp_path)
    forget()
    yield tmp_path
    forget()


# ---------------------------------------------------------------------- the instruction sets


@pytest.mark.parametrize(
    ("machine", "flags", "expected"),
    [
        ("x86_64", SKYLAKE, X86),
        ("x86_64", SKYLAKE.replace(" avx512vl", ""), X86[1:]),
        ("x86_64", HASWELL, X86[1:]),
        ("x86_64", HASWELL.replace(" fma", ""), X86[2:]),  # AMD's Piledriver has fma and no avx2, others the reverse
        ("x86_64", "", X86[2:]),
        ("aarch64", "fp asimd sve", ["aarch64"]),
    ],
)
def test_widest_instruction_set_of_the_processor_is_chosen(
    machine: str, flags: str, expected: list[str], processor: Any
) -> None:
    processor(machine, flags)
    assert library.usable_variants() == expected
    assert library.variant() == expected[0]


def test_variable_chooses_another_one_that_the_processor_has(processor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    processor("x86_64", HASWELL)
    monkeypatch.setenv("ORTHOBENCH_MARCH", "x86-64")
    assert library.variant() == "x86-64"
    for name in ("x86-64-v4", "x86-64-v99"):
        monkeypatch.setenv("ORTHOBENCH_MARCH", name)
        with pytest.raises(library.MissingError, match=f"is '{name}': this processor runs .* x86-64-v3, x86-64$"):
            library.variant()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/cpuinfo is Linux's")
def test_flags_are_those_of_proc() -> None:
    text = Path("/proc/cpuinfo").read_text()
    assert all(f" {flag}" in text for flag in library._processor_flags())
    assert bool(library._processor_flags()) == ("flags" in text)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler (Debian: gcc, libc6-dev)")
@pytest.mark.parametrize("name", X86[:2])
def test_flags_mean_what_the_name_says(name: str) -> None:
    """The compiler defines the same macros for a variant's flags as for its name."""
    if sys.platform != "linux" or "x86" not in os.uname().machine:
        pytest.skip("the compiler of this machine is for another processor")

    def macros(*flags: str) -> set[str]:
        command = ["gcc", *flags, "-dM", "-E", "-x", "c", "/dev/null"]
        return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines())

    assert macros(*c_sources.variants("x86_64")[name].values()) >= macros(f"-march={name}") - {
        f"#define {each} 1" for each in ("__CX16__", "__LAHF_SAHF__", "__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16")
    }


@in_c
@pytest.mark.parametrize("name", library.usable_variants())
def test_every_variant_is_built_and_has_its_vectors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTHOBENCH_MARCH", name)
    assert library.load().lanes == {"x86-64-v4": 16, "x86-64-v3": 8}.get(name, 4)


# ---------------------------------------------------------------------- no library, or another one


def finding() -> Any:
    return next(each for each in diagnosis.back_ends() if each.subject == "cpu")


def test_missing_library_is_told(folder: Path) -> None:
    reason = call_c.missing()
    assert reason == f"the C kernels are not built ({c_sources.file_name(library.variant())} is missing)"
    assert finding().level is Level.ACTION
    assert reason in finding().text
    assert "gcc" in finding().fix


def test_damaged_library_is_told(folder: Path) -> None:
    (folder / c_sources.file_name(library.variant())).write_text("no library")
    assert "the C kernels do not load: " in str(call_c.missing())


@in_c
def test_library_of_other_sources_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(Path(library.__file__).parent / c_sources.file_name(library.variant()), folder)
    assert call_c.missing() is None
    call_c.missing.cache_clear()
    call_c.kernels.cache_clear()
    monkeypatch.setattr(c_sources, "digest", lambda: "of changed files")
    assert "have changed since" in str(call_c.missing())
    assert "make kernels" in str(call_c.missing())


def test_changed_file_changes_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, copy = c_sources.digest.__wrapped__(), shutil.copytree(c_sources.CODE, tmp_path / "code")
    for name in ("SOURCES", "HEADERS"):
        moved = [copy / each.relative_to(c_sources.CODE) for each in getattr(c_sources, name)]
        monkeypatch.setattr(c_sources, name, moved)
    assert c_sources.digest.__wrapped__() == before
    for file in (copy / "cpu" / "vectors.h", copy / "cpu" / "generated" / "lem.c"):
        file.write_text(file.read_text() + "\n")
        after = c_sources.digest.__wrapped__()
        assert after != before
        before = after


# ---------------------------------------------------------------------- the build


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [("/nowhere/cc", "cannot be run"), ("false", "false failed"), ("cc '", "closing quotation")],
)
def test_compiler_that_fails_is_told(
    compiler: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler)
    with setup.ThreadPoolExecutor(1) as pool, pytest.raises(CompileError, match=reason):
        setup.build(tmp_path / "kernels.so", tmp_path / "objects", pool, setup.compiler(), [])
    assert not (tmp_path / "kernels.so").exists()


# A compiler that writes the name of each C file, and touches what it should write.
NOTING = """
for argument do
    case $argument in *.c) echo "$(basename "$argument")" >> {log};; esac
    [ "$last" != -o ] || touch "$argument"
    last=$argument
done
"""


def test_only_changed_files_are_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    compiler = script(tmp_path / "cc", NOTING.format(log=log))
    files = [tmp_path / name for name in ("one.c", "two.c", "one.h")]
    for file in files:
        file.write_text("")
        os.utime(file, (1000, 1000))
    monkeypatch.setitem(setup.CODE, "SOURCES", files[:2])
    monkeypatch.setitem(setup.CODE, "HEADERS", files[2:])

    def compiled() -> set[str]:
        log.write_text("")
        with setup.ThreadPoolExecutor(2) as pool:
            setup.build(tmp_path / "kernels.so", tmp_path / "objects", pool, [compiler], [])
        return set(log.read_text().split())

    assert compiled() == {"one.c", "two.c"}
    assert compiled() == set()
    os.utime(files[0])
    os.utime(files[0], ns=(2**62, 2**62))
    assert compiled() == {"one.c"}
    os.utime(files[0], (1000, 1000))
    os.utime(files[2], ns=(2**62, 2**62))
    assert compiled() == {"one.c", "two.c"}


@pytest.mark.parametrize("kernels", ["", "none"])
def test_installation_without_a_compiler_says_what_to_do(tmp_path: Path, kernels: str) -> None:
    environment = {**os.environ, "CC": "/nowhere/cc", "ORTHOBENCH_KERNELS": kernels}
    folders = ["--build-lib", str(tmp_path), "--build-temp", str(tmp_path)]
    command = [sys.executable, "setup.py", "build_ext", "--force", *folders]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (kernels == "none"), done.stderr
    assert ("set ORTHOBENCH_KERNELS=none" in done.stderr) == (kernels != "none")
    assert not list(tmp_path.rglob("*.so"))
