"""scuRNN, both uRNNs and KRU against literal transcriptions in complex NumPy, their starts, and what they promise."""

import math
from functools import reduce

import numpy as np
import pytest
import torch
from support.models import assert_gradients, expected_outputs, make, run, steps

from orthobench.errors import UsageError
from orthobench.model import Signature
from orthobench.plugins import Catalog
from orthobench.probes.orthogonality import orthogonality
from orthobench.training.optimizers import build_optimizer

pytestmark = pytest.mark.grid

NAMES = ["scurnn", "urnn", "full_urnn", "kru"]
EPS = torch.finfo(torch.float32).eps


def complex_of(reals):
    return reals[..., 0] + 1j * reals[..., 1]


def complex_outputs(x, w, p):
    """Outputs of h_t = modReLU(W h_{t-1} + U x_t; b), n complex units, from a trained or a zero start."""
    n = len(w)
    u = p["input_weight"][0::2] + 1j * p["input_weight"][1::2]
    start = complex_of(p["start"].reshape(n, 2)) if "start" in p else np.zeros(n)

    def step(x_t, state):
        h = start if state is None else complex_of(state.reshape(n, 2))
        z = w @ h + u @ x_t
        rho = np.sqrt(1e-5 + np.abs(z) ** 2)
        h = z * np.maximum(rho + p["bias"], 0) / (rho + 1e-5)
        return np.stack((h.real, h.imag), axis=-1).ravel()

    return expected_outputs(x, step, n, p)


def scurnn_matrix(p):
    entries = p["skew_entries"]
    upper, lower = np.triu(entries, 1), np.tril(entries, -1)
    a = upper - upper.T + 1j * (lower + lower.T + np.diag(np.diag(entries)))
    identity = np.eye(len(a))
    return np.linalg.inv(identity + a) @ (identity - a) @ np.diag(np.exp(1j * p["phases"]))


def urnn_matrix(p):
    n = len(p["permutation"])
    d1, d2, d3 = (np.diag(np.exp(1j * theta)) for theta in p["phases"])
    r1, r2 = (np.eye(n) - 2 * np.outer(u, u.conj()) / np.vdot(u, u) for u in complex_of(p["reflections"]))
    f = np.fft.fft(np.eye(n)) / np.sqrt(n)
    return d3 @ r2 @ f.conj().T @ d2 @ np.eye(n)[p["permutation"]] @ r1 @ f @ d1


def kru_matrix(p):
    factors = [complex_of(p[f"factors.{i}"]) for i in range(sum(name.startswith("factors.") for name in p))]
    return reduce(np.kron, factors)


CASES = [
    ("scurnn", {}, scurnn_matrix),
    ("urnn", {}, urnn_matrix),
    ("full_urnn", {}, lambda p: complex_of(p["recurrent_weight"])),
    ("full_urnn", {"gradient": "top_row"}, lambda p: complex_of(p["recurrent_weight"])),
    ("kru", {"hidden_size": 8}, kru_matrix),
    ("kru", {"hidden_size": 12, "factor_sizes": "3x4"}, kru_matrix),
    ("kru", {"hidden_size": 30, "factor_sizes": "2x5x3"}, kru_matrix),
    ("kru", {"factor_sizes": "7"}, kru_matrix),
    ("kru", {"hidden_size": 64}, kru_matrix),  # six factors, of which it multiplies pairs out
]


APPLIES = ("urnn", "kru")


