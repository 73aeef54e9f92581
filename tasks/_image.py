"""The base of tasks in which a model reads an image step by step and names its class after the last step."""

from __future__ import annotations

import math
from typing import Any, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from orthobench.data.images import ImageDataSet, Part
from orthobench.data.registry import dataset
from orthobench.settings import Settings
from orthobench.task import Batch, Metric, Size, Split, Task, constant_of


class ImageSettings(Settings):
    """How the training images are divided: the first `validation_size` in the files' order are for validation, the
    next `train_size` for training.
    """

    validation_size: int = Field(0, ge=0, description="images for validation, the first of the training file")
    train_size: Size = Field(description="images for training, which follow those for validation")
    test_size: Size = Field(10_000, description="images for testing, from the first on")

    @model_validator(mode="after")
    def _check_split_sizes(self) -> Self:
        train, test = self.available("train"), self.available("test")
        if self.validation_size + self.train_size > train:
            raise ValueError(
                f"validation_size={self.validation_size} and train_size={self.train_size} exceed the "
                f"{train} training images: reduce one of them"
            )
        if self.test_size > test:
            raise ValueError(f"test_size={self.test_size} exceeds the {test} test images: reduce it")
        return self

    def available(self, part: Part) -> int:
        """Return the number of images of the data set."""
        return self.source.counts[part]

    @property
    def source(self) -> ImageDataSet:
        """The data set with the images."""
        raise NotImplementedError

    def cut(self, images: Tensor, labels: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return the training and the validation images, each with their labels."""
        first, past = self.validation_size, self.validation_size + self.train_size
        return (images[first:past], labels[first:past]), (images[:first], labels[:first])


def image_data(name: str) -> ImageDataSet:
    """Return the data set of images with this name."""
    source = dataset(name)
    assert isinstance(source, ImageDataSet)
    return source


class ImageTask(Task):
    """Loss: mean cross-entropy in nats. Metrics: accuracy and cross-entropy."""

    metrics = (
        Metric("accuracy", "max", is_fraction=True, is_graded=True),
        Metric("cross_entropy", "min", "nats", "cross-entropy"),
    )
    loss_metric = "cross_entropy"

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets)

    def measure(self, outputs: Tensor, targets: Tensor) -> dict[str, tuple[Tensor, float]]:
        return {
            "accuracy": ((outputs.argmax(-1) == targets).sum(), len(targets)),
            "cross_entropy": (nn.functional.cross_entropy(outputs, targets, reduction="sum"), len(targets)),
        }

    def constant(self, split: Split) -> dict[str, float]:
        return constant_of(self, split)

    @classmethod
    def baselines(cls, settings: Any) -> dict[str, float]:
        """The scores of guessing a class at random."""
        classes = settings.source.classes
        return {"accuracy": 1 / classes, "cross_entropy": math.log(classes)}


class ImageSplit(Split):
    """Images as sequences of bytes `[N, T, m]`, and labels `[N]`; the inputs are the bytes divided by `divisor`."""

    def __init__(self, images: Tensor, labels: Tensor, divisor: int, device: torch.device) -> None:
        self.images, self.labels, self.divisor = images.to(device), labels.to(device), divisor

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, examples: Tensor) -> Batch:
        pixels = self.images[examples].transpose(0, 1)
        # contiguous_format, because .to() otherwise keeps the order in memory of the images before the transposition.
        inputs = pixels.to(torch.float32, memory_format=torch.contiguous_format).div_(self.divisor)
        return Batch(inputs, self.labels[examples])
