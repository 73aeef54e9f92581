"""FitzHugh-Nagumo: the data are the program's, the equations those of the paper, and the error is counted as there."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from orthobench import load_model
from orthobench.store import open_store
from orthobench.tasks.fitzhugh_nagumo import FitzHughNagumo, FitzHughNagumoSettings

CPU = torch.device("cpu")
SMALL = {"train_size": 6, "validation_size": 4, "test_size": 5}


def _task(seed: int = 0, **settings) -> FitzHughNagumo:
    return FitzHughNagumo(FitzHughNagumoSettings(**(SMALL | settings)), seed, CPU)


def _equations(_time, state):
    v, w = state
    return [v - v**3 / 3 - w + 0.5, (1 / 50) * (v + 0.7 - 0.8 * w)]


def _solve(start: float, end: float, points: int, **options):
    return solve_ivp(_equations, [0, end], [start, 0.0], t_eval=np.linspace(0, end, points), **options).y[0]


def test_start_values_match_the_program():
    """One draw a sequence from NumPy's global generator, seeded by 1234: training, validation, test."""
    np_random = np.random.RandomState(1234)
    drawn = [float(np_random.rand(1)[0]) * 2.0 - 1.0 for _ in range(15)]
    task = _task(sequence_length=4, duration=2.0)
    start = torch.cat([split.values[0] for split in (task.train, task.validation, task.test)])
    torch.testing.assert_close(start, torch.tensor(drawn), rtol=0, atol=0)


def test_data_match_scipys_rk45_up_to_the_first_spike():
    """Later the step control amplifies rounding, in scipy as here."""
    task = _task(sequence_length=60, duration=24.0)
    start = 2 * np.random.RandomState(1234).rand(6) - 1
    for column, value in enumerate(start):
        expected = torch.from_numpy(_solve(value, 24.0, 61)).float()
        torch.testing.assert_close(task.train.values[:, column], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("tolerance", "apart"), [(1e-9, 1e-3), (1e-6, 2e-3), (1e-3, 0.6)])
def test_whole_solution_is_exact_up_to_its_tolerance(tolerance, apart):
    """A second integrator of order eight with a tight tolerance; the default tolerance moves the spikes."""
    task = _task(relative_tolerance=tolerance)
    start = 2 * np.random.RandomState(1234).rand(6) - 1
    exact = np.stack([_solve(value, 400.0, 1001, method="DOP853", rtol=1e-12, atol=1e-12) for value in start[:3]], 1)
    difference = np.abs(task.train.values[:, :3].numpy() - exact)
    assert difference.max() < apart
    assert (difference.max() > 0.1) == (tolerance == 1e-3)
    assert 1.3 < exact.std() < 1.6


def test_target_is_the_next_value():
    task = _task(sequence_length=20, duration=8.0)
    batch = task.train.batch(torch.tensor([3, 1]))
    assert batch.inputs.shape == batch.targets.shape == (20, 2, 1)
    assert torch.equal(batch.inputs[1:], batch.targets[:-1])
    assert torch.equal(batch.inputs[:, :, 0], task.train.values[:-1, [3, 1]])


def test_data_of_the_program_are_the_same_for_every_run():
    first, second = (_task(seed, sequence_length=4).train.values for seed in (0, 1))
    assert torch.equal(first, second)
    first, second = (_task(seed, sequence_length=4, data_seed="run").train.values for seed in (0, 1))
    assert not torch.equal(first, second)
    assert -1 <= first[0].min() < first[0].max() <= 1


@pytest.mark.parametrize(("size", "left"), [(1024, 128), (300, 44), (128, 128), (5, 5)])
def test_only_the_last_batch_counts_by_default(size, left):
    short = {"sequence_length": 2, "duration": 0.8, "test_size": size, "validation_size": size}
    last, every = _task(**short), _task(**short, counted="all")
    assert len(every.test) == len(every.validation) == size
    assert len(last.test) == len(last.validation) == left
    assert torch.equal(last.test.values, every.test.values[:, -left:])
    assert torch.equal(last.validation.values, every.validation.values[:, -left:])
    assert torch.equal(last.train.values, every.train.values)


def test_metric_is_the_root_mean_squared_error():
    task = _task(sequence_length=10, duration=4.0)
    batch = task.test.batch(torch.arange(5))
    outputs = batch.targets + torch.linspace(-1, 2, 50).view(10, 5, 1)
    means = {name: float(total) / weight for name, (total, weight) in task.measure(outputs, batch.targets).items()}
    expected = (outputs - batch.targets).square().mean().item()
    assert task.loss(outputs, batch.targets).item() == pytest.approx(expected)
    assert task.summarise(means) == {"rmse": pytest.approx(math.sqrt(expected))}


def test_baseline_is_the_deviation_of_the_data():
    settings = FitzHughNagumoSettings(**SMALL)
    task = FitzHughNagumo(settings, 0, CPU)
    baseline = FitzHughNagumo.baselines(settings)["rmse"]
    assert baseline == pytest.approx(task.test.values[1:].std().item(), rel=2e-2)


def test_run_stores_the_error_over_whole_splits(orthobench):
    """Evaluation batches of five sequences: the root is that of the mean over all of them."""
    sizes = {"sequence_length": 20, "duration": 8.0, "train_size": 32, "validation_size": 12, "test_size": 12}
    options = [f"{name}={value}" for name, value in {**sizes, "epochs": 1, "evaluation_batch_size": 5}.items()]
    done = orthobench("run", "fitzhugh_nagumo", "lem", *(part for option in options for part in ("-s", option)))
    assert done.code == 0, done.err
    with open_store("results.db") as store:
        (run,) = store.runs()
    trained = load_model(run.key, "results.db", weights="best")
    batch = trained.task.test.batch(torch.arange(12))
    error = (trained(batch.inputs) - batch.targets).square().mean().sqrt()
    assert run.best_value == pytest.approx(error.item(), rel=1e-5)
    assert trained.model.hidden_size == 16
