"""A built wheel, installed elsewhere, is the whole program."""

from __future__ import annotations

import email
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from orthobench.recurrence.cpu.c_sources import variants

ROOT = Path(__file__).parents[2]
CITATION = ROOT / "CITATION.cff"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder, source = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("source")
    for name in ("orthobench", "models", "tasks"):  # built from a copy: setuptools leaves its work in the source
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "docs", source / "docs")
    for path in (
        *ROOT.glob("*.md"),
        *(ROOT / name for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "LICENSE")),
    ):
        shutil.copy(path, source)
    command = [
        sys.executable,
        "-m",
        "build",
        "--sdist",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_wheel_has_every_file_of_the_packages(wheel):
    packaged = set(zipfile.ZipFile(wheel).namelist())
    sources = {path.relative_to(ROOT) for path in (ROOT / "orthobench").rglob("*") if path.is_file()}
    sources |= {
        Path("orthobench") / path.relative_to(ROOT)
        for name in ("models", "tasks")
        for path in (ROOT / name).glob("*.py")
    }
    expected = {path.as_posix() for path in sources if "__pycache__" not in path.parts}
    assert expected <= packaged
    assert not {name for name in packaged if name.startswith(("models/", "tasks/", "tests/"))}


@pytest.mark.slow
def test_installed_wheel_runs(wheel, tmp_path):
    """In an environment of its own, which borrows the dependencies (several GB) from this one."""
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    site = subprocess.run(
        [python, "-c", "import site; print(site.getsitepackages()[0])"], capture_output=True, text=True, check=True
    ).stdout.strip()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    spec = importlib.util.find_spec("typer")
    assert spec is not None
    assert spec.origin is not None
    dependencies = Path(spec.origin).parent.parent
    # Only the folder itself: a .pth file in it would bring this checkout's editable install along.
    environment = {**os.environ, "PYTHONPATH": str(dependencies)}

    def run(code: str) -> str:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def orthobench(*arguments: str) -> str:
        return run(f"import sys; sys.argv = ['orthobench', *{arguments}]; from orthobench.__main__ import main; main()")

    where = run("import orthobench, orthobench.models as m, orthobench.tasks as t; print(*m.__path__, *t.__path__)")
    assert all(path.startswith(site) for path in where.split())
    listed = orthobench("plugins")
    for name in ("adding", "copying", "scornn", "lstm"):
        assert name in listed
    tiny = ("sequence_length=5", "train_size=20", "test_size=10", "batch_size=10", "epochs=1")
    assert "finished" in orthobench("run", "adding", "rnn", *(option for value in tiny for option in ("-s", value)))
    assert Path(orthobench("report", "--html").strip()).is_file()
    assert "@article{elman1990" in orthobench("cite", "rnn")
    settings = ", ".join(tiny)
    baseline = f"[[run]]\ntask = 'adding'\nmodel = 'rnn'\nexact = true\nseeds = [1]\nsettings = {{ {settings} }}\n"
    (tmp_path / "baseline.toml").write_text(baseline)
    orthobench("check", "baseline.toml", "--update", "--reason", "the first")
    assert "adding/rnn" in orthobench("check", "baseline.toml")


def test_twine_accepts_the_distributions(wheel):
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, wheel.parent.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


def test_metadata_is_complete_without_an_address(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    assert {"recurrent neural networks", "orthogonal", "unitary"} <= set(metadata["Keywords"].split(","))
    classifiers = set(metadata.get_all("Classifier"))
    assert {"Operating System :: POSIX :: Linux", "Programming Language :: Python :: 3.11"} <= classifiers
    assert metadata.get_all("Project-URL") is None  # the project has no public address
    assert metadata["Home-page"] is None


def test_index_page_has_no_link_into_the_checkout(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        page = archive.read(name).decode()
    assert "orthobench sweep adding" in page
    targets = re.findall(r"\]\(([^)]*)\)", page)
    assert all(target.startswith("https://") for target in targets)


def test_licence_and_version_are_the_same_everywhere(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (name,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    citation = dict(
        line.split(": ", 1) for line in CITATION.read_text("utf-8").splitlines() if re.match(r"\w+: \w", line)
    )
    assert metadata["License-Expression"] == citation["license"] == "MIT"
    assert (metadata["Name"], metadata["Version"]) == (citation["title"], citation["version"])
    assert any(name.endswith("/LICENSE") for name in names)


def test_source_distribution_has_the_documents(wheel):
    (archive,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        packed = {Path(*Path(name).parts[1:]).as_posix() for name in files.getnames()}
    documents = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").iterdir()}
    assert documents | {"README.md", "ARCHITECTURE.md", "setup.py"} <= packed
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "orthobench").rglob("*.[ch]")} <= packed
    assert not [name for name in packed if name.endswith(".so")]


def test_wheel_is_for_every_python_and_has_the_kernels(wheel):
    assert re.search(r"-py3-none-[^-]*linux[^-]*\.whl$", wheel.name)
    kernels = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")}
    assert {Path(name).name for name in kernels} == {f"kernels-{variant}.so" for variant in variants()}


def test_minimum_versions_are_the_tested_ones():
    """`constraints-minimum.txt` pins each lower bound of pyproject.toml, so that CI tests what is claimed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    claimed = [
        *project["dependencies"],
        *(line for name in extras if name not in ("all", "dev") for line in extras[name]),
    ]
    lines = (ROOT / "constraints-minimum.txt").read_text("utf-8").splitlines()
    pinned = {line.partition("==")[0]: line.partition("==")[2] for line in lines if not line.startswith("#")}
    for requirement in map(Requirement, claimed):
        assert [str(bound) for bound in requirement.specifier] == [f">={pinned[requirement.name]}"], requirement
    tools = {"pytest", "hypothesis"}
    assert set(pinned) == {Requirement(line).name for line in claimed} | tools


@pytest.mark.slow
def test_static_tools_find_the_class_of_a_model(tmp_path):
    """`orthobench.models` and `orthobench.tasks` are links in the package, which mypy and editors follow."""
    asking = tmp_path / "asking.py"
    asking.write_text("from orthobench.models.scornn import ScoRNN\n\nreveal_type(ScoRNN)\n")
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--cache-dir", str(tmp_path), str(asking)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert "-> orthobench.models.scornn.ScoRNN" in done.stdout, done.stdout + done.stderr
