"""Models of any name, and the common parts of their literal transcriptions in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from orthobench.model import Model, Signature
from orthobench.model.base import Readout
from orthobench.plugins import Catalog
from orthobench.recurrence import use_backend
from orthobench.spec.resolve import resolve
from orthobench.training.optimizers import build_optimizer

T, B, M, P = 6, 3, 4, 5  # steps, sequences, inputs, outputs


def make(name: str, readout: Readout = "all", seed: int = 0, inputs: int = M, outputs: int = P, **settings):
    cls = Catalog().load("model", name)
    read = cls.Settings.read({"hidden_size": 7, **settings})
    return cls(read, Signature(inputs, outputs, readout), torch.Generator().manual_seed(seed))


def random_model(name: str, hidden_size: int, readout: Readout, **settings: Any) -> Any:
    """Return a model in float64 whose parameters are all random, so that no start at 1 hides an error."""
    model = make(name, inputs=3, hidden_size=hidden_size, readout=readout, **settings).double()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.7 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def noise(steps: int) -> torch.Tensor:
    """Return inputs of `random_model`, `[steps, 2, 3]`."""
    return torch.randn(steps, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def run(model) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Return random inputs, the outputs and the parameters of a model in float64.

    The parameters are random, so that no zero bias hides an error.
    """
    model.double()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.4)
    x = torch.randn(T, B, model.signature.input_size, generator=generator, dtype=torch.float64)
    outputs, _ = model(x)
    return x.numpy(), outputs.detach().numpy(), {k: v.detach().numpy() for k, v in model.state_dict().items()}


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def silu(z):
    return z * sigmoid(z)


def short_convolved(projected, p):
    """Return SiLU of the convolution at the last of the projected inputs, `[channels]` each; without one, SiLU of it.

    Args:
        projected: the inputs of the steps so far, after as many zeros as the convolution reads.
        p: the parameters, maybe with `convolution_weight` `[taps, channels]` and `convolution_bias`.
    """
    x = projected[-1]
    if "convolution_weight" in p:
        taps = len(p["convolution_weight"])
        x = sum(w * past for w, past in zip(p["convolution_weight"], projected[-taps:], strict=True))
    return silu(x + p.get("convolution_bias", 0.0))


def modrelu(z, b):
    return np.sign(z) * np.maximum(np.abs(z) + b, 0)


def expected_outputs(x, step, n, p):
    """Return the outputs V h_t + c of a recurrence, where `step` maps (x_t, state) to the next state."""
    state, outputs = None, []
    for x_t in x:
        rows = []
        for b, column in enumerate(x_t):
            state = state or [None] * len(x_t)
            state[b] = step(column, state[b])
            h = state[b][0] if isinstance(state[b], tuple) else state[b]
            rows.append(p["output_weight"] @ h + p["output_bias"])
        outputs.append(rows)
    return np.array(outputs)


def skew_of(entries, n):
    a = np.zeros((n, n))
    a[np.triu_indices(n, 1)] = entries
    return a - a.T


def cayley(entries, n, negative_ones):
    a = skew_of(entries, n)
    d = np.diag([1.0] * (n - negative_ones) + [-1.0] * negative_ones)
    return np.linalg.inv(np.eye(n) + a) @ (np.eye(n) - a) @ d


def plain_outputs(x, w, act, p):
    """Outputs of h_t = act(W h_{t-1} + U x_t; b) from a trained or a zero start."""
    start = p.get("start", np.zeros(len(w)))

    def step(x_t, h):
        return act(w @ (start if h is None else h) + p["input_weight"] @ x_t, p["bias"])

    return expected_outputs(x, step, len(w), p)


