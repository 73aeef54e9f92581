import numpy as np
import pytest
import torch
from scipy import stats
from support.data import images

from orthobench.errors import UsageError
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.tasks.cifar10 import CIFAR10, CIFAR10Settings

CPU = torch.device("cpu")


def task(seed: int = 0, **settings) -> CIFAR10:
    small = {"validation_size": 20, "train_size": 100, "test_size": 50}
    return CIFAR10(CIFAR10Settings.read(small | settings), seed, CPU)


def planes(part: str, number: int) -> np.ndarray:
    return images(part, 3072)[number].reshape(3, 32, 32) / 255


def test_step_is_a_pixels_red_green_and_blue_in_reading_order(small_data):
    batch = task().train.batch(torch.tensor([7, 3]))
    assert batch.inputs.shape == (1024, 2, 3)
    for row, column in ((0, 0), (0, 31), (1, 0), (31, 31), (5, 17)):
        expected = planes("train", 27)[:, row, column]
        np.testing.assert_allclose(batch.inputs[32 * row + column, 0].numpy(), expected, rtol=1e-6)
    assert batch.targets.tolist() == [7, 3]


def test_last_rows_are_the_end_of_the_whole_image(small_data):
    examples = torch.tensor([7, 3])
    whole, cut = (task(**settings) for settings in ({}, {"last_rows": 8}))
    for part in ("train", "validation", "test"):
        batch = getattr(cut, part).batch(examples)
        assert batch.inputs.shape == (256, 2, 3)
        assert torch.equal(batch.inputs, getattr(whole, part).batch(examples).inputs[-256:])
    expected = planes("train", 27)[:, 24, 5]
    np.testing.assert_allclose(cut.train.batch(examples).inputs[5, 0].numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("noise", ["fresh", "shared"])
def test_noise_padded_step_is_a_row_followed_by_noise(noise, small_data):
    cifar10 = task(noise_padded=True, noise=noise)
    assert cifar10.signature.input_size == 96
    for split, part, offset in (
        (cifar10.train, "train", 20),
        (cifar10.validation, "train", 0),
        (cifar10.test, "test", 0),
    ):
        inputs = split.batch(torch.arange(20)).inputs
        assert inputs.shape == (1000, 20, 96)
        for row in (0, 1, 31):
            expected = planes(part, offset + 9)[:, row].reshape(96)  # the row's red, then green, then blue
            np.testing.assert_allclose(inputs[row, 9].numpy(), expected, rtol=1e-6)
        block = inputs[32:, 9].flatten().numpy()
        assert stats.kstest(block, "norm").pvalue > 1e-3
        assert block.var() == pytest.approx(1, abs=5 * (2 / block.size) ** 0.5)


def correlation(first: torch.Tensor, second: torch.Tensor) -> float:
    return float(np.corrcoef(first.flatten().numpy(), second.flatten().numpy())[0, 1])


def test_fresh_noise_differs_by_example_and_training_epoch(small_data):
    cifar10 = task(noise_padded=True)
    some = torch.tensor([3, 8])
    first = cifar10.train.batch(some).inputs[32:]
    bound = 5 / first[:, 0].numel() ** 0.5  # five standard deviations of independent noise
    assert abs(correlation(first[:, 0], first[:, 1])) < bound
    assert abs(correlation(first[:-1, 0], first[1:, 0])) < bound
    assert torch.equal(cifar10.train.batch(some).inputs[32:], first)
    tested, validated = (split.batch(some).inputs for split in (cifar10.test, cifar10.validation))
    cifar10.epoch = 1
    assert abs(correlation(cifar10.train.batch(some).inputs[32:], first)) < bound
    assert torch.equal(cifar10.test.batch(some).inputs, tested)
    assert torch.equal(cifar10.validation.batch(some).inputs, validated)
    assert abs(correlation(tested[32:], validated[32:])) < bound
    cifar10.epoch = 0
    assert torch.equal(cifar10.train.batch(some).inputs[32:], first)
    assert abs(correlation(task(seed=1, noise_padded=True).train.batch(some).inputs[32:], first)) < bound


def test_shared_noise_is_one_block_for_all_examples(small_data):
    cifar10 = task(noise_padded=True, noise="shared")
    blocks = [
        split.batch(torch.tensor([3, 8])).inputs[32:] for split in (cifar10.train, cifar10.test, cifar10.validation)
    ]
    cifar10.epoch = 1
    blocks.append(cifar10.train.batch(torch.tensor([1, 2])).inputs[32:])
    for block in blocks:
        assert torch.equal(block, blocks[0][:, :1].expand(-1, 2, -1))
    assert not torch.equal(blocks[0][0], blocks[0][1])


def test_settings_without_effect_are_refused():
    with pytest.raises(UsageError, match="noise=shared has no effect: add noise_padded=true"):
        CIFAR10Settings.read({"noise": "shared"})
    with pytest.raises(UsageError, match="last_rows=8 is about pixels: leave out noise_padded=true"):
        CIFAR10Settings.read({"last_rows": 8, "noise_padded": True})


def test_whole_images_keep_their_key():
    catalog = Catalog()
    whole = resolve(catalog, "cifar10", "rnn", {})
    assert "last_rows" not in whole.spec.task_settings  # so that runs from before the setting keep their keys
    assert resolve(catalog, "cifar10", "rnn", {"last_rows": 32}).spec.key == whole.spec.key
    assert resolve(catalog, "cifar10", "rnn", {"last_rows": 8}).spec.key != whole.spec.key


def test_settings_of_the_papers_are_the_defaults():
    catalog = Catalog()
    pixels = resolve(catalog, "cifar10", "antisymmetric", {})
    assert (pixels.model_settings.hidden_size, pixels.training.batch_size) == (256, 128)
    assert pixels.training.max_iterations == 50_000 < pixels.training.epochs * (50_000 // 128)
    padded = resolve(catalog, "cifar10", "ablation", {"noise_padded": "true"})
    assert (padded.model_settings.hidden_size, padded.training.max_iterations) == (196, 10_000)
