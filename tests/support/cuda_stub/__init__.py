"""A CUDA runtime without a GPU, for child processes: see `runtime.c`."""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
LIBRARIES = ("libc10_cuda.so", "libtorch_cuda.so", "libtorch_python.so", "libtorch_cuda_linalg.so")


def build(folder: Path) -> dict[str, str]:
    """Compile the stub in a folder and return the environment of a process that finds it in CUDA's place.

    Skips the test where torch has no CUDA or the machine no C compiler.
    """
    if torch.version.cuda is None:
        pytest.skip("this torch has no CUDA")
    runtime = _own_symbols()
    generated = [f"int {name}() {{ {_count(name)} return 0; }}" for name in sorted(_imported_symbols() - runtime)]
    (folder / "generated.c").write_text("void stub_library(void);\n" + "\n".join(generated) + "\n")
    (folder / "lib").mkdir()
    preloaded, driver = folder / "libstub.so", folder / "lib" / "libcuda.so.1"
    compiler = folder / "lib" / f"libnvrtc.so.{torch.version.cuda.partition('.')[0]}"
    versions = folder / "versions"
    versions.write_text(f"{compiler.name} {{ global: *; }};")
    options = ["-shared", "-fPIC", "-O1", "-w"]
    commands: list[list[str | Path]] = [
        ["cc", *options, *_includes(), HERE / "runtime.c", folder / "generated.c", "-o", preloaded],
        ["cc", *options, HERE / "driver.c", "-o", driver],
        ["cc", *options, f"-Wl,-soname,{compiler.name},--version-script,{versions}", HERE / "nvrtc.c", "-o", compiler],
    ]
    for command in commands:
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError:
            pytest.skip("no C compiler (Debian: gcc, libc6-dev)")
        except subprocess.CalledProcessError as error:
            raise AssertionError(error.stderr) from error
    return {
        **os.environ,
        "LD_PRELOAD": f"{preloaded} {compiler}",  # by its name torch finds it loaded
        "LD_LIBRARY_PATH": str(driver.parent),
        "TRITON_LIBCUDA_PATH": str(driver.parent),
        "CUDA_VISIBLE_DEVICES": "0",
        "ORTHOBENCH_SELF_TEST": "off",  # the stub computes nothing
    }


def run(environment: Mapping[str, str], *arguments: object) -> str:
    """Run Python with these arguments in the stub's environment, as `child.py` does, and return what it prints."""
    done = subprocess.run(
        [sys.executable, HERE / "child.py", *map(str, arguments)],
        env=environment,
        cwd=HERE.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-6000:]
    return done.stdout


def _imported_symbols() -> set[str]:
    """The symbols that torch's libraries take from CUDA's."""
    symbols = set()
    for name in LIBRARIES:
        path = Path(torch.__file__).parent / "lib" / name
        listing = subprocess.run(["nm", "-D", "--undefined-only", path], capture_output=True, text=True, check=True)
        symbols |= set(re.findall(r" U (\w+)@lib(?:cudart|cublas|cublasLt|cusolver|cufft)\.so", listing.stdout))
    return symbols


def _own_symbols() -> set[str]:
    return set(re.findall(r"^[a-z][\w ]*?\**(\w+)\(", (HERE / "runtime.c").read_text(), re.M))


def _count(name: str) -> str:
    is_call = name.startswith(("cublas", "cusolver", "cufft")) and not re.search(
        "Get|Set|Create|Destroy|bufferSize", name
    )
    return "stub_library();" if is_call else ""


def _includes() -> list[str]:
    """The folders of the runtime's headers, and of the one that torch's packages lack."""
    package = importlib.util.find_spec("nvidia")
    folders = [Path(folder) / "cu13" / "include" for folder in (package and package.submodule_search_locations) or []]
    for folder in [*folders, Path("/usr/local/cuda/include")]:
        if (folder / "driver_types.h").exists():
            return [f"-I{folder}", f"-idirafter{HERE}"]
    pytest.skip("no headers of the CUDA runtime")
