"""The matrix: what a cell counts as, which runs it leaves out, and what tells tasks and variants apart."""

from __future__ import annotations

import itertools
import re
import shlex
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import numpy as np
import pytest
from support.databases import RunDatabase, experiment
from support.records import columns_of

from orthobench.analysis.compare import contrasts
from orthobench.analysis.conditions import collect
from orthobench.analysis.judged import Choice
from orthobench.analysis.scores import percents, score_of
from orthobench.papers import find_paper
from orthobench.plugins import Catalog
from orthobench.reporting.account import editions, matrix, matrix_cell
from orthobench.reporting.account.account import Account
from orthobench.reporting.account.matrix import ResultMatrix, compute_matrix
from orthobench.reporting.account.names import short_labels
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.page.html import write_html
from orthobench.spec.index import built_in
from orthobench.spec.resolve import resolve
from orthobench.store import Run, Status, TraceRow, open_store
from workshop.website.matrix_picture import LETTER, LIGHT, _block_heads, picture

BASELINE = 0.2
"""The baseline that `RunDatabase` stores."""


@pytest.fixture
def database(tmp_path):
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        yield RunDatabase(store)


def trained_by(command: str, model: str) -> str:
    """The condition of the runs that the command of a column trains."""
    _, _, task, *options = shlex.split(command)
    settings = dict(pair.split("=", 1) for flag, pair in itertools.pairwise(options) if flag == "-s")
    return resolve(Catalog(), task, model, settings, seed=0).spec.condition


def matrix_of(database: RunDatabase) -> ResultMatrix:
    return compute_matrix(collect(database.store))


def test_cell_is_scored_from_the_baseline_to_a_perfect_value(database):
    for seed, way in enumerate([0.2, 0.5, 0.9]):
        database.run(experiment("rnn", "last", []), seed, test=[BASELINE * (1 - way)] * 4)
    database.run(experiment("lstm", "last", []), 0, test=[2 * BASELINE] * 4)
    matrix = matrix_of(database)
    cells = {row.model: row.cells[0] for row in matrix.rows}
    rnn, lstm = cells["rnn"], cells["lstm"]
    assert (rnn.score, rnn.low, rnn.high) == pytest.approx((0.5, 0.2, 0.9))
    assert (rnn.seeds, rnn.has_few_seeds, lstm.score, lstm.has_few_seeds) == (3, False, -1, True)


def test_best_of_a_column_and_what_overlaps_with_it_are_bold(database, tmp_path):
    """Three seeds each. A model with a diverged seed, and a constant at the baseline, are worse in every seed."""
    ends = {"gru": (0.0, 0.02, 0.04), "lstm": (0.03, 0.05, 0.06), "lem": (0.1, 0.11, None), "rnn": (0.2, 0.2, 0.2)}
    for model, values in ends.items():
        for seed, end in enumerate(values):
            status = Status.FINISHED if end is not None else Status.DIVERGED
            database.run(experiment(model, "last", []), seed, test=[end or 0.0] * 4, status=status)
    matrix = matrix_of(database)
    cells = {row.model: row.cells[0] for row in matrix.rows}
    assert {label: cell.standing for label, cell in cells.items()} == {
        "gru": None,
        "lstm": "overlaps",
        "lem": "worse in every seed",
        "rnn": "worse in every seed",
    }
    assert [label for label, cell in cells.items() if cell.is_best] == ["gru", "lstm"]
    assert re.findall(r'font-weight="bold">(\d+)<', picture(matrix)) == ["90", "75"]
    assert matrix.deciding == 5
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
    assert len(re.findall(r'<td [^>]*class="(?:far )?best"', page)) == 2
    assert "For a test of the fullest column: <code>--seeds 5</code>" in page


def test_number_of_fewer_than_three_seeds_is_never_bold(database):
    """The best number is of one seed, so the best one with three seeds is bold."""
    ends = {"lem": [0.0], "gru": [0.01, 0.02, 0.03], "lstm": [0.1, 0.1, 0.1]}
    for model, values in ends.items():
        for seed, end in enumerate(values):
            database.run(experiment(model, "last", []), seed, test=[end] * 4)
    cells = {row.model: row.cells[0] for row in matrix_of(database).rows}
    assert {model: cell.is_best for model, cell in cells.items()} == {"lem": False, "gru": True, "lstm": False}
    assert cells["lem"].standing_words == "it or the best has fewer than three seeds"


