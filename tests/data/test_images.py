"""MNIST, Fashion-MNIST and CIFAR-10: brought in from what people have, whole or not at all; the canonical files."""

from __future__ import annotations

import errno
import gzip
import logging
import os
import pickle
import resource
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from support.data import COUNTS, idx, images, labels, write_cifar10, write_emnist, write_mnist

from orthobench.data.registry import dataset
from orthobench.errors import StorageError, UsageError

LAYOUTS = (
    "plain",
    "gz",
    "gz without a name",
    "plain named gz",
    "torchvision",
    "dotted",
    "nested",
    "zip",
    "tar",
    "gztar",
    "xztar",
)
WRITERS = {
    "mnist": write_mnist,
    "fashion_mnist": write_mnist,
    "kmnist": write_mnist,
    "emnist": write_emnist,
    "cifar10": write_cifar10,
}
FOLDERS = {"mnist": "MNIST", "fashion_mnist": "FashionMNIST", "kmnist": "KMNIST", "emnist": "EMNIST"}
"""The names of torchvision's folders."""


def expected(name: str, part: str) -> np.ndarray:
    if name != "cifar10":
        return images(part, 28, 28)
    return images(part, 3072).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def pack(source, target):
    target.mkdir(parents=True)
    for file in source.iterdir():
        with gzip.open(target / f"{file.name}.gz", "wb") as packed:
            packed.write(file.read_bytes())


def write_layout(layout: str, name: str, folder):
    """A small data set as its owner may have it, and the path to name."""
    source = WRITERS[name](folder / "source")
    if layout == "plain":
        return source
    if layout == "gz":
        pack(source, folder / "packed")
        return folder / "packed"
    if layout == "gz without a name":  # as a browser saves them
        pack(source, folder / "packed")
        for file in list((folder / "packed").iterdir()):
            file.rename(file.with_suffix(""))
        return folder / "packed"
    if layout == "plain named gz":
        for file in list(source.iterdir()):
            file.rename(file.with_name(f"{file.name}.gz"))
        return source
    if layout == "dotted":
        for file in list(source.iterdir()):
            file.rename(file.with_name(file.name.replace("-idx", ".idx")))
        return source
    if layout == "nested":
        for file in list(source.iterdir()):
            inner = file.rename(folder / file.name)
            file.mkdir()
            inner.rename(file / file.name)
        return source
    if layout in ("zip", "tar", "gztar", "xztar"):
        pack(source, folder / "root" / FOLDERS[name] / "raw")
        other = "FashionMNIST" if name == "mnist" else "MNIST"
        shutil.copytree(folder / "root", folder / "more" / "data")
        (folder / "more" / "data" / other / "raw").mkdir(parents=True)
        for file in source.iterdir():  # the other set, which is not to be taken
            (folder / "more" / "data" / other / "raw" / file.name).write_bytes(b"another set")
        return folder / Path(shutil.make_archive(str(folder / "packed"), layout, folder / "more")).name
    if layout == "torchvision":
        pack(source, folder / "root" / FOLDERS[name] / "raw")
        return folder / "root"
    if layout == "inner folder":
        return source / "cifar-10-batches-py"
    archive = folder / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(source / "cifar-10-batches-py", "cifar-10-batches-py")
    return archive if layout == "archive" else folder


@pytest.mark.parametrize(
    ("name", "layout"),
    [(name, layout) for name in ("mnist", "fashion_mnist") for layout in LAYOUTS]
    + [(name, layout) for name in ("kmnist", "emnist") for layout in ("plain", "gz", "torchvision", "dotted", "zip")]
    + [("cifar10", layout) for layout in ("plain", "inner folder", "archive", "folder with the archive")],
)
def test_files_are_imported_in_every_distributed_form(name, layout, data_folder, tmp_path, caplog):
    data_set = dataset(name)
    assert not data_set.present()
    with caplog.at_level(logging.WARNING):
        data_set.import_files(write_layout(layout, name, tmp_path / "theirs"))
    assert data_set.present()
    assert data_set.require() == data_folder / name
    for part in COUNTS:
        read, classes = data_set.load(part)
        assert (read.dtype, classes.dtype) == (torch.uint8, torch.int64)
        np.testing.assert_array_equal(read.numpy(), expected(name, part))
        np.testing.assert_array_equal(classes.numpy(), labels(part, data_set.classes))
    # random images are not the canonical ones: whole, so they are taken, and it is said
    assert "not the canonical copy" in caplog.text
    assert "not the canonical copy" in data_set.verify()[0]


def truncate(file, keep=0.5):
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * keep)])


