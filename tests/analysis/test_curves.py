"""Curves over seeds: medians, bands, and seeds that drop out."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from orthobench.analysis.curves import curve_over_seeds, vector_curve
from orthobench.analysis.logged import NOTHING, Logged, Vectors
from orthobench.store import Status


def runs(*statuses: Status):
    return [
        SimpleNamespace(id=10 + number, status=status, solved_at=None, segment_rows=[])
        for number, status in enumerate(statuses)
    ]


def rows(*curves: dict[int, float]) -> Logged:
    """A curve of each run, as values by iteration."""
    points = [(10 + number, i, value) for number, curve in enumerate(curves) for i, value in curve.items()]
    return Logged.of(*zip(*points, strict=True))


def test_curve_is_the_median_with_a_band():
    curve = curve_over_seeds(rows({0: 1.0, 5: 1e-17}, {0: 3.0, 5: 1e-17}, {0: 2.0, 5: 5e-14}), runs(*["finished"] * 3))
    np.testing.assert_array_equal(curve.x, [0, 5])
    np.testing.assert_array_equal(curve.median, [2.0, 1e-17])  # the mean would be 1.7e-14: a single seed's
    np.testing.assert_array_equal(curve.low, [1.0, 1e-17])
    np.testing.assert_array_equal(curve.high, [3.0, 5e-14])
    assert curve.losses == ()


def test_seed_that_drops_out_is_marked_where_it_ends():
    data = rows({0: 1.0, 5: 0.5, 10: 0.4}, {0: 2.0, 5: 0.7, 10: 0.6}, {0: 3.0, 5: 9.0, 7: math.inf})
    curve = curve_over_seeds(data, runs("finished", "finished", "diverged"))
    np.testing.assert_array_equal(curve.x, [0, 5, 10])  # 7 is off the grid of the seeds that go on
    np.testing.assert_array_equal(curve.median, [2.0, 0.7, 0.5])
    (loss,) = curve.losses
    assert (loss.iteration, loss.value, loss.words) == (5, 0.7, "2 of 3 seeds left: 1 diverged")
    assert loss.outcome == Status.DIVERGED


def test_curve_of_two_back_ends_says_where_they_change():
    """On the median of both seeds, half way from 2 to 4; a resumption on the same back end is no change."""

    def segments(**backends: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(iteration=int(at[1:]), backend=backend) for at, backend in backends.items()]

    both = runs("finished", "finished")
    both[0].segment_rows = segments(_0="cuda", _3="cuda", _15="cpu", _18="cpu", _19=None)
    curve = curve_over_seeds(rows({0: 0.0, 10: 1.0, 20: 2.0}, {0: 0.0, 10: 3.0, 20: 6.0}), both)
    (switch,) = curve.switches
    assert (switch.iteration, switch.value) == (15, 3.0)
    assert switch.words == "1 of 2 seeds on cuda, then on cpu from iteration 15 on"
    assert curve.losses == ()
    (alone,) = curve_over_seeds(rows({0: 0.0, 10: 1.0, 20: 2.0}), both[:1]).switches
    assert (alone.value, alone.words) == (1.5, "on cuda, then on cpu from iteration 15 on")


@pytest.mark.parametrize("status", ["finished", "diverged", "interrupted"])
def test_iteration_without_every_living_seed_is_left_out(status):
    """The second seed ends at 7 with the lowest value: a median of it alone would be a dip that no seed has."""
    data = rows({0: 4.0, 5: 2.0, 10: 1.0}, {0: 2.0, 5: 1.0, 7: 0.1}, {0: 6.0, 5: 3.0, 10: 3.0})
    curve = curve_over_seeds(data, runs("finished", status, "finished"))
    np.testing.assert_array_equal(curve.x, [0, 5, 10])
    np.testing.assert_array_equal(curve.median, [4.0, 2.0, 2.0])
    np.testing.assert_array_equal(curve.low, [2.0, 1.0, 1.0])
    np.testing.assert_array_equal(curve.high, [6.0, 3.0, 3.0])
    (loss,) = curve.losses
    assert (loss.iteration, loss.left) == (5, 2)


def test_iteration_of_the_only_living_seed_is_shown():
    """The first seed goes on alone, on a grid of its own: nobody else could have been evaluated at 8."""
    curve = curve_over_seeds(rows({0: 4.0, 5: 2.0, 8: 1.0}, {0: 2.0, 5: 1.0}), runs("finished", "diverged"))
    np.testing.assert_array_equal(curve.x, [0, 5, 8])
    np.testing.assert_array_equal(curve.median, [3.0, 1.5, 1.0])


def test_non_finite_value_is_a_gap_and_at_the_end_a_loss():
    curve = curve_over_seeds(rows({0: 1.0, 5: math.nan, 10: 2.0, 15: math.inf}), runs("finished"))
    np.testing.assert_array_equal(curve.x, [0, 5, 10])
    np.testing.assert_array_equal(curve.median, [1.0, math.nan, 2.0])
    assert [loss.words for loss in curve.losses] == ["without a finite value"]
    assert len(curve_over_seeds(rows({0: math.nan, 5: math.inf}), runs("diverged"))) == 0


@pytest.mark.parametrize(
    ("status", "words"), [("diverged", "diverged"), ("interrupted", "interrupted"), ("running", "still running")]
)
def test_single_seed_ends_with_its_outcome(status, words):
    (loss,) = curve_over_seeds(rows({0: 1.0, 5: 2.0}), runs(status)).losses
    assert (loss.iteration, loss.words) == (5, words)


def test_all_seeds_lost_or_without_values():
    data = rows({0: 1.0, 5: 2.0}, {0: 1.0})
    losses = curve_over_seeds(data, runs("interrupted", "diverged", "failed")).losses
    assert [loss.words for loss in losses] == ["1 of 3 seeds left: 1 diverged, 1 failed", "no seed left: 1 interrupted"]
    assert len(curve_over_seeds(NOTHING, runs("failed"))) == 0


def test_non_finite_value_does_not_improve_the_median():
    curve = curve_over_seeds(
        rows({0: 1.0, 5: math.nan, 10: 1.0}, {0: 3.0, 5: 3.0, 10: 3.0}), runs("finished", "finished")
    )
    np.testing.assert_array_equal(curve.median, [2.0, np.nan, 2.0])
    assert curve.losses == ()


def test_solved_seed_keeps_its_last_value():
    """Without it the median after 5 would be that of the two slow seeds, and the curve would rise."""
    data = rows({0: 0.2, 5: 1.0}, {0: 0.1, 5: 0.3, 10: 0.8}, {0: 0.3, 5: 0.4, 10: 0.5, 15: 0.9})
    all_runs = runs("finished", "diverged", "finished")
    all_runs[0].solved_at = 5
    curve = curve_over_seeds(data, all_runs)
    np.testing.assert_array_equal(curve.x, [0, 5, 10, 15])
    np.testing.assert_array_equal(curve.median, [0.2, 0.4, 0.8, 0.95])
    np.testing.assert_array_equal(curve.high, [0.3, 1.0, 1.0, 1.0])
    solved, lost = curve.losses
    assert (solved.iteration, solved.words) == (5, "1 of 3 seeds solved, kept at the last value")
    assert (lost.iteration, lost.words) == (10, "2 of 3 seeds left: 1 diverged")
    (alone,) = curve_over_seeds(rows({0: 0.2, 5: 1.0}), all_runs[:1]).losses
    assert (alone.iteration, alone.words, alone.solved) == (5, "solved", True)


def test_last_vector_of_a_solved_seed_counts():
    data = Vectors.of([(10, 0, 4, [2.0]), (11, 0, 4, [4.0]), (11, 0, 9, [8.0])])
    all_runs = runs("finished", "finished")
    all_runs[0].solved_at = 4
    iteration, last = vector_curve(data, all_runs, last=True)
    assert (iteration, list(last.median), last.losses) == (9, [5.0], ())


def test_vectors_are_summarised_over_seeds():
    first = [(10, 0, 0, [1.0, 2.0]), (11, 0, 0, [3.0, 6.0]), (12, 0, 0, [2.0, 4.0])]
    data = Vectors.of([*first, (10, 1, 9, [3.0, 0.0]), (11, 1, 9, [5.0, 1e-40])])
    all_runs = runs("finished", "finished", "interrupted")
    iteration, first = vector_curve(data, all_runs, last=False)
    assert (iteration, first.losses) == (0, ())
    np.testing.assert_array_equal(first.median, [2.0, 4.0])
    iteration, last = vector_curve(data, all_runs, last=True)
    np.testing.assert_array_equal(last.x, [1, 2])
    np.testing.assert_array_equal(last.median, [4.0, 5e-41])
    assert (iteration, [loss.words for loss in last.losses]) == (9, ["2 of 3 seeds left: 1 interrupted"])
    assert vector_curve(Vectors.of([]), all_runs, last=True) is None


def test_shorter_vector_counts_up_to_its_length():
    """The longest sequence of a batch may differ from seed to seed."""
    vectors = Vectors.of([(10, 0, 5, [1.0, 2.0, 3.0]), (11, 0, 5, [3.0, 4.0])])
    _, curve = vector_curve(vectors, runs("finished", "finished"), last=True)
    assert curve.x.tolist() == [1, 2, 3]
    assert curve.median.tolist() == [2, 3, 3]
    assert curve.low.tolist() == [1, 2, 3]
