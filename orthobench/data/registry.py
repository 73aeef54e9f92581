"""The registry of data sets."""

from __future__ import annotations

from orthobench.data.cifar10 import CIFAR10Data
from orthobench.data.dataset import DataSet
from orthobench.data.emnist import EMNIST
from orthobench.data.fashion_mnist import FashionMNIST
from orthobench.data.kmnist import KMNIST
from orthobench.data.mnist import MNISTData
from orthobench.data.ptb import PTBData
from orthobench.data.timit import TimitCorpus, TimitSample
from orthobench.errors import unknown

_ALL: tuple[type[DataSet], ...] = (
    MNISTData,
    FashionMNIST,
    KMNIST,
    EMNIST,
    CIFAR10Data,
    PTBData,
    TimitCorpus,
    TimitSample,
)


def datasets() -> dict[str, DataSet]:
    """Return all data sets, by name."""
    return {kind.name: kind() for kind in _ALL}


def dataset(name: str) -> DataSet:
    """Return the data set with this name.

    Raises:
        UsageError: no data set has this name.
    """
    known = datasets()
    if name not in known:
        raise unknown("data set", name, known)
    return known[name]
