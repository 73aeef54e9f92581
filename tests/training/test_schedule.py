"""The schedules of learning rates against torch's schedulers, and AdamW's decay against torch's."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from support.trained import CPU, train_in
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

from orthobench.errors import UsageError
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.task import TrainingSettings
from orthobench.tasks.adding import Adding, AddingSettings
from orthobench.training.learning_rates import learning_rate, warmup_iterations
from orthobench.training.trainer import Trainer


def schedule_rates(total: int, rate: float = 2e-3, **settings) -> list[float]:
    training = TrainingSettings.read(settings)
    return [learning_rate(rate, iteration, total, training) for iteration in range(total)]


def torchs(total: int, warmup: int, rate: float, final: float) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rising = LinearLR(optimizer, start_factor=1e-12, total_iters=warmup)  # it refuses a start at 0
        falling = CosineAnnealingLR(optimizer, total - warmup, eta_min=final)
        schedule = SequentialLR(optimizer, [rising, falling], milestones=[warmup])
        rates = []
        for _ in range(total):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
    return rates


@pytest.mark.parametrize(
    ("settings", "warmup", "final"),
    [
        ({"warmup": 0.1, "final_rate": 1e-5}, 20, 1e-5),  # SLiCE
        ({"warmup": 20, "final_share": 1e-3}, 20, 2e-6),  # Grazzi et al.
        ({"warmup": 0.055}, 11, 0.0),
    ],
)
def test_rates_match_torchs_schedulers(settings, warmup, final):
    rates = schedule_rates(200, schedule="cosine", **settings)
    assert rates == pytest.approx(torchs(200, warmup, 2e-3, final), rel=1e-9, abs=1e-13)
    assert (rates[0], rates[warmup]) == (0.0, 2e-3)


def test_rates_match_their_closed_form():
    rates = schedule_rates(10, rate=1.0, warmup=2, schedule="cosine", final_rate=0.5)
    expected = [0.0, 0.5, *(0.5 + 0.25 * (1 + math.cos(math.pi * k / 8)) for k in range(8))]
    assert rates == pytest.approx(expected)
    assert schedule_rates(4, rate=1.0, warmup=2) == [0.0, 0.5, 1.0, 1.0]
    assert schedule_rates(4) == [2e-3] * 4


@pytest.mark.parametrize(
    ("warmup", "total", "expected"),
    [(0.1, 25, 2), (0.1, 29, 2), (0.1, 30, 3), (0.055, 99, 5), (0.3, 3, 0), (0.999, 10, 9), (7, 25, 7), (0.0, 25, 0)],
)
def test_warm_up_share_is_rounded_down(warmup, total, expected):
    training = TrainingSettings.read({"warmup": warmup})
    assert warmup_iterations(total, training) == expected
    rates = schedule_rates(total, rate=1.0, warmup=warmup)
    assert rates == [k / expected for k in range(expected)] + [1.0] * (total - expected)


def test_no_rate_rises_to_the_final_one():
    """A recurrent matrix with a rate of 1e-6 keeps it where the others end at 1e-5."""
    assert schedule_rates(10, rate=1e-6, schedule="cosine", final_rate=1e-5) == pytest.approx([1e-6] * 10)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"warmup": "1.5"}, "share below 1"),
        ({"final_rate": "1e-5"}, "set schedule=cosine"),
        ({"schedule": "cosine", "final_rate": "1e-5", "final_share": "0.1"}, "give one of them"),
        ({"schedule": "linear"}, "'constant' or 'cosine'"),
    ],
)
def test_settings_without_effect_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        TrainingSettings.read(settings)


def test_neutral_values_do_not_change_the_key(tiny):
    neutral = {"warmup": "0", "schedule": "constant", "final_rate": "none", "final_share": "0", "solved_at": "none"}
    neutral |= {"weight_decay": "0", "decay_exempt": "none"}
    keys = {resolve(Catalog(), "adding", "rnn", tiny | more).spec.key for more in ({}, neutral)}
    assert len(keys) == 1


def make(model: str, settings: dict[str, str]) -> Trainer:
    config = resolve(Catalog(), "adding", model, settings)
    assert isinstance(config.task_settings, AddingSettings)
    return Trainer(config, Adding(config.task_settings, 0, CPU), CPU)


def test_every_group_and_optimiser_follows_the_schedule(tiny):
    """Plain descent moves a parameter by its rate times its gradient."""
    settings = {"optimizer": "sgd", "recurrent_optimizer": "sgd", "learning_rate": "1e-2", "epochs": "2"}
    settings |= {"recurrent_learning_rate": "1e-3", "warmup": "2", "schedule": "cosine", "final_share": "0.1"}
    trained = make("scornn", tiny | settings)
    total = trained.total_iterations
    for iteration in range(total):
        before = {name: value.detach().clone() for name, value in trained.model.named_parameters()}
        trained.advance()
        share = iteration / 2 if iteration < 2 else 0.1 + 0.45 * (1 + math.cos(math.pi * (iteration - 2) / (total - 2)))
        for name, value in trained.model.named_parameters():
            rate = (1e-3 if name == "skew_entries" else 1e-2) * share
            torch.testing.assert_close(value, before[name] - rate * value.grad, rtol=0, atol=1e-7, msg=name)


@pytest.mark.parametrize("stop_at", [1, 5, 7])
def test_resumed_run_has_the_rates_of_an_uninterrupted_one(tmp_path, tiny, stop_at):
    settings = {"warmup": "0.3", "schedule": "cosine", "final_rate": "1e-6", "optimizer": "adamw"}
    config = resolve(Catalog(), "adding", "rnn", tiny | settings | {"weight_decay": "0.1"})
    (tmp_path / "cut").mkdir()
    _, rows, _ = train_in(tmp_path, config)
    train_in(tmp_path / "cut", config, stop_at=stop_at)
    _, resumed, iterations = train_in(tmp_path / "cut", config)
    assert resumed == rows
    assert iterations[0] > 1 or stop_at < 4


@pytest.mark.parametrize(
    ("exempt", "free"),
    [
        ("none", set()),
        ("embedding", {"embedding"}),
        ("vectors", {"embedding", "bias", "output_bias"}),
    ],
)
def test_adamw_equals_torch(tiny, exempt, free):
    settings = tiny | {"optimizer": "adamw", "weight_decay": "0.3", "decay_exempt": exempt, "embedding_size": "3"}
    trained = make("rnn", settings | {"learning_rate": "0.05", "activation": "tanh"})
    names = dict(trained.model.named_parameters())
    vectors = {name for name, parameter in names.items() if parameter.dim() < 2}
    assert {"embedding"} | vectors >= free
    free = free if exempt != "vectors" else {"embedding"} | vectors
    twins = {name: torch.nn.Parameter(parameter.detach().clone()) for name, parameter in names.items()}
    reference = torch.optim.AdamW(
        [{"params": [twin], "weight_decay": 0.0 if name in free else 0.3} for name, twin in twins.items()], lr=0.05
    )
    for _ in range(5):
        trained.advance()
        for name, twin in twins.items():
            twin.grad = names[name].grad.clone()
        reference.step()
        for name, twin in twins.items():
            torch.testing.assert_close(names[name], twin, msg=name)


SCHEDULES = {
    "constant": {},
    "warm-up": {"warmup": "3"},
    "cosine": {"schedule": "cosine", "final_rate": "1e-5"},
    "warm-up and cosine": {"warmup": "0.3", "schedule": "cosine", "final_share": "0.1"},
    "decay": {"learning_rate_decay": "0.5"},
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("exempt", ["none", "embedding", "vectors"])
@pytest.mark.parametrize("recurrent", [{}, {"recurrent_optimizer": "adamw", "recurrent_learning_rate": "1e-3"}])
def test_every_group_of_parameters_has_the_rate_of_the_step(tiny, schedule, exempt, recurrent):
    """adamw keeps exempt parameters in a group of their own, which follows the schedule as well."""
    settings = {"optimizer": "adamw", "learning_rate": "1e-2", "weight_decay": "0.1", "decay_exempt": exempt}
    trained = make("scornn", tiny | settings | {"embedding_size": "3"} | recurrent | SCHEDULES[schedule])
    groups = [group for optimizer in trained.optimizers for group in optimizer.param_groups]
    assert sum(len(group["params"]) for group in groups) == len(list(trained.model.parameters()))
    adamw = [optimizer for optimizer in trained.optimizers if isinstance(optimizer, torch.optim.AdamW)]
    assert len(adamw) == 1 + bool(recurrent)
    assert any(len(optimizer.param_groups) == 2 for optimizer in adamw) == (exempt != "none")
    steps = trained.total_iterations
    for iteration in range(steps):
        decays = trained.training.learning_rate_decay ** (iteration // trained.iterations_per_epoch)
        expected = [
            learning_rate(group.learning_rate, iteration, steps, trained.training) * decays for group in trained.groups
        ]
        trained.advance()
        for rate, optimizer in zip(expected, trained.optimizers, strict=True):
            rates = [group["lr"] for group in optimizer.param_groups]
            assert rates == pytest.approx([rate] * len(rates), rel=1e-12, abs=1e-15), f"{schedule}, {iteration}"


@pytest.mark.parametrize("exempt", ["embedding", "vectors"])
def test_adamw_with_exempt_parameters_equals_torch_under_a_schedule(tiny, exempt):
    """Each parameter is a group of torch's with the rate of the step, written out: warm-up of 3, cosine to a tenth."""
    settings = tiny | {"optimizer": "adamw", "weight_decay": "0.3", "decay_exempt": exempt, "embedding_size": "3"}
    trained = make(
        "rnn",
        settings | {"learning_rate": "0.05", "warmup": "3", "schedule": "cosine", "final_share": "0.1"},
    )
    total, names = trained.total_iterations, dict(trained.model.named_parameters())
    free = {name for name, value in names.items() if name == "embedding" or (exempt == "vectors" and value.dim() < 2)}
    twins = {name: torch.nn.Parameter(parameter.detach().clone()) for name, parameter in names.items()}
    reference = torch.optim.AdamW(
        [{"params": [twin], "weight_decay": 0.0 if name in free else 0.3} for name, twin in twins.items()], lr=0.05
    )
    for i in range(total):
        trained.advance()
        share = i / 3 if i < 3 else 0.1 + 0.45 * (1 + math.cos(math.pi * (i - 3) / (total - 3)))
        for group in reference.param_groups:
            group["lr"] = 0.05 * share
        for name, twin in twins.items():
            twin.grad = names[name].grad.clone()
        reference.step()
        for name, twin in twins.items():
            torch.testing.assert_close(names[name], twin, msg=f"{name} at {i}")