def cut_gz(folder):
    file = folder / "train-images-idx3-ubyte"
    whole = gzip.compress(file.read_bytes())
    file.unlink()
    file.with_suffix(".gz").write_bytes(whole[: len(whole) // 2])


def no_gz(folder):
    file = folder / "train-images-idx3-ubyte"
    file.unlink()
    file.with_suffix(".gz").write_bytes(b"<html>no such file</html>")


def wrong_magic(folder):
    file = folder / "t10k-images-idx3-ubyte"
    file.write_bytes(b"\x00\x00\x07\x03" + file.read_bytes()[4:])


def batch(folder, **changes):
    file = folder / "cifar-10-batches-py" / "data_batch_3"
    file.write_bytes(pickle.dumps(pickle.loads(file.read_bytes()) | changes))


FAULTS = {
    "truncated gz": ("mnist", cut_gz, "train-images-idx3-ubyte.gz is cut off or is not a gzip file"),
    "not a gz": ("mnist", no_gz, "train-images-idx3-ubyte is cut off or is not an IDX file of images"),
    "wrong magic number": ("mnist", wrong_magic, "t10k-images-idx3-ubyte is cut off or is not an IDX file of images"),
    "truncated file": (
        "mnist",
        lambda folder: truncate(folder / "train-labels-idx1-ubyte"),
        "train-labels-idx1-ubyte is cut off or is not an IDX file of labels",
    ),
    "longer file": (
        "mnist",
        lambda folder: (folder / "t10k-labels-idx1-ubyte").write_bytes(idx(labels("test")) + b"\x01"),
        "t10k-labels-idx1-ubyte is cut off or is not an IDX file of labels",
    ),
    "header that asks for more than there is": (
        "mnist",
        lambda folder: (folder / "t10k-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01\xff\xff\xff\xff\1"),
        "t10k-labels-idx1-ubyte is cut off or is not an IDX file of labels",
    ),
    "labels in place of images": (
        "mnist",
        lambda folder: (folder / "train-images-idx3-ubyte").write_bytes(idx(labels("train"))),
        "train-images-idx3-ubyte is cut off or is not an IDX file of images",
    ),
    "empty file": (
        "mnist",
        lambda folder: (folder / "t10k-labels-idx1-ubyte").write_bytes(b""),
        "t10k-labels-idx1-ubyte is cut off",
    ),
    "file missing": (
        "mnist",
        lambda folder: (folder / "t10k-labels-idx1-ubyte").unlink(),
        "has no t10k-labels-idx1-ubyte or t10k-labels-idx1-ubyte.gz: name the folder with the four files",
    ),
    "label out of range": (
        "mnist",
        lambda folder: (folder / "t10k-labels-idx1-ubyte").write_bytes(idx(labels("test") + 1)),
        "the test labels run from 1 to 10, not from 0 to 9",
    ),
    "too few images": (
        "mnist",
        lambda folder: (folder / "train-images-idx3-ubyte").write_bytes(idx(images("train", 28, 28)[:-1])),
        "the train images are 119 x 28 x 28, not 120 x 28 x 28",
    ),
    "other images": (
        "mnist",
        lambda folder: (folder / "train-images-idx3-ubyte").write_bytes(idx(images("train", 32, 32))),
        "the train images are 120 x 32 x 32, not 120 x 28 x 28",
    ),
    "too few labels": (
        "mnist",
        lambda folder: (folder / "train-labels-idx1-ubyte").write_bytes(idx(labels("train")[:100])),
        "120 train images have 100 labels",
    ),
    "truncated batch": (
        "cifar10",
        lambda folder: truncate(folder / "cifar-10-batches-py" / "data_batch_2"),
        "data_batch_2 is cut off or is not a batch of CIFAR-10",
    ),
    "no batch": (
        "cifar10",
        lambda folder: batch(folder, data=None),
        "data_batch_3 is cut off or is not a batch of CIFAR-10",
    ),
    "negative label": (
        "cifar10",
        lambda folder: batch(folder, labels=[-1] * 24),
        "the train labels run from -1 to 9, not from 0 to 9",
    ),
    "batch missing": (
        "cifar10",
        lambda folder: (folder / "cifar-10-batches-py" / "test_batch").unlink(),
        "has no test_batch: name cifar-10-python.tar.gz, or the folder cifar-10-batches-py",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_broken_files_are_refused_and_old_data_is_kept(fault, data_folder, tmp_path):
    name, spoil, message = FAULTS[fault]
    data_set = dataset(name)
    data_set.import_files(WRITERS[name](tmp_path / "good"))
    before = {file: file.read_bytes() for file in data_set.folder().rglob("*") if file.is_file()}
    spoil(WRITERS[name](tmp_path / "bad"))
    with pytest.raises(UsageError) as error:
        data_set.import_files(tmp_path / "bad")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert {file: file.read_bytes() for file in data_set.folder().rglob("*") if file.is_file()} == before
    assert {path.name for path in data_folder.iterdir()} <= {name, f".{name}.lock"}


@pytest.mark.parametrize("fault", ["wrong magic number", "truncated file", "label out of range", "truncated batch"])
def test_files_broken_after_import_are_found_and_named(fault, small_data):
    name, spoil, message = FAULTS[fault]
    data_set = dataset(name)
    spoil(data_set.folder())
    assert message in data_set.verify()[0]
    with pytest.raises(UsageError) as error:
        dict(map(data_set.load, COUNTS))
    assert message in str(error.value)
    assert str(error.value).endswith("replace it with orthobench data get or import")


def test_truncated_archive_is_refused(data_folder, tmp_path):
    archive = write_layout("archive", "cifar10", tmp_path / "theirs")
    truncate(archive)
    with pytest.raises(UsageError, match=r"python\.tar\.gz (cannot be unpacked|is not a complete TAR archive)"):
        dataset("cifar10").import_files(archive)
    assert not dataset("cifar10").present()


def test_full_disk_keeps_the_old_data(small_data, tmp_path):
    """The system's limit on the size of files stands in for a disk that fills up half-way."""
    data_set = dataset("mnist")
    before = data_set.load("train")[0]
    source = write_mnist(tmp_path / "theirs")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(StorageError, match=f"cannot be written or read: {os.strerror(errno.EFBIG)}"):
            data_set.import_files(source)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert torch.equal(data_set.load("train")[0], before)
    assert not list(small_data.glob(".mnist.new"))


def test_folder_without_permission_is_reported(data_folder, tmp_path):
    data_set, source = dataset("mnist"), write_mnist(tmp_path / "theirs")
    data_folder.mkdir()
    data_folder.chmod(0)
    user = os.geteuid()
    if user == 0:  # who may do everything
        os.seteuid(65534)
    try:
        with pytest.raises(StorageError, match="cannot be written or read: Permission denied"):
            data_set.import_files(source)
        with pytest.raises(UsageError, match="cannot be read: Permission denied"):
            data_set.require()
    finally:
        os.seteuid(user)
        data_folder.chmod(0o700)


def test_folder_left_half_done_by_a_killed_process_is_not_trusted(data_folder, tmp_path):
    """Killed while it filled the new folder, or between the two renames."""
    data_set = dataset("mnist")
    half = data_folder / ".mnist.new"
    half.mkdir(parents=True)
    shutil.copy(write_mnist(tmp_path / "theirs") / "train-images-idx3-ubyte", half)
    assert not data_set.present()
    data_set.import_files(tmp_path / "theirs")
    data_set.folder().rename(data_folder / ".mnist.old")
    (tmp_path / "theirs" / "train-images-idx3-ubyte").unlink()
    with pytest.raises(UsageError, match="has no train-images"):
        data_set.import_files(tmp_path / "theirs")
    assert data_set.faults(data_set.require()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "first_train", "first_test", "mean", "std"),
    [  # labels and moments as published with the data sets and in PyTorch's examples
        ("mnist", [5, 0, 4, 1, 9, 2, 1, 3, 1, 4], [7, 2, 1, 0, 4, 1, 4, 9, 5, 9], [0.1307], [0.3081]),
        ("fashion_mnist", [9, 0, 0, 3, 0, 2, 7, 2, 5, 5], [9, 2, 1, 1, 6, 1, 4, 6, 5, 7], [0.2860], [0.3530]),
        ("cifar10", [6, 9, 9, 4, 1, 1, 2, 7, 8, 3], [3, 8, 8, 0, 6, 6, 1, 6, 3, 1], [0.4914, 0.4822, 0.4465], None),
    ],
)
def test_real_data_has_the_published_statistics(name, first_train, first_test, mean, std, real_data):
    real_data(name)
    data_set = dataset(name)
    canonical = data_set.verify() == []
    assert canonical or name == "cifar10"  # of which a copy with other bytes, in another order, may stand in
    read, classes = data_set.load("train")
    if canonical:
        assert classes[:10].tolist() == first_train
        assert data_set.load("test")[1][:10].tolist() == first_test
    else:
        assert classes.bincount().tolist() == [5_000] * 10
        assert data_set.load("test")[1].bincount().tolist() == [1_000] * 10
    pixels = read.reshape(-1, len(mean)).numpy() / 255
    np.testing.assert_allclose(pixels.mean(0), mean, atol=5e-4)
    if std is not None:
        np.testing.assert_allclose(pixels.std(0), std, atol=5e-5)
