"""Without the packages of the [audio] extra TIMIT says what to install, and all other commands run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orthobench.data.speech import PACKAGES

HIDDEN = f"""
import contextlib, importlib.abc, io, json, sys

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {PACKAGES!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
from orthobench.__main__ import main

results = []
for command in json.loads(sys.argv[1]):
    sys.argv = ["orthobench", *command]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as exit:
            code = exit.code or 0
    results.append([command, code, out.getvalue(), err.getvalue()])
print(json.dumps(results))
"""
LINE = "error: speech needs librosa, pesq, pystoi, soundfile: pip install -e '.[audio]' in the checkout\n"
REFUSED = [
    ["run", "timit", "lstm", "-s", "dataset=timit_sample", "-s", "hidden_size=8"],
    ["data", "get", "timit_sample"],
    ["data", "import", "timit_sample", "."],
    ["data", "verify", "timit_sample"],
]


def results_of(commands: list[list[str]], folder: Path) -> list[tuple[list[str], int, str, str]]:
    """Run the commands in one process in which the packages cannot be imported."""
    environment = {**os.environ, "ORTHOBENCH_DATA": str(folder / "data")}
    arguments = [sys.executable, "-c", HIDDEN, json.dumps(commands)]
    done = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [tuple(result) for result in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def refused(tmp_path_factory) -> dict[str, tuple[int, str, str]]:
    results = results_of(REFUSED, tmp_path_factory.mktemp("refused"))
    return {" ".join(command): (code, out, err) for command, code, out, err in results}


@pytest.mark.parametrize("command", [" ".join(command) for command in REFUSED])
def test_timit_without_packages_names_the_extra(refused, command):
    code, out, err = refused[command]
    assert (code, out) == (2, "")
    assert err == LINE


@pytest.mark.slow
def test_every_other_command_runs_without_packages(tmp_path, tiny_options):
    commands = [
        ["run", "adding", "rnn", *tiny_options],
        ["sweep", "adding", "--models", "rnn,lstm", *tiny_options],
        ["ls"],
        ["compare", "model=rnn", "model=lstm"],
        ["report", "--html"],
        ["plugins"],
        ["data", "list"],
        ["data", "verify"],
        ["db", "info"],
        ["db", "export", "exported"],
        ["study", "--list"],
        *([name, "--help"] for name in ("check", "bench", "reproduce", "show", "run", "sweep", "study", "data", "db")),
    ]
    for command, code, out, err in results_of(commands, tmp_path):
        assert code == 0, (command, err)
        assert out, command
        assert "pip install" not in err
