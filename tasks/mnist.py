"""Pixel-by-pixel MNIST (Le, Jaitly, Hinton 2015), also permuted, as in the scoRNN paper's program.

A 28 x 28 image is read one pixel per step, row by row from the top left: T = 784, m = 1, bytes divided by 255. With
`permuted`, step k shows pixel p_k of one fixed permutation p, for training and testing alike. The model answers after
the last step: cross-entropy, and accuracy on 10 000 test images.

The paper trains on the last 55 000 of the 60 000 training images. The first 5 000, which it does not use, are the
validation set here. To train on all of them, like EXPRNN's program, use `-s validation_size=0 -s train_size=60000`.

The setting `dataset` chooses another data set of this form. All of EMNIST is `-s dataset=emnist -s train_size=107800 -s
test_size=18800`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from orthobench.data.images import ImageDataSet
from orthobench.model import Signature
from orthobench.task import Size

from ._image import ImageSettings, ImageSplit, ImageTask, image_data

PIXELS = 28 * 28
PERMUTATION_SEEDS = {"scornn": 92916, "nnrnn": 1234}


class MNISTSettings(ImageSettings):
    dataset: Literal["mnist", "fashion", "kmnist", "emnist"] = Field(
        "mnist", description="data set: MNIST, Fashion-MNIST, KMNIST, or EMNIST's balanced split of 47 classes"
    )
    permuted: bool = Field(False, description="show the pixels in one random order, the same for all images")
    permutation: Literal["scornn", "nnrnn"] = Field(
        "scornn",
        description="seed of the order of the pixels; "
        "scornn: NumPy's RandomState(92916), as in uRNN and EXPRNN; nnrnn: 1234",
    )
    pooling: Size = Field(
        1,
        description="side of the squares of pixels that are averaged to one; 2: 14 x 14 images, 196 steps",
        json_schema_extra={"neutral": 1},
    )
    divisor: Size = Field(255, description="number by which pixel values are divided; 256 in oRNN's program")  # D-35
    validation_size: int = Field(5_000, ge=0, description="images for validation, the first of the training file")
    train_size: Size = Field(55_000, description="images for training, which follow those for validation")

    @model_validator(mode="after")
    def _says_what_it_means(self) -> MNISTSettings:
        if self.permutation != "scornn" and not self.permuted:
            raise ValueError(f"permutation={self.permutation} has no effect: add permuted=true")
        if 28 % self.pooling:
            raise ValueError(f"pooling={self.pooling} does not divide the side of an image, 28: give 1, 2, 4, 7 or 14")
        if self.pooling > 1 and self.permuted:
            raise ValueError(f"pooling={self.pooling} leaves fewer pixels than the permutation has: leave one out")
        return self

    @property
    def source(self) -> ImageDataSet:
        return image_data("fashion_mnist" if self.dataset == "fashion" else self.dataset)


class MNIST(ImageTask):
    version = 1
    title = "pixel-by-pixel MNIST"
    short_title = "MNIST"
    cites = "lecun1998, le2015"
    Settings = MNISTSettings
    protocol = {"batch_size": 50, "epochs": 70}
    quick = {
        "validation_size": 1_000,
        "train_size": 10_000,
        "test_size": 1_000,
        "epochs": 6,
        "hidden_size": 64,
        "negative_ones": 0.1,  # the paper's share for scoRNN on this task
    }
    exact = {
        "model": "ornn",
        "permuted": True,
        "validation_size": 200,
        "train_size": 500,
        "test_size": 200,
        "evaluation_batch_size": 64,
        "epochs": 4,
        "batch_size": 50,
        "hidden_size": 16,
        "optimizer": "adam_tf1",
        "learning_rate": 5e-3,
        "shuffle": True,
        "clip_norm": 0.5,
        "plateau_decay": 0.5,
        "learning_rate_decay": 0.9,
    }

    def __init__(self, settings: MNISTSettings, seed: int, device: torch.device) -> None:
        data = settings.source
        self.signature = Signature(input_size=1, output_size=data.classes, readout="last")
        order = permutation(settings.permutation) if settings.permuted else torch.arange(PIXELS // settings.pooling**2)

        def split(images: Tensor, labels: Tensor) -> ImageSplit:
            pixels = pooled(images, settings.pooling).flatten(1)[:, order]
            return ImageSplit(pixels.unsqueeze(-1), labels, settings.divisor, device)

        train, validation = settings.cut(*data.load("train"))
        self.train = split(*train)
        self.validation = split(*validation) if settings.validation_size else None
        self.test = split(*(part[: settings.test_size] for part in data.load("test")))

    @classmethod
    def baselines(cls, settings: MNISTSettings) -> dict[str, float]:
        """MNIST's most frequent test digit is one: 1135 of 10 000."""
        return super().baselines(settings) | ({"accuracy": 0.1135} if settings.dataset == "mnist" else {})


def pooled(images: Tensor, side: int) -> Tensor:
    """Return images, uint8 `[N, 28, 28]`, with the rounded mean of each square of this side in place of its pixels."""
    if side == 1:
        return images
    return nn.functional.avg_pool2d(images.unsqueeze(1).float(), side).squeeze(1).round().to(torch.uint8)


def permutation(name: str) -> Tensor:
    """Return the order of the pixels `[784]` in the program of this name; step k shows pixel p_k."""
    return torch.from_numpy(np.random.RandomState(PERMUTATION_SEEDS[name]).permutation(PIXELS))
