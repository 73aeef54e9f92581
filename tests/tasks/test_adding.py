import pytest
import torch

from orthobench.tasks.adding import Adding, AddingSettings

CPU = torch.device("cpu")


def _task(seed: int = 0, **settings) -> Adding:
    values = {"train_size": 20_000, "test_size": 10, "sequence_length": 20, **settings}
    return Adding(AddingSettings(**values), seed, CPU)


def test_target_is_the_sum_of_the_two_marked_values():
    batch = _task().train.batch(torch.arange(50))
    assert batch.inputs.shape == (20, 50, 2)
    values, markers = batch.inputs.unbind(-1)
    assert set(markers.unique().tolist()) == {0.0, 1.0}
    assert (markers.sum(0) == 2).all()
    torch.testing.assert_close((values * markers).sum(0), batch.targets[:, 0])
    assert 0 <= values.min() < values.max() < 1


@pytest.mark.parametrize(
    ("layout", "length", "first", "second"),
    [
        ("scornn", 200, (0, 98), (99, 199)),
        ("scornn", 21, (0, 9), (10, 20)),
        ("halves", 200, (0, 99), (100, 199)),
        ("halves", 21, (0, 9), (10, 20)),
    ],
)
def test_markers_are_in_the_halves_of_the_programs(layout, length, first, second):
    marked = _task(sequence_length=length, marker_layout=layout).train.marked
    for column, (low, high) in zip(marked.unbind(1), (first, second), strict=True):
        assert (column.min().item(), column.max().item()) == (low, high)


def test_markers_anywhere_are_two_distinct_uniform_steps():
    marked = _task(marker_layout="anywhere").train.marked
    assert (marked[:, 0] != marked[:, 1]).all()
    counts = torch.bincount(marked.flatten(), minlength=20).float()
    assert ((counts / 2000 - 1).abs() < 0.1).all()


def test_baseline_is_the_variance_of_the_data():
    task = _task()
    targets = task.train.batch(torch.arange(20_000)).targets
    total, weight = task.measure(torch.ones_like(targets), targets)["mse"]
    baseline = Adding.baselines(AddingSettings())["mse"]
    assert baseline == pytest.approx(0.1667, abs=5e-5)
    assert float(total) / weight == pytest.approx(baseline, rel=0.03)
    assert task.loss(torch.ones_like(targets), targets).item() == pytest.approx(float(total) / weight)


def test_another_seed_gives_other_data():
    first, second = (_task(seed).train.batch(torch.arange(5)).inputs for seed in (0, 1))
    assert not torch.equal(first, second)


def test_longer_tests_measure_the_error_at_multiples_of_the_length():
    """A layer that adds what it sees at marked steps is right at every length; one that stops after T steps is not."""

    class Sum(torch.nn.Module):
        def __init__(self, steps: int) -> None:
            super().__init__()
            self.steps, self.unused = steps, torch.nn.Parameter(torch.zeros(1))

        def forward(self, inputs, *_, **__):
            return inputs[: self.steps].prod(-1).sum(0).unsqueeze(-1), ()

    task, done = _task(longer_tests=True, test_size=150), []
    assert task.final_metrics(Sum(1000), lambda *parts: done.append(parts)) == pytest.approx(
        {"mse_2t": 0, "mse_4t": 0, "mse_8t": 0}, abs=1e-12
    )
    assert done == [(number, 6) for number in range(1, 7)]
    blind = task.final_metrics(Sum(0), lambda *_: None)
    assert blind == pytest.approx(dict.fromkeys(blind, 1 + 2 / 12), rel=0.15)  # E(x + y)^2
    half = task.final_metrics(Sum(19), lambda *_: None)
    assert half["mse_2t"] == pytest.approx(1 / 3, rel=0.2)  # the second of two values is missed, E(y^2)
    assert half["mse_8t"] > half["mse_2t"]
    assert (
        set(blind) | {"mse"}
        == {metric.name for metric in task.metrics}
        == set(task.baselines(AddingSettings(longer_tests=True)))
    )
    assert not _task().has_final_metrics
    assert "longer_tests" not in AddingSettings().canonical()  # so that runs from before the setting keep their keys
