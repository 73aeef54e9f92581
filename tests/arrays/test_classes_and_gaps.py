"""What own data is measured by when classes are rare, and what becomes of missing values."""

from __future__ import annotations

import math
import sqlite3

import numpy as np
import pytest
import torch

import orthobench as ob
from orthobench.arrays.named import find_data
from orthobench.errors import UsageError
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.testing import problems

RANDOM = np.random.RandomState(0)
X = RANDOM.normal(size=(40, 6, 3)).astype(np.float32)
RARE = np.array([0] * 28 + [1] * 8 + [2] * 4)
GAPS = RANDOM.uniform(size=X.shape) < 0.2
GAPS[..., 1] = False


def task(folder, arrays, kind="array", **settings):
    np.savez(folder / "d.npz", **arrays)
    cls = find_data(f"{kind}:{folder / 'd.npz'}").load()
    return cls(cls.Settings.read(settings), 0, torch.device("cpu"))


def by_definition(true, predicted):
    """Return balanced accuracy and macro F1, class by class."""
    recalls, f1s = [], []
    for label in sorted({*true, *predicted}):
        pairs = list(zip(true, predicted, strict=True))
        hits = sum(t == p == label for t, p in pairs)
        if label in true:
            recalls.append(hits / sum(t == label for t, _ in pairs))
        misses = sum((t == label) != (p == label) for t, p in pairs)
        f1s.append(2 * hits / (2 * hits + misses))
    return {"balanced_accuracy": np.mean(recalls), "macro_f1": np.mean(f1s)}


def split_values(own, split, outputs, size):
    """Return the metrics over a split in batches of this size, as an evaluation sums them."""
    sums = {}
    for rows in torch.arange(len(split)).split(size):
        batch = split.batch(rows)
        steps = outputs[: len(batch.targets)] if batch.targets.dim() == 2 else outputs
        for name, (total, weight) in own.measure(steps[..., rows, :], batch.targets).items():
            before = sums.get(name, (0, 0))
            sums[name] = before[0] + total.double(), before[1] + weight
    return own.summarise({name: total / weight for name, (total, weight) in sums.items()})


@pytest.mark.parametrize("size", [3, 40])
@pytest.mark.parametrize("by_step", [False, True])
def test_balanced_accuracy_and_macro_f1_follow_their_definitions(by_step, size, tmp_path):
    y = (RARE[:, None] + np.arange(6)) % 3 if by_step else RARE
    lengths = {"lengths": 1 + np.arange(40) % 6} if by_step else {}
    own = task(tmp_path, {"x": X, "y": y, **lengths}, test_share=0.5, validation_share=0)
    batch = own.test.batch(torch.arange(len(own.test)))
    outputs = torch.from_numpy(RANDOM.normal(size=(*batch.targets.shape, 3)).astype(np.float32))
    outputs[..., 1] -= 10  # no example is taken for class 1
    valid = batch.targets >= 0
    true, predicted = batch.targets[valid].tolist(), outputs.argmax(-1)[valid].tolist()
    found = split_values(own, own.test, outputs, size)
    assert {name: found[name] for name in ("balanced_accuracy", "macro_f1")} == pytest.approx(
        by_definition(true, predicted)
    )
    assert "confusion" not in found
    baselines = own.baselines(own.settings)
    trained = own.train.batch(torch.arange(len(own.train))).targets
    most = int(torch.bincount(trained[trained >= 0]).argmax())
    assert {name: baselines[name] for name in ("balanced_accuracy", "macro_f1")} == pytest.approx(
        by_definition(true, [most] * len(true))
    )


def test_balanced_weights_make_all_classes_count_alike(tmp_path):
    own = task(tmp_path, {"x": X, "y": RARE}, class_weights="balanced")
    batch = own.train.batch(torch.arange(len(own.train)))
    outputs = torch.from_numpy(RANDOM.normal(size=(len(own.train), 3)).astype(np.float32))
    nats = -outputs.log_softmax(-1)[torch.arange(len(outputs)), batch.targets]
    expected = np.mean([nats[batch.targets == label].mean().item() for label in range(3)])
    assert own.loss(outputs, batch.targets).item() == pytest.approx(expected, rel=1e-5)
    plain = task(tmp_path, {"x": X, "y": RARE})
    assert plain.loss(outputs, batch.targets).item() == pytest.approx(nats.mean().item(), rel=1e-5)
    with pytest.raises(UsageError, match="class_weights"):
        task(tmp_path, {"x": X, "y": RARE}, class_weights="other")


