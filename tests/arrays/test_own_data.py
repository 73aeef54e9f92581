"""The user's own arrays, tables and folders: what is read, refused, divided, and learnt."""

from __future__ import annotations

import pickle
import re
import wave
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import orthobench as ob
from orthobench.arrays.arrange import arrange
from orthobench.arrays.named import find_data
from orthobench.arrays.own_files import from_table, read_own_data
from orthobench.errors import UsageError
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.testing import problems

N, T, M = 40, 7, 3
RANDOM = np.random.RandomState(0)
X = RANDOM.normal(size=(N, T, M)).astype(np.float32)
LABELS = np.arange(N) % 3
LENGTHS = 1 + np.arange(N) % T
STEP_LABELS = (X.sum(2) > 0).astype(int)
SERIES = np.cumsum(RANDOM.normal(size=(600, 2)), 0)
KINDS = {
    "labels": {"x": X, "y": LABELS},
    "words": {"x": X, "y": np.array(["yes", "no", "maybe", "no"] * 10)},
    "ragged": {"x": X, "y": LABELS, "lengths": LENGTHS},
    "step_labels": {"x": X, "y": STEP_LABELS, "lengths": LENGTHS},
    "amounts": {"x": X, "y": X.sum((1, 2))},
    "vectors": {"x": X, "y": X[:, 2, :2]},
    "step_amounts": {"x": X, "y": X.cumsum(1)[..., :2], "lengths": LENGTHS},
    "one_feature": {"x": X[..., 0], "y": LABELS},
    "series": {"x": SERIES},
    "forecasts": {"x": X, "lengths": 3 + np.arange(N) % (T - 2)},
}


def save(folder, name, **arrays):
    np.savez(folder / f"{name}.npz", **arrays)
    return f"array:{folder / name}.npz"


def task(word, seed=0, **settings):
    cls = find_data(str(word)).load()
    return cls(cls.Settings.read(settings), seed, torch.device("cpu"))


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_data_meets_the_contract_of_tasks(name, tmp_path):
    own = find_data(save(tmp_path, name, **KINDS[name])).load()
    large = {"window": 10} if name == "series" else {"validation_share": 0.3, "test_share": 0.3}
    assert problems("task", type("Own", (own,), {"quick": large})) == []  # five examples in each part


def test_time_first_gives_the_batches_of_batch_first(tmp_path):
    batch_first = task(save(tmp_path, "a", x=X, y=STEP_LABELS, lengths=LENGTHS))
    time_first = task(save(tmp_path, "b", x=X.swapaxes(0, 1), y=STEP_LABELS.T, lengths=LENGTHS))
    assert (batch_first.settings.layout, time_first.settings.layout) == ("batch_first", "time_first")
    for one, other in ((batch_first.train, time_first.train), (batch_first.test, time_first.test)):
        first, second = (split.batch(torch.arange(5)) for split in (one, other))
        assert torch.equal(first.inputs, second.inputs)
        assert torch.equal(first.targets, second.targets)


def test_square_arrays_are_batch_first_unless_the_layout_says_otherwise(tmp_path):
    x, y = X[:T].copy(), np.arange(T) % 2
    word = save(tmp_path, "square", x=x, y=y)
    by_default, turned = (task(word, standardise=False, **given) for given in ({}, {"layout": "time_first"}))
    assert "both axes fit" in type(by_default).remark(by_default.settings)
    own, other = by_default.train.batch(torch.arange(1)), turned.train.batch(torch.arange(1))
    number = int(by_default.train.numbers[0])
    assert np.array_equal(own.inputs[:, 0], x[number])
    assert np.array_equal(other.inputs[:, 0], x[:, int(turned.train.numbers[0])])


def test_batches_have_the_file_s_values_and_padding_is_zero(tmp_path):
    own = task(save(tmp_path, "ragged", x=X, y=LABELS, lengths=LENGTHS), standardise=False)
    batch = own.test.batch(torch.arange(len(own.test)))
    assert own.signature.readout == "last_valid"
    for column, number in enumerate(own.test.numbers.tolist()):
        length = LENGTHS[number]
        assert batch.lengths[column] == length
        assert np.array_equal(batch.inputs[:length, column], X[number, :length])
        assert not batch.inputs[length:, column].any()
        assert batch.targets[column] == LABELS[number]


