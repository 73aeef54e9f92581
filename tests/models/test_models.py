"""Each model against a literal, step-by-step transcription of its equations in float64, and its start."""

import math

import numpy as np
import pytest
import torch

from orthobench.model import Signature
from orthobench.plugins import Catalog
from orthobench.spec import resolve

T, B, M, P = 6, 3, 4, 5


def make(name: str, readout: str = "all", seed: int = 0, inputs: int = M, outputs: int = P, **settings):
    cls = Catalog().load("model", name)
    read = cls.Settings.read({"hidden_size": 7, **settings})
    return cls(read, Signature(inputs, outputs, readout), torch.Generator().manual_seed(seed))


def run(model) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Random parameters (so that no zero bias hides an error), random inputs, and the model's outputs."""
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


def modrelu(z, b):
    return np.sign(z) * np.maximum(np.abs(z) + b, 0)


def expected_outputs(x, step, n, p):
    """Outputs V h_t + c of a recurrence given as a function of (x_t, state)."""
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


ACTIVATIONS = {"tanh": np.tanh, "relu": lambda z: np.maximum(z, 0)}


@pytest.mark.parametrize("activation", ["modrelu", "relu", "tanh"])
@pytest.mark.parametrize("negative_ones", [0, 3])
def test_scornn(activation, negative_ones):
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


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_rnn(activation):
    x, outputs, p = run(make("rnn", activation=activation))

    def step(x_t, h):
        h = np.zeros(7) if h is None else h
        return ACTIVATIONS[activation](p["recurrent_weight"] @ h + p["input_weight"] @ x_t + p["bias"])

    np.testing.assert_allclose(outputs, expected_outputs(x, step, 7, p), rtol=1e-9, atol=1e-12)


