"""`orthobench doctor`: its findings, their fixes, and its exit code."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from orthobench import api
from orthobench.cli import app
from orthobench.diagnosis import DoctorFinding, Level, kernel_findings, machine, storage
from orthobench.recurrence.cpu import c_comparisons, call_c, library
from orthobench.recurrence.cuda import backend as cuda
from orthobench.recurrence.cuda import self_test, self_test_verdicts
from orthobench.recurrence.cuda.self_test import SelfTestErrors

SECTIONS = ["versions", "devices", "compilers", "caches", "back ends", "self-tests", "data", "database"]


def by_subject(findings: Sequence[DoctorFinding]) -> dict[str, DoctorFinding]:
    return {finding.subject: finding for finding in findings}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path / "data"))


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """A function that makes torch say it has a GPU, on which each self-test has the given outcome."""

    def install(outcome: SelfTestErrors | Exception, capability: tuple[int, int] = (9, 0)) -> None:
        major, minor = capability
        properties = SimpleNamespace(name="Fake H100", total_memory=80_000_000_000, major=major, minor=minor)
        monkeypatch.setenv("ORTHOBENCH_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        monkeypatch.setattr(self_test_verdicts, "driver_version", lambda: "580.65.06")
        monkeypatch.setattr(cuda, "unsupported", lambda call: None)

        def measure(run: Any, call: Any, form: Any) -> SelfTestErrors:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        monkeypatch.setattr("orthobench.recurrence.cuda.self_test.measure", measure)
        examples = self_test.examples
        monkeypatch.setattr(
            "orthobench.recurrence.cuda.self_test.examples", lambda device: examples(torch.device("cpu"))
        )

    return install


@pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler")
def test_sound_cpu_machine_needs_no_action(tmp_path: Path) -> None:
    diagnosis = api.doctor()
    assert list(dict.fromkeys(finding.section for finding in diagnosis.findings)) == SECTIONS
    assert diagnosis.exit_code == 0, diagnosis.actions
    findings = by_subject(diagnosis.findings)
    assert findings["torch"].text == torch.__version__.partition("+")[0]
    assert findings["cpu"].text == f"C kernels for {library.variant()}, for float32 on the CPU"
    assert findings["mnist"].level is Level.NOTE
    assert "orthobench data get mnist" in findings["mnist"].fix
    assert "does not exist yet" in findings["results.db"].text
    assert list(tmp_path.iterdir()) == [], "nothing is written"


def test_command_prints_findings_and_json() -> None:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    content = json.loads(result.stdout)
    assert {finding["section"] for finding in content["findings"]} == set(SECTIONS)
    assert result.exit_code == bool(content["actions"])
    text = CliRunner().invoke(app, ["doctor"]).stdout
    for finding in content["findings"]:
        assert f"{finding['subject']}: " in text
    assert ("nothing needs action" in text) == (content["actions"] == 0)


def test_command_marks_findings_that_need_action(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = DoctorFinding("compilers", "C compiler", "there is none", Level.ACTION, "install gcc")
    monkeypatch.setattr(machine, "compilers", lambda: iter([failing]))
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert "  ! C compiler: there is none\n      -> install gcc\n" in result.stdout
    assert result.stdout.endswith("1 finding needs action, marked with !\n")


def test_missing_compiler_names_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nowhere/cc")
    monkeypatch.setattr(call_c, "missing", lambda: None)
    (finding,) = machine.compilers()
    assert finding.level is Level.OK  # it has built what there is
    monkeypatch.setattr(call_c, "missing", lambda: "the C kernels are not built")
    (finding,) = machine.compilers()
    assert finding.level is Level.ACTION
    assert "/nowhere/cc" in finding.text
    assert "install gcc" in finding.fix
    assert by_subject(list(kernel_findings.back_ends()))["cpu"].level is Level.ACTION
    assert [f for f in kernel_findings.self_tests() if "C kernels" in f.subject] == []


def test_c_kernels_that_differ_need_action(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_c, "missing", lambda: None)
    monkeypatch.setattr(c_comparisons, "comparisons", lambda: {"lstm": lambda: False, "gru": lambda: True})
    assert "--retest" in by_subject(list(kernel_findings.self_tests()))["C kernels"].text
    findings = by_subject(list(kernel_findings.self_tests(retest=True)))
    assert findings["C kernels of lstm"].level is Level.ACTION
    assert findings["C kernels of gru"].level is Level.OK


def test_gpu_invisible_to_torch_needs_action(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(self_test_verdicts, "driver_version", lambda: "580.65.06")
    for cuda_version, part in ((None, "built for the CPU only"), ("13.0", "sees no GPU")):
        monkeypatch.setattr(torch.version, "cuda", cuda_version)
        finding = by_subject(list(machine.devices()))["GPU"]
        assert finding.level is Level.ACTION
        assert part in finding.text
        assert "580.65.06" in finding.text
    monkeypatch.setattr(self_test_verdicts, "driver_version", lambda: None)
    assert by_subject(list(machine.devices()))["GPU"].level is Level.OK


def test_gpu_and_its_kernels_are_reported(fake_gpu: Callable[..., None]) -> None:
    fake_gpu(SelfTestErrors({"gradient of W": 2e-7, "outputs": 1e-7}, None))
    gpu = by_subject(list(machine.devices()))["GPU 0"]
    assert gpu.level is Level.OK
    assert gpu.text.startswith("Fake H100, 80 GB, capability 9.0, driver 580.65.06")
    assert by_subject(list(kernel_findings.back_ends()))["cuda"].text == "Triton kernels, for float32 on the GPU"
    tests = [finding for finding in kernel_findings.self_tests() if finding.subject.startswith("GPU 0")]
    assert {finding.text for finding in tests} == {"passed, largest error 2.0e-07"}
    subjects = [finding.subject for finding in tests]
    assert len(set(subjects)) == len(subjects) > 20
    assert "GPU 0: recurrence norm, n <= 192" in subjects


def test_failed_kernel_needs_action_and_retest_measures_again(fake_gpu: Callable[..., None]) -> None:
    fake_gpu(SelfTestErrors({"x": 1.0}, "differs from the reference: x 1.0e+00"))
    failed = [finding for finding in kernel_findings.self_tests() if finding.subject.startswith("GPU 0")]
    assert {finding.level for finding in failed} == {Level.ACTION}
    assert "differs from the reference" in failed[0].text
    assert "--retest" in failed[0].fix
    fake_gpu(SelfTestErrors({"x": 0.0}, None))
    cached = [finding for finding in kernel_findings.self_tests() if finding.subject.startswith("GPU 0")]
    assert {finding.level for finding in cached} == {Level.ACTION}, "the verdict is kept"
    again = [finding for finding in kernel_findings.self_tests(retest=True) if finding.subject.startswith("GPU 0")]
    assert {finding.level for finding in again} == {Level.OK}


def test_broken_context_ends_the_gpu_tests(fake_gpu: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    fake_gpu(RuntimeError("CUDA error: an illegal memory access was encountered"))
    monkeypatch.setattr(self_test_verdicts, "is_broken", lambda device: True)
    (finding,) = [finding for finding in kernel_findings.self_tests() if finding.subject.startswith("GPU 0")]
    assert finding.level is Level.ACTION
    assert "broke the GPU's context" in finding.text


def test_old_gpu_is_a_note(fake_gpu: Callable[..., None]) -> None:
    fake_gpu(SelfTestErrors({}, None), capability=(7, 5))
    gpu = by_subject(list(machine.devices()))["GPU 0"]
    assert gpu.level is Level.NOTE
    assert "too old" in gpu.text


def test_missing_header_and_missing_triton_are_reported(
    fake_gpu: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_gpu(SelfTestErrors({}, None))
    monkeypatch.setattr("sysconfig.get_path", lambda name: "/nowhere")
    find_spec = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "triton" else find_spec(name))
    findings = by_subject(list(machine.compilers()))
    assert findings["Python.h"].level is Level.ACTION
    assert "python3-dev" in findings["Python.h"].fix
    assert findings["triton"].level is Level.ACTION
    assert by_subject(list(kernel_findings.back_ends()))["cuda"].level is Level.ACTION


def test_unwritable_folder_needs_action(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(kernel_findings, "cache_folder", lambda: tmp_path / "file")
    (finding, *_) = kernel_findings.caches()
    assert finding.level is Level.ACTION
    assert "ORTHOBENCH_CACHE" in finding.fix


def test_full_disk_needs_action(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1000))
    finding = storage.folder_finding("data", "folder", tmp_path / "new", "move it")
    assert finding.level is Level.ACTION
    assert finding.fix == "make room there, or move it"


def test_damaged_database_needs_action(tmp_path: Path) -> None:
    (tmp_path / "r.db").write_text("this is no database at all, but a text of some length" * 100)
    findings = list(storage.database("r.db"))
    assert Level.ACTION in {finding.level for finding in findings}


def test_failing_check_is_a_finding_and_the_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise OSError("the disk is on fire")
        yield

    monkeypatch.setattr(machine, "devices", broken)
    diagnosis = api.doctor()
    assert list(dict.fromkeys(finding.section for finding in diagnosis.findings)) == SECTIONS
    (finding,) = [finding for finding in diagnosis.findings if finding.section == "devices"]
    assert finding.level is Level.ACTION
    assert "the disk is on fire" in finding.text


def test_missing_extras_are_notes_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "optuna" else find_spec(name))
    finding = by_subject(list(machine.versions()))["extra search"]
    assert finding.level is Level.NOTE
    assert finding.fix == "pip install -e '.[search]' in the checkout"


def test_listed_extras_match_the_package() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    packages = {
        extra: tuple(re.split(r"[\[>]", each)[0].removesuffix("-skinny") for each in each_list)
        for extra, each_list in project["optional-dependencies"].items()
        if extra not in ("dev", "docs")
    }
    assert {extra: set(names) for extra, names in machine.EXTRAS.items()} == {
        extra: set(names) for extra, names in packages.items()
    }
    assert machine.EXTRAS.keys() == machine.USES.keys()
