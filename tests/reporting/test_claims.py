"""Claims of papers about their figures and tables, on runs with chosen curves."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from support.claims import has_held, stated
from support.databases import experiment, paper

from orthobench.analysis.claims import ClaimResult, Lack, count_claims
from orthobench.analysis.claims.claim import Comparing
from orthobench.analysis.claims.curve_shapes import EndsBelow
from orthobench.analysis.claims.reading import KINDS
from orthobench.analysis.claims.trajectories import EndsAtDistance
from orthobench.analysis.statistics import share_of_seeds
from orthobench.errors import UsageError
from orthobench.papers import Printed
from orthobench.reporting.account.paper_views import mark_repeated_claims
from orthobench.reporting.account.verdict_sheet import square
from orthobench.store import MetricRow, Status

FALLS, STAYS, UNTRAINED = [0.2, 0.15, 0.05, 0.01], [0.21, 0.2, 0.19, 0.198], [1.0, 1.0, 1.0]
OUTCOME = [Printed(metric="mse", outcome="")]


@pytest.mark.parametrize(
    ("check", "fields", "curves", "holds"),
    [
        ("ends_below", {"share": 0.1}, {"rnn": FALLS}, True),
        ("ends_below", {"share": 0.1}, {"rnn": STAYS}, False),
        ("ends_between", {"share": 0.5}, {"rnn": STAYS}, True),
        ("ends_between", {"share": 0.1}, {"rnn": FALLS}, False),
        ("ends_between", {"share": 0.1}, {"rnn": UNTRAINED}, False),
        ("settles_above", {"share": 0.9}, {"rnn": STAYS}, True),
        ("settles_above", {"share": 0.9}, {"rnn": [0.2, 0.1, 0.2]}, False),
        ("settles_above", {"share": 0.9}, {"rnn": UNTRAINED}, False),
        ("starts", {"after": 10, "at_baseline": True}, {"rnn": [1.0, 0.21, 0.1]}, True),
        ("starts", {"after": 10, "at_baseline": True}, {"rnn": UNTRAINED}, False),
        ("starts", {"after": 10, "at_baseline": False}, {"rnn": [1.0, 0.21, 0.1]}, False),
        ("starts", {"after": 10, "at_baseline": False}, {"rnn": UNTRAINED}, False),
        ("starts", {"after": 10, "at_baseline": False}, {"rnn": [1.0, 0.5, 0.1]}, True),
        ("starts", {"after": 0, "at_baseline": True}, {"rnn": [1.0, 0.21, 0.1]}, False),
        ("starts", {"after": 20, "at_baseline": True}, {"rnn": [1.0, 0.5, 0.2, 0.1]}, True),
        ("waits", {"iterations": 20}, {"rnn": [1.0, 0.2, 0.2, 0.1]}, True),
        ("waits", {"iterations": 21}, {"rnn": [1.0, 0.2, 0.2, 0.1]}, False),
        ("waits", {"iterations": 0}, {"rnn": STAYS}, False),
        ("bypasses", {"iterations": 20}, {"rnn": [1.0, 0.2, 0.2, 0.1]}, True),
        ("bypasses", {"iterations": 19}, {"rnn": [1.0, 0.2, 0.2, 0.1]}, False),
        ("bypasses", {"iterations": 50}, {"rnn": STAYS}, False),
        ("first", {}, {"rnn": FALLS, "lstm": [0.2, 0.2, 0.2, 0.2, 0.01]}, True),
        ("first", {}, {"rnn": FALLS, "lstm": [0.2, 0.01, 0.01, 0.01]}, False),
        ("first", {}, {"rnn": FALLS, "lstm": [0.2, 0.2, 0.04, 0.01]}, False),  # in step at half of the way
        ("first", {}, {"rnn": STAYS, "lstm": STAYS}, False),
        ("first", {"departing": True}, {"rnn": [0.2, 0.15, 0.15, 0.2], "lstm": [0.2, 0.2, 0.01, 0.01]}, True),
        ("first", {"departing": True}, {"rnn": [0.2, 0.175, 0.15, 0.2], "lstm": [0.2, 0.2, 0.01, 0.01]}, False),
        ("later", {}, {"rnn": [0.2, 0.2, 0.2, 0.2, 0.01], "lstm": FALLS}, True),
        ("later", {}, {"rnn": STAYS, "lstm": FALLS}, False),
        ("slower", {}, {"rnn": FALLS, "lstm": [0.2, 0.2, 0.01, 0.01]}, True),
        ("slower", {}, {"rnn": [0.2, 0.2, 0.01, 0.01], "lstm": FALLS}, False),
        ("slower", {}, {"rnn": STAYS, "lstm": FALLS}, False),
        ("drops_within", {"epochs": 2.0}, {"rnn": FALLS}, True),
        ("drops_within", {"epochs": 1.9}, {"rnn": FALLS}, False),
        ("drops_within", {"epochs": 9.0}, {"rnn": STAYS}, False),
        ("rougher", {}, {"rnn": [0.2, 0.1, 0.2, 0.1], "lstm": FALLS}, True),
        ("rougher", {}, {"rnn": FALLS, "lstm": [0.2, 0.1, 0.2, 0.1]}, False),
        ("rougher", {}, {"rnn": [0.2, 0.3, 0.2, 0.3], "lstm": FALLS}, False),  # it never drops
        ("smooth", {"setback": 0.0}, {"rnn": FALLS}, True),
        ("smooth", {"setback": 0.26}, {"rnn": [1.0, 0.2, 0.1, 0.12, 0.15, 0.1]}, True),  # 0.05 up, of a baseline of 0.2
        ("smooth", {"setback": 0.24}, {"rnn": [1.0, 0.2, 0.1, 0.12, 0.15, 0.1]}, False),
        ("smooth", {"setback": 0.26}, {"rnn": [1.0, 0.1, 0.15, 0.1, 0.15, 0.1]}, True),  # the largest, not the sum
        (
            "smooth",
            {"setback": 0.0},
            {"rnn": [1.0, 0.1, 1.5, 0.1, 0.05]},
            True,
        ),  # it comes back to the baseline before it leaves it
        ("smooth", {"setback": 9.0}, {"rnn": [1.0, 0.1, 0.05, 0.19]}, False),  # its last test is at the baseline
        ("smooth", {"setback": 9.0}, {"rnn": UNTRAINED}, False),
        ("late", {"epochs": 2.0}, {"rnn": [1.0, 0.2, 0.1]}, True),
        ("late", {"epochs": 2.1}, {"rnn": [1.0, 0.2, 0.1]}, False),
        ("late", {"epochs": 2.0}, {"rnn": UNTRAINED}, False),
        ("returns", {"share": 0.8}, {"rnn": [0.2, 0.1, 0.19]}, True),
        ("returns", {"share": 0.8}, {"rnn": FALLS}, False),
        ("returns", {"share": 0.8}, {"rnn": STAYS}, False),
        ("returns", {"share": 0.8}, {"rnn": [0.2, 0.2, 0.1]}, False),
        ("best", {}, {"rnn": FALLS, "lstm": STAYS}, True),
        ("best", {}, {"rnn": STAYS, "lstm": FALLS}, False),
        ("worst", {}, {"rnn": STAYS, "lstm": FALLS}, True),
        ("worst", {}, {"rnn": FALLS, "lstm": STAYS}, False),
        ("worst", {}, {"rnn": UNTRAINED, "lstm": STAYS}, False),
        ("similar", {"difference": 0.003}, {"rnn": STAYS, "lstm": [0.2, 0.2]}, True),
        ("similar", {"difference": 0.001}, {"rnn": STAYS, "lstm": [0.2, 0.2]}, False),
        ("fails_only_here", {"share": 0.9}, {"rnn": STAYS, "lstm": FALLS}, True),
        ("fails_only_here", {"share": 0.9}, {"rnn": FALLS, "lstm": FALLS}, False),
        ("fails_only_here", {"share": 0.9}, {"rnn": STAYS, "lstm": STAYS}, False),
        ("first", {}, {"rnn": FALLS}, None),
    ],
)
def test_verdict_on_each_kind_of_claim(database, check, fields, curves, holds):
    """The baseline is 0.2."""
    outcome = [Printed(metric="mse", outcome="")]
    both = [experiment(model, "curve", outcome, "figure 1") for model in ("rnn", "lstm")]
    for compared in both:
        if compared.model in curves:
            database.run(compared, 0, test=curves[compared.model])
    others = {"others": ["lstm"]} if issubclass(KINDS[check], Comparing) else {}
    claims = [stated(check, **fields, **others)]
    artifact = {"name": "figure 1", "shows": "learning_curves", "claims": claims}
    view = database.view(paper(*both, artifacts=[artifact]))
    (finding,) = view.claim_results
    assert has_held(finding) is holds
    assert finding.reason
    assert view.coverage == (len(curves), 2)


@pytest.mark.parametrize(
    ("metric", "split", "expected"),
    [("", "", 0.5), ("cross_entropy", "test", 0.7), ("recall", "test", 0.5), ("cross_entropy", "", 0.5)],
)
def test_claim_uses_the_baseline_of_its_own_metric(metric, split, expected):
    """A metric without one, and a probe's number, are held against that of the main metric."""
    run = SimpleNamespace(metric="accuracy", baselines={"accuracy": 0.5, "cross_entropy": 0.7})
    claim = EndsBelow(text="", model="rnn", share=0.1, metric=metric, split=split)
    assert claim.baseline(SimpleNamespace(run=run)) == expected


