"""The image data sets next to torchvision: it reads the same images, and knows the same files."""

from __future__ import annotations

import gzip
import zipfile

import numpy as np
import pytest
import torch
from support.data import COUNTS, write_cifar10, write_emnist, write_mnist
from torchvision import datasets

from orthobench.data.download import Download
from orthobench.data.registry import dataset
from orthobench.data.torchvision_mirrors import addresses, with_mirrors_of_torchvision


@pytest.fixture
def root(tmp_path):
    """A folder with small data sets where torchvision keeps them."""
    for name in ("MNIST", "FashionMNIST", "KMNIST"):
        write_mnist(tmp_path / "root" / name / "raw")
    write_emnist(tmp_path / "root" / "EMNIST" / "raw")
    write_cifar10(tmp_path / "root")
    return tmp_path / "root"


@pytest.mark.parametrize(
    ("name", "theirs"),
    [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST"), ("kmnist", "KMNIST"), ("emnist", "EMNIST")],
)
def test_imported_images_are_those_that_torchvision_reads(name, theirs, root, data_folder):
    data_set = dataset(name)
    data_set.import_files(root)
    options = {"split": "balanced"} if name == "emnist" else {}
    for part in COUNTS:
        read = getattr(datasets, theirs)(root, train=part == "train", **options)
        upright = read.data.transpose(1, 2) if name == "emnist" else read.data
        images, labels = data_set.load(part)
        assert torch.equal(images, upright)
        assert torch.equal(labels, read.targets)


def test_imported_photographs_are_those_that_torchvision_reads(root, data_folder, monkeypatch):
    """torchvision compares MD5s, which small files do not have, so its comparison is left out."""
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    data_set = dataset("cifar10")
    data_set.import_files(root)
    for part in COUNTS:
        read = datasets.CIFAR10(root, train=part == "train")
        images, labels = data_set.load(part)
        np.testing.assert_array_equal(images.numpy(), read.data)
        assert labels.tolist() == read.targets


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "kmnist", "emnist", "cifar10"])
def test_each_file_is_known_to_torchvision_by_the_same_checksum(name):
    known = {(file, md5) for file, md5, _ in addresses()}
    assert {(each.name, each.md5) for each in dataset(name).downloads} <= known


def test_mirrors_follow_our_own_where_the_checksum_agrees():
    (name, md5, url), *_ = addresses()
    same, other = (Download(name, ("http://localhost/own",), each, 1) for each in (md5, "0" * 32))
    merged_same, merged_other = with_mirrors_of_torchvision([same, other])
    assert merged_same.urls[0] == "http://localhost/own"
    assert url in merged_same.urls[1:]
    assert merged_other == other


def test_distributed_archive_gives_the_balanced_split(root, data_folder, tmp_path):
    """The archive as it is distributed: gzipped files of several splits in a folder of the archive."""
    archive = tmp_path / "downloaded" / "gzip.zip"
    archive.parent.mkdir()
    with zipfile.ZipFile(archive, "w") as packed:
        for file in (root / "EMNIST" / "raw").iterdir():
            packed.writestr(f"gzip/{file.name}.gz", gzip.compress(file.read_bytes()))
            packed.writestr(f"gzip/{file.name.replace('balanced', 'letters')}.gz", b"another split")
    data_set = dataset("emnist")
    data_set.import_files(root)
    expected = data_set.load("test")[0]
    for path in (archive, archive.parent):
        data_set.import_files(path)
        assert torch.equal(data_set.load("test")[0], expected)
        assert {file.name for file in data_set.folder().iterdir()} == set(data_set.files)
