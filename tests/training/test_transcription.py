"""A run against a literal transcription in NumPy: forward, back-propagation through time, clipping, decay and SGD."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from orthobench.model.build import build_model
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import open_store
from orthobench.task import seeded_generator
from orthobench.tasks.adding import Adding

CPU = torch.device("cpu")
NAMES = ("input_weight", "recurrent_weight", "bias", "output_weight", "output_bias")


def loss_and_gradients(parameters: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray):
    """The mean squared error of h_t = tanh(W h_{t-1} + U x_t + b), y = V h_T + c, and its derivatives, by hand."""
    U, W, b, V, c = (parameters[name] for name in NAMES)
    states = [np.zeros((x.shape[1], len(W)))]
    for x_t in x:
        states.append(np.tanh(states[-1] @ W.T + x_t @ U.T + b))
    errors = states[-1] @ V.T + c - y
    d_out = 2 * errors / errors.size
    gradients = {name: np.zeros_like(value) for name, value in parameters.items()}
    gradients["output_weight"], gradients["output_bias"] = d_out.T @ states[-1], d_out.sum(0)
    d_h = d_out @ V
    for t in reversed(range(len(x))):
        d_z = d_h * (1 - states[t + 1] ** 2)
        gradients["recurrent_weight"] += d_z.T @ states[t]
        gradients["input_weight"] += d_z.T @ x[t]
        gradients["bias"] += d_z.sum(0)
        d_h = d_z @ W
    return np.mean(errors**2), gradients


def transcribed(config, clip_norm=math.inf, clip_value=math.inf, decay=1.0, decay_every=1):
    """The test errors after every iteration, the training losses between them, and the gradients' norms."""
    task = Adding(config.task_settings, 0, CPU)
    model = build_model(config.model_class, config.model_settings, task.signature, seeded_generator(0, "model", "rnn"))
    parameters = {name: value.numpy().astype(float) for name, value in model.state_dict().items()}
    assert set(parameters) == set(NAMES)

    def batch(split, first: int, past: int):
        examples = split.batch(torch.arange(first, past))
        return examples.inputs.numpy().astype(float), examples.targets.numpy().astype(float)

    tests, losses, norms = [loss_and_gradients(parameters, *batch(task.test, 0, 20))[0]], [], []
    for iteration in range(12):
        epoch, position = divmod(iteration, 4)
        examples = batch(task.train, 10 * position, 10 * position + 10)
        loss, gradients = loss_and_gradients(parameters, *examples)
        gradients = {name: np.clip(value, -clip_value, clip_value) for name, value in gradients.items()}
        norm = math.sqrt(sum((value**2).sum() for value in gradients.values()))
        rate = 0.2 * decay ** (epoch // decay_every)
        for name, value in gradients.items():
            parameters[name] = parameters[name] - rate * min(1, clip_norm / norm) * value
        tests.append(loss_and_gradients(parameters, *batch(task.test, 0, 20))[0])
        losses.append(loss)
        norms.append(norm)
    return tests, losses, norms


@pytest.mark.parametrize(
    ("evaluate_every", "settings"),
    [
        (1, {}),
        (3, {"clip_norm": 2.0}),
        (1, {"clip_value": 0.1}),
        (3, {"clip_norm": 0.5, "clip_value": 0.1}),
        (1, {"learning_rate_decay": 0.25, "decay_every": 2}),
        (3, {"clip_norm": 4.0, "learning_rate_decay": 0.5}),
    ],
)
def test_run_matches_its_transcription(evaluate_every, settings, orthobench, tiny, tmp_path):
    """Its test errors follow at single precision; the training loss is the mean since the test before."""
    options = tiny | {"optimizer": "sgd", "learning_rate": "0.2", "shuffle": "false", "epochs": "3"}
    options |= {"evaluate_every": str(evaluate_every), **{name: str(value) for name, value in settings.items()}}
    config = resolve(Catalog(), "adding", "rnn", options)
    words = [word for name, value in options.items() for word in ("-s", f"{name}={value}")]
    assert orthobench("run", "adding", "rnn", *words).code == 0
    with open_store(str(tmp_path / "results.db")) as store:
        (run,) = store.runs()
        rows = store.metrics([run.id])
    test = {row.iteration: row.value for row in rows if (row.split, row.name) == ("test", "mse")}
    train = {row.iteration: row.value for row in rows if (row.split, row.name) == ("train", "loss")}

    names = {"learning_rate_decay": "decay"}
    tests, losses, norms = transcribed(config, **{names.get(name, name): value for name, value in settings.items()})
    assert run.key == config.spec.key
    if "clip_norm" in settings:  # the bound takes effect in some iterations and not in others
        assert min(norms) < settings["clip_norm"] < max(norms)
    # An epoch's end, every 4 iterations, is tested too.
    moments = [i for i in range(1, 13) if i % evaluate_every == 0 or i % 4 == 0]
    assert list(test) == [0, *moments]
    assert test == pytest.approx({i: tests[i] for i in test}, rel=1e-5)
    means = {past: np.mean(losses[first:past]) for first, past in zip([0, *moments], moments, strict=False)}
    assert train == pytest.approx(means, rel=1e-5)
    assert (run.final_value, run.iterations) == (test[12], 12)
    assert (run.best_value, run.best_iteration) == min((value, i) for i, value in test.items())