def test_parts_are_disjoint_cover_the_data_and_share_the_classes(tmp_path):
    own = task(save(tmp_path, "labels", x=X, y=LABELS))
    numbers = [part.numbers.tolist() for part in (own.train, own.validation, own.test)]
    assert sorted(number for part in numbers for number in part) == list(range(N))
    assert [len(part) for part in numbers] == [28, 4, 8]
    assert set(LABELS[numbers[2]]) == {0, 1, 2}
    again = task(f"classification:{own.settings.data}", seed=5)
    assert numbers == [part.numbers.tolist() for part in (again.train, again.validation, again.test)]


def test_a_given_split_is_kept(tmp_path):
    words = np.array(["train"] * 20 + ["test"] * 15 + ["valid"] * 5)
    own = task(save(tmp_path, "split", x=X, y=LABELS, split=words))
    assert own.train.numbers.tolist() == list(range(20))
    assert own.test.numbers.tolist() == list(range(20, 35))
    assert own.validation.numbers.tolist() == list(range(35, 40))


def test_forecasts_predict_the_features_of_later_steps(tmp_path):
    own = task(save(tmp_path, "series", x=SERIES), window=20, horizon=3, standardise=False)
    batch = own.test.batch(torch.arange(len(own.test)))
    first = int(0.8 * len(SERIES))
    for column in range(len(own.test)):
        start = first + 20 * column
        assert np.allclose(batch.inputs[:, column], SERIES[start : start + 20], atol=1e-5)
        assert np.allclose(batch.targets[:, column], SERIES[start + 3 : start + 23], atol=1e-5)
    assert first + 20 * len(own.test) + 3 <= len(SERIES) < first + 20 * (len(own.test) + 1) + 3


def test_inputs_are_scaled_by_the_training_data_alone(tmp_path):
    own = task(save(tmp_path, "labels", x=5 + 3 * X, y=LABELS))
    trained = own.train.batch(torch.arange(len(own.train))).inputs.flatten(0, 1)
    assert torch.allclose(trained.mean(0), torch.zeros(M), atol=1e-5)
    assert torch.allclose(trained.std(0, correction=0), torch.ones(M), atol=1e-5)
    tested = own.test.batch(torch.arange(len(own.test))).inputs.flatten(0, 1)
    assert tested.mean(0).abs().max() > 1e-3


def test_mse_is_in_the_file_s_units(tmp_path):
    y = 100 + 10 * X.sum((1, 2))
    own = task(save(tmp_path, "amounts", x=X, y=y))
    batch = own.test.batch(torch.arange(len(own.test)))
    trained = y[own.train.numbers]
    perfect = torch.from_numpy((y[own.test.numbers] - trained.mean()) / trained.std()).unsqueeze(1)
    total, _ = own.measure(perfect, batch.targets)["mse"]
    assert float(total) < 1e-3
    total, weight = own.measure(torch.zeros(len(own.test), 1), batch.targets)["mse"]
    assert float(total) / weight == pytest.approx(np.square(y[own.test.numbers] - trained.mean()).mean(), rel=1e-5)


def test_baseline_of_classes_is_the_most_frequent_one(tmp_path):
    y = np.array([0] * 26 + [1] * 14)
    own = task(save(tmp_path, "labels", x=X, y=y))
    baselines = own.baselines(own.settings)
    tested, trained = y[own.test.numbers], y[own.train.numbers]
    assert baselines["accuracy"] == np.mean(tested == 0)
    shares = (np.bincount(trained) + 1) / (len(trained) + 2)
    assert baselines["cross_entropy"] == pytest.approx(-np.log(shares[tested]).mean())


def test_baseline_of_amounts_is_the_best_map_of_the_step(tmp_path):
    y = X @ np.array([[1.0], [-2.0], [0.5]]) + 4
    own = task(save(tmp_path, "linear", x=X, y=y))
    assert own.baselines(own.settings)["mse"] < 1e-8
    memory = task(save(tmp_path, "memory", x=X, y=X.cumsum(1)[..., :1]))
    parts = {name: getattr(memory, name).numbers.tolist() for name in ("train", "test")}
    design = {name: np.column_stack([X[rows].reshape(-1, M), np.ones(len(rows) * T)]) for name, rows in parts.items()}
    asked = {name: X.cumsum(1)[rows][..., 0].reshape(-1) for name, rows in parts.items()}
    fitted = np.linalg.lstsq(design["train"], asked["train"], rcond=None)[0]
    expected = min(
        np.square(design["test"] @ fitted - asked["test"]).mean(),
        np.square(asked["test"] - asked["train"].mean()).mean(),
    )
    assert memory.baselines(memory.settings)["mse"] == pytest.approx(expected, rel=1e-4)