@pytest.mark.parametrize(
    ("name", "settings", "matrix", "forms_weight"),
    [(*case, formed) for case in CASES for formed in (True, False) if formed or case[0] in APPLIES],
)
def test_outputs_match_a_literal_transcription(name, settings, matrix, forms_weight):
    model = make(name, **settings)
    model.forms_weight = forms_weight
    x, outputs, p = run(model)
    np.testing.assert_allclose(outputs, complex_outputs(x, matrix(p), p), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("readout", ["all", "last"])
@pytest.mark.parametrize(("name", "n"), [("urnn", 9), ("kru", 8)])
def test_forming_and_applying_w_agree(name, n, readout):
    """In outputs and in every gradient."""
    results = []
    for forms_weight in (True, False):
        model = make(name, readout, hidden_size=n).double()
        model.forms_weight = forms_weight
        x = torch.randn(20, 3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        outputs, _ = model(x)
        outputs.square().sum().backward()
        results.append([outputs, *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize(
    ("name", "settings", "forms_weight"),
    [
        ("urnn", {"hidden_size": 512}, True),
        ("urnn", {"hidden_size": 513}, False),
        ("kru", {"hidden_size": 64}, True),
        ("kru", {"hidden_size": 128}, False),
        ("kru", {"hidden_size": 128, "factor_sizes": "128"}, True),
    ],
)
def test_large_models_apply_w(name, settings, forms_weight):
    assert make(name, **settings).forms_weight == forms_weight


@pytest.mark.parametrize(
    ("name", "settings", "forms_weight"),
    [
        ("scurnn", {}, True),
        ("scurnn", {"initialization": "full_circle"}, True),
        ("urnn", {}, True),
        ("urnn", {}, False),
        ("full_urnn", {}, True),
        ("kru", {"hidden_size": 6, "factor_sizes": "2x3"}, True),
        ("kru", {"hidden_size": 6, "factor_sizes": "2x3"}, False),
    ],
)
def test_gradients_match_finite_differences(name, settings, forms_weight):
    model = make(name, **({"hidden_size": 4} | settings), inputs=2, outputs=2)
    model.forms_weight = forms_weight
    assert_gradients(model)


@pytest.mark.parametrize(
    ("name", "settings", "inputs", "outputs", "count"),
    [
        ("urnn", {"hidden_size": 512}, 1, 10, 16_394),
        ("urnn", {"hidden_size": 2170}, 1, 10, 69_450),
        ("urnn", {"hidden_size": 950}, 2, 1, 15_201),
        ("urnn", {"hidden_size": 470}, 10, 9, 22_569),
        ("urnn", {"hidden_size": 158}, 129, 129, 83_237),
        ("urnn", {"hidden_size": 256}, 129, 129, 134_785),
        ("urnn", {"hidden_size": 378}, 129, 129, 198_957),
        ("full_urnn", {"hidden_size": 116}, 1, 10, 16_366),
        ("full_urnn", {"hidden_size": 360}, 1, 10, 138_610),
        ("full_urnn", {"hidden_size": 512}, 1, 10, 274_954),
        ("full_urnn", {"hidden_size": 120}, 2, 1, 15_481),
        ("full_urnn", {"hidden_size": 128}, 10, 9, 21_641),
        ("full_urnn", {"hidden_size": 128}, 129, 129, 82_945),
        ("full_urnn", {"hidden_size": 192}, 129, 129, 136_641),
        ("full_urnn", {"hidden_size": 256}, 129, 129, 198_529),
        ("kru", {"hidden_size": 512, "bias": False}, 1, 10, 11_346),
        ("kru", {"hidden_size": 512}, 1, 10, 11_858),
        # n^2 + n + 2mn + n + 2n + 2np + p
        ("scurnn", {"hidden_size": 116}, 1, 10, 116**2 + 116 * (1 + 2 + 1 + 2 + 20) + 10),
        ("scurnn", {"hidden_size": 130}, 10, 9, 130**2 + 130 * (1 + 20 + 1 + 2 + 18) + 9),
    ],
)
def test_parameter_counts_match_the_papers(name, settings, inputs, outputs, count):
    assert make(name, inputs=inputs, outputs=outputs, **settings).parameter_count() == count


# scuRNN


@pytest.mark.parametrize("n", [6, 7])
@pytest.mark.parametrize(("initialization", "largest"), [("half_circle", math.pi / 2), ("full_circle", 2 * math.pi)])
def test_scurnn_starts_as_its_program(n, initialization, largest):
    model = make("scurnn", hidden_size=n, initialization=initialization).double()
    entries = model.skew_entries.detach().numpy()
    angles = 2 * np.arctan(-entries[range(0, n - 1, 2), range(1, n, 2)]) % (2 * np.pi)
    assert np.count_nonzero(entries) == n // 2
    assert (angles < largest).all()
    before_d = model.unitary().detach().numpy() / np.exp(1j * model.phases.detach().numpy())
    expected = np.sort(np.concatenate((np.exp(1j * angles), np.exp(-1j * angles), np.ones(n % 2))).imag)
    np.testing.assert_allclose(np.sort(np.linalg.eigvals(before_d).imag), expected, atol=1e-9)
    for name in ("start", "bias"):
        assert 0 < getattr(model, name).abs().max() <= 0.01
    assert model.input_weight.abs().max() <= (6 / (4 + 2 * n)) ** 0.5


def test_scurnn_angles_and_phases_fill_their_intervals():
    for initialization, width in (("half_circle", math.pi / 2), ("full_circle", 2 * math.pi)):
        model = make("scurnn", hidden_size=600, initialization=initialization)
        a = model.skew_entries.detach().numpy()
        angles = 2 * np.arctan(-a[range(0, 600, 2), range(1, 600, 2)]) % (2 * np.pi)
        assert angles.std() == pytest.approx(width / 12**0.5, rel=0.1)
    phases = model.phases.detach()
    assert phases.min() >= 0
    assert phases.max() <= 2 * math.pi
    assert phases.std().item() == pytest.approx(2 * math.pi / 12**0.5, rel=0.1)


def test_scurnn_has_three_optimisers():
    model = make("scurnn", phase_learning_rate=1e-4)
    others, matrix, phases = model.parameter_groups()
    assert (others.optimizer, others.learning_rate) == ("adam_tf1", 1e-3)
    assert (matrix.optimizer, matrix.learning_rate) == ("rmsprop_scurnn", 1e-4)
    assert (phases.optimizer, phases.learning_rate) == ("adagrad_tf1", 1e-4)
    assert matrix.parameters == [model.skew_entries]
    assert phases.parameters == [model.phases]
    names = {"input_weight", "bias", "start", "output_weight", "output_bias"}
    assert {id(p) for p in others.parameters} == {id(getattr(model, name)) for name in names}


def test_scurnn_rmsprop_matches_its_equations():
    gradients, w, r = np.random.default_rng(0).normal(size=(5, 3)) * 1e-4, np.ones(3), np.zeros(3)
    parameter = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    optimizer = build_optimizer("rmsprop_scurnn", [parameter], 0.01)
    for g in gradients:
        parameter.grad = torch.tensor(g)
        optimizer.step()
        r = 0.9 * r + 0.1 * g**2
        w -= 0.01 * g / np.sqrt(r + 1e-8)
    np.testing.assert_allclose(parameter.detach().numpy(), w, rtol=1e-12)


def test_scurnn_step_equals_the_programs_step_on_full_matrices():
    """RMSprop on the real and on the imaginary part of all of A, with the program's DFA, up to RMSprop's epsilon."""
    model = make("scurnn").double()
    x = torch.randn(9, 2, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    a = scurnn_a(model)
    w = model.unitary().detach().requires_grad_()
    with pytest.MonkeyPatch.context() as patch:  # dL/dW with W's entries free
        patch.setattr(model, "unitary", lambda: w)
        (model(x)[0] - 1).square().sum().backward()
    g = w.grad.numpy()
    model.zero_grad()
    z, d = np.linalg.inv(np.eye(7) + a) @ (np.eye(7) - a), np.exp(1j * model.phases.detach().numpy())
    upd = np.linalg.inv(np.eye(7) + a).T @ (g.conj() / 2) @ (np.diag(d) + (z * d).T)
    dfa = upd.T - upd.conj()
    expected = a - 1e-4 * sum(
        unit * part / np.sqrt(0.1 * part**2 + 1e-30) for unit, part in ((1, dfa.real), (1j, dfa.imag))
    )

    (model(x)[0] - 1).square().sum().backward()
    _, matrix, _ = model.parameter_groups()
    build_optimizer("rmsprop_scurnn", matrix.parameters, matrix.learning_rate).step()
    np.testing.assert_allclose(scurnn_a(model), expected, atol=1e-7)
    assert np.abs(expected - a).max() > 1e-4


def scurnn_a(model):
    entries = model.skew_entries.detach().numpy()
    upper, lower = np.triu(entries, 1), np.tril(entries, -1)
    return upper - upper.T + 1j * (lower + lower.T + np.diag(np.diag(entries)))


@pytest.mark.parametrize("name", ["scurnn", "urnn"])
def test_unitary_by_construction_stays_unitary_after_any_steps(name):
    model = make(name, hidden_size=40)
    before = model.unitary().detach()
    steps(model, 200, learning_rate=10)
    after = model.unitary().detach()
    assert (after - before).abs().max() > 0.02
    assert orthogonality(after) < 4 * 40**0.5 * EPS


# uRNNs


@pytest.mark.parametrize("name", ["urnn", "full_urnn"])
@pytest.mark.parametrize(("settings", "low", "high"), [({}, -0.01, 0.01), ({"bias_mean": 0.5}, 0.49, 0.51)])
def test_urnn_starts_as_its_program(name, settings, low, high):
    model = make(name, hidden_size=500, **settings)
    assert low <= model.bias.min() < low + 0.001
    assert high - 0.001 < model.bias.max() <= high
    bound = (3 / 1000) ** 0.5
    assert 0.95 * bound < model.start.abs().max() <= bound
    assert not model.output_bias.any()
    assert orthogonality(model.unitary().detach()) < 4 * 500**0.5 * EPS


@pytest.mark.parametrize("name", ["urnn", "full_urnn"])
def test_bias_of_the_mnist_program_is_zero(name):
    assert not make(name, bias_spread=0).bias.any()


def test_urnn_permutation_is_fixed():
    model = make("urnn")
    permutation = model.permutation.clone()
    steps(model, 3)
    assert torch.equal(model.permutation, permutation)
    assert "permutation" in model.state_dict()


def composite_gradient(model, x):
    """What the released program takes G from: dL/d[[A^T, B^T], [-B^T, A^T]], all entries free, in NumPy's order."""
    p = {name: parameter.detach() for name, parameter in model.named_parameters()}
    w = torch.view_as_complex(p["recurrent_weight"])
    composite = torch.cat((torch.cat((w.real.T, w.imag.T), 1), torch.cat((-w.imag.T, w.real.T), 1))).requires_grad_()
    apart = torch.cat((torch.arange(0, 14, 2), torch.arange(1, 14, 2)))  # [Re; Im] of what is interleaved
    u, v, h = p["input_weight"][apart], p["output_weight"][:, apart], p["start"][apart].expand(x.shape[1], -1)
    loss = 0
    for x_t in x:
        z = h @ composite + x_t @ u.T
        rho = (1e-5 + z[:, :7].square() + z[:, 7:].square()).sqrt()
        h = z * ((rho + p["bias"]).relu() / (rho + 1e-5)).repeat(1, 2)
        loss = loss + (h @ v.T + p["output_bias"] - 1).square().sum()
    (gradient,) = torch.autograd.grad(loss, composite)
    return gradient[:7, :7], gradient[:7, 7:], gradient[7:, :7], gradient[7:, 7:]


@pytest.mark.parametrize("gradient", ["both", "top_row"])
def test_full_urnn_gradient_matches_the_real_composite(gradient):
    model = make("full_urnn", gradient=gradient).double()
    x = torch.randn(6, 3, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    b00, b01, b10, b11 = composite_gradient(model, x)
    (model(x)[0] - 1).square().sum().backward()
    re, im = (b00, b01) if gradient == "top_row" else (b00 + b11, b01 - b10)
    torch.testing.assert_close(model.recurrent_weight.grad, torch.stack((re.T, im.T), dim=-1))


def test_gradients_of_all_other_parameters_are_complete():
    x = torch.randn(6, 3, 4, generator=torch.Generator().manual_seed(3))
    results = {}
    for gradient in ("both", "top_row"):
        model = make("full_urnn", gradient=gradient)
        model(x)[0].square().sum().backward()
        results[gradient] = {name: parameter.grad for name, parameter in model.named_parameters()}
    different = {name for name in results["both"] if not torch.equal(results["both"][name], results["top_row"][name])}
    assert different == {"recurrent_weight"}


@pytest.mark.parametrize("seed", range(20))
def test_a_small_step_of_full_urnn_lowers_the_loss(seed):
    model = make("full_urnn", seed=seed).double()
    x = torch.randn(8, 3, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    def loss():
        return (model(x)[0] - 1).square().mean()

    before = loss()
    before.backward()
    _, matrix = model.parameter_groups()
    assert matrix.parameters == [model.recurrent_weight]
    build_optimizer("cayley", matrix.parameters, 1e-3).step()
    assert loss() < before


def test_full_urnn_step_matches_its_equation():
    model = make("full_urnn").double()
    x = torch.randn(8, 3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (model(x)[0] - 1).square().mean().backward()
    w, g = (complex_of(part.detach().numpy()) for part in (model.recurrent_weight, model.recurrent_weight.grad))
    b = g @ w.conj().T - w @ g.conj().T
    expected = np.linalg.inv(np.eye(7) + 5e-4 * b) @ (np.eye(7) - 5e-4 * b) @ w
    _, matrix = model.parameter_groups()
    build_optimizer(matrix.optimizer, matrix.parameters, matrix.learning_rate).step()
    np.testing.assert_allclose(model.unitary().detach().numpy(), expected, atol=1e-14)


@pytest.mark.parametrize("optimizer", ["cayley", "cayley_rmsprop_keras1"])
def test_full_urnn_drifts_in_single_precision_only(optimizer):
    """Nothing brings it back (scoRNN paper, figure 4); a construction's rounding is about sqrt(n) eps for good."""
    n, results = 24, []
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            model = make("full_urnn", hidden_size=n, recurrent_optimizer=optimizer).to(dtype)
            with torch.no_grad():  # to the type's rounding
                left, _, right = torch.linalg.svd(model.unitary())
                model.recurrent_weight.copy_(torch.view_as_real(left @ right))
            for _ in range(3):
                steps(model, 60)
                results.append(orthogonality(model.unitary().detach()))
        finally:
            torch.set_default_dtype(torch.float32)
    assert results[0] < results[1] < results[2]
    assert results[2] > 10 * n**0.5 * EPS
    assert max(results[3:]) < 1e-11


# KRU


def test_kru_starts_as_its_program():
    model = make("kru", hidden_size=64)
    assert len(model.factors) == 6
    for factor in model.complex_factors():
        assert orthogonality(factor.detach()) < 4 * EPS
    assert len({tuple(factor.flatten().tolist()) for factor in model.factors}) == 6
    assert orthogonality(model.unitary().detach()) < 64**0.5 * 10 * EPS
    assert not model.bias.any()
    assert not model.initial_state(3)[0].any()


def test_kru_factors_start_haar_distributed():
    """Of a Haar-random unitary 2 x 2 matrix |w_11|^2 is uniform on (0, 1) and arg w_11 on the circle."""
    cls = Catalog().load("model", "kru")
    settings, signature = cls.Settings.read({"hidden_size": 2}), Signature(1, 1, "all")
    models = [cls(settings, signature, torch.Generator().manual_seed(seed)) for seed in range(400)]
    first = torch.stack([model.complex_factors()[0].detach()[0, 0] for model in models])
    assert first.abs().square().mean().item() == pytest.approx(1 / 2, abs=0.05)
    assert first.abs().square().std().item() == pytest.approx(1 / 12**0.5, rel=0.1)
    assert abs(first.mean()) < 0.1
    assert abs(first.square().mean()) < 0.1


def test_kru_penalty_matches_its_equation():
    model = make("kru", hidden_size=12, factor_sizes="3x4", penalty_weight=0.3)
    run(model)
    expected = 0.0
    for factor in model.complex_factors():
        w = factor.detach().numpy()
        expected += 0.3 * np.linalg.norm(w.conj().T @ w - np.eye(len(w))) ** 2
    assert model.penalty().item() == pytest.approx(expected, rel=1e-12)
    assert torch.autograd.gradcheck(lambda *_: model.penalty(), tuple(model.factors))


def test_kru_penalty_pulls_the_factors_towards_unitary():
    results = {}
    for weight in (0.0, 1.0):
        model = make("kru", hidden_size=16, penalty_weight=weight)
        with torch.no_grad():
            for factor in model.factors:
                factor.mul_(1.3)
        before = orthogonality(model.unitary().detach())
        steps(model, 200, learning_rate=5)
        results[weight] = orthogonality(model.unitary().detach())
    assert results[1.0] < 0.1 * before
    assert results[0.0] > 5 * results[1.0]


def test_kru_bias_can_be_left_out():
    model = make("kru", hidden_size=8, bias=False)
    steps(model, 3)
    assert not model.bias.any()


@pytest.mark.parametrize(
    ("settings", "read"),
    [
        ({"hidden_size": 8}, "2x2x2"),
        ({"hidden_size": 64, "factor_sizes": "4"}, "4x4x4"),
        ({"hidden_size": 64, "factor_sizes": 8}, "8x8"),
        ({"hidden_size": 6, "factor_sizes": "6"}, "6"),
        ({"hidden_size": 6, "factor_sizes": "2x3"}, "2x3"),
    ],
)
def test_kru_factor_sizes_are_read_and_round_trip(settings, read):
    cls = Catalog().load("model", "kru").Settings
    settings = cls.read(settings)
    assert settings.factor_sizes == read
    assert cls.read(settings.model_dump()) == settings


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("kru", {"hidden_size": 100}, "factor_sizes=2 should be sizes of at least 2 whose product is hidden_size"),
        ("kru", {"hidden_size": 100, "factor_sizes": "4x20"}, "factor_sizes=4x20 should be"),
        ("kru", {"hidden_size": 8, "factor_sizes": "1x8"}, "factor_sizes=1x8 should be"),
        ("kru", {"hidden_size": 8, "factor_sizes": "2,4"}, "factor_sizes=2,4 should be"),
        ("kru", {"hidden_size": 1}, "factor_sizes=2 should be"),
        ("kru", {"hidden_size": 8, "factor_sizes": "0"}, "factor_sizes=0 should be"),
        ("kru", {"penalty_weight": -1, "hidden_size": 8}, "penalty_weight=-1"),
        ("full_urnn", {"recurrent_optimizer": "adam"}, "recurrent_optimizer=adam"),
        ("full_urnn", {"gradient": "bottom"}, "gradient=bottom"),
        ("urnn", {"bias_spread": -0.1}, "bias_spread=-0.1"),
        ("scurnn", {"initialization": "zeros"}, "initialization=zeros"),
        ("scurnn", {"phase_learning_rate": 0}, "phase_learning_rate=0"),
    ],
)
def test_invalid_settings_are_refused(name, settings, message):
    with pytest.raises(UsageError) as raised:
        make(name, **settings)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
