"""The data sets there are."""

from __future__ import annotations

from orthobench.data.cifar10 import CIFAR10
from orthobench.data.dataset import DataSet
from orthobench.data.fashion_mnist import FashionMNIST
from orthobench.data.mnist import MNIST
from orthobench.data.ptb import PTB
from orthobench.data.timit import TimitCorpus, TimitSample
from orthobench.errors import unknown

_ALL: tuple[type[DataSet], ...] = (
    MNIST,
    FashionMNIST,
    CIFAR10,
    PTB,
    TimitCorpus,
    TimitSample,
)


def datasets() -> dict[str, DataSet]:
    """All data sets, by name."""
    return {one.name: one() for one in _ALL}


def dataset(name: str) -> DataSet:
    """The data set of this name.

    Raises:
        UsageError: there is none.
    """
    known = datasets()
    if name not in known:
        raise unknown("data set", name, known)
    return known[name]
