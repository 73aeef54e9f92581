"""The ratio, the threshold and the horizons against closed forms: rotations, attractors, random affine maps."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import orthobench as ob
from orthobench.probe import ProbeContext, ProbeResult
from orthobench.probes.error_control import (
    ErrorControl,
    horizon,
    margins,
    merged_lengths,
    ratio_of,
    read_states,
    readability_threshold,
    relative_deviations,
)
from orthobench.store import open_store
from orthobench.task import Batch

STEPS = 400
NORMAL = stats.norm()


class Walks:
    """Walks on a cycle of k states: the symbols are the steps, and the targets the states after each."""

    def __init__(self, count: int, size: int, steps: int, seed: int) -> None:
        draws = np.random.default_rng(seed).integers(0, count, (steps, size))
        self.symbols, self.states = torch.from_numpy(draws), torch.from_numpy(draws.cumsum(0) % count)

    def __len__(self) -> int:
        return self.symbols.shape[1]

    def batch(self, examples: Tensor) -> Batch:
        return Batch(self.symbols[:, examples], self.states[:, examples])


def on_walks(count: int, outputs_of, *, size: int = 128, tracks: bool = True) -> ProbeResult:
    """The probe's result for the function that maps states `[T, B]` to outputs `[T, B, k]`."""
    task = SimpleNamespace(
        tracks_states=tracks, train=Walks(count, 256, 20, seed=1), test=Walks(count, size, STEPS, seed=2)
    )

    def model(symbols, *_, **__):
        return outputs_of(symbols.cumsum(0) % count), ()

    context: Any = ProbeContext
    return ErrorControl()(context(model, task, task.train.batch(torch.arange(4))))


def on_circle(states: Tensor, count: int, drift: Tensor | float = 0.0) -> Tensor:
    """Outputs whose maximum is at the state's own angle on a circle, turned by `drift`."""
    angles = 2 * math.pi * states / count + drift
    return torch.cos(angles.unsqueeze(-1) - 2 * math.pi * torch.arange(count) / count)


def turned(count: int, error: float):
    """A rotation by 2 pi / k for each step of the walk, with an error in every angle."""

    def outputs(states):
        times = torch.arange(1, len(states) + 1, dtype=torch.float64).unsqueeze(1)
        return on_circle(states, count, error * times)

    return outputs


@pytest.mark.parametrize(("count", "error"), [(2, 0.01), (5, 0.004), (12, 0.002), (60, 0.0003)])
def test_rotation_with_an_error_loses_its_states_after_pi_over_k_errors(count, error):
    result = on_walks(count, turned(count, error), size=512)
    lost = math.floor(math.pi / (count * error))
    assert result.values["error_control/measured_horizon"] == lost
    assert result.values["error_control/predicted_horizon"] == lost
    ratios = np.array(result.vectors["error_control/ratio"])
    assert ratios[:lost] == pytest.approx(0, abs=1e-6)  # all sequences have turned by the same angle
    assert np.isinf(ratios[lost:]).all()


def test_exact_rotation_and_forgetting_model():
    kept = on_walks(5, lambda states: on_circle(states, 5).double()).values
    assert kept["error_control/predicted_horizon"] == kept["error_control/measured_horizon"] == math.inf
    assert kept["error_control/trained_accuracy"] == 1
    blind = on_walks(5, lambda states: torch.randn(*states.shape, 5, generator=torch.Generator().manual_seed(0))).values
    assert blind["error_control/measured_horizon"] == blind["error_control/predicted_horizon"] == 0
    assert blind["error_control/trained_accuracy"] == pytest.approx(0.2, abs=0.03)


def errors(steps: int, size: int, noise: float, contraction: float, generator: torch.Generator) -> Tensor:
    """e_t = c e_{t-1} + noise, in angles."""
    draws = noise * torch.randn(steps, size, dtype=torch.float64, generator=generator)
    states, state = [], torch.zeros(size, dtype=torch.float64)
    for draw in draws:
        state = contraction * state + draw
        states.append(state)
    return torch.stack(states)


