"""Arguments of the Python API: a wrong value gets one line with the fix, before anything is stored."""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
import torch

import orthobench as ob
from orthobench.api.results import Results
from orthobench.api.runs import SWEEP_ARGUMENTS
from orthobench.errors import UsageError
from orthobench.options.arguments import (
    A_COUNT,
    A_FOLDER,
    A_LIMIT,
    A_PLACE,
    A_POSITIVE,
    A_TRUTH,
    SOME_FILES,
    SOME_PLACES,
    SOME_SECONDS,
    SOME_TEXTS,
    ArgumentKind,
)
from orthobench.options.checked import ARGUMENTS
from orthobench.options.run_options import OPTIONS
from orthobench.spec.index import index
from orthobench.store import open_store

TINY = {"sequence_length": 10, "hidden_size": 4, "train_size": 40, "test_size": 20, "epochs": 1, "batch_size": 10}
SEEDS_WRONG = [1.5, True, -1, "12", "3", 2**32, None, float("nan"), float("inf"), [1], np.float64(0.5), np.bool_(True)]
WRONG: dict[str, list[Any]] = {
    "task": [3, "", ["adding"]],
    "model": [3, "", ["rnn"]],
    "models": [3, [3], {"rnn": 1}],
    "seed": SEEDS_WRONG,
    "first_seed": [wrong for wrong in SEEDS_WRONG if wrong is not None],
    "seeds": [0, -1, 1.5, True, "12", "3", [0.5], [True], ["3"], [-1], [2**32], {0: 1}, np.array([0.5])],
    "preset": ["quik", "", 3],
    "db": [3, b"r.db"],
    "history": [3, b"r.db"],
    "databases": [3, [3]],
    "settings": ["hidden_size=4", 3, [("hidden_size", 4)]],
    "grid": ["hidden_size=4", 3, ["hidden_size"], {"hidden_size": 4}, {"hidden_size": {4: 1}}],
    "match_parameters": [-1, 1.5, True, ["15k"]],
    "paper": [3, "", ["helfrich2018"]],
    "table": [1.5, True, ["1"]],
    "figure": [1.5, True, ["1"]],
    "name": [3, "", ["orthogonality"]],
    "to": [3, "", ["mlflow"]],
    "split": ["tset", "", 3],
    "scale": ["1", True, float("nan")],
    "older_than": ["1", -1, float("nan")],
    "port": [-1, 2**16, "8765", True],
    "display": [3, "none", ob.Display],
    "value": ["ned", "", 3],
    "form": ["xml", "", 3],
    **{name: [3, [3]] for name in ("where", "only", "names", "selections", "columns", "kinds")},
    **{name: [0, -1, 1.5, "10", True] for name in ("trials", "tune", "match_state", "steps", "batch")},
    **{
        name: [3, "", ["a"]]
        for name in ("baseline", "path", "file", "out", "commentary", "folder", "weights_at", "hub")
    },
    "files": [3, "text=corpus.txt", ["text"]],
    "labels": [3, "rnn=Ours", ["rnn"]],
    "jobs": [-1, 1.5, "2", True],
    "options": [{"device": "cpu"}, "cpu"],
    "plugins": [3, [3], [""], {"a": 1}],
    "device": ["gpu", "cuda:0", "cuda:1", "cpuu", 0],
    "backend": ["gpu", "", 3],
    "weights": ["bst", "state", "", 3],
    "data_folder": [3, ""],
    **{name: ["no", 1, 0] for name in ("force", "extend", "dry_run", "prune", "db_only", "for_update")},
    **{name: ["no", 1, 0] for name in ("fail_on_speed", "retest", "paired", "bold_best", "all_versions")},
}
"""Wrong values by the argument's name. None is right where it is the default."""
WRONG_OF_KIND: dict[ArgumentKind, list[Any]] = {
    A_COUNT: [0, 1.5, "2", True],
    A_LIMIT: WRONG["jobs"],
    A_POSITIVE: [0, -1, "60", True],
    A_TRUTH: ["no", 1, 0],
    SOME_SECONDS: [-1, "30", float("nan"), float("inf"), True],
    SOME_PLACES: [3, [3]],
    SOME_TEXTS: [3, [3]],
    SOME_FILES: WRONG["plugins"],
    A_FOLDER: [3, ""],
    A_PLACE: [3, ""],
}
OPTIONS_WRONG: dict[str, list[Any]] = {
    **{
        name: WRONG_OF_KIND.get(option.kind, []) if option.kind else [f"{get_args(words)[0]}_", "", 3, True]
        for name, (words, option) in OPTIONS.items()
    },
    "device": WRONG["device"],
    "backend": WRONG["backend"],
    "on_divergence": ["stopp", "", None],
    "executor": ["", 3, "locl"],
    "tags": [3, [3], "a,b", ["", "a"], "x" * 65, "a\nb"],
}
"""Wrong values by the option's name; those of a kind that several options have come from the kind."""