def steps(model, count, learning_rate=1.0):
    """Train on noise for `count` optimiser steps, with the constraint restored after each."""
    generator = torch.Generator().manual_seed(0)
    groups = model.parameter_groups()
    optimizers = [build_optimizer(g.optimizer, g.parameters, learning_rate * g.learning_rate) for g in groups]
    for _ in range(count):
        x = torch.randn(T, B, M, generator=generator)
        model.zero_grad()
        penalty = model.penalty()
        loss = (model(x)[0] - 1).square().mean()
        (loss if penalty is None else loss + penalty).backward()
        for optimizer in optimizers:
            optimizer.step()
        with torch.no_grad():
            model.after_step()


def assert_gradients(model: Model) -> None:
    """Finite differences in float64 over every parameter."""
    model.double()
    x = torch.randn(4, 2, model.signature.input_size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    names, parameters = zip(*model.named_parameters(), strict=True)
    starts = tuple(parameter.detach().clone().requires_grad_() for parameter in parameters)

    def loss(*values):
        outputs, _ = torch.func.functional_call(model, dict(zip(names, values, strict=True)), (x,))
        return outputs.square().sum()

    assert torch.autograd.gradcheck(loss, starts)


def assert_kernels_are_the_definition(model: Model, steps: int) -> None:
    """Compare outputs, final states and all gradients of noise with those of the reference."""
    inputs = torch.randn(steps, 4, model.signature.input_size, generator=torch.Generator().manual_seed(1))
    results = []
    for backend in ("auto", "reference"):
        with use_backend(backend):
            outputs, (final,) = model(inputs)
            loss = outputs.square().sum() + final.square().sum()
            results.append([outputs, final, *torch.autograd.grad(loss, list(model.parameters()))])
    torch.testing.assert_close(*results, rtol=2e-4, atol=2e-5)


def trained(name: str, iterations: int = 200, prepare=lambda model: None, **settings) -> Model:
    """Return a model after `iterations` steps on the copying problem, as the trainer makes them.

    `prepare` changes the model before the first step.
    """
    overrides = {
        "hidden_size": 16,
        "sequence_length": 10,
        "train_size": 200,
        "test_size": 20,
        "batch_size": 10,
        **settings,
    }
    config = resolve(Catalog(), "copying", name, {key: str(value) for key, value in overrides.items()})
    task = config.task_class(config.task_settings, 0, torch.device("cpu"))
    model = config.model_class(config.model_settings, task.signature, torch.Generator().manual_seed(0))
    with torch.no_grad():
        prepare(model)
    groups = model.parameter_groups()
    optimizers = [build_optimizer(group.optimizer, group.parameters, group.learning_rate) for group in groups]
    for iteration in range(iterations):
        batch = task.train.batch(torch.arange(10) + 10 * (iteration % 20))
        loss, penalty = task.loss(model(batch.inputs)[0], batch.targets), model.penalty()
        model.zero_grad()
        (loss if penalty is None else loss + penalty).backward()
        for optimizer in optimizers:
            optimizer.step()
        with torch.no_grad():
            model.after_step()
    return model


def assert_matches(model: Model, inputs: torch.Tensor, expected: torch.Tensor) -> None:
    """Assert that a model of float64 has these outputs, and the same gradient of them in every parameter."""
    outputs, _ = model(inputs)
    torch.testing.assert_close(outputs, expected, rtol=1e-9, atol=1e-12)
    names, parameters = zip(*model.named_parameters(), strict=True)
    way = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    actual, wanted = (torch.autograd.grad((y * way).sum(), parameters) for y in (outputs, expected))
    for name, one, other in zip(names, actual, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-11, msg=f"{name}: {{}}".format)


def assert_two_parts_equal_the_whole(model: Model, cut: int) -> None:
    """Assert that a model of float64 with one state and three inputs continues nine steps that are cut in two."""
    inputs = torch.randn(9, 2, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    whole, (final,) = model(inputs)
    first, state = model(inputs[:cut])
    second, (end,) = model(inputs[cut:], state)
    torch.testing.assert_close(torch.cat((first, second)), whole)
    torch.testing.assert_close(end, final)
