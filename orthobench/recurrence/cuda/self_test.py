"""The self-test of the CUDA kernels, which precedes an operation's first use on a device.

A kernel may be wrong on an untried device, because of a compiler, a driver or a new architecture. The test compares
values and gradients with the reference in float64 on the same device, at the size of the call. A file in the user's
cache folder keeps the verdicts, one file per device, driver, torch version and version of this code.
`orthobench doctor --retest` removes it and compares all forms of all operations.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import logging
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import backends, kernel_case, kernels, reference
from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.cuda.launch import TestedKernel
from orthobench.recurrence.operation import Operation
from orthobench.recurrence.source_hash import source_hash
from orthobench.system.cache import cache_folder, private_folder
from orthobench.system.files import write_bytes
from orthobench.system.location import variable

SWITCH = "ORTHOBENCH_SELF_TEST"
"""The environment variable that disables the tests when it is "off"; the kernels then run untested."""
PASSED = "passed"
STEPS = 4
TOLERANCE = 3e-5
"""Relative Frobenius distance from float64. Over these steps float32 stays below 3e-6, whereas TF32 has 5e-4."""
MAX_BATCH = 512

RunCall = Callable[[Call], Result]

_logger = logging.getLogger("orthobench.recurrence")
_known: dict[tuple[str, torch.device], str] = {}


def failure(call: Call, run: RunCall) -> str | None:
    """Return why the kernels of a call are not trusted on its device, or None; an operation's first call tests them.

    Args:
        call: the call.
        run: runs a call with the kernels.

    Raises:
        RuntimeError: the kernels broke the device's context, so this process cannot continue.
        torch.OutOfMemoryError: the device lacks memory.
    """
    if variable(SWITCH) == "off":
        return None
    name, device = call.operation.name, call.x.device
    verdict = _known.get((name, device))
    if verdict is None:
        if call.x.is_cuda and torch.cuda.is_current_stream_capturing():
            return None  # a test would end the capture, and the warm-up has already tested the operation
        verdict = _known[name, device] = _verdict(call, run)
    backends.record_self_test(name, verdict, machine(device))
    return None if verdict == PASSED else f"the CUDA kernels of {name} failed their self-test: {verdict}"


def _verdict(call: Call, run: RunCall) -> str:
    """Return the stored verdict on a call's operation, or test it: "passed" or the reason for a failure."""
    name, device = call.operation.name, call.x.device
    if known := verdicts(device).get(name):
        return known
    _logger.info("testing the CUDA kernels of %s on %s (some seconds)", name, machine(device)["device"])
    try:
        verdict = measure(run, call) or PASSED
    except torch.OutOfMemoryError:
        raise  # which is no verdict, because a full memory says nothing about the kernels
    except Exception as error:  # of the compiler, the launch or the device
        first = next((line for line in str(error).splitlines() if line.strip()), "")
        verdict = f"{type(error).__name__}: {first[:300]}"
        if not is_broken(device):
            return verdict  # not stored: a missing compiler is not the kernels' fault, so the next process tries again
        _store(device, name, verdict)
        raise RuntimeError(
            f"the self-test of the CUDA kernels of {name} broke the GPU's context ({verdict}): "
            "run the same command again, it will use PyTorch's operations"
        ) from error
    _store(device, name, verdict)
    return verdict


def measure(run: RunCall, call: Call) -> str | None:
    """Compare the kernels at a call's size and parameters with the reference; return what differs, or None.

    Args:
        run: runs a call with the kernels.
        call: gives the operation, the sizes, the parameters and the device.

    Raises:
        RuntimeError: the kernels cannot be compiled or launched, or the device lacks memory.
    """
    operation, parameters, device = call.operation, call.parameters, call.x.device
    assert isinstance(operation, Operation)
    n, batch = call.x.shape[-1] // operation.gates, min(call.x.shape[1], MAX_BATCH)
    arguments = [argument.to(device) for argument in problem(operation, parameters, n, batch)]
    names = tuple(name for name, value in parameters.items() if isinstance(value, Tensor))
    scalars = {name: value for name, value in parameters.items() if name not in names}
    # Switched on, because a kernel's first call may come from an evaluation, which computes no gradients.
    with torch.inference_mode(False), torch.enable_grad():
        expected = kernel_case.evaluate(reference.run, operation, scalars, names, arguments, torch.float64)
        rows = arguments[1].reshape(-1, arguments[1].shape[-1])
        if not float((rows @ rows.T).norm()) > 0:
            return "the device computes nothing: a product of W is 0"
        actual = kernel_case.evaluate(run, operation, scalars, names, arguments, torch.float32)
    errors = {name: kernel_case.distance(actual[name], value) for name, value in expected.items()}
    wrong = [f"{name} {error:.1e}" for name, error in errors.items() if not error <= TOLERANCE]  # NaN is wrong
    return f"differs from the reference: {', '.join(wrong)} (limit {TOLERANCE:.0e})" if wrong else None


def problem(
    operation: Operation[...], parameters: Mapping[str, Any], n: int, batch: int, steps: int = STEPS
) -> list[Tensor]:
    """Return x, the weight, the initial state and the parameters that are tensors, as float32 values in float64."""
    kernel = kernels.find(operation, "cuda")
    own = (
        kernel.problem(parameters, n, batch, steps) if kernel is not None and issubclass(kernel, TestedKernel) else None
    )
    return own or kernel_case.problem(operation, parameters, n, batch, steps)


def is_broken(device: torch.device) -> bool:
    """Return whether an error has made the context of a CUDA device useless for this process."""
    if device.type != "cuda":
        return False
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return False


def verdicts(device: torch.device) -> dict[str, str]:
    """Return the stored verdicts on a device by operation, none if their file is missing or damaged."""
    try:
        tests = json.loads(_file(device).read_bytes())["tests"]
        return {str(name): str(verdict) for name, verdict in tests.items()}
    except (OSError, RuntimeError, ValueError, TypeError, LookupError, AttributeError):  # RuntimeError: no home folder
        return {}


def _store(device: torch.device, name: str, verdict: str) -> None:
    content = {"machine": machine(device), "tests": {**verdicts(device), name: verdict}}
    try:
        file = _file(device)
        private_folder(file.parent)
        write_bytes(file, f"{json.dumps(content, indent=1)}\n".encode())
    except (OSError, RuntimeError) as error:
        _logger.debug("the verdict of a self-test is not kept: %s", error)


def forget(device: torch.device) -> None:
    """Remove the stored verdicts on a device, so that the next process tests again.

    Raises:
        OSError: the file cannot be removed.
        RuntimeError: the user has no home folder.
    """
    _file(device).unlink(missing_ok=True)


def _file(device: torch.device) -> Path:
    facts = json.dumps(machine(device), sort_keys=True)
    return cache_folder() / "self-tests" / f"{hashlib.sha256(facts.encode()).hexdigest()[:32]}.json"


@functools.cache
def machine(device: torch.device) -> dict[str, Any]:
    """Return the facts for which a verdict is valid: device, driver, compilers and code."""
    try:
        triton_version = importlib.import_module("triton").__version__
    except ImportError:
        triton_version = None
    properties = torch.cuda.get_device_properties(device)
    return {
        "device": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "driver": driver_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "triton": triton_version,
        "code": source_hash(),
    }


@functools.cache
def driver_version() -> str | None:
    """Return the version of NVIDIA's driver, such as "580.65.06", or None without one."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text("utf-8", "replace")
    except OSError:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
        except (OSError, subprocess.SubprocessError):
            return None
    match = re.search(r"\d+\.\d+(?:\.\d+)?", text)
    return match[0] if match else None
