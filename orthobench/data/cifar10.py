"""CIFAR-10: 60 000 colour photographs of 32 x 32 pixels in six pickled batches (Krizhevsky 2009)."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from orthobench.data.archives import copy_member, members
from orthobench.data.download import Download
from orthobench.data.images import ImageDataSet, Part, read_file
from orthobench.data.plain_pickle import PlainArray, load_plain
from orthobench.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

FOLDER, ARCHIVE = "cifar-10-batches-py", "cifar-10-python.tar.gz"
BATCHES: dict[Part, tuple[str, ...]] = {
    "train": tuple(f"data_batch_{number}" for number in range(1, 6)),
    "test": ("test_batch",),
}


class CIFAR10Data(ImageDataSet):
    name = "cifar10"
    title = "CIFAR-10"
    licence = "none stated; cite Krizhevsky 2009"
    home = "https://www.cs.toronto.edu/~kriz/cifar.html"
    files = {
        f"{FOLDER}/data_batch_1": "c99cafc152244af753f735de768cd75f",
        f"{FOLDER}/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        f"{FOLDER}/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        f"{FOLDER}/data_batch_4": "634d18415352ddfa80567beed471001a",
        f"{FOLDER}/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        f"{FOLDER}/test_batch": "40351d587109b95175f43aff81a1287e",
        f"{FOLDER}/batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    }
    size = 186_000_000
    downloads = (
        Download(
            ARCHIVE,
            ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
            "c58f30108f718f92721af3b95e74349a",
            170_498_071,
        ),
    )
    counts = {"train": 50_000, "test": 10_000}
    shape = (32, 32, 3)

    def gather(self, path: Path, into: Path) -> None:
        """Copy the files from the archive, from its unpacked folder, or from a folder that contains either."""
        (into / FOLDER).mkdir()
        archive = path / ARCHIVE if path.is_dir() else path
        if archive.is_file():
            self._unpack(archive, into)
        else:
            for file in self.files:
                candidates = (path / file, path / Path(file).name)
                if source := next((candidate for candidate in candidates if candidate.is_file()), None):
                    shutil.copyfile(source, into / file)
        if missing := [Path(file).name for file in self.files if not (into / file).is_file()]:
            raise UsageError(f"{path} has no {', '.join(missing)}: name {ARCHIVE}, or the folder {FOLDER}")

    def read(self, folder: Path, part: Part) -> tuple[Tensor, Tensor]:
        import torch

        batches = [
            read_file(file, "a batch of CIFAR-10", lambda file=file: _read_batch(file))  # type: ignore[misc]
            for file in (folder / FOLDER / name for name in BATCHES[part])
        ]
        images, labels = zip(*batches, strict=True)
        return torch.cat(images), torch.cat(labels)

    def _unpack(self, archive: Path, into: Path) -> None:
        """Copy the files out of a tar archive, gzipped or plain.

        Raises:
            UsageError: the archive is cut off, or is not an archive.
        """
        for name, content in members(archive):
            file = PurePosixPath(name).as_posix()
            if file in self.files:
                copy_member(content, into / file, f"{file} in {archive}")


def _read_batch(file: Path) -> tuple[Tensor, Tensor]:
    """Return the images, uint8 `[N, 32, 32, 3]`, and labels, int64 `[N]`, of a batch.

    Each row of the file has the 3072 bytes of one image: its red, green and blue planes.
    """
    import torch

    batch = load_plain(file)
    rows: PlainArray = batch["data"]
    planes = torch.frombuffer(bytearray(rows.content), dtype=torch.uint8).reshape(rows.shape).reshape(-1, 3, 32, 32)
    labels = batch["labels"]
    if not all(isinstance(label, int) for label in labels):
        raise ValueError("the labels are not numbers")
    return planes.permute(0, 2, 3, 1).contiguous(), torch.tensor(labels, dtype=torch.int64)
