"""Databases of strangers and copies of one's own: texts are not paths, URLs are not opened, other files stay."""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from support.records import run_record

from orthobench.store import MetricRow, Status, WeightsRow, open_store
from orthobench.store.result import as_name
from orthobench.system.location import Location
from orthobench.weights.weights_files import PROTOCOLS, WeightsFolder

RUNS = [run_record(model=model, seed=seed) for model in ("lstm", "rnn") for seed in range(2)]
KEYS = [run["key"] for run in RUNS]
HOSTILE_KEYS = ["../../proj/poetry", "../../victim", "{root}/victim", "..", "", ".", "a\0b", "a\nb", "A" * 16, "a" * 17]
COMMANDS = {
    "ls": ("ls",),
    "show": ("show", "{key}"),
    "info": ("db", "info"),
    "compare": ("compare", "model=lstm", "model=rnn"),
    "report": ("report", "--format", "csv"),
    "publish": ("publish", "out/site", "lk/s.db"),
    "export": ("db", "export", "out/tables"),
    "tensorboard": ("db", "export", "--to", "tensorboard:out/tb"),
    "merge": ("db", "merge", "lk/s.db"),
    "dry run": ("delete", "--model", "lstm", "--dry-run"),
    "delete": ("delete", "--model", "lstm", "--yes"),
    "drop-weights": ("db", "drop-weights", "--yes"),
}


def write_database(file: Path) -> None:
    """Write a database of two models with two seeds each, and no files but its own."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open_store(str(file), create=True) as store:
        for number, record in enumerate(RUNS):
            run = store.start(record, {"cpu": "m"})
            done = {"status": Status.FINISHED, "iterations": 10, "final_value": 0.1 * number, "best_value": 0.1}
            store.log(run.id, [MetricRow("test", "mse", 1, 10, 0.1 * number)], [], done | {"seconds": {"train": 1.0}})


def change(file: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(statement, values)


def tree(root: Path) -> dict[str, bytes | None]:
    """Return all files and folders with their content, but for those of databases and of the folder out."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
        if not (path.relative_to(root).parts[0] == "out" or (".db" in path.name and "checkpoints" not in path.name))
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """The database of `write_database`, for tests to copy."""
    file = tmp_path_factory.mktemp("written") / "s.db"
    write_database(file)
    return file


