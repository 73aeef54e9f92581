"""Compile CUDA C++ with NVRTC, which comes with torch, and launch it by the driver: a thin layer over two libraries."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


class NvrtcError(RuntimeError):
    """NVRTC or the driver failed; the message has its words."""


@functools.cache
def library() -> ctypes.CDLL:
    """Return NVRTC's library: that of NVIDIA's packages, else that of the system.

    Raises:
        NvrtcError: there is none.
    """
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec is not None else []
    bundled = [str(file) for name in _NAMES for folder in folders for file in sorted(folder.glob(f"*/lib/{name}"))]
    for name in (*bundled, *_NAMES):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise NvrtcError("NVRTC's library was not found: it comes with torch for CUDA")


@functools.cache
def headers() -> dict[str, str]:
    """Return the headers that every source may include, by name."""
    return {file.name: file.read_text("utf-8") for file in sorted(Path(__file__).parent.glob("*.cuh"))}


def compile_source(source: str, name: str, architecture: str, constants: Mapping[str, int]) -> bytes:
    """Return the machine code of CUDA C++ source for an architecture such as "sm_90", with macros for the constants.

    Raises:
        NvrtcError: there is no NVRTC, or it refuses the source.
    """
    nvrtc, program = library(), ctypes.c_void_p()
    options = [f"--gpu-architecture={architecture}", "--std=c++17", *(f"-D{k}={v}" for k, v in constants.items())]
    arguments, contents, names = map(_strings, (options, headers().values(), headers()))
    code = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), name.encode(), len(contents), contents, names
    )
    _check(code, "create")
    try:
        if nvrtc.nvrtcCompileProgram(program, len(options), arguments):
            log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
            raise NvrtcError(f"NVRTC refuses {name}: {log.decode(errors='replace').strip()[:500]}")
        return _text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _strings(texts: Iterable[str]) -> Any:
    encoded = [text.encode() for text in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def _text(size_of: Any, read: Any, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(size_of(program, ctypes.byref(size)), "size")
    buffer = ctypes.create_string_buffer(size.value)
    _check(read(program, buffer), "read")
    return buffer.raw


def _check(code: int, what: str) -> None:
    if code:
        raise NvrtcError(f"NVRTC fails to {what}: error {code}")


@functools.cache
def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NvrtcError(f"the driver's library cannot be loaded: {error}") from error


class Module:
    """Machine code in the current CUDA context; it stays loaded as long as the process lives."""

    def __init__(self, code: bytes) -> None:
        self._handle = ctypes.c_void_p()
        _check_driver(_driver().cuModuleLoadData(ctypes.byref(self._handle), code))

    def launch(self, name: str, blocks: int, threads: int, arguments: Sequence[Tensor | int | float]) -> None:
        """Launch a kernel on torch's current stream; integers are int, floats float.

        Raises:
            NvrtcError: the driver refuses the launch.
        """
        values = [_as_c(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        function = self._function(name)
        _check_driver(_driver().cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, None))

    @functools.cache  # noqa: B019, a module lives as long as its process
    def _function(self, name: str) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        _check_driver(_driver().cuModuleGetFunction(ctypes.byref(function), self._handle, name.encode()))
        return function


def load(source: Path, device: torch.device, macros: Mapping[str, int]) -> Module:
    """Return the machine code of a source for a CUDA device, which is the current one; compiled once in a process.

    Raises:
        NvrtcError: NVRTC refuses the source, or the driver its machine code.
    """
    assert device.index is not None
    return _loaded(source, device.index, tuple(macros.items()))


@functools.cache
def _loaded(source: Path, device: int, macros: tuple[tuple[str, int], ...]) -> Module:
    major, minor = torch.cuda.get_device_capability(device)
    return Module(compile_source(source.read_text("utf-8"), source.name, f"sm_{major}{minor}", dict(macros)))


def _as_c(argument: Tensor | int | float) -> Any:
    if isinstance(argument, Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    return ctypes.c_float(argument) if isinstance(argument, float) else ctypes.c_int(argument)


def _check_driver(code: int) -> None:
    if code:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(text))
        raise NvrtcError(f"CUDA driver error {code}: {(text.value or b'unknown').decode()}")
