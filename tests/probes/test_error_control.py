"""The ratio, the threshold and the horizons against closed forms: rotations, attractors, random affine maps."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

import orthobench as ob
from orthobench.probe import ProbeContext, ProbeResult
from orthobench.probes.error_control import (
    ErrorControl,
    horizon,
    merged_lengths,
    readability_radius,
    separation,
    state_means,
    symbolic_projector,
)
from orthobench.store import open_store
from orthobench.task import Batch

STEPS = 400


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

    return ErrorControl()(ProbeContext(model, task, task.train.batch(torch.arange(4))))


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


@pytest.mark.parametrize(("count", "error"), [(5, 0.004), (12, 0.002), (60, 0.0003)])
def test_rotation_with_an_error_loses_its_states_after_pi_over_k_errors(count, error):
    """The means lie at the average angle of training, 10.5 errors ahead, and the decoder errs after pi / k."""
    result = on_walks(count, turned(count, error), size=512)
    measured, predicted = (result.values[f"error_control/{name}_horizon"] for name in ("measured", "predicted"))
    assert measured == math.floor(math.pi / (count * error))
    assert predicted == pytest.approx(math.pi / (count * error), rel=0.15)
    ratios = np.array(result.vectors["error_control/ratio"])
    angles = error * (np.arange(1, STEPS + 1) - 10.5)
    closed_form = np.abs(np.sin(angles / 2)) / np.sin(np.pi / count)
    assert ratios[40:] == pytest.approx(closed_form[40:], rel=0.04)


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
    """An attractor's spread tends to noise / sqrt(1 - c^2); without contraction it grows as noise sqrt(t).

    The states are lost where P(|e| < pi / k), for a normal error e, is the level.
    """
    count, noise, generator = 6, 0.02, torch.Generator().manual_seed(3)

    def outputs(states):
        return on_circle(states, count, errors(*states.shape, noise, contraction, generator))

    result = on_walks(count, outputs, size=1024)
    times = np.arange(1, STEPS + 1)
    variance = noise**2 * (times if contraction == 1 else (1 - contraction ** (2 * times)) / (1 - contraction**2))
    level = 0.9 + 0.1 / count
    reach = math.sqrt(2) * float(torch.erfinv(torch.tensor(level, dtype=torch.float64)))  # P(|e| < reach) = level
    closed_form = np.sin(reach * np.sqrt(variance) / 2) / np.sin(np.pi / count)
    assert np.array(result.vectors["error_control/ratio"]) == pytest.approx(closed_form, rel=0.12)
    measured, predicted = (result.values[f"error_control/{name}_horizon"] for name in ("measured", "predicted"))
    lost = (math.pi / count / (reach * noise)) ** 2 if contraction == 1 else math.inf
    assert measured == pytest.approx(lost, rel=0.2)
    assert predicted == pytest.approx(lost, rel=0.4)


def test_affine_maps_that_keep_the_states_cannot_contract_between_them():
    """Theorem 1: where a random affine map keeps all means, deviations in their span stay as they are."""
    draw = np.random.default_rng(0)
    means = torch.from_numpy(draw.normal(size=(4, 9)))
    projector = symbolic_projector(means)
    assert float(projector.trace()) == pytest.approx(3)
    torch.testing.assert_close(projector @ projector, projector)
    free = torch.from_numpy(draw.normal(size=(9, 9)))
    matrix = projector + free @ (torch.eye(9, dtype=torch.float64) - projector)
    shift = means[0] - matrix @ means[0]
    torch.testing.assert_close(means @ matrix.T + shift, means)  # it keeps the other three, too
    inside = torch.from_numpy(draw.normal(size=(50, 9))) @ projector
    after = (means[0] + inside) @ matrix.T + shift - means[0]
    torch.testing.assert_close((after @ projector).norm(dim=1), inside.norm(dim=1))
    cut = 0.5 * projector + free @ (torch.eye(9, dtype=torch.float64) - projector)
    assert not torch.allclose(means @ cut.T + (means[0] - cut @ means[0]), means)  # a map that contracts moves them


def test_spread_and_separation_of_random_clouds_match_numpy():
    draw = np.random.default_rng(1)
    centres, states = draw.normal(size=(3, 7)), draw.integers(0, 3, 5000)
    cloud = centres[states] + draw.normal(size=(5000, 7)) @ np.diag(np.linspace(0.1, 0.7, 7))
    means = state_means(torch.from_numpy(cloud), torch.from_numpy(states))
    by_numpy = np.stack([cloud[states == state].mean(0) for state in range(3)])
    np.testing.assert_allclose(means, by_numpy, atol=1e-12)
    distances = np.linalg.norm(by_numpy[:, None] - by_numpy[None], axis=-1) + np.diag([np.inf] * 3)
    assert separation(means) == pytest.approx(distances.min(1).mean())
    basis = np.linalg.qr((by_numpy[1:] - by_numpy[0]).T)[0]
    np.testing.assert_allclose(symbolic_projector(means), basis @ basis.T, atol=1e-12)


def test_readability_radius_on_a_line_is_half_the_distance():
    """Two states with outputs (a, -a) and (-a, a): half of the deviations lead to the other one, at a sqrt(2)."""
    means = torch.tensor([[3.0, -3.0], [-3.0, 3.0]], dtype=torch.float64)
    deviations = torch.tensor([[0.1, -0.1], [-0.2, 0.2], [0.5, -0.5]], dtype=torch.float64)
    states = torch.tensor([0, 0, 1])
    assert readability_radius(means, deviations, states, 0.9) == pytest.approx(3 * math.sqrt(2))
    assert readability_radius(means, deviations, states, 0.4) == math.inf
    assert readability_radius(means, 0 * deviations, states, 0.9) == math.inf
    assert readability_radius(-means, deviations, states, 0.9) == 0  # a decoder that reads the means wrong


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


TINY = {"hidden_size": 8, "train_size": 320, "batch_size": 32, "epochs": 1, "evaluate_every": 10, "longest": 6}
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
