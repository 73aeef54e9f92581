"""Compile CUDA C++ with NVIDIA's run-time compiler (NVRTC), and load and launch the kernels.

Compiled kernels are kept in the user's cache folder, under the hash of program, headers, flags, architecture, compiler
and driver. Next to each is the hash of its content, so that a damaged file is compiled again. A folder to which another
user can write is not used, because the hash is not a signature.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib
import importlib.util
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from orthobench.recurrence.cuda import plans
from orthobench.system.cache import cache_folder, is_private, private_folder

_FLAGS = ("--std=c++17", "-default-device", f"-I{plans.CODE}")
_FOLDER = "cuda-kernels"  # of the cache folder
_PORTABLE = 8  # blocks of a cluster that every device with clusters can run
_logger = logging.getLogger("orthobench.recurrence")


class UnavailableError(Exception):
    """The compiler or the driver cannot be used; the message says why."""


@functools.cache
def bindings() -> Any:
    """Import NVIDIA's Python bindings: a namespace with the modules `driver` and `nvrtc`.

    Raises:
        UnavailableError: they are not installed, or their libraries do not load.
    """
    _load_compiler()
    try:
        driver, nvrtc = (importlib.import_module(f"cuda.bindings.{name}") for name in ("driver", "nvrtc"))
        nvrtc.nvrtcVersion()
    except ImportError:
        raise UnavailableError("cuda-bindings is not installed") from None
    except Exception as error:  # the libraries do not load
        raise UnavailableError(f"NVRTC does not load: {str(error).strip().partition(chr(10))[0]}") from error
    return SimpleNamespace(driver=driver, nvrtc=nvrtc)


def _load_compiler() -> None:
    """Load NVRTC from the packages that torch depends on, because the bindings search fewer folders than Python."""
    try:
        found = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return
    version = (torch.version.cuda or "13").partition(".")[0]
    for folder in (found.submodule_search_locations or ()) if found else ():
        for path in Path(folder).glob(f"c*/lib/libnvrtc.so.{version}"):
            with contextlib.suppress(OSError):
                ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
                return


def checked_values(result: tuple[Any, ...]) -> Any:
    """Return the values of a call of the bindings.

    Raises:
        RuntimeError: the call failed.
    """
    code, *values = result
    if int(code):
        name = getattr(code, "name", str(code))
        raise RuntimeError(f"{name.removeprefix('CUDA_')} of {type(code).__name__}")
    return values[0] if len(values) == 1 else tuple(values)


def architecture(capability: int) -> str:
    """Return the name of an architecture for the compiler, from its compute capability as two or three digits."""
    return f"sm_{capability}"


def compile_program(program: str, capability: int) -> tuple[bytes, str]:
    """Compile a program to machine code, and return it with the assembler's report of registers and spills.

    Raises:
        UnavailableError: there is no compiler.
        RuntimeError: the program does not compile.
    """
    nvrtc = bindings().nvrtc
    handle = checked_values(nvrtc.nvrtcCreateProgram(program.encode(), b"persistent.cu", 0, [], []))
    flags = (*_FLAGS, f"--gpu-architecture={architecture(capability)}", "--ptxas-options=-v")
    try:
        code = nvrtc.nvrtcCompileProgram(handle, len(flags), [flag.encode() for flag in flags])
        log = bytearray(checked_values(nvrtc.nvrtcGetProgramLogSize(handle)))
        text = bytes(log)
        checked_values(nvrtc.nvrtcGetProgramLog(handle, text))
        report = text.rstrip(b"\0").decode(errors="replace")
        if int(code[0]):
            reasons = [line.strip() for line in report.splitlines() if "error" in line]
            raise RuntimeError(f"NVRTC: {(reasons or [str(code[0])])[0]}")
        cubin = bytes(checked_values(nvrtc.nvrtcGetCUBINSize(handle)))
        checked_values(nvrtc.nvrtcGetCUBIN(handle, cubin))
    finally:
        nvrtc.nvrtcDestroyProgram(handle)
    return cubin, report


@functools.cache
def _headers() -> bytes:
    return b"\0".join(path.read_bytes() for path in plans.headers())


def _key(program: str, capability: int) -> str:
    modules = bindings()
    versions = checked_values(modules.nvrtc.nvrtcVersion()), checked_values(modules.driver.cuDriverGetVersion())
    facts = (program, *_FLAGS[:2], str(capability), *map(str, versions))
    return hashlib.sha256("\0".join(facts).encode() + _headers()).hexdigest()[:32]


def machine_code(program: str, capability: int) -> bytes:
    """Return the machine code of a program, from the cache folder or the compiler.

    Raises:
        UnavailableError: there is no compiler.
        RuntimeError: the program does not compile.
    """
    folder = _folder()
    if folder is None:
        return compile_program(program, capability)[0]
    file = folder / f"{_key(program, capability)}.cubin"
    with contextlib.suppress(OSError):
        digest, _, cubin = file.read_bytes().partition(b"\n")
        if digest == _digest(cubin):
            return cubin
    cubin, _ = compile_program(program, capability)
    # A name of its own, because other processes and threads may compile the same program now.
    partial = file.with_suffix(f".{os.getpid()}-{threading.get_ident()}.partial")
    try:
        partial.write_bytes(_digest(cubin) + b"\n" + cubin)
        partial.chmod(0o600)
        partial.replace(file)
    except OSError as error:
        _logger.debug("a compiled CUDA kernel is not kept: %s", error)
    return cubin


def _digest(cubin: bytes) -> bytes:
    return hashlib.sha256(cubin).hexdigest().encode()


@functools.cache
def _folder() -> Path | None:
    """Return the folder of compiled kernels, or None with a warning if it cannot be used or others can write to it."""
    try:
        folder = cache_folder() / _FOLDER
        private_folder(folder)
        if is_private(folder):
            return folder
        reason = f"other users can write to {folder}"
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder
        reason = str(error)
    _logger.warning("the compiled CUDA kernels cannot be cached (%s): each process compiles them again", reason)
    return None


Launch = Callable[[int, bytes], None]
"""Launches a kernel on the current stream, given the number of blocks and the packed arguments."""


def load(program: str, name: str, device: torch.device, threads: int, shared: int = 0, cluster: int = 1) -> Launch:
    """Compile and load a kernel with one argument, a structure, and return the function that launches it.

    Args:
        program: the source; see `plans.source`.
        name: the kernel's.
        device: the current device.
        threads: of a block.
        shared: the bytes of dynamic shared memory.
        cluster: the blocks of a cluster.

    Raises:
        UnavailableError: there is no compiler.
        RuntimeError: the kernel does not compile or load.
    """
    driver = bindings().driver
    cubin = machine_code(program, capability(device))
    _use_context(device)
    function = checked_values(driver.cuModuleGetFunction(checked_values(driver.cuModuleLoadData(cubin)), name.encode()))
    attribute = driver.CUfunction_attribute
    # Asked for, because CUDA gives a block at most 48 KiB of shared memory by default.
    if shared > 48 * 1024:
        maximum = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked_values(driver.cuFuncSetAttribute(function, maximum, shared))
    if cluster > _PORTABLE:
        allowed = attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        checked_values(driver.cuFuncSetAttribute(function, allowed, 1))
    # Torch's private function, because the public one creates an object at each launch.
    stream_of, index, launch_kernel = torch._C._cuda_getCurrentRawStream, device.index or 0, driver.cuLaunchKernel
    wrong_context = driver.CUresult.CUDA_ERROR_INVALID_CONTEXT
    Pointers = ctypes.c_char_p * 1

    def launch(grid: int, arguments: bytes) -> None:
        pointers = Pointers(arguments)
        stream, address = stream_of(index), ctypes.addressof(pointers)
        (code,) = launch_kernel(function, grid, 1, 1, threads, 1, 1, shared, stream, address, 0)
        if code == wrong_context:  # a thread that has not used CUDA yet
            _use_context(device)
            (code,) = launch_kernel(function, grid, 1, 1, threads, 1, 1, shared, stream, address, 0)
        if int(code):
            raise RuntimeError(f"{name}: CUDA error {getattr(code, 'name', code)} at its launch")

    return launch


def capability(device: torch.device) -> int:
    """Return the compute capability of a device, 90 for 9.0."""
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def _use_context(device: torch.device) -> None:
    """Make the context of the device that torch uses current in this thread."""
    driver, index = bindings().driver, device.index or 0
    checked_values(driver.cuInit(0))
    current = int(checked_values(driver.cuCtxGetCurrent()))
    if not current or int(checked_values(driver.cuCtxGetDevice())) != index:
        checked_values(driver.cuCtxSetCurrent(checked_values(driver.cuDevicePrimaryCtxRetain(index))))


_PROBE = 'extern "C" __global__ void probe(int *x) { extern __shared__ int y[]; if (x) x[0] = y[0]; }\n'


@functools.cache
def describe(device: torch.device) -> plans.GPU:
    """Return what plans need to know of a device.

    Raises:
        UnavailableError: there is no compiler, or the driver does not load its code.
    """
    if device.type != "cuda":
        raise UnavailableError(f"{device} is not a CUDA device")
    properties = torch.cuda.get_device_properties(device)
    driver, digits = bindings().driver, capability(device)
    names = driver.CUdevice_attribute
    maximum = names.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    try:
        with torch.cuda.device(device):
            _use_context(device)
            shared = checked_values(driver.cuDeviceGetAttribute(maximum, device.index or 0))
            clusters = {1: properties.multi_processor_count}
            # Not for older devices, because clusters exist from compute capability 9.0 on.
            if digits >= 90:
                clusters |= _clusters(digits, shared)
    except RuntimeError as error:
        raise UnavailableError(f"the driver does not run NVRTC's code ({error})") from error
    return plans.GPU(digits, clusters, shared)


def _clusters(digits: int, shared: int) -> dict[int, int]:
    """Return how many clusters of each size with one block on each multiprocessor run at the same time."""
    driver = bindings().driver
    module = checked_values(driver.cuModuleLoadData(machine_code(_PROBE, digits)))
    function = checked_values(driver.cuModuleGetFunction(module, b"probe"))
    attribute, found = driver.CUfunction_attribute, {}
    checked_values(
        driver.cuFuncSetAttribute(function, attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
    )
    checked_values(
        driver.cuFuncSetAttribute(function, attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
    )
    for size in plans.CLUSTERS[1:]:
        dimension = driver.CUlaunchAttribute()
        dimension.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dimension.value.clusterDim.x, dimension.value.clusterDim.y, dimension.value.clusterDim.z = size, 1, 1
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = size, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = 256, 1, 1
        config.sharedMemBytes, config.attrs, config.numAttrs = shared, [dimension], 1
        code, number = driver.cuOccupancyMaxActiveClusters(function, config)
        found[size] = 0 if int(code) else int(number)
    return found
