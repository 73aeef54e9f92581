"""Tables of the user's own: which column is what, and what is refused, with its row and column."""

from __future__ import annotations

import itertools
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import orthobench as ob
from orthobench.arrays.arrange import checked, kind_of
from orthobench.arrays.own_files import read_own_data
from orthobench.arrays.tables import Roles, of_table
from orthobench.errors import UsageError
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve


@pytest.fixture
def table(tmp_path):
    """Return a function that writes a table and returns its path."""

    def write(content, name="d.csv"):
        (tmp_path / name).write_text(content, "utf-8")
        return tmp_path / name

    return write


def read(path, kind=None, missing="refuse", **roles):
    """Return the kind, the steps of each sequence, and the targets as labels or amounts."""
    kind = kind or kind_of(read_own_data(path, Roles(**roles)).targets)
    found = checked(read_own_data(path, Roles(**roles), kind), kind, missing=missing)
    steps = [part.tolist() for part in np.split(found.steps, found.lengths.cumsum()[:-1])]
    if found.targets is None:
        return kind, steps, None
    return kind, steps, [found.classes[n] for n in found.targets] if found.classes else found.targets[:, 0].tolist()


def refusal(path, **roles):
    with pytest.raises(UsageError) as error:
        read(path, **roles)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("frame", "x", "y"),
    [
        pytest.param({"a": [1, 2, 3], "b": [4, 5, 6]}, [[[1, 4], [2, 5], [3, 6]]], None, id="series"),
        pytest.param({"time": [2, 1, 3], "a": [1, 2, 3]}, [[[2], [1], [3]]], None, id="sorted by time"),
        pytest.param({"y": [0, 1], "0": [1, 2], "1": [3, 4]}, [[[1], [3]], [[2], [4]]], ["0", "1"], id="wide"),
        pytest.param(
            {"sequence": ["p", "q", "p", "q", "q"], "a": [1, 2, 3, 4, 5], "y": list("uvuvv")},
            [[[1], [3]], [[2], [4], [5]]],
            ["u", "v"],
            id="long",
        ),
        pytest.param(
            {"sequence": [0, 0, 1], "a": [1, 2, 3], "y": [0, 1, 1]}, [[[1], [2]], [[3]]], ["0", "1", "1"], id="steps"
        ),
    ],
)
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_tables_give_sequences(frame, x, y, form, tmp_path):
    path, table = tmp_path / f"d.{form}", pd.DataFrame(frame)
    if form == "parquet":
        pytest.importorskip("pyarrow")
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False)
    assert read(path) == ("forecast" if y is None else "classification", x, y)


def test_settings_name_the_columns_with_a_role(table):
    path = table("who,when,load,class\nb,2,1.5,u\na,1,2.5,v\nb,1,3.5,u\n")
    roles = {"target": "class", "sequence": "who", "time": "when"}
    assert read(path, **roles) == ("classification", [[[3.5], [1.5]], [[2.5]]], ["u", "v"])
    config = resolve(Catalog(), f"array:{path}", "rnn", roles | {"test_share": 0.3, "validation_share": 0})
    assert config.spec.task == "classification:d.csv"
    assert {name: config.spec.task_settings[name] for name in roles} == roles
    assert "unknown column 'nothing'" in refusal(path, target="nothing")
    assert read(table("time,a\n0,1\n1,2\n", "t.csv"), target="time") == ("classification", [[[1]], [[2]]], ["0", "1"])


def test_roles_give_small_data_small_batches(table):
    path = table("who,a,class\n" + "".join(f"{n},{n}.5,{'uv'[n % 2]}\n" for n in range(9)))
    config = resolve(Catalog(), f"array:{path}", "rnn", {"target": "class", "sequence": "who"})
    assert config.spec.training["batch_size"] == 2  # of 6 training sequences


def test_roles_at_their_usual_names_do_not_change_the_key(table):
    path = table("sequence,a,y\n" + "".join(f"{n},{n}.5,{'uv'[n % 2]}\n" for n in range(9)))
    keys = {
        resolve(Catalog(), f"array:{path}", "rnn", more).spec.key for more in ({}, {"target": None, "time": "none"})
    }
    assert len(keys) == 1
    assert resolve(Catalog(), f"array:{path}", "rnn", {"target": "y"}).spec.key not in keys


def test_first_line_names_features_and_counts_classes(table):
    rows = [f"{n},{step},{n}.5,{step},{'abc'[(n > 4) + (n > 7)]}" for n in range(9) for step in range(2)]
    path = table("sequence,time,load,temp,class\n" + "\n".join(rows))
    config = resolve(Catalog(), f"array:{path}", "rnn", {"target": "class"})
    told = config.task_class.remark(config.task_settings)
    assert "features: load, temp; target: class, 3 classes: 5, 3, 1 (a, b, c)" in told


