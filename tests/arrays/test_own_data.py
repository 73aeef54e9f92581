"""The user's own arrays, tables and recordings: what is read, refused, divided, and learnt."""

from __future__ import annotations

import pickle
import re
import wave
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import orthobench as ob
from orthobench.arrays.arrange import checked
from orthobench.arrays.named import find_data
from orthobench.arrays.own_files import read_own_data
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
    cls = find_data(str(word), settings).load()
    return cls(cls.Settings.read(settings), seed, torch.device("cpu"))


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_data_meets_the_contract_of_tasks(name, tmp_path):
    own = find_data(save(tmp_path, name, **KINDS[name])).load()
    large = {"window": 10} if name == "series" else {"validation_share": 0.3, "test_share": 0.3}
    assert problems("task", type("Own", (own,), {"quick": large})) == []  # five examples in each part


def test_time_first_is_refused_with_the_fix(tmp_path):
    turned = save(tmp_path, "b", x=X.swapaxes(0, 1), y=STEP_LABELS.T, lengths=LENGTHS)
    with pytest.raises(UsageError, match=r"the shapes do not fit: x is \[7, 40, 3\].*; x\.swapaxes\(0, 1\) exchanges"):
        task(turned)


def test_targets_of_as_many_parts_as_steps_are_of_the_steps_unless_a_setting_says_otherwise(tmp_path):
    word = save(tmp_path, "d", x=X, y=X[..., 0])
    found = [task(word, **given).sequences for given in ({}, {"targets": "sequence"})]
    assert [each.by_step for each in found] == [True, False]
    assert [each.targets.shape for each in found] == [(N * T, 1), (N, T)]


def test_targets_that_the_data_lacks_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path / "data"))
    pd.DataFrame({"sequence": np.arange(N).repeat(2), "a": np.arange(2.0 * N), "y": np.arange(2 * N) % 3}).to_csv(
        tmp_path / "d.csv", index=False
    )
    arrays = save(tmp_path, "d", x=X, y=LABELS)
    for word, targets in ((arrays, "step"), (f"array:{tmp_path / 'd.csv'}", "sequence")):
        with pytest.raises(UsageError, match=f"targets={targets} does not fit the data: leave it out"):
            task(word, targets=targets)
    with pytest.raises(UsageError, match="targets=step does not fit the data"):
        task(ob.Data(X, LABELS).task_word(), targets="step")


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
    words = np.array(["train"] * 20 + ["test"] * 15 + ["validation"] * 5)
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


def test_csv_parquet_and_arrays_give_the_same_sequences(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(X.reshape(-1, M), columns=list("abc"))
    frame.insert(0, "sequence", np.arange(N).repeat(T))
    frame["y"] = LABELS.repeat(T)
    frame.to_csv(tmp_path / "d.csv", index=False)
    frame.to_parquet(tmp_path / "d.parquet")
    np.savez(tmp_path / "d.npz", x=X, y=LABELS)
    found = [checked(read_own_data(tmp_path / f"d.{end}"), "classification") for end in ("npz", "csv", "parquet")]
    for each in found:
        assert np.allclose(each.steps, found[0].steps, atol=1e-6)
        assert np.array_equal(each.targets, LABELS)
        assert np.array_equal(each.lengths, np.full(N, T))


def test_a_folder_without_recordings_is_refused(tmp_path):
    (tmp_path / "mails" / "ham").mkdir(parents=True)
    (tmp_path / "mails" / "ham" / "1.txt").write_text("text")
    with pytest.raises(UsageError, match=r"the folder has neither \.wav nor \.flac files"):
        task(f"array:{tmp_path / 'mails'}")
    (tmp_path / "mails" / "1.wav").write_bytes(b"")
    with pytest.raises(UsageError, match=r"1\.wav is in no subfolder, which would be its label"):
        task(f"array:{tmp_path / 'mails'}")


@pytest.mark.parametrize("strange", ["val/cat", "test"])
def test_recordings_beside_the_parts_of_a_folder_are_refused(strange, tmp_path):
    for name in ("train/cat", "train/dog", strange):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / name / "1.wav").write_bytes(b"")
    with pytest.raises(UsageError, match=f"{strange}/1.wav is in no label of train, validation or test, as others are"):
        task(f"array:{tmp_path}")


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
    "shapes": ({"x": X, "y": LABELS[:5]}, "the shapes do not fit: x is [40, 7, 3], y is [5]"),
    "one-hot": ({"x": X, "y": np.eye(4, dtype=int)[np.arange(40) % 4]}, "; y.argmax(-1) makes classes of one-hot rows"),
    "one-hot steps": ({"x": X, "y": np.eye(4, dtype=int)[np.zeros((N, T), int)]}, "; y.argmax(-1) makes classes"),
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
    "steps": ({"steps": X}, "it has steps: name the array of sequences x"),
    "unknown": ({"x": X, "yy": LABELS}, "did you mean y"),
    "split": ({"x": X, "y": LABELS, "split": np.array(["train"] * N)}, "no sequence for test"),
    "part": ({"x": X, "y": LABELS, "split": np.array(["val"] * N)}, "split has 'val': write train, validation or test"),
    "equal": ({"x": X, "y": np.full(N, 0.5)}, "nothing to learn"),
    "few": ({"x": X[:2], "y": LABELS[:2]}, "leave none for training"),
    "short": ({"x": SERIES[:8]}, "leave no window of 2 steps and horizon=1 in each part: give more steps"),
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


