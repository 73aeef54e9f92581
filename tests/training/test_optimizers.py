"""The optimisers against literal loops over their equations, and against torch where it has the same one."""

import importlib
from typing import get_args

import numpy as np
import pytest
import torch

from orthobench.errors import UsageError
from orthobench.model import OptimizerName
from orthobench.recurrence import use_backend
from orthobench.recurrence.cpu import optimiser
from orthobench.training.optimizers import RMSProp, build_optimizer, set_capturable, set_learning_rate

GRADIENTS = np.random.default_rng(0).normal(size=(7, 5))
START = np.random.default_rng(1).normal(size=5)


def _after_steps(name: OptimizerName, learning_rate: float = 0.01) -> np.ndarray:
    parameter = torch.nn.Parameter(torch.tensor(START))
    optimizer = build_optimizer(name, [parameter], learning_rate)
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
def test_rmsprop_forms_match_their_equations(name, initial, root):
    w, r = START.copy(), np.full(5, initial)
    for g in GRADIENTS:
        r = 0.9 * r + 0.1 * g**2
        w -= 0.01 * g / root(r)
    np.testing.assert_allclose(_after_steps(name), w, rtol=1e-12)


def test_adam_of_tensorflow_1_matches_its_equation():
    w, m, v = START.copy(), np.zeros(5), np.zeros(5)
    for t, g in enumerate(GRADIENTS, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        w -= 0.01 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-8)
    np.testing.assert_allclose(_after_steps("adam_tf1"), w, rtol=1e-10)


def test_adam_of_the_nnrnn_program_has_no_momentum():
    """language_task.py of its program: betas of 0 and 0.9."""
    w, v = START.copy(), np.zeros(5)
    for t, g in enumerate(GRADIENTS, 1):
        v = 0.9 * v + 0.1 * g**2
        w -= 0.01 * g / (np.sqrt(v / (1 - 0.9**t)) + 1e-8)
    np.testing.assert_allclose(_after_steps("adam_nnrnn"), w, rtol=1e-10)


def test_adagrad_of_tensorflow_1_matches_its_equation():
    w, r = START.copy(), np.full(5, 0.1)
    for g in GRADIENTS:
        r = r + g**2
        w -= 0.01 * g / np.sqrt(r)
    np.testing.assert_allclose(_after_steps("adagrad_tf1"), w, rtol=1e-12)


def test_rmsprop_with_torchs_choices_equals_torch():
    own_parameter, torch_parameter = (torch.nn.Parameter(torch.tensor(START)) for _ in range(2))
    pairs = [
        (own_parameter, RMSProp([own_parameter], 0.01, decay=0.99, epsilon=1e-8, epsilon_inside=False, initial=0.0)),
        (torch_parameter, torch.optim.RMSprop([torch_parameter], 0.01)),
    ]
    for gradient in GRADIENTS:
        for parameter, optimizer in pairs:
            parameter.grad = torch.tensor(gradient)
            optimizer.step()
    torch.testing.assert_close(own_parameter, torch_parameter)


def test_tiny_gradients_over_many_steps_produce_no_nan():
    """0.9^k of r's start underflows after some 800 steps, and Theano's RMSProp has no epsilon."""
    parameter = torch.nn.Parameter(torch.tensor([1.0, 1.0]))
    optimizer = build_optimizer("rmsprop_theano", [parameter], 0.1)
    torch.set_flush_denormal(True)  # as in training
    try:
        for _ in range(1500):
            parameter.grad = torch.tensor([0.0, 1e-25])  # whose square is not a number of single precision
            optimizer.step()
        assert optimizer.state[parameter]["mean_square"].tolist() == [0.0, 0.0]
        assert parameter.tolist() == pytest.approx([1.0, 1.0], rel=1e-5)
        parameter.grad = torch.tensor([1e-3, 0.0])
        optimizer.step()
    finally:
        torch.set_flush_denormal(False)
    np.testing.assert_allclose(parameter.detach(), [1 - 0.1 / 0.1**0.5, 1.0], rtol=1e-5)


def test_first_tensorflow_step_is_damped():
    """r = 0.9 + 0.1 g^2 for a small g: the step is about lr g / sqrt(0.9), not lr / sqrt(0.1)."""
    parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    parameter.grad = torch.full((1,), 1e-3, dtype=torch.float64)
    build_optimizer("rmsprop_tf1", [parameter], 1.0).step()
    assert parameter.item() == pytest.approx(-1e-3 / 0.9**0.5, rel=1e-6)