def test_first_line_names_a_column_that_is_no_feature_to_the_user(table):
    """Nothing in the file says that `sample_id` is not one, so the line does."""
    path = table("sample_id,time,load\n" + "".join(f"{n // 10},{n},{n}.5\n" for n in range(100)))
    config = resolve(Catalog(), f"array:{path}", "rnn", {})
    assert "features: sample_id, load" in config.task_class.remark(config.task_settings)
    wide = table("y,sample_id,a\n" + "".join(f"{n % 2},{n},{n}.5\n" for n in range(10)), "w.csv")
    config = resolve(Catalog(), f"array:{wide}", "rnn", {})
    assert "steps: sample_id, a; target: y" in config.task_class.remark(config.task_settings)


TIMES = {
    "iso": ["2024-01-10T09:30", "2024-01-09T10:30"],
    "mixed iso": ["2024-01-09 10:30", "2024-01-09T09:30"],
    "zones": ["2024-01-01T10:00+02:00", "2024-01-01T09:00Z", "2024-01-01T09:30+01:00"],
    "months": ["2024-10", "2024-09"],
    "of the day": ["10:00", "09:00:30"],
    "nanoseconds": ["2024-01-01T00:00:00.000000010", "2024-01-01T00:00:00.000000009"],
    "whole numbers": ["10", "9", "-11"],
    "beyond float64": ["9007199254740993", "9007199254740992"],
    "numbers": ["1e1", "9.5"],
}
SORTED = {name: [1, 0] for name in TIMES} | {"whole numbers": [2, 1, 0], "zones": [0, 2, 1]}  # 8:00, 8:30, 9:00 UTC


@pytest.mark.parametrize("name", TIMES)
def test_steps_are_in_the_order_of_time(name, table):
    path = table("time,a\n" + "".join(f"{time},{row}\n" for row, time in enumerate(TIMES[name])))
    assert read(path)[1] == [[[row] for row in SORTED[name]]]


@pytest.mark.parametrize("first", ["2024-01-02", "09:00"])
@pytest.mark.parametrize("time", ["7:00", "7/1/2024", "2024-13-01", "monday", "1_0", "inf", "NaT", "24:00"])
def test_time_that_is_neither_a_number_nor_iso_is_refused(first, time, table):
    path = table(f"time,a\n{first},1\n{time},2\n")
    assert f"column time has '{time}' in row 2, which is neither a number nor a time of ISO 8601" in refusal(path)


@pytest.mark.parametrize("other", ["09:00", "5"])
def test_times_of_two_forms_are_refused(other, table):
    assert f"column time has '{other}' in row 2" in refusal(table(f"time,a\n2024-01-02,1\n{other},2\n"))


@pytest.mark.parametrize(("first", "second"), [("1", "1.0"), ("2024-01-01", "2024-01-01T00:00"), ("5", "5")])
def test_equal_times_within_a_sequence_are_refused(first, second, table):
    between = "2025-01-01" if "-" in first else "7"
    assert "equal times in rows 1 and 3" in refusal(table(f"time,a\n{first},1\n{between},2\n{second},3\n"))
    rows = f"p,{first},1,u\nq,{first},2,v\n"
    assert read(table(f"sequence,time,a,y\n{rows}"))[1] == [[[1]], [[2]]]


@pytest.mark.parametrize("first", ["0.5,0.5,1", "1e-3,1e-3,1", "0.5,0.25,1", "0.5,nan,1"])
def test_a_first_row_of_numbers_is_refused_not_lost(first, table):
    path = table(f"{first}\n1,2,3\n4,5,6\n")
    assert refusal(path) == "its first row is numbers: write a row with the names of the columns above it"


def test_columns_may_be_called_by_numbers_if_a_role_has_one(table):
    assert read(table("0,1\n5,7\n6,8\n"), target="1") == ("classification", [[[5]], [[6]]], ["7", "8"])


@pytest.mark.parametrize("ids", [["001", "1", "01"], ["1E2", "100"], ["1.0", "1"], ["NA", "None", "nan"]])
def test_identifiers_are_text_as_written(ids, table):
    rows = "".join(f"{name},{value}\n" for name, value in zip(ids * 2, itertools.count(), strict=False))
    count = len(ids)
    assert read(table(f"sequence,a\n{rows}"))[1] == [[[n], [n + count]] for n in range(count)]


