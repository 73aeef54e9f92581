"""Workflows, the action, pre-commit and templates: they parse, and each of their commands exists."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from orthobench.cli import app

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "action.yml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
USED = re.compile(r"[\w-]+/[\w-]+@v\d+|\./")
"""An action of others at a version, or this project's own."""
TOOLS = {"pip", "sudo", "echo", "if", "cat"}
"""Programs of the runner."""


def content(file: Path) -> dict[Any, Any]:
    return yaml.safe_load(file.read_text("utf-8"))


def steps(file: Path) -> list[dict[str, Any]]:
    tree = content(file)
    return tree["runs"]["steps"] if "runs" in tree else [step for job in tree["jobs"].values() for step in job["steps"]]


def commands(file: Path) -> list[list[str]]:
    return [shlex.split(line) for step in steps(file) for line in step.get("run", "").splitlines()]


def test_workflows_for_lint_tests_documents_and_check_exist():
    jobs = {file.stem: set(content(file)["jobs"]) for file in WORKFLOWS}
    assert jobs == {
        "check": {"models"},
        "nightly": {"slow", "oldest", "newest"},
        "tests": {"lint", "tests", "documents"},
    }


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_workflow_has_the_format_of_github(file):
    tree = content(file)
    assert set(tree) == {"name", True, "permissions", "jobs"}  # YAML reads `on` as true
    assert set(tree[True]) <= {"push", "pull_request", "schedule"}
    assert tree["permissions"] == {"contents": "read"}
    for job in tree["jobs"].values():
        assert set(job) - {"strategy"} == {"runs-on", "steps"}
        for step in job["steps"]:
            assert set(step) <= {"name", "uses", "with", "run"}
            assert ("uses" in step) != ("run" in step)


@pytest.mark.parametrize("file", [ACTION, *WORKFLOWS], ids=lambda file: file.name)
def test_every_command_exists(file):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    names = typer.main.get_command(app).commands
    for words in commands(file):
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= targets, words
        elif words[0] == "orthobench":
            options = {option for parameter in names[words[1]].params for option in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= options, words
        elif words[0] == ".venv/bin/python":
            assert words[1:3] == ["-m", "pytest"]
            assert all((ROOT / path).is_file() for path in words[3:]), words
        else:
            assert words[0] in TOOLS, words
    for step in steps(file):
        assert USED.fullmatch(step.get("uses", "./")), step


def test_action_has_the_format_of_a_composite_action():
    tree = content(ACTION)
    assert set(tree) == {"name", "description", "author", "inputs", "outputs", "runs"}
    assert tree["runs"]["using"] == "composite"
    for step in steps(ACTION):
        assert ("run" in step) == ("shell" in step)
        assert "${{" not in step.get("run", "")  # an input reaches the shell as a variable alone
    inputs = set(re.findall(r"inputs\.([\w-]+)", ACTION.read_text("utf-8")))
    assert inputs == set(tree["inputs"])
    assert content(WORKFLOWS[0])["jobs"]["models"]["steps"][-1]["with"].keys() <= inputs
    (output,) = tree["outputs"].values()
    assert output["value"] == "${{ steps.check.outputs.junit }}"
    assert "check" in [step.get("id") for step in steps(ACTION)]


@pytest.mark.parametrize("file", [ACTION, *WORKFLOWS], ids=lambda file: file.name)
def test_scripts_are_valid_bash(file):
    for step in steps(file):
        if "run" in step:
            done = subprocess.run(["bash", "-n"], input=step["run"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr


def test_action_checks_a_baseline_and_shows_its_table(tmp_path):
    """The step of the check runs here, with the program's name on the path."""
    (check,) = [step for step in steps(ACTION) if step.get("id") == "check"]
    (tmp_path / "bin").mkdir()
    note = '#!/bin/sh\necho "$@" > called\n'
    (tmp_path / "bin" / "orthobench").write_text(note)
    (tmp_path / "bin" / "orthobench").chmod(0o755)
    values = {"BASELINE": "a b.toml", "ARGUMENTS": "--only adding/lstm", "RESULTS": "out", "GITHUB_OUTPUT": "outputs"}
    values |= {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    subprocess.run(["bash", "-e", "-c", check["run"]], cwd=tmp_path, env=values, check=True)
    assert (tmp_path / "called").read_text() == (
        "check a b.toml --only adding/lstm --junit out/check.xml --markdown out/check.md\n"
    )
    assert (tmp_path / "outputs").read_text() == "junit=out/check.xml\n"


def test_hooks_of_pre_commit_are_programs_of_the_environment():
    """They need no network, so each runs a program of .venv; pyproject.toml asks for the programs."""
    (own,) = content(ROOT / ".pre-commit-config.yaml")["repos"]
    assert own["repo"] == "local"
    entries = {hook["id"]: shlex.split(hook["entry"]) for hook in own["hooks"]}
    assert set(entries) == {"ruff", "ruff-format", "mypy", "prose", "large-files"}
    assert all(hook["language"] == "system" for hook in own["hooks"])
    for program, *arguments in entries.values():
        assert Path(program).parent == Path(".venv/bin")
        assert shutil.which(Path(sys.executable).with_name(Path(program).name)), program
        assert all((ROOT / word).is_file() for word in arguments if "/" in word)


@pytest.mark.parametrize("name", ["bug.md", "idea.md"])
def test_issue_templates_have_a_name_and_a_purpose(name):
    _, head, text = (ROOT / ".github" / "ISSUE_TEMPLATE" / name).read_text("utf-8").split("---\n", 2)
    assert set(yaml.safe_load(head)) == {"name", "about", "labels"}
    commands = re.findall(r"`orthobench (\w+)", text)
    assert set(commands) <= set(typer.main.get_command(app).commands)