def test_start_is_the_first_point_of_the_published_curve(database):
    """The baseline is 0.2; a run without a test at this iteration says nothing."""
    rnn_experiment = experiment("rnn", "curve", OUTCOME, "figure 1")
    for seed, first in enumerate((20.0, 300.0)):
        database.run(rnn_experiment, seed, test=[first, 0.2, 0.01])
    claims = [stated("starts", after=after, at_baseline=True) for after in (10, 15)]
    artifact = {"name": "figure 1", "shows": "learning_curves", "claims": claims}
    findings = database.view(paper(rnn_experiment, artifacts=[artifact])).claim_results
    assert [has_held(finding) for finding in findings] == [True, None]
    _, starts, ends, untrained = (each.values for each in findings[0].numbers)
    assert (starts, ends) == (pytest.approx([1, 1]), pytest.approx([0.05, 0.05]))
    assert untrained == pytest.approx([100, 1500])
    assert findings[1].lack is Lack.METRIC


def test_no_share_of_a_baseline_of_zero():
    claim = EndsBelow(text="", model="rnn", share=0.1)
    shares = [
        claim.share_of_baseline(0.5, SimpleNamespace(run=SimpleNamespace(metric="mse", baselines={"mse": baseline})))
        for baseline in (0.25, 0.0)
    ]
    assert shares == pytest.approx([2.0, math.nan], nan_ok=True)


