"""Files from anywhere: no code of a pickle runs, and no archive writes outside of its folder."""

from __future__ import annotations

import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from support.data import COUNTS, images, labels, write_cifar10

from orthobench.data.plain_pickle import load_plain
from orthobench.data.registry import dataset
from orthobench.errors import UsageError


class Command:
    """Runs a command of the system when it is unpickled."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.fixture(autouse=True)
def empty_data_folder(data_folder):
    return data_folder


@pytest.mark.parametrize("inside", [False, True])
def test_no_code_of_the_files_runs(inside, tmp_path):
    """The payload is the whole file, or one value of a batch that is otherwise right."""
    source = write_cifar10(tmp_path / "theirs") / "cifar-10-batches-py"
    files = sorted(source.iterdir())
    assert len(files) == 7
    for file in files:
        attack = Command(f"touch {tmp_path / 'ran'}-{file.name}")
        content = pickle.loads(file.read_bytes()) | {"batch_label": attack} if inside else attack
        file.write_bytes(pickle.dumps(content))
    with pytest.raises(UsageError, match="is cut off or is not a batch of CIFAR-10"):
        dataset("cifar10").import_files(tmp_path / "theirs")
    assert not dataset("cifar10").present()
    assert not list(tmp_path.glob("ran-*"))
    pickle.loads(files[0].read_bytes())
    assert len(list(tmp_path.glob("ran-*"))) == 1  # the payload itself works


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_batches_of_every_protocol_are_read(protocol, tmp_path):
    source = write_cifar10(tmp_path / "theirs") / "cifar-10-batches-py"
    for file in source.iterdir():
        content = pickle.loads(file.read_bytes()) | {"batch_label": b"testing batch 1 of 1"}
        file.write_bytes(pickle.dumps(content, protocol))
    data_set = dataset("cifar10")
    data_set.import_files(source)
    for part in COUNTS:
        read, classes = data_set.load(part)
        expected = images(part, 3072).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        np.testing.assert_array_equal(read.numpy(), expected)
        np.testing.assert_array_equal(classes.numpy(), labels(part))


def test_python_2_batch_is_read(tmp_path):
    """The canonical files are of this kind; assembled here from the opcodes that Python 2 writes."""

    def text(content: bytes) -> bytes:
        return b"U" + bytes([len(content)]) + content

    rows = bytes(range(246, 256)) * 2
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + b"K\x00\x85" + text(b"b") + b"\x87R("
        b"K\x01K\x02K\x0a\x86cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNN"
        b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T" + struct.pack("<i", len(rows)) + rows + b"tb"
    )
    file = tmp_path / "batch"
    file.write_bytes(b"\x80\x02}(" + text(b"data") + array + text(b"labels") + b"](K\x06K\x09eu.")
    python_reads = pickle.loads(file.read_bytes(), encoding="latin1")
    loaded = load_plain(file)
    assert loaded["labels"] == python_reads["labels"] == [6, 9]
    assert loaded["data"].content == python_reads["data"].tobytes() == rows
    assert loaded["data"].shape == python_reads["data"].shape == (2, 10)


@pytest.mark.parametrize(
    "content",
    [
        np.zeros(3),
        np.array([print, "x"], dtype=object),
        np.zeros((3, 4), np.uint8, order="F"),
        np.float64(1.5),
        print,
        complex(1, 2),
    ],
)
def test_other_pickled_values_are_refused(content, tmp_path):
    (tmp_path / "batch").write_bytes(pickle.dumps(content))
    with pytest.raises(pickle.UnpicklingError):
        load_plain(tmp_path / "batch")


def test_memo_index_in_a_pickle_allocates_no_memory(tmp_path):
    """An entry of the memo numbered 2^31 makes the unpickler in C ask for 32 GB."""
    (tmp_path / "batch").write_bytes(b"\x80\x02]r" + struct.pack("<I", 1 << 31) + b".")
    assert load_plain(tmp_path / "batch") == []


def test_archive_member_with_an_outside_path_is_not_written(tmp_path, monkeypatch):
    archive = tmp_path / "theirs" / "mnist.zip"
    archive.parent.mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    with zipfile.ZipFile(archive, "w") as packed:
        for name in ("../../t10k-labels-idx1-ubyte", "/t10k-images-idx3-ubyte"):
            packed.writestr(name, "harm")
    with pytest.raises(UsageError, match="has no train-images-idx3-ubyte"):
        dataset("mnist").import_files(archive)
    assert not list(tmp_path.rglob("t10k-*"))
    assert not Path("/t10k-images-idx3-ubyte").exists()


def test_encrypted_zip_is_one_line(tmp_path):
    archive = tmp_path / "timit.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("timit/dr1-fvmh0/si1466.wav", b"speech")
    content = bytearray(archive.read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the bit that says "encrypted"
        content[content.index(signature) + flags] |= 1
    archive.write_bytes(content)
    with pytest.raises(UsageError, match="is not a complete ZIP archive"):
        dataset("timit_sample").import_files(archive)