def test_column_without_a_model_above_the_baseline_has_no_best(database):
    for seed, model in itertools.product(range(3), ("rnn", "lstm")):
        database.run(experiment(model, "last", []), seed, test=[(2 + seed) * BASELINE] * 4)
    assert [row.cells[0].is_best for row in matrix_of(database).rows] == [False, False]


def test_tagged_run_counts_only_if_its_model_has_no_other_one_and_a_trial_never(database):
    """The tests of a trial choose among trials, so its number is too good, even if all others were removed."""
    for model in ("rnn", "lstm"):
        tagged = database.run(experiment(model, "last", []), 0, test=[0.0] * 4, learning_rate=0.5)
        database.store.tag([tagged.key], ["grid"])
        tried = database.run(experiment(model, "last", []), 0, test=[0.0] * 4, learning_rate=0.2)
        database.store.tag([tried.key], ["tried"])
    database.run(experiment("rnn", "last", []), 0, test=[BASELINE / 2] * 4)
    alone = database.run(experiment("gru", "last", []), 0, test=[0.0] * 4)
    database.store.tag([alone.key], ["tried"])
    cells = {row.model: row.cells[0] for row in matrix_of(database).rows}
    assert {model: cell.score for model, cell in cells.items()} == pytest.approx({"rnn": 0.5, "lstm": 1.0})
    assert cells["lstm"].variant.tags == ["grid"]


def store_published(database: RunDatabase, key: str, name: str, models: list[str], end: float, **where) -> list[Run]:
    """Store a seed of the experiments of a paper's table or figure with these models and settings, ending at `end`."""
    paper = find_paper(key)
    own = [each for each in paper.experiments_in(name) if each.model in models and each.has(where)]
    assert {each.model for each in own} == {*models}
    return [database.run(each, 0, test=[end] * 4) for each in own]


def test_published_cell_shows_the_settings_of_the_column_paper_whatever_the_test(database):
    """Two papers print settings of oRNN and the LSTM, and the LSTM has a third rate, which no source states."""
    where = {"sequence_length": 750}
    store_published(database, "helfrich2018", "figure 2", ["ornn", "lstm", "scornn"], 0.9 * BASELINE, **where)
    store_published(database, "helfrich2020", "figure 1", ["ornn", "lstm", "enrnn"], 0.1 * BASELINE, **where)
    store_published(database, "helfrich2018", "rate of the LSTM", ["lstm"], 0.0, **where)
    matrix = matrix_of(database)
    (column,) = matrix.columns
    assert (column.block, column.paper) == ("published", "helfrich2018")
    shown = {row.model: (row.cells[0].variant.experiment.paper, row.cells[0].score) for row in matrix.rows}
    assert shown == {
        "ornn": ("helfrich2018", pytest.approx(0.1)),
        "lstm": ("helfrich2018", pytest.approx(0.1)),
        "scornn": ("helfrich2018", pytest.approx(0.1)),
        "enrnn": ("helfrich2020", pytest.approx(0.9)),
    }
    assert {row.cells[0].judged for row in matrix.rows} == {"published"}


def test_published_settings_go_before_untagged_ones_even_with_a_tag(database):
    (tagged,) = store_published(database, "helfrich2018", "figure 2", ["scornn"], 0.5 * BASELINE, sequence_length=200)
    database.store.tag([tagged.key], ["tried"])
    other = find_paper("helfrich2018").experiments("adding", "scornn")[0]
    database.run(other, 0, test=[0.0] * 4, learning_rate=0.5)
    (row,) = matrix_of(database).rows
    assert (row.cells[0].judged, row.cells[0].score) == ("published", pytest.approx(0.5))


