"""An ordered list of papers' runs in a TOML file."""

from __future__ import annotations

from pathlib import Path

import pytest

from orthobench.errors import UsageError
from orthobench.papers import find_paper
from orthobench.planning.paper import resolve_experiments, restrict
from orthobench.planning.paper_file import runs_in
from orthobench.plugins import Catalog

CATALOG = Catalog()
SHIPPED = Path(__file__).parents[2] / "checks/reproduction.toml"


@pytest.fixture
def write(tmp_path):
    def make(text: str) -> Path:
        file = tmp_path / "runs.toml"
        file.write_text(text)
        return file

    return make


def test_runs_have_the_order_of_the_file_and_come_once(write):
    file = write(
        """
        [[runs]]
        paper = "helfrich2018"
        figure = "2"
        models = ["lstm"]
        where = { sequence_length = 400 }
        seeds = 2

        [[runs]]
        paper = "helfrich2018"
        figure = "2"
        models = ["lstm", "scornn"]
        where = { sequence_length = 400 }
        """
    )
    runs = [(run.spec.model, run.spec.seed) for run, _ in runs_in(file, CATALOG)]
    assert runs == [("lstm", 0), ("lstm", 1), ("scornn", 0)]


def test_the_runs_are_the_papers(write):
    file = write('[[runs]]\npaper = "helfrich2020"\ntable = "3"\n')
    paper = resolve_experiments(CATALOG, restrict(find_paper("helfrich2020"), table="3"), [0])
    assert [run.spec.key for run, _ in runs_in(file, CATALOG)] == [run.spec.key for run, _ in paper]


def test_the_shipped_list_is_valid_and_begins_with_copying():
    runs = [run.spec for run, _ in runs_in(SHIPPED, CATALOG)]
    assert len({spec.key for spec in runs}) == len(runs) > 50
    assert (runs[0].task, runs[0].model, runs[0].task_settings["sequence_length"]) == ("copying", "scornn", 2000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "should be a list of [[runs]]"),
        ("runs = 3", "should be a list of [[runs]]"),
        ("x = 1\n[[runs]]\npaper = 'lem'", "should be a list of [[runs]]"),
        ("[[runs]]\nfigure = '1'", "entry 1: paper should be the key of a paper"),
        ("[[runs]]\npaper = 'helfrich2018'\nfigur = '1'", "did you mean figure?"),
        ("[[runs]]\npaper = 'helfrich2018'\nfigure = 1", "entry 1: figure should be the number of a figure"),
        ("[[runs]]\npaper = 'helfrich2018'\nfigure = '99'", "entry 1: helfrich2018 has no figure 99"),
        ("[[runs]]\npaper = 'helfrich2018'\nseeds = 0", "entry 1: seeds should be a number of seeds from 1"),
        ("[[runs]]\npaper = 'helfrich2018'\nmodels = []", "entry 1: models should be a list of models"),
        ("[[runs]]\npaper = 'helfrich2018'\nwhere = { n = [1] }", "entry 1: where should be settings"),
        ("[[runs]]\npaper = 'helfrich2018'\nfigure = '1'\ntable = '1'", "a table or a figure, one at a time"),
        ("[[runs]\n", "is not TOML"),
    ],
)
def test_a_mistake_gets_one_line_that_names_the_entry(write, text, message):
    with pytest.raises(UsageError) as error:
        runs_in(write(text), CATALOG)
    assert message in str(error.value)
    assert "runs.toml" in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"none\.toml cannot be read: No such file"):
        runs_in(tmp_path / "none.toml", CATALOG)
