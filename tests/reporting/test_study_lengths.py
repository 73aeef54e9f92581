"""The tables of a study over length: scores, and the longest length that a model holds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.length_variants import variant

import orthobench as ob
from orthobench.analysis.by_length import held_length
from orthobench.analysis.conditions import collect
from orthobench.papers import find_study
from orthobench.reporting.account.names import name_of
from orthobench.reporting.account.studies import find_result
from orthobench.reporting.tables.study_tables import length_tables
from orthobench.store import Status, open_store

LENGTHS = np.arange(40.0, 72.0)  # four bins of eight


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([1.0] * 32, (71.0, True)),
        ([1.0] * 16 + [0.5] * 16, (55.0, False)),
        ([0.89] * 8 + [1.0] * 24, (0.0, False)),
        ([1.0] * 7 + [0.2] + [1.0] * 24, (71.0, True)),  # one bad length in a bin whose mean is 0.9
        ([1.0] * 6 + [0.2] * 2 + [1.0] * 24, (0.0, False)),
    ],
)
def test_length_is_held_up_to_the_first_bin_below(scores, expected):
    assert held_length(LENGTHS, np.array(scores)) == expected


def test_length_without_a_sequence_is_left_out():
    scores = np.ones(32)
    scores[3] = np.nan
    assert held_length(LENGTHS, scores) == (71.0, True)


def test_bin_of_unknown_scores_is_neither_held_nor_lost():
    scores = np.ones(32)
    scores[8:16] = np.nan
    assert held_length(LENGTHS, scores) == (71.0, True)
    assert held_length(LENGTHS, np.full(32, np.nan)) == (0.0, True)


def tables(**variants: list[SimpleNamespace]):
    """The two tables of figures with these variants."""
    conditions: list[Any] = [
        (figure, SimpleNamespace(task="formal_language", variants=members)) for figure, members in variants.items()
    ]
    return length_tables(conditions)


def test_score_is_scaled_from_chance_to_one():
    """0.94 is 0.88 of the way from one half to 1, and 0.93 of it from one sixtieth."""
    near = [0.94] * 16
    lengths, results = tables(
        parity=[variant(near, chance=0.5)], A5=[variant(near, chance=1 / 60)], other=[variant(near, chance=None)]
    )
    assert lengths.rows == [("a model", "none", "16+", "16+")]
    assert results.rows == [("a model", "94.0", "94.0", "94.0")]


def test_median_seed_decides_and_the_best_models_come_first():
    good, poor = [1.0] * 24, [1.0] * 8 + [0.0] * 16
    middle = variant(good, poor, poor, label="middle")
    best = variant(good, good, poor, label="best")
    lengths, results = tables(words=[middle, best], parity=[variant(poor, label="Another"), best])
    assert lengths.headings == ("model", "words: held up to length", "parity: held up to length")
    assert results.headings == ("model", "words: answers right", "parity: answers right")
    assert lengths.rows == [("best", "24+", "24+"), ("Another", "–", "8"), ("middle", "8", "–")]
    first, alone, last = results.rows  # equal sums are in the order of the names
    assert first == ("best", *["100.0 (33.3 to 100.0)"] * 2)
    assert (alone, last) == (("Another", "–", "33.3"), ("middle", "33.3 (33.3 to 100.0)", "–"))


def test_diverged_seeds_are_named():
    """A model of which every seed diverged has no result, and one with other seeds has theirs."""
    lost, part = variant([1.0] * 8, label="lost"), variant([1.0] * 8, [1.0] * 8, label="part")
    for model in (lost, part):
        model.runs[-1].status = Status.DIVERGED
        model.finished, model.diverged = model.runs[:-1], 1
    lengths, results = tables(words=[lost, part])
    assert lengths.rows == [("part", "8+, 1 diverged"), ("lost", "diverged")]
    assert results.rows == [("part", "100.0, 1 diverged"), ("lost", "diverged")]
    assert "Diverged: training ended" in lengths.title
    assert "iverged" not in tables(words=[variant([1.0] * 8)])[0].title


def test_equal_models_are_sorted_by_name_ignoring_case():
    lengths, results = tables(words=[variant([1.0], [0.0], label=name) for name in ("zoo", "b", "A", "Cell")])
    assert [row[0] for row in lengths.rows] == ["A", "b", "Cell", "zoo"]
    assert {row[1] for row in results.rows} == {"50.0 (0.0 to 100.0)"}


def test_variant_without_a_finished_seed_has_dashes_and_comes_last():
    unfinished = variant([1.0] * 8, label="A")
    unfinished.finished = []
    lengths, results = tables(words=[unfinished, variant([0.0] * 8)])
    assert lengths.rows == [("a model", "none"), ("A", "–")]
    assert results.rows == [("a model", "0.0"), ("A", "–")]
    assert length_tables([]) == []


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """Two seeds of the study's small version."""
    folder = tmp_path_factory.mktemp("study")
    ob.study(
        "state-tracking",
        preset="quick",
        seeds=2,
        db=str(folder / "runs.db"),
        out=folder / "page.html",
        options=ob.SweepOptions(jobs=0, profile=False),
    )
    return folder


@pytest.mark.slow
def test_tables_match_the_runs(database):
    with open_store(str(database / "runs.db")) as store:
        result = find_result(store, find_study("state-tracking"))
        lengths, scores = length_tables(result.conditions)
        finals: dict[tuple[str, str], list[float]] = {}
        for run in store.runs():
            figure = "parity" if run.task == "formal_language" else "S3"
            finals.setdefault((name_of(run.model), figure), []).append(100 * run.final_value)
    assert scores.headings == ("model", "parity: answers right", "S3: whole words right")
    assert lengths.headings == ("model", "parity: states read up to length", "S3: states read up to length")
    for model, *cells in scores.rows:
        for figure, cell in zip(("parity", "S3"), cells, strict=True):
            values = finals[model, figure]
            assert cell == f"{np.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
    (of_lstm,) = [row for row in lengths.rows if row[0] == "LSTM"]
    assert of_lstm[lengths.headings.index("S3: states read up to length")] == "24+"


def test_variants_of_a_model_have_their_own_rows(tmp_path):
    """The range of the eigenvalues decides what a linear cell can track, so both ranges are in the study."""
    database = str(tmp_path / "runs.db")
    tiny = {"hidden_size": 8, "train_size": 32, "test_size": 8, "longest": 6, "batch_size": 16, "epochs": 1}
    for negative in (False, True):
        ob.run("group_word", "deltanet", db=database, settings=tiny | {"negative_eigenvalues": negative})
    with open_store(database) as store:
        (condition,) = collect(store)
    _, scores = length_tables([("S3", condition)])
    assert {row[0] for row in scores.rows} == {f"deltanet negative_eigenvalues={value}" for value in ("false", "true")}