def test_experiment_with_settings_chosen_here_is_marked_and_says_why(database, tmp_path):
    store_published(database, "chang2019", "table 1", ["antisymmetric"], 0.9, permuted=False)
    other = find_paper("chang2019").experiments("mnist", "antisymmetric")[0]
    database.run(other, 0, test=[0.99] * 4, learning_rate=0.5)
    (row,) = matrix_of(database).rows
    cell = row.cells[0]
    assert (cell.judged, cell.variant.experiment.paper) == ("own", "chang2019")
    assert cell.how.startswith("settings of a paper's experiment, some of which this project chose.")
    assert "chosen on the test set" in cell.how
    assert "ᴼ¹<" in picture(matrix_of(database))
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
    assert '<sup aria-label="settings chosen here">O</sup>' in page


def test_earlier_edition_makes_way_for_a_later_one(database):
    """Its runs have a tag; the later ones have other lengths, and the same names in their settings."""
    first = database.run(experiment("rnn", "last", []), 0, test=[0.1] * 4, sequence_length=10)
    database.store.tag([first.key], ["first"])
    assert len(matrix_of(database).columns) == 1
    database.run(experiment("rnn", "last", []), 0, test=[0.1] * 4, sequence_length=10, marker_layout="halves")
    assert len(matrix_of(database).columns) == 2
    database.run(experiment("rnn", "last", []), 0, test=[0.1] * 4, sequence_length=12)
    lengths = [column.condition.settings["sequence_length"] for column in matrix_of(database).columns]
    assert sorted(lengths) == [10, 12]


def store_study(database: RunDatabase, models: list[str], seeds: int, *, tag: str = "", length: int = 10) -> str:
    """Store runs of several models on adding, halfway to perfect; return their condition."""
    runs = [
        database.run(experiment(model, "last", []), seed, test=[BASELINE * 0.5] * 4, sequence_length=length)
        for model in models
        for seed in range(seeds)
    ]
    if tag:
        database.store.tag([run.key for run in runs], [tag])
    return runs[0].condition


def test_later_edition_with_one_seed_replaces_a_comparison_with_three(database):
    """Models of the first edition alone have no row, and nor do its other tasks, of which there is no later edition."""
    store_study(database, ["rnn", "lstm", "lem"], 3, tag="first")
    halves = experiment("rnn", "last", []).model_copy(update={"task_settings": {"marker_layout": "halves"}})
    for seed, model in itertools.product(range(3), ("rnn", "lstm")):
        other = database.run(halves.model_copy(update={"model": model}), seed, test=[0.0] * 4)
        database.store.tag([other.key], ["first"])
    assert len(matrix_of(database).columns) == 2
    newer = store_study(database, ["rnn", "lstm", "gru"], 1, length=12)
    matrix = matrix_of(database)
    assert [column.condition.key for column in matrix.columns] == [newer]
    assert {row.model: row.cells[0].seeds for row in matrix.rows} == {"rnn": 1, "lstm": 1, "gru": 1}
    assert len(matrix.earlier) == 2
    assert "50¹" in picture(matrix)


def test_trial_of_one_model_does_not_replace_a_tagged_comparison(database):
    first = store_study(database, ["rnn", "lstm", "lem"], 3, tag="first")
    store_study(database, ["rnn"], 1, length=12)
    assert [column.condition.key for column in matrix_of(database).columns] == [first]


def test_column_has_no_run_of_an_earlier_edition(database):
    """A model whose only run on a task is of the first edition has no cell there."""
    store_study(database, ["rnn", "lstm"], 3, tag="first")
    newer = store_study(database, ["rnn", "lstm"], 1, length=12)
    assert store_study(database, ["lem"], 1, tag="first", length=12) == newer
    assert sorted(row.model for row in matrix_of(database).rows) == ["lstm", "rnn"]


def test_variant_with_three_seeds_goes_before_a_better_one_with_fewer(database):
    for seed in range(3):
        database.run(experiment("rnn", "last", []), seed, test=[BASELINE / 2] * 4)
    database.run(experiment("rnn", "last", []), 0, test=[0.0] * 4, learning_rate=0.5)
    for rate, end, tag in ((0.5, 0.0, "tried"), (0.2, BASELINE / 4, "grid")):
        run = database.run(experiment("lstm", "last", []), 0, test=[end] * 4, learning_rate=rate)
        database.store.tag([run.key], [tag])
    cells = {row.model: row.cells[0] for row in matrix_of(database).rows}
    assert {name: (cell.score, cell.seeds) for name, cell in cells.items()} == {
        "rnn": (pytest.approx(0.5), 3),
        "lstm": (pytest.approx(0.75), 1),
    }