def database(folder: Path) -> Path:
    """Write an empty database."""
    with open_store(folder / "empty.db", create=True):
        return folder / "empty.db"


def _needs(call: Any, name: str) -> bool:
    """Return whether an argument cannot be None."""
    return inspect.signature(call).parameters[name].default is not None


FUNCTIONS = {name: getattr(ob, name) for name in vars(ob)["__all__"] if inspect.isfunction(getattr(ob, name))}
METHODS = {
    name: method for name, method in vars(Results).items() if inspect.isfunction(method) and not name.startswith("_")
}
OWN_KINDS = {
    "results",
    "run",
    "runs",
    "chosen",
    "metric",
    "x",
    "against",
    "of",
    "status",
    "tag",
    "conditions",
    "overrides",
}
"""Arguments whose kind is not the same in all functions, or that may be of any type."""
CASES = [
    (function, name, value)
    for function, call in FUNCTIONS.items()
    for name in inspect.signature(call).parameters
    for value in WRONG.get(name, ())
    if (function, name) != ("reproduce", "where")
    and (value is not None or _needs(call, name))
    and ((function, name) != ("compare_tuned", "task") or not isinstance(value, list))  # it takes several tasks
]
OTHERS = [
    ("run", "curve", {"run": 3, "name": "loss"}),
    ("run", "by_length", {"run": None}),
    ("run", "vectors", {"run": Path("r"), "name": "gradient_norm"}),
    ("runs", "metrics", {"runs": 3}),
    ("runs", "metrics", {"runs": [3]}),
    ("runs", "metrics", {"runs": pd.DataFrame({"key": ["abc"]})}),
    ("runs", "export", {"runs": 3, "to": "tensorboard"}),
    ("runs", "delete", {"runs": 3}),
    ("name", "table", {"paper": "helfrich2018", "name": 1.5}),
    ("name", "curve", {"run": "abc", "name": 3}),
    ("split", "curve", {"run": "abc", "name": "loss", "split": "tset"}),
    ("split", "metrics", {"split": "tset"}),
    ("split", "plot_curves", {"split": "probe"}),
    ("x", "plot_curves", {"x": "step"}),
    ("against", "plot_ends", {"against": "time"}),
    ("of", "plot_orthogonality", {"of": "gates"}),
    ("kinds", "weights", {"kinds": 3}),
    ("older_than", "weights", {"older_than": "week"}),
    ("to", "export", {"to": 3}),
    ("weights_at", "delete", {"runs": "abc", "weights_at": 3}),
    ("weights_at", "drop_weights", {"chosen": [], "weights_at": ""}),
]
"""Wrong arguments of the methods of `Results`."""
REQUIRED = {
    "task": "adding",
    "model": "rnn",
    "models": "rnn",
    "grid": {"hidden_size": [4]},
    "paper": "helfrich2018",
    "name": "orthogonality",
    "results": "r.db",
    "folder": "page",
    "hub": "./runs",
    "databases": ["r.db"],
    "run": "abc",
    "form": "safetensors",
    "path": Path("sweep.toml"),
    "file": "out.safetensors",
}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_every_typed_argument_has_wrong_values_here():
    """A new argument or an option of a new kind needs wrong values here, and a function that takes one is checked."""
    assert ARGUMENTS.keys() == WRONG.keys()
    assert [name for name, values in OPTIONS_WRONG.items() if not values] == []
    tried = {name for _, name, _ in CASES} | {name for name, _, _ in OTHERS}
    assert tried == WRONG.keys() | {"run", "runs", "x", "against", "of"}
    taken = {name for call in (*FUNCTIONS.values(), *METHODS.values()) for name in inspect.signature(call).parameters}
    assert taken - {"self"} == ARGUMENTS.keys() | OWN_KINDS


