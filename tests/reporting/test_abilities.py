"""The first screen: what each family can learn, from planted scores, and whether one cell is better than another."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import combinations, product

import pytest
from support.databases import RunDatabase, experiment
from support.records import columns_of

from orthobench.analysis.conditions import collect
from orthobench.analysis.judged import how_judged
from orthobench.reporting.account import abilities as abilities_module
from orthobench.reporting.account import editions, matrix, matrix_cell
from orthobench.reporting.account.abilities import ANSWERS, Abilities, compute_abilities, questions
from orthobench.reporting.account.matrix import compute_matrix
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.page.html import write_html
from orthobench.reporting.page.sparks import strip
from orthobench.reporting.tables.reproduction import reproduction
from orthobench.reporting.tables.study_tables import length_tables
from orthobench.store import open_store
from workshop.website.abilities_picture import picture
from workshop.website.matrix_picture import picture as matrix_picture

BASELINE = 0.2


@pytest.fixture
def database(tmp_path, monkeypatch):
    """A database whose matrix is long enough for a first screen, however few its rows are."""
    monkeypatch.setattr(abilities_module, "FEW_ROWS", 0)
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        yield RunDatabase(store)


def plant(database: RunDatabase, model: str, *scores: int, length: int = 10, task: str = "adding") -> None:
    """Store a seed for each of these scores, from 0 to 100; the length 0 stands for that of the task."""
    own = experiment(model, "last", []).model_copy(update={"task": task})
    for seed, score in enumerate(scores):
        test = [BASELINE * (1 - score / 100)] * 4
        database.run(own, seed, test=test, **({"sequence_length": length} if length else {}))


def abilities_of(database: RunDatabase) -> Abilities:
    found = compute_abilities(compute_matrix(collect(database.store)))
    assert found is not None
    return found


def test_model_with_two_values_of_a_setting_counts_once(database):
    """Its rows are two, and the better one speaks for the cell."""
    for model, length in product(("rnn", "irnn", "lstm"), (10, 11, 12)):
        plant(database, model, 10, 20, 30, length=length)
    for length, seed, gate in product((10, 11, 12), range(3), (False, True)):
        end = BASELINE * (0.01 if gate else 0.5)
        given = {"sequence_length": length, "reset_after": gate}
        database.run(experiment("gru", "last", []), seed, test=[end] * 4, **given)
    assert [row.label for row in compute_matrix(collect(database.store)).rows if row.model == "gru"] == [
        "GRU",
        "GRU, reset after",
    ]
    gated = next(family for family in abilities_of(database).families if family.title == "Gated")
    (cell,) = gated.cells
    assert [member.label for member in cell.members if member.row.model == "gru"] == ["GRU, reset after"]
    assert cell.reach == 1


def test_cell_counts_who_reaches_90_and_names_the_best_with_three_seeds(database):
    """The model with a single seed has the highest score, and neither counts nor is it the best."""
    plant(database, "scornn", 94, 96, 97)
    plant(database, "exprnn", 80, 96, 98)
    plant(database, "enrnn", 30, 40, 95)
    plant(database, "dtriv", 100)
    plant(database, "lstm", 10, 10, 10)
    orthogonal, gated = abilities_of(database).families
    (cell,) = orthogonal.cells
    assert (orthogonal.title, cell.reach, cell.counted, cell.percent, cell.as_good) == (
        "Orthogonal, unitary", 2, 3, 96, 1
    )  # fmt: skip
    assert {each.label: each.cell.has_few_seeds for each in cell.members} == {
        "scoRNN": False,
        "EXPRNN": False,
        "ENRNN": False,
        "DTRIV": True,
    }
    drawn = strip(cell)
    assert (drawn.count('class="rest'), drawn.count("rest hollow"), drawn.count('class="best"')) == (3, 1, 1)
    low, high = map(float, re.search(r'class="range" d="M([\d.]+) \d+H([\d.]+)"', drawn).groups())
    best = cell.best.cell
    assert (high - low) / (112 - 10) == pytest.approx(best.high - best.low, abs=0.002)
    assert (gated.cells[0].reach, gated.cells[0].best.label) == (0, "LSTM")


def test_family_that_learns_nothing_has_no_best_cell(database, tmp_path):
    plant(database, "scornn", 5, 6, 7)
    plant(database, "lstm", 12, 13, 14)
    found = abilities_of(database)
    assert [family.cells[0].name for family in found.families] == ["", "LSTM"]
    assert "| Orthogonal, unitary: adding, T = 10 | other settings | 0 | 1 | none | 6 | 5 | 7 | 3 |" in reproduction(
        collect(database.store), [], []
    )
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
    assert "6 <small>at best</small>" in page
    words = [
        text.text for text in ElementTree.fromstring(picture(found, False)).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert ("scoRNN" in words, "LSTM" in words) == (False, True)


def test_runs_of_an_earlier_version_are_marked_on_the_first_screen(database, tmp_path):
    """In the strip, in the question, in README's picture and in the account: the GRU's runs have version 0."""
    plant(database, "gru", 95, 96, 97)
    plant(database, "lstm", 10, 20, 30)
    for run in database.store.runs():
        if run.model == "gru":
            database.store.update(run.id, columns_of(run.spec | {"model_version": "0"}))
    found = abilities_of(database)
    (cell,) = found.families[0].cells
    assert "<title>GRU, version 0 96, LSTM 20</title>" in strip(cell)
    asked = questions(found)["members"]
    assert {each["label"]: each["cells"][0][4] for each in asked} == {"GRU": "0", "LSTM": ""}
    words = [
        text.text for text in ElementTree.fromstring(picture(found, False)).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert "GRU, version 0" in words
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
    assert "GRU, version 0</span>" in page
    assert "| GRU, version 0 | 96 |" in reproduction(collect(database.store), [], [])


def test_tuned_results_lead_and_are_in_no_cell_with_others(database, monkeypatch):
    """Adding is tuned with T = 12 alone. Copying is not, and there the length with the most seeds is shown."""
    tuned, judge = {}, how_judged
    for model in ("scornn", "lstm"):
        plant(database, model, 95, 95, 95, length=10)
        plant(database, model, 20, 20, 20, length=12)
        plant(database, model, 50, 50, 50, length=10, task="copying")
        plant(database, model, 60, 60, 60, 60, length=12, task="copying")
    tuned["adding", 12] = "tuned"

    def judged(condition, variant):
        return tuned.get((condition.task, condition.settings["sequence_length"])) or judge(condition, variant)

    for module in (editions, matrix, matrix_cell):
        monkeypatch.setattr(module, "how_judged", judged)
    found = abilities_of(database)
    assert [(column.label, column.note) for column in found.columns] == [
        ("adding, T = 12", "tuned alike"),
        ("copying, T = 12", "not tuned"),
    ]
    assert [[cell.percent for cell in family.cells] for family in found.families] == [[20, 60]] * 2


@pytest.mark.parametrize(
    ("task", "measure"), [("group_word", "whole words right"), ("formal_language", "answers right"), ("adding", "")]
)
def test_headings_of_tasks_that_track_a_state_name_what_they_count(database, task, measure):
    """A study reads the states along the way, so a number without a word could be of either."""
    plant(database, "scornn", 95, 95, 95, task=task, length=0)
    found = abilities_of(database)
    (column,) = found.columns
    assert column.note.split(" · ")[0] == (measure or "not tuned")
    assert column.column.label.endswith(measure)
    assert (measure in picture(found, False), measure in matrix_picture(compute_matrix(collect(database.store)))) == (
        True,
        True,
    )
    lengths = length_tables([("S3", column.column.condition)])[1]
    assert lengths.headings == ("model", ": ".join(filter(None, ("S3", measure))))


def test_column_with_few_models_waits_for_more(database):
    for model in ("scornn", "lstm", "gru"):
        plant(database, model, 95, 95, 95)
    plant(database, "scornn", 95, 95, 95, task="copying")
    assert [column.label for column in abilities_of(database).columns] == ["adding, T = 10"]


def test_short_matrix_is_its_own_summary(database, monkeypatch, tmp_path):
    plant(database, "scornn", 95, 95, 95)
    plant(database, "lstm", 95, 95, 95)
    monkeypatch.setattr(abilities_module, "FEW_ROWS", 2)
    assert compute_abilities(compute_matrix(collect(database.store))) is None
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
    assert ('id="matrix"' in page, 'class="abilities"' in page, page.count('id="solves"')) == (False, False, 1)


def test_long_matrix_is_one_click_away(database, tmp_path):
    plant(database, "scornn", 95, 95, 95)
    plant(database, "lstm", 95, 95, 95)
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
    overview, matrix = re.findall(r'<div class="view" id="(?:overview|matrix)">(.*?)(?=<div class="view")', page, re.S)
    assert ('class="abilities"' in overview, 'href="#matrix"' in overview, 'id="solves"' in overview) == (
        True, True, False
    )  # fmt: skip
    assert matrix.count('id="solves"') == 1


def test_time_of_a_step_is_of_one_kind_of_processor(database):
    """Three quarters of the time are training. The fastest seed of a model counts, and a median is over models."""
    for model, cpu in (("scornn", "A"), ("exprnn", "A"), ("lstm", "B")):
        for seed in range(3):
            database.run(experiment(model, "last", []), seed, test=[0.1] * 4, cpu=cpu)
    for run in database.store.runs():
        seconds = {"scornn": 8.0, "exprnn": 4.0, "lstm": 2.0}[run.model] + run.seed
        database.store.update(run.id, {"seconds": {"train": 3.0, "test": 1.0, "cpu": seconds}})
    found = abilities_of(database)
    step = 1000 * 0.75 / database.store.runs()[0].iterations
    orthogonal, gated = found.families
    assert found.processor.startswith("A")
    assert (orthogonal.cost.fastest, orthogonal.cost.count) == ("EXPRNN", 2)
    assert (orthogonal.cost.lowest, orthogonal.cost.median) == pytest.approx((4 * step, 6 * step))
    assert gated.cost is None


def test_question_has_an_answer_for_each_pair(database):
    scores = {
        "scornn": (99, 98, 97, 96),
        "exprnn": (99, 98, 97, 97),
        "gru": (50, 51, 52),
        "lstm": (60, 61, 62),
        "rnn": (51, 61, 70),
        "lem": (1, 2, 3),
        "cornn": (5, 6, 7),
        "irnn": (40,),
    }
    for model, own in scores.items():
        plant(database, model, *own)
    asked = questions(abilities_of(database))
    models = [member["model"] for member in asked["members"]]
    pairs = dict(zip(combinations(models, 2), asked["pairs"], strict=True))

    def answer(first: str, second: str):
        if (first, second) in pairs:
            ((number, p),) = pairs[first, second]
        else:
            ((number, p),) = pairs[second, first]
            number = asked["swapped"][number]
        return ANSWERS[number], p

    assert answer("scornn", "exprnn") == ("both solve it", None)
    assert answer("scornn", "gru") == ("yes, in every seed", pytest.approx(2 / 35, abs=1e-4))
    assert answer("gru", "lstm") == ("no, in every seed", pytest.approx(2 / 20, abs=1e-4))
    assert answer("lstm", "gru") == ("yes, in every seed", pytest.approx(2 / 20, abs=1e-4))
    assert answer("rnn", "lstm") == ("seeds overlap", None)
    assert answer("lem", "cornn") == ("both learn nothing", None)
    assert answer("irnn", "gru") == ("too few seeds", None)
    assert (asked["seeds"], asked["command"], asked["columns"][0]["word"]) == (
        4,
        "orthobench compare-tuned -t",
        "adding",
    )
    found = abilities_of(database)
    variant = replace(found, members=[replace(row, is_variant=True) for row in found.members])
    assert {member["model"] for member in questions(variant)["members"]} == {None}
    for model, score in (("lstm", 63), ("gru", 53)):
        database.run(experiment(model, "last", []), 3, test=[BASELINE * (1 - score / 100)] * 4)
    asked = questions(abilities_of(database))
    pairs = dict(zip(combinations(models, 2), asked["pairs"], strict=True))
    assert answer("lstm", "gru") == ("yes, tested apart", pytest.approx(2 / 70, abs=1e-4))


def test_documents_show_the_numbers_of_the_page(database):
    plant(database, "scornn", 94, 96, 97)
    plant(database, "lstm", 10, 20, 30)
    conditions = collect(database.store)
    assert "| Gated: adding, T = 10 | other settings | 0 | 1 | LSTM | 20 | 10 | 30 | 3 |" in reproduction(
        conditions, [], []
    )
    for is_dark in (False, True):
        root = ElementTree.fromstring(picture(abilities_of(database), is_dark))
        words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
        assert {"1 of 1", "0 of 1", "96 (94–97)", "20 (10–30)", "scoRNN", "LSTM"}.issubset(words)
