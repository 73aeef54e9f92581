"""A run that has a result is not trained again, and the list of plugins needs no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orthobench.plugins import Catalog

SETTINGS = "sequence_length=10,train_size=40,test_size=20,batch_size=10,epochs=1"
SHORT = [word for setting in SETTINGS.split(",") for word in ("-s", setting)]
RUN = ["run", "adding", "rnn", *SHORT, "-s", "n=4"]


def without_torch(folder: Path, commands: list[list[str]]) -> tuple[str, set[str]]:
    """Run commands in a process of their own: return their output and the heavy modules that they loaded."""
    code = (
        "import sys\nfrom orthobench.__main__ import main\n"
        f"for words in {commands}:\n"
        "    sys.argv = ['orthobench', *words]\n"
        "    try: main()\n    except SystemExit as end: assert not end.code, end.code\n"
        "print(*sorted(set(sys.modules) & {'torch', 'numpy', 'pandas', 'scipy'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *output, modules = done.stdout.splitlines(keepends=True)
    return "".join(output), set(modules.split())


def test_finished_run_reports_that_nothing_is_sent(after, orthobench, tmp_path, caplog):
    pytest.importorskip("tensorboard")
    key = after(RUN)(*RUN).out.split()[1]
    assert orthobench(*RUN, "--log-to", "tensorboard:folder", "--quiet").code == 0
    command = f"orthobench db export --to tensorboard:folder --where key={key} --db results.db"
    assert caplog.messages == [f"run {key} is finished, so nothing is sent to tensorboard:folder: {command}"]
    assert not (tmp_path / "folder").exists()
    assert orthobench(*command.split()[1:]).code == 0
    assert (tmp_path / "folder").exists()


def test_list_and_pages_of_plugins_do_not_load_torch(tmp_path):
    printed, loaded = without_torch(tmp_path, [["plugins"]])
    assert loaded == set()
    for plugin in Catalog():
        title = plugin.load().title
        (line,) = [line for line in printed.splitlines() if line.split()[:2] == [plugin.kind, plugin.name]]
        assert line.split("built in")[1].split(" (-s")[0].strip() == title
        assert ("(-s probes=" in line) == (plugin.kind == "probe" and not plugin.load().default)
    others = [["plugins", "scornn"], ["plugins", "--json"], ["plugins", "training"]]
    assert without_torch(tmp_path, others)[1] == set()