@pytest.mark.parametrize(
    ("curves", "statuses", "holds"),
    [
        ([FALLS, FALLS], [Status.FINISHED, Status.FINISHED], True),
        ([FALLS, STAYS], [Status.FINISHED, Status.FINISHED], False),  # half of them
        ([FALLS, STAYS], [Status.FINISHED, Status.INTERRUPTED], True),
        ([FALLS, FALLS], [Status.FINISHED, Status.DIVERGED], None),
    ],
)
def test_claim_is_decided_by_finished_seeds_without_divergence(database, curves, statuses, holds):
    rnn_experiment = experiment("rnn", "curve", [Printed(metric="mse", outcome="")], "figure 1")
    for seed, (curve, status) in enumerate(zip(curves, statuses, strict=True)):
        database.run(rnn_experiment, seed, test=curve, status=status)
    claim = stated("ends_below", share=0.1)
    artifact = {"name": "figure 1", "shows": "learning_curves", "claims": [claim]}
    (finding,) = database.view(paper(rnn_experiment, artifacts=[artifact])).claim_results
    assert has_held(finding) is holds
    assert (finding.lack is Lack.DIVERGED) == (Status.DIVERGED in statuses)


@pytest.mark.parametrize(
    ("check", "fields", "last", "holds"),
    [
        ("improves_with", {"correlation": -0.9}, [0.2, 0.1, 0.05], True),
        ("improves_with", {"correlation": -0.9}, [0.2, 0.05, 0.1], False),
        ("improves_with", {"correlation": -0.9}, [0.19, 0.18, 0.17], False),  # none comes down
        ("near_best", {"share": 0.6}, [0.2, 0.02, 0.01], True),
        ("near_best", {"share": 0.7}, [0.2, 0.02, 0.01], False),
        ("near_best", {"share": 0.1}, [0.2, 0.2, 0.2], False),
    ],
)
def test_claims_about_a_setting_follow_its_correlation(database, check, fields, last, holds):
    """Runs with 8, 9 and 10 units; the baseline is 0.2."""
    experiments = []
    for size, value in zip((8, 9, 10), last, strict=True):
        sized = experiment("rnn", "curve", [Printed(metric="mse", outcome="")], "figure 1")
        experiments.append(sized.model_copy(update={"model_settings": {"hidden_size": size}}))
        database.run(experiments[-1], 0, test=[1.0, value])
    claim = stated(check, over="hidden_size", **fields)
    artifact = {"name": "figure 1", "shows": "learning_curves", "claims": [claim]}
    (finding,) = database.view(paper(*experiments, artifacts=[artifact])).claim_results
    assert has_held(finding) is holds


