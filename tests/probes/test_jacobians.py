"""Jacobians, their eigenvalues and the heat maps against finite differences, a literal transcription and NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from support.models import make

from orthobench.metric import why_undefined
from orthobench.plugins import Catalog
from orthobench.probe import ProbeContext
from orthobench.probes import _jacobians as jacobians
from orthobench.probes import orthogonality as orthogonality_of
from orthobench.probes.heat_map import HeatMap
from orthobench.probes.jacobian import Jacobian, eigenvalues, spread_steps
from orthobench.probes.orthogonality import Orthogonality, orthogonality, score_of_step
from orthobench.recurrence.backends import forget_used, last_used
from orthobench.task import Batch
from orthobench.tasks.adding import Adding, AddingSettings

T, B, M = 4, 2, 2


def model_of(name: str, n: int = 8):
    """In double precision, away from the start's special values."""
    # With one matrix no gradient of PD-SSM's inputs passes through the choice of a largest entry.
    settings = {"dictionary_size": 1} if name == "pd_ssm" else {}
    model = make(name, "last", inputs=M, outputs=1, hidden_size=n, **settings).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def inputs_of(steps: int = T) -> torch.Tensor:
    return torch.randn(steps, B, M, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def state_of(model) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    start = model.initial_state(B)
    return tuple(0.5 * torch.randn(part.shape, generator=generator, dtype=torch.float64) for part in start)


@torch.no_grad()
def final(model, inputs, state) -> np.ndarray:
    return torch.cat(model(inputs, state)[1], dim=-1).numpy()


def by_differences(model, inputs, state, step: float = 1e-6) -> tuple[np.ndarray, np.ndarray]:
    """ds_T / ds_0 `[B, N, N]` and ds_T / dx_t `[T, B, N, m]`, by central differences, all samples at once."""
    sizes = [part.shape[-1] for part in state]
    joint = torch.cat(state, dim=-1)

    def moved_state(j, by):
        moved = joint.clone()
        moved[:, j] += by
        return final(model, inputs, moved.split(sizes, dim=-1))

    def moved_input(t, j, by):
        moved = inputs.clone()
        moved[t, :, j] += by
        return final(model, moved, state)

    states = [(moved_state(j, step) - moved_state(j, -step)) / (2 * step) for j in range(joint.shape[1])]
    inputs_ = [
        np.stack([(moved_input(t, j, step) - moved_input(t, j, -step)) / (2 * step) for j in range(M)], axis=-1)
        for t in range(len(inputs))
    ]
    return np.stack(states, axis=-1), np.stack(inputs_)


@pytest.mark.parametrize("name", Catalog().names("model"))
def test_jacobians_match_finite_differences(name):
    model = model_of(name)
    inputs, state = inputs_of(), state_of(model)
    results = jacobians.state_jacobian(model, inputs, state)
    np.testing.assert_allclose(results.numpy(), by_differences(model, inputs, state)[0], rtol=1e-5, atol=1e-8)
    by_state, by_input = jacobians.step_jacobians(model, inputs[0], state)
    expected = by_differences(model, inputs[:1], state)
    np.testing.assert_allclose(by_state.numpy(), expected[0], rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(by_input.numpy(), expected[1][0], rtol=1e-5, atol=1e-8)


def test_rows_in_blocks_equal_all_rows(monkeypatch):
    model = model_of("lstm", 20)  # 40 rows
    inputs, state = inputs_of(), state_of(model)
    whole = jacobians.state_jacobian(model, inputs, state), *jacobians.step_jacobians(model, inputs[0], state)
    monkeypatch.setattr(jacobians, "ROWS", 1)
    pieces = jacobians.state_jacobian(model, inputs, state), *jacobians.step_jacobians(model, inputs[0], state)
    for jacobian, other in zip(whole, pieces, strict=True):
        torch.testing.assert_close(jacobian, other, rtol=1e-12, atol=1e-12)


def test_state_advances_between_jacobians():
    model = model_of("lstm")
    inputs = inputs_of()
    start_state = jacobians.start(model, B)
    halfway = jacobians.advance(model, inputs[:2], start_state)
    joined = torch.cat(jacobians.advance(model, inputs[2:], halfway), dim=-1).numpy()
    np.testing.assert_allclose(joined, final(model, inputs, None), rtol=1e-12)
    assert jacobians.advance(model, inputs[:0], start_state) is start_state


def test_steps_are_spread_from_the_first_to_the_last():
    assert spread_steps(4, 10) == [1, 4, 7, 10]
    assert spread_steps(16, 3) == [1, 2, 3]
    assert spread_steps(4, 1) == [1]


def context(model, inputs) -> ProbeContext:
    task = Adding(AddingSettings(sequence_length=9, train_size=6, test_size=6), 0, torch.device("cpu"))
    return ProbeContext(model, task, Batch(inputs, inputs.new_zeros(inputs.shape[1], 1)))


def as_complex(flat) -> np.ndarray:
    return np.asarray(flat).reshape(-1, 2) @ [1, 1j]


def assert_same_points(results: np.ndarray, expected: np.ndarray, atol: float) -> None:
    apart = np.abs(results[:, None] - expected[None])
    assert len(results) == len(expected)
    assert apart[linear_sum_assignment(apart)].max() < atol


def test_eigenvalues_along_a_sequence_match_a_rnn_written_out():
    """h_t = tanh(W h_{t-1} + U x_t + b) has J_t = diag(1 - h_t^2) W."""
    model = model_of("rnn")
    inputs = inputs_of(20)
    result = Jacobian()(context(model, inputs))
    p = {name: value.detach().numpy() for name, value in model.named_parameters()}
    h, steps, whole = np.zeros(8), [], np.eye(8)
    for x in inputs[:, 0].numpy():
        h = np.tanh(p["recurrent_weight"] @ h + p["input_weight"] @ x + p["bias"])
        steps.append(np.diag(1 - h**2) @ p["recurrent_weight"])
        whole = steps[-1] @ whole
    measured = result.vectors["jacobian/steps"]
    assert measured == sorted(set(measured))
    assert (measured[0], measured[-1], len(measured)) == (1, 20, 16)
    moduli = np.array([np.abs(np.linalg.eigvals(steps[t - 1])) for t in measured])
    np.testing.assert_allclose(result.vectors["jacobian/modulus_mean"], moduli.mean(1), rtol=1e-8)
    np.testing.assert_allclose(result.vectors["jacobian/modulus_std"], moduli.std(1), rtol=1e-8)
    assert result.values["jacobian/modulus_mean"] == pytest.approx(moduli.mean())
    assert result.values["jacobian/modulus_std"] == pytest.approx(moduli.std())
    clouds = {int(name.split("/")[2]): v for name, v in result.vectors.items() if name.count("/") == 2}
    assert sorted(clouds) == [1, measured[5], measured[10], 20]
    for t, cloud in clouds.items():
        assert_same_points(as_complex(cloud), np.linalg.eigvals(steps[t - 1]), 1e-8)
    exact = np.linalg.eigvals(whole)
    assert_same_points(as_complex(result.vectors["jacobian/end_to_end"]), exact, 1e-6)
    assert result.values["jacobian/end_to_end_modulus_mean"] == pytest.approx(np.abs(exact).mean(), rel=1e-5)


def test_lstm_eigenvalues_cover_both_states():
    model = model_of("lstm", 3)
    inputs = inputs_of()
    result = Jacobian()(context(model, inputs))
    sequence = inputs[:, :1]
    state = jacobians.advance(model, sequence[:2], jacobians.start(model, 1))
    expected = np.linalg.eigvals(by_differences(model, sequence[2:3], state)[0][0])
    assert len(expected) == 6
    assert_same_points(as_complex(result.vectors["jacobian/eigenvalues/3"]), expected, 1e-6)


def test_non_finite_matrix_has_nan_eigenvalues():
    assert eigenvalues(torch.tensor([[1.0, float("inf")], [0.0, 1.0]])).isnan().all()


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("enrnn", {"long": slice(0, 5), "short": slice(5, 8)}),
        ("lstm", {"h": slice(0, 8), "c": slice(8, 16)}),
        ("scornn", {"h": slice(0, 8)}),
    ],
)
def test_heat_map_matches_shifted_inputs(name, parts):
    model = model_of(name)
    inputs = inputs_of()
    result = HeatMap()(context(model, inputs))
    assert set(result.vectors) == {f"heat_map/{part}" for part in parts}
    start = jacobians.start(model, B)
    for tau in range(1, T + 1):
        _, by_input = by_differences(model, inputs[:tau], start)  # [tau, B, N, m]
        for part, features in parts.items():
            row = np.reshape(result.vectors[f"heat_map/{part}"], (T, T))[tau - 1]
            expected = np.sqrt((by_input[:, :, features] ** 2).sum((-2, -1))).mean(1)
            np.testing.assert_allclose(row[:tau], expected, rtol=1e-5, atol=1e-9)
            assert (row[tau:] == 0).all()


