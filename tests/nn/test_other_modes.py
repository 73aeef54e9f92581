"""Every layer in ways that the kernels cannot follow: torch's operations give the right numbers, or an error says why.

A second derivative, a tangent, a traced program and a tensor without memory are things that C and CUDA kernels do not
see. The layers here are in float32, because kernels run only in this type.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.layers import LAYERS, generator, small_layer
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import FlopCounterMode

from orthobench.recurrence import use_backend
from orthobench.recurrence.backends import forget_used, last_used

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch's own modes
each_layer = pytest.mark.parametrize("name", LAYERS)
OPERATIONS = {
    *("CoRNN", "GatedDeltaProduct", "LRU", "GRU", "IndRNN", "LEM", "LSTM", "MinLSTM", "MLSTM", "PDSSM", "LinOSS"),
    *("ScoRNN", "URNN", "Mamba", "SLSTM", "RWKV7", "StackLSTM"),
}
"""A layer of each operation: the others differ in how they compute the weights, which is torch's own work."""
each_operation = pytest.mark.parametrize(
    "name", [name if name in OPERATIONS else pytest.param(name, marks=pytest.mark.slow) for name in LAYERS]
)
REFUSED = "first derivatives only"
UNUSED: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
QUICK = {"GRU", "ScuRNN"}
STEPS, BATCH, INPUTS, UNITS = 3, 2, 2, 4


def random(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(seed))


@pytest.fixture
def x() -> torch.Tensor:
    return random(STEPS, BATCH, INPUTS)


@each_layer
def test_second_derivatives_are_right_or_refused(name, x):
    """They are those of the squared norm of the gradient, as in a gradient penalty; each one is asked for alone.

    Only a kernel has to refuse one, because a loop of a layer's own consists of torch's operations.
    """

    def second(dtype, index):
        """The derivative with respect to the input, or to a parameter."""
        layer, inputs = small_layer(name, dtype), x.to(dtype).requires_grad_()
        targets = [inputs, *layer.parameters()]
        gradients = torch.autograd.grad(layer(inputs)[0].square().sum(), targets, create_graph=True, **UNUSED)
        penalty = sum(each.square().sum() for each in gradients)
        return torch.autograd.grad(penalty, targets[index], **UNUSED)[0]

    refused = 0
    forget_used()
    for index in range(1 + len(list(small_layer(name).parameters()))):
        try:
            derivative = second(torch.float32, index)
        except RuntimeError as error:
            if REFUSED not in str(error):
                raise
            refused += 1
        else:
            torch.testing.assert_close(derivative.double(), second(torch.float64, index), rtol=1e-3, atol=1e-4)
    assert refused or "cpu" not in last_used()


@pytest.mark.parametrize("name", ["GRU", "ScoRNN", "Mamba"])
@pytest.mark.parametrize("way", ["hessian", "hvp", "vhp"])
def test_functional_second_derivatives_are_refused(way, name, x):
    layer = small_layer(name)
    arguments = (lambda inputs: layer(inputs)[0].square().sum(), x, *([] if way == "hessian" else [x]))
    with pytest.raises(RuntimeError, match=REFUSED):
        getattr(torch.autograd.functional, way)(*arguments)


def linearized(layer, x, v):
    return torch.func.linearize(lambda values: layer(values)[0], x)[1](v)


def with_dual_numbers(layer, x, v):
    with forward_ad.dual_level(), torch.no_grad():
        return forward_ad.unpack_dual(layer(forward_ad.make_dual(x, v))[0]).tangent


@pytest.mark.parametrize(
    ("way", "name"),
    [
        *((with_dual_numbers, name) for name in LAYERS),
        *(pytest.param(linearized, name, marks=() if name in QUICK else pytest.mark.slow) for name in LAYERS),
    ],
)
def test_forward_derivatives_are_adjoint_to_backward_ones(way, name, x):
    """<u, J v> = <J^T u, v>, where the kernels compute J^T u."""
    layer, v, inputs = small_layer(name).requires_grad_(False), random(*x.shape, seed=2), x.clone().requires_grad_()
    output = layer(inputs)[0]
    u = random(*output.shape, seed=3)
    (backward,) = torch.autograd.grad(output, inputs, u)
    forward = way(layer, x, v)
    torch.testing.assert_close((u * forward).sum(), (backward * v).sum(), rtol=1e-3, atol=1e-4)


def test_forward_derivative_of_a_backward_pass_is_refused(x):
    layer, inputs = small_layer("GRU"), x.requires_grad_()
    output = layer(inputs)[0]
    with forward_ad.dual_level():
        gradient = forward_ad.make_dual(torch.ones_like(output), torch.ones_like(output))
        with pytest.raises(RuntimeError, match="a gradient that has a tangent"):
            torch.autograd.grad(output, inputs, gradient)


@each_operation
def test_traced_graph_is_a_function_of_its_input(name, x):
    layer, other = small_layer(name), random(*x.shape, seed=2)
    graph = make_fx(lambda inputs: layer(inputs)[0])(x)
    torch.testing.assert_close(graph(other), layer(other)[0], rtol=1e-4, atol=1e-4)


