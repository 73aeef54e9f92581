"""CIFAR-10 as a sequence (Chang, Chen, Haber, Chi 2019): pixel by pixel, or row by row and then noise.

Pixel by pixel: each step shows one pixel (red, green, blue) of the 32 x 32 image, row by row from the top left, so T =
1024 and m = 3. Bytes are divided by 255 and images not augmented; the paper does not say how it handles either.

Noise-padded: each of the first 32 steps shows a row, its 32 red, then green, then blue values (m = 96). The other 968
steps are standard normal noise, so T = 1000. As in the paper's text the noise is independent: it differs between
examples and, in training, between epochs. The programs of coRNN, LEM and LipschitzRNN use the same block for every
example (`noise=shared`).

With `last_rows=8` only the last eight rows of the image are shown, pixel by pixel: T = 256. The paper's text compares
an LSTM on them with one on the whole image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from orthobench.data.images import ImageDataSet
from orthobench.model import Signature
from orthobench.task import Batch, Size, Split, seeded_generator

from ._image import ImageSettings, ImageSplit, ImageTask, image_data

PADDED_STEPS, ROWS, ROW_VALUES = 1000, 32, 96
NOISE_STEPS = PADDED_STEPS - ROWS
BLOCK_SIZE, TABLE_SIZE = NOISE_STEPS * ROW_VALUES, 1 << 24


class CIFAR10Settings(ImageSettings):
    noise_padded: bool = Field(
        False, description="show an image row by row, then noise up to 1000 steps; false: pixel by pixel"
    )
    noise: Literal["fresh", "shared"] = Field(
        "fresh",
        description="noise after the rows; fresh: drawn for every example and epoch; "
        "shared: one block for all (coRNN, LEM)",
    )
    last_rows: int = Field(
        ROWS,
        ge=1,
        le=ROWS,
        description="rows of the image that are shown, the last ones, pixel by pixel",
        json_schema_extra={"neutral": ROWS},
    )
    train_size: Size = Field(50_000, description="images for training, which follow those for validation")

    @model_validator(mode="after")
    def _says_what_it_means(self) -> CIFAR10Settings:
        if self.noise != "fresh" and not self.noise_padded:
            raise ValueError(f"noise={self.noise} has no effect: add noise_padded=true")
        if self.last_rows != ROWS and self.noise_padded:
            raise ValueError(f"last_rows={self.last_rows} is about pixels: leave out noise_padded=true")
        return self

    @property
    def source(self) -> ImageDataSet:
        return image_data("cifar10")


class CIFAR10(ImageTask):
    version = 1
    title = "pixel-by-pixel CIFAR-10"
    short_title = "CIFAR-10"
    cites = "krizhevsky2009, chang2019"
    Settings = CIFAR10Settings
    protocol = {"batch_size": 128, "epochs": 129, "max_iterations": 50_000}
    quick = {
        "train_size": 10_000,
        "test_size": 1_000,
        "batch_size": 50,
        "epochs": 8,
        "hidden_size": 64,
        "negative_ones": 0.1,  # as for pixel-by-pixel MNIST
    }
    exact = {
        "model": "full_urnn",
        "validation_size": 200,
        "train_size": 500,
        "test_size": 200,
        "evaluation_batch_size": 64,
        "epochs": 2,
        "batch_size": 50,
        "hidden_size": 16,
        "learning_rate": 1e-3,
        "recurrent_learning_rate": 1e-4,
        "shuffle": True,
        "clip_norm": 0.5,
        "learning_rate_decay": 0.5,
    }

    def __init__(self, settings: CIFAR10Settings, seed: int, device: torch.device) -> None:
        self.signature = Signature(ROW_VALUES if settings.noise_padded else 3, output_size=10, readout="last")
        data = settings.source
        train, validation = settings.cut(*data.load("train"))
        test = data.load("test")
        count = 0 if not settings.noise_padded else BLOCK_SIZE if settings.noise == "shared" else TABLE_SIZE
        draws = torch.randn(count, generator=seeded_generator(seed, "cifar10", "noise")).to(device)

        def split(part: str, images: Tensor, labels: Tensor) -> Split:
            if not settings.noise_padded:
                return ImageSplit(images[:, -settings.last_rows :].flatten(1, 2), labels, 255, device)
            rows = ImageSplit(images.transpose(2, 3).flatten(2), labels, 255, device)
            if settings.noise == "shared":
                return PaddedSplit(rows, SharedNoise(draws))
            epoch = (lambda: self.epoch) if part == "train" else (lambda: 0)
            return PaddedSplit(rows, FreshNoise(draws, len(labels), seed, part, epoch))

        self.train = split("train", *train)
        self.validation = split("validation", *validation) if settings.validation_size else None
        self.test = split("test", *(part[: settings.test_size] for part in test))


class SharedNoise:
    """The same block of noise for every example."""

    def __init__(self, draws: Tensor) -> None:
        self.block = draws.view(NOISE_STEPS, 1, ROW_VALUES)

    def fill(self, steps: Tensor, examples: Tensor) -> None:
        """Write the examples' noise into steps `[968, B, 96]`."""
        steps.copy_(self.block.expand_as(steps))


class FreshNoise:
    """A block of noise for each of `size` examples, which changes every epoch.

    Blocks are cut from one long table of draws, each at a random position, because drawing every block would be too
    slow for a training step. Two blocks may overlap, but are then shifted against each other; they are equal with
    probability 2^-24.
    """

    def __init__(self, table: Tensor, size: int, seed: int, part: str, epoch: Callable[[], int]) -> None:
        self.table = table
        self.size, self.seed, self.part, self.epoch = size, seed, part, epoch
        self.starts: tuple[int, Tensor] | None = None

    def fill(self, steps: Tensor, examples: Tensor) -> None:
        """Write the examples' noise into steps `[968, B, 96]`."""
        epoch = self.epoch()
        if self.starts is None or self.starts[0] != epoch:
            generator = seeded_generator(self.seed, "cifar10", "noise", self.part, epoch)
            drawn = torch.randint(TABLE_SIZE - BLOCK_SIZE + 1, (self.size,), generator=generator)
            self.starts = (epoch, drawn.to(self.table.device))
        step_starts = ROW_VALUES * torch.arange(NOISE_STEPS, device=self.table.device)
        starts = (self.starts[1][examples] + step_starts[:, None]).flatten()
        windows = self.table.unfold(0, ROW_VALUES, 1)
        torch.index_select(windows, 0, starts, out=steps.view(-1, ROW_VALUES))


class PaddedSplit(Split):
    """Rows of images, followed by noise."""

    def __init__(self, rows: ImageSplit, noise: SharedNoise | FreshNoise) -> None:
        self.rows, self.noise = rows, noise

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, examples: Tensor) -> Batch:
        rows = self.rows.batch(examples)
        inputs = rows.inputs.new_empty(PADDED_STEPS, len(examples), ROW_VALUES)
        inputs[:ROWS] = rows.inputs
        self.noise.fill(inputs[ROWS:], examples)
        return Batch(inputs, rows.targets)
