"""Randomness: batches are permutations, new in every epoch; a seed determines weights, data and order, and no other."""

from __future__ import annotations

import pytest
import torch

from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.task import Batch, Batches, seeded_generator
from orthobench.training.trainer import Trainer

CPU = torch.device("cpu")
CATALOG = Catalog()
MODELS = sorted(plugin.name for plugin in CATALOG if plugin.kind == "model" and plugin.origin == "built in")
SMALL = {
    "adding": {"train_size": "40", "test_size": "10", "batch_size": "10"},
    "copying": {"train_size": "40", "test_size": "10", "batch_size": "10", "sequence_length": "5"},
    "mnist": {"validation_size": "10", "train_size": "40", "test_size": "10", "batch_size": "10"},
    "cifar10": {
        "validation_size": "10",
        "train_size": "40",
        "test_size": "10",
        "batch_size": "10",
        "noise_padded": "true",
    },
    "fitzhugh_nagumo": {"sequence_length": "5", "duration": "2", "batch_size": "8"},
    "ptb": {"batch_size": "10", "evaluation_batch_size": "10"},
    "xor_stream": {"train_size": "40", "test_size": "10", "batch_size": "10"},
    "timit": {"dataset": "timit_sample", "batch_size": "2"},
}
READ_IN_ORDER = ("ptb",)
WITHOUT_NOISE = ("fitzhugh_nagumo", "mnist", "ptb", "timit", "xor_stream")
"""Tasks whose data are files alone, or have the seed of their program."""


class Numbers:
    """A split whose batches are the numbers of their examples."""

    def __len__(self) -> int:
        return 12

    def batch(self, examples: torch.Tensor) -> Batch:
        return Batch(examples.unsqueeze(0), examples)


def orders(seed: int, epochs: int = 3, **settings: str) -> list[list[int]]:
    """Return the numbers of the examples of each epoch, batch after batch."""
    config = resolve(CATALOG, "adding", "rnn", {"train_size": "12", "batch_size": "4", **settings})
    task = config.task_class(config.task_settings, 0, CPU)
    task.train = Numbers()
    batches = Batches(task, config.training, seed, CPU)
    numbers = torch.cat([batches.at(iteration).targets for iteration in range(3 * epochs)])
    return numbers.view(epochs, 12).tolist()


@pytest.mark.parametrize("seed", [0, 1, 11])
def test_shuffled_batches_are_a_new_permutation_in_every_epoch(seed):
    """Two of 12! orders are equal by chance once in 479 million."""
    shuffled = orders(seed, shuffle="true")
    assert all(sorted(order) == list(range(12)) for order in shuffled)
    assert list(range(12)) not in shuffled
    assert len({tuple(order) for order in shuffled}) == 3
    assert orders(seed, shuffle="true") == shuffled


def test_another_seed_gives_another_order():
    first, second = (orders(seed, shuffle="true") for seed in (0, 1))
    assert not {tuple(order) for order in first} & {tuple(order) for order in second}


def test_order_without_shuffling_is_the_datas():
    assert orders(1, shuffle="false") == [list(range(12))] * 3


def test_order_does_not_depend_on_the_batches_before():
    """A resumed run asks for a batch in the middle of an epoch."""
    config = resolve(CATALOG, "adding", "rnn", {"train_size": "12", "batch_size": "4", "shuffle": "true"})
    task = config.task_class(config.task_settings, 0, CPU)
    task.train = Numbers()
    whole = Batches(task, config.training, 5, CPU)
    expected = [whole.at(iteration).inputs.tolist() for iteration in range(9)]
    for iteration in (7, 1, 4):
        assert Batches(task, config.training, 5, CPU).at(iteration).inputs.tolist() == expected[iteration]


@pytest.mark.parametrize(
    ("name", "settings"),
    [("adding", {}), ("group_word", {}), ("formal_language", {"language": "mod_arith_brackets"})],
)
def test_batches_drawn_together_are_those_drawn_alone(name, settings):
    """512 sequences are drawn together: here five batches, of which an epoch ends with two."""
    sizes = {"train_size": "750", "test_size": "5", "batch_size": "100", "shuffle": "true"}
    config = resolve(CATALOG, name, "rnn", sizes | settings)
    task = config.task_class(config.task_settings, 0, CPU)
    batches, original, drawn = Batches(task, config.training, 5, CPU), task.train.batch, []
    task.train.batch = lambda examples: drawn.append(examples) or original(examples)
    for iteration in (0, 4, 5, 6, 7, 13, 1):
        batch, (epoch, position) = batches.at(iteration), divmod(iteration, 7)
        generator = seeded_generator(5, "order", epoch)
        examples = torch.randperm(750, generator=generator)[100 * position : 100 * position + 100]
        alone = original(examples)
        for field in ("inputs", "targets", *(() if alone.lengths is None else ("lengths",))):
            torch.testing.assert_close(getattr(batch, field), getattr(alone, field), rtol=0, atol=0)
    assert [len(examples) for examples in drawn] == [500, 200, 500, 200, 500]


def contents(task) -> list[torch.Tensor]:
    """Return all inputs and targets of a task, from its training data on."""
    splits = [split for split in (task.train, task.validation, task.test) if split is not None]
    batches = [split.batch(torch.arange(len(split))) for split in splits]
    return [part for batch in batches for part in (batch.inputs, batch.targets)]


def equal(first: list[torch.Tensor], second: list[torch.Tensor]) -> list[bool]:
    return [torch.equal(*pair) for pair in zip(first, second, strict=True)]


@pytest.mark.parametrize("name", sorted(SMALL))
def test_seed_determines_the_data_and_the_order(name, small_data):
    settings = SMALL[name] | ({} if name in READ_IN_ORDER else {"shuffle": "true"})
    tasks, streams = [], []
    for seed in (1, 1, 2):
        config = resolve(CATALOG, name, "rnn", settings, seed=seed)
        task = config.task_class(config.task_settings, seed, CPU)
        tasks.append(contents(task))
        batches = Batches(task, config.training, seed, CPU)
        streams.append([batches.at(iteration).targets for iteration in range(batches.per_epoch)])
    assert all(equal(tasks[0], tasks[1]))
    assert all(equal(streams[0], streams[1]))
    inputs_differ = [not same for same in equal(tasks[0], tasks[2])[::2]]
    assert inputs_differ == [name not in WITHOUT_NOISE] * len(inputs_differ)
    assert all(equal(streams[0], streams[2])) == (name in READ_IN_ORDER)


@pytest.mark.parametrize("name", ["adding", "copying"])
def test_training_and_test_data_are_drawn_separately(name):
    """Of equal sizes, as the same generator fills splits of two sizes in different orders."""
    config = resolve(CATALOG, name, "rnn", SMALL[name] | {"train_size": "10"})
    task = config.task_class(config.task_settings, 3, CPU)
    first = torch.arange(10)
    assert not torch.equal(task.train.batch(first).inputs, task.test.batch(first).inputs)


@pytest.mark.parametrize("name", sorted(SMALL))
def test_seed_determines_the_weights_of_every_model(name, small_data):
    config = resolve(CATALOG, name, "rnn", SMALL[name])
    task = config.task_class(config.task_settings, 0, CPU)
    for model in MODELS:
        first, again, other = (
            Trainer(resolve(CATALOG, name, model, SMALL[name] | {"hidden_size": "8"}, seed=seed), task, CPU).model
            for seed in (1, 1, 2)
        )
        states = [list(trained.state_dict().values()) for trained in (first, again, other)]
        assert all(equal(states[0], states[1])), model
        assert not all(equal(states[0], states[2])), model