@pytest.mark.parametrize(("name", "method", "arguments"), OTHERS, ids=repr)
def test_wrong_argument_of_a_method_is_one_line_with_the_fix(tmp_path, name, method, arguments):
    with ob.open_results(database(tmp_path)) as results, pytest.raises(ob.UsageError) as caught:
        getattr(results, method)(**arguments)
    assert str(caught.value).startswith((f"`{name}=", f"unknown {name} ")), caught.value


@pytest.mark.parametrize("call", [ob.load_model, ob.evaluate, partial(ob.export, file="m.onnx", form="onnx")])
def test_a_number_is_no_run(call):
    with pytest.raises(ob.UsageError, match=r"^`run=3`: give the record of a run, or its key"):
        call(3)


def test_value_with_many_lines_is_told_in_one(tmp_path):
    with ob.open_results(database(tmp_path)) as results, pytest.raises(ob.UsageError) as caught:
        results.curve(pd.Series({"run": "a1", "task": "adding"}), "mse")
    assert str(caught.value).startswith("`run=run a1 task adding")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("call", [ob.report, ob.compare])
def test_a_number_is_no_database(call):
    with pytest.raises(ob.UsageError, match=r"^`results=3`: give open results, or a database$"):
        call(3)


@pytest.mark.parametrize(("function", "name", "value"), CASES, ids=repr)
def test_wrong_argument_is_one_line_with_the_fix(tmp_path, function, name, value):
    parameters = inspect.signature(FUNCTIONS[function]).parameters
    arguments = {
        each: REQUIRED[each]
        for each, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }
    is_listed = parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
    words, named = ((*arguments.values(), value), {}) if is_listed else ((), arguments | {name: value})
    with pytest.raises(ob.UsageError) as caught:
        FUNCTIONS[function](*words, **named)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith((f"`{name}=", f"unknown {name} ")), line
    assert any(word in line for word in (": give ", ": did you mean ", ": known: ")), line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in OPTIONS_WRONG.items() for value in values], ids=repr
)
def test_wrong_option_is_one_line_with_the_fix(name, value):
    with pytest.raises(ob.UsageError) as caught:
        ob.SweepOptions(**{name: value})
    line = str(caught.value)
    assert "\n" not in line
    assert name in line or name.replace("_", "-") in line, line


def test_nearest_choice_is_suggested():
    with pytest.raises(ob.UsageError, match=r"^unknown preset 'quik': did you mean quick\?$"):
        ob.run("adding", "rnn", preset="quik")  # type: ignore[arg-type]
    with pytest.raises(ob.UsageError, match=r"^unknown on_divergence 'stopp': did you mean stop\?$"):
        ob.RunOptions(on_divergence="stopp")  # type: ignore[arg-type]
    for call in (ob.load_model, ob.evaluate, partial(ob.export, file="m.onnx", form="onnx")):
        with pytest.raises(ob.UsageError, match=r"^unknown weights 'bst': did you mean best\?$"):
            call("abc", weights="bst")
    with pytest.raises(ob.UsageError, match=r"give `device='cuda'`, and choose the GPU by .*CUDA_VISIBLE_DEVICES=1$"):
        ob.RunOptions(device="cuda:1")  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [1, 1.0, np.int64(1), np.uint8(1), np.float64(1.0), np.array([1])[0]], ids=repr)
def test_integer_of_any_type_is_a_valid_seed(seed, tmp_path):
    trained = ob.sweep("adding", "rnn", db=tmp_path / "r.db", seeds=[seed], settings=TINY, jobs=0)
    assert trained.plan.runs[0].config.spec.seed == 1