def test_lstm():
    x, outputs, p = run(make("lstm", forget_bias=1.5))

    def step(x_t, state):
        h, c = (np.zeros(7), np.zeros(7)) if state is None else state
        i, f, g, o = np.split(p["recurrent_weight"] @ h + p["input_weight"] @ x_t + p["bias"], 4)
        c = sigmoid(f + 1.5) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c

    np.testing.assert_allclose(outputs, expected_outputs(x, step, 7, p), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("reset_after", [False, True])
def test_gru(reset_after):
    x, outputs, p = run(make("gru", reset_after=reset_after))
    r_r, r_z, r_g = np.split(p["recurrent_weight"], 3)

    def step(x_t, h):
        h = np.zeros(7) if h is None else h
        x_r, x_z, x_g = np.split(p["input_weight"] @ x_t + p["bias"], 3)
        r, z = sigmoid(x_r + r_r @ h), sigmoid(x_z + r_z @ h)
        mixed = r * (r_g @ h + p["candidate_bias"]) if reset_after else r_g @ (r * h)
        return z * h + (1 - z) * np.tanh(x_g + mixed)

    np.testing.assert_allclose(outputs, expected_outputs(x, step, 7, p), rtol=1e-9, atol=1e-12)


def test_lstm_is_torchs_lstm():
    model = make("lstm", forget_bias=2.0)
    theirs = torch.nn.LSTM(M, 7)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(model.input_weight)
        theirs.weight_hh_l0.copy_(model.recurrent_weight)
        theirs.bias_ih_l0.copy_(model.bias)
        theirs.bias_hh_l0.copy_(model.forget_offset)
    x = torch.randn(20, B, M, generator=torch.Generator().manual_seed(0))
    h, _ = theirs(x)
    wanted = torch.nn.functional.linear(h, model.output_weight, model.output_bias)
    torch.testing.assert_close(model(x)[0], wanted, rtol=1e-5, atol=1e-6)


def test_gru_reset_after_is_torchs_gru():
    model = make("gru", reset_after=True)
    theirs = torch.nn.GRU(M, 7)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(model.input_weight)
        theirs.weight_hh_l0.copy_(model.recurrent_weight)
        theirs.bias_ih_l0.copy_(model.bias)
        theirs.bias_hh_l0.copy_(torch.cat((torch.zeros(14), model.candidate_bias)))
    x = torch.randn(20, B, M, generator=torch.Generator().manual_seed(0))
    h, _ = theirs(x)
    wanted = torch.nn.functional.linear(h, model.output_weight, model.output_bias)
    torch.testing.assert_close(model(x)[0], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["scornn", "rnn", "lstm", "gru"])
def test_gradients_by_finite_differences(name):
    model = make(name, "last").double()
    x = torch.randn(4, 2, M, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    names, parameters = zip(*model.named_parameters(), strict=True)
    starts = tuple(parameter.detach().clone().requires_grad_() for parameter in parameters)

    def loss(*values):
        outputs, _ = torch.func.functional_call(model, dict(zip(names, values, strict=True)), (x,))
        return outputs.square().sum()

    assert torch.autograd.gradcheck(loss, starts)


def test_scornn_starts_as_its_program():
    model = make("scornn", hidden_size=50, negative_ones=15)
    assert torch.equal(model.signs, torch.tensor([1.0] * 35 + [-1.0] * 15))
    assert (model.bias == 0).all()
    assert model.input_weight.abs().max() <= 0.01
    assert model.output_weight.abs().max() <= math.sqrt(6 / 55)
    assert (model.output_bias == 0).all()
    # -1 on whole 2 x 2 blocks reflects their eigenvalues across the imaginary axis: 15 odd leaves one block apart.
    left = (np.linalg.eigvals(model.recurrent_matrices()["W"].detach().numpy()).real < -1e-9).sum()
    assert left in (14, 15)
    zero = make("scornn", hidden_size=6, negative_ones=2, initialization="zeros").recurrent_matrices()["W"]
    assert torch.equal(zero, torch.diag(torch.tensor([1.0, 1, 1, 1, -1, -1])))


def test_scornn_trains_a_apart():
    others, skew = make("scornn", optimizer="adam_tf1", recurrent_learning_rate=1e-5).parameter_groups()
    assert [parameter.numel() for parameter in skew.parameters] == [21]
    assert (others.optimizer, skew.optimizer, skew.learning_rate) == ("adam_tf1", "rmsprop_tf1", 1e-5)


def test_lstm_starts_as_tensorflows_cell():
    model = make("lstm", hidden_size=40)
    bound = math.sqrt(6 / (M + 40 + 160))
    for weight in (model.input_weight, model.recurrent_weight):
        assert 0.9 * bound < weight.abs().max() <= bound
    assert (model.bias == 0).all()
    assert model.forget_offset.view(4, -1).sum(1).tolist() == [0, 40, 0, 0]


def test_copying_programs_start_the_output_bias_at_random():
    bias = make("scornn", outputs=9, output_bias="glorot").output_bias
    assert 0 < bias.abs().max() <= 3**0.5 / 3


@pytest.mark.parametrize(
    ("model", "n", "m", "p", "exact"),
    [
        ("scornn", 170, 1, 10, 16_415),
        ("scornn", 360, 1, 10, 68_950),
        ("scornn", 512, 1, 10, 136_970),
        ("scornn", 170, 2, 1, 15_046),
        ("scornn", 190, 10, 9, 21_764),
        ("scornn", 224, 129, 129, 83_121),
        ("lstm", 128, 1, 10, 67_850),
        ("lstm", 256, 1, 10, 266_762),
        ("lstm", 60, 2, 1, 15_181),
        ("lstm", 68, 10, 9, 22_109),
        ("lstm", 158, 129, 129, 202_527),
        ("rnn", 116, 1, 10, 14_858),
        ("rnn", 360, 1, 10, 133_930),
        ("gru", 80, 10, 9, 3 * (800 + 6400 + 80) + 729),
    ],
)
def test_parameters_are_counted_as_in_the_papers(model, n, m, p, exact):
    assert make(model, inputs=m, outputs=p, hidden_size=n).parameter_count() == exact


@pytest.mark.parametrize(("task", "model", "printed"), [("adding", "scornn", 15), ("copying", "scornn", 22)])
def test_defaults_have_the_printed_size(task, model, printed):
    resolved = resolve(Catalog(), task, model, {"train_size": "20", "test_size": "20", "batch_size": "20"})
    signature = resolved.task_class(resolved.task_settings, 0, torch.device("cpu")).signature
    made = resolved.model_class(resolved.model_settings, signature, torch.Generator())
    assert round(made.parameter_count() / 1000) == printed
