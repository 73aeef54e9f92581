"""Data sets of labelled images."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

from orthobench.data.dataset import DataSet
from orthobench.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

Part = Literal["train", "test"]
Read = TypeVar("Read")

CLASSES = 10


class ImageDataSet(DataSet):
    """Images of one shape in ten classes; `counts` says how many are for training and for testing."""

    counts: ClassVar[dict[Part, int]]
    shape: ClassVar[tuple[int, ...]]

    @abstractmethod
    def read(self, folder: Path, part: Part) -> tuple[Tensor, Tensor]:
        """Images uint8 and labels int64 `[N]` of a folder's files, as they are there.

        Raises:
            UsageError: a file cannot be read; one line that names it.
        """

    def load(self, part: Part) -> tuple[Tensor, Tensor]:
        """The images, uint8 `[N, *shape]`, and their labels 0 to 9, int64 `[N]`, in the standard order.

        Raises:
            UsageError: the data is not there, or a file of it is broken.
        """
        folder = self.require()
        try:
            return self._checked(folder, part)
        except UsageError as error:
            raise UsageError(f"{self.name} is broken: {error}; orthobench data get or import brings it anew") from error

    def faults(self, folder: Path) -> list[str]:
        problems = []
        for part in self.counts:
            try:
                self._checked(folder, part)
            except UsageError as error:
                problems.append(str(error))
        return problems

    def _checked(self, folder: Path, part: Part) -> tuple[Tensor, Tensor]:
        images, labels = self.read(folder, part)
        expected, actual = (self.counts[part], *self.shape), tuple(images.shape)
        if actual != expected:
            raise UsageError(f"the {part} images are {_by(actual)}, not {_by(expected)}")
        if len(labels) != len(images):
            raise UsageError(f"there are {len(labels)} {part} labels for {len(images)} images")
        if not 0 <= int(labels.min()) <= int(labels.max()) < CLASSES:
            raise UsageError(f"the {part} labels run from {int(labels.min())} to {int(labels.max())}, not from 0 to 9")
        return images, labels


def read_file(file: Path, what: str, reader: Callable[[], Read]) -> Read:
    """What a library's reader makes of a file; whatever it raises becomes one line that names the file.

    Raises:
        UsageError: the file cannot be opened, or is not what it should be.
    """
    try:
        return reader()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # the readers of foreign bytes raise anything
        raise UsageError(f"{file} is cut off or is not {what}") from error


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
