"""`orthobench doctor`: its findings, their fixes, and its exit code."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from typer.testing import CliRunner

from orthobench import api
from orthobench.cli import app
from orthobench.diagnosis import DoctorFinding, Level, kernel_findings, machine, storage
from orthobench.recurrence import recurrence, reference
from orthobench.recurrence.cpu import call_c, library
from orthobench.recurrence.cuda import launch, persistent, self_test

SECTIONS = ["versions", "devices", "compilers", "caches", "back ends", "self-tests", "data", "database"]


def by_subject(findings: Sequence[DoctorFinding]) -> dict[str, DoctorFinding]:
    return {finding.subject: finding for finding in findings}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path / "data"))


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[int, int], None]]:
    """A function that makes torch say it has a GPU with a capability."""

    def install(major: int, minor: int) -> None:
        properties = SimpleNamespace(name="Fake H100", total_memory=80_000_000_000, major=major, minor=minor)
        monkeypatch.setenv("ORTHOBENCH_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        monkeypatch.setattr(self_test, "driver_version", lambda: "580.65.06")
        monkeypatch.setattr(persistent, "problem", lambda device: None)
        monkeypatch.setattr(launch, "triton_problem", lambda: None)
        self_test.machine.cache_clear()

    yield install
    self_test.machine.cache_clear()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], list[DoctorFinding]]:
    """A function that runs `--retest` with other installed tests."""

    def retest(code: str) -> list[DoctorFinding]:
        package = tmp_path / "installed_tests"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "test_kernels.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(kernel_findings, "TESTS", package.name)
        return list(kernel_findings.self_tests(retest=True))

    return retest


@pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")
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
    assert list(kernel_findings.self_tests()) == []


@pytest.mark.slow
@pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")
def test_installed_kernels_agree_with_the_reference() -> None:
    assert "--retest" in by_subject(list(kernel_findings.self_tests()))["kernels"].text
    (finding,) = kernel_findings.self_tests(retest=True)
    assert finding.level is Level.OK
    assert re.fullmatch(r"agree with the reference \(\d{3} tests\)", finding.text)


def test_kernels_that_differ_need_action(installed: Callable[[str], list[DoctorFinding]]) -> None:
    (finding,) = installed("def test_lstm():\n    assert {'x': 1.0} == {}\ndef test_gru(): pass\n")
    assert (finding.subject, finding.level) == ("kernels, test_lstm", Level.ACTION)
    assert finding.text == "AssertionError: assert {'x': 1.0} == {}"
    assert "$CC" in finding.fix


@pytest.mark.parametrize(
    ("code", "reason"),
    [("import os; os.abort()", "exit code -6"), ("import nowhere", "exit code 2: "), ("", "exit code 5: ")],
)
def test_tests_that_cannot_end_need_action(
    installed: Callable[[str], list[DoctorFinding]], code: str, reason: str
) -> None:
    (finding,) = installed(code)
    assert (finding.subject, finding.level) == ("kernels", Level.ACTION)
    assert finding.text.startswith(f"their tests ended with {reason}")


def test_users_settings_of_pytest_change_nothing(
    installed: Callable[[str], list[DoctorFinding]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --nonsense\n")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--nonsense")
    (finding,) = installed("def test_gru(): pass")
    assert finding.level is Level.OK
    assert "(1 tests)" in finding.text


def test_missing_pytest_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pytest" else find_spec(name))
    (finding,) = kernel_findings.self_tests(retest=True)
    assert (finding.level, finding.text) == (Level.ACTION, "not tested: pytest is not installed")
    assert finding.fix == "pip install pytest"


def test_gpu_invisible_to_torch_needs_action(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(self_test, "driver_version", lambda: "580.65.06")
    for cuda_version, part in ((None, "built for the CPU only"), ("13.0", "sees no GPU")):
        monkeypatch.setattr(torch.version, "cuda", cuda_version)
        finding = by_subject(list(machine.devices()))["GPU"]
        assert finding.level is Level.ACTION
        assert part in finding.text
        assert "580.65.06" in finding.text
    monkeypatch.setattr(self_test, "driver_version", lambda: None)
    assert by_subject(list(machine.devices()))["GPU"].level is Level.OK


def test_gpu_and_its_kernels_are_reported(
    fake_gpu: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_gpu(9, 0)
    gpu = by_subject(list(machine.devices()))["GPU 0"]
    assert gpu.level is Level.OK
    assert gpu.text.startswith("Fake H100, 80 GB, capability 9.0, driver 580.65.06")
    assert by_subject(list(kernel_findings.back_ends()))["cuda"].text.startswith("CUDA C++ and Triton kernels")
    monkeypatch.setattr(launch, "triton_problem", lambda: "no C compiler")
    finding = by_subject(list(kernel_findings.back_ends()))["cuda"]
    assert (finding.level, finding.text) == (Level.NOTE, "no C compiler")


def test_failed_kernel_needs_action_until_the_kernels_are_tested_again(
    fake_gpu: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_gpu(9, 0)
    call, device = recurrence.call(torch.zeros(1, 2, 4), torch.eye(4), (torch.zeros(2, 4),)), torch.device("cuda", 0)
    monkeypatch.setattr(self_test, "measure", lambda run, call: "differs from the reference: x 1.0e+00")
    call.x = cast(Any, SimpleNamespace(device=device, is_cuda=False))
    assert self_test.failure(call, reference.run) is not None
    self_test._known.clear()
    (failed,) = [finding for finding in kernel_findings.self_tests() if finding.subject == "GPU 0: recurrence"]
    assert failed.level is Level.ACTION
    assert failed.text == "failed: differs from the reference: x 1.0e+00"
    assert "--retest" in failed.fix
    monkeypatch.setattr(kernel_findings, "_installed_tests", lambda section: iter(()))
    assert list(kernel_findings.self_tests(retest=True)) == [], "the verdict is forgotten"


def test_old_gpu_is_a_note(fake_gpu: Callable[[int, int], None]) -> None:
    fake_gpu(7, 5)
    gpu = by_subject(list(machine.devices()))["GPU 0"]
    assert gpu.level is Level.NOTE
    assert "too old" in gpu.text


def test_missing_header_and_missing_triton_are_reported(
    fake_gpu: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_gpu(9, 0)
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
        if extra not in ("all", "dev", "docs")
    }
    assert {extra: set(names) for extra, (names, _) in machine.EXTRAS.items()} == {
        extra: set(names) for extra, names in packages.items()
    }
