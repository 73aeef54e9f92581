"""A damaged database: every command says so in one line, and nothing is written to it."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from support.records import run_record

from orthobench.errors import DamagedError, StorageError, UsageError
from orthobench.metric import run_columns
from orthobench.plugins import Catalog
from orthobench.settings import run_names
from orthobench.spec.resolve import resolve
from orthobench.store import MetricRow, Status, TraceRow, damage, open_store, row_checks
from orthobench.store import open as opening
from orthobench.store.backup import back_up

PAGE = 4096
COMMANDS = [
    ("ls",),
    ("ls", "--json"),
    ("show", "{key}"),
    ("compare", "model=rnn", "model=lstm"),
    ("report", "--html"),
    ("db", "info"),
    ("db", "info", "--json"),
    ("db", "upgrade"),
    ("db", "backup", "copy.db"),
    ("db", "merge", "sound.db"),
    ("db", "export", "exported"),
    ("db", "repair", "repaired.db"),
]
REFUSED = re.compile(
    r"error: results\.db is damaged: .+; (`orthobench db repair repaired\.db --db results\.db` copies what can be read|"
    r"correct or delete the row in SQL), or restore a backup\n"
)
WRONG = [
    "UPDATE run SET status = 'finishee'",
    "UPDATE run SET status = X'ff01'",
    "UPDATE run SET seed = 'zero'",
    "UPDATE run SET final_value = 'low'",
    "UPDATE run SET created_at = 'yesterday'",
    "UPDATE run SET spec = '{\"task_settings\": '",
    "UPDATE run SET spec = '[]'",
    "UPDATE run SET spec = replace(spec, 'model_settings', 'nodel_settings')",
    'UPDATE run SET seconds = \'{"train": "long"}\'',
    "UPDATE run SET metrics = '{\"mse\": 3}'",
    "UPDATE run SET key = CAST(X'30ff31' AS TEXT) WHERE id = 3",
    "UPDATE metric SET value = 'low'",
    "UPDATE series SET name = CAST(X'6dff' AS TEXT)",
    "UPDATE metric SET iteration = 1.5 WHERE id = 7",
    "UPDATE environment SET facts = 'x'",
    "UPDATE environment SET facts = '7'",
    "UPDATE trace SET vectors = X'0102'",
    "UPDATE trace SET vectors = 'abc'",
    "UPDATE orthobench_version SET version_num = '00'",
    "UPDATE orthobench_version SET version_num = 'abc1'",
    "UPDATE orthobench_version SET version_num = X'ff'",
    "DROP TABLE tag",
    "DROP TABLE metric",
    "DROP TABLE run",
    "DROP TABLE environment",
    "ALTER TABLE run RENAME COLUMN status TO state",
    "ALTER TABLE metric DROP COLUMN kind",
]

UNDRAWABLE = {
    "a text as baseline": 'UPDATE run SET baselines = \'{"mse": "x"}\'',
    "NaN as baseline": "UPDATE run SET baselines = '{\"mse\": NaN}'",
    "a number beyond float64": "UPDATE run SET baselines = '{\"mse\": 1e999}'",
    "an integer beyond float64": f"UPDATE run SET baselines = '{{\"mse\": 1{'0' * 400}}}'",
    "null as baselines": "UPDATE run SET baselines = 'null'",
    "seconds that are a list": "UPDATE run SET seconds = '{\"train\": [1]}'",
    "a number as unit": "UPDATE run SET metrics = json_set(metrics, '$.mse.unit', 7)",
    "no task": "UPDATE run SET spec = json_set(spec, '$.task', null)",
    "an object as model": "UPDATE run SET spec = json_set(spec, '$.model', json('{\"a\": []}'))",
    "a condition of another spec": "UPDATE run SET condition = '0123456789abcdef'",
    "a key of another spec": "UPDATE run SET key = '0123456789abcdef'",
    "settings of another run": "UPDATE run SET spec = json_set(spec, '$.task_settings.train_size', 7)",
    "Infinity as setting": "UPDATE run SET spec = replace(spec, '\"hidden_size\": 8', '\"hidden_size\": Infinity')",
}
"""Values of a run that can be read and not be drawn."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory, alembic_migration) -> Path:
    """A database of 20 runs with rows on many pages, which lie where alembic puts them."""
    path = tmp_path_factory.mktemp("sound") / "sound.db"
    catalog, config = Catalog(), {"sequence_length": 10, "hidden_size": 8}
    facts = {"cpu": "x", "platform": "Linux", "cores": 2, "accelerator": None, "packages": {"torch": "2"}}
    facts |= {"python": "3", "commit": None, "dirty": False, "changes": None, "threads": 1, "cuda": None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "_migrate", alembic_migration)
        open_store(str(path), create=True).close()
    with open_store(str(path), create=True) as store:
        for number in range(20):
            resolved = resolve(catalog, "adding", ("rnn", "lstm")[number % 2], config, seed=number // 2)
            run = store.start(run_record(resolved.spec, **run_columns(resolved.task_class.metrics)), facts)
            rows = [MetricRow("test", "mse", i, i, 1 / (i + number + 1)) for i in range(40)]
            vectors = [TraceRow("g", 0, i, [0.5] * 30) for i in range(10)]
            last = dict.fromkeys(("final_value", "best_value"), rows[-1].value) | {"best_iteration": 39}
            done = {"status": Status.FINISHED, "seconds": {"train": 2.0}, "iterations": 39}
            store.log(run.id, rows, vectors, done | last)
            store.tag([run.key], ["t"])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    assert path.stat().st_size > 20 * PAGE
    return path


def execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("PRAGMA legacy_alter_table = ON")  # because a view would stop it
        connection.execute(statement)
        connection.commit()


def cut(path: Path, draw: random.Random) -> None:
    os.truncate(path, draw.randrange(1, path.stat().st_size))


def zero_pages(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for page in draw.sample(range(1, len(content) // PAGE), 3):
        content[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
    path.write_bytes(content)


def flip_bits(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(40):
        content[draw.randrange(PAGE, len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def flip_header(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[draw.randrange(100)] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def swap_pages(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    first, other = draw.sample(range(1, len(content) // PAGE), 2)
    pages = [slice(page * PAGE, (page + 1) * PAGE) for page in (first, other)]
    content[pages[0]], content[pages[1]] = content[pages[1]], content[pages[0]]
    path.write_bytes(content)


def noise(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    at = draw.randrange(len(content) - 300)
    content[at : at + 300] = draw.randbytes(300)
    path.write_bytes(content)


def wrong_value(path: Path, draw: random.Random) -> None:
    execute(path, draw.choice(WRONG))


DAMAGES: list[Callable[[Path, random.Random], None]] = [
    cut,
    zero_pages,
    flip_bits,
    flip_header,
    swap_pages,
    noise,
    wrong_value,
]


def check_line(done, what: str) -> None:
    """Check that a command ended as documented: with its result, or with one line of an error."""
    text = f"{what}: {done.code} {done.err} {done.out[-300:]}"
    assert "Traceback" not in done.err, text
    assert "orthobench -v" not in done.err, text
    assert "sqlalchemy" not in (done.out + done.err).lower(), text
    assert done.code in (0, 1, 2), text
    if done.code == 2:
        assert done.err.startswith("error: "), text
        assert done.err.count("\n") == 1, text


def attack(orthobench, sound: Path, folder: Path, tiny_options, seed: int, number_of_commands: int) -> None:
    """Damage a copy in a random way, and try commands on it."""
    draw = random.Random(seed)
    inflict = DAMAGES[seed % len(DAMAGES)]
    damaged, again = folder / "results.db", folder / "again.db"
    shutil.copy(sound, folder / "sound.db")
    shutil.copy(sound, again)
    with open_store(str(again)) as store:
        key = draw.choice(store.runs()).key
    inflict(again, draw)
    commands = [*COMMANDS, ("run", "adding", "rnn", *tiny_options), ("db", "merge", "results.db", "--db", "merged.db")]
    for command in draw.sample(commands, number_of_commands):
        for side in (folder / f"results.db{end}" for end in ("", "-wal", "-shm", "-journal")):
            side.unlink(missing_ok=True)
        for output in (folder / "copy.db", folder / "merged.db", folder / "repaired.db"):
            output.unlink(missing_ok=True)
        damage._checked.clear()
        shutil.copy(again, damaged)
        done = orthobench(*(word.format(key=key) for word in command))
        what = f"{inflict.__name__} {seed}: {' '.join(command[:3])}"
        check_line(done, what)
        if command[:2] == ("db", "backup"):
            assert (done.code == 0) == (folder / "copy.db").exists(), what
            if done.code == 0:
                assert checked(folder / "copy.db", "integrity_check") == "ok", what
        if command[:2] == ("db", "repair") and done.code == 0:
            assert checked(folder / "repaired.db", "integrity_check") == "ok", what
            check_line(orthobench("db", "merge", "repaired.db", "--db", "merged.db"), what)
        if command[0] == "run" and done.code == 0:
            assert checked(damaged, "quick_check") == "ok", what
        assert not list(folder.glob(".*.part*")), what


def checked(path: Path, check: str) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute(f"PRAGMA {check}").fetchone()[0])


@pytest.mark.parametrize("seed", range(20))
def test_no_single_damage_ends_a_command_with_a_traceback(orthobench, sound, tmp_path, tiny_options, seed):
    attack(orthobench, sound, tmp_path, tiny_options, seed, 4)


@pytest.mark.parametrize("seed", [125, 139, 167, 181])
def test_no_earlier_failure_ends_a_command_with_a_traceback(orthobench, sound, tmp_path, tiny_options, seed):
    """A run without settings in `show`, and a copy of a database that lacks a table."""
    attack(orthobench, sound, tmp_path, tiny_options, seed, len(COMMANDS) + 2)


@pytest.mark.parametrize(
    ("text", "damaged"),
    [
        (b"CREATE TABLE metric (", b"CREATE TABLE m\xfftric ("),
        (b"tablemetricmetric", b"tablem\xfftricm\xfftric"),
        (b"peak_memory INTEGER", b"peak_m\xffmory INTEGER"),
        (b"indexix_run_task", b"indexix_\xffun_task"),
    ],
)
def test_schema_that_is_not_utf_8_is_damage(orthobench, sound, tmp_path, text, damaged):
    content = sound.read_bytes()
    assert content.count(text) == 1
    (tmp_path / "results.db").write_bytes(content.replace(text, damaged))
    for command in (("ls",), ("db", "info"), ("db", "export", "out"), ("db", "upgrade")):
        done = orthobench(*command)
        check_line(done, str(command))
        assert REFUSED.fullmatch(done.err), command
    done = orthobench("db", "repair", "repaired.db")
    check_line(done, "repair")
    assert done.err.startswith("error: results.db cannot be repaired: ")
    assert done.err.endswith("; restore a backup\n")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 240))
def test_no_random_damage_ends_a_command_with_a_traceback(orthobench, sound, tmp_path, tiny_options, seed):
    attack(orthobench, sound, tmp_path, tiny_options, seed, len(COMMANDS) + 2)


@pytest.mark.parametrize(
    "statement", [*WRONG[::2], *(pytest.param(statement, marks=pytest.mark.slow) for statement in WRONG[1::2])]
)
def test_unreadable_value_is_refused(orthobench, sound, tmp_path, statement):
    """`db export` reads every value; it and `db info` name the damage with its fix."""
    shutil.copy(sound, tmp_path / "results.db")
    execute(tmp_path / "results.db", statement)
    exported, info = orthobench("db", "export", "out", "--vectors"), orthobench("db", "info")
    for done in (exported, info):
        check_line(done, statement)
    assert info.code == 1 or REFUSED.fullmatch(info.err), statement
    assert REFUSED.fullmatch(exported.err), statement
    merged = orthobench("db", "merge", "results.db", "--db", "merged.db")
    assert merged.code == 2, statement
    assert not (tmp_path / "merged.db").exists()


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda path: path.write_text("a text\n" * 1000), "is not a database, or its first bytes are damaged"),
        (lambda path: path.write_bytes(b""), "holds no orthobench runs"),
        (lambda path: path.mkdir(), "is a folder"),
    ],
)
def test_other_file_is_refused_by_every_command(orthobench, tmp_path, make, line):
    make(tmp_path / "results.db")
    sound_commands = [command for command in COMMANDS if command[1:2] not in (("merge",), ("backup",))]
    for command in sound_commands:
        done = orthobench(*command)
        check_line(done, line)
        assert (done.code, line in done.err) == (2, True), command


def test_run_is_not_stored_in_a_damaged_file(orthobench, sound, tmp_path, tiny_options):
    """One page of an index is lost: a run would be stored without a word."""
    path = tmp_path / "results.db"
    shutil.copy(sound, path)
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'ix_run_condition'"
        (root,) = connection.execute(query).fetchone()
    content = bytearray(path.read_bytes())
    content[(root - 1) * PAGE : root * PAGE] = bytes(PAGE)
    path.write_bytes(content)
    for command in (("run", "adding", "rnn"), ("sweep", "adding", "--models", "rnn", "-j", "0"), ("db", "merge")):
        options = ("other.db",) if command[0] == "db" else tiny_options
        shutil.copy(sound, tmp_path / "other.db")
        done = orthobench(*command, *options)
        assert done.code == 2
        assert "results.db is damaged: " in done.err
        assert path.read_bytes() == content


def test_backup_of_a_damaged_database_is_refused(sound, tmp_path):
    path, copy = tmp_path / "r.db", tmp_path / "copy.db"
    shutil.copy(sound, path)
    zero_pages(path, random.Random(1))
    with pytest.raises(DamagedError, match=r"r\.db is damaged: .*, or restore a backup"):
        back_up(path, copy)
    assert [file.name for file in tmp_path.iterdir()] == ["r.db"]


def test_two_backups_to_one_name_share_no_file(sound, tmp_path, monkeypatch):
    """The second starts while the first is under way; the one that ends first keeps the name."""
    from orthobench.store import backup

    path, copy, check, parts = tmp_path / "r.db", tmp_path / "copy.db", backup._check, []
    shutil.copy(sound, path)

    def begin_another(file, part, *rest):
        parts.append(part)
        if len(parts) == 1:
            back_up(path, copy)
        check(file, part, *rest)

    monkeypatch.setattr(backup, "_check", begin_another)
    with pytest.raises(UsageError, match=r"copy\.db exists already: name a new file"):
        back_up(path, copy)
    assert len(set(parts)) == 2
    assert checked(copy, "integrity_check") == "ok"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["copy.db", "r.db"]


def test_copy_that_differs_is_not_accepted_as_backup(sound, tmp_path, monkeypatch):
    """The disk loses a page of the copy, or a row of it."""
    from orthobench.store import backup

    path, copy, check = tmp_path / "r.db", tmp_path / "copy.db", backup._check
    shutil.copy(sound, path)

    def lose(change):
        def changed(file, part, *rest):
            change(part)
            check(file, part, *rest)

        monkeypatch.setattr(backup, "_check", changed)

    for change in (
        lambda part: zero_pages(part, random.Random(1)),
        lambda part: execute(part, "DELETE FROM metric WHERE id = 3"),
    ):
        lose(change)
        with pytest.raises(StorageError, match=r"copy\.db cannot be written: the copy has faults: "):
            back_up(path, copy)
        assert not copy.exists()


def test_sql_finds_the_rows_that_python_cannot_read(sound, tmp_path, monkeypatch):
    """One row of the metric values for each column and value of a type that SQLite can store in it."""
    path = tmp_path / "copy.db"
    shutil.copy(sound, path)
    values = (None, 1, 1.5, float("inf"), "", "nan", "-inf", "a text", b"", b"nan", b"\xff")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(  # without its constraints
            "UPDATE sqlite_master SET sql = 'CREATE TABLE metric (id INTEGER PRIMARY KEY, run_id INTEGER, "
            "series_id INTEGER, epoch INTEGER, iteration INTEGER, value FLOAT, kind VARCHAR, "
            "UNIQUE (run_id, series_id, iteration))' WHERE name = 'metric'"
        )
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM metric")
        columns = ("epoch", "iteration", "value", "kind")
        for row, (column, value) in enumerate(itertools.product(columns, values)):
            own = dict.fromkeys(columns, 0) | {"kind": None, "iteration": 1000 + row} | {column: value}
            connection.execute(
                "INSERT INTO metric (run_id, series_id, epoch, iteration, value, kind) "
                "VALUES (1, 1, :epoch, :iteration, :value, :kind)",
                own,
            )
    with open_store(str(path)) as store:

        def found() -> list[str]:
            with store.engine.connect() as connection:
                return list(row_checks.faults_in(connection, ["metric"]))

        by_sql = found()
        monkeypatch.setattr(row_checks, "_suspect", lambda connection, columns: None)
        assert by_sql == found()
        assert len(by_sql) > 20


@pytest.mark.parametrize("statement", UNDRAWABLE.values(), ids=UNDRAWABLE)
def test_a_run_that_cannot_be_drawn_is_refused_and_named(orthobench, sound, tmp_path, statement):
    shutil.copy(sound, tmp_path / "results.db")
    execute(tmp_path / "results.db", f"{statement} WHERE id = 1")
    with closing(sqlite3.connect(tmp_path / "results.db")) as connection:
        ((key,),) = connection.execute("SELECT key FROM run WHERE id = 1")
    for command in (("report", "--html"), ("show", key)):
        done = orthobench(*command)
        assert REFUSED.fullmatch(done.err), command
    assert f"run {key}: " in orthobench("db", "info").out


def test_lists_of_a_strange_record_are_shown(orthobench, sound, tmp_path):
    """A plugin's setting may be a list of numbers, and facts may hold anything that JSON can."""
    shutil.copy(sound, tmp_path / "results.db")
    with closing(sqlite3.connect(tmp_path / "results.db")) as connection, connection:
        spec = json.loads(connection.execute("SELECT spec FROM run WHERE id = 1").fetchone()[0])
        spec["training"]["list"] = [1, [None, {}]]
        names = run_names(spec)
        values = (json.dumps(spec), key := names["key"], names["variant"])
        connection.execute("UPDATE run SET spec = ?, key = ?, variant = ? WHERE id = 1", values)
    execute(tmp_path / "results.db", "UPDATE environment SET facts = json_set(facts, '$.dirty', json('{\"a\": [{}]}'))")
    shown = orthobench("show", key)
    assert (shown.code, shown.err) == (0, "")
    assert "list=1,none,{}" in shown.out
    assert orthobench("report", "--html").code == 0
