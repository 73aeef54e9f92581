"""Further mirrors of the data sets, as the installed torchvision knows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec

from orthobench.data.download import Download

GREYSCALE = ("MNIST", "FashionMNIST", "KMNIST")
"""The classes of torchvision with `mirrors` and `resources`, the names and MD5s of their files."""


def with_mirrors_of_torchvision(downloads: Sequence[Download]) -> list[Download]:
    """Return the downloads with torchvision's addresses after their own, if torchvision is installed.

    An address is taken for a file of the same name and MD5, so that it cannot bring other data.
    """
    if find_spec("torchvision") is None:
        return list(downloads)
    known: dict[tuple[str, str], list[str]] = {}
    for name, md5, url in addresses():
        known.setdefault((name, md5), []).append(url)
    return [
        replace(each, urls=tuple(dict.fromkeys((*each.urls, *known.get((each.name, each.md5), [])))))
        for each in downloads
    ]


def addresses() -> Iterator[tuple[str, str, str]]:
    """Yield name, MD5 and address of each file that torchvision's classes of these data sets download."""
    from torchvision import datasets

    for each in GREYSCALE:
        kind = getattr(datasets, each)
        for name, md5 in kind.resources:
            yield from ((name, md5, f"{mirror}{name}") for mirror in kind.mirrors)
    yield datasets.EMNIST.url.rpartition("/")[2], datasets.EMNIST.md5, datasets.EMNIST.url
    yield datasets.CIFAR10.filename, datasets.CIFAR10.tgz_md5, datasets.CIFAR10.url
