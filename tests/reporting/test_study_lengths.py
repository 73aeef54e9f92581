"""The tables of a study over length: scores, and the longest length that a model holds."""

from __future__ import annotations

import numpy as np
import pytest

import orthobench as ob
from orthobench.analysis.conditions import collect
from orthobench.papers import find_study
from orthobench.reporting.studies import find_result, with_printed_names
from orthobench.reporting.study_lengths import held_length, length_tables
from orthobench.store import open_store

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
def test_a_length_is_held_up_to_the_first_bin_below(scores, expected):
    assert held_length(LENGTHS, np.array(scores)) == expected


def test_a_length_that_no_sequence_has_is_left_out():
    scores = np.ones(32)
    scores[3] = np.nan
    assert held_length(LENGTHS, scores) == (71.0, True)


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
        options=ob.ExecutionOptions(jobs=0, profile=False),
    )
    return folder


@pytest.mark.slow
def test_the_tables_are_those_of_the_runs(database):
    with open_store(str(database / "runs.db")) as store:
        result = find_result(store, find_study("state-tracking"))
        lengths, scores = length_tables(
            [(figure, with_printed_names(condition, result.study.names)) for figure, condition in result.conditions]
        )
        finals: dict[tuple[str, str], list[float]] = {}
        for run in store.runs():
            figure = "parity" if run.task == "formal_language" else "S3"
            finals.setdefault((run.model, figure), []).append(100 * run.final_value)
    assert scores.headings == lengths.headings == ("model", "parity", "S3")
    for model, *cells in scores.rows:
        name = {"LSTM": "lstm"}.get(model, model)
        for figure, cell in zip(("parity", "S3"), cells, strict=True):
            values = finals[name, figure]
            assert cell == f"{np.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
    (of_lstm,) = [row for row in lengths.rows if row[0] == "LSTM"]
    assert of_lstm[lengths.headings.index("S3")] == "24+"


def test_variants_of_a_model_have_rows_of_their_own(tmp_path):
    """The range of the eigenvalues decides what a linear cell can track, so both ranges are in the study."""
    database = str(tmp_path / "runs.db")
    tiny = {"hidden_size": 8, "train_size": 32, "test_size": 8, "longest": 6, "batch_size": 16, "epochs": 1}
    for negative in (False, True):
        ob.run("group_word", "deltanet", db=database, settings=tiny | {"negative_eigenvalues": negative})
    with open_store(database) as store:
        (condition,) = collect(store)
    _, scores = length_tables([("S3", condition)])
    assert {row[0] for row in scores.rows} == {f"deltanet negative_eigenvalues={value}" for value in ("false", "true")}