def test_graph_that_is_traced_before_autograd_is_a_function_of_its_input(x):
    layer, other = small_layer("LSTM"), random(*x.shape, seed=2)
    graph = make_fx(lambda inputs: layer(inputs)[0], pre_dispatch=True)(x)
    torch.testing.assert_close(graph(other), layer(other)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_traced_gradient_is_a_function_of_its_input(mode, x):
    layer, other = small_layer("LSTM"), random(*x.shape, seed=2)

    def gradient(inputs):
        inputs = inputs.detach().requires_grad_()
        return torch.autograd.grad(layer(inputs)[0].square().sum(), inputs)[0]

    graph = make_fx(gradient, tracing_mode=mode, _allow_non_fake_inputs=True)(x)
    torch.testing.assert_close(graph(other), gradient(other), rtol=1e-4, atol=1e-4)


@each_operation
def test_fake_tensors_have_shapes_and_leave_nothing_behind(name, x):
    layer = small_layer(name)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fake = mode.from_tensor(x)
    with mode:
        inside = layer(fake)[0]
        layer(fake)[0].sum().backward()
    outside = layer(fake)[0]
    layer.zero_grad()
    expected = layer(x)[0]
    expected.sum().backward()
    assert inside.shape == outside.shape == expected.shape
    torch.testing.assert_close(expected, small_layer(name)(x)[0])


@each_layer
def test_negative_bits_of_inputs_and_gradients_are_resolved(name, x):
    layer = small_layer(name)
    results = []
    for sign in (torch.neg, torch._neg_view):
        inputs = x.clone().requires_grad_()
        output = layer(sign(inputs))[0]
        gradients = torch.autograd.grad(output, [inputs, *layer.parameters()], sign(random(*output.shape)), **UNUSED)
        results.append([output, *gradients])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


class Wrapped(torch.Tensor):
    """A tensor that holds another one, and counts the operations on it."""

    count = 0

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.count += 1
        bare, options = tree_map(lambda each: each.inner if isinstance(each, cls) else each, (args, kwargs or {}))
        return tree_map(lambda each: cls(each) if isinstance(each, torch.Tensor) else each, func(*bare, **options))


class Observer(TorchDispatchMode):
    """A mode that changes nothing and counts matrix products."""

    products = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.products += "mm" in str(func)
        return func(*args, **(kwargs or {}))


@each_layer
def test_wrapped_tensors_and_dispatch_modes_see_the_operations(name, x):
    layer, before = small_layer(name), Wrapped.count
    expected = layer(x)[0]
    with torch.no_grad():
        actual = layer(Wrapped(x))[0]
    assert isinstance(actual, Wrapped)
    assert Wrapped.count > before + STEPS
    torch.testing.assert_close(actual.inner, expected, rtol=1e-4, atol=1e-5)
    with Observer() as observer:
        torch.testing.assert_close(layer(x)[0], expected, rtol=1e-4, atol=1e-5)
    assert observer.products


@pytest.mark.parametrize("convert", [torch.Tensor.to_sparse, torch.Tensor.to_mkldnn], ids=["sparse", "mkldnn"])
@pytest.mark.parametrize("name", ["GRU", "ScoRNN", "Mamba"])
def test_inputs_in_other_layouts_get_the_answer_of_torch(name, convert, x):
    layer, answers = small_layer(name), []
    for backend in ("auto", "reference"):
        with use_backend(backend), torch.no_grad():
            try:
                answers.append(layer(convert(x))[0].to_dense())
            except (RuntimeError, NotImplementedError) as error:
                answers.append(type(error))
    if isinstance(answers[1], type):
        assert answers[0] is answers[1]
    else:
        torch.testing.assert_close(*answers)


def test_sparse_gradients_are_read(x):
    layer, places = small_layer("LSTM"), torch.tensor([[[0, 2, 2, 1]]])
    results = []
    for sparse in (False, True):
        found = torch.gather(layer(x)[0], 0, places, sparse_grad=sparse)
        results.append(torch.autograd.grad(found.square().sum(), list(layer.parameters())))
    torch.testing.assert_close(*results)


def test_batched_gradients_are_refused_in_one_line(x):
    output = small_layer("GRU")(x.requires_grad_())[0]
    with pytest.raises(RuntimeError, match="use `use_backend"):
        torch.autograd.grad(output, x, torch.ones(2, *output.shape), is_grads_batched=True)


@pytest.mark.parametrize(("name", "gates", "of_start"), [("RNN", 1, 1), ("GRU", 3, 2), ("LSTM", 4, 4)])
def test_flops_are_those_of_the_products(name, gates, of_start, x):
    """2 for each weight, step and row; the backward pass has a product for each factor that has a gradient.

    At the first step `of_start` gates multiply the initial state, which nothing trains. GRU's third one multiplies the
    reset state.
    """
    layer = small_layer(name)
    rows, steps = 2 * STEPS * BATCH, gates * UNITS
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        layer(x)
    assert forward.get_total_flops() == rows * steps * (INPUTS + UNITS)
    with FlopCounterMode(display=False) as both:
        layer(x)[0].sum().backward()
    gradients = rows * steps * (INPUTS + 2 * UNITS) - 2 * BATCH * of_start * UNITS * UNITS
    assert both.get_total_flops() == forward.get_total_flops() + gradients
    output = layer(x)[0].sum()
    with FlopCounterMode(display=False), pytest.raises(RuntimeError, match="run the forward pass inside it too"):
        output.backward()
