"""A command whose runs have results answers from the database, without torch; a changed program resolves it again."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import fields

import pytest

from orthobench.errors import UsageError
from orthobench.location import Location
from orthobench.planning import requests
from orthobench.plugins import Catalog
from orthobench.store import open_store
from orthobench.store.lookup import stored_results

SETTINGS = "sequence_length=10,train_size=40,test_size=20,batch_size=10,epochs=1"
SHORT = [word for setting in SETTINGS.split(",") for word in ("-s", setting)]
RUN = ["run", "adding", "rnn", *SHORT, "-s", "n=4"]
SWEEP = ["sweep", "adding", "--models", "rnn,lstm", "--grid", "n=4,5", "--seeds", "2", "-j", "0", *SHORT]
HEAVY = {"torch", "numpy", "pandas", "scipy", "sqlalchemy", "alembic"}


def loaded_modules(folder, words: list[str]) -> tuple[str, set[str]]:
    """Run a command in a process of its own: return its output and the heavy modules that it loaded."""
    code = (
        f"import sys; sys.argv = {['orthobench', *words]}\nfrom orthobench.cli import main\n"
        f"try: main()\nexcept SystemExit as end: assert not end.code, end.code\n"
        f"print(*sorted(set(sys.modules) & {HEAVY}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *output, modules = done.stdout.splitlines(keepends=True)
    return "".join(output), set(modules.split())


@pytest.mark.parametrize("words", [RUN, SWEEP])
def test_results_are_printed_without_torch_in_the_same_words(words, orthobench, tmp_path):
    trained = orthobench(*words)
    assert trained.code == 0, trained.err
    printed, heavy = loaded_modules(tmp_path, words)
    assert heavy <= {"numpy", "scipy"}  # the intervals over several seeds
    assert printed.split() == trained.out.replace("missing", "finished").split()


def resolve_nothing(*_: object, **__: object) -> None:
    raise UsageError("it is resolved")


@pytest.mark.parametrize(
    "words",
    [
        [*RUN, "--seed", "1"],
        [*RUN, "--preset", "quick"],
        [*RUN, "--tag", "mine"],
        [*RUN, "--force"],
        [*RUN, "--device", "cuda"],
        [*RUN, "--on-divergence", "continue"],
        [*RUN, "--cuda-graph", "on"],
        [*RUN, "--log-to", "tensorboard:x"],
        [*RUN, "--keep-weights", "last"],
        [*RUN, "--weights-at", "x"],
        [*RUN, "--checkpoints", "x"],
        [*RUN, "-s", "clip_norm=1"],
        ["run", "adding", "lstm", *RUN[3:]],
    ],
)
def test_another_command_is_resolved(words, after, orthobench, monkeypatch):
    after(RUN)
    monkeypatch.setattr("orthobench.api.run", resolve_nothing)
    assert orthobench(*RUN).code == 0
    assert orthobench(*words).err == "error: it is resolved\n"


@pytest.mark.parametrize(
    "more",
    [
        ["--grid", "lr=1,2"],
        ["--match-parameters", "100"],
        ["--dry-run"],
        ["--gpu-share", "2"],
        ["--budget", "1h"],
        ["--cuda-graph", "on"],
    ],
)
def test_another_sweep_is_resolved(more, after, orthobench, monkeypatch):
    after(SWEEP)
    monkeypatch.setattr("orthobench.api.sweep", resolve_nothing)
    assert orthobench(*SWEEP).code == 0
    assert orthobench(*SWEEP, *more).err == "error: it is resolved\n"


def test_more_seeds_are_resolved(after, orthobench, monkeypatch):
    after(SWEEP)
    monkeypatch.setattr("orthobench.api.sweep", resolve_nothing)
    assert orthobench(*("3" if word == "2" else word for word in SWEEP)).err == "error: it is resolved\n"


def test_other_code_resolves_the_command_again(after, orthobench, monkeypatch):
    after(RUN)
    monkeypatch.setattr(requests, "code_hash", lambda: "other code")
    monkeypatch.setattr("orthobench.api.run", resolve_nothing)
    assert orthobench(*RUN).err == "error: it is resolved\n"


def test_an_unfinished_run_is_no_result(after, orthobench, tmp_path):
    after(RUN)
    with closing(sqlite3.connect(tmp_path / "results.db")) as connection, connection:
        ((request, seed),) = connection.execute("SELECT request, seed FROM run")
        assert stored_results(Location(str(tmp_path / "results.db")), [request]).keys() == {(request, seed)}
        connection.execute("UPDATE run SET status = 'interrupted'")
    assert stored_results(Location(str(tmp_path / "results.db")), [request]) == {}


def test_a_stored_result_has_the_values_of_the_run(after, orthobench, tmp_path):
    after(RUN)
    with open_store(str(tmp_path / "results.db")) as store:
        (run,) = store.runs()
    ((_, result),) = stored_results(Location(str(tmp_path / "results.db")), [run.request]).items()
    names = [*(field.name for field in fields(result)), "seconds_per_epoch"]
    assert {name: getattr(result, name) for name in names} == {name: getattr(run, name) for name in names}


def test_a_kept_request_does_not_change_the_time_of_the_run(after, orthobench, tmp_path):
    after(RUN)
    with open_store(str(tmp_path / "results.db")) as store:
        (before,) = store.runs()
        store.keep_requests({before.key: "another"})
        (after,) = store.runs()
    assert (after.request, after.updated_at) == ("another", before.updated_at)


def test_files_without_results_have_none(tmp_path):
    (tmp_path / "text.db").write_text("no database")
    sqlite3.connect(tmp_path / "empty.db").close()
    for name in ("missing.db", "text.db", "empty.db"):
        assert stored_results(Location(str(tmp_path / name)), ["r"]) == {}
    assert stored_results(Location("postgresql://host/name"), ["r"]) == {}


def test_code_from_outside_has_no_request(tmp_path):
    (tmp_path / "mine.py").write_text("from orthobench.models.rnn import RNN\nclass Mine(RNN):\n    title = 'mine'\n")
    catalog = Catalog([tmp_path / "mine.py"])
    assert requests.request_of(catalog, "adding", "mine", {}, "paper") is None
    assert requests.request_of(catalog, "adding", "rnn", {}, "paper") is not None
    assert requests.request_of(catalog, "adding", "rnn", {"probes": "jacobian,mine"}, "paper") is None
    assert requests.request_of(catalog, "adding", "rnn", {"probes": ["jacobian"]}, "paper") is not None


def test_a_file_or_folder_that_a_setting_names_has_no_request():
    for task, settings in (("ptb", {"text": "book.txt"}), ("timit", {"audio": "rec"})):
        assert requests.request_of(Catalog(), task, "rnn", settings, "paper") is None
        assert requests.request_of(Catalog(), task, "rnn", {"epochs": 1}, "paper") is not None


def test_a_request_is_of_the_words_alone():
    catalog = Catalog()
    first = requests.request_of(catalog, "adding", "rnn", {"n": "4", "epochs": 3}, "paper")
    assert first == requests.request_of(catalog, "adding", "rnn", {"epochs": "3", "n": 4}, "paper")
    others = [({"n": "4"}, "paper"), ({"n": "4", "epochs": 3}, "quick"), ({"n": "3", "epochs": "4"}, "paper")]
    assert first not in [requests.request_of(catalog, "adding", "rnn", *words) for words in others]


def test_the_list_of_plugins_needs_no_torch(tmp_path):
    printed, heavy = loaded_modules(tmp_path, ["plugins"])
    assert heavy == set()
    for plugin in Catalog():
        title = plugin.load().title
        (line,) = [line for line in printed.splitlines() if line.split()[:2] == [plugin.kind, plugin.name]]
        assert line.split("built in")[1].split(" (-s")[0].strip() == title
        assert ("(-s probes=" in line) == (plugin.kind == "probe" and not plugin.load().default)
