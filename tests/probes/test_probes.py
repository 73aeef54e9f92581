"""Every probe's number against an independent calculation."""

import numpy as np
import pytest
import torch

from orthobench.model import Signature
from orthobench.plugins import Catalog
from orthobench.probe import ProbeContext, ProbeResult
from orthobench.probes.gradient_norm import GradientNorm
from orthobench.probes.gradient_norm_of_mean import MOST_STATES, GradientNormOfMean
from orthobench.probes.orthogonality import Orthogonality, orthogonality
from orthobench.recurrence import GradientTrace
from orthobench.recurrence.backends import forget_used, last_used
from orthobench.tasks.adding import Adding, AddingSettings


def context(model_name: str) -> ProbeContext:
    task = Adding(AddingSettings(sequence_length=9, train_size=6, test_size=6), 0, torch.device("cpu"))
    cls = Catalog().load("model", model_name)
    signature = Signature(2, 1, "last")
    model = cls(cls.Settings.read({"hidden_size": 5}), signature, torch.Generator().manual_seed(0))
    return ProbeContext(model, task, task.train.batch(torch.arange(6)))


def test_orthogonality_matches_numpy():
    w = np.random.default_rng(0).normal(size=(6, 6)).astype(np.float32)
    exact = np.linalg.norm(w.astype(float).T @ w.astype(float) - np.eye(6))
    assert orthogonality(torch.from_numpy(w)) == pytest.approx(exact, rel=1e-12)
    assert orthogonality(torch.eye(6)) == 0
    assert orthogonality(2 * torch.eye(6)) == pytest.approx(3 * 6**0.5)


@pytest.mark.parametrize(
    ("model_name", "matrices"),
    [
        ("scornn", {"W"}),
        ("rnn", {"W"}),
        ("enrnn", {"W_L", "W_S"}),
        ("antisymmetric", {"I_plus_eps_W"}),
        *(
            (name, set())
            for name in ("lstm", "gru", "antisymmetric_gated", "ablation", "lipschitz_rnn", "cornn", "lem")
        ),
    ],
)
def test_orthogonality_covers_step_matrices_only(model_name, matrices):
    """Not of those inside a gate or a derivative, as of W in h + eps tanh(W h)."""
    names = set(Orthogonality()(context(model_name)).values)
    assert {name.partition("/")[2] for name in names if name.startswith("orthogonality/")} == matrices


def test_constrained_matrix_is_nearly_orthogonal():
    assert Orthogonality()(context("scornn")).values["orthogonality/W"] < 1e-5


@pytest.mark.parametrize("model_name", ["scornn", "rnn", "lstm", "gru"])
def test_gradient_norms_match_perturbed_states(model_name):
    """dL/dh_t is what the loss does when h_t is shifted and the rest of the sequence is run from there."""
    about = context(model_name)
    model, batch = about.model.double(), about.batch
    inputs, targets = batch.inputs.double(), batch.targets.double()
    trace = GradientTrace()
    outputs, _ = model(inputs, trace=trace)
    about.task.loss(outputs, targets).backward()
    for t in range(inputs.shape[0] - 1):
        _, state = model(inputs[: t + 1])
        leaves = tuple(part.detach().requires_grad_() for part in state)
        rest, _ = model(inputs[t + 1 :], leaves)
        gradients = torch.autograd.grad(about.task.loss(rest, targets), leaves)
        torch.testing.assert_close(trace.norms["h"][t], gradients[0].norm(dim=-1) + 0 * trace.norms["h"][t])