@pytest.mark.parametrize("labels", [["NA", "EU"], ["None", "null"], ["001", "1"], ["nan", "inf"], ["True", "true"]])
def test_labels_are_text_as_written(labels, table):
    rows = "".join(f"{n},{labels[n % 2]}\n" for n in range(8))
    kind, _, found = read(table(f"a,y\n{rows}"))
    assert (kind, found) == ("classification", labels * 4)


def test_whole_numbers_are_classes_in_their_order_and_others_amounts(table):
    path = table("a,y\n" + "".join(f"{n},{9 + n % 3}\n" for n in range(9)))
    assert checked(read_own_data(path), "classification").classes == ("9", "10", "11")
    assert read(table("a,y\n1,0.5\n2,1\n3,1.0\n")) == ("regression", [[[1]], [[2]], [[3]]], [0.5, 1, 1])
    assert read(table("a,y\n1,001\n2,010\n"), "regression")[2] == [1, 10]
    assert "column y has 'NA' in row 2, which is not a number, and others are: write classification:FILE" in refusal(
        table("a,y\n1,0.5\n2,NA\n3,1.5\n")
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("time,load,temp\n0,0.5,1.5,7\n", "row 1 has 4 fields and the row of names 3"),
        ("time,load\n0,1\n1\n", "row 2 has 1 field and the row of names 2"),
        ("sequence,a,y\n0,1,u,\n", "row 1 has 4 fields and the row of names 3"),
        ("a,b\n1,2\n\n3,4\n", "row 2 has 0 fields"),
        ("time;a\n0;1,5\n1;2,5\n", "separated by semicolons"),
        ("sequence;a;y\n0;1;2\n", "separated by semicolons"),
        ("a\tb\n1\t2\n", "column a\tb has '1 2' in row 1, which is not a number"),
        ("a\n1,5\n2,5\n", "row 1 has 2 fields"),
        ("", "empty"),
        ("\n\n", "empty"),
        ("a,b\n1,u\n2,v\n", "column b has 'u' in row 1, which is not a number"),
        ("load,b\nkW,1\n0.5,2\n", "column load has 'kW' in row 1"),
        ("a\n1\n1_000\n", "column a has '1_000' in row 2"),
        ("a\n1\ninf\n", "column a is infinite or beyond float32 in row 2"),
        ("a,b\n1,2\n3,\n", "column b has no value in row 2, 1 value in all: fill or remove it, or set missing=mask"),
        ("y,a,b\n0,1,2\n1,,4\n", "column a has no value in row 2"),
        ("y\n1\n2\n", "no feature"),
        ("y,a\n", "no row"),
        (",a,b,y\n0,1,2,0\n1,3,4,1\n", "column 1 has no name: write the table without its index"),
        ("a, a\n1,2\n", "two columns are called a"),
        ("y,Y,a\n1,2,3\n", "columns y and Y both name y"),
        ("sequence,a,y\np,1,\n", "column y has no value in row 1"),
        ("id,a,y\nu1,2,0\n", "column id has 'u1' in row 1, which is not a number: set target=id or sequence=id"),
        ("sequence,a,split\np,1,train\np,2,test\n", "column split has 'test' in row 2, which differs"),
        ('a\n"1\n', "it is damaged (unexpected end of data)"),
        ('a\n"x\ny"\n', "column a has 'x y' in row 1"),
    ],
)
def test_bad_tables_are_refused_in_one_line(content, message, table):
    assert message in refusal(table(content))


def test_table_in_another_encoding_is_refused(table):
    path = table("größe,y\n1,0\n")
    path.write_bytes(path.read_bytes().decode().encode("latin-1"))
    assert refusal(path).endswith("its text is not in UTF-8: save it as UTF-8")


def test_names_lose_the_spaces_around_them_and_y_is_the_target(table):
    path = table("sequence, a , y\np, 1, cat\np, 2, cat\nq, 3, dog\n")
    assert read(path) == ("classification", [[[1], [2]], [[3]]], ["cat", "dog"])


def test_missing_values_are_masked_or_carried_forward(table):
    path = table("sequence,a,b\np,1,5\np,,NA\nq,3,7\nq,nan,8\n")
    assert read(path, missing="forward")[1] == [[[1, 5], [1, 5]], [[3, 7], [3, 8]]]
    masked = read(path, missing="mask")[1]
    assert np.array_equal(masked, [[[1, 5], [np.nan, np.nan]], [[3, 7], [np.nan, 8]]], equal_nan=True)
    late = table("sequence,a\np,1\nq,\nq,3\n")
    with pytest.raises(UsageError, match="column a has no value in row 2, 1 value in all: no earlier step"):
        read(late, missing="forward")
    with pytest.raises(UsageError, match="column b has no value in row 1, 2 values in all: no step has one"):
        read(table("a,b\n1,\n2,\n"), missing="mask")


