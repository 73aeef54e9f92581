"""The kernels of the recurrences: their caches, back ends and self-tests."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import torch

from orthobench.diagnosis.findings import Finding, Level
from orthobench.diagnosis.storage import folder_finding
from orthobench.files import cache_folder
from orthobench.recurrence import BACKENDS
from orthobench.recurrence.cpu import build, native
from orthobench.recurrence.cuda import backend as cuda
from orthobench.recurrence.cuda import self_test, verdicts
from orthobench.recurrence.cuda.verdicts import Verdict


def caches() -> Iterator[Finding]:
    """Yield findings on the folder of the compiled kernels and of the self-tests' verdicts."""
    section, otherwise = "caches", "set $ORTHOBENCH_CACHE to another folder: else each process compiles again"
    try:
        folder = cache_folder()
    except RuntimeError as error:
        yield Finding(section, "folder", str(error), Level.ACTION, otherwise)
        return
    yield folder_finding(section, "folder", folder, otherwise)
    if reason := build.distrust(folder):
        text = f"not used for compiled kernels: {reason}"
        yield Finding(section, "owner", text, Level.ACTION, f"{build.UNTRUSTED_FIX}: else each process compiles again")
    if folder.is_dir():
        files = [file for file in folder.rglob("*") if file.is_file()]
        objects = sum(file.suffix == ".so" for file in files)
        size = sum(file.stat().st_size for file in files) / 1e6
        yield Finding(section, "contents", f"{objects} libraries of C kernels, {size:.1f} MB")


def back_ends() -> Iterator[Finding]:
    """Yield the back ends and whether they can be used here."""
    section = "back ends"
    for name in BACKENDS:
        if name == "cpu":
            reason = native.missing()
            fix = "install a C compiler, such as apt install gcc: recurrences are up to seven times faster with it"
            text = "C kernels, for float32 on the CPU" if reason is None else reason
            yield Finding(
                section, name, text, Level.OK if reason is None else Level.ACTION, "" if reason is None else fix
            )
        elif name == "cuda":
            yield _cuda(section)
        else:
            yield Finding(section, name, "PyTorch, for everything else")


def _cuda(section: str) -> Finding:
    if not torch.cuda.is_available():
        return Finding(section, "cuda", "torch sees no CUDA device")
    if importlib.util.find_spec("triton") is None:
        return Finding(section, "cuda", "triton is not installed", Level.ACTION, "pip install triton")
    reasons = {cuda.unsupported(call) for call in self_test.examples(torch.device("cuda"))} - {None}
    if reasons:
        return Finding(section, "cuda", "; ".join(map(str, reasons)), Level.NOTE, "recurrences run in PyTorch")
    return Finding(section, "cuda", "Triton kernels, for float32 on the GPU")


def self_tests(retest: bool = False) -> Iterator[Finding]:
    """Yield the comparison of each kernel with the reference; run it for kernels that have not been compared yet.

    Args:
        retest: whether to compare CUDA kernels again even if they have a verdict.
    """
    section = "self-tests"
    if native.missing() is None:
        for name, passed in native.verdicts().items():
            if passed:
                yield Finding(section, f"C kernels of {name}", "agree with the reference")
            else:
                text = f"{native.why_unusable(name)}; PyTorch is used instead"
                fix = "try another compiler ($CC), and report this with its version"
                yield Finding(section, f"C kernels of {name}", text, Level.ACTION, fix)
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            yield from _cuda_self_tests(section, torch.device("cuda", number), retest)


def _cuda_self_tests(section: str, device: torch.device, retest: bool) -> Iterator[Finding]:
    where, seen = f"GPU {device.index or 0}", set[self_test.Form]()
    for call in self_test.examples(device):
        if cuda.unsupported(call) is not None:
            continue
        for form in self_test.forms(call):
            if form in seen:
                continue
            seen.add(form)
            try:
                verdict = verdicts.judge(call, form, cuda.run, retest)
            except RuntimeError as error:  # the context is broken, or memory is full
                yield Finding(section, f"{where}: {form}", str(error), Level.ACTION, "run orthobench doctor again")
                return
            yield _finding(section, where, verdict)


def _finding(section: str, where: str, verdict: Verdict) -> Finding:
    subject = f"{where}: {verdict.form}"
    if verdict.passed:
        worst = max(verdict.errors.values(), default=0.0)
        return Finding(section, subject, f"passed, largest error {worst:.1e}")
    fix = "PyTorch is used instead, which is slower; update the driver, then `orthobench doctor --retest`"
    return Finding(section, subject, f"failed: {verdict.reason}", Level.ACTION, fix)
