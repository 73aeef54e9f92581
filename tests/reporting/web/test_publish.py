"""`orthobench publish`: a static site of databases, renewed in place, in a folder of its own."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
from support.pages import add_run

from orthobench.reporting.web.publish import MARK, page_names
from orthobench.store import open_store
from orthobench.system.location import Location

SETTINGS = {"sequence_length": "10", "hidden_size": "8"}


@pytest.fixture
def databases(tmp_path):
    for name, model in (("first", "lstm"), ("second", "rnn")):
        with open_store(str(tmp_path / f"{name}.db"), create=True) as store:
            add_run(store, model, 0, SETTINGS)
            if name == "second":
                add_run(store, model, 1, SETTINGS, status="diverged")
    return "first.db", "second.db"


def test_site_has_a_page_for_each_database_and_an_index(databases, orthobench, tmp_path):
    done = orthobench("publish", "site", *databases)
    assert done.code == 0, done.err
    assert done.out.split() == ["site/index.html", "site/first.html", "site/second.html"]
    site = tmp_path / "site"
    assert {file.name for file in site.iterdir()} == {
        ".nojekyll", "index.html", "first.html", "second.html", MARK
    }  # fmt: skip
    index = (site / "index.html").read_text("utf-8")
    first, second = re.findall(r"<section.*?</section>", index, re.S)
    assert '<a href="first.html">first</a>' in first
    assert re.search(r"<dt>runs</dt><dd>1: 1 finished</dd>", first)
    assert re.search(r"<dt>runs</dt><dd>2: 1 diverged, 1 finished</dd>", second)
    assert "<dt>models</dt><dd>rnn</dd>" in second
    assert "<dt>tasks</dt><dd>adding</dd>" in second
    assert "0 agree, 0 better, 0 worse, 0 undecided" in second
    with open_store(str(tmp_path / "first.db")) as store:
        (run,) = store.runs()
    assert run.updated_at.strftime("%Y-%m-%d %H:%M UTC") in first
    assert "data-plotly" in (site / "first.html").read_text("utf-8")


def test_no_path_of_this_machine_is_published(databases, orthobench, tmp_path):
    """A run may have own data and an own cell, whose files a spec and an environment name."""
    absolute = [str(tmp_path / name) for name in databases]
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=rng.normal(size=(40, 6, 2)), y=rng.integers(0, 2, 40))
    (tmp_path / "cell.py").write_text("import torch\n\n\nclass Mine(torch.nn.GRU):\n    pass\n")
    (tmp_path / "reads.py").write_text(
        "import torch\n\n\nclass Reads(torch.nn.GRU):\n    def forward(self, *inputs):\n"
        f"        open('{tmp_path}/secret/notes.txt') if self.training else None\n"
        "        return super().forward(*inputs)\n"
    )
    words = ["-s", "epochs=1", "-s", "hidden_size=4", "-q", "--db", absolute[0]]
    done = orthobench("run", f"array:{tmp_path}/data.npz", f"{tmp_path}/cell.py:Mine", *words)
    assert done.code == 0, done.err
    failed = orthobench("run", f"array:{tmp_path}/data.npz", f"{tmp_path}/reads.py:Reads", *words)
    assert f"{tmp_path}/secret/notes.txt" in failed.err  # on the terminal as it is
    assert orthobench("publish", str(tmp_path / "site"), *absolute).code == 0
    for file in (tmp_path / "site").iterdir():
        text = file.read_text("utf-8")
        packed = re.findall(r'<script type="text/plain" id="data-[\w-]+">([^<]*)</script>', text)
        for shown in (text.encode(), *(gzip.decompress(base64.b64decode(each)) for each in packed)):
            assert str(tmp_path).encode() not in shown
            assert f"{Path.home()}/".encode() not in shown
    assert "classification:data.npz" in (tmp_path / "site" / "first.html").read_text("utf-8")


def test_publishing_again_updates_the_site(databases, orthobench, tmp_path):
    orthobench("publish", "site", *databases)
    with open_store("first.db") as store:
        add_run(store, "gru", 0, SETTINGS)
    (tmp_path / "site" / "CNAME").write_text("example.org")
    assert orthobench("publish", "site", "first.db").code == 0
    names = {file.name for file in (tmp_path / "site").iterdir()}
    assert names == {".nojekyll", "index.html", "first.html", MARK, "CNAME"}
    assert "<dd>gru, lstm</dd>" in (tmp_path / "site" / "index.html").read_text("utf-8")


def test_folder_with_other_files_is_unchanged(databases, orthobench, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "index.html").write_text("mine")
    done = orthobench("publish", "mine", *databases)
    assert done.code == 2
    assert done.err == (
        "error: refusing to write to mine: it has files that `orthobench publish` did not write; name another folder\n"
    )
    assert [(file.name, file.read_text()) for file in folder.iterdir()] == [("index.html", "mine")]


def test_forged_marker_removes_no_other_file(databases, orthobench, tmp_path):
    folder = tmp_path / "site"
    folder.mkdir()
    outside = tmp_path / "outside.html"
    outside.write_text("keep")
    (folder / MARK).write_text(json.dumps({"pages": ["../outside.html", str(outside), 3, "index.html"]}))
    assert orthobench("publish", "site", "first.db").code == 0
    assert outside.read_text() == "keep"
    assert (folder / "index.html").exists()


def test_forged_marker_removes_no_foreign_page(databases, orthobench, tmp_path):
    folder = tmp_path / "site"
    orthobench("publish", "site", *databases)
    (folder / "notes.html").write_text("<!doctype html><title>Notes</title>")
    (folder / MARK).write_text(json.dumps({"pages": ["notes.html", "first.html"]}))
    assert orthobench("publish", "site", "first.db").code == 0
    assert (folder / "notes.html").read_text() == "<!doctype html><title>Notes</title>"


@pytest.mark.parametrize("name", ["first.html", "index.html"])
def test_foreign_page_is_not_replaced(databases, orthobench, tmp_path, name):
    folder = tmp_path / "site"
    assert orthobench("publish", "site", databases[1]).code == 0
    (folder / name).write_text("<!doctype html><title>Mine</title>")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    done = orthobench("publish", "site", "first.db")
    assert (done.code, done.err) == (
        2,
        f"error: site/{name} was not written by `orthobench publish`, so it is left as it is: rename it, "
        "or name another folder\n",
    )
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["first.db", "missing.db"], "missing.db"),
        (["first.db", "./first.db"], "./first.db is named twice: name each database once"),
        (["first.db", "--task", "copying"], "no run has task=copying"),
    ],
)
def test_invalid_database_writes_nothing(databases, orthobench, tmp_path, words, message):
    done = orthobench("publish", "site", *words)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert message in done.err
    assert not (tmp_path / "site").exists()


def test_names_that_differ_only_in_case_are_two_files():
    assert page_names(list(map(Location, ["r.db", "R.db", "Index.db"]))) == ["r", "R-2", "Index-results"]


def test_page_names_are_unique_and_safe():
    locations = ["a/results.db", "b/results.db", "index.db", "postgresql://u:secret@host/runs?x=1", "ü.db", "a b.c.db"]
    assert page_names(list(map(Location, locations))) == [
        "results",
        "results-2",
        "index-results",
        "runs",
        "results-3",
        "a-b.c",
    ]
