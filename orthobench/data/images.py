"""Data sets of labelled images."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

from orthobench.data.dataset import DataSet
from orthobench.data.download import Download
from orthobench.data.torchvision_mirrors import with_mirrors_of_torchvision
from orthobench.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

Part = Literal["train", "test"]
ReadData = TypeVar("ReadData")


class ImageDataSet(DataSet):
    """Images of one shape; `counts` has the numbers of training and test images, and `classes` that of the labels."""

    classes: ClassVar[int] = 10
    counts: ClassVar[dict[Part, int]]
    shape: ClassVar[tuple[int, ...]]

    def fetch_list(self) -> Sequence[Download]:
        """Add torchvision's addresses of the same files, where it is installed, because addresses change."""
        return with_mirrors_of_torchvision(self.downloads)

    @abstractmethod
    def read(self, folder: Path, part: Part) -> tuple[Tensor, Tensor]:
        """Read the images, uint8 `[N, *shape]`, and labels, int64 `[N]`, in a folder without checking them.

        Raises:
            UsageError: a file cannot be read; the message names it.
        """

    def load(self, part: Part) -> tuple[Tensor, Tensor]:
        """Return the images, uint8 `[N, *shape]`, and their labels from 0 on, int64 `[N]`, in the standard order.

        Raises:
            UsageError: the data set is missing, or a file is broken.
        """
        folder = self.require()
        try:
            return self._checked(folder, part)
        except UsageError as error:
            raise UsageError(
                f"{self.name} is broken: {error}; replace it with orthobench data get or import"
            ) from error

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
            raise UsageError(f"{len(images)} {part} images have {len(labels)} labels")
        if not 0 <= int(labels.min()) <= int(labels.max()) < self.classes:
            labelled, last = f"{int(labels.min())} to {int(labels.max())}", self.classes - 1
            raise UsageError(f"the {part} labels run from {labelled}, not from 0 to {last}")
        return images, labels


def read_file(file: Path, what: str, reader: Callable[[], ReadData]) -> ReadData:
    """Return the result of a library's reader; turn its exceptions into one line that names the file.

    Raises:
        UsageError: the file cannot be opened, or has another format.
    """
    try:
        return reader()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # readers of damaged files raise exceptions of any kind
        raise UsageError(f"{file} is cut off or is not {what}") from error


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
