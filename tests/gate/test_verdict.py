"""Each verdict, from invented values."""

from __future__ import annotations

import statistics
from statistics import NormalDist

import pytest
from support.records import run_record

from orthobench.analysis.inference import Verdict
from orthobench.gate.baseline import CheckedRun, Update
from orthobench.gate.result_files import as_markdown
from orthobench.gate.results import SeedResult, collect_results
from orthobench.gate.update import with_new_values
from orthobench.gate.verdict import Finding, exit_code, judge, refusal, skipped
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import open_store

FACTS = {
    "cpu": "abacus",
    "cpu_model": "1/2/3",
    "cpu_capability": "beads",
    "accelerator": None,
    "threads": 2,
    "packages": {"torch": "2"},
}
ORIGIN = Update(
    reason="",
    date="",
    versions={"torch": "2"},
    machine={"cpu": "abacus", "cpu_model": "1/2/3", "cpu_capability": "beads", "accelerator": "None", "threads": "2"},
    runs=("adding/lstm",),
)


def checked(values=(1.0, 1.1, 0.9), direction="min", allowed=0.5, **more):
    metric = {"direction": direction, "allowed_loss": allowed, "values": dict(enumerate(values))}
    more = {"seeds": (0, 1, 2), "condition": "c", **more}
    return CheckedRun(task="adding", model="lstm", metrics={"mse": metric}, **more)


def now(*values, **more):
    return {seed: SeedResult({("mse", "final"): value}, facts=FACTS, **more) for seed, value in enumerate(values)}


def verdict(run, measured) -> Finding:
    (finding,) = judge(run, ORIGIN, measured, False)
    return finding


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((1.0, 1.1, 0.9), "same"),
        ((1.1, 1.2, 1.0), "same"),  # lost something, but provably less than 0.5
        ((0.5, 0.6, 0.4), "better"),
        ((2.0, 2.1, 1.9), "worse"),
        ((1.1, 5.0, 1.0), "inconclusive"),
        ((1.5, 1.6, 1.4), "inconclusive"),
    ],
)
@pytest.mark.parametrize("direction", ["min", "max"])
def test_verdict_on_values_around_one(values, expected, direction):
    sign = 1 if direction == "min" else -1
    run = checked([sign * value for value in (1.0, 1.1, 0.9)], direction)
    finding = verdict(run, now(*(sign * value for value in values)))
    assert finding.verdict == expected
    assert bool(finding.reason) == (expected in ("worse", "inconclusive"))
    assert finding.passes == (expected in ("same", "better"))


def test_diverged_run_is_worse():
    finding = verdict(checked(), now(1.0, 1.1) | {2: SeedResult(diverged=True)})
    assert (finding.verdict, finding.reason) == ("worse", "diverged: seed 2")


def test_run_that_this_code_cannot_train_is_worse():
    finding = verdict(checked(), now(1.0, 1.1) | {2: SeedResult(broken="failed: lstm.py:7 raises ValueError")})
    assert (finding.verdict, finding.reason) == ("worse", "seed 2: failed: lstm.py:7 raises ValueError")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("lstm.py:7 raises ValueError", "broken"),
        ("segmentation fault", "broken"),
        ("killed by signal 9 (out of memory?)", "missing"),
        ("killed by signal 15 (Terminated)", "missing"),
    ],
)
def test_failed_run_is_broken_unless_the_system_killed_it(tmp_path, message, expected):
    config = resolve(Catalog(), "adding", "rnn", {})
    with open_store(str(tmp_path / "r.db"), create=True) as store:
        run = store.start(run_record(config.spec), {})
        store.update(run.id, {"status": "failed", "message": message})
        (result,) = collect_results(store, [config], None, {}).values()
        (refused,) = collect_results(store, [config], None, {config.spec.key: "no gradient"}).values()
        (other,) = collect_results(store, [config], {"commit": "another"}, {}).values()
    assert getattr(result, expected) == f"failed: {message}"
    assert not (result.broken and result.missing)
    assert (refused.broken, refused.missing) == ("could not start: no gradient", "")
    assert other.missing.startswith("by other code")


def test_unmeasured_run_is_missing():
    finding = verdict(checked(), now(1.0) | {1: SeedResult(missing="failed: no"), 2: SeedResult({("x", "final"): 1.0})})
    assert finding.verdict == "missing"
    assert finding.reason == "seeds 1, 2: failed: no; the task logs no metric 'mse'"