def _unitary(n: int, dtype: torch.dtype) -> torch.Tensor:
    drawn = torch.randn(n, n, dtype=dtype, generator=torch.Generator().manual_seed(n))
    return torch.linalg.qr(drawn).Q


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("normalise", [True, False])
def test_cayley_step_matches_its_equation(dtype, normalise):
    """W <- (I + lr/2 B)^{-1} (I - lr/2 B) W, B = G W* - W G*, with explicit inverses."""
    start = _unitary(4, dtype)
    w = start.numpy().copy()
    parameter = torch.nn.Parameter(torch.view_as_real(start).clone() if start.is_complex() else start.clone())
    optimizer = build_optimizer("cayley_rmsprop_keras1" if normalise else "cayley", [parameter], 0.1)
    r = np.zeros(parameter.shape)
    for seed in range(3):
        g = np.random.default_rng(seed).normal(size=parameter.shape)
        parameter.grad = torch.tensor(g)
        optimizer.step()
        r = 0.9 * r + 0.1 * g**2
        if normalise:
            g = g / (np.sqrt(r) + 1e-8)
        if start.is_complex():
            g = g[..., 0] + 1j * g[..., 1]
        b = g @ w.conj().T - w @ g.conj().T
        w = np.linalg.inv(np.eye(4) + 0.05 * b) @ (np.eye(4) - 0.05 * b) @ w
    actual = parameter.detach()
    actual = torch.view_as_complex(actual) if start.is_complex() else actual
    np.testing.assert_allclose(actual.numpy(), w, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(w.conj().T @ w, np.eye(4), atol=1e-13)


def test_cayley_step_always_descends():
    """With G* W - W* G in B's place, as released, a small step lowers the loss about every other time only."""
    lowered = []
    for seed in range(50):
        target = torch.randn(6, 6, dtype=torch.complex128, generator=torch.Generator().manual_seed(seed))
        parameter = torch.nn.Parameter(torch.view_as_real(_unitary(6, torch.complex128)).clone())

        def loss(parameter=parameter, target=target):
            return (torch.view_as_complex(parameter) - target).abs().square().sum()

        before = loss()
        before.backward()
        build_optimizer("cayley", [parameter], 1e-4).step()
        lowered.append(loss().item() < before.item())
    assert all(lowered)


def _trained(name: OptimizerName, capturable: bool, reload_at: int | None = None) -> list[torch.Tensor]:
    """Thirty steps of three parameters, with another learning rate for the last ten."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(33, 33)] if name.startswith("cayley") else [(37,), (7, 11), (1,)]
    parameters = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    optimizer = build_optimizer(name, parameters, 3.3e-3)
    set_capturable(optimizer, capturable)
    for t in range(30):
        if t == reload_at:  # as a run that resumes on a device of the other kind
            saved = optimizer.state_dict()
            optimizer = build_optimizer(name, parameters, 1.0)
            optimizer.load_state_dict(saved)
            capturable = not capturable
            set_capturable(optimizer, capturable)
        if t == 20:
            set_learning_rate(optimizer, 0.7e-3)
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator) * 10 ** (-t / 10)
        optimizer.step()
    rates = [group["lr"] for group in optimizer.param_groups]
    assert all(isinstance(rate, torch.Tensor) is capturable for rate in rates)
    return [parameter.detach() for parameter in parameters]


IN_C = [name for name in get_args(OptimizerName) if not name.startswith("cayley")]


def _two_groups(name: OptimizerName, in_torch: bool, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Forty steps of five parameters in two groups; gradients vanish, are missing, or have other strides."""
    generator = torch.Generator().manual_seed(0)
    shapes = (170,), (33, 7), (1,), (4, 16), (2, 3, 5)
    parameters = [torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in shapes]
    optimizer = build_optimizer(name, parameters, 3.3e-3, 0.1 if name == "adamw" else 0.0, exempt=parameters[:2])
    with use_backend("reference" if in_torch else "auto"):
        for t in range(40):
            set_learning_rate(optimizer, 3.3e-3 / (1 + t))
            for i, parameter in enumerate(parameters):
                drawn = torch.randn(parameter.shape, generator=generator) * 10 ** (-t / 2)
                drawn = drawn.T.contiguous().T if t == 7 and i == 1 else drawn
                parameter.grad = None if t % 5 == i else drawn.to(dtype)
            optimizer.step()
    state = [value for parameter in parameters for value in optimizer.state[parameter].values()]
    return [*(parameter.detach() for parameter in parameters), *map(torch.as_tensor, state)]


@pytest.mark.parametrize("name", IN_C)
def test_steps_in_c_have_the_numbers_of_torch(name, monkeypatch):
    calls = []
    step = optimiser.SteppedWeights.step
    monkeypatch.setattr(optimiser.SteppedWeights, "step", lambda *arguments: calls.append(step(*arguments)))
    expected, actual = _two_groups(name, in_torch=True), _two_groups(name, in_torch=False)
    assert len(calls) > 30
    assert all(map(torch.equal, actual, expected))


def test_many_weights_are_stepped_by_several_threads(monkeypatch):
    """The numbers are those of one thread, and denormal numbers count as 0 only if they do in this thread."""
    for is_flushed in (False, True):
        torch.set_flush_denormal(is_flushed)
        results = []
        for few in (1, 1 << 20):
            monkeypatch.setattr(optimiser, "_FEW", few)
            weight, gradient = torch.full((1001,), 3e-39), torch.linspace(-1e-37, 1e-37, 1001)
            optimiser.SteppedWeights([(weight, None, None)] * 2).step([gradient] * 2, {"scale": 0.01})
            results.append(weight)
        torch.set_flush_denormal(False)
        assert torch.equal(*results)
        assert bool((results[0].abs() > 1.2e-38).logical_or(results[0] == 0).all()) is is_flushed


def test_steps_in_float64_and_of_tensors_with_other_strides_stay_in_torch(monkeypatch):
    monkeypatch.setattr(optimiser.SteppedWeights, "step", None)
    _two_groups("rmsprop_tf1", in_torch=False, dtype=torch.float64)
    parameter = torch.nn.Parameter(torch.randn(4, 3).T)
    optimizer = build_optimizer("sgd", [parameter], 1.0)
    expected, parameter.grad = parameter.detach() - 1, torch.ones(3, 4)
    optimizer.step()
    torch.testing.assert_close(parameter.detach(), expected)


def test_hooks_and_a_group_that_is_added_work_as_in_torch():
    first, second = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer, calls = RMSProp([first], lr=0.1), []

    def step() -> None:
        for parameter in (first, second):
            parameter.grad = torch.ones(3)
        optimizer.step()

    step()
    before = optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    after = optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    step()
    before.remove()
    after.remove()
    step()
    assert calls == ["before", "after"]
    assert torch.equal(second, torch.ones(3))
    optimizer.add_param_group({"params": [second]})
    moved = first.detach().clone()
    for _ in range(2):
        step()
    assert (first < moved).all()
    assert (second < 1).all()


def test_a_step_in_c_counts_as_a_change_of_the_weights():
    """Otherwise a backward pass through a graph that has saved the weights would go unnoticed."""
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad, loss = torch.ones(3), parameter.square().sum()
    build_optimizer("sgd", [parameter], 1.0).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


TORCHS = {
    "adamw",
    "adam",
    "adam_nnrnn",
    "rmsprop_torch",
    "sgd_momentum",
}  # they round otherwise with a tensor as learning rate


@pytest.mark.parametrize("name", get_args(OptimizerName))
def test_learning_rate_as_a_tensor_changes_no_number(name, monkeypatch):
    for module in ("adam", "rmsprop"):  # torch captures on accelerators alone
        implementation = importlib.import_module(f"torch.optim.{module}")
        monkeypatch.setattr(implementation, "_get_capturable_supported_devices", lambda *_, **__: ["cpu"])
    expected = _trained(name, capturable=False)
    close = {"rtol": 0, "atol": 0} if name not in TORCHS else {"rtol": 1e-5, "atol": 1e-7}
    torch.testing.assert_close(_trained(name, capturable=True), expected, **close)
    for start in (True, False):
        torch.testing.assert_close(_trained(name, capturable=start, reload_at=10), expected, **close)


def test_unknown_optimiser_of_a_plugin_names_the_nearest():
    with pytest.raises(UsageError, match="unknown optimiser 'addam': did you mean adam"):
        build_optimizer("addam", [torch.nn.Parameter(torch.zeros(1))], 1e-3)  # type: ignore[arg-type]