NESTED = """
import torch
from torch import nn
from orthobench.models.rnn import RNN


class Nested(RNN):
    version = 1
    title = "RNN with an embedding below another module"

    def __init__(self, settings, signature, generator):
        super().__init__(settings, signature, generator)
        self.below = nn.Module()
        self.below.embedding = nn.Parameter(torch.eye(signature.input_size))
        self.below.embedding_scale = nn.Parameter(torch.eye(signature.input_size))

    def states(self, inputs, state, trace):
        x = inputs @ self.below.embedding @ self.below.embedding_scale
        return super().states(x, state, trace)
"""


def decays(trained: Trainer) -> dict[str, float]:
    """The weight decay that each parameter has in its optimiser's group."""
    names = {id(parameter): name for name, parameter in trained.model.named_parameters()}
    groups = [group for optimizer in trained.optimizers for group in optimizer.param_groups]
    return {names[id(parameter)]: group["weight_decay"] for group in groups for parameter in group["params"]}


@pytest.mark.parametrize("exempt", ["none", "embedding", "vectors"])
@pytest.mark.parametrize(
    "stack",
    [{}, {"layers": "2"}, {"layers": "2", "block": "residual", "block_size": "6"}],
    ids=["one", "two", "blocks"],
)
def test_exempt_parameters_of_a_stack(tiny, exempt, stack):
    settings = {"optimizer": "adamw", "weight_decay": "0.3", "decay_exempt": exempt, "embedding_size": "3"}
    trained = make("rnn", tiny | settings | stack)
    for name, decay in decays(trained).items():
        is_vector = trained.model.get_parameter(name).dim() < 2
        is_free = (exempt != "none" and name == "embedding") or (exempt == "vectors" and is_vector)
        assert decay == (0.0 if is_free else 0.3), name


