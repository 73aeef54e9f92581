"""Other compilers than GCC, other processors than x86, and GCC's AddressSanitizer read the C files too."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import kernels

from orthobench.recurrence.cpu import c_sources
from orthobench.recurrence.cpu.library import usable_variants

COMPARISON = """
import sys
import pytest
import torch
from orthobench.recurrence.cpu import call_c, matrix_products
from orthobench.recurrence.cpu.library import Library

library = Library(sys.argv[1])
call_c.kernels = lambda: library
if sys.argv[2:] == ["planted"]:  # a bias of one number for five features, with a stride of 0
    bias = torch.ones(1).expand(5)
    rows, packed, out = torch.ones(3, 2, 4), matrix_products.pack(torch.ones(5, 4)), torch.empty(3, 2, 5)
    pointer = call_c.pointer
    matrix_products.pointer = lambda tensor, *others: pointer(tensor, *others, strided=True)
    matrix_products.linear(rows, packed, bias, out)
else:
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


TESTS = [str(Path(__file__).with_name(f"test_{name}.py")) for name in ("installed", "convolution", "delta", "mlstm")]
"""Tests of every kernel, and of sizes and chunks that are no multiples of a vector's."""


def compare(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    command = [sys.executable, "-c", COMPARISON, *arguments]
    return subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=590, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["clang", "clang -march=native", "aarch64-linux-gnu-gcc"])
def test_other_compilers_accept_every_file(compiler: str) -> None:
    command = compiler.split()
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    if "-march=native" in command and platform.machine() != "x86_64":
        pytest.skip("clang knows -march=native on x86")
    for source in c_sources.SOURCES:  # one by one: clang takes the next file's types for the last one's
        check = [*command, "-std=gnu11", f"-I{Path(c_sources.__file__).parent}", "-fsyntax-only", str(source)]
        run = subprocess.run(check, capture_output=True, text=True, timeout=60, check=False)
        assert run.returncode == 0, run.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed")
def test_clang_kernels_agree_with_the_reference() -> None:
    run = compare(str(kernels.build("clang", *kernels.flags(usable_variants()[0]), "-O1")), *TESTS)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr


@pytest.fixture(scope="module")
def sanitized() -> tuple[str, dict[str, str]]:
    """A library whose memory AddressSanitizer watches, and its environment. AVX-512's masked loads are not watched."""
    if platform.machine() != "x86_64" or shutil.which("gcc") is None:
        pytest.skip("GCC's AddressSanitizer on x86-64 is needed")
    # With the library of C++, because the sanitizer looks for its exceptions at the start, and a test imports Triton.
    names = ("libasan.so", "libstdc++.so.6")
    found = [subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip() for name in names]
    if not all(map(os.path.isabs, found)):
        pytest.skip("libasan is not installed")
    flags = kernels.flags("x86-64-v3") if "x86-64-v3" in usable_variants() else ()
    built = kernels.build("gcc", *flags, "-fsanitize=address", "-fno-omit-frame-pointer", "-O1")
    return str(built), {"LD_PRELOAD": " ".join(map(os.path.realpath, found)), "ASAN_OPTIONS": "detect_leaks=0"}


@pytest.mark.slow
def test_no_kernel_reads_or_writes_other_memory(sanitized: tuple[str, dict[str, str]]) -> None:
    run = compare(sanitized[0], *TESTS, **sanitized[1])
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]


@pytest.mark.slow
def test_sanitizer_detects_a_read_behind_a_tensor(sanitized: tuple[str, dict[str, str]]) -> None:
    run = compare(sanitized[0], "planted", **sanitized[1])
    assert run.returncode != 0
    assert "heap-buffer-overflow" in run.stderr
    assert "in linear" in run.stderr
