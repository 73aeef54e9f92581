"""The verdict sheet: claims that failed with what else was run, distinct claims that held, dots, and the matrix."""

from __future__ import annotations

import math

import pytest
from scipy.stats import t
from support.claims import stated
from support.databases import RunDatabase, experiment, paper

from orthobench.analysis.conditions import collect
from orthobench.papers import Printed
from orthobench.reporting.account.paper_views import mark_repeated_claims, total_verdicts
from orthobench.reporting.account.verdict_sheet import dots, own_conditions, square, verdict_sheet
from orthobench.store import Status, open_store

FALLS, STAYS = [0.2, 0.15, 0.05, 0.01], [0.21, 0.2, 0.19, 0.198]
OUTCOME = [Printed(metric="mse", outcome="")]


@pytest.fixture
def database(tmp_path):
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        yield RunDatabase(store)


def claim(text: str, **fields) -> dict:
    return stated("ends_below", text=text, share=0.1, **fields)


def figure(*claims: dict) -> dict:
    return {"name": "figure 1", "shows": "learning_curves", "claims": list(claims)}


def test_failed_claim_names_other_settings_that_were_run(database):
    rnn = experiment("rnn", "curve", OUTCOME, "figure 1")
    for seed in range(3):
        database.run(rnn, seed, test=STAYS)
    database.run(rnn, 0, test=FALLS, learning_rate=0.5)
    view = database.view(paper(rnn, artifacts=[figure(claim("it falls"))]))
    sheet = verdict_sheet([view], collect(database.store))
    (verdict,) = sheet.failed
    assert (verdict.result.claim.text, verdict.share) == ("it falls", "0 of 3 seeds")
    (other,) = verdict.tried
    assert "learning_rate=0.5" in other.label
    assert (sheet.held, sheet.computed) == ([], [])


def test_claim_counts_once_if_it_can_fail(database):
    rnn = experiment("rnn", "curve", OUTCOME, "figure 1")
    for seed in range(3):
        database.run(rnn, seed, test=FALLS)
    whole = paper(rnn, artifacts=[figure(claim("it falls"), claim("it ends", cannot_fail=True))])
    views = mark_repeated_claims([database.view(whole), database.view(whole.model_copy(update={"key": "again"}))])
    sheet = verdict_sheet(views, [])
    (verdict,) = sheet.held
    assert (verdict.paper.key, verdict.result.claim.text, verdict.share) == ("k", "it falls", "3 of 3 seeds")
    assert (sheet.computed, sheet.failed) == ([], [])


def test_number_that_two_papers_print_for_the_same_runs_counts_once(database):
    database.baseline = 100.0
    rnn = experiment("rnn", "last", [Printed(metric="mse", value=0.25)])
    for seed in range(3):
        database.run(rnn, seed, test=[1.0, 0.25])
    whole = paper(rnn)
    views = [database.view(whole), database.view(whole.model_copy(update={"key": "again"}))]
    assert total_verdicts(views)["agree"] == 1
    assert [view.verdicts["agree"] for view in views] == [1, 1]
    assert [dot.paper.key for dot in dots(views)] == ["k"]


def test_links_of_a_number_lead_to_the_runs_it_is_computed_from(database):
    rnn = experiment("rnn", "last", [Printed(metric="mse", value=0.25)])
    finished = database.run(rnn, 0, test=[1.0, 0.25])
    database.run(rnn, 1, test=[1.0, 0.25], status=Status.INTERRUPTED)
    diverged = database.run(rnn, 2, test=[1.0, 0.25], status=Status.DIVERGED)
    (part,) = database.view(paper(rnn)).artifacts
    (cell,) = part.table.cells
    assert cell.runs == [finished.key, diverged.key]


@pytest.mark.parametrize(
    ("trained", "status", "words"),
    [(True, "partial", "experiments trained: 1 of 1"), (False, "none", "experiments trained: 0 of 1")],
)
def test_figure_without_published_results_is_measured_once_it_has_runs(database, trained, status, words):
    rnn = experiment("rnn", "curve", [], "figure 1")
    if trained:
        database.run(rnn, 0, test=FALLS)
    (part,) = database.view(paper(rnn, artifacts=[figure()])).artifacts
    assert (square(part).status, square(part).words) == (status, words)