def test_orthogonality_is_measured_in_both_precisions():
    """W = [[1, -e], [e, 1]] has W'W = (1 + e^2) I, of which float32 keeps no e^2 = 2^-26."""
    e = 2.0**-13
    w = torch.tensor([[1, -e], [e, 1]])
    assert orthogonality(w) == pytest.approx(2**0.5 * e**2, rel=1e-12)
    assert orthogonality(w, torch.float32) == 0
    unitary = torch.tensor([[1, 1j * e], [1j * e, 1]])
    assert orthogonality(unitary) == pytest.approx(2**0.5 * e**2, rel=1e-12)
    assert orthogonality(unitary, torch.float32) == 0

    model = model_of("rnn").float()
    values = Orthogonality()(context(model, inputs_of().float())).values
    w = model.recurrent_weight.detach().numpy()
    exact = np.linalg.norm(w.T.astype(float) @ w.astype(float) - np.eye(8))
    assert values["orthogonality/W"] == pytest.approx(exact, rel=1e-12)
    assert values["orthogonality_own_precision/W"] == pytest.approx(exact, rel=1e-5)
    assert values["orthogonality_own_precision/W"] != values["orthogonality/W"]


def step_in_the_middle(model, inputs) -> np.ndarray:
    """The Jacobians of the second of four steps `[B, N, N]`, by central differences."""
    state = jacobians.advance(model, inputs[:1], jacobians.start(model, B))
    return by_differences(model, inputs[1:2], state)[0]