def test_a_random_walk_is_forecast_by_its_last_value(tmp_path):
    own = task(save(tmp_path, "walk", x=SERIES), window=20)
    first = int(0.8 * len(SERIES))
    steps = SERIES[first : first + 20 * len(own.test) + 1]
    assert own.baselines(own.settings)["mse"] <= np.square(np.diff(steps, axis=0)).mean() * (1 + 1e-4)


@pytest.mark.parametrize(
    ("frame", "x", "y"),
    [
        pytest.param({"a": [1, 2, 3], "b": [4, 5, 6]}, [[1, 4], [2, 5], [3, 6]], None, id="series"),
        pytest.param({"t": [2, 1, 3], "a": [1, 2, 3]}, [[2], [1], [3]], None, id="sorted by time"),
        pytest.param({"y": [0, 1], "0": [1, 2], "1": [3, 4]}, [[[1], [3]], [[2], [4]]], [0, 1], id="wide"),
        pytest.param(
            {"id": ["p", "q", "p", "q", "q"], "a": [1, 2, 3, 4, 5], "label": list("uvuvv")},
            [[[1], [3]], [[2], [4], [5]]],
            ["u", "v"],
            id="long",
        ),
        pytest.param(
            {"sequence": [0, 0, 1], "a": [1, 2, 3], "y": [0, 1, 1]}, [[[1], [2]], [[3]]], [0, 1, 1], id="steps"
        ),
    ],
)
def test_tables_give_sequences(frame, x, y):
    raw = from_table(pd.DataFrame(frame))
    found = arrange(raw, "forecast" if y is None else "classification")
    parts = np.split(found.steps, found.lengths.cumsum()[:-1])
    expected = [x] if np.ndim(x[0][0]) == 0 else x
    assert [part.tolist() for part in parts] == expected
    if y is not None:
        assert [found.classes[number] for number in found.targets] == [str(each) for each in y]


def test_csv_parquet_and_arrays_give_the_same_sequences(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(X.reshape(-1, M), columns=list("abc"))
    frame.insert(0, "sequence", np.arange(N).repeat(T))
    frame["y"] = LABELS.repeat(T)
    frame.to_csv(tmp_path / "d.csv", index=False)
    frame.to_csv(tmp_path / "d.tsv", index=False, sep="\t")
    frame.to_parquet(tmp_path / "d.parquet")
    np.savez(tmp_path / "d.npz", x=X, y=LABELS)
    found = [
        arrange(read_own_data(tmp_path / f"d.{end}"), "classification") for end in ("npz", "csv", "tsv", "parquet")
    ]
    for each in found:
        assert np.allclose(each.steps, found[0].steps, atol=1e-6)
        assert np.array_equal(each.targets, LABELS)
        assert np.array_equal(each.lengths, np.full(N, T))


def test_a_csv_without_a_heading_is_a_series(tmp_path):
    np.savetxt(tmp_path / "s.csv", SERIES, delimiter=",")
    found = arrange(read_own_data(tmp_path / "s.csv"), "forecast")
    assert np.allclose(found.steps, SERIES, atol=1e-5)


def write_texts(folder):
    for label, letter in (("ham", "a"), ("spam", "b")):
        (folder / label).mkdir(parents=True)
        for number in range(10):
            (folder / label / f"{number}.txt").write_text(letter * (3 + number) + "é")
    (folder / "ham" / "._0.txt").write_text("hidden")


def test_a_folder_of_texts_is_read_character_by_character(tmp_path):
    write_texts(tmp_path / "mails")
    own = task(f"array:{tmp_path / 'mails'}")
    assert own.signature.tokens
    assert own.sequences.alphabet == "abé"
    assert own.sequences.classes == ("ham", "spam")
    batch = own.test.batch(torch.arange(len(own.test)))
    for column in range(len(own.test)):
        length = int(batch.lengths[column])
        text = "".join(own.sequences.alphabet[number] for number in batch.inputs[:length, column])
        letter = "ab"[int(batch.targets[column])]
        assert text == letter * (length - 1) + "é"


def test_a_folder_of_recordings_is_read_as_spectra(tmp_path, monkeypatch):
    pytest.importorskip("soundfile")
    pytest.importorskip("librosa")
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path / "data"))
    for part in ("train", "test"):
        for label, hertz in (("low", 300), ("high", 2500)):
            folder = tmp_path / "sounds" / part / label
            folder.mkdir(parents=True)
            for number in range(3):
                tone = np.sin(2 * np.pi * hertz * np.arange(1024 + 128 * number) / 8000)
                with wave.open(str(folder / f"{number}.wav"), "wb") as file:
                    file.setparams((1, 2, 8000, 0, "NONE", ""))
                    file.writeframes((20000 * tone).astype("<i2").tobytes())
    own = task(f"array:{tmp_path / 'sounds'}", standardise=False)
    assert own.sequences.classes == ("high", "low")
    assert (len(own.train), own.validation, len(own.test)) == (6, None, 6)
    batch = own.test.batch(torch.arange(6))
    loudest = batch.inputs[4].argmax(-1) * 8000 / 256  # the frequency of a bin in Hz
    expected = torch.where(batch.targets == 0, 2500.0, 300.0)
    assert (loudest - expected).abs().max() < 8000 / 256