def test_earlier_edition_is_named_on_the_page_of_its_task(database, tmp_path):
    store_study(database, ["rnn", "lstm"], 3, tag="first")
    store_study(database, ["rnn", "lstm"], 1, length=12)
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
    titles = re.findall(r"<h3>(adding.*?)</h3>", page)
    assert [("T = 10" in title, ">earlier edition</span>" in title) for title in titles] == [
        (False, False),
        (True, True),
    ]


def test_another_division_of_the_same_data_has_no_column_of_its_own(database, tmp_path):
    def train(model: str, final: float, seed: int = 0, **sizes: int) -> Run:
        images = experiment(model, "last", []).model_copy(update={"task": "mnist", "task_settings": sizes})
        return database.run(images, seed, test=[final] * 4)

    train("rnn", 0.5)
    train("lstm", 0.5)
    undivided, *_ = [train("antisymmetric", 0.9, seed, train_size=60_000, validation_size=0) for seed in range(3)]
    matrix = matrix_of(database)
    (column,) = matrix.columns
    assert column.label == "MNIST"
    assert trained_by(column.command, "gru") == column.condition.key
    assert {row.model: row.cells[0].condition.key for row in matrix.rows}["antisymmetric"] == undivided.condition
    cell = {row.model: row.cells[0] for row in matrix.rows}["antisymmetric"]
    assert (cell.is_best, cell.is_compared, cell.seeds) == (False, False, 3)  # although no number is higher
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
    tabs = re.findall(r'<section [^>]*data-label="([^"]*)"', page)
    assert sorted(tabs) == ["MNIST, 55,000 training images", "MNIST, 60,000 training images"]
    train("gru", 0.9, train_size=50_000)
    labels = [column.label for column in matrix_of(database).columns]
    assert labels == ["MNIST, 55,000 training images", "MNIST, 50,000 training images"]


def test_rows_with_few_results_are_folded_where_there_are_many(database, monkeypatch):
    monkeypatch.setattr("orthobench.reporting.account.matrix.MANY", 2)
    for length in range(10, 18):
        database.run(experiment("rnn", "last", []), 0, test=[0.1] * 4, sequence_length=length)
    for model, lengths in (("lstm", (10, 11)), ("torch.nn:GRU", (10,))):
        for length in lengths:
            database.run(experiment(model, "last", []), 0, test=[0.1] * 4, sequence_length=length)
    matrix = matrix_of(database)
    assert {row.model: (row.family, row.is_folded) for row in matrix.rows} == {
        "rnn": ("plain", False),
        "lstm": ("gated", False),
        "torch.nn:GRU": ("torch.nn", True),
    }
    assert "torch.nn:GRU" not in picture(matrix)
    monkeypatch.setattr("orthobench.reporting.account.matrix.MANY", 3)
    assert not any(row.is_folded for row in matrix_of(database).rows)


def test_probe_runs_of_less_than_an_epoch_have_no_column(database):
    database.run(experiment("rnn", "last", []), 0, test=[0.1], status=Status.DIVERGED)
    assert matrix_of(database).columns == []
    database.run(experiment("rnn", "last", []), 1, test=[0.1] * 4)
    assert len(matrix_of(database).columns) == 1


def test_setting_separates_rows_where_its_values_repeat_over_tasks(database):
    for length, gate in itertools.product((10, 11, 12), (False, True)):
        database.run(experiment("gru", "last", []), 0, test=[0.1] * 4, sequence_length=length, reset_after=gate)
    assert [row.label for row in matrix_of(database).rows] == ["GRU", "GRU, reset after"]


