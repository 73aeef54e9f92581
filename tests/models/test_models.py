"""Each model against a literal, step-by-step transcription of its equations in float64."""

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch
from support.models import (
    B,
    M,
    assert_gradients,
    cayley,
    expected_outputs,
    make,
    modrelu,
    plain_outputs,
    run,
    sigmoid,
    skew_of,
    steps,
)

from orthobench.errors import UsageError
from orthobench.training.optimizers import build_optimizer

ACTIVATIONS = {"tanh": np.tanh, "relu": lambda z: np.maximum(z, 0)}


@pytest.mark.parametrize("activation", ["modrelu", "relu", "tanh"])
@pytest.mark.parametrize("negative_ones", [0, 3])
def test_scornn_matches_a_literal_transcription(activation, negative_ones):
    model = make("scornn", activation=activation, negative_ones=negative_ones)
    x, outputs, p = run(model)
    a = np.zeros((7, 7))
    a[np.triu_indices(7, 1)] = p["skew_entries"]
    a -= a.T
    d = np.diag([1.0] * (7 - negative_ones) + [-1.0] * negative_ones)
    w = np.linalg.inv(np.eye(7) + a) @ (np.eye(7) - a) @ d

    def step(x_t, h):
        z = w @ (np.zeros(7) if h is None else h) + p["input_weight"] @ x_t
        return modrelu(z, p["bias"]) if activation == "modrelu" else ACTIVATIONS[activation](z + p["bias"])

    np.testing.assert_allclose(outputs, expected_outputs(x, step, 7, p), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("activation", ["modrelu", "relu", "tanh"])
def test_rnn_matches_a_literal_transcription(activation):
    x, outputs, p = run(make("rnn", activation=activation))

    def step(x_t, h):
        z = p["recurrent_weight"] @ (np.zeros(7) if h is None else h) + p["input_weight"] @ x_t
        return modrelu(z, p["bias"]) if activation == "modrelu" else ACTIVATIONS[activation](z + p["bias"])

    np.testing.assert_allclose(outputs, expected_outputs(x, step, 7, p), rtol=1e-9, atol=1e-12)


def test_lstm_matches_a_literal_transcription():
    x, outputs, p = run(make("lstm", forget_bias=1.5))

    def step(x_t, state):
        h, c = (np.zeros(7), np.zeros(7)) if state is None else state
        i, f, g, o = np.split(p["recurrent_weight"] @ h + p["input_weight"] @ x_t + p["bias"], 4)
        c = sigmoid(f + 1.5) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c

    np.testing.assert_allclose(outputs, expected_outputs(x, step, 7, p), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("reset_after", [False, True])
def test_gru_matches_a_literal_transcription(reset_after):
    x, outputs, p = run(make("gru", reset_after=reset_after))
    r_r, r_z, r_g = np.split(p["recurrent_weight"], 3)

    def step(x_t, h):
        h = np.zeros(7) if h is None else h
        x_r, x_z, x_g = np.split(p["input_weight"] @ x_t + p["bias"], 3)
        r, z = sigmoid(x_r + r_r @ h), sigmoid(x_z + r_z @ h)
        mixed = r * (r_g @ h + p["candidate_bias"]) if reset_after else r_g @ (r * h)
        return z * h + (1 - z) * np.tanh(x_g + mixed)

    np.testing.assert_allclose(outputs, expected_outputs(x, step, 7, p), rtol=1e-9, atol=1e-12)


def test_lstm_with_cell_connected_to_the_output_gate():
    model = make("lstm", forget_bias=1.0, cell_to_output=True)
    x, outputs, p = run(model)
    r_i, r_f, r_g, r_o = np.split(p["recurrent_weight"], 4)

    def step(x_t, state):
        h, c = (np.zeros(7), np.zeros(7)) if state is None else state
        x_i, x_f, x_g, x_o = np.split(p["input_weight"] @ x_t + p["bias"], 4)
        c = sigmoid(x_f + r_f @ h + 1.0) * c + sigmoid(x_i + r_i @ h) * np.tanh(x_g + r_g @ h)
        return sigmoid(x_o + r_o @ h + p["cell_weight"] @ c) * np.tanh(c), c

    np.testing.assert_allclose(outputs, expected_outputs(x, step, 7, p), rtol=1e-9, atol=1e-12)
    assert_gradients(model)


def test_lstm_equals_torch_lstm():
    model = make("lstm", forget_bias=2.0)
    reference = torch.nn.LSTM(M, 7)
    with torch.no_grad():
        reference.weight_ih_l0.copy_(model.input_weight)
        reference.weight_hh_l0.copy_(model.recurrent_weight)
        reference.bias_ih_l0.copy_(model.bias)
        reference.bias_hh_l0.copy_(model.forget_offset)
    x = torch.randn(20, B, M, generator=torch.Generator().manual_seed(0))
    h, _ = reference(x)
    expected = torch.nn.functional.linear(h, model.output_weight, model.output_bias)
    torch.testing.assert_close(model(x)[0], expected, rtol=1e-5, atol=1e-6)


def test_gru_reset_after_equals_torch_gru():
    model = make("gru", reset_after=True)
    reference = torch.nn.GRU(M, 7)
    with torch.no_grad():
        reference.weight_ih_l0.copy_(model.input_weight)
        reference.weight_hh_l0.copy_(model.recurrent_weight)
        reference.bias_ih_l0.copy_(model.bias)
        reference.bias_hh_l0.copy_(torch.cat((torch.zeros(14), model.candidate_bias)))
    x = torch.randn(20, B, M, generator=torch.Generator().manual_seed(0))
    h, _ = reference(x)
    expected = torch.nn.functional.linear(h, model.output_weight, model.output_bias)
    torch.testing.assert_close(model(x)[0], expected, rtol=1e-5, atol=1e-6)


def test_irnn_matches_a_literal_transcription():
    x, outputs, p = run(make("irnn"))
    expected = plain_outputs(x, p["recurrent_weight"], lambda z, b: np.maximum(z + b, 0), p)
    np.testing.assert_allclose(outputs, expected, rtol=1e-9, atol=1e-12)
    assert torch.equal(make("irnn").weight(), torch.eye(7))


def test_exprnn_matches_a_literal_transcription():
    x, outputs, p = run(make("exprnn"))
    w = scipy.linalg.expm(skew_of(p["skew_entries"], 7))
    np.testing.assert_allclose(outputs, plain_outputs(x, w, modrelu, p), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("reflections", [1, 3, 7])
def test_ornn_matches_a_literal_transcription(reflections):
    x, outputs, p = run(make("ornn", reflections=reflections))
    vectors = np.zeros((7, reflections))
    vectors[tuple(np.tril_indices(7, 0, reflections))] = p["entries"]
    w = np.eye(7)
    for j, u in enumerate(vectors.T):
        last = np.diag([1.0] * 6 + [np.sign(u[-1])])
        w = w @ (last if j == 6 else np.eye(7) - 2 * np.outer(u, u) / (u @ u))
    expected = plain_outputs(x, w, lambda z, b: np.where(z + b >= 0, z + b, 0.1 * (z + b)), p)
    np.testing.assert_allclose(outputs, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("sign", [1, -1])
def test_last_of_n_ornn_reflections_is_a_sign(sign):
    """With n reflections of n units, the last acts on one coordinate: it is the sign of its only entry."""
    model = make("ornn", reflections=7).double()
    with torch.no_grad():
        model.entries[-1] = sign * model.entries[-1].abs()
    vectors = np.zeros((7, 7))
    vectors[np.tril_indices(7)] = model.entries.detach().numpy()
    w = np.eye(7)
    for u in vectors.T[:-1]:
        w = w @ (np.eye(7) - 2 * np.outer(u, u) / (u @ u))
    np.testing.assert_allclose(model.weight().detach(), w @ np.diag([1.0] * 6 + [sign]), atol=1e-12)


@pytest.mark.parametrize("coupling", [True, False])
@pytest.mark.parametrize("normalised", [True, False])
def test_enrnn_matches_a_literal_transcription(coupling, normalised, on_gpu):
    model = make("enrnn", short_size=3, negative_ones=2, coupling=coupling, epsilon=0.1)
    model.normalised.fill_(normalised)
    x, outputs, p = run(model)
    short = p["short_weight"]
    if normalised:
        short = short / (np.abs(np.linalg.eigvals(short)).max() + 0.1)
    corner = p["coupling_weight"] if coupling else np.zeros((4, 3))
    w = np.block([[cayley(p["skew_entries"], 4, 2), corner], [np.zeros((3, 4)), short]])
    np.testing.assert_allclose(outputs, plain_outputs(x, w, modrelu, p), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["antisymmetric", "antisymmetric_gated", "ablation"])
def test_antisymmetric_family_matches_a_literal_transcription(name):
    settings = {} if name == "ablation" else {"diffusion": 0.3}
    x, outputs, p = run(make(name, step_size=0.2, **settings))
    entries = p["recurrent_entries"]
    w = entries.reshape(7, 7) if name == "ablation" else skew_of(entries, 7) - 0.3 * np.eye(7)

    def step(x_t, h):
        h = np.zeros(7) if h is None else h
        z = p["input_weight"] @ x_t + p["bias"]
        gate = 1 if name == "antisymmetric" else sigmoid(w @ h + z[7:])
        return h + 0.2 * gate * np.tanh(w @ h + z[:7])

    np.testing.assert_allclose(outputs, expected_outputs(x, step, 7, p), rtol=1e-9, atol=1e-12)


def test_antisymmetric_matrices_are_antisymmetric():
    model = make("antisymmetric", diffusion=0.25, hidden_size=40, recurrent_scale=2.0)
    w = model.weight().detach()
    torch.testing.assert_close(w + w.T, -0.5 * torch.eye(40))
    eigenvalues = torch.linalg.eigvals(w.double())
    torch.testing.assert_close(eigenvalues.real, torch.full((40,), -0.25, dtype=torch.float64))
    assert model.recurrent_entries.std().item() == pytest.approx(2 / 40**0.5, rel=0.1)


def test_dtriv_equals_exprnn_until_its_base_moves():
    """The first move leaves W where it was; later moves too, though A is zero after them."""
    exprnn, dtriv = make("exprnn"), make("dtriv", rebase_every=3)
    assert (dtriv.skew_entries == 0).all()
    torch.testing.assert_close(dtriv.weight(), exprnn.weight())
    steps(dtriv, 2, 100)
    before = dtriv.weight()
    assert (dtriv.skew_entries != 0).any()
    with torch.no_grad():
        dtriv.after_step()
    assert (dtriv.skew_entries == 0).all()
    torch.testing.assert_close(dtriv.weight(), before)


@pytest.fixture(params=[False, True], ids=["host", "gpu"])
def on_gpu(request, monkeypatch):
    """Whether the model selects numbers instead of reading them, as on a GPU."""
    for name in ("enrnn", "dtriv"):
        monkeypatch.setattr(f"orthobench.models.{name}.is_on_gpu", lambda tensor: request.param)
    return request.param


@pytest.mark.parametrize("rebase_every", [1, 3, None])
def test_dtriv_moves_as_its_program(rebase_every, on_gpu):
    """orthogonal.py:25 of EXPRNN's program: states are rows, multiplied by base exp(A); RMSProp works on A."""
    model = make("dtriv", hidden_size=6, rebase_every=rebase_every, recurrent_learning_rate=0.05)
    model.double()
    inputs, target = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    base = model.base.T.clone()
    raw = torch.zeros(6, 6, dtype=torch.float64, requires_grad=True)
    program_optimizer = torch.optim.RMSprop([raw], lr=0.05)
    optimizer = build_optimizer("rmsprop_torch", [model.skew_entries], 0.05)
    for count in range(1, 8):
        upper = raw.triu(1)
        matrix = base @ torch.matrix_exp(upper - upper.T)
        raw.grad = torch.autograd.grad((inputs @ matrix - target).square().mean(), raw)[0]
        program_optimizer.step()
        model.zero_grad()
        (inputs @ model.weight().T - target).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            model.after_step()
            upper = raw.triu(1)
            matrix = base @ torch.matrix_exp(upper - upper.T)
            if rebase_every and count % rebase_every == 0:
                base = matrix.clone()
                raw.zero_()
            torch.testing.assert_close(model.weight(), matrix.T, rtol=0, atol=1e-9)


def test_dtriv_stays_orthogonal(on_gpu):
    model = make("dtriv", rebase_every=1, project_every=10)
    steps(model, 200, 10)
    w = model.weight().double()
    assert torch.linalg.matrix_norm(w.T @ w - torch.eye(7)) < 10 * 7 * torch.finfo(torch.float32).eps


def test_dtriv_projects_its_base_every_few_changes(on_gpu):
    """A base that rounding has taken away from the orthogonal matrices comes back with the third change."""
    model = make("dtriv", rebase_every=2, project_every=3)
    with torch.no_grad():
        model.base.mul_(1.01)
        scales = []
        for _ in range(8):
            model.after_step()
            scales.append(torch.linalg.svdvals(model.weight()))
    torch.testing.assert_close(torch.stack(scales[:5]), torch.full((5, 7), 1.01))
    torch.testing.assert_close(torch.stack(scales[5:]), torch.ones(3, 7))


@pytest.mark.parametrize(
    ("name", "names", "dimension"),
    [
        ("lstm", ["W_i", "W_f", "W_g", "W_o"], 0),
        ("gru", ["W_r", "W_z", "W_g"], 0),
        ("lem", ["W_1", "W_z", "W_2", "W_y"], 0),
        ("cornn", ["W_y", "W_z"], 1),
    ],
)
def test_recurrent_matrices_are_slices_of_the_stacked_weight(name, names, dimension):
    model = make(name)
    matrices = model.recurrent_matrices()
    assert list(matrices) == names
    weight = model.recurrent_weight.detach().numpy()
    for i, matrix in enumerate(matrices.values()):
        part = weight[7 * i : 7 * i + 7] if dimension == 0 else weight[:, 7 * i : 7 * i + 7]
        np.testing.assert_array_equal(matrix.detach(), part)


def test_ornn_vectors_keep_unit_length():
    model = make("ornn", reflections=4)
    steps(model, 20, 10)
    torch.testing.assert_close(torch.linalg.vector_norm(model.vectors(), dim=0), torch.ones(4))


def test_enrnn_is_normalised_permanently_when_the_radius_passes_one(on_gpu):
    model = make("enrnn", hidden_size=30, short_size=20, negative_ones=3)
    assert not model.normalised
    assert model.radius() <= 1
    with torch.no_grad():
        model.short_weight.mul_(1.2 / model.radius())
        model.after_step()
        assert model.normalised
        model.short_weight.mul_(0.5)
        model.after_step()
    assert model.normalised
    steps(model, 200, 10)
    radius = np.abs(np.linalg.eigvals(model.blocks()[1].detach().double().numpy())).max()
    assert radius == pytest.approx(1, abs=1e-5)
    assert np.abs(np.linalg.eigvals(model.weight().detach().double().numpy())).max() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ("ornn", {"reflections": 9}, "reflections=9 is more than hidden_size (7)"),
        ("enrnn", {"short_size": 8}, "short_size=8 should be a whole number from 0 to hidden_size (7)"),
        ("enrnn", {"short_size": 3, "negative_ones": 5}, "from 0 to the long-term size (4)"),
        ("dtriv", {"rebase_every": 0}, "rebase_every=0"),
        ("antisymmetric", {"step_size": 0}, "step_size=0"),
    ],
)
def test_invalid_settings_are_refused(model, settings, message):
    with pytest.raises(UsageError) as error:
        make(model, **settings)
    assert message in str(error.value)


ALL = ["scornn", "rnn", "lstm", "gru", "irnn", "exprnn", "dtriv", "ornn", "enrnn", "antisymmetric"]
ALL += ["antisymmetric_gated", "ablation"]


@pytest.mark.parametrize("name", ALL)
def test_gradients_match_finite_differences(name):
    assert_gradients(make(name, "last"))


def test_scornn_trains_a_with_its_own_optimiser():
    others, skew = make("scornn", optimizer="adam_tf1", recurrent_learning_rate=1e-5).parameter_groups()
    assert [parameter.numel() for parameter in skew.parameters] == [21]
    assert (others.optimizer, skew.optimizer, skew.learning_rate) == ("adam_tf1", "rmsprop_tf1", 1e-5)