BAD = {
    "shapes": ({"x": X, "y": LABELS[:5]}, "the shapes do not fit: x is [40, 7, 3], y [5]"),
    "nan": ({"x": np.where(np.arange(M) == 1, np.nan, X), "y": LABELS}, "x is NaN at sequence 0, step 0, feature 1"),
    "infinite": ({"x": X.astype(np.float64) * 1e300, "y": LABELS}, "infinite or beyond float32"),
    "objects": ({"x": X, "y": np.array([None] * N)}, "holds Python objects"),
    "one class": ({"x": X, "y": np.zeros(N, int)}, "all targets are of the one class 0"),
    "many classes": ({"x": X, "y": np.arange(N)}, "regression:FILE"),
    "long": ({"x": X, "y": LABELS, "lengths": np.full(N, T + 1)}, "lengths[0]=8 is not a whole number from 1 to the 7"),
    "zero": ({"x": X, "y": LABELS, "lengths": np.arange(N)}, "lengths[0]=0 is not"),
    "empty": ({"x": X[:0], "y": LABELS[:0]}, "x is empty"),
    "complex": ({"x": X * 1j, "y": LABELS}, "real and imaginary parts"),
    "no x": ({"a": X}, "name the array of sequences x"),
    "unknown": ({"x": X, "yy": LABELS}, "did you mean y"),
    "split": ({"x": X, "y": LABELS, "split": np.array(["train"] * N)}, "no sequence for test"),
    "equal": ({"x": X, "y": np.full(N, 0.5)}, "nothing to learn"),
    "few": ({"x": X[:2], "y": LABELS[:2]}, "leave none for training"),
    "short": ({"x": SERIES[:8]}, "leave no window of 2 steps and horizon=1 for validation: give more steps"),
}


@pytest.mark.parametrize(("steps", "usual"), [(30, 2), (100, 4), (600, 29), (1000, 49), (1010, 100), (5000, 100)])
def test_usual_window_of_a_series_fits_each_part(steps, usual, tmp_path):
    """A tenth of the steps, at most 100, where validation has as many; else half of what it has."""
    x = np.sin(np.arange(steps) / 10)
    own = task(save(tmp_path, "series", x=x))
    assert own.settings.window == usual
    assert min(map(len, (own.train, own.validation, own.test))) >= 1
    with pytest.raises(UsageError, match=f"give at most window={round(steps / 10) - 1}$"):
        task(save(tmp_path, "series", x=x), window=steps // 5)


@pytest.mark.parametrize("name", ["test_share", "validation_share", "horizon"])
@pytest.mark.parametrize("value", ["inf", "nan", "-1", "abc"])
def test_impossible_division_of_a_series_is_the_fields_error(name, value, tmp_path):
    with pytest.raises(UsageError, match=f"^{name}={value}: should be"):
        task(save(tmp_path, "series", x=SERIES), **{name: value})


@pytest.mark.parametrize(("x", "y"), [(X, LABELS), (X, X.sum((1, 2))), (SERIES, None)])
def test_own_data_is_graded(x, y, tmp_path):
    """Nobody has said that a model can solve it."""
    assert task(save(tmp_path, "d", **({"x": x} if y is None else {"x": x, "y": y}))).metrics[0].is_graded


@pytest.mark.parametrize("name", BAD)
def test_bad_arrays_are_refused_in_one_line(name, tmp_path):
    arrays, message = BAD[name]
    with pytest.raises(UsageError) as error:
        task(save(tmp_path, "d", **arrays))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert "d.npz" in str(error.value)


class Bomb:
    def __reduce__(self):
        return (open, ("ran", "w"))


@pytest.mark.parametrize("name", ["d.npz", "d.npy", "d.csv", "d.parquet"])
def test_a_pickle_is_refused_and_not_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    np.save(tmp_path / "o.npy", np.array([Bomb()], object))
    for word in (f"array:{name}", "array:o.npy"):
        with pytest.raises(UsageError):
            find_data(word)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty"),
        ("a,b\n1,u\n2,v\n", "column b has 'u'"),
        ("y\n1\n2\n", "no feature"),
        ("y,label,a\n", "no rows"),
        ("sequence;a;y\n0;1;2\n", "not separated by commas"),
        (",a,b,y\n0,1,2,0\n1,3,4,1\n", "column 1 has no name: write the table without its index"),
    ],
)
def test_bad_tables_are_refused(content, message, tmp_path):
    (tmp_path / "d.csv").write_text(content)
    with pytest.raises(UsageError, match=message):
        find_data(f"array:{tmp_path / 'd.csv'}")


