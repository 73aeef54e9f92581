"""The results of the CUDA kernels' self-tests, which are cached in the user's cache folder.

There is one file per device, driver, torch version and version of this code. Before a test starts, its verdict is
recorded as "testing", so that kernels that kill their process twice count as failed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import json
import logging
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import filelock
import torch

from orthobench.recurrence import backends
from orthobench.recurrence.call import Call
from orthobench.recurrence.cuda import self_test
from orthobench.recurrence.cuda.self_test import KernelVariant, RunCall
from orthobench.recurrence.source_hash import source_hash
from orthobench.system.cache import UntrustedError, cache_folder, open_trusted, private_folder
from orthobench.system.files import write_bytes

SWITCH = "ORTHOBENCH_SELF_TEST"
"""The environment variable that disables the tests when it is "off"; the kernels then run untested."""
_ATTEMPTS = 2  # tests that may kill their process

_logger = logging.getLogger("orthobench.recurrence")


@dataclass(frozen=True)
class SelfTestVerdict:
    """The verdict on one variant on a device; `reason` says why it failed. The errors are relative, by name."""

    form: str
    device: torch.device
    features: int
    batch: int
    reason: str | None = None
    errors: Mapping[str, float] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return self.reason is None

    def machine(self) -> dict[str, Any]:
        """Return the facts for which the verdict is valid."""
        return machine(self.device)


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


class Cache:
    """The file of verdicts of one machine."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.facts = dict(facts)
        name = hashlib.sha256(json.dumps(self.facts, sort_keys=True).encode()).hexdigest()[:32]
        self.file = cache_folder() / "self-tests" / f"{name}.json"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the file's lock if the folder can be written, so that processes do not test at the same time."""
        try:
            private_folder(self.file.parent)
            lock = filelock.FileLock(self.file.with_suffix(".lock"))
            lock.acquire()
        except (OSError, RuntimeError) as error:
            _logger.debug("the verdicts of the self-tests are not kept: %s", error)
            yield
            return
        try:
            yield
        finally:
            lock.release()

    def read(self) -> dict[str, dict[str, Any]]:
        """Return the records by variant, which are empty if the file is missing, damaged or perhaps another user's."""
        try:
            with open_trusted(self.file) as stream:
                content = json.loads(stream.read())
            return {str(name): dict(record) for name, record in content["tests"].items()}
        except (OSError, UntrustedError, ValueError, TypeError, LookupError, AttributeError):
            return {}

    def write(self, form: str, record: Mapping[str, Any] | None) -> None:
        """Write the record of a variant, or remove it; nothing is kept if the folder cannot be written."""
        tests = self.read()
        tests.pop(form, None)
        if record is not None:
            tests[form] = dict(record)
        content = json.dumps({"machine": self.facts, "tests": tests}, indent=1) + "\n"
        try:
            write_bytes(self.file, content.encode(), private=True)
        except OSError as error:
            _logger.debug("the verdict of a self-test is not kept: %s", error)

    def verdict(self, form: str, device: torch.device) -> SelfTestVerdict | None:
        """Return the verdict on a variant, if its test has ended."""
        record = self.read().get(form, {})
        try:
            if record["verdict"] not in ("passed", "failed"):
                return None
            reason = None if record["verdict"] == "passed" else str(record["reason"])
            return SelfTestVerdict(form, device, int(record["n"]), int(record["batch"]), reason, dict(record["errors"]))
        except (LookupError, TypeError, ValueError):
            return None

    def keep(self, verdict: SelfTestVerdict) -> None:
        """Write a verdict."""
        self.write(verdict.form, as_record(verdict))


def as_record(verdict: SelfTestVerdict) -> dict[str, Any]:
    """Return a verdict as JSON values."""
    return {
        "verdict": "passed" if verdict.passed else "failed",
        "reason": verdict.reason,
        "n": verdict.features,
        "batch": verdict.batch,
        "errors": dict(verdict.errors),
    }


_known: dict[tuple[KernelVariant, torch.device], SelfTestVerdict] = {}


def are_on() -> bool:
    """Return whether kernels are tested."""
    return os.environ.get(SWITCH) != "off"


def failure(call: Call, run: RunCall) -> str | None:
    """Return why the kernels of a call are not trusted on its device, or None; a variant's first call tests it.

    Args:
        run: runs a call with the kernels.

    Raises:
        RuntimeError: the kernels broke the device's context, so this process cannot continue.
        torch.OutOfMemoryError: the device lacks memory.
    """
    if not are_on():
        return None
    device = call.x.device
    if call.known.variants is None:
        call.known.variants = self_test.forms(call)
    for form in call.known.variants:
        verdict = _known.get((form, device))
        if verdict is None:
            if call.x.is_cuda and torch.cuda.is_current_stream_capturing():
                return None  # a test would end the capture, and the warm-up has already tested the variant
            verdict = _known[form, device] = judge(call, form, run)
        backends.record_self_test(verdict.form, verdict)
        if not verdict.passed:
            return f"the CUDA kernels of {form}, failed their self-test: {verdict.reason}"
    return None


def judge(call: Call, form: KernelVariant, run: RunCall, again: bool = False) -> SelfTestVerdict:
    """Return the cached verdict on a variant, or test it; `again` tests it in any case.

    Raises:
        RuntimeError: the kernels broke the device's context.
        torch.OutOfMemoryError: the device lacks memory.
    """
    device = call.x.device
    cache, name = Cache(machine(device)), str(form)
    if not again and (verdict := cache.verdict(name, device)):
        return verdict
    with cache.lock():
        # Once more, because another process may have tested the kernels while this one waited for the lock.
        if not again and (verdict := cache.verdict(name, device)):
            return verdict
        attempts = 0 if again else int(cache.read().get(name, {}).get("attempts", 0))
        make = functools.partial(SelfTestVerdict, name, device, self_test.features(call), call.x.shape[1])
        if attempts >= _ATTEMPTS:
            verdict = make(f"the test ended its process {attempts} times")
            cache.keep(verdict)
            return verdict
        _logger.info("testing the CUDA kernels of %s, on %s (some seconds)", name, cache.facts["device"])
        cache.write(name, {"verdict": "testing", "attempts": attempts + 1})
        try:
            outcome = self_test.measure(run, call, form)
        except torch.OutOfMemoryError:
            # No verdict, because a full memory says nothing about the kernels.
            cache.write(name, None)
            raise
        except Exception as error:  # of the compiler, the launch or the device
            verdict = make(_one_line(error))
            if is_broken(device):
                cache.keep(verdict)
                raise RuntimeError(
                    f"the self-test of the CUDA kernels of {name}, broke the GPU's context ({verdict.reason}): "
                    "run the same command again, it will use PyTorch's operations"
                ) from error
            # A missing compiler is not the kernels' fault, so the next process tries again.
            cache.write(name, None)
            return verdict
        verdict = make(outcome.reason, outcome.errors)
        cache.keep(verdict)
    return verdict


def _one_line(error: BaseException) -> str:
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first[:300]}"


def is_broken(device: torch.device) -> bool:
    """Return whether an error has made the context of a CUDA device useless for this process."""
    if device.type != "cuda":
        return False
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return False