@pytest.mark.parametrize("contraction", [0.9, 1.0])
def test_attractor_holds_and_neutral_map_diffuses(contraction):
    """An attractor's errors tend to noise / sqrt(1 - c^2); without contraction they grow as noise sqrt(t).

    On a circle the margin is 2 sin(pi / k) sin(pi / k - |e|), and it is positive for a share L of normal errors e if
    P(|e| < pi / k) = L.
    """
    count, noise, generator = 6, 0.02, torch.Generator().manual_seed(3)

    def outputs(states):
        return on_circle(states, count, errors(*states.shape, noise, contraction, generator))

    result = on_walks(count, outputs, size=1024)
    times = np.arange(1, STEPS + 1)
    deviation = noise * np.sqrt(times if contraction == 1 else (1 - contraction ** (2 * times)) / (1 - contraction**2))
    quantiles = NORMAL.ppf((np.arange(20_000) + 0.5) / 20_000)
    margin = np.sin(np.pi / count - np.abs(deviation[:, None] * quantiles))
    closed_form = margin.std(1) / margin.mean(1)
    assert np.array(result.vectors["error_control/ratio"]) == pytest.approx(closed_form, rel=0.15)
    level = 0.9 + 0.1 / count
    lost = (math.pi / count / (NORMAL.ppf((1 + level) / 2) * noise)) ** 2 if contraction == 1 else math.inf
    measured, predicted = (result.values[f"error_control/{name}_horizon"] for name in ("measured", "predicted"))
    assert measured == pytest.approx(lost, rel=0.2)
    assert predicted == pytest.approx(lost, rel=0.2)


@pytest.mark.parametrize("wrong", [1, 3])
def test_few_states_that_are_never_read_leave_the_horizons_of_the_others(wrong):
    """With 20 states, one may be unread at a level of 0.905; of the rest, 0.905 / 0.95 have to be read."""
    count, noise, generator = 20, 0.008, torch.Generator().manual_seed(3)

    def outputs(states):
        shown = torch.where(states < wrong, states + wrong, states)
        return on_circle(shown, count, errors(*states.shape, noise, 1.0, generator))

    values = on_walks(count, outputs, size=1024).values
    measured, predicted = (values[f"error_control/{name}_horizon"] for name in ("measured", "predicted"))
    if wrong > 1:
        assert (values["error_control/threshold"], measured) == (0, 0)
        return
    quantile = NORMAL.ppf((1 + (0.9 + 0.1 / count) / (1 - wrong / count)) / 2)
    assert measured == pytest.approx((math.pi / count / (quantile * noise)) ** 2, rel=0.2)
    assert predicted == pytest.approx(measured, rel=0.2)


def test_random_affine_maps_spread_errors_as_their_covariance():
    """h <- A h + noise, read by a random plane: the margin is normal, with the variance of the closed form."""
    draw = np.random.default_rng(0)
    matrix = draw.normal(size=(5, 5)) / 3
    mean, covariance = draw.normal(size=5), np.zeros((5, 5))
    h = np.tile(mean, (20_000, 1))
    for _ in range(6):
        mean, covariance = matrix @ mean, matrix @ covariance @ matrix.T + 0.01 * np.eye(5)
        h = h @ matrix.T + 0.1 * draw.normal(size=h.shape)
    readout = draw.normal(size=(2, 5))
    across = readout[0] - readout[1]
    offset = np.array([1.0 - across @ mean, 0.0])  # so that the mean margin is 1
    margin = margins(torch.from_numpy(h @ readout.T + offset), torch.zeros(len(h), dtype=torch.int64))
    assert float(margin.mean()) == pytest.approx(1, abs=0.02)
    deviations = relative_deviations(margin, torch.zeros(len(h), dtype=torch.int64))
    assert ratio_of(deviations) == pytest.approx(math.sqrt(across @ covariance @ across), rel=0.03)
    assert readability_threshold(deviations, 0.95) == pytest.approx(1 / NORMAL.ppf(0.95), rel=0.03)