def test_best_test_depends_on_the_direction():
    run = checked()
    best = run.metrics["mse"].model_copy(update={"take": "best"})
    run = run.model_copy(update={"metrics": {"mse": best}})
    values = {("mse", "final"): 9.0, ("mse", "min"): 1.0, ("mse", "max"): 9.0}
    measured = {seed: SeedResult(values | {("seed", "final"): seed}) for seed in range(3)}
    assert verdict(run, measured).verdict == "same"


@pytest.mark.parametrize(
    ("values", "expected", "reason"),
    [
        ((1.0, 1.1, 0.9), "same", "equal to the last bit"),
        ((1.0, 1.1, 0.9 + 1e-15), "worse", "worse on average; changed: seed 2"),
        ((1.0, 1.1, 0.9 - 1e-15), "inconclusive", "better on average: update, with the reason; changed: seed 2"),
    ],
)
def test_exact_run_compares_every_bit(values, expected, reason):
    finding = verdict(checked(exact=True), now(*values))
    assert finding.verdict == expected
    assert reason in finding.reason


def test_equal_values_of_all_seeds_are_worse():
    """The seed then has no effect. A metric of few levels may be equal by chance, so all metrics are compared."""
    finding = verdict(checked(), now(1.0, 1.1, 1.0))
    assert finding.verdict == "worse"
    assert finding.reason == "the seed has no effect; equal in all metrics: seeds 0, 2"
    others = {
        seed: SeedResult({("mse", "final"): value, ("recall", "final"): seed})
        for seed, value in enumerate((1.0, 1.1, 1.0))
    }
    assert verdict(checked(), others).verdict == "same"


@pytest.mark.parametrize("before", [1.0, 1600.0, 2e-4, -20.0])
@pytest.mark.parametrize(
    ("factor", "expected"), [(1.0009, "same"), (1.0011, "worse"), (0.9991, "same"), (0.9989, "inconclusive")]
)
def test_exact_values_of_another_machine_agree_within_the_tolerance(before, factor, expected):
    """A share of the value's size: of 1600 1.6 may change, of 2e-4 2e-7."""
    run = checked([before], exact=True, tolerance=1e-3, seeds=(0,))
    value = before + abs(before) * (factor - 1)
    other = {0: SeedResult({("mse", "final"): value}, facts={**FACTS, "threads": 64})}
    finding = verdict(run, other)
    assert finding.verdict == expected
    if expected == "same":
        assert finding.reason == "equal on another kind of machine within: 0.001; seed 0: threads 2, now 64"
    assert verdict(run, now(before + abs(before) * 1e-15)).verdict == "worse"


def test_skipped_runs_pass_and_a_check_of_skipped_runs_alone_is_undecided():
    finding = skipped(checked(), "mnist is not installed: get it")
    assert (finding.verdict, finding.metric, finding.passes) == ("skipped", "mse", True)
    assert exit_code([finding, Finding("r", "m", Verdict.SAME, "")]) == 0
    assert exit_code([finding]) == 3


def test_one_seed_is_enough_for_an_exact_run():
    run = checked([0.25], exact=True, seeds=(0,))
    assert refusal(run, "c") is None
    assert verdict(run, now(0.25)).verdict == "same"


def test_exact_run_on_another_machine_or_seed_is_undecided():
    other = {0: SeedResult({("mse", "final"): 1.0}, facts={**FACTS, "cpu": "slide rule"})}
    finding = verdict(checked(exact=True), other)
    assert finding.verdict == "inconclusive"
    assert "cpu abacus, now slide rule" in finding.reason
    assert verdict(checked([1.0], exact=True), now(1.0, 2.0)).verdict == "missing"


def test_processors_of_one_name_and_different_model_are_different_machines():
    other = {0: SeedResult({("mse", "final"): 1.0}, facts={**FACTS, "cpu_model": "1/2/4"})}
    assert "cpu_model 1/2/3, now 1/2/4" in verdict(checked(exact=True), other).reason


def seeds_with(value, count):
    """Return results that have the same accuracy in each seed, and different losses."""
    return {
        seed: SeedResult({("accuracy", "final"): value, ("loss", "final"): float(seed)}, facts=FACTS)
        for seed in range(count)
    }