@pytest.mark.parametrize("searched", ["reset_after", "learning_rate"])
def test_value_that_a_search_chose_has_no_row_of_its_own(monkeypatch, database, searched):
    lengths, gates = (10, 11, 12), (False, True)
    for length, seed in itertools.product(lengths, range(3)):
        database.run(experiment("lstm", "last", []), seed, test=[0.1] * 4, sequence_length=length)
        for gate in gates:
            given = {"sequence_length": length, "reset_after": gate}
            database.run(experiment("gru", "last", []), seed, test=[0.1] * 4, **given)
    database.run(experiment("gru", "last", []), 0, test=[0.1] * 4, sequence_length=13, reset_after=True)

    def judged(condition, _):
        return "tuned" if condition.settings["sequence_length"] == 13 else "own"

    def chosen(condition, variant):
        return Choice(1, "", {searched: "yes"}) if judged(condition, variant) == "tuned" else None

    for module in (editions, matrix, matrix_cell):
        monkeypatch.setattr(module, "how_judged", judged)
    monkeypatch.setattr(matrix_cell, "choice_of", chosen)
    found = matrix_of(database)
    of = [column.condition.settings["sequence_length"] for column in found.columns]
    rows = {row.label: {length for length, cell in zip(of, row.cells, strict=True) if cell} for row in found.rows}
    tuned = {name: {13} if name == searched else set() for name in ("reset_after", "learning_rate")}
    assert rows == {
        "LSTM": {*lengths},
        "GRU": {*lengths} | tuned["reset_after"],
        "GRU, reset after": {*lengths} | tuned["learning_rate"],
    }


def test_learning_rate_separates_no_rows(database):
    """It says how a model was trained, and a row would lack what other rates did on the other tasks."""
    for length, rate in itertools.product((10, 11, 12), (1e-3, 1e-2)):
        database.run(experiment("gru", "last", []), 0, test=[0.1] * 4, sequence_length=length, learning_rate=rate)
    assert [row.label for row in matrix_of(database).rows] == ["GRU"]


def test_rows_of_a_setting_leave_out_its_default(database):
    """A run that is older than a setting has not recorded it."""
    for length, activation in itertools.product((10, 11, 12), ("tanh", "relu")):
        run = database.run(experiment("rnn", "last", []), 0, [0.1] * 4, sequence_length=length, activation=activation)
        if (length, activation) == (12, "tanh"):
            settings = {name: value for name, value in run.spec["model_settings"].items() if name != "activation"}
            database.store.update(run.id, columns_of(run.spec | {"model_settings": settings}))
    assert [row.label for row in matrix_of(database).rows] == ["RNN", "RNN, activation relu"]


def test_labels_name_the_fewest_settings(database):
    for length in (10, 12):
        database.run(experiment("rnn", "last", []), 0, test=[0.1] * 4, sequence_length=length)
    database.run(experiment("rnn", "last", []), 0, test=[0.1] * 4, sequence_length=12, test_size=30)
    labels = short_labels(collect(database.store))
    assert len(set(labels)) == 3
    assert labels[0] == "adding, T = 10"
    assert [label.rpartition(", ")[0] for label in labels[1:]] == ["adding, T = 12"] * 2


def test_command_of_a_cell_names_its_task(database):
    database.run(experiment("rnn", "last", []), 0, test=[0.1] * 4)
    (column,) = matrix_of(database).columns
    assert column.command.startswith("orthobench sweep adding --models MODEL --seeds 3 -s ")
    assert "-s sequence_length=10" in column.command
    assert "marker_layout" not in column.command  # has its default
    assert trained_by(column.command, "rnn") == column.condition.key


@pytest.mark.parametrize(("best", "bold"), [((6, 5, 4), set()), ((70, 60, 3), {"rnn"})])
def test_model_that_learns_nothing_is_not_bold(database, best, bold):
    """The seeds of the second model overlap with those of the best one, and have scores of 2 to 5."""
    for model, scores in (("rnn", best), ("lstm", (5, 3, 2))):
        for seed, score in enumerate(scores):
            database.run(experiment(model, "last", []), seed, test=[BASELINE * (1 - score / 100)] * 4)
    cells = {row.model: row.cells[0] for row in matrix_of(database).rows}
    assert cells["lstm"].standing == "overlaps"
    assert {model for model, cell in cells.items() if cell.is_best} == bold
    assert cells["lstm"].standing_words == "its median seed learns nothing"


