"""The best constant answer on a run's own sequences, next to what NumPy computes from their targets."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from orthobench.plugins import Catalog
from orthobench.task import Batch

CATALOG = Catalog()


def built(name: str, **settings):
    task_class = CATALOG.load("task", name)
    return task_class(task_class.Settings(**settings), 3, torch.device("cpu"))


def targets_of(task) -> np.ndarray:
    return Batch.of(task.test, torch.arange(len(task.test))).targets.numpy()


def test_constant_of_amounts_is_their_mean():
    task = built("adding", sequence_length=10, test_size=1500)
    assert task.constant(task.test) == {"mse": pytest.approx(targets_of(task).var(), rel=1e-5)}


def test_constant_of_classes_is_the_most_frequent_one():
    task = built("formal_language", test_size=1500)
    shares = np.bincount(targets_of(task)) / 1500
    shares = shares[shares > 0]
    expected = {"accuracy": shares.max(), "cross_entropy": -(shares * np.log(shares)).sum()}
    assert task.constant(task.test) == pytest.approx(expected, rel=1e-5)


def test_constant_of_copying_knows_the_step():
    task = built("copying", sequence_length=7, test_size=1500)
    symbols = targets_of(task)[-10:]
    counts = np.stack([np.bincount(step, minlength=9) for step in symbols])
    shares = counts[:, 1:] / 1500
    scores = task.constant(task.test)
    assert scores["recall"] == pytest.approx(counts.max(1).mean() / 1500)
    assert scores["cross_entropy"] == pytest.approx(-(shares * np.log(shares)).sum() / 27, rel=1e-5)


def test_constant_of_logits_is_the_share_of_ones():
    task = built("xor_stream", test_size=1200)
    share = targets_of(task).mean()
    expected = -(share * np.log(share) + (1 - share) * np.log(1 - share))
    assert task.constant(task.test)["cross_entropy"] == pytest.approx(expected, rel=1e-5)
    assert task.constant(task.test)["accuracy"] == pytest.approx(max(share, 1 - share))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mqar", {"sizes": "single", "sequence_length": 16, "pairs": 2, "vocabulary": 18}),
        ("selective_copying", {"sequence_length": 12, "copied": 3, "vocabulary": 6}),
        ("memorization", {}),
    ],
)
def test_constant_of_recalled_tokens_is_the_most_frequent_one(name, settings):
    task = built(name, **settings, test_size=1100)
    known = targets_of(task)
    assert task.constant(task.test)["accuracy"] == pytest.approx(
        np.bincount(known[known >= 0]).max() / (known >= 0).sum()
    )


def test_constant_scores_zero_and_no_constant_scores_more():
    """On the test sequences of a run, whatever the answer is."""
    task = built("adding", sequence_length=10, test_size=500)
    zero, targets = task.constant(task.test)["mse"], targets_of(task)
    assert min(((targets - answer) ** 2).mean() for answer in np.linspace(0.5, 1.5, 501)) == pytest.approx(
        zero, rel=1e-5
    )