def measured_with(value, direction, count):
    metrics = {"accuracy": {"direction": direction}}
    run = CheckedRun(task="adding", model="lstm", metrics=metrics, seeds=tuple(range(8)))
    return with_new_values(run, resolve(Catalog(), "adding", "lstm", {}), seeds_with(value, count))


@pytest.mark.parametrize("direction", ["min", "max"])
@pytest.mark.parametrize("value", [2 / 3, 58 / 60])
def test_unchanged_value_of_all_seeds_is_the_same_although_no_loss_is_allowed(value, direction):
    """The mean of 13 values is rounded, and so is each value in the baseline."""
    run = measured_with(value, direction, 13)
    assert run.metrics["accuracy"].margin == 0
    finding = verdict(run, seeds_with(value, 8))
    assert (finding.verdict, f"{finding.loss:+g} {finding.upper:+g}") == ("same", "+0 +0")
    worse = verdict(run, seeds_with(value + (1 / 60 if direction == "min" else -1 / 60), 8))
    assert (worse.verdict, f"{worse.loss:.3f}") == ("worse", "0.017")


@pytest.mark.parametrize(
    ("deviations", "expected"),
    [(0, "same"), (1, "same"), (3, "inconclusive"), (5, "worse"), (-5, "better")],
)
@pytest.mark.parametrize("direction", ["min", "max"])
def test_three_standard_deviations_may_be_lost_unless_the_authors_allow_another_loss(deviations, expected, direction):
    """Of values with a mean of 0 and a standard deviation of 1, twenty in the baseline and eight now."""
    normal = NormalDist().inv_cdf
    before, values = ([normal((i + 0.5) / n) for i in range(n)] for n in (20, 8))
    before = [value / statistics.stdev(before) for value in before]
    loss = deviations if direction == "min" else -deviations
    run = checked(before, direction, allowed=None)
    finding = verdict(run, now(*(value + loss for value in values)))
    assert (finding.verdict, finding.allowed) == (expected, pytest.approx(3))
    strict = checked(before, direction, allowed=0.0)
    assert verdict(strict, now(*(value + loss for value in values))).allowed == 0


def test_two_seeds_are_undecided_with_the_reason():
    for run in (checked([1.0, 1.1]), checked(seeds=(0, 1))):
        finding = refusal(run, "c")
        assert finding.verdict == "inconclusive"
        assert "too few seeds: 2; at least: 3" in finding.reason
    assert refusal(checked(), "c") is None


def test_missing_values_and_another_task_are_refused():
    assert refusal(checked([]), "c").verdict == "missing"
    finding = refusal(checked(), "d")
    assert (finding.verdict, finding.passes) == ("inconclusive", False)


@pytest.mark.parametrize(
    ("ratios", "expected"), [((4, 4, 4), "same"), ((4, 4, 90), "same"), ((13, 13, 1), "worse"), ((1, 1, 1), "better")]
)
def test_speed_counts_on_request(ratios, expected):
    run = checked(step_ratio=4.0, speed={"allowed_factor": 3.0})
    measured = {
        seed: SeedResult({("mse", "final"): value}, facts=FACTS, speed=ratio)
        for seed, (value, ratio) in enumerate(zip((1.0, 1.1, 0.9), ratios, strict=True))
    }
    for counts in (False, True):
        metric, speed = judge(run, ORIGIN, measured, counts)
        assert speed.verdict == expected
        assert (speed.allowed, speed.direction) == (8.0, "min")  # 4 may become 3 x 4
        assert exit_code([metric, speed]) == (1 if counts and expected == "worse" else 0)


def test_unmeasured_speed_fails_only_on_request():
    run = checked(step_ratio=4.0)
    for counts, code in ((False, 0), (True, 3)):
        assert exit_code(judge(run, ORIGIN, now(1.0, 1.1, 0.9), counts)) == code


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ("same better", 0),
        ("same worse missing", 1),
        ("same missing", 3),
        ("inconclusive better", 3),
        ("inconclusive worse", 1),
    ],
)
def test_exit_code_of_each_verdict(verdicts, code):
    assert exit_code([Finding("r", "m", Verdict(name), "") for name in verdicts.split()]) == code


def test_markdown_shows_what_looks_like_html_or_a_column():
    finding = Finding("adding/<b>", "mse", Verdict.SAME, "a | b & <img src=x>")
    row = as_markdown("1 same", [finding]).splitlines()[4]
    assert "adding/&lt;b&gt;" in row
    assert "a \\| b &amp; &lt;img src=x&gt;" in row
