"""Own data that other programs wrote or hold: damaged archives, links, names, and arrays of other libraries."""

from __future__ import annotations

import io
import os
import random
import struct
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch

import orthobench as ob
from orthobench.arrays.named import find_data
from orthobench.arrays.own_files import checksum, read_own_data
from orthobench.errors import UsageError
from orthobench.system.visible_files import visible_files

X = np.random.RandomState(0).normal(size=(12, 4, 2)).astype(np.float32)
Y = np.arange(12) % 2


def member(values):
    stream = io.BytesIO()
    np.save(stream, values)
    return stream.getvalue()


def zipped(path, name="x.npy", content=None, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(name, member(X) if content is None else content)
    return path


def patched(path, changes):
    """Change the fields of the archive's one member, in its own header and in the directory."""
    content = bytearray(path.read_bytes())
    for mark, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        at = content.find(mark)
        for offset, value in changes.items():
            struct.pack_into("<H", content, at + offset + shift, value)
    path.write_bytes(content)
    return path


def refusal(path):
    with pytest.raises(UsageError) as error:
        read_own_data(path)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({6: 1}, "encrypted"),
        ({8: 97}, "compression method"),
        ({8: 9}, "compression method"),
        ({8: 12}, "cannot be read"),
    ],
    ids=["encrypted", "unknown", "deflate64", "not bzip2"],
)
def test_members_that_cannot_be_unpacked_are_refused(changes, message, tmp_path):
    assert message in refusal(patched(zipped(tmp_path / "d.npz"), changes))


def test_a_member_that_is_not_an_array_is_refused(tmp_path):
    for name in ("x", "x.npy"):
        path = zipped(tmp_path / "d.npz", name, b"text")
        with pytest.raises(UsageError, match=r"x is \|S4, not real numbers"):
            read_own_data(path)


@pytest.mark.parametrize("shape", ["(True, 960)", "(-1, 4)", "(1.0, 2)", "('a',)", "(10**30,)", "(", "None"])
def test_wrong_headers_are_refused(shape, tmp_path):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(960 * 4)
    refusal(zipped(tmp_path / "d.npz", content=content))


@pytest.mark.parametrize("form", ["npz", "csv", "parquet"])
def test_damaged_files_raise_no_other_error(form, tmp_path):
    path = tmp_path / f"d.{form}"
    frame = pd.DataFrame({"sequence": np.arange(12) // 3, "a": X[:, 0, 0], "y": Y})
    if form == "npz":
        np.savez_compressed(path, x=X, y=Y)
    elif form == "csv":
        frame.to_csv(path, index=False)
    else:
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
    whole, draw = path.read_bytes(), random.Random(0)
    refused = 0
    for _ in range(300):
        content = bytearray(whole)
        for _ in range(draw.choice((1, 1, 4))):
            content[draw.randrange(len(content))] = draw.randrange(256)
        path.write_bytes(content[: draw.choice((len(content), draw.randrange(len(content))))])
        try:
            read_own_data(path)
        except UsageError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("linked", ["label", "part", "circle", "broken"])
def test_links_to_folders_are_refused_by_name(linked, tmp_path):
    own, store = tmp_path / "own", tmp_path / "store"
    for folder in (own / "train" / "cat", own / "train" / "dog", store / "bird", store / "test" / "cat"):
        folder.mkdir(parents=True)
        (folder / "1.wav").write_text("text")
    link, target = {
        "label": (own / "train" / "bird", store / "bird"),
        "part": (own / "test", store / "test"),
        "circle": (own / "train" / "all", own),
        "broken": (own / "train" / "0.wav", store / "nothing"),
    }[linked]
    link.symlink_to(target)
    for read in (read_own_data, checksum):
        with pytest.raises(UsageError) as error:
            read(own)
        assert str(error.value).startswith(f"{link} is a link to {target}, which is not a file: ")


def test_links_to_files_and_a_folder_that_is_a_link_are_read(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "own" / "b.txt").symlink_to(tmp_path / "a.txt")
    (tmp_path / "own" / ".hidden").symlink_to(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "own")
    assert [file.name for file in visible_files(tmp_path / "link")] == ["b.txt"]


@pytest.mark.parametrize("word", ["array", "classification"])
def test_names_that_are_not_utf8_are_refused(word, tmp_path):
    path = tmp_path / os.fsdecode(b"d\xff.npz")
    np.savez(path, x=X, y=Y)
    with pytest.raises(UsageError, match=r"the name .*d\\udcff\.npz is not UTF-8, which the database needs: rename it"):
        find_data(f"{word}:{path}")
    folder = tmp_path / "own"
    for label in (b"cat", b"dog\xff"):
        (folder / os.fsdecode(label)).mkdir(parents=True)
        (folder / os.fsdecode(label) / "1.wav").write_text("text")
    assert "dog\\udcff" in refusal(folder)


def filled():
    mask = np.zeros_like(X, bool)
    mask[3, 2, 1] = True
    return np.ma.masked_array(np.where(mask, 9.96921e36, X), mask)


SPARSE = torch.from_numpy(X).to_sparse()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": filled()}, "x has a mask: give x.filled(np.nan), and the setting missing=mask"),
        ({"x": list(filled())}, "x has a mask"),
        ({"x": [*X[:11], filled()[3][:3]]}, "x has a mask"),
        ({"y": np.ma.masked_equal(Y, 1)}, "y has a mask"),
        ({"y": [*Y[:11].tolist(), np.ma.masked]}, "y has a mask"),
        ({"x": SPARSE}, "x is a Tensor that is not an array"),
        ({"x": torch.nested.nested_tensor([torch.zeros(3, 2), torch.zeros(2, 2)], layout=torch.jagged)}, "x is a "),
        ({"x": torch.empty(12, 4, 2, device="meta")}, "x is a Tensor that is not an array"),
        ({"x": [SPARSE, SPARSE]}, "x is a list that is not an array"),
        ({"y": [None] * 12}, "Python objects"),
        ({"x": None}, "x holds Python objects"),
        ({"x": pd.Series(X[0, :, 0], index=[3, 2, 1, 0]), "y": None}, "x has an index, which would be lost"),
        ({"x": [pd.DataFrame(part, index=pd.Index([3, 2, 1, 0], name="time")) for part in X]}, "x has an index"),
        ({"y": pd.Series(Y, index=np.arange(12)[::-1])}, "y has an index"),
        ({"x": pd.DataFrame(), "y": None}, "its columns are : there is no feature"),
    ],
)
def test_arrays_that_numpy_lacks_are_refused(arguments, message):
    with pytest.raises(UsageError) as error:
        ob.Data(**{"x": X, "y": Y} | arguments)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_sparse_matrices_of_scipy_are_refused():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(UsageError, match=r"^x "):
        ob.Data(sparse.csr_matrix(X[..., 0]), Y)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_short_floats_are_taken(kind):
    values = torch.from_numpy(X).to(kind)
    data = ob.Data(values, torch.from_numpy(Y)).sequences
    assert np.array_equal(data.steps.astype(np.float32), values.float().numpy().reshape(-1, 2))
    as_list = ob.Data([values[0], values[1, :3], values[2]]).sequences
    assert as_list.lengths.tolist() == [4, 3, 4]
    assert np.array_equal(as_list.steps[-4:].astype(np.float32), values[2].float().numpy())


