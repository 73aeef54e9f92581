"""A run that has a result is shown without torch, after the same checks and in the same words as in the full way."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from orthobench.cli import load
from orthobench.errors import UsageError
from orthobench.plugins import Catalog
from orthobench.spec import index
from orthobench.store import open_store

SETTINGS = "sequence_length=10,train_size=40,test_size=20,batch_size=10,epochs=1"
SHORT = [word for setting in SETTINGS.split(",") for word in ("-s", setting)]
RUN = ["run", "adding", "rnn", *SHORT, "-s", "n=4"]
MINE = "from orthobench.models.rnn import RNN\nclass Mine(RNN):\n    title = 'mine'\n"
OPTIONS = {
    "set_": [["-s", "clip_norm=1"], ["-s", "n=4"], ["-s", "hidden_size=4"], ["-s", "nothing=1"], ["-s", "n"]],
    "preset": [["--preset", "paper"], ["--preset", "quick"]],
    "seed": [["--seed", "0"], ["--seed", "1"], ["--seed", "-1"]],
    "epochs": [["--epochs", "1"]],
    "db": [["--db", "results.db"], ["--db", "runs.db"], ["--db", "nowhere/runs.db"], ["--db", "nowhere://x"]],
    "force": [["--force"]],
    "device": [["--device", "cpu"], ["--device", "cuda"]],
    "backend": [["--backend", "reference"], ["--backend", "cuda"]],
    "cuda_graph": [["--cuda-graph", "off"], ["--cuda-graph", "on"]],
    "data_folder": [["--data-dir", "nowhere"]],
    "plugins": [["--plugin", "mine.py"], ["--plugin", "nothing.py"]],
    "tags": [["--tag", "mine"], ["--tag", "none"]],
    "log_to": [["--log-to", "tensorboard:x"], ["--log-to", "tensorboard:results.db"], ["--log-to", "elsewhere"]],
    "checkpoints": [["--checkpoints", "x"]],
    "checkpoint_every": [["--checkpoint-every", "0"]],
    "keep_weights": [["--keep-weights", "last"], ["--keep-weights", "none"]],
    "weights": [["--weights-at", "x"], ["--weights-at", "results.db"], ["--weights-at", "nowhere://x"]],
    "on_divergence": [["--on-divergence", "continue"]],
    "quiet": [["--quiet"]],
    "json": [],  # its record has times and the folder; test_conventions.py compares it with that of `show`
}
"""Values of each option of `run`: without effect, with one, and refused ones."""
ARGUMENTS = {
    "task": [["run", "copying", *RUN[2:]], ["run", "addin", *RUN[2:]]],
    "model": [["run", "adding", "lstm", *RUN[3:]], ["run", "adding", "adding", *RUN[3:]]],
}
COMMANDS = [*(more for each in ARGUMENTS.values() for more in each), RUN]
COMMANDS += [[*RUN, *more] for each in OPTIONS.values() for more in each]
TIMES = re.compile(r"\S+ it/s|ETA \S+")


def without_torch(folder: Path, words: list[str], cache: Path) -> tuple[str, set[str]]:
    """Run a command in a process of its own: return its output and the heavy modules that it loaded."""
    code = (
        f"import sys; sys.argv = {['orthobench', *words]}\nfrom orthobench.cli import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code, end.code\n"
        "print(*sorted(set(sys.modules) & {'torch', 'numpy', 'pandas', 'scipy'}))"
    )
    environment = {**os.environ, "ORTHOBENCH_CACHE": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *output, modules = done.stdout.splitlines(keepends=True)
    return "".join(output), set(modules.split())


@pytest.fixture
def forgetful(monkeypatch, tmp_path):
    """This process as one that has not loaded torch, with an empty cache folder for the index."""
    monkeypatch.setattr(index, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(index, "sys", SimpleNamespace(modules={}, executable=sys.executable))


def test_result_is_printed_without_torch(after, orthobench, tmp_path):
    trained = after(RUN)(*RUN).out
    for expected in ({"torch"}, set()):
        printed, loaded = without_torch(tmp_path, RUN, tmp_path / "cache")
        assert printed == trained
        assert loaded & {"torch"} == expected
    assert loaded == set()


def test_every_option_of_run_is_compared():
    names = {parameter.name for parameter in load("run").params} - {"help"}
    assert names == OPTIONS.keys() | ARGUMENTS.keys()


def answer(orthobench, words: list[str]) -> tuple[int, str, str, dict[str, list[str]]]:
    """What a command answers, without times and its folder, and what it leaves behind: the runs with their tags."""
    done = orthobench(*words)
    kept = {}
    for database in ("results.db", "runs.db"):
        if Path(database).exists():
            with open_store(database) as store:
                kept |= {f"{database} {run.key} {run.status}": run.tags for run in store.runs()}
    return done.code, done.out, TIMES.sub("", done.err).replace(str(Path.cwd()), "."), kept


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words).replace(" ".join(RUN), "").strip())
def test_short_way_answers_like_the_full_way(words, after, orthobench, tmp_path, monkeypatch, forgetful):
    after(RUN)
    (tmp_path / "mine.py").write_text(MINE)
    shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name} again"))
    full = answer(orthobench, words)
    if "--plugin" not in words:  # code from outside is read each time
        monkeypatch.setattr(index, "resolve", resolve_nothing if full[0] == 0 else index.resolve)
    monkeypatch.chdir(tmp_path.with_name(f"{tmp_path.name} again"))
    assert answer(orthobench, words) == full


def resolve_nothing(*_: object, **__: object) -> None:
    raise UsageError("it is resolved")


def test_changed_text_is_noticed(orthobench, tmp_path, monkeypatch, forgetful):
    """The tests of `test_identity.py` have the full way."""
    sizes = "unroll_length=5,batch_size=2,evaluation_batch_size=2,epochs=1,hidden_size=4,text=book.txt"
    words = ["run", "ptb", "rnn", *(word for setting in sizes.split(",") for word in ("-s", setting))]
    keys = []
    for text in ("the quick brown fox. " * 50, "the quick brown fax. " * 50):
        (tmp_path / "book.txt").write_text(text)
        keys += [orthobench(*words).out.split()[1] for _ in range(2)]
    assert keys[0] == keys[1] != keys[2] == keys[3]
    (tmp_path / "book.txt").unlink()
    assert orthobench(*words).err == "error: text=book.txt cannot be read: No such file or directory\n"


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
    printed, loaded = without_torch(tmp_path, ["plugins"], tmp_path / "cache")
    assert loaded == set()
    for plugin in Catalog():
        title = plugin.load().title
        (line,) = [line for line in printed.splitlines() if line.split()[:2] == [plugin.kind, plugin.name]]
        assert line.split("built in")[1].split(" (-s")[0].strip() == title
        assert ("(-s probes=" in line) == (plugin.kind == "probe" and not plugin.load().default)
    for words in (["plugins", "scornn"], ["plugins", "--json"], ["plugins", "training"]):
        assert without_torch(tmp_path, words, tmp_path / "cache")[1] == set()
