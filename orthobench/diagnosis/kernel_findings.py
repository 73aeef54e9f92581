"""The kernels of the recurrences: their caches, back ends and tests."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import torch

from orthobench.diagnosis.findings import DoctorFinding, Level
from orthobench.diagnosis.storage import folder_finding
from orthobench.recurrence import BACKENDS
from orthobench.recurrence.cpu import call_c, library, native
from orthobench.recurrence.cuda import launch, persistent, self_test
from orthobench.system.cache import cache_folder

TESTS = "orthobench.testing.kernels"
"""The package of the installed tests, which compare kernels with the reference."""


def caches() -> Iterator[DoctorFinding]:
    """Yield a finding on the folder of the CUDA kernels and of their self-tests' verdicts."""
    section, otherwise = "caches", "set $ORTHOBENCH_CACHE to another folder: else nothing is kept between commands"
    try:
        folder = cache_folder()
    except RuntimeError as error:
        yield DoctorFinding(section, "folder", str(error), Level.ACTION, otherwise)
        return
    yield folder_finding(section, "folder", folder, otherwise)


def back_ends() -> Iterator[DoctorFinding]:
    """Yield the back ends and whether they can be used here."""
    section = "back ends"
    for name in BACKENDS:
        if name == "cpu":
            yield _cpu(section)
        elif name == "cuda":
            yield _cuda(section)
        else:
            yield DoctorFinding(section, name, "PyTorch, for everything else")


def _cpu(section: str) -> DoctorFinding:
    if reason := call_c.missing():
        text = f"{reason}; recurrences run in PyTorch, {native.SLOWER_WITHOUT}"
        return DoctorFinding(section, "cpu", text, Level.ACTION, library.FIX)
    return DoctorFinding(section, "cpu", f"C kernels for {library.variant()}, for float32 on the CPU")


def _cuda(section: str) -> DoctorFinding:
    if not torch.cuda.is_available():
        return DoctorFinding(section, "cuda", "torch sees no CUDA device")
    if importlib.util.find_spec("triton") is None:
        return DoctorFinding(section, "cuda", "triton is not installed", Level.ACTION, "pip install triton")
    reasons = persistent.problem(torch.device("cuda", 0)), launch.triton_problem()
    if any(reasons):
        text = "; ".join(reason for reason in reasons if reason)
        return DoctorFinding(section, "cuda", text, Level.NOTE, "recurrences without a kernel run in PyTorch")
    return DoctorFinding(section, "cuda", "CUDA C++ and Triton kernels, for float32 on the GPU")


def self_tests(retest: bool = False) -> Iterator[DoctorFinding]:
    """Yield the verdicts on the CUDA kernels, and with `retest` the result of the installed tests of all kernels.

    Args:
        retest: whether to run the tests, after which CUDA kernels have new verdicts.
    """
    section, devices = "self-tests", [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    if retest:
        for device in devices:
            self_test.forget(device)
        yield from _installed_tests(section)
    elif call_c.missing() is None:
        yield DoctorFinding(section, "kernels", "`orthobench doctor --retest` compares them with the reference")
    for device in devices:
        for name, verdict in self_test.verdicts(device).items():
            subject = f"GPU {device.index}: {name}"
            if verdict == self_test.PASSED:
                yield DoctorFinding(section, subject, verdict)
            else:
                fix = "PyTorch is used instead, which is slower; update the driver, then `orthobench doctor --retest`"
                yield DoctorFinding(section, subject, f"failed: {verdict}", Level.ACTION, fix)


def _installed_tests(section: str) -> Iterator[DoctorFinding]:
    """Run the installed tests in a process of their own, which a wrong kernel may end, and yield what they found."""
    if importlib.util.find_spec("pytest") is None:
        yield DoctorFinding(
            section, "kernels", "not tested: pytest is not installed", Level.ACTION, "pip install pytest"
        )
        return
    fix = "install again with another compiler ($CC) or driver, and report this with their versions"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        # Without the settings and plugins of the user's own tests.
        options = ["-c", os.devnull, "--rootdir", folder, "-p", "no:cacheprovider", f"--junit-xml={report}"]
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
        command = [sys.executable, "-P", "-m", "pytest", *options, "--pyargs", TESTS]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode not in (0, 1) or not report.exists():
            last = (done.stdout + done.stderr).strip().rpartition("\n")[2]
            text = f"their tests ended with exit code {done.returncode}: {last}"
            yield DoctorFinding(section, "kernels", text, Level.ACTION, fix)
            return
        cases = list(ElementTree.parse(report).iter("testcase"))
    for case in cases:
        if (problem := next(case.iter("failure"), None)) is not None:
            text = str(problem.get("message")).partition("\n")[0]
            yield DoctorFinding(section, f"kernels, {case.get('name')}", text, Level.ACTION, fix)
    if done.returncode == 0:
        yield DoctorFinding(section, "kernels", f"agree with the reference ({len(cases)} tests)")