def test_probe_does_not_change_the_model():
    about = context("scornn")
    before = {name: value.clone() for name, value in about.model.state_dict().items()}
    result = GradientNorm()(about)
    assert all(torch.equal(value, before[name]) for name, value in about.model.state_dict().items())
    assert all(parameter.grad is None for parameter in about.model.parameters())
    trace = GradientTrace()
    outputs, _ = about.model(about.batch.inputs, trace=trace)
    about.task.loss(outputs, about.batch.targets).backward()
    norms = trace.norms["h"].numpy()
    np.testing.assert_allclose(result.vectors["gradient_norm/h"], np.sqrt((norms**2).sum(1)), rtol=1e-5)
    np.testing.assert_allclose(result.vectors["gradient_norm_per_sample/h"], norms.mean(1), rtol=1e-5)


@pytest.mark.parametrize("model_name", ["scornn", "lstm", "gru", "urnn"])
def test_norm_of_the_mean_matches_a_shared_shift(model_name):
    """A number added to a unit of h_t in all samples changes the loss by the sum of their derivatives."""
    about = context(model_name)
    model, batch = about.model.double(), about.batch
    inputs, targets = batch.inputs.double(), batch.targets.double()
    measured = GradientNormOfMean()(ProbeContext(model, about.task, type(batch)(inputs, targets)))
    vector = measured.vectors["gradient_norm_of_mean/h"]
    assert len(vector) == len(inputs)
    for t in range(len(inputs) - 1):
        _, state = model(inputs[: t + 1])
        first, *others = (part.detach() for part in state)
        shift = torch.zeros(first.shape[-1], dtype=first.dtype, requires_grad=True)
        rest, _ = model(inputs[t + 1 :], (first + shift, *others))
        (gradient,) = torch.autograd.grad(about.task.loss(rest, targets), shift)
        assert vector[t] == pytest.approx(float(gradient.norm()), rel=1e-9)


def test_copies_in_a_batch_change_sample_norms_and_not_the_norm_of_the_mean():
    """Four times the batch: a sample's norm is a quarter, the whole batch's a half."""
    about = context("scornn")
    batch = about.batch
    copies = type(batch)(batch.inputs.repeat(1, 4, 1), batch.targets.repeat(4, 1))
    larger = ProbeContext(about.model, about.task, copies)
    small, large = ({**GradientNorm()(each).vectors, **GradientNormOfMean()(each).vectors} for each in (about, larger))
    for name, factor in (("gradient_norm", 0.5), ("gradient_norm_per_sample", 0.25), ("gradient_norm_of_mean", 1.0)):
        np.testing.assert_allclose(large[f"{name}/h"], factor * np.array(small[f"{name}/h"]), rtol=1e-4)


def test_opposite_samples_cancel_in_the_norm_of_the_mean():
    about = context("rnn")
    batch = about.batch
    inputs = batch.inputs[:, :1].repeat(1, 2, 1)
    targets = about.model(inputs)[0].detach() + torch.tensor([[1.0], [-1.0]])
    opposite = ProbeContext(about.model, about.task, type(batch)(inputs, targets))
    of_mean = np.array(GradientNormOfMean()(opposite).vectors["gradient_norm_of_mean/h"])
    assert (of_mean < 1e-5 * np.array(GradientNorm()(opposite).vectors["gradient_norm_per_sample/h"])).all()


def test_norm_of_the_mean_keeps_model_generator_and_back_end_record():
    about = context("scornn")
    forget_used()
    before, generator = {name: value.clone() for name, value in about.model.state_dict().items()}, torch.get_rng_state()
    GradientNormOfMean()(about)
    assert all(torch.equal(value, before[name]) for name, value in about.model.state_dict().items())
    assert all(parameter.grad is None for parameter in about.model.parameters())
    assert torch.equal(torch.get_rng_state(), generator)
    assert last_used() == set()


def test_norm_of_the_mean_is_left_out_for_very_many_states():
    about = context("scornn")
    steps = MOST_STATES // (6 * 5)  # of six samples and five units
    inputs = torch.zeros(1, 6, 2).expand(steps + 1, 6, 2)
    assert GradientNormOfMean()(
        ProbeContext(about.model, about.task, type(about.batch)(inputs, about.batch.targets))
    ) == (ProbeResult())