def test_an_announced_size_beyond_memory_is_refused(tmp_path):
    with (tmp_path / "d.npy").open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (10**13, 3)})
    with pytest.raises(UsageError, match="this machine has"):
        find_data(f"array:{tmp_path / 'd.npy'}")


def spec(word, **settings):
    catalog = Catalog()
    return resolve(catalog, word, "rnn", settings).spec


def test_the_key_depends_on_the_content_and_not_on_the_folder(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
    one, other = (spec(save(folder, "d", x=X, y=LABELS)) for folder in (first, second))
    assert one.task == "classification:d.npz"
    assert one.key == other.key
    assert one.task_settings["layout"] == "batch_first"
    changed = spec(save(second, "d", x=X + 1, y=LABELS))
    assert changed.key != one.key
    assert changed.condition != one.condition


def test_small_data_has_small_batches(tmp_path):
    assert spec(save(tmp_path, "d", x=X[:9], y=LABELS[:9])).training["batch_size"] == 2


@pytest.mark.parametrize(
    ("y", "is_told"), [(LABELS.astype(float), True), (np.linspace(0, 1, N), False), (LABELS, False)]
)
def test_whole_numbers_as_amounts_may_be_meant_as_classes(tmp_path, y, is_told):
    config = resolve(Catalog(), save(tmp_path, "d", x=X, y=y), "rnn", {})
    told = config.task_class.remark(config.task_settings)
    assert ("for classes write classification:d.npz" in told) == is_told


def test_words_for_a_kind_choose_it(tmp_path):
    word = save(tmp_path, "d", x=X, y=np.arange(N)).replace("array:", "regression:")
    assert spec(word).task == "regression:d.npz"
    with pytest.raises(UsageError, match=r"there is no d\.npz here"):
        spec("regression:d.npz")
    given = {"data": str(tmp_path / "d.npz"), "batch_size": 8}
    assert spec("regression:d.npz", **given).key == spec(word, batch_size=8).key
    with pytest.raises(UsageError, match="names no file"):
        spec("array:")


@pytest.mark.parametrize(
    ("x", "y"),
    [
        pytest.param(torch.from_numpy(X), torch.from_numpy(LABELS), id="tensors"),
        pytest.param(list(X), LABELS.tolist(), id="lists"),
        pytest.param(X, pd.Series(LABELS).map({0: "a", 1: "b", 2: "c"}), id="words of pandas"),
    ],
)
def test_data_in_memory_is_a_task(x, y, tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path))
    own = task(ob.Data(x, y, name="mine").task_word())
    assert own.settings.file_name == "mine.npz"
    assert np.allclose(own.inputs.numpy() * own.scale + own.mean, X.reshape(-1, M), atol=1e-5)
    assert np.array_equal(own.labels, LABELS)