def test_unknown_setting_of_a_claim_is_named(database):
    both = [experiment("rnn", "curve", OUTCOME, "figure 1")]
    database.run(both[0], 0, test=FALLS)
    claim = stated("improves_with", over="hiden_size", correlation=-0.5)
    with pytest.raises(UsageError, match="unknown setting 'hiden_size': did you mean hidden_size"):
        database.view(paper(*both, artifacts=[{"name": "figure 1", "shows": "learning_curves", "claims": [claim]}]))


@pytest.mark.parametrize(("ratio", "holds"), [(1.0, True), (1.3, True), (1.4, False), (0.75, False)])
def test_times_are_compared_as_ratios(database, ratio, holds):
    both = [
        experiment(model, "last", [Printed(metric="minutes_per_epoch", split="train", value=1.0)])
        for model in ("rnn", "lstm")
    ]
    for each in both:
        database.run(each, 0, test=[1.0])  # all take the same time
    claim = stated("ratio", ratio=ratio, metric="minutes_per_epoch", split="train")
    artifact = {"name": "table 1", "claims": [claim]}
    (finding,) = database.view(paper(*both, artifacts=[artifact])).claim_results
    assert has_held(finding) is holds


def test_times_of_several_machines_are_not_compared(database):
    both = [
        experiment(model, "last", [Printed(metric="minutes_per_epoch", split="train", value=1.0)])
        for model in ("rnn", "lstm")
    ]
    for machine, each in zip(("a CPU", "another CPU"), both, strict=True):
        database.run(each, 0, test=[1.0], cpu=machine)
    claim = stated("ratio", ratio=1.0, metric="minutes_per_epoch", split="train")
    artifact = {"name": "table 1", "claims": [claim]}
    (finding,) = database.view(paper(*both, artifacts=[artifact])).claim_results
    assert (has_held(finding), finding.lack, len(finding.lacking)) == (None, Lack.ONE_MACHINE, 2)


def test_headlines_count_a_claim_once_if_it_can_fail(database):
    """Two papers with the same runs; the second adds claims of its own, and one about a computation."""
    rnn_experiment, few = (experiment(model, "curve", OUTCOME, "figure 1") for model in ("rnn", "lstm"))
    for seed in range(3):
        database.run(rnn_experiment, seed, test=FALLS)
    database.run(few, 0, test=FALLS)
    shared = stated("ends_below", text="shared", share=0.5)
    marked = stated("ends_below", text="marked", share=9.0, cannot_fail=True)
    own = stated("ends_below", text="own", share=0.01)
    hollow = stated("ends_below", "lstm", text="one seed", share=0.5)
    views = []
    for key, claims in (("first", [shared, marked]), ("second", [shared, own, hollow])):
        artifact = {"name": "figure 1", "shows": "learning_curves", "claims": claims}
        whole = paper(rnn_experiment, few, artifacts=[artifact])
        views.append(database.view(whole.model_copy(update={"key": key})))
    first, second = mark_repeated_claims(views)
    assert [finding.uncounted for finding in (*first.claim_results, *second.claim_results)] == [
        "",
        "even an untrained or deliberately broken model passes",
        "decided by the same runs: first figure 1",
        "",
        "fewer than three seeds",
    ]
    counts = count_claims([*first.claim_results, *second.claim_results])
    assert (counts.confirmed, counts.decided, counts.refuted, counts.undecided) == (1, 2, 1, 0)
    assert counts.hollow == (1, 1)
    expected = "1 with fewer than three seeds; 1 decided by another paper's runs; 1 that even broken models pass"
    assert counts.apart == expected
    assert counts.words == "1 held, 1 did not hold"
    computed = [
        ClaimResult(EndsAtDistance(text="", panel=panel, at_least=1.0), share_of_seeds([holds]))
        for panel, holds in zip("ab", (True, False), strict=True)
    ]
    assert [finding.verdict for finding in computed] == ["held", "did not hold"]
    counts = count_claims(computed)
    assert (counts.decided, counts.apart) == (0, "2 computed")