@pytest.fixture
def world(tmp_path, written) -> Path:
    """A folder with a stranger's database in lk, and with projects of the user next to it."""
    (tmp_path / "lk").mkdir()
    shutil.copy(written, tmp_path / "lk")
    for name in ("proj/poetry.lock", "victim/thesis", "victim.lock", "lk/notes", "lk/.lock", "lk/...lock"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    (tmp_path / "victim" / "events.out.tfevents.1.orthobench").write_text("mine")
    for name in ("other", KEYS[0]):
        (tmp_path / "lk" / "s.db.checkpoints" / name).mkdir(parents=True)
        (tmp_path / "lk" / "s.db.checkpoints" / name / "checkpoint.pt").write_text("a checkpoint")
    (tmp_path / "lk" / "s.db.checkpoints" / ".lock").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("status", "keys"),
    [
        ("running", HOSTILE_KEYS[::2]),
        pytest.param("finished", HOSTILE_KEYS[1::2], marks=pytest.mark.slow),
        pytest.param("running", HOSTILE_KEYS[1::2], marks=pytest.mark.slow),
        pytest.param("finished", HOSTILE_KEYS[::2], marks=pytest.mark.slow),
    ],
    ids=["running", "finished", "running-others", "finished-others"],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_key_leads_outside_the_database(orthobench, world, command, status, keys):
    """Neither a lock, nor a folder, nor an event file of the user is touched, whatever the key."""
    shutil.copytree(world / "lk", world / "origin")
    words = COMMANDS[command]
    if "lk/s.db" not in words:
        words = (*words, "--db", "lk/s.db")
    elif command == "merge":
        words = (*words, "--db", "out/mine.db")
    for pattern in keys:
        key = pattern.format(root=world)
        shutil.rmtree(world / "lk")
        shutil.copytree(world / "origin", world / "lk")
        (world / "out").mkdir(exist_ok=True)
        change(world / "lk" / "s.db", "UPDATE run SET key = ?, status = ? WHERE key = ?", key, status, KEYS[0])
        before = tree(world)
        outcome = orthobench(*(word.format(key=key or KEYS[1]) for word in words))
        after = tree(world)
        after.pop("lk/s.db.checkpoints/.guard", None)  # delete locks the runs
        assert after == before, (command, key)
        assert outcome.code in (0, 1, 2), outcome.err
        assert "Traceback" not in outcome.err
        shutil.rmtree(world / "out")


def test_queries_change_nothing_in_the_checkpoint_folder(orthobench, world):
    """A dead process's lock stays: only the process that trains the run removes it."""
    (world / "lk" / "s.db.checkpoints" / f"{KEYS[0]}.lock").write_text("")
    change(world / "lk" / "s.db", "UPDATE run SET status = 'running' WHERE key = ?", KEYS[0])
    before = tree(world)
    for command in ("ls", "show", "info", "compare", "report", "dry run"):
        orthobench(*(word.format(key=KEYS[0]) for word in COMMANDS[command]), "--db", "lk/s.db")
        assert tree(world) == before, command


def test_database_check_names_the_key(orthobench, world):
    change(world / "lk" / "s.db", "UPDATE run SET key = '../x' WHERE key = ?", KEYS[0])
    outcome = orthobench("db", "info", "--db", "lk/s.db")
    assert outcome.code == 1
    assert "its key '../x' is not 16 hexadecimal digits" in outcome.out
    outcome = orthobench("db", "merge", "lk/s.db", "--db", "mine.db")
    assert outcome.code == 2
    assert "its key '../x' is not 16 hexadecimal digits" in outcome.err
    assert not Path("mine.db").exists()


@pytest.mark.parametrize("key", HOSTILE_KEYS[:8])
def test_hostile_key_names_no_file(key):
    with pytest.raises(Exception, match="names no file"):
        as_name(key)


# Places of weights.

COMMANDED = ("run", "adding", "rnn", "--keep-weights", "last", "--weights-at", "W")


def run_key(orthobench, database: str) -> str:
    key: str = json.loads(orthobench("ls", "--db", database, "--json").out)[0]["run"]
    return key


def test_deleting_from_a_merged_database_keeps_the_originals_weights(orthobench, tiny_options):
    orthobench(*COMMANDED, *tiny_options, "--db", "a.db")
    key, files = run_key(orthobench, "a.db"), sorted(Path("W").iterdir())
    orthobench("db", "merge", "a.db", "--db", "b.db")
    outcome = orthobench("delete", key, "--yes", "--db", "b.db")
    assert outcome.code == 0
    assert sorted(Path("W").iterdir()) == files
    assert orthobench("evaluate", key, "--db", "a.db").code == 0
    orthobench("delete", key, "--yes", "--db", "a.db", "--weights-at", "W")
    assert list(Path("W").iterdir()) == []


def test_run_in_a_backup_keeps_the_originals_weights(orthobench, tiny_options, caplog):
    orthobench(*COMMANDED, *tiny_options, "--db", "a.db")
    key = run_key(orthobench, "a.db")
    orthobench("db", "backup", "b.db", "--db", "a.db")
    caplog.clear()
    words = ("run", "adding", "rnn", *tiny_options, "--force", "--keep-weights", "none", "--db", "b.db")
    assert orthobench(*words).code == 0
    file = Path("W").resolve() / f"{key}.last.safetensors"
    assert f"stays: {file} (another database may have it, too; `weights_at='{file.parent}'` removes it)" in caplog.text
    assert orthobench("evaluate", key, "--db", "a.db").code == 0
    orthobench("db", "backup", "c.db", "--db", "a.db")
    assert orthobench("db", "drop-weights", "--yes", "--db", "c.db").code == 0
    assert orthobench("evaluate", key, "--db", "a.db").code == 0


FORMS = [
    "{root}/mine.db.weights/{file}",
    "{root}/lk/../mine.db.weights/{file}",
    "mine.db.weights/{file}",
    "../mine.db.weights/{file}",
    "./lk/../mine.db.weights/{file}",
    "file://{root}/mine.db.weights/{file}",
    "local://{root}/mine.db.weights/{file}",
    "{root}/lk/s.db.weights/../../mine.db.weights/{file}",
    "file://{root}/lk/s.db.weights/../../mine.db.weights/{file}",
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("words", [("delete", KEYS[0], "--yes"), ("db", "drop-weights", "--yes")])
def test_foreign_record_removes_no_file_of_the_user(orthobench, world, form, words, caplog):
    name = f"{KEYS[0]}.last.safetensors"
    own_file = world / "mine.db.weights" / name
    own_file.parent.mkdir()
    own_file.write_text("mine")
    (world / "lk" / "s.db.weights").mkdir()
    path = form.format(root=world, file=name)
    with open_store("lk/s.db") as store:
        store.log(store.get(KEYS[0]).id, [], [], {}, weights=[WeightsRow("last", 10, Location(path), "0" * 64, 4)])
    outcome = orthobench(*words, "--db", "lk/s.db")
    assert outcome.code == 0, outcome.err
    assert own_file.read_text() == "mine"
    assert "stays: " in caplog.text


TEMPLATE = {
    "version": 1,
    "templates": {},
    "gen": [
        {
            "key": "{{ cycler.__init__.__globals__.os.system('touch RCE') }}",
            "url": "x",
            "dimensions": {"i": {"stop": 1}},
        }
    ],
    "refs": {},
}
REFERENCE = "reference://::data:application/json;base64," + base64.b64encode(json.dumps(TEMPLATE).encode()).decode()
URLS = [
    REFERENCE,
    "http://example.invalid/w",
    "ftp://example.invalid/w",
    "data:text/plain,x://y",
    "simplecache::memory://bucket/w",
    "memory://bucket/w",
    "zip://x::memory://bucket/w",
]


@pytest.mark.parametrize("url", URLS)
def test_no_url_recorded_in_a_database_is_opened(orthobench, world, url, monkeypatch):
    """show and doctor say what is recorded; evaluate and export want the place on the command line."""
    from fsspec import core

    opened = []
    monkeypatch.setattr(core, "url_to_fs", lambda *arguments, **options: opened.append(arguments) or 1 / 0)
    path = f"{url}/{KEYS[0]}.last.safetensors"
    with open_store("lk/s.db") as store:
        store.log(store.get(KEYS[0]).id, [], [], {}, weights=[WeightsRow("last", 10, Location(path), "0" * 64, 4)])
    shown = orthobench("show", KEYS[0], "--db", "lk/s.db")
    assert (shown.code, path in shown.out) == (0, True)
    assert "MISSING" not in shown.out
    assert orthobench("doctor", "--db", "lk/s.db").code in (0, 1)
    for words in (("evaluate", KEYS[0]), ("export", KEYS[0], "x.onnx", "--format", "onnx")):
        outcome = orthobench(*words, "--db", "lk/s.db")
        assert outcome.code == 2
        assert outcome.err.startswith("error: weights ")
        assert outcome.err.count("\n") == 1
    for words in (("db", "drop-weights", "--yes"), ("delete", KEYS[0], "--yes")):
        assert orthobench(*words, "--db", "lk/s.db").code == 0
    assert opened == []
    assert not Path("RCE").exists()


def test_named_url_is_opened_unless_it_is_chained(orthobench, world):
    files = MemoryFileSystem()
    name = f"{KEYS[0]}.last.safetensors"
    files.pipe_file(f"/bucket/w/{name}", b"x")
    with open_store("lk/s.db") as store:
        store.log(
            store.get(KEYS[0]).id,
            [],
            [],
            {},
            weights=[WeightsRow("last", 10, Location(f"memory://bucket/w/{name}"), "0", 1)],
        )
    outcome = orthobench("evaluate", KEYS[0], "--db", "lk/s.db", "--weights-at", "memory://bucket")
    assert "have another SHA-256" in outcome.err
    outcome = orthobench("evaluate", KEYS[0], "--db", "lk/s.db", "--weights-at", "memory://buck")
    assert "does not name" in outcome.err
    files.rm("/bucket", recursive=True)


def test_links_and_parent_folders_are_resolved_in_a_location(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "link").symlink_to(tmp_path)
    own = WeightsFolder(Location(str(tmp_path / "own")))
    assert own.holds(WeightsFolder(Location(str(tmp_path / "own" / "below"))))
    assert not own.holds(WeightsFolder(Location(str(tmp_path / "own" / "link" / "other"))))
    assert not own.holds(WeightsFolder(Location(f"{tmp_path}/own/../other")))
    assert not own.holds(WeightsFolder(Location(f"{tmp_path}/owner")))
    bucket = WeightsFolder(Location("s3://bucket/w"))
    assert bucket.holds(WeightsFolder(Location("s3://bucket/w/x")))
    assert not bucket.holds(WeightsFolder(Location("s3://bucket/w/../x")))
    assert not bucket.holds(WeightsFolder(Location("s3://bucket/wx")))
    assert "reference" not in PROTOCOLS