def to_parquet(path, columns):
    pa = pytest.importorskip("pyarrow")
    pa.parquet.write_table(pa.table(columns), path)
    return path


def test_decimals_are_amounts(tmp_path):
    pytest.importorskip("pyarrow.parquet")
    amounts = [Decimal("0.25") * (n % 4) for n in range(24)]
    path = to_parquet(tmp_path / "d.parquet", {"a": amounts, "b": [float(n) for n in range(24)], "y": amounts})
    kind, steps, found = read(path)
    assert (kind, found, steps[1]) == ("regression", [0.25 * (n % 4) for n in range(24)], [[0.25], [1]])
    frame = pd.DataFrame({"a": [1.0, 2.0], "y": amounts[:2]})
    assert of_table(frame).targets.tolist() == [0, 0.25]


@pytest.mark.parametrize("column", ["a", "y"])
@pytest.mark.parametrize("kind", ["duration", "date", "timestamp", "list", "bytes"])
def test_columns_of_other_types_are_refused_as_features_and_targets(kind, column, tmp_path):
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    values = {
        "duration": pa.array([1, 2], pa.duration("s")),
        "date": pa.array([1, 2], pa.date32()),
        "timestamp": pa.array([1, 2], pa.timestamp("us", "UTC")),
        "list": pa.array([[1], [2]]),
        "bytes": pa.array([b"1", b"2"]),
    }[kind]
    message = refusal(to_parquet(tmp_path / "d.parquet", {"b": [1.0, 2.0], "y": [1, 2]} | {column: values}))
    assert message.startswith(f"column {column} ")


@pytest.mark.parametrize("kind", ["date32", "timestamp[ns, UTC]", "timestamp[s]", "time32[s]", "string"])
def test_dates_of_parquet_sort_as_times(kind, tmp_path):
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    times = {
        "date32": pa.array([10, 9], pa.date32()),
        "timestamp[ns, UTC]": pa.array([10, 9], pa.timestamp("ns", "UTC")),
        "timestamp[s]": pa.array([10, 9], pa.timestamp("s")),
        "time32[s]": pa.array([36_000, 9], pa.time32("s")),
        "string": ["10", "9"],
    }[kind]
    assert read(to_parquet(tmp_path / "d.parquet", {"time": times, "a": [1, 2]}))[1] == [[[2], [1]]]


def test_a_named_index_in_parquet_is_a_column(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"time": [4, 2, 1], "a": [1, 2, 3]})
    frame.set_index("time").to_parquet(tmp_path / "d.parquet")
    assert read(tmp_path / "d.parquet")[1] == [[[3], [2], [1]]]
    frame[["a"]].set_index(pd.RangeIndex(3, 0, -1, name="time")).to_parquet(tmp_path / "r.parquet")
    assert read(tmp_path / "r.parquet")[1] == [[[3], [2], [1]]]
    frame.iloc[[2, 0, 1]].to_parquet(tmp_path / "e.parquet")
    assert "its index has no name: name it" in refusal(tmp_path / "e.parquet")


@pytest.mark.parametrize("index", [pd.Index([4, 3, 1], name="time"), pd.RangeIndex(3, 0, -1, name="time")])
def test_a_named_index_in_memory_is_a_column(index):
    data = ob.Data(pd.DataFrame({"a": [1.0, 2.0, 3.0]}, index=index)).sequences
    assert (data.columns, data.steps.tolist()) == (("a",), [[3], [2], [1]])


@pytest.mark.parametrize("index", [["p", "q"], [1, 0], pd.MultiIndex.from_tuples([(0, 1), (0, 2)])])
def test_an_index_without_a_name_is_refused(index):
    with pytest.raises(
        UsageError, match="its index has no name: name it, so that it is a column, or write reset_index"
    ):
        ob.Data(pd.DataFrame({"a": [1.0, 2.0]}, index=index))


def test_parquet_is_refused_by_its_metadata(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "d.parquet"
    zeros = pa.array(np.zeros(1_000_000, np.int8))
    pq.write_table(pa.table({"a": zeros, "b": zeros}), path)
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(pq, "read_table", lambda *_, **__: pytest.fail("it was unpacked"))
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"total": 15_000_000}))
    assert "its arrays take 0.0149 GiB, and this machine has 0.014 GiB" in refusal(path)