def test_numpy_seeds_equal_python_seeds(tmp_path):
    """The database is a path; the seeds come from numpy and pandas."""
    db = tmp_path / "r.db"
    first = ob.run("adding", "rnn", db=db, seed=np.int64(2), settings=TINY)
    column = pd.DataFrame({"seed": [2.0, None]}).dropna()["seed"]
    again = ob.sweep("adding", "rnn", db=db, seeds=column, settings=TINY, jobs=0)
    assert [run.key for run in again.runs] == [first.key]
    assert type(first.spec["seed"]) is int
    with ob.open_results(db) as results:
        assert list(results.runs("seed=2").seed) == [2]
        assert list(results.runs(seed=[2, 3]).seed) == [2]


def test_single_string_counts_as_a_list_of_one(tmp_path):
    options = ob.RunOptions(tags="abc", plugins="x.py", log_to=())  # type: ignore[arg-type]
    assert (options.tags, options.plugins) == (("abc",), (Path("x.py"),))
    assert ob.RunOptions(tags=["b", "a", "b"]).tags == ("b", "a")  # type: ignore[arg-type]
    with pytest.raises(ob.UsageError, match=r"x\.py"):
        ob.run("adding", "rnn", options=options, settings=TINY)


def test_results_methods_accept_conditions():
    """Names of columns are conditions there, and may be lists."""
    parameters = inspect.signature(Results.runs).parameters
    assert {"task", "model", "seed"} < parameters.keys()


class Layer(torch.nn.Module):
    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()


@pytest.mark.parametrize(
    "call",
    [
        lambda layer: ob.run("adding", layer),
        lambda layer: ob.sweep("adding", layer),
        lambda layer: ob.tune("adding", ["rnn", layer], {"n": "4,8"}),
        lambda layer: ob.sweep("adding", "rnn", match_parameters=layer),
    ],
)
def test_instance_of_a_layer_is_told_from_its_class(call):
    with pytest.raises(UsageError, match=r"^Layer\(...\) is an instance: pass the class, Layer, and its arguments as"):
        call(Layer(2, 16))
    with pytest.raises(UsageError, match=r"^Sequential\(...\) is an instance"):
        call(torch.nn.Sequential(Layer(2, 16)))


def test_settings_by_name_equal_those_of_the_dictionary(tmp_path):
    options = {"dry_run": True, "db": tmp_path / "r.db", "options": ob.SweepOptions(profile=False)}
    small = {"hidden_size": 5, "sequence_length": 10}
    keys = [
        [run.key for run in ob.sweep("adding", ["rnn", "gru"], seeds=2, **given, **options).plan.runs]
        for given in (small, {"settings": small}, {"settings": {"hidden_size": 5}, "sequence_length": 10})
    ]
    assert keys[0] == keys[1] == keys[2]
    space = {"learning_rate": "1e-4..1e-3"}
    tuned = [ob.tune("adding", "rnn", space, **given, **options)[0] for given in (small, {"settings": small})]
    searches = [result.tuning.search.key for result in tuned]
    assert searches[0] == searches[1]
    with pytest.raises(UsageError, match="hidden_size is given twice"):
        ob.sweep("adding", "rnn", hidden_size=5, settings={"hidden_size": 4}, **options)
    with pytest.raises(UsageError, match="did you mean hidden_size"):
        ob.sweep("adding", "rnn", hidden_sise=5, **options)


def test_argument_of_another_function_is_explained():
    for name, value in {"seeds": 3, "grid": {"n": [4]}, "dry_run": True}.items():
        with pytest.raises(UsageError, match=f"^`{name}` is an argument of ob.sweep, which trains many runs"):
            ob.run("adding", "rnn", **{name: value})
    with pytest.raises(TypeError, match=r"^doctor\(\) got an unexpected keyword argument 'seeds'$"):
        ob.doctor(seeds=3)


def test_no_setting_has_the_name_of_an_argument_of_sweep():
    descriptions = [*index()["plugins"].values(), {"settings": index()["training"]}]
    names = {setting["name"] for each in descriptions for setting in each.get("settings", ())}
    assert "hidden_size" in names
    assert not names & SWEEP_ARGUMENTS


def test_device_gpu_is_told_its_name():
    with pytest.raises(ob.UsageError, match=r"^`device='gpu'`: give `device='cuda'`$"):
        ob.RunOptions(device="gpu")