def test_settings_without_effect_do_not_change_the_key(tmp_path):
    np.savez(tmp_path / "d.npz", x=X, y=RARE)
    specs = [
        resolve(Catalog(), f"array:{tmp_path / 'd.npz'}", "rnn", more).spec
        for more in (
            {},
            {"class_weights": "none", "missing": "refuse", "target": "none"},
            {"class_weights": "balanced"},
        )
    ]
    assert specs[0].key == specs[1].key != specs[2].key
    assert specs[0].task_version == "1"
    assert not {"target", "sequence", "time", "missing", "class_weights"} & specs[0].task_settings.keys()
    with pytest.raises(UsageError, match="target=a: only tables have columns with names: leave it out"):
        resolve(Catalog(), f"array:{tmp_path / 'd.npz'}", "rnn", {"target": "a"})


def test_a_run_logs_the_confusion_matrix_of_the_test_data(tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path / "data"))
    db = tmp_path / "r.db"
    run = ob.run(ob.Data(X, RARE), "gru", db=db, epochs=2, hidden_size=4, display=None)
    with ob.open_results(db) as results:
        logged = results.vectors(run, "confusion")
    trained = ob.load_model(run, db)
    batch = trained.task.test.batch(torch.arange(len(trained.task.test)))
    expected = np.zeros((3, 3))
    for true, predicted in zip(batch.targets.tolist(), trained(batch).argmax(-1).tolist(), strict=True):
        expected[true, predicted] += 1
    assert logged.loc[run.best_iteration].to_numpy().reshape(3, 3).tolist() == expected.tolist()
    assert expected.sum() == 8
    with sqlite3.connect(db) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM metrics_flat WHERE split = 'test'")}
    assert names == {"accuracy", "cross_entropy", "balanced_accuracy", "macro_f1"}


@pytest.mark.parametrize("kind", ["classification", "regression", "forecast"])
def test_masked_data_meets_the_contract_of_tasks(kind, tmp_path):
    y = {"classification": RARE % 2, "regression": RARE + 0.5, "forecast": RARE}[kind]
    np.savez(tmp_path / "d.npz", x=np.where(GAPS, np.nan, X), y=y)
    own = find_data(f"{kind}:{tmp_path / 'd.npz'}").load()
    quick = {"validation_share": 0.3, "test_share": 0.3, "missing": "mask"}
    assert problems("task", type("Own", (own,), {"quick": quick})) == []


def test_masked_values_are_zero_after_scaling_and_marked(tmp_path):
    own = task(tmp_path, {"x": np.where(GAPS, np.nan, X), "y": RARE}, missing="mask")
    assert own.signature.input_size == 5  # three features, of which two have gaps
    rows = own.train.numbers.numpy()
    known = [X[rows][..., feature][~GAPS[rows][..., feature]].astype(np.float64) for feature in range(3)]
    inputs = own.test.batch(torch.arange(len(own.test))).inputs.numpy()
    for column, number in enumerate(own.test.numbers.tolist()):
        for feature in range(3):
            scaled = (X[number, :, feature] - known[feature].mean()) / known[feature].std()
            expected = np.where(GAPS[number, :, feature], 0, scaled)
            assert np.allclose(inputs[:, column, feature], expected, atol=1e-5)
        assert np.array_equal(inputs[:, column, 3:], GAPS[number][:, [0, 2]])


def test_a_forecast_is_not_asked_for_missing_values(tmp_path):
    x = np.where(GAPS, np.nan, X)
    own = task(tmp_path, {"x": x}, missing="mask", horizon=2)
    assert (own.signature.input_size, own.signature.output_size) == (5, 3)
    batch = own.test.batch(torch.arange(len(own.test)))
    truth = x[own.test.numbers.numpy()].swapaxes(0, 1)[2:]
    assert np.array_equal(batch.targets.isfinite().numpy(), ~np.isnan(truth))
    total, weight = own.measure(torch.zeros(batch.targets.shape), batch.targets)["mse"]
    mean = own.target_mean.numpy()
    assert total.item() / weight == pytest.approx(np.nanmean(np.square(truth - mean)), rel=1e-5)
    outputs = torch.zeros(batch.targets.shape, requires_grad=True)
    own.loss(outputs, batch.targets).backward()
    assert outputs.grad.isfinite().all()
    assert np.array_equal(outputs.grad.numpy() == 0, np.isnan(truth))


