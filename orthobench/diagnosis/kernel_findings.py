"""The kernels of the recurrences: their caches, back ends and self-tests."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import torch

from orthobench.diagnosis.findings import DoctorFinding, Level
from orthobench.diagnosis.storage import folder_finding
from orthobench.recurrence import BACKENDS
from orthobench.recurrence.cpu import c_comparisons, call_c, library, native
from orthobench.recurrence.cuda import backend as cuda
from orthobench.recurrence.cuda import self_test, self_test_verdicts
from orthobench.recurrence.cuda.self_test_verdicts import SelfTestVerdict
from orthobench.system.cache import cache_folder, written_by_others


def caches() -> Iterator[DoctorFinding]:
    """Yield findings on the folder of the index, of the CUDA kernels and of their self-tests' verdicts."""
    section, otherwise = "caches", "set $ORTHOBENCH_CACHE to another folder: else nothing is kept between commands"
    try:
        folder = cache_folder()
    except RuntimeError as error:
        yield DoctorFinding(section, "folder", str(error), Level.ACTION, otherwise)
        return
    yield folder_finding(section, "folder", folder, otherwise)
    if reason := written_by_others(folder):
        fix = "remove the folder, or set $ORTHOBENCH_CACHE to one that only you can write to"
        yield DoctorFinding(section, "owner", f"not used: {reason}", Level.ACTION, fix)


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
    reasons = {cuda.unsupported(call) for call in self_test.examples(torch.device("cuda"))} - {None}
    if reasons:
        return DoctorFinding(section, "cuda", "; ".join(map(str, reasons)), Level.NOTE, "recurrences run in PyTorch")
    return DoctorFinding(section, "cuda", "Triton kernels, for float32 on the GPU")


def self_tests(retest: bool = False) -> Iterator[DoctorFinding]:
    """Yield the comparison of each kernel with the reference; run it for CUDA kernels without a verdict.

    Args:
        retest: whether to compare C kernels, and CUDA kernels even if they have a verdict.
    """
    section = "self-tests"
    if call_c.missing() is None and retest:
        for name, agrees in c_comparisons.comparisons().items():
            if agrees():
                yield DoctorFinding(section, f"C kernels of {name}", "agree with the reference")
            else:
                fix = "install again with another compiler ($CC), and report this with the compiler's version"
                yield DoctorFinding(section, f"C kernels of {name}", "differ from the reference", Level.ACTION, fix)
    elif call_c.missing() is None:
        yield DoctorFinding(section, "C kernels", "`orthobench doctor --retest` compares them with the reference")
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            yield from _cuda_self_tests(section, torch.device("cuda", number), retest)


def _cuda_self_tests(section: str, device: torch.device, retest: bool) -> Iterator[DoctorFinding]:
    where, seen = f"GPU {device.index or 0}", set[self_test.KernelVariant]()
    for call in self_test.examples(device):
        if cuda.unsupported(call) is not None:
            continue
        for form in self_test.forms(call):
            if form in seen:
                continue
            seen.add(form)
            try:
                verdict = self_test_verdicts.judge(call, form, cuda.run, retest)
            except RuntimeError as error:  # the context is broken, or memory is full
                yield DoctorFinding(
                    section, f"{where}: {form}", str(error), Level.ACTION, "run orthobench doctor again"
                )
                return
            yield _finding(section, where, verdict)


def _finding(section: str, where: str, verdict: SelfTestVerdict) -> DoctorFinding:
    subject = f"{where}: {verdict.form}"
    if verdict.passed:
        worst = max(verdict.errors.values(), default=0.0)
        return DoctorFinding(section, subject, f"passed, largest error {worst:.1e}")
    fix = "PyTorch is used instead, which is slower; update the driver, then `orthobench doctor --retest`"
    return DoctorFinding(section, subject, f"failed: {verdict.reason}", Level.ACTION, fix)
