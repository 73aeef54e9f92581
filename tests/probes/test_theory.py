"""Bounds of gradients, powers of matrices and Euler steps against closed forms, autograd through time and NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.models import make

from orthobench.plugins import Catalog
from orthobench.probe import ProbeContext
from orthobench.probes.euler_stability import EulerStability
from orthobench.probes.gradient_bound import GradientBound, largest_ratio
from orthobench.probes.transient_growth import TransientGrowth, power_norms, spectral_norm
from orthobench.task import Batch
from orthobench.tasks.adding import Adding, AddingSettings

N, M, T = 8, 2, 12
CATALOG = Catalog()


def model_of(name: str, seed: int = 1, spread: float = 0.2, **settings):
    """In double precision, away from the start's special values."""
    model = make(name, "last", inputs=M, outputs=1, **{"hidden_size": N} | settings).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(spread * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def context(model, inputs, lengths=None) -> ProbeContext:
    task = Adding(AddingSettings(sequence_length=9, train_size=6, test_size=6), 0, torch.device("cpu"))
    return ProbeContext(model, task, Batch(inputs, inputs.new_zeros(inputs.shape[1], 1), lengths))


def inputs_of(seed: int = 2, steps: int = T) -> torch.Tensor:
    return torch.randn(steps, 2, M, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def bounded_models() -> list[str]:
    return [name for name in CATALOG.names("model") if CATALOG.load("model", name).bounded_parts]


def test_powers_of_a_normal_matrix_are_powers_of_its_radius():
    """W = Q diag(0.9, 0.5 R, -0.3) Q^T with a rotation R is normal, so ||W^k|| = 0.9^k."""
    q = np.linalg.qr(np.random.RandomState(0).standard_normal((4, 4)))[0]
    blocks = np.diag([0.9, 0, 0, -0.3])
    blocks[1:3, 1:3] = [[0.3, -0.4], [0.4, 0.3]]
    powers = [1, 2, 7, 30]
    norms = power_norms(torch.from_numpy(q @ blocks @ q.T), powers)
    np.testing.assert_allclose(norms, [0.9**k for k in powers], rtol=1e-12)


def test_powers_of_a_jordan_block_grow_before_they_decay():
    """[[a, c], [0, a]]^k = a^k [[1, k c / a], [0, 1]], whose norm is a^k (s + sqrt(s^2 + 4)) / 2 with s = k c / a."""
    a, c, powers = 0.9, 1.0, list(range(1, 61))
    s = np.array(powers) * c / a
    expected = a ** np.array(powers) * (s + np.sqrt(s**2 + 4)) / 2
    norms = power_norms(torch.tensor([[a, c], [0.0, a]], dtype=torch.float64), powers)
    np.testing.assert_allclose(norms, expected, rtol=1e-12)
    assert np.argmax(norms) == np.argmax(expected) == 8
    assert max(norms) > 3 > 1 > norms[-1]


def test_growth_of_models_is_that_of_numpys_powers():
    model = model_of("irnn")
    w = model.recurrent_weight.detach().numpy()
    result = TransientGrowth()(context(model, inputs_of()))
    expected = [np.linalg.norm(np.linalg.matrix_power(w, k), 2) for k in range(1, T + 1)]
    assert result.vectors["transient_growth/powers"] == list(range(1, T + 1))
    np.testing.assert_allclose(result.vectors["transient_growth/norms/W"], expected, rtol=1e-10)
    assert result.values["transient_growth/largest/W"] == pytest.approx(max(expected))
    assert result.values["transient_growth/radius/W"] == pytest.approx(np.abs(np.linalg.eigvals(w)).max())
    assert result.values["transient_growth/norm/W"] == pytest.approx(np.linalg.norm(w, 2))


@pytest.mark.parametrize("name", ["full_urnn", "scurnn", "lru"])
def test_radius_of_a_complex_matrix_is_numpys(name):
    model = model_of(name)
    values = TransientGrowth()(context(model, inputs_of())).values
    w = model.recurrent_matrices()["W"].detach().numpy()
    assert np.iscomplexobj(w)
    assert values["transient_growth/radius/W"] == pytest.approx(np.abs(np.linalg.eigvals(w)).max())
    assert values["transient_growth/radius/W"] <= values["transient_growth/norm/W"] * (1 + 1e-12)


def test_growth_covers_both_states_and_no_gates():
    assert set(TransientGrowth()(context(model_of("enrnn", short_size=0), inputs_of())).values) == {
        f"transient_growth/{name}/W_L" for name in ("largest", "radius", "norm")
    }
    assert set(TransientGrowth()(context(model_of("antisymmetric"), inputs_of())).values) == {
        f"transient_growth/{name}/I_plus_eps_W" for name in ("largest", "radius", "norm")
    }
    assert not TransientGrowth()(context(model_of("lstm"), inputs_of())).values


def test_norm_of_a_matrix_that_is_not_finite_is_nan():
    assert math.isnan(spectral_norm(torch.tensor([[1.0, math.inf]])))
    assert math.isnan(largest_ratio([1.0, math.nan], [1.0, 1.0]))
    assert largest_ratio([0.0, 1.0], [0.0, 2.0]) == 0.5
    assert largest_ratio([1.0], [0.0]) == math.inf


def through_time(model, inputs: torch.Tensor, part: slice) -> tuple[list[float], list[float]]:
    """||dh_T / dh_{T-k}|| and ||dh_T / dx_{T-k}|| of the first sequence for k = 0 to T - 1, by autograd step by step.

    The states are leaves of one graph, instead of separate sequences as in the probe.
    """
    x = inputs[:, :1].clone().requires_grad_()
    states = [model.initial_state(1)]
    for t in range(len(x)):
        states.append(model.run(x[t : t + 1], states[-1])[1])
    ends = [states[-1][0][0, i] for i in range(part.start, part.stop)]
    rows = [torch.autograd.grad(end, [x, *(state[0] for state in states[1:-1])], retain_graph=True) for end in ends]
    by_input = [np.stack([row[0][-1 - k, 0].numpy() for row in rows]) for k in range(len(x))]
    by_state = [np.stack([row[-k][0, part].numpy() for row in rows]) for k in range(1, len(x))]
    return [1.0, *(float(np.linalg.norm(j, 2)) for j in by_state)], [float(np.linalg.norm(j, 2)) for j in by_input]


@pytest.mark.parametrize(("name", "settings"), [("enrnn", {"activation": "relu"}), ("enrnn", {}), ("rnn", {})])
def test_gradients_match_autograd_through_time(name, settings):
    model, inputs = model_of(name, **settings), inputs_of()
    result = GradientBound()(context(model, inputs))
    ((part, matrix),) = model.bounded_parts.items()
    by_state, by_input = through_time(model, inputs, model.state_parts()[part])
    norm = np.linalg.norm(model.recurrent_matrices()[matrix].detach().numpy(), 2)
    u = np.linalg.norm(model.input_weight.detach().numpy()[model.state_parts()[part]], 2)
    assert result.vectors["gradient_bound/lags"] == list(range(T))
    np.testing.assert_allclose(result.vectors[f"gradient_bound/state/{part}"], by_state, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(result.vectors[f"gradient_bound/input/{part}"], by_input, rtol=1e-9, atol=1e-14)
    bound = [norm**k for k in range(T)]
    np.testing.assert_allclose(result.vectors[f"gradient_bound/state_bound/{part}"], bound, rtol=1e-10)
    np.testing.assert_allclose(result.vectors[f"gradient_bound/input_bound/{part}"], u * np.array(bound), rtol=1e-10)
    ratio = max(np.array(by_state[1:]) / bound[1:])
    assert result.values[f"gradient_bound/state_ratio/{part}"] == pytest.approx(ratio)
    assert result.values[f"gradient_bound/norm/{part}"] == pytest.approx(norm)


@pytest.mark.parametrize("name", bounded_models())
def test_gradients_of_random_models_stay_within_the_bound(name):
    """Rounding of products of up to T matrices in double precision is far below 1e-9."""
    for seed in range(3):
        model = model_of(name, seed, spread=0.1 * (1 + seed)).float()  # as models are in training
        values = GradientBound()(context(model, inputs_of(seed).float())).values
        ratios = {key: value for key, value in values.items() if "_ratio/" in key}
        assert len(ratios) == 2
        assert all(0 < value <= 1 + 1e-9 for value in ratios.values()), ratios


def test_bound_of_inputs_includes_the_embedding():
    model = model_of("rnn")
    model.embedding = torch.nn.Parameter(3 * torch.eye(M, dtype=torch.float64))
    assert GradientBound()(context(model, inputs_of())).values["gradient_bound/input_ratio/h"] <= 1 + 1e-9


def test_model_whose_step_is_not_its_matrix_breaks_the_bound():
    """A step with 1.1 W, of a model that reports W orthogonal, has gradients of 1.1^k and the bound 1."""
    model = model_of("scornn", spread=0.0)
    with torch.no_grad():
        model.bias.fill_(0.1)  # sign(z) (|z| + 0.1) has the derivative 1
    values = GradientBound()(context(model, inputs_of())).values
    assert values["gradient_bound/state_ratio/h"] == pytest.approx(1, abs=1e-9)
    whole = type(model)
    model.__class__ = type("Broken", (whole,), {"_matrix": lambda self: 1.1 * whole.weight(self)})
    values = GradientBound()(context(model, inputs_of())).values
    assert values["gradient_bound/state_ratio/h"] == pytest.approx(1.1 ** (T - 1), rel=1e-6)


def test_models_with_other_steps_have_no_bound():
    for name in ("lstm", "gru", "full_urnn", "eurnn", "antisymmetric"):
        assert not GradientBound()(context(model_of(name), inputs_of(steps=3))).values


@pytest.mark.parametrize("gamma", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("eps", [0.01, 0.5])
def test_eigenvalues_of_euler_steps_are_those_of_numpy(eps, gamma):
    """Without inputs, states and biases tanh is the identity, and a step's Jacobian is I + eps (M - M^T - gamma I)."""
    model = make("antisymmetric", "last", inputs=M, outputs=1, hidden_size=N, step_size=eps, diffusion=gamma)
    m = np.zeros((N, N))
    m[np.triu_indices(N, 1)] = model.recurrent_entries.detach().double().numpy()
    lambdas = np.linalg.eigvals(m - m.T - gamma * np.eye(N))
    result = EulerStability()(context(model, torch.zeros(T, 1, M)))
    assert result.values["euler_stability/modulus_max"] == pytest.approx(np.abs(1 + eps * lambdas).max(), rel=1e-12)
    assert result.values["euler_stability/real_max"] == pytest.approx(-gamma, abs=1e-6)  # gamma is stored as a float
    assert result.values["euler_stability/real_min"] == pytest.approx(-gamma, abs=1e-6)
    frequency = np.abs(lambdas.imag).max()
    closed_form = math.hypot(1 - eps * gamma, eps * frequency)
    assert result.values["euler_stability/modulus_max"] == pytest.approx(closed_form, rel=1e-9)
    assert (closed_form > 1) == (eps * (frequency**2 + gamma**2) > 2 * gamma)


def test_no_state_is_stable_without_diffusion_and_every_state_with_enough():
    for seed in range(3):
        for gamma, stable in ((0.0, False), (1.0, True)):
            model = model_of("antisymmetric", seed, diffusion=gamma, step_size=0.01)
            result = EulerStability()(context(model, inputs_of(seed)))
            norm = np.linalg.norm(model.weight().detach().numpy(), 2)
            assert stable == (0.01 * norm**2 <= 2 * gamma)  # what the docstring says suffices
            assert (np.array(result.vectors["euler_stability/modulus_max"]) > 1).all() != stable
            assert (result.values["euler_stability/modulus_max"] <= 1) == stable
            if not stable:  # D W with diagonal D > 0 has imaginary eigenvalues
                assert result.values["euler_stability/real_max"] == pytest.approx(0, abs=1e-9)
            assert result.values["euler_stability/real_max"] <= 1e-9


def test_gated_steps_match_finite_differences():
    model, inputs = model_of("antisymmetric_gated", step_size=0.1), inputs_of(steps=1)
    with torch.no_grad():
        moved = torch.eye(N, dtype=torch.float64) * 1e-6
        up, down = (model.run(inputs[:, :1].expand(1, N, M), (sign * moved,))[1][0] for sign in (1, -1))
    lambdas = np.linalg.eigvals((((up - down) / 2e-6).numpy().T - np.eye(N)) / 0.1)
    result = EulerStability()(context(model, inputs))
    assert result.values["euler_stability/real_max"] == pytest.approx(lambdas.real.max(), abs=1e-6)
    assert result.values["euler_stability/modulus_max"] == pytest.approx(np.abs(1 + 0.1 * lambdas).max(), abs=1e-7)


def test_only_euler_steps_are_measured():
    """coRNN's and LEM's steps are of other schemes, although they have a step size."""
    measured = {
        name for name in CATALOG.names("model") if EulerStability()(context(model_of(name), inputs_of(steps=2))).values
    }
    assert measured == {"ablation", "antisymmetric", "antisymmetric_gated", "lipschitz_rnn"}


def test_probes_leave_the_model_unchanged():
    model = model_of("enrnn").float()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for probe in (GradientBound(), TransientGrowth(), EulerStability()):
        probe(context(model, inputs_of().float()))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_sequences_end_at_their_length():
    inputs = inputs_of()
    lengths = torch.tensor([5, T])
    result = GradientBound()(context(model_of("rnn"), inputs, lengths))
    assert result.vectors["gradient_bound/lags"] == list(range(5))
