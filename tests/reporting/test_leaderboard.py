"""The leaderboard of a condition: the order of models, their ends over seeds, and which one leads."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.databases import LUCKY, RunDatabase, experiment

from orthobench.analysis.conditions import collect
from orthobench.analysis.scores import SOLVED
from orthobench.reporting.account.leaderboards import Lead, headline, leaderboard
from orthobench.reporting.account.matrix import compute_matrix
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.figures.figures import SOLVED_NOTES, solved_share
from orthobench.reporting.figures.styles import Styles
from orthobench.reporting.page.html import write_html
from orthobench.reporting.tables.condition_tables import condition_table
from orthobench.store import Status, open_store

ROOT = Path(__file__).resolve().parents[2]


def test_leaderboard_is_ordered_and_marks_efficient_models(database):
    small, large = (experiment(model, "last", []) for model in ("rnn", "lstm"))
    database.run(small, 0, test=[1.0, 0.3])
    database.run(large, 0, test=[1.0, 0.1])
    database.run(large, 1, test=[1.0, 0.5], epochs=2)  # beaten by the smaller one
    (condition,) = collect(database.store)
    assert [(row.variant.run.model, row.efficient) for row in leaderboard(condition)] == [
        ("lstm", True),
        ("rnn", True),
        ("lstm", False),
    ]


def board(database, **curves):
    """Return the leaderboard of models with a list of curves each, and its headline."""
    for model, runs in curves.items():
        for seed, test in enumerate(runs):
            status = Status.DIVERGED if test is None else Status.FINISHED
            database.run(experiment(model, "last", []), seed, test=test or [1.0, 1.0], status=status)
    (condition,) = collect(database.store)
    rows = leaderboard(condition)
    return [(row.rank, row.variant.label) for row in rows], headline(condition, rows), rows


def test_leaderboard_uses_ends_and_not_lucky_tests(database):
    ranks, words, _ = board(database, rnn=[LUCKY], lstm=[[0.1] * 30])
    assert ranks == [(1, "lstm"), (2, "rnn")]
    assert words == f"lstm {Lead.AHEAD}; MSE 0.1; 1 with few seeds; seeds of each for a test: 4"


def test_model_that_does_not_beat_the_baseline_does_not_lead(database):
    """The baseline is 0.2; the last test of the first is below it."""
    ranks, words, _ = board(database, rnn=[LUCKY], lstm=[[0.4] * 30])
    assert ranks == [(1, "rnn"), (2, "lstm")]
    assert words == f"rnn {Lead.BASELINE}; MSE 0.3"


def test_equal_models_tie(database):
    equal = [[0.5, 0.1]]
    ranks, words, _ = board(database, rnn=equal, lstm=equal, irnn=equal, gru=[[0.5, 0.15]])
    assert ranks == [(1, "rnn"), (1, "lstm"), (1, "irnn"), (4, "gru")]
    assert words.startswith("rnn, lstm and irnn tied; MSE 0.1; ")


def test_model_leads_if_the_seeds_prove_it(database):
    """Five of five seeds: 2 / 252 of all splits are as far out."""
    five = [[0.5, 0.01 + seed / 1000] for seed in range(5)]
    _, words, rows = board(database, rnn=five, lstm=[[0.5, 0.1 + seed / 1000] for seed in range(5)])
    assert words == "rnn ahead of all others; MSE 0.012 [0.01, 0.014]; 1 tested apart"
    assert [row.standing for row in rows] == [None, "tested apart"]


def test_model_that_is_worse_in_every_seed_is_so_called_before_a_test_can_say_it(database, tmp_path):
    """Three seeds each: two rivals are worse in every seed, and one overlaps."""

    def ends(*values):
        return [[0.5, value] for value in values]

    _, words, rows = board(
        database, rnn=ends(0.01, 0.02, 0.03), lstm=ends(0.02, 0.05, 0.06), gru=ends(0.1, 0.11, 0.12), lem=[None] * 3
    )
    assert [row.standing for row in rows] == [None, "overlaps", "worse in every seed", "worse in every seed"]
    assert words == "rnn in first place; MSE 0.02; 2 worse in every seed, 1 overlapping; seeds of each for a test: 5"
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
    tags = re.findall(r'<span class="tag">(overlaps|worse in every seed|tested apart)</span>', page)
    assert tags == ["overlaps", "worse in every seed", "worse in every seed"]
    assert "Seeds of each for a test: 5 · <code>--seeds 5</code>" in page


def test_models_that_solve_the_task_are_so_called_before_any_test(database, tmp_path):
    """Scores of 95 and more in every seed, next to a baseline of 0.2. The third model fails to in one of three."""

    def ends(*values):
        return [[0.5, value] for value in values]

    _, words, rows = board(
        database, rnn=ends(1e-6, 2e-6, 3e-6), lstm=ends(1e-4, 2e-4, 3e-4), gru=ends(1e-4, 2e-4, 0.011), lem=ends(1e-4)
    )
    assert [str(row.standing) for row in rows] == ["None", "few seeds", "both solve it", "worse in every seed"]
    assert words.startswith("2 solve it in every seed; lowest: rnn; MSE 2e-06; 1 worse in every seed, 1 with few seeds")
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
    assert re.findall(r'<span class="tag">(both solve it|worse in every seed)</span>', page)[:1] == ["both solve it"]


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (
            {"lem": (1e-7,), "rnn": (1e-6, 2e-6, 3e-6)},
            "2 solve it in every seed; lowest of those with three seeds: rnn;",
        ),
        ({"rnn": (1e-6,) * 3, "gru": (1e-6, 1e-6, 0.1)}, "2 solve it in every seed; lowest: rnn and gru;"),
    ],
    ids=["the lowest has one seed", "a tie with one that does not solve it in every seed"],
)
def test_headline_counts_those_that_solve_the_task_and_names_the_lowest(database, ends, expected):
    _, words, _ = board(
        database, **{model: [[0.5, end] for end in own] for model, own in (ends | {"lstm": (1e-4, 2e-4, 3e-4)}).items()}
    )
    assert words.startswith(expected)


@given(scores=st.lists(st.lists(st.integers(80, 100), min_size=3, max_size=3), min_size=2, max_size=3))
@settings(max_examples=10, deadline=None)
def test_ranking_and_count_of_seeds_mean_the_same_by_solve(scores):
    """Two models "both solve it" where the counts beside them say that every seed does."""
    with TemporaryDirectory() as folder, open_store(str(Path(folder) / "made.db"), create=True) as store:
        database = RunDatabase(store)
        for model, own in zip(("rnn", "lstm", "gru"), scores, strict=False):
            for seed, score in enumerate(own):
                database.run(experiment(model, "last", []), seed, test=[0.2 * (1 - score / 100)] * 4)
        (condition,) = collect(store)
        first, *others = leaderboard(condition)
    for row in others:
        assert (row.standing == "both solve it") == (first.variant.solved.holds and row.variant.solved.holds)
        assert row.variant.solved.reached == len(row.variant.solved_from)


def test_half_of_the_way_solves_nothing_on_page_or_in_figures(database, tmp_path):
    """Scores of 60, 70 and 96 in the seeds of one model, and of 96 to 98 in those of the other."""
    for model, scores in (("rnn", (60, 70, 96)), ("lstm", (96, 97, 98))):
        for seed, score in enumerate(scores):
            database.run(experiment(model, "last", []), seed, test=[0.2, 0.2 * (1 - score / 100)])
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
    assert "A seed solves the task if the score of its end is at least 95." in page
    assert re.findall(r'<span class="aside">(\d) solve it</span>', page)[:2] == ["3", "1"]
    assert "1 of 3 solve it (mse ≤ 0.01)" in page
    (condition,) = collect(database.store)
    assert f"a score of at least {100 * SOLVED:.0f}," in SOLVED_NOTES[0]
    shares = {trace["name"]: trace["y"][-1] for trace in solved_share(condition, Styles([condition])).data}
    assert shares == {"rnn": pytest.approx(1 / 3), "lstm": 1}
    assert "**solves** a task with a score of at least 95" in " ".join((ROOT / "docs/start.md").read_text().split())


@pytest.mark.parametrize(("ends", "lead"), [((0.19, 0.191, 0.192), Lead.NOTHING), ((0.1, 0.11, 0.12), Lead.FIRST)])
def test_model_that_learns_nothing_is_not_first(database, ends, lead):
    """It is better than the baseline of 0.2 in every seed, by 5 % of it. The other one is not."""
    _, words, _ = board(database, rnn=[[0.5, end] for end in ends], lstm=[[0.5, 0.2]] * 3)
    assert words.startswith(f"rnn {lead}; MSE {ends[1]}")


def test_model_with_one_seed_is_not_first_although_its_value_is_the_best(database):
    """The best one with three seeds is, and the others are tested next to it."""
    ranks, words, rows = board(
        database,
        lem=[[0.5, 0.01]],
        rnn=[[0.5, 0.02], [0.5, 0.03], [0.5, 0.04]],
        gru=[[0.5, 0.1], [0.5, 0.11], [0.5, 0.12]],
    )
    assert ranks == [(1, "lem"), (2, "rnn"), (3, "gru")]
    assert [row.standing for row in rows] == ["few seeds", None, "worse in every seed"]
    assert words.startswith(f"rnn {Lead.FIRST_OF_THREE}; MSE 0.03; ")


@pytest.mark.parametrize("other", [0.01, 0.11])
def test_same_variant_stands_for_a_model_in_the_matrix_and_in_the_ranking(database, other):
    """Of two variants the one with three seeds, even if one seed of the other one is better."""
    for seed, value in enumerate((0.1, 0.1, 0.1)):
        database.run(experiment("lstm", "last", []), seed, test=[value] * 4, learning_rate=0.1)
    database.run(experiment("lstm", "last", []), 0, test=[other] * 4, learning_rate=0.2)
    database.run(experiment("rnn", "last", []), 0, test=[0.15] * 4)
    conditions = collect(database.store)
    (cell,) = [row.cells[0] for row in compute_matrix(conditions).rows if row.model == "lstm"]
    (ranked,) = [row.variant for row in leaderboard(conditions[0]) if row.rank and row.variant.run.model == "lstm"]
    assert cell.variant is ranked
    assert ranked.scores == [0.1, 0.1, 0.1]


def test_condition_without_a_result_has_an_empty_leaderboard(database, tmp_path):
    database.run(experiment("rnn", "last", []), 0, test=[0.5], status=Status.RUNNING)
    (condition,) = collect(database.store)
    rows = leaderboard(condition)
    assert (rows, headline(condition, rows)) == ([], Lead.NONE)
    assert Lead.NONE in write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()


def test_diverged_runs_rank_worst(database):
    """Two of three runs of the rnn diverge: the one that finished is the best of all."""
    ranks, _, rows = board(database, rnn=[[0.5, 0.01], None, None], lstm=[[0.5, 0.1]], gru=[None])
    assert ranks == [(1, "lstm"), (2, "rnn"), (2, "gru")]
    assert [row.efficient for row in rows] == [True, False, False]
    (condition, *_) = collect(database.store)
    sheet = condition_table(condition, [condition])
    assert [row[sheet.headings.index("seeds")] for row in sheet.rows] == [
        "1 of 1",
        "1 of 3, 2 diverged",
        "0 of 1, 1 diverged",
    ]
    assert [row[sheet.headings.index("MSE, end: median")] for row in sheet.rows] == ["0.1", "diverged", "diverged"]


def test_further_variants_of_a_model_are_folded(database, tmp_path):
    for rate, value in ((0.1, 0.1), (0.2, 0.05)):
        database.run(experiment("lstm", "last", []), 0, test=[0.5, value], learning_rate=rate)
    database.run(experiment("rnn", "last", []), 0, test=[0.5, 0.15])
    page = write_html(database.store, tmp_path / "page.html", Scope(), {}).read_text()
    board, _, further = page.partition(
        '<details class="further"><summary>Further variants of these models: 1</summary>'
    )
    ranks = r'<span class="rank">(\d)</span>.*?<bdi>(.*?)</bdi>'
    assert re.findall(ranks, board) == [("1", "LSTM, learning rate 0.2"), ("2", "RNN")]  # no gap
    assert re.search(r"<bdi>(.*?)</bdi>", further)[1] == "LSTM, learning rate 0.1"


def test_best_variant_of_a_model_is_compared_in_one_test_of_all(database):
    """The data choose the best of nine variants, so ten are tested, although two models are ranked."""
    rate = experiment("lstm", "last", [])
    for seed in range(3):
        for number in range(9):
            database.run(rate, seed, test=[0.5, 0.01 * (number + 1) + seed / 1000], learning_rate=0.1 + number / 100)
    (condition,) = collect(database.store)
    assert headline(condition, leaderboard(condition)).endswith("seeds of each for a test: 6")
    assert [row.rank for row in leaderboard(condition)] == [*range(1, 10)]
    for seed in range(3):
        database.run(experiment("rnn", "last", []), seed, test=[0.5, 0.15 + seed / 1000])
    (condition,) = collect(database.store)
    rows = leaderboard(condition)
    assert [(row.rank, row.variant.run.model) for row in rows] == [(1, "lstm"), (2, "rnn"), *[(None, "lstm")] * 8]
    assert headline(condition, rows) == (
        "lstm learning_rate=0.1 in first place; MSE 0.011; 1 worse in every seed; seeds of each for a test: 6"
    )
    assert {str(row.standing) for row in rows[1:]} == {"worse in every seed"}