def test_sequences_of_different_lengths_in_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path))
    sequences = [row[:length] for row, length in zip(X, LENGTHS, strict=True)]
    own = task(ob.Data(sequences, LABELS).task_word(), standardise=False)
    assert np.array_equal(own.sequences.lengths, LENGTHS)
    assert np.array_equal(own.inputs, np.concatenate(sequences))
    frame = pd.DataFrame({"id": np.arange(N).repeat(LENGTHS), "a": np.concatenate(sequences)[:, 0]})
    frame["y"] = LABELS.repeat(LENGTHS)
    other = task(ob.Data(frame).task_word(), standardise=False)
    assert np.array_equal(other.inputs[:, 0], own.inputs[:, 0])
    assert np.array_equal(other.labels, LABELS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": X, "y": LABELS, "kind": "class"}, "unknown kind"),
        ({"x": X, "name": "../d"}, "name='../d'"),
        ({"x": np.array([object()])}, "Python objects"),
        ({"x": [X[0], X[1, :3, :2]]}, "x: its sequences have shapes"),
        ({"x": X, "y": LABELS[:5]}, "the shapes do not fit: x is [40, 7, 3], y [5]: "),
        ({"x": X, "y": LABELS, "lengths": np.zeros(N, int)}, "lengths[0]=0 is not a whole number from 1 to the 7"),
        ({"x": X, "y": LABELS, "split": ["train"] * N}, "split has no sequence for test"),
        ({"x": np.full_like(X, np.nan), "y": LABELS}, "x is NaN at sequence 0, step 0, feature 0"),
        ({"x": X, "kind": "regression"}, "it has no targets y, which regression needs"),
    ],
)
def test_bad_data_in_memory_is_refused(arguments, message):
    with pytest.raises(UsageError) as error:
        ob.Data(**arguments)
    assert message in str(error.value)


def test_arrays_that_only_a_setting_makes_fit_are_accepted(tmp_path, monkeypatch):
    """Both axes of this array may be time, and its padding is where the lengths say with time first alone."""
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path))
    lengths = 1 + np.arange(N) * 7 % N
    x = np.where(np.arange(N)[:, None] < lengths, np.arange(N), np.nan)[..., None]
    data = ob.Data(x, LABELS, lengths=lengths)
    with pytest.raises(UsageError, match="x is NaN"):
        task(data.task_word())
    assert len(task(data.task_word(), layout="time_first").inputs) == lengths.sum()


def test_the_example_of_the_documents_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    guide = (Path(__file__).parents[2] / "docs" / "own-data.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.S)
    names: dict[str, object] = {}
    exec(code, names)
    assert names["run"].status == "finished"
    assert names["run"].task == "classification:shifts.npz"


def test_trained_model_reads_the_lengths_of_its_sequences(tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path / "data"))
    db, padded = tmp_path / "r.db", np.where(np.arange(T)[:, None] < LENGTHS[:, None, None], X, np.nan)
    run = ob.run(ob.Data(padded, LABELS, lengths=LENGTHS), "gru", db=db, epochs=2, hidden_size=4)
    trained = ob.load_model(run, db)
    batch = trained.task.test.batch(torch.arange(len(trained.task.test)))
    outputs = trained(batch)
    accuracy = (outputs.argmax(-1) == batch.targets).double().mean().item()
    assert accuracy == pytest.approx(run.best_value)
    assert torch.equal(trained(batch.inputs, lengths=batch.lengths), outputs)
    for number, length in enumerate(batch.lengths.tolist()):
        alone = trained(batch.inputs[:length, number : number + 1])
        torch.testing.assert_close(alone, outputs[number : number + 1])
    with pytest.raises(UsageError, match="have several lengths, and padding would count as steps: give the whole"):
        trained(batch.inputs)


def test_runs_sweeps_and_evaluations_of_own_data(tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path / "data"))
    db, quick = tmp_path / "r.db", {"epochs": 2, "hidden_size": 4}
    data = ob.Data(X, LABELS, name="mine")
    run = ob.run(data, "rnn", db=db, display=None, **quick)
    assert (run.task, run.status, run.metric) == ("classification:mine.npz", "finished", "accuracy")
    assert run.spec["task_settings"]["data_md5"]
    swept = ob.sweep(data.task_word(), "rnn", seeds=2, db=db, jobs=2, display=None, settings=quick)
    assert [each.status for each in swept.runs] == ["finished"] * 2
    assert swept.runs[0].key == run.key
    with ob.open_results(db) as results:
        assert len(results.runs(where=["task=array:mine.npz"])) == 2
    measured = ob.evaluate(run, db=db)
    stored = {(each.split, each.name): each for each in measured.metrics}["test", "accuracy"]
    assert stored.value == stored.stored