@pytest.mark.parametrize(
    ("curves", "status", "words"),
    [
        ([FALLS] * 3, "agree", "results measured: 1 of 1; checks that hold: 1 of 1"),
        ([STAYS] * 3, "fails", "results measured: 1 of 1; checks that hold: 0 of 1"),
        ([FALLS, FALLS, STAYS], "partial", "results measured: 1 of 1"),
        ([FALLS], "partial", "results measured: 1 of 1"),
        ([STAYS], "partial", "results measured: 1 of 1"),
    ],
)
def test_square_leaves_out_claims_of_few_seeds_and_seed_dependent_ones(database, curves, status, words):
    rnn = experiment("rnn", "curve", OUTCOME, "figure 1")
    for seed, curve in enumerate(curves):
        database.run(rnn, seed, test=curve)
    view = database.view(paper(rnn, artifacts=[figure(claim("it falls"))]))
    assert (square(view.artifacts[0]).status, square(view.artifacts[0]).words) == (status, words)
    sheet = verdict_sheet([view], [])
    listed = [len(sheet.failed), len(sheet.seed_decided), len(sheet.held)]
    assert (
        listed
        == {
            "agree": [0, 0, 1],
            "fails": [1, 0, 0],
            "partial": [0, int(len(curves) > 1), 0],
        }[status]
    )


def test_dot_is_the_difference_in_tolerances_with_its_90_percent_interval(database):
    """The tolerance is a factor of 1.5. The values are 1.5, 1.5² and 1.5³ times the printed number."""
    rnn = experiment("rnn", "last", [Printed(metric="mse", value=0.25)])
    values = [0.375, 0.5625, 0.84375]
    for seed, value in enumerate(values):
        database.run(rnn, seed, test=[1.0, value])
    (dot,) = dots([database.view(paper(rnn))])
    assert dot.offset == pytest.approx(math.log(sum(values) / 3 / 0.25) / math.log(1.5))
    half = t.ppf(0.95, 2) / 3**0.5
    assert (dot.low, dot.high) == pytest.approx((2 - half, 2 + half))
    assert not dot.is_single


def test_single_seed_is_a_hollow_dot_without_an_interval(database):
    rnn = experiment("rnn", "last", [Printed(metric="mse", value=0.25)])
    database.run(rnn, 0, test=[1.0, 0.25 / 1.5**2])
    (dot,) = dots([database.view(paper(rnn))])
    assert dot.is_single
    assert (dot.low, dot.high) == (None, None)
    assert dot.offset == pytest.approx(-2.0)


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ([], "none"),
        ([0.25], "partial"),
        ([0.25, 0.251, 0.2505], "agree"),
        ([0.6, 0.601, 0.602], "fails"),
    ],
)
def test_matrix_states_the_status_of_a_table(database, values, status):
    database.baseline = 100.0
    rnn = experiment("rnn", "last", [Printed(metric="mse", value=0.25)])
    for seed, value in enumerate(values):
        database.run(rnn, seed, test=[1.0, value])
    (part,) = database.view(paper(rnn)).artifacts
    assert square(part).status == status


def test_table_with_a_missing_row_is_not_in_full_agreement(database):
    database.baseline = 100.0
    rows = [experiment(model, "last", [Printed(metric="mse", value=0.25)]) for model in ("rnn", "lstm")]
    for seed, value in enumerate([0.25, 0.251, 0.2505]):
        database.run(rows[0], seed, test=[1.0, value])
    (part,) = database.view(paper(*rows)).artifacts
    assert square(part).status == "partial"
    assert square(part).words == "results measured: 1 of 2; checks that hold: 1 of 1"


def test_unpublished_runs_come_first_only_without_measured_experiments(database):
    rnn = experiment("rnn", "last", [Printed(metric="mse", value=0.25)])
    database.run(rnn, 0, test=[1.0, 0.25], epochs=2)
    conditions = collect(database.store)
    assert own_conditions(conditions, [database.view(paper(rnn))]) == list(conditions)
    database.run(rnn, 0, test=[1.0, 0.25])
    assert own_conditions(collect(database.store), [database.view(paper(rnn))]) == []
