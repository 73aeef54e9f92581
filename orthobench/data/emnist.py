"""EMNIST's balanced split: 131 600 digits and letters in 47 classes (Cohen, Afshar, Tapson, van Schaik 2017).

Its files show each image transposed. `load` turns them, so that the characters stand upright as MNIST's do.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from orthobench.data.download import Download
from orthobench.data.images import Part
from orthobench.data.packed_idx import PackedIDX

if TYPE_CHECKING:
    from torch import Tensor


class EMNIST(PackedIDX):
    name = "emnist"
    title = "EMNIST balanced"
    licence = "CC0 1.0"
    home = "https://www.nist.gov/itl/products-and-services/emnist-dataset"
    files = {
        "emnist-balanced-train-images-idx3-ubyte.gz": "4041b0d6f15785d3fa35263901b5496b",
        "emnist-balanced-train-labels-idx1-ubyte.gz": "7a35cc7b2b7ee7671eddf028570fbd20",
        "emnist-balanced-test-images-idx3-ubyte.gz": "6818d20fe2ce1880476f747bbc80b22b",
        "emnist-balanced-test-labels-idx1-ubyte.gz": "acd3694070dcbf620e36670519d4b32f",
    }
    size = 34_000_000
    downloads = (
        Download(
            "gzip.zip",
            ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",),
            "58c8d27c78d21e728a6bc7b3cc06412e",
            561_753_746,
        ),
    )
    torchvision_folder = "EMNIST/raw"
    archive: ClassVar[str] = "gzip.zip"
    begins: ClassVar[dict[Part, str]] = {"train": "emnist-balanced-train", "test": "emnist-balanced-test"}
    classes = 47
    counts = {"train": 112_800, "test": 18_800}
    cites = "cohen2017"

    def gather(self, path: Path, into: Path) -> None:
        """Copy the files from a folder with them or with the distributed archive of all splits, or from any archive."""
        archives = [folder / self.archive for folder in (path, path / self.torchvision_folder)]
        super().gather(next((each for each in archives if each.is_file()), path), into)

    def read(self, folder: Path, part: Part) -> tuple[Tensor, Tensor]:
        images, labels = super().read(folder, part)
        return images.transpose(1, 2).contiguous() if images.ndim == 3 else images, labels