@pytest.mark.parametrize("exempt", ["none", "embedding", "vectors"])
def test_embedding_inside_another_module_is_exempt_and_a_similar_name_is_not(tiny, tmp_path, exempt):
    file = tmp_path / "nested.py"
    file.write_text(NESTED)
    settings = tiny | {"optimizer": "adamw", "weight_decay": "0.3", "decay_exempt": exempt}
    config = resolve(Catalog([file]), "adding", "nested", settings)
    trained = Trainer(config, Adding(config.task_settings, 0, CPU), CPU)
    trained.advance()
    decay_by_name = decays(trained)
    assert decay_by_name["below.embedding"] == (0.3 if exempt == "none" else 0.0)
    assert decay_by_name["below.embedding_scale"] == 0.3
    assert decay_by_name["input_weight"] == 0.3


def test_group_with_another_optimiser_is_not_decayed(tiny):
    """With gradients of 0 only the decay moves a weight."""
    trained = make("scornn", tiny | {"optimizer": "adamw", "weight_decay": "0.5", "learning_rate": "0.1"})
    before = {name: value.detach().clone() for name, value in trained.model.named_parameters()}
    for value in trained.model.parameters():
        value.grad = torch.zeros_like(value)
    with torch.no_grad():
        trained.step()
    for name, value in trained.model.named_parameters():
        decayed = before[name] * (1 if name == "skew_entries" else 0.95)
        torch.testing.assert_close(value, decayed, msg=name)


def test_decay_without_adamw_is_refused(tiny):
    with pytest.raises(UsageError, match=r"weight_decay=0\.1 needs adamw: set optimizer=adamw"):
        make("rnn", tiny | {"weight_decay": "0.1", "optimizer": "adam"})


def test_decay_in_the_models_penalty_is_not_applied_twice(tiny):
    trained = make("soft_orthogonal", tiny | {"optimizer": "adamw", "weight_decay": "0.1"})
    assert trained.groups[0].optimizer == "adamw"
    assert trained.optimizers[0].param_groups[0]["weight_decay"] == 0.0