def test_model_that_fits_and_loses_is_told_from_one_that_does_not_fit(database):
    lengths = np.array([5.0, 10.0, 20.0, 40.0])
    for model, accuracies in (("rnn", [1.0, 1.0, 0.3, 0.2]), ("lstm", [0.2, 0.2, 0.2, 0.2])):
        run = database.run(experiment(model, "last", []), 0, test=[BASELINE * 0.8] * 4)
        vectors = (
            ("by_length/lengths", lengths),
            ("by_length/trained", [5.0, 10.0]),
            ("by_length/accuracy", accuracies),
        )
        database.store.log(
            run.id, [], [TraceRow(name, 3, 40, list(map(float, values))) for name, values in vectors], {}
        )
    cells = {row.model: row.cells[0] for row in matrix_of(database).rows}
    assert (cells["rnn"].fits, cells["rnn"].loses) == (True, True)
    assert (cells["lstm"].fits, cells["lstm"].loses) == (False, False)


def test_model_that_holds_its_training_lengths_has_learnt_something(database):
    """A page said of EXPRNN on parity that it holds the training lengths, and that it learns nothing."""
    for seed in range(3):
        run = database.run(experiment("rnn", "last", []), seed, test=[BASELINE * 0.95] * 4)
        vectors = {"lengths": [5.0, 20.0], "trained": [5.0, 10.0], "accuracy": [1.0, 0.2]}
        rows = [TraceRow(f"by_length/{name}", 3, 40, values) for name, values in vectors.items()]
        database.store.log(run.id, [], rows, {})
    ((cell,),) = (row.cells for row in matrix_of(database).rows)
    assert (cell.loses, cell.standing_words) == (True, "its score at these lengths is below 10")


@pytest.mark.parametrize(
    ("low", "high", "words"), [(0.86, 0.921, "86–92"), (-0.1, -0.01, "-10 to -1"), (-1, 1, "-100 to 100")]
)
def test_range_with_a_sign_has_no_dash(low, high, words):
    assert percents(low, high) == words


def test_model_whose_median_seed_diverged_does_not_fit(database):
    """The one seed that ends holds every length."""
    for seed, status in enumerate((Status.FINISHED, Status.DIVERGED, Status.DIVERGED)):
        run = database.run(experiment("rnn", "last", []), seed, test=[BASELINE * 0.8] * 4, status=status)
        if status == Status.FINISHED:
            vectors = {"lengths": [5.0, 10.0], "trained": [5.0, 10.0], "accuracy": [1.0, 1.0]}
            rows = [TraceRow(f"by_length/{name}", 3, 40, values) for name, values in vectors.items()]
            database.store.log(run.id, [], rows, {})
    ((cell,),) = (row.cells for row in matrix_of(database).rows)
    assert (cell.fits, cell.loses) == (False, False)


@pytest.mark.parametrize("dark", [False, True])
def test_picture_shows_every_cell(database, dark):
    database.run(experiment("rnn", "last", []), 0, test=[BASELINE / 4] * 4)
    database.run(experiment("lstm", "last", []), 0, test=[0.0] * 4, sequence_length=12)
    words = [text.text for text in ElementTree.fromstring(picture(matrix_of(database), dark)).iter() if text.text]
    assert {"RNN", "LSTM", "75¹", "100¹", "adding, T = 10", "adding, T = 12"} <= set(words)
    assert words.count("·") == 2


def test_trials_of_a_task_stand_last_on_its_page_without_a_rank(database, tmp_path):
    database.run(experiment("rnn", "last", []), 0, test=[0.1], status=Status.DIVERGED, sequence_length=12)
    database.run(experiment("rnn", "last", []), 0, test=[0.1] * 4)
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
    titles = re.findall(r"<h3>(adding.*?)</h3>", page)
    assert [("T = 12" in title, ">trial</span>" in title) for title in titles] == [(False, False), (True, True)]
    assert page.count('<table class="board">') == 1