def distances(matrices: np.ndarray) -> np.ndarray:
    """||J^T J - I||_F of each J."""
    return np.linalg.norm(matrices.swapaxes(1, 2) @ matrices - np.eye(matrices.shape[-1]), axis=(1, 2))


@pytest.mark.parametrize("name", ["lstm", "gru", "antisymmetric", "enrnn", "slstm", "deltanet"])
def test_score_of_step_matches_finite_differences(name):
    model, inputs = model_of(name), inputs_of()
    expected = distances(step_in_the_middle(model, inputs))
    values = Orthogonality()(context(model, inputs)).values
    assert values["orthogonality_jacobian/J"] == pytest.approx(expected.mean(), rel=1e-6)


def test_score_of_a_linear_step_is_that_of_its_eigenvalues():
    """LRU's J turns and shrinks each pair of numbers by a modulus r, so J^T J has each r^2 twice."""
    model = model_of("lru")
    moduli = model.eigenvalues().detach().abs().numpy()
    values = Orthogonality()(context(model, inputs_of())).values
    assert values["orthogonality_jacobian/J"] == pytest.approx((2 * (moduli**2 - 1) ** 2).sum() ** 0.5, rel=1e-12)


def test_estimate_of_a_large_step_is_near_the_score_and_keeps_zero(monkeypatch):
    """Within three standard errors of the worst case, a distance of rank one: 2 (2 / 128)^(1/2) / 2 each."""
    monkeypatch.setattr(orthogonality_of, "EXACT", 3)
    for name in ("lstm", "gru", "deltanet"):
        model, inputs = model_of(name), inputs_of()
        values = Orthogonality()(context(model, inputs)).values
        assert "orthogonality_jacobian/J" not in values
        exact = distances(step_in_the_middle(model, inputs)).mean()
        assert values["orthogonality_jacobian/J_estimated"] == pytest.approx(exact, rel=3 / 8)
    model = make("scornn", "last", inputs=M, outputs=1, hidden_size=8).double()  # whose units are all active at first
    values = Orthogonality()(context(model, inputs_of())).values
    assert values["orthogonality_jacobian/J_estimated"] < 8 * 128 * np.finfo(float).eps


def test_step_is_that_in_the_middle_of_the_shortest_sequence():
    model, inputs = model_of("gru"), inputs_of(7)
    about = context(model, inputs)
    short = replace(about, batch=replace(about.batch, lengths=torch.tensor([7, 4])))
    assert score_of_step(short) == score_of_step(context(model, inputs[:4]))
    assert score_of_step(about) != score_of_step(short)


@pytest.mark.parametrize("name", Catalog().names("model"))
def test_every_model_has_a_score_of_its_step_and_one_of_each_matrix(name):
    model = make(name, "last", inputs=M, outputs=1, hidden_size=8)
    inputs = inputs_of().float()
    forget_used()
    model(inputs)
    of_run = {*last_used()}
    forget_used()
    values = Orthogonality()(context(model, inputs)).values
    assert last_used() <= of_run  # the step's own operations are not those of the run
    (score,) = (value for each, value in values.items() if each.startswith("orthogonality_jacobian/J"))
    assert np.isfinite(score)
    assert not any(why_undefined(each) for each in values)
    of_matrices = {each.partition("/")[2] for each in values if not each.startswith("orthogonality_jacobian/")}
    assert of_matrices == set(model.recurrent_matrices())
    step = of_matrices & set(model.step_matrices)
    assert {each for each in of_matrices if f"orthogonality/{each}" in values} == step
    assert {each for each in of_matrices if f"orthogonality_inside/{each}" in values} == of_matrices - step