def test_claims_at_settings_chosen_here_count_apart(database):
    """The same statement at a rate that no source states, of one model and of its rivals, and with one seed."""
    printed, chosen, few = (experiment(model, "curve", OUTCOME, "figure 1") for model in ("rnn", "lstm", "gru"))
    chosen, few = (each.model_copy(update={"own_settings": True}) for each in (chosen, few))
    for seed in range(3):
        database.run(printed, seed, test=FALLS)
        database.run(chosen, seed, test=FALLS)
    database.run(few, 0, test=FALLS)
    claims = [stated("ends_below", model, text=model, share=0.5) for model in ("rnn", "lstm", "gru")]
    claims += [stated("ends_below", "lstm", text="lower", share=0.001), stated("best", text="best", others=["lstm"])]
    artifact = {"name": "figure 1", "shows": "learning_curves", "claims": claims}
    view = database.view(paper(printed, chosen, few, artifacts=[artifact]))
    own, one_seed = "at settings chosen here", "fewer than three seeds"
    assert [result.uncounted for result in view.claim_results] == ["", own, one_seed, own, own]
    counts = count_claims(view.claim_results)
    assert (counts.confirmed, counts.decided, counts.hollow) == (1, 1, (1, 1))
    assert counts.words == "1 held; not counted: 1 of 3 held at settings chosen here"
    assert counts.apart == "1 with fewer than three seeds; 3 at settings chosen here"
    assert (square(view.artifacts[0]).confirmed, square(view.artifacts[0]).against) == (1, 0)


SOONER, AS_SOON, LATER = [0.2, 0.2, 0.01, 0.01], [0.2, 0.2, 0.015, 0.01], [0.2, 0.2, 0.2, 0.01]
NEVER = [0.2, 0.2, 0.2, 0.2]


