"""Build the C kernels with the package: one library for each instruction set, of which a process loads one.

The rest of the package is described in pyproject.toml. `make kernels` builds them again after a change of a C file;
`python setup.py build_ext --inplace --force` does so with another compiler.
Without a compiler nothing is built, unless ORTHOBENCH_KERNELS=none asks for a package whose recurrences run in PyTorch.
"""

from __future__ import annotations

import hashlib
import os
import runpy
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

ROOT = Path(__file__).resolve().parent
PACKAGE = "orthobench.recurrence.cpu"
FILE = ROOT / "orthobench" / "recurrence" / "cpu" / "c_sources.py"
CODE = runpy.run_path(str(FILE))
"""The names of c_sources.py, which cannot be imported because the package needs PyTorch."""
FLAGS = CODE["FLAGS"]
WITHOUT = os.environ.get("ORTHOBENCH_KERNELS") == "none"
"""Whether the package is to have no kernels; its wheel is then for any platform, so that it replaces none that has."""
COMPILERS = 16  # at a time; more would need much memory, and the longest file takes a fifth of the whole time


def compiler() -> list[str]:
    """Return the command of the C compiler: $CC or cc.

    Raises:
        CompileError: $CC is no command.
    """
    try:
        return [os.path.expanduser(word) for word in shlex.split(os.environ.get("CC") or "cc")]  # noqa: PTH111 - as location.from_home
    except ValueError as error:
        raise CompileError(f"$CC is {os.environ['CC']!r}: {error}") from error


def build(target: Path, objects: Path, pool: ThreadPoolExecutor, command: Sequence[str], flags: Sequence[str]) -> None:
    """Build the library of all C files.

    Args:
        target: the library.
        objects: a folder for the compiled files, of which those stay that are newer than their sources.
        pool: the threads that wait for compilers.
        command: the compiler.
        flags: its flags besides FLAGS.

    Raises:
        CompileError: the compiler is missing or fails.
    """
    digest = CODE["digest"]()
    compiled = compile_all(objects, pool, command, flags)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{os.getpid()}")  # processes that have loaded the old file keep it
    text = f'const char {CODE["DIGEST"]}[] = "{digest}";\n'
    inputs = ["-x", "c", "-", "-x", "none", *map(str, compiled)]
    _run([*command, *FLAGS, *flags, "-shared", "-s", *inputs, "-o", str(partial), "-lm"], text)
    partial.replace(target)


def compile_all(folder: Path, pool: ThreadPoolExecutor, command: Sequence[str], flags: Sequence[str]) -> list[Path]:
    """Compile each C file in its own process; return the objects."""
    words = [*command, *FLAGS, *flags, f"-I{FILE.parent}"]
    folder = folder / hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    newest = max(file.stat().st_mtime_ns for file in CODE["HEADERS"])

    def compile_one(source: Path) -> Path:
        target = folder / f"{source.stem}.o"
        if not target.exists() or target.stat().st_mtime_ns <= max(newest, source.stat().st_mtime_ns):
            partial = target.with_suffix(f".{os.getpid()}")
            _run([*words, "-c", str(source), "-o", str(partial)])
            partial.replace(target)
        return target

    return list(pool.map(compile_one, CODE["SOURCES"]))


def _run(command: Sequence[str], text: str = "") -> None:
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise CompileError(f"{command[0]} cannot be run: {error.strerror or error}") from error
    if done.returncode:
        raise CompileError(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")


class BuildKernels(build_ext):
    """Compile with the project's flags alone, because those of Python's own build would change the kernels."""

    def get_ext_filename(self, fullname: str) -> str:
        return f"{fullname.replace('.', os.sep)}.so"

    def build_extensions(self) -> None:
        self.parallel = len(self.extensions)
        with ThreadPoolExecutor(min(COMPILERS, os.cpu_count() or 1)) as self.pool:
            super().build_extensions()
        # One that this compiler cannot build is left out, because a process loads the widest of the others.
        if not any(Path(self.get_ext_fullpath(ext.name)).exists() for ext in self.extensions):
            raise CompileError(
                f"{compiler()[0]} compiles no C kernel: install a C compiler, such as apt install gcc libc6-dev, or "
                "set ORTHOBENCH_KERNELS=none, and recurrences will run in PyTorch, several times slower"
            )

    def build_extension(self, ext: Extension) -> None:
        variant = ext.name.rpartition("kernels-")[2]
        target, objects = Path(self.get_ext_fullpath(ext.name)), Path(self.build_temp, variant)
        present = FILE.with_name(CODE["file_name"](variant))
        if not self.force and present.exists() and CODE["digest"]().encode() in present.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(present, target)  # because an editable installation has built it from these files
            return
        build(target, objects, self.pool, compiler(), [*CODE["variants"]()[variant].values()])


class Wheel(bdist_wheel):
    """A wheel for every Python, because the libraries do not depend on Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


if __name__ == "__main__":
    sources = [str(file.relative_to(ROOT)) for file in (*CODE["SOURCES"], *CODE["HEADERS"])]
    chosen = os.environ.get("ORTHOBENCH_MARCH")
    setup(
        ext_modules=[
            Extension(f"{PACKAGE}.kernels-{variant}", sources, optional=True)
            for variant in CODE["variants"]()
            if chosen in (None, "", variant) and not WITHOUT
        ],
        cmdclass={"build_ext": BuildKernels, "bdist_wheel": Wheel},
    )