def test_labels_of_steps_are_not_called_one_hot(tmp_path):
    """Although they are ones and zeros; here the lengths are what does not fit."""
    with pytest.raises(UsageError) as error:
        task(save(tmp_path, "d", x=X, y=np.tile(LABELS[:, None] % 2, T), lengths=np.full(5, T)))
    assert "argmax" not in str(error.value)


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


@pytest.mark.parametrize("name", ["d.npz", "d.csv", "d.parquet"])
def test_a_pickle_is_refused_and_not_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    np.savez(tmp_path / "o.npz", x=np.array([Bomb()], object))
    for word in (f"array:{name}", "array:o.npz"):
        with pytest.raises(UsageError):
            find_data(word)
    assert not (tmp_path / "ran").exists()


def test_an_announced_size_beyond_memory_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive, archive.open("x.npy", "w") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (10**13, 3)})
    with pytest.raises(UsageError, match=r"this machine|damaged"):
        find_data(f"array:{tmp_path / 'd.npz'}")


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
    changed = spec(save(second, "d", x=X + 1, y=LABELS))
    assert changed.key != one.key
    assert changed.condition != one.condition


def test_small_data_has_small_batches(tmp_path):
    assert spec(save(tmp_path, "d", x=X[:9], y=LABELS[:9])).training["batch_size"] == 2


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
    assert np.array_equal(own.answers, LABELS)


def test_sequences_of_different_lengths_in_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path))
    sequences = [row[:length] for row, length in zip(X, LENGTHS, strict=True)]
    own = task(ob.Data(sequences, LABELS).task_word(), standardise=False)
    assert np.array_equal(own.sequences.lengths, LENGTHS)
    assert np.array_equal(own.inputs, np.concatenate(sequences))
    frame = pd.DataFrame({"sequence": np.arange(N).repeat(LENGTHS), "a": np.concatenate(sequences)[:, 0]})
    frame["y"] = LABELS.repeat(LENGTHS)
    other = task(ob.Data(frame).task_word(), standardise=False)
    assert np.array_equal(other.inputs[:, 0], own.inputs[:, 0])
    assert np.array_equal(other.answers, LABELS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": X, "y": LABELS, "kind": "class"}, "unknown kind"),
        ({"x": X, "name": "../d"}, "name='../d'"),
        ({"x": np.array([object()])}, "Python objects"),
        ({"x": [X[0], X[1, :3, :2]]}, "x is a list that is not an array (all the input array dimensions"),
        ({"x": [[[1.0, 2.0], [3.0]], [[4.0, 5.0], [6.0, 7.0]]]}, "x is a list that is not an array"),
        ({"x": X[:2, :2], "y": [[1, 2], [3]]}, "y is a list that is not an array"),
        ({"x": X, "y": LABELS[:5]}, "the shapes do not fit: x is [40, 7, 3], y is [5]: "),
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


def test_a_table_in_memory_keeps_its_names_and_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path))
    frame = pd.DataFrame({"sequence": np.arange(N).repeat(T), "load": X[..., 0].ravel(), "temp": X[..., 1].ravel()})
    frame["class"] = np.array(list("abc"))[LABELS].repeat(T)
    own = task(ob.Data(frame, target="class").task_word())
    told = own.remark(own.settings)
    assert "7 steps with 2 features; features: load, temp; target: class, 3 classes: 14, 13, 13 (a, b, c)" in told
    frame.loc[9, "temp"] = np.nan
    with pytest.raises(UsageError, match="column temp has no value in row 10, 1 value in all"):
        task(ob.Data(frame, target="class").task_word())


def test_the_example_of_the_documents_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    guide = (Path(__file__).parents[2] / "docs" / "data.md").read_text("utf-8")
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