@pytest.mark.parametrize(
    ("check", "fields", "own", "rivals", "verdict"),
    [
        ("ends_below", {"share": 0.1}, [FALLS] * 5, [], "held (5 of 5 seeds)"),
        (
            "ends_below",
            {"share": 0.1},
            [FALLS] * 4 + [STAYS],
            [],
            "depends on the seed (4 of 5 seeds)",
        ),  # 80 % is not above 80 %
        ("ends_below", {"share": 0.1}, [FALLS] * 9 + [STAYS], [], "held (9 of 10 seeds)"),
        (
            "ends_below",
            {"share": 0.1},
            [FALLS] + [STAYS] * 4,
            [],
            "depends on the seed (1 of 5 seeds)",
        ),  # nor 20 % below 20 %
        ("ends_below", {"share": 0.1}, [FALLS] + [STAYS] * 5, [], "did not hold (1 of 6 seeds)"),
        ("ends_below", {"share": 0.1}, [FALLS], [], "held (1 seed)"),
        ("ends_below", {"share": 0.1}, [STAYS], [], "did not hold (1 seed)"),
        ("ends_below", {"share": 0.1}, [FALLS] * 2, [], "held (2 seeds)"),
        ("first", {}, [SOONER] * 3, [LATER] * 3, "held (100 % of 9 pairs)"),
        ("first", {}, [SOONER] * 3, [AS_SOON] * 3, "depends on the seed (50 % of 9 pairs)"),  # ties
        ("first", {}, [SOONER] * 3, [AS_SOON, LATER, LATER], "held (83 % of 9 pairs)"),  # (3 x 0.5 + 6) / 9
        ("first", {}, [LATER] * 3, [SOONER] * 3, "did not hold (0 % of 9 pairs)"),
        ("first", {}, [SOONER] * 5, [LATER], "held (1 seed)"),
        ("first", {}, [SOONER], [LATER] * 5, "held (1 seed)"),
        (
            "first",
            {},
            [SOONER, NEVER, NEVER],
            [NEVER] * 3,
            "depends on the seed (33 % of 9 pairs)",
        ),  # no drop is no tie
        (
            "later",
            {},
            [LATER] * 3,
            [SOONER, LATER, LATER],
            "depends on the seed (67 % of 9 pairs)",
        ),  # (3 + 6 x 0.5) / 9
        ("later", {}, [LATER, LATER, NEVER], [SOONER] * 3, "depends on the seed (67 % of 9 pairs)"),  # one never drops
        ("best", {}, [FALLS] * 3, [FALLS, STAYS, STAYS], "held (83 % of 9 pairs)"),
        ("similar", {"difference": 0.1}, [FALLS, FALLS, STAYS], [FALLS] * 3, "depends on the seed (67 % of 9 pairs)"),
        ("rougher", {}, [[0.2, 0.1, 0.2, 0.1]] * 3, [FALLS, FALLS, STAYS], "depends on the seed (67 % of 9 pairs)"),
        (
            "slower",
            {},
            [FALLS] * 3,
            [SOONER, SOONER, STAYS],
            "held (2 seeds)",
        ),  # the third has no drop to compare
        ("slower", {}, [FALLS, FALLS, STAYS], [SOONER] * 3, "depends on the seed (67 % of 9 pairs)"),
        ("slower", {}, [FALLS] * 3, [STAYS] * 3, "not decided"),
        ("slower", {}, [FALLS] * 3, [SOONER, STAYS, STAYS], "held (1 seed)"),  # one rival has something to compare
        (
            "fails_only_here",
            {"share": 0.1},
            [STAYS, STAYS, FALLS],
            [FALLS] * 3,
            "depends on the seed (67 % of 9 pairs)",
        ),
    ],
)
def test_share_of_seeds_or_pairs_decides(database, check, fields, own, rivals, verdict):
    """The baseline is 0.2; a tie counts half."""
    experiments = {model: experiment(model, "curve", OUTCOME, "figure 1") for model in ("rnn", "lstm")}
    for model, seeds in (("rnn", own), ("lstm", rivals)):
        for seed, curve in enumerate(seeds):
            database.run(experiments[model], seed, test=curve)
    claim = stated(check, **fields, **({"others": ["lstm"]} if rivals else {}))
    artifact = {"name": "figure 1", "shows": "learning_curves", "claims": [claim]}
    (finding,) = database.view(paper(*experiments.values(), artifacts=[artifact])).claim_results
    assert finding.verdict == verdict
    assert finding.is_hollow == (verdict != "not decided" and "%" not in verdict and " of " not in verdict)
    assert bool(finding.uncounted) == finding.is_hollow


def test_weakest_of_several_comparisons_decides(database):
    """The claim's model is best of all in five of five seeds against the GRU, and in none against the LSTM."""
    curves = {"rnn": [0.2, 0.1], "lstm": [0.2, 0.05], "gru": [0.2, 0.15]}
    experiments = [experiment(model, "curve", OUTCOME, "figure 1") for model in curves]
    for each in experiments:
        for seed in range(3):
            database.run(each, seed, test=curves[each.model])
    claim = stated("best")
    artifact = {"name": "figure 1", "shows": "learning_curves", "claims": [claim]}
    (finding,) = database.view(paper(*experiments, artifacts=[artifact])).claim_results
    assert finding.verdict == "did not hold (0 % of 9 pairs)"
    assert finding.reason == (
        "result: 0.1 (rnn, n = 8), 0.05 (lstm, n = 8, 0 % of 9 pairs), 0.15 (gru, n = 8, 100 % of 9 pairs)"
    )


