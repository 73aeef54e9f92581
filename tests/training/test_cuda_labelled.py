"""Four training steps on "cuda" give the CPU's numbers: kernels, factorisations and optimisers as a GPU has them."""

import pytest
import torch
from support.interpreter import INTERPRETED, ON_GPU, run_interpreted
from support.labelled import bare, cuda_of_labels, reads

from orthobench.plugins import Catalog
from orthobench.recurrence.backends import forget_used, last_used
from orthobench.spec.resolve import resolve
from orthobench.tasks.adding import Adding, AddingSettings
from orthobench.training.trainer import Trainer

STEPS = 4
TINY = {"sequence_length": "6", "train_size": "40", "test_size": "10", "batch_size": "3"}


def train(
    model: str, settings: dict[str, str], device: torch.device
) -> tuple[list[float | None], dict[str, torch.Tensor]]:
    """The loss of each step and the parameters after the last."""
    config = resolve(Catalog(()), "adding", model, TINY | settings)
    assert isinstance(config.task_settings, AddingSettings)
    trainer = Trainer(config, Adding(config.task_settings, 0, device), device)
    losses = []
    for _ in range(STEPS):
        reads.clear()
        trainer.advance()
        assert not reads, f"the step of {model} reads values from the device: {dict(reads)}"
        losses.append(trainer.take_loss())
    parameters = {name: bare(value.detach()).clone() for name, value in trainer.model.named_parameters()}
    return losses, parameters


@pytest.mark.gpu
@pytest.mark.skipif(not (ON_GPU or INTERPRETED), reason="no GPU: covered by test_in_the_interpreter")
@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("scornn", {"hidden_size": "20"}),
        ("scornn", {"hidden_size": "140", "recurrent_optimizer": "rmsprop_theano"}),
        ("scornn", {"hidden_size": "258"}),
        ("exprnn", {"hidden_size": "20"}),
        ("scurnn", {"hidden_size": "10"}),
        ("lstm", {"hidden_size": "10", "optimizer": "adam"}),
        ("gru", {"hidden_size": "10", "optimizer": "rmsprop_torch"}),
        ("antisymmetric_gated", {"hidden_size": "18"}),
        ("full_urnn", {"hidden_size": "9"}),
        ("rnn", {"hidden_size": "16", "optimizer": "sgd_momentum"}),
        ("spectral_rnn", {"hidden_size": "12"}),
        ("nnrnn", {"hidden_size": "12"}),
        ("lru", {"hidden_size": "12", "optimizer": "rmsprop_tf1"}),
    ],
)
def test_four_steps_match_the_cpu(model, settings):
    torch.set_num_threads(1)
    expected_losses, expected = train(model, settings, torch.device("cpu"))
    forget_used()
    if ON_GPU:
        losses, parameters = train(model, settings, torch.device("cuda"))
    else:
        with cuda_of_labels():
            losses, parameters = train(model, settings, torch.device("cuda", 0))
    assert last_used() == {"cuda"}
    assert losses == pytest.approx(expected_losses, rel=1e-5)
    for name, value in parameters.items():
        torch.testing.assert_close(value.cpu(), expected[name], rtol=1e-4, atol=2e-5, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.slow
@pytest.mark.skipif(ON_GPU or INTERPRETED, reason="the steps are tested in this process")
def test_in_the_interpreter(cuda_stub_environment):
    """On the stub, since autograd asks CUDA for its devices."""
    run_interpreted(__file__, "gpu", cuda_stub_environment)
