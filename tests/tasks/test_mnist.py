import numpy as np
import pytest
import torch
from support.data import images, labels, write_emnist

from orthobench.data.registry import dataset
from orthobench.errors import UsageError
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.tasks.mnist import MNIST, MNISTSettings, permutation

CPU = torch.device("cpu")
SMALL = {"validation_size": 20, "train_size": 90, "test_size": 50}


def task(**settings) -> MNIST:
    return MNIST(MNISTSettings.read(SMALL | settings), 0, CPU)


def test_step_k_is_pixel_k_over_255(small_data):
    batch = task().train.batch(torch.tensor([7, 3]))
    assert batch.inputs.shape == (784, 2, 1)
    assert batch.inputs.is_contiguous()
    pixels = images("train", 28, 28)[[20 + 7, 20 + 3]]
    for row, column in ((0, 0), (0, 27), (1, 0), (13, 5), (27, 27)):
        np.testing.assert_allclose(
            batch.inputs[28 * row + column, :, 0].numpy(), pixels[:, row, column] / 255, rtol=1e-6
        )
    assert batch.targets.tolist() == [7, 3]


def test_first_images_are_validation_and_the_next_training(small_data):
    mnist = task(divisor=1)
    train, test = (torch.from_numpy(images(part, 784)).float() for part in ("train", "test"))
    parts = ((mnist.validation, train[:20]), (mnist.train, train[20:110]), (mnist.test, test[:50]))
    for split, expected in parts:
        assert len(split) == len(expected)
        assert torch.equal(split.batch(torch.arange(len(split))).inputs[..., 0].T, expected)
    assert task(validation_size=0).validation is None


def test_splits_match_the_papers():
    assert MNISTSettings().model_dump(include={"validation_size", "train_size", "test_size"}) == {
        "validation_size": 5_000,
        "train_size": 55_000,
        "test_size": 10_000,
    }
    MNISTSettings.read({"validation_size": "0", "train_size": "60000"})
    with pytest.raises(UsageError, match="validation_size=5000 and train_size=60000 exceed the 60000 training images"):
        MNISTSettings.read({"train_size": "60000"})
    with pytest.raises(UsageError, match="permutation=nnrnn has no effect: add permuted=true"):
        MNISTSettings.read({"permutation": "nnrnn"})


@pytest.mark.parametrize(
    ("name", "first", "last", "checksum"),
    [
        ("scornn", [319, 576, 323, 107, 355, 716, 197, 20, 625, 60, 443, 620], [102, 39, 346], 118_652_722),
        ("nnrnn", [529, 511, 328, 133], None, 121_578_700),
    ],
)
def test_permutations_match_the_papers_programs(name, first, last, checksum):
    order = permutation(name)
    assert sorted(order.tolist()) == list(range(784))
    assert order[: len(first)].tolist() == first
    assert last is None or order[-3:].tolist() == last
    assert int((order * torch.arange(784)).sum()) == checksum


def test_permuted_step_k_shows_pixel_p_k_in_every_split(small_data):
    mnist, order = task(permuted=True, divisor=256), permutation("scornn")
    train, test = images("train", 784), images("test", 784)
    for split, pixels in ((mnist.train, train[20:]), (mnist.validation, train), (mnist.test, test)):
        inputs = split.batch(torch.tensor([4])).inputs[:, 0, 0]
        assert inputs.tolist() == [pixels[4, pixel] / 256 for pixel in order.tolist()]


def test_fashion_mnist_has_the_same_form(small_data):
    (small_data / "fashion_mnist" / "t10k-images-idx3-ubyte").write_bytes(
        (small_data / "mnist" / "t10k-images-idx3-ubyte").read_bytes()[:16] + bytes([255]) * 60 * 784
    )
    assert (task(dataset="fashion").test.batch(torch.arange(3)).inputs == 1).all()
    assert (task().test.batch(torch.arange(3)).inputs != 1).any()


def test_emnist_has_47_classes_and_upright_images(small_data, tmp_path):
    dataset("emnist").import_files(write_emnist(tmp_path / "emnist"))
    emnist = task(dataset="emnist")
    assert emnist.signature.output_size == 47
    pixels = images("train", 28, 28)[20:110].reshape(90, 784)
    np.testing.assert_array_equal(emnist.train.images[..., 0].numpy(), pixels)
    assert emnist.train.labels[:30].tolist() == [*range(20, 47), 0, 1, 2]
    baselines = MNIST.baselines(MNISTSettings.read(SMALL | {"dataset": "emnist"}))
    assert baselines == pytest.approx({"accuracy": 1 / 47, "cross_entropy": np.log(47)})


@pytest.mark.parametrize(("name", "train", "test"), [("kmnist", 60_000, 10_000), ("emnist", 112_800, 18_800)])
def test_sizes_are_those_of_the_data_set(name, train, test):
    whole = {"dataset": name, "validation_size": "0", "train_size": str(train), "test_size": str(test)}
    MNISTSettings.read(whole)
    with pytest.raises(UsageError, match=f"train_size={train + 1} exceed the {train} training images"):
        MNISTSettings.read(whole | {"train_size": str(train + 1)})
    with pytest.raises(UsageError, match=f"test_size={test + 1} exceeds the {test} test images: reduce it"):
        MNISTSettings.read(whole | {"test_size": str(test + 1)})


def test_accuracy_loss_and_baselines_by_hand(small_data):
    mnist = task()
    outputs = torch.nn.functional.one_hot(torch.tensor([1, 2, 3, 4]), 10).float() * 3
    targets = torch.tensor([1, 2, 9, 4])
    (correct, weight), (entropy, _) = (mnist.measure(outputs, targets)[name] for name in ("accuracy", "cross_entropy"))
    assert (float(correct), weight) == (3, 4)
    right = -np.log(np.exp(3) / (np.exp(3) + 9))
    assert float(entropy) == pytest.approx(3 * right + right + 3, rel=1e-6)
    assert float(mnist.loss(outputs, targets)) == pytest.approx(float(entropy) / 4, rel=1e-6)


def test_baseline_is_the_frequency_of_the_commonest_test_label(real_data):
    for name, choice in (("mnist", "mnist"), ("fashion_mnist", "fashion")):
        real_data(name)
        settings = MNISTSettings(dataset=choice)
        labels = MNIST(settings, 0, CPU).test.labels
        assert MNIST.baselines(settings)["accuracy"] == int(labels.bincount().max()) / 10_000


def test_images_stay_bytes(small_data):
    assert task().train.images.dtype == torch.uint8
    assert labels("train")[:3].tolist() == [0, 1, 2]


def test_settings_of_the_papers_are_the_defaults():
    catalog = Catalog()
    plain = resolve(catalog, "mnist", "scornn", {})
    assert plain.model_settings.negative_ones == 17
    assert (plain.training.batch_size, plain.training.epochs, plain.task_settings.train_size) == (50, 70, 55_000)
    assert resolve(catalog, "mnist", "scornn", {"permuted": "true"}).model_settings.negative_ones == 85
    larger = resolve(catalog, "mnist", "scornn", {"permuted": "true", "hidden_size": "512"}).model_settings
    assert (larger.negative_ones, larger.recurrent_learning_rate) == (256, 1e-5)
    assert resolve(catalog, "mnist", "exprnn", {}).task_settings.train_size == 60_000