def test_numbers_say_in_how_many_seeds_there_is_none(database):
    experiments = {model: experiment(model, "curve", OUTCOME, "figure 1") for model in ("rnn", "lstm")}
    for model, seeds in (("rnn", [SOONER, FALLS, NEVER]), ("lstm", [LATER] * 3)):
        for seed, curve in enumerate(seeds):
            database.run(experiments[model], seed, test=curve)
    artifact = {"name": "figure 1", "shows": "learning_curves", "claims": [stated("slower", others=["lstm"])]}
    (finding,) = database.view(paper(*experiments.values(), artifacts=[artifact])).claim_results
    assert finding.reason == (
        "iterations from 10 % to 90 % of the way down: 0 to 20, none in 1 of 3 seeds (rnn, n = 8), "
        "0 (lstm, n = 8, 50 % of 9 pairs)"
    )


def test_runs_without_the_claims_metric_are_undecided(database):
    rnn_experiment = experiment("rnn", "curve", OUTCOME, "figure 1")
    database.run(rnn_experiment, 0, test=FALLS)
    claims = [
        stated("stays_below", limit=0.5, metric="orthogonality/W"),
        stated("fades_to", share=0.5, vector="gradient_norm_of_mean/h"),
    ]
    artifact = {"name": "figure 1", "shows": "learning_curves", "claims": claims}
    findings = database.view(paper(rnn_experiment, artifacts=[artifact])).claim_results
    assert [(finding.verdict, finding.reason) for finding in findings] == [
        ("not decided", f"{Lack.METRIC}: orthogonality/W"),
        ("not decided", f"{Lack.METRIC}: gradient_norm_of_mean/h"),
    ]


@pytest.mark.parametrize(("selection", "holds"), [("last", False), ("best_test", True), ("best_valid", True)])
def test_best_model_follows_the_papers_rule(database, selection, holds):
    printed = [Printed(metric="mse", value=0.1)]
    first, second = (experiment(model, selection, printed) for model in ("rnn", "lstm"))
    database.run(first, 0, test=[0.2, 0.1, 0.19], valid=[0.2, 0.1, 0.19])
    database.run(second, 0, test=[0.2, 0.15, 0.15], valid=[0.2, 0.15, 0.15])
    claim = stated("best", others=["lstm"])
    artifact = {"name": "table 1", "shows": "table", "claims": [claim]}
    (finding,) = database.view(paper(first, second, artifacts=[artifact])).claim_results
    assert has_held(finding) is holds


def test_solved_run_ends_at_its_last_test(database):
    """Of twelve tests the last three would count, of which two are from before."""
    plain = experiment("rnn", "curve", [Printed(metric="mse", outcome="")], "figure 1")
    stopping = plain.model_copy(update={"training": {**plain.training, "solved_at": 0.05}})
    database.run(stopping, 0, test=[0.2] * 11 + [0.01])
    claims = [
        stated("ends_below", share=0.1),
        stated("ends_below", share=0.1, metric="mse", split="test"),
    ]
    whole = paper(stopping, artifacts=[{"name": "figure 1", "shows": "learning_curves", "claims": claims}])
    assert [has_held(finding) for finding in database.view(whole).claim_results] == [False, False]
    database.store.log(database.store.runs()[0].id, [], [], {"iterations": 30})  # of 40: it stopped
    assert [has_held(finding) for finding in database.view(whole).claim_results] == [True, True]


def test_claims_may_use_probes(database):
    rnn_experiment = experiment("rnn", "curve", [Printed(metric="mse", outcome="")], "figure 1")
    database.run(rnn_experiment, 0, test=FALLS)
    run = database.store.runs()[0]
    rows = [MetricRow("probe", "orthogonality/W", i, 10 * i, 10.0**-6 * (1 + 50 * i)) for i in range(3)]
    database.store.log(run.id, rows, [], {})
    claims = [
        stated("grows", ratio=100, metric="orthogonality/W"),
        stated("grows", ratio=102, metric="orthogonality/W"),
        stated("stays_below", limit=2e-4, metric="orthogonality/W"),
        stated("stays_below", limit=1e-4, metric="orthogonality/W"),
        stated("stays_above", limit=0.9e-6, metric="orthogonality/W"),
        stated("stays_above", limit=1e-6, metric="orthogonality/W"),
    ]
    artifact = {"name": "figure 1", "shows": "orthogonality", "claims": claims}
    view = database.view(paper(rnn_experiment, artifacts=[artifact]))
    assert [has_held(finding) for finding in view.claim_results] == [True, False, True, False, True, False]