def test_an_array_without_masked_values_is_taken():
    assert np.array_equal(ob.Data(np.ma.masked_array(X), Y).sequences.steps, X.reshape(-1, 2))


def test_a_column_of_pandas_is_taken_without_an_index_of_its_own():
    assert np.array_equal(ob.Data(X, pd.Series(Y)).sequences.targets, Y)


def test_tables_of_pyarrow_are_those_of_pandas(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path))
    columns = {"sequence": [0, 0, 1, 1], "a": [1.0, 2.0, 3.0, 4.0], "y": [0, 0, 1, 1]}
    data = ob.Data(pa.table(columns))
    assert (data.sequences.steps.tolist(), data.sequences.lengths.tolist()) == ([[1], [2], [3], [4]], [2, 2])
    assert repr(data) == "Data(data: 2 sequences, 4 steps, 1 feature: a)"
    assert data.task_word() == ob.Data(pd.DataFrame(columns)).task_word()


def test_a_table_that_cannot_be_converted_is_refused():
    class Frame:
        """A table such as one of polars, which needs pyarrow for this."""

        columns = ("a",)

        def to_pandas(self):
            raise ModuleNotFoundError("pyarrow is required")

    with pytest.raises(UsageError, match=r"^x is a Frame that is not an array \(pyarrow is required\)"):
        ob.Data(Frame())


def test_arguments_name_the_columns_of_a_table_in_memory():
    frame = pd.DataFrame({"who": list("abab"), "when": [2, 2, 1, 1], "a": [1.0, 2.0, 3.0, 4.0], "class": list("uvuv")})
    data = ob.Data(frame, target="class", sequence="who", time="when").sequences
    assert data.steps.tolist() == [[3], [1], [4], [2]]
    assert data.targets.tolist() == ["u", "v"]
    with pytest.raises(UsageError, match="name columns of a table, which x is not"):
        ob.Data(X, target="class")
    with pytest.raises(UsageError, match="column class has 'u' in row 1, which is not a number: set target=class or "):
        ob.Data(frame, sequence="who", time="when")


@pytest.mark.parametrize("target", ["y", None])
def test_y_twice_is_refused(target):
    frame = pd.DataFrame({"a": [1.0, 2.0], "y": [0, 1]})
    with pytest.raises(UsageError, match="x has the column y, and `y` is given"):
        ob.Data(frame, [1, 0], target=target)
