"""`orthobench cite`: each entry is valid BibTeX, parsed by pybtex, and agrees with what the plugins say."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from importlib.resources import files

import pytest
from pybtex.database import BibliographyData, Person, parse_string

from orthobench.data.registry import datasets
from orthobench.papers import papers
from orthobench.papers.citations import keys_of, references
from orthobench.plugins import Catalog

REQUIRED = {
    "article": {"title", "journal", "volume", "pages", "year"},
    "inproceedings": {"title", "booktitle", "year"},
    "misc": {"title", "eprint", "archiveprefix", "year"},
    "techreport": {"title", "institution", "year"},
}
"""The fields of each kind of entry, in addition to its authors."""
CATALOG = Catalog()
CITED = {
    (kind, name): keys_of(CATALOG.load(kind, name).cites) for kind in ("model", "task") for name in CATALOG.names(kind)
}


def parsed(text: str) -> BibliographyData:
    return parse_string(text, "bibtex")


def text_of_references() -> str:
    return files("orthobench.papers").joinpath("references.bib").read_text("utf-8")


def plain(text: str) -> str:
    """Return a name or a title without accents, of LaTeX or Unicode, and without braces, in small letters."""
    text = re.sub(r"\\[\"'v^`~c](?![a-z]{2})|[{}\\]", "", text).lower()
    return "".join(letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))


def surname(author: Person) -> str:
    """Return an author's surname with its particles, as "van der westhuizen"."""
    return plain(" ".join([*author.prelast_names, *author.last_names]))


def test_entries_parse_and_keys_are_unique():
    text = text_of_references()
    keys = re.findall(r"^@\w+\{([^,]+),", text, re.M)
    assert max(Counter(keys).values()) == 1
    entries = parsed(text).entries
    assert list(entries) == keys == sorted(keys) == list(references())
    for key, entry in entries.items():
        assert entry.persons["author"], key
        assert set(entry.fields) >= REQUIRED[entry.type], key
        first = entry.persons["author"][0]
        word = re.split("[ -]", plain(first.last_names[0]))[0]
        assert key.startswith((word, surname(first).replace(" ", ""))), key
        assert entry.fields["year"] in key, key


@pytest.mark.parametrize(("kind", "name"), CITED)
def test_every_shipped_model_and_task_has_an_entry(kind, name):
    assert CITED[kind, name]
    assert set(CITED[kind, name]) <= set(references())


def test_every_entry_is_used():
    used = {key for keys in CITED.values() for key in keys}
    used |= {key for data in datasets().values() for key in keys_of(data.cites)}
    assert set(references()) - used == {"helfrich2017"}  # an earlier version, whose runs `reproduce` has


@pytest.mark.parametrize("name", Catalog().names("model"))
def test_entry_of_a_model_agrees_with_its_class(name):
    """The class names the authors, the title and the year in short."""
    entry = parsed(references()[CITED["model", name][0]]).entries.popitem()[1]
    paper = plain(Catalog().load("model", name).paper)
    assert paper.startswith(surname(entry.persons["author"][0]))
    assert paper.rstrip(".").endswith(entry.fields["year"])


@pytest.mark.parametrize(
    ("author", "written"),
    [
        ("van der Westhuizen, Jos", "van der Westhuizen, Lasenby"),
        ("Jos van der Westhuizen", "van der Westhuizen, Lasenby"),
        (r"Lezcano-Casado, Mario", "Lezcano-Casado"),
        (r"H{\"a}rk{\"o}nen, A.", "Härkönen"),
        (r"Mili\v{c}ev{\'c}, A.", "Miličevć"),
        ("Sønderby, S.", "Sønderby"),
    ],
)
def test_surname_of_an_entry_begins_the_text_of_a_class(author, written):
    assert plain(written).startswith(surname(Person(author)))


def test_entries_agree_with_the_reproduced_papers():
    for paper in papers():
        entry = parsed(references()[paper.key]).entries[paper.key]
        assert int(entry.fields["year"]) == paper.year
        assert len(entry.persons["author"]) == paper.authors.count(",") + 1
        assert plain(entry.fields["title"])[:40] == paper.title.lower()[:40]


def test_cite_prints_each_entry_once(orthobench):
    done = orthobench("cite", "lstm", "adding", "task/copying")
    assert done.code == 0
    assert list(parsed(done.out).entries) == ["hochreiter1997", "arjovsky2016"]


def test_cited_run_includes_model_task_and_program(orthobench, tiny_options):
    assert orthobench("run", "adding", "scornn", *tiny_options).code == 0
    key = orthobench("ls", "--json").out.split('"run": "')[1][:12]
    entries = parsed(orthobench("cite", key).out).entries
    assert list(entries) == ["helfrich2018", "hochreiter1997", "orthobench"]
    assert "Version 0.1.0" in entries["orthobench"].fields["note"]


def test_cited_run_on_another_data_set_includes_its_paper(orthobench, small_data):
    settings = ("dataset=fashion", "train_size=20", "validation_size=10", "batch_size=10", "epochs=1", "hidden_size=4")
    assert orthobench("run", "mnist", "rnn", *(word for text in settings for word in ("-s", text))).code == 0
    key = orthobench("ls", "--json").out.split('"run": "')[1][:12]
    assert "xiao2017" in parsed(orthobench("cite", key).out).entries


def test_external_plugin_is_a_comment_with_its_paper(orthobench, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from orthobench.models.rnn import RNN\nclass Mine(RNN):\n    paper = 'Mine. A Paper. 2030'\n"
    )
    assert orthobench("cite", "mine", "--plugin", "mine.py").out == "% model mine: Mine. A Paper. 2030\n"


CELLS = """
import torch


class MyCell(torch.nn.RNN):
    pass


class Published(torch.nn.RNN):
    paper = "Mine. A Paper. 2030"
"""


def test_layer_is_a_comment_with_the_paper_of_its_class(orthobench, tmp_path):
    (tmp_path / "cell.py").write_text(CELLS)
    assert orthobench("cite", "./cell.py:MyCell").out == "% model cell.py:MyCell: its class names no paper\n"
    assert orthobench("cite", "./cell.py:Published").out == "% model cell.py:Published: Mine. A Paper. 2030\n"
    explained = orthobench("plugins", "./cell.py:Published").out.splitlines()
    assert explained[1:3] == ["Mine. A Paper. 2030", "cell.py"]


def test_run_of_a_missing_plugin_names_the_option(orthobench, tmp_path, tiny_options):
    (tmp_path / "mine.py").write_text("from orthobench.models.rnn import RNN\nclass Mine(RNN):\n    pass\n")
    assert orthobench("run", "adding", "mine", "--plugin", "mine.py", *tiny_options).code == 0
    key = orthobench("ls", "--json").out.split('"run": "')[1][:12]
    assert orthobench("cite", key).out.startswith("% model mine: its plugin is not here, name its file with --plugin\n")


def test_plugin_without_its_entry_is_one_line_with_the_nearest_key(orthobench, monkeypatch):
    monkeypatch.setattr("orthobench.api.citing.references", lambda: {"hochreiter1998": ""})
    done = orthobench("cite", "lstm")
    line = "unknown key in orthobench/papers/references.bib 'hochreiter1997': did you mean hochreiter1998?"
    assert (done.code, done.err.strip()) == (2, f"error: {line}")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("scorn", "unknown model, task or run 'scorn': did you mean scornn"),
        ("model/adding", "unknown model 'adding'"),
        ("abc", "there is no database results.db"),
    ],
)
def test_unknown_names_are_one_line(orthobench, name, line):
    done = orthobench("cite", name)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert line in done.err
