"""Second derivatives, and the transforms of `torch.func`, of every layer."""

from __future__ import annotations

import pytest
import torch
from support.layers import LAYERS, generator, small_layer
from torch.func import functional_call, grad, hessian, jacrev, vmap

from orthobench.nn import DeltaNet, ScoRNN, ScuRNN

each_layer = pytest.mark.parametrize("name", LAYERS)


@each_layer
def test_transforms_give_the_gradients_of_autograd(name):
    layer = small_layer(name, dtype=torch.float64)
    x = torch.randn(5, 3, 2, dtype=torch.float64, generator=generator(1))
    parameters = {key: each.detach() for key, each in layer.named_parameters()}

    def loss(values, inputs):
        return functional_call(layer, values, (inputs,))[0].square().sum()

    samples = vmap(grad(loss), (None, 1))(parameters, x.unsqueeze(2))
    jacobian = jacrev(lambda values: functional_call(layer, values, (x,))[0][-1, 0])(parameters)
    row = torch.autograd.grad(layer(x)[0][-1, 0, 0], list(layer.parameters()), materialize_grads=True)
    loss(dict(layer.named_parameters()), x).backward()
    for (key, parameter), derivative in zip(layer.named_parameters(), row, strict=True):
        torch.testing.assert_close(samples[key].sum(0), parameter.grad)
        torch.testing.assert_close(jacobian[key][0], derivative)


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "PDSSM"])  # its gradient is a surrogate
def test_second_derivatives_match_finite_differences(name):
    layer = small_layer(name, dtype=torch.float64)
    x = torch.randn(3, 1, 2, dtype=torch.float64, generator=generator(1), requires_grad=True)
    names, start = zip(*layer.named_parameters(), strict=True)

    def outputs(inputs, *values):
        return functional_call(layer, dict(zip(names, values, strict=True)), (inputs,))[0]

    assert torch.autograd.gradgradcheck(outputs, (x, *start), fast_mode=True)


@pytest.mark.parametrize("kind", [ScoRNN, ScuRNN])
@pytest.mark.filterwarnings("ignore")
def test_ensembles_and_hessians(kind):
    x = torch.randn(3, 2, 2, dtype=torch.float64, generator=generator(1))
    layers = [kind(2, 4, dtype=torch.float64, generator=generator(seed)) for seed in range(2)]
    parameters, buffers = torch.func.stack_module_state(layers)

    def output(values):
        return functional_call(layers[0], (values, {key: each[0] for key, each in buffers.items()}), (x,))[0]

    together = vmap(output)(parameters)
    torch.testing.assert_close(together, torch.stack([layer(x)[0] for layer in layers]))
    bias = layers[0].cells[0].bias.detach().clone().requires_grad_()
    name = "cells.0.skew_entries"
    entries = layers[0].cells[0].skew_entries.detach()

    def loss(values):
        return functional_call(layers[0], {name: values, "cells.0.bias": bias}, (x,))[0].square().sum()

    expected = torch.autograd.functional.hessian(loss, entries)
    torch.testing.assert_close(hessian(loss)(entries), expected)


def test_long_sequences_are_transformed():
    layer = DeltaNet(2, 4, generator=generator())
    x = torch.randn(80, 1, 2, generator=generator(1))
    parameters = {key: each.detach() for key, each in layer.named_parameters()}
    gradients = grad(lambda values: functional_call(layer, values, (x,))[0].square().sum())(parameters)
    layer(x)[0].square().sum().backward()
    for name, each in layer.named_parameters():
        torch.testing.assert_close(gradients[name], each.grad, rtol=1e-3, atol=1e-4)