def test_affine_map_that_keeps_the_states_cannot_lower_the_ratio_and_a_nonlinear_one_can():
    """Theorem 1: a random affine map with fixed points in all states is the identity between them."""
    draw = np.random.default_rng(0)
    means = torch.from_numpy(draw.normal(size=(4, 9)))
    span = torch.linalg.svd(means[1:] - means[0], full_matrices=False)[2]
    between = span.T @ span
    matrix = between + torch.from_numpy(draw.normal(size=(9, 9))) @ (torch.eye(9, dtype=torch.float64) - between)
    shift = means[0] - matrix @ means[0]
    torch.testing.assert_close(means @ matrix.T + shift, means)
    states = torch.arange(4).repeat(500)
    start = means[states] + 0.1 * torch.from_numpy(draw.normal(size=(2000, 9))) @ between

    def ratio(h: Tensor) -> float:
        outputs = 2 * h @ means.T - means.square().sum(1)  # the nearest state has the largest output
        return ratio_of(relative_deviations(margins(outputs, states), states))

    assert ratio(start @ matrix.T + shift) == pytest.approx(ratio(start))
    nearest = torch.cdist(start, means).argmin(1)
    assert ratio(means[nearest] + 0.5 * (start - means[nearest])) < 0.6 * ratio(start)


def test_margins_and_deviations_match_numbers_by_hand():
    outputs = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0], [2.0, 1.0, 0.0], [0.0, 1.0, 3.0]], dtype=torch.float64)
    states = torch.tensor([0, 1, 0, 1])
    assert margins(outputs, states).tolist() == [1, 1, 1, -2]
    assert relative_deviations(margins(outputs, states), states) is None  # state 1 has a mean margin of -1/2
    margin = torch.tensor([1.0, 3.0, 10.0, 30.0], dtype=torch.float64)
    deviations = relative_deviations(margin, torch.tensor([0, 0, 2, 2]))
    assert deviations.tolist() == [-0.5, 0.5, -0.5, 0.5]
    assert ratio_of(deviations) == 0.5
    assert readability_threshold(deviations, 0.9) == 1  # all margins are positive up to a ratio of 1
    assert read_states(margins(outputs, states), states).tolist() == [0]
    assert (ratio_of(None), readability_threshold(None, 0.9)) == (math.inf, 0)
    assert readability_threshold(0 * deviations, 0.9) == math.inf


def test_horizon_and_merged_lengths():
    assert horizon([4, 8, 12], [True, True, False]) == 8
    assert horizon([4, 8, 12], [False, True, True]) == 0
    assert horizon([4, 8, 12], [True, True, True]) == math.inf
    counts = torch.tensor([0, 3, 0, 40, 20, 10, 5, 1])
    assert merged_lengths(counts, 32) == [(3, 43), (7, 36)]
    assert merged_lengths(torch.tensor([0, 40, 40]), 32) == [(1, 40), (2, 40)]
    assert merged_lengths(torch.tensor([0, 3, 4])) == [(2, 7)]


def test_task_without_states_and_outputs_without_numbers_have_no_result():
    assert not on_walks(5, lambda states: on_circle(states, 5), tracks=False).values
    assert not on_walks(5, lambda states: on_circle(states, 5) * math.nan).values


TINY: dict[str, Any] = {
    "hidden_size": 8,
    "train_size": 320,
    "batch_size": 32,
    "epochs": 1,
    "evaluate_every": 10,
    "longest": 6,
}
TINY |= {"test_longest": 12, "probes": "error_control"}


@pytest.mark.parametrize("model", ["gru", "torch.nn:GRU"])
def test_accuracy_of_a_run_is_its_accuracy_over_length(tmp_path, model):
    """The run counts the same answers length by length, so both vectors agree, also for a layer of another program."""
    settings = TINY | {"language": "cycle_nav", "test_shortest": 4, "test_size": 2000}
    ob.run("formal_language", model, db=str(tmp_path / "runs.db"), settings=settings)
    with open_store(str(tmp_path / "runs.db")) as store:
        (run,) = store.runs()
        traces = store.traces([run.id])
        last = {row.name: list(row.values) for row in traces if row.iteration == run.iterations}
        measured = store.metrics([run.id], "probe", "error_control/predicted_horizon")
    assert last["error_control/lengths"] == last["by_length/lengths"] == list(range(4, 13))
    assert last["error_control/accuracy"] == pytest.approx(last["by_length/accuracy"])
    assert [row.iteration for row in measured] == [0, 10]