def test_runs_of_an_earlier_version_are_marked_wherever_they_are_shown(database, tmp_path):
    """Two models train, and the runs of one have version 0, where the program has 1."""
    for seed, model in itertools.product(range(3), ("rnn", "lstm")):
        run = database.run(experiment(model, "last", []), seed, test=[0.1] * 4)
        if model == "rnn":
            database.store.update(run.id, columns_of(run.spec | {"model_version": "0"}))
    matrix = matrix_of(database)
    assert {row.model: row.cells[0].version for row in matrix.rows} == {"rnn": "0", "lstm": ""}
    assert picture(matrix).count("50ⱽ") == 1
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
    assert page.count('<sup aria-label="an earlier version of the model">v0</sup>') == 1
    names = re.findall(r"<bdi>(RNN.*?|LSTM.*?)</bdi>", page)
    assert names.count("RNN, version 0, now 1") > 1  # in the ranking, and in the table of all values
    assert not [name for name in names if name.startswith("LSTM") and "version" in name]
    (contrast,) = contrasts(database.store, ["model=rnn", "model=lstm"], {}, lambda run: run.status)
    assert "'model=rnn' has runs of an earlier version of the model: rnn 0" in contrast.caution


@pytest.mark.parametrize(("missing", "named"), [(0, 0), (2, 2), (30, 0)])
def test_number_of_cells_says_which_are_left_out(missing, named):
    """A page counted 41 cells where README has 43, and did not say that two have no run."""
    cells = {each["name"]: each["title"] for each in built_in()["plugins"].values() if each["kind"] == "model"}
    measured = SimpleNamespace(contents=SimpleNamespace(models=["torch.nn:GRU", *list(cells)[missing:]]))
    assert Account.cells_without_runs.fget(measured) == list(cells.values())[:named]


def test_perfect_baseline_leaves_nothing_to_solve(database):
    """It has the score 1 only for a perfect value; the same holds for `score_of` with a metric that is maximised."""
    database.baseline = 0.0
    for model, end in (("rnn", 0.0), ("lstm", 0.1)):
        database.run(experiment(model, "last", []), 0, test=[end] * 4)
    assert {row.model: row.cells[0].score for row in matrix_of(database).rows} == {"rnn": 1.0, "lstm": 0.0}
    assert [score_of(value, 1.0, 1.0) for value in (1.0, 0.5, float("nan"))] == [1.0, 0.0, -1.0]


@pytest.mark.parametrize("baseline", [-1.05, 1.05])
def test_loss_that_may_be_negative_has_no_perfect_value(database, baseline):
    """A log-likelihood of -3 is better than one of 0, and no value is known to be the best."""
    database.baseline = baseline
    for model, end in (("rnn", -3.0), ("gru", -1.0), ("lstm", -0.2)):
        for seed in range(3):
            database.run(experiment(model, "last", []), seed, test=[end] * 4)
    (condition,) = collect(database.store)
    assert condition.perfect is None
    assert [(each.solved, each.solved_shares) for each in condition.variants] == [(None, [])] * 3
    assert matrix_of(database).rows == []


def test_linear_cell_says_that_it_cannot_solve_the_task(database):
    """Not on another task, whose answer is linear in the inputs, and not in a block."""
    copying = experiment("linoss", "last", []).model_copy(update={"task": "copying"})
    database.run(experiment("linoss", "last", []), 0, test=[0.19] * 4)
    database.run(experiment("linoss", "last", []), 0, test=[0.19] * 4, sequence_length=12, block="residual")
    database.run(copying, 0, test=[0.19] * 4)
    database.run(experiment("rnn", "last", []), 0, test=[0.19] * 4)
    matrix = matrix_of(database)
    marked = {
        (row.model, matrix.columns[number].label)
        for row in matrix.rows
        for number, cell in enumerate(row.cells)
        if cell and cell.linear
    }
    assert marked == {("linoss", "adding, T = 10")}
    assert "5ᴸ¹" in picture(matrix)


def test_quick_presets_are_folded(database, tmp_path):
    quick = database.run(experiment("rnn", "last", []), 0, test=[0.1] * 4, sequence_length=12)
    database.store.update(quick.id, {"preset": "quick"})
    alone = matrix_of(database)
    assert (alone.shown, alone.folded, alone.columns[0].block) == ([0], [], "quick")  # there is nothing else to show
    database.run(experiment("rnn", "last", []), 0, test=[0.05] * 4)
    matrix = matrix_of(database)
    assert [(column.block, column.label) for column in matrix.columns] == [
        ("own", "adding"),
        ("quick", "adding"),
    ]
    assert (matrix.shown, matrix.folded) == ([0], [1])
    assert "50¹" not in picture(matrix)
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
    (table,) = re.findall(r'<details id="quick-columns">.*?</details>', page, re.DOTALL)
    assert ">50<" in table
    (main,) = re.findall(r'<table class="solves" id="solves">.*?</table>', page, re.DOTALL)
    assert (">50<" in main, ">75<" in main) == (False, True)


