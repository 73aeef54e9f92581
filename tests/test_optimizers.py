"""The optimisers against literal loops over their equations, and against torch where it has the same one."""

import numpy as np
import pytest
import torch

from orthobench.optimizers import RMSProp, make_optimizer

GRADIENTS = np.random.default_rng(0).normal(size=(7, 5))
START = np.random.default_rng(1).normal(size=5)


def _after_steps(name: str, learning_rate: float = 0.01) -> np.ndarray:
    parameter = torch.nn.Parameter(torch.tensor(START))
    optimizer = make_optimizer(name, [parameter], learning_rate)
    for gradient in GRADIENTS:
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
    return parameter.detach().numpy()


@pytest.mark.parametrize(
    ("name", "initial", "root"),
    [
        ("rmsprop_tf1", 1.0, lambda r: np.sqrt(r + 1e-10)),
        ("rmsprop_keras1", 0.0, lambda r: np.sqrt(r) + 1e-8),
        ("rmsprop_theano", 1e-3, np.sqrt),
        ("rmsprop_lasagne", 0.0, lambda r: np.sqrt(r + 1e-6)),
    ],
)
def test_rmsprop_forms(name, initial, root):
    w, r = START.copy(), np.full(5, initial)
    for g in GRADIENTS:
        r = 0.9 * r + 0.1 * g**2
        w -= 0.01 * g / root(r)
    np.testing.assert_allclose(_after_steps(name), w, rtol=1e-12)


def test_adam_of_tensorflow_1():
    w, m, v = START.copy(), np.zeros(5), np.zeros(5)
    for t, g in enumerate(GRADIENTS, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        w -= 0.01 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-8)
    np.testing.assert_allclose(_after_steps("adam_tf1"), w, rtol=1e-10)


def test_adagrad_of_tensorflow_1():
    w, r = START.copy(), np.full(5, 0.1)
    for g in GRADIENTS:
        r = r + g**2
        w -= 0.01 * g / np.sqrt(r)
    np.testing.assert_allclose(_after_steps("adagrad_tf1"), w, rtol=1e-12)


def test_our_rmsprop_with_torchs_choices_is_torchs():
    ours, theirs = (torch.nn.Parameter(torch.tensor(START)) for _ in range(2))
    pairs = [
        (ours, RMSProp([ours], 0.01, decay=0.99, epsilon=1e-8, epsilon_inside=False, initial=0.0)),
        (theirs, torch.optim.RMSprop([theirs], 0.01)),
    ]
    for gradient in GRADIENTS:
        for parameter, optimizer in pairs:
            parameter.grad = torch.tensor(gradient)
            optimizer.step()
    torch.testing.assert_close(ours, theirs)


def test_the_first_tensorflow_step_is_damped():
    """r = 0.9 + 0.1 g^2 for a small g: the step is about lr g / sqrt(0.9), not lr / sqrt(0.1)."""
    parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    parameter.grad = torch.full((1,), 1e-3, dtype=torch.float64)
    make_optimizer("rmsprop_tf1", [parameter], 1.0).step()
    assert parameter.item() == pytest.approx(-1e-3 / 0.9**0.5, rel=1e-6)
