"""No text of a database, a plugin or an error controls the terminal."""

from __future__ import annotations

import io
import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from support.records import key_of, run_record

from orthobench.display.console import Console
from orthobench.store import MetricRow, Status, WeightsRow, open_store
from orthobench.system.location import Location
from orthobench.system.output import HarmlessStream, harmless, lasting_output

CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))]
HARMFUL = {letter for letter in CONTROLS if letter not in "\t\n"}
EVIL = "x\x1b]0;T\x07\x1b]52;c;aGk=\x1b\\\x1b[2J\r\x9b31m\u202e\u2066\x08y"
SPEC = run_record()["spec"]
METRIC = {"goal": "min", "unit": "", "label": EVIL, "is_fraction": False}
COLUMNS = {
    "preset": {"preset": EVIL},
    "device": {"device": EVIL},
    "backend": {"backend": EVIL},
    "metrics": {"metrics": {"mse": METRIC}},
    "baselines": {"baselines": {"mse": 0.5, EVIL: 0.5}},
    "spec": {"spec": SPEC | {"task_settings": {"note": EVIL, EVIL: 1}}},
    "message": {"message": EVIL},
    "continued_from": {"continued_from": EVIL},
}
OTHERS = ("environment", "metric name", "tag", "weights")
COMMANDS = [
    ("ls",),
    ("ls", "--json"),
    ("show", "{key}"),
    ("show", "{key}", "--json"),
    ("db", "info"),
    ("compare", "model=lstm", "model=rnn"),
    ("compare", "model=lstm", "model=nothing"),
    ("report", "--format", "csv"),
    ("report", "--format", "markdown"),
    ("report", "--format", "latex"),
    ("db", "export", "tables"),
    ("db", "drop-weights", "--dry-run"),
    ("delete", "{key}", "--dry-run"),
    ("ls", "--where", f"model={EVIL}"),
]


QUICK = ("metrics", "spec", "message", *OTHERS)


CONTROLLING = "characters that control a terminal"


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("task", CONTROLLING),
        ("model", CONTROLLING),
        ("metric", CONTROLLING),
        ("variant", "does not follow from its spec"),
        ("condition", "does not follow from its spec"),
    ],
)
def test_names_that_control_the_terminal_are_refused(orthobench, column, reason, tmp_path):
    with open_store(str(tmp_path / "results.db"), create=True) as store:
        store.start(run_record(), {}, [])
    with closing(sqlite3.connect(tmp_path / "results.db")) as connection, connection:
        connection.execute(f"UPDATE run SET {column} = ?", (EVIL,))
    for words in (("ls",), ("show", key_of(0)), ("report", "--format", "csv")):
        outcome = orthobench(*words)
        assert outcome.code == 2
        assert reason in outcome.err
        assert not HARMFUL & set(outcome.out + outcome.err)


@pytest.mark.parametrize(
    "column",
    [column if column in QUICK else pytest.param(column, marks=pytest.mark.slow) for column in [*COLUMNS, *OTHERS]],
)
def test_no_text_of_a_database_controls_the_terminal(orthobench, column, tmp_path):
    with open_store(str(tmp_path / "results.db"), create=True) as store:
        for number in range(4):
            evil = number > 1
            record = {"model": "rnn" if evil else "lstm", "seed": number % 2}
            changes = COLUMNS.get(column, {}) if evil else {}
            facts = {"cpu": EVIL, EVIL: EVIL, "packages": {EVIL: EVIL}} if evil and column == "environment" else {}
            tags = [EVIL] if evil and column == "tag" else []
            run = store.start(run_record(**record, **changes), facts, tags)
            name = EVIL if evil and column == "metric name" else "mse"
            rows = [MetricRow("test", name, 1, 10, 0.1 * number)]
            files = (
                [WeightsRow("last", 10, Location(f"/{EVIL}/{run.key}.last.safetensors"), EVIL, 1)]
                if column == "weights"
                else []
            )
            done = {"status": Status.FINISHED, "iterations": 10, "final_value": 0.1 * number, "best_value": 0.1}
            done |= {"seconds": {"train": 1.0}, "message": changes.get("message")}
            store.log(run.id, rows, [], done, weights=files)
            key = run.key
    seen = ""
    for words in COMMANDS:
        outcome = orthobench(*(word.format(key=key) for word in words))
        printed = outcome.out + outcome.err
        assert not HARMFUL & set(printed), (words, printed)
        assert "Traceback" not in outcome.err
        seen += printed
    assert column == "preset" or "x?" in seen or "\\u001b" in seen, "the text is printed nowhere"


PLUGIN = """
from orthobench.models.rnn import *
raise RuntimeError({!r})
"""


@pytest.mark.slow
def test_no_error_of_a_plugin_controls_the_terminal(tmp_path):
    (tmp_path / "evil.py").write_text(PLUGIN.format(EVIL))
    environment = os.environ | {"LC_ALL": "C.UTF-8"}
    for words in (["plugins", "--plugin", "evil.py"], ["run", "adding", "evil", "--plugin", "evil.py"]):
        command = [sys.executable, "-m", "orthobench", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, env=environment)
        printed = (done.stdout + done.stderr).decode()
        assert "x?" in printed
        assert not HARMFUL & set(printed), printed


def test_every_control_character_is_replaced():
    assert harmless("".join(CONTROLS)) == "?" * 9 + "\t\n" + "?" * (len(CONTROLS) - 11)
    assert harmless("±…ü 漢字 \U0001f600 e\u0301") == "±…ü 漢字 \U0001f600 e\u0301"


def test_console_emits_only_the_programs_styles():
    """On a terminal rich writes its own codes; texts bring neither codes nor markup, such as links."""
    terminal = io.StringIO()
    console = Console(file=HarmlessStream(terminal), force_terminal=True, width=200, color_system="standard")
    console.print(f"[link=http://evil][red]{EVIL}[/link] :smile: [/", style="bold")
    shown = harmless("".join(letter for letter in EVIL if letter not in "\a\b\r"))  # rich itself leaves these out
    assert terminal.getvalue() == f"\x1b[1m[link=http://evil][red]{shown}[/link] :smile: [/\x1b[0m\n"


def test_output_of_a_run_stays_harmless_after_its_reader_left(tmp_path, monkeypatch):
    """Streams that outlive their reader are made of the descriptor, and are harmless as the streams before."""
    file = tmp_path / "out"
    with file.open("w") as stream:
        monkeypatch.setattr(sys, "stdout", HarmlessStream(stream))
        with lasting_output():
            print(EVIL)
        print(EVIL)
    assert file.read_text() == f"{harmless(EVIL)}\n" * 2
    with pytest.raises(AttributeError):
        sys.stdout.buffer  # noqa: B018


def test_lines_arrive_at_once_under_pythonunbuffered(tmp_path, monkeypatch):
    file = tmp_path / "log"
    with file.open("wb", buffering=0) as raw:
        monkeypatch.setattr("sys.stderr", io.TextIOWrapper(raw, write_through=True))  # as PYTHONUNBUFFERED=1 makes it
        with lasting_output():
            print("epoch 1", file=sys.stderr)
            assert file.read_text() == "epoch 1\n"