def test_tasks_with_more_models_come_first_and_lengths_ascend(database):
    copying = experiment("rnn", "last", []).model_copy(update={"task": "copying"})
    database.run(copying, 0, test=[0.1] * 4, sequence_length=12)
    database.run(copying, 0, test=[0.1] * 4, sequence_length=10)
    for model, length in (("rnn", 12), ("rnn", 8), ("lstm", 12)):
        database.run(experiment(model, "last", []), 0, test=[0.1] * 4, sequence_length=length)
    columns = [column.condition for column in matrix_of(database).columns]
    assert [(each.task, each.settings["sequence_length"]) for each in columns] == [
        ("adding", 8),
        ("adding", 12),
        ("copying", 10),
        ("copying", 12),
    ]


def test_rows_are_by_family_and_name(database):
    for model in ("rnn", "lem", "lstm", "scornn", "gru", "exprnn"):
        database.run(experiment(model, "last", []), 0, test=[0.1] * 4)
    assert [(row.family, row.label) for row in matrix_of(database).rows] == [
        ("orthogonal", "EXPRNN"),
        ("orthogonal", "scoRNN"),
        ("gated", "GRU"),
        ("gated", "LSTM"),
        ("plain", "RNN"),
        ("ODE", "LEM"),
    ]


def test_page_names_the_command_that_tunes_models(database, tmp_path):
    database.run(experiment("rnn", "last", []), 0, test=[0.1] * 4)
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
    assert "<code>orthobench compare-tuned</code>" in page


def test_heading_of_a_narrow_block_does_not_reach_into_the_next():
    matrix = SimpleNamespace(blocks=[("tuned alike", 1), ("other settings", 8)])
    heads = "".join(_block_heads(matrix, LIGHT, 100))
    texts = [
        (int(x), int(y), words) for x, y, words in re.findall(r'<text x="(\d+)" y="(\d+)"[^>]*>(.*?)</text>', heads)
    ]
    assert [words for *_, words in texts] == ["alike", "tuned", "other settings"]
    (x, lower, _), (_, upper, _), (second, *_) = texts
    assert upper < lower - 10
    assert all(x + LETTER * len(words) <= second for _, _, words in texts[:2])


def test_model_with_all_tuned_columns_has_one_score_over_them(monkeypatch, database, tmp_path):
    """The mean of 0.5 and 0.3; a model that lacks a column has none."""
    scores = {("rnn", 100): (0.1, 0.5, 0.9), ("rnn", 200): (0.2, 0.3, 0.4), ("lstm", 100): (0.6, 0.7, 0.8)}
    for (model, length), values in scores.items():
        for seed, score in enumerate(values):
            run = experiment(model, "last", [])
            database.run(run, seed, test=[BASELINE * (1 - score)] * 4, sequence_length=str(length))
    for module in (editions, matrix, matrix_cell):
        monkeypatch.setattr(module, "how_judged", lambda condition, variant: "tuned")
    rows = {row.model: row.overall for row in matrix_of(database).rows}
    assert rows["lstm"] is None
    assert rows["rnn"].value == pytest.approx(0.4)
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
    means = re.findall(
        r'data-model="(\w+)".*?<td class="mean"(?: data-score="0.4000">(\d+)<small[^>]*>([^<]*))?', page, re.S
    )
    assert [(model, mean) for model, mean, _ in means] == [("lstm", ""), ("rnn", "40")]


def test_each_seed_is_scored_from_the_constant_of_its_own_tests(database):
    """The same error is better than guessing on one set of sequences, and worse on another."""
    for seed, zero in enumerate((0.1, 0.2, 0.4)):
        database.baseline = zero
        database.run(experiment("rnn", "last", []), seed, test=[0.2] * 4)
    (row,) = matrix_of(database).rows
    assert (row.cells[0].low, row.cells[0].score, row.cells[0].high) == pytest.approx((-1, 0, 0.5))
    assert str(row.cells[0].variant.against_baseline).startswith("1 of 3 seeds")