def test_baselines_of_masked_forecasts_know_only_what_is_there(tmp_path):
    x = np.where(GAPS, np.nan, X)
    own = task(tmp_path, {"x": x}, missing="mask")
    trained, tested = (x[split.numbers.numpy()][:, 1:].astype(np.float64) for split in (own.train, own.test))
    mean = np.nanmean(trained, (0, 1))
    baselines = own.baselines(own.settings)
    assert baselines["nmse"] == pytest.approx(
        np.nanmean(np.square(tested - mean)) / np.nanvar(trained, (0, 1)).mean(), rel=1e-5
    )
    assert baselines["mse"] <= np.nanmean(np.square(tested - mean)) * (1 + 1e-6)
    design = {
        name: np.column_stack([split.batch(torch.arange(len(split))).inputs.swapaxes(0, 1).reshape(-1, 5), np.ones(n)])
        for name, split, n in (("train", own.train, len(own.train) * 5), ("test", own.test, len(own.test) * 5))
    }
    errors = []
    for feature in range(3):
        asked, expected = trained[..., feature].reshape(-1), tested[..., feature].reshape(-1)
        known = ~np.isnan(asked)
        fitted = np.linalg.lstsq(design["train"][known], asked[known], rcond=None)[0]
        errors.append(np.square(design["test"] @ fitted - expected))
    linear = np.nanmean(errors)
    assert baselines["mse"] == pytest.approx(min(linear, np.nanmean(np.square(tested - mean))), rel=1e-4)
    assert all(map(math.isfinite, baselines.values()))


def test_carried_values_come_from_the_step_before(tmp_path):
    x = X[..., :1].copy()
    x[3, 2:4] = np.nan
    own = task(tmp_path, {"x": x, "y": RARE}, missing="forward", standardise=False)
    assert own.signature.input_size == 1
    assert np.array_equal(own.inputs.reshape(40, 6)[3].numpy(), x[3, [0, 1, 1, 1, 4, 5], 0])
    with pytest.raises(UsageError, match="x is NaN at sequence 3, step 2, feature 0, 2 values in all: fill or remove"):
        task(tmp_path, {"x": x, "y": RARE})
    x[3, 0] = np.nan
    with pytest.raises(UsageError, match="x is NaN at sequence 3, step 0, feature 0, 1 value in all: no earlier step"):
        task(tmp_path, {"x": x, "y": RARE}, missing="forward")


def test_missing_values_in_memory_wait_for_the_setting(tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOBENCH_DATA", str(tmp_path))
    data = ob.Data(np.where(GAPS, np.nan, X), RARE)
    with pytest.raises(UsageError, match="set missing=mask or missing=forward"):
        resolve(Catalog(), data.task_word(), "rnn", {})
    assert resolve(Catalog(), data.task_word(), "rnn", {"missing": "mask"}).spec.task_settings["missing"] == "mask"


def test_the_command_names_features_and_roles(tmp_path, orthobench, caplog):
    rows = [
        f"{n:02},{t},{X[n, t, 0]},{'' if GAPS[n, t, 0] else X[n, t, 1]},{'abc'[RARE[n]]}"
        for n in range(40)
        for t in range(6)
    ]
    (tmp_path / "d.csv").write_text("who,when,load,temp,class\n" + "\n".join(rows))
    roles = ("-s", "target=class", "-s", "sequence=who", "-s", "time=when")
    quick = ("-s", "epochs=1", "-s", "hidden_size=4")
    refused = orthobench("run", "array:d.csv", "gru", *quick, *roles)
    assert refused.code == 2
    assert "column temp has no value in row" in refused.err
    done = orthobench("run", "array:d.csv", "gru", *quick, *roles, "-s", "missing=mask")
    assert done.code == 0, done.err
    assert "features: load, temp; target: class, 3 classes: 28, 8, 4 (a, b, c)" in caplog.text
