"""A trained embedding before any model, and what Penn Treebank's experiments ask of the models in addition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from support.models import T, expected_outputs, make, plain_outputs

from orthobench.errors import UsageError
from orthobench.model import Signature
from orthobench.model.build import build_model
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve

pytestmark = pytest.mark.grid

CHARACTERS = Signature(50, 50, "all")


def build(name, signature=CHARACTERS, seed=0, **settings):
    cls = Catalog().load("model", name)
    return build_model(cls, cls.Settings.read(settings), signature, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("name", "settings", "count"),
    [
        ("lstm", {"hidden_size": 350, "embedding_size": 350}, 1_016_450),
        ("lstm", {"hidden_size": 475, "embedding_size": 200}, 1_318_200),
        ("rnn", {"hidden_size": 1024, "embedding_size": 200}, 1_315_650),
        ("exprnn", {"hidden_size": 1386, "embedding_size": 200}, 1_317_741),
        ("enrnn", {"hidden_size": 1030, "short_size": 720, "negative_ones": 186}, 893_575),
    ],
)
def test_parameter_counts_match_the_programs(name, settings, count):
    """Sums of the programs' tensors: 50 e for the embedding, the model on e inputs, 50 n + 50 for the output map."""
    assert build(name, **settings).parameter_count() == count


def test_model_reads_the_embedded_inputs():
    model = build("rnn", Signature(4, 5, "all"), hidden_size=7, embedding_size=3).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(parameter))))
    x = torch.randn(T, 2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    assert p["embedding"].shape == (3, 4)

    def step(x_t, h):
        h = np.zeros(7) if h is None else h
        embedded = p["embedding"] @ x_t
        return np.tanh(p["recurrent_weight"] @ h + p["input_weight"] @ embedded + p["bias"])

    expected = expected_outputs(x.numpy(), step, 7, p)
    np.testing.assert_allclose(model(x)[0].detach().numpy(), expected, rtol=1e-9, atol=1e-12)


STARTS: tuple[dict[str, Any], ...] = ({}, {"embedding_start": "normal"})


@pytest.mark.parametrize("name", Catalog().names("model"))
def test_embedding_of_every_model_is_trained_and_saved_once(name):
    before = torch.get_rng_state()
    model, other = (build(name, Signature(4, 5, "all"), seed, hidden_size=8, embedding_size=3) for seed in (0, 1))
    assert (torch.get_rng_state() == before).all()
    grouped = [id(parameter) for group in model.parameter_groups() for parameter in group.parameters]
    assert grouped.count(id(model.embedding)) == 1
    assert model.embedding.abs().max() <= 0.1
    x = torch.randn(T, 2, 4, generator=torch.Generator().manual_seed(0))
    outputs, _ = model(x)
    halves, _ = model(x[T // 2 :], model(x[: T // 2])[1])
    torch.testing.assert_close(halves, outputs[T // 2 :], rtol=1e-4, atol=1e-5)
    outputs.square().mean().backward()
    assert model.embedding.grad.abs().max() > 0
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x)[0], outputs)


@pytest.mark.parametrize("name", Catalog().names("model"))
def test_model_without_embedding_is_unchanged(name):
    cls = Catalog().load("model", name)
    plain = cls(cls.Settings.read({"hidden_size": 8}), CHARACTERS, torch.Generator().manual_seed(0)).state_dict()
    built = build(name, hidden_size=8).state_dict()
    assert plain.keys() == built.keys()
    assert all(torch.equal(plain[key], built[key]) for key in plain)
    assert "embedding_size" not in cls.Settings.read({"hidden_size": 8}).canonical()


def test_default_embedding_depends_on_the_hidden_size():
    def settings(**overrides):
        return resolve(Catalog(), "ptb", "lstm", overrides).spec.model_settings

    assert (settings()["hidden_size"], settings()["embedding_size"]) == (350, 350)
    assert settings(hidden_size="1030")["embedding_size"] == 1030
    assert "embedding_size" not in settings(hidden_size="100")
    assert settings(hidden_size="100", embedding_size="30")["embedding_size"] == 30


def test_normal_start_matches_torch_and_leaves_other_parameters_alone():
    """10,000 numbers of N(0, 1) leave these limits once in 10,000 draws (Kolmogorov and Smirnov)."""
    plain, normal = (build("rnn", Signature(200, 5, "all"), embedding_size=50, **more) for more in STARTS)
    assert stats.kstest(normal.embedding.detach().numpy().ravel(), "norm").pvalue > 1e-4
    assert stats.kstest(plain.embedding.detach().numpy().ravel(), "uniform", (-0.1, 0.2)).pvalue > 1e-4
    for name, parameter in plain.named_parameters():
        assert (name == "embedding") != torch.equal(parameter, normal.get_parameter(name))


def test_embedding_start_needs_an_embedding():
    def settings(**overrides):
        return resolve(Catalog(), "formal_language", "lstm", overrides).spec.model_settings

    assert (settings()["embedding_size"], settings()["embedding_start"]) == (128, "normal")
    assert "embedding_start" not in settings(hidden_size="100")
    assert "embedding_start" not in settings(embedding_size="none")
    assert settings(hidden_size="100", embedding_size="30")["embedding_start"] == "normal"
    assert "embedding_start" not in settings(embedding_start="uniform")
    with pytest.raises(UsageError, match="embedding_start=normal needs an embedding: add embedding_size"):
        settings(hidden_size="100", embedding_start="normal")


def test_enrnn_of_penn_treebank_has_relu_bias_and_orthonormal_coupling():
    """ReLU with a bias, and a coupling with orthonormal rows."""
    model = make("enrnn", hidden_size=9, short_size=5, negative_ones=2, activation="relu", coupling_start="orthogonal")
    corner = model.coupling_weight.detach().double()
    torch.testing.assert_close(corner @ corner.T, torch.eye(4, dtype=torch.float64), rtol=0, atol=1e-6)
    model.double()
    with torch.no_grad():
        model.bias.copy_(torch.linspace(-0.2, 0.3, 9))
    x = torch.randn(T, 2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    expected = plain_outputs(x.numpy(), model.weight().detach().numpy(), lambda z, b: np.maximum(z + b, 0), p)
    np.testing.assert_allclose(model(x)[0].detach().numpy(), expected, rtol=1e-9, atol=1e-12)
