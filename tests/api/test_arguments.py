"""Arguments of the Python API: a wrong value gets one line with the fix, before anything is stored."""

from __future__ import annotations

import inspect
import re
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

import orthobench as ob
from orthobench.api import results as api_results
from orthobench.api.results import Results
from orthobench.api.runs import SWEEP_ARGUMENTS
from orthobench.errors import UsageError
from orthobench.options import arguments
from orthobench.options.arguments import LARGEST_SEED, Number, Seed, Seeds, Texts
from orthobench.options.checked import checked
from orthobench.spec.index import built_in
from orthobench.store import open_store

TINY = {"sequence_length": 10, "hidden_size": 4, "train_size": 40, "test_size": 20, "epochs": 1, "batch_size": 10}


def public(cls: type) -> dict[str, Any]:
    """The methods of a class that users call, by name."""
    return {name: each for name, each in vars(cls).items() if inspect.isfunction(each) and not name.startswith("_")}


FUNCTIONS = {name: getattr(ob, name) for name in vars(ob)["__all__"] if inspect.isfunction(getattr(ob, name))}
METHODS = {f"Results.{name}": method for name, method in public(Results).items()}
RECORDS = {name: getattr(ob, name) for name in ("RunOptions", "SweepOptions")}
STARS = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
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
    "first": "r.db",
    "second": "s.db",
    "run": "abc",
    "runs": "abc",
    "to": "tensorboard",
    "chosen": [],
    "form": "safetensors",
    "path": Path("sweep.toml"),
    "file": "out.safetensors",
}
"""Right values of the arguments without a default."""

NO_NUMBER = st.sampled_from(["12", "", "3", True, False, np.bool_(True), b"1", [1], {0: 1}, None]) | st.text()
NOT_WHOLE = NO_NUMBER | st.floats().filter(lambda number: not number.is_integer()).flatmap(
    lambda number: st.sampled_from([number, np.float64(number)])
)
NO_TEXT = st.sampled_from([3, 1.5, True, b"text", {"text": 1}, ["text"], None, np.int64(3)]) | st.integers()
NO_MAPPING = st.sampled_from([3, "hidden_size=4", ["hidden_size"], [("hidden_size", 4)], {4: 1}, None]) | st.text()
NO_PATH = NO_TEXT | st.sampled_from(["", " "])
NO_LIST_OF_TEXTS = st.sampled_from([3, [3], ["a", None], {"a": 1}, b"a", None, 1.5]) | st.lists(
    st.integers(), min_size=1
)
WRONG: dict[str, st.SearchStrategy[Any]] = {
    "AtLeastZero": NOT_WHOLE | st.integers(max_value=-1),
    "AtLeastZero | Name": st.sampled_from([-1, 1.5, True, ["15k"], "", None]),
    "Count": NOT_WHOLE | st.integers(max_value=0),
    "Seed": NOT_WHOLE | st.integers(max_value=-1) | st.integers(min_value=2**32),
    "Port": NOT_WHOLE | st.integers(max_value=-1) | st.integers(min_value=2**16),
    "Number": NO_NUMBER | st.sampled_from([float("nan"), float("inf"), np.float64("nan")]),
    "NotNegative": NO_NUMBER | st.sampled_from([float("nan"), float("inf")]) | st.floats(max_value=0, exclude_max=True),
    "Positive": NO_NUMBER | st.sampled_from([float("nan"), float("inf")]) | st.floats(max_value=0),
    "Seeds": st.sampled_from(
        [0, 1.5, True, "12", "", [0.5], [True], ["3"], [-1], [2**32], {0: 1}, np.array([0.5]), None]
    )
    | st.integers(max_value=0)
    | st.lists(st.integers(max_value=-1), min_size=1),
    "bool": st.sampled_from(["no", "true", 1, 0, None, [True], np.int64(1)]),
    "str": NO_TEXT,
    "Name": NO_TEXT | st.just(""),
    "Label": st.sampled_from([1.5, True, ["1"], b"1", None]),
    "Texts": NO_LIST_OF_TEXTS,
    "Tags": NO_LIST_OF_TEXTS | st.sampled_from(["a,b", ["", "a"], "x" * 65, "a\nb", "none"]),
    "Device": NO_TEXT | st.sampled_from(["gpu", "cuda:0", "cuda:1", "cpuu", ""]),
    "Database": st.sampled_from([3, b"r.db", ["r.db"], {"real": "r.db"}, None]),
    "Databases": st.sampled_from([3, [3], {"r.db": 1}, None]),
    "HubPlace": NO_PATH,
    "NamedPlace": NO_PATH,
    "Places": st.sampled_from([3, [3], {"mlflow": 1}, None]),
    "File": NO_PATH,
    "FileName": NO_PATH,
    "Files": st.sampled_from([3, [3], [""], {"a": 1}, None]),
    "Task": st.sampled_from([3, "", ["adding"], None]),
    "Tasks": st.sampled_from([3, "", [3], {"adding": 1}, None]),
    "Model": st.sampled_from([3, "", ["rnn"], None]),
    "Models": st.sampled_from([3, "", [3], {"rnn": 1}, None]),
    "Parameters": st.sampled_from([-1, 1.5, True, ["15k"], "", None]),
    "Grid": NO_MAPPING | st.sampled_from([{"hidden_size": 4}, {"hidden_size": {4: 1}}, {"hidden_size": b"4"}]),
    "Mapping[str, Any]": NO_MAPPING,
    "Mapping[str, str]": NO_MAPPING | st.just({"rnn": 3}),
    "RunOptions": st.sampled_from([{"device": "cpu"}, "cpu", ob.RunOptions, None]),
    "Display": st.sampled_from([3, "none", ob.Display, None]),
    "OneRun": st.sampled_from([3, Path("r"), None, ["abc"]]),
    "TrainedRun": st.sampled_from([3, None, ["abc"]]),
    "Runs": st.sampled_from([3, [3], None, pd.DataFrame({"key": ["abc"]}), {"abc": 1}]),
    "SomeResults": st.sampled_from([3, None, ["r.db"]]),
    "Sequence[tuple[Run, Weights]]": st.sampled_from([3, ["abc"], None]),
}
"""Wrong values by the type of the argument, as its function writes it. None is right where the type says so."""


def words(name: str) -> tuple[str, ...]:
    """The words of a `Literal`; none if another type has this name."""
    return get_args(getattr(arguments, name, None) or getattr(api_results, name, None))


def wrong(kind: str) -> st.SearchStrategy[Any]:
    """Return wrong values for a type, as a function or a record writes it."""
    described = re.match(r"Annotated\[(.*?), Option\(", kind)
    kind = described.group(1) if described else kind
    name, may_be_none = kind.removesuffix(" | None"), kind.endswith(" | None")
    if name in WRONG:
        return WRONG[name].filter(lambda value: value is not None or not may_be_none)
    choices = words(name)
    assert choices, f"{name} is a new type: add wrong values to WRONG"
    return (st.sampled_from([f"{choices[0]}_", "", 3, True, b"cpu"]) | st.text()).filter(
        lambda word: word not in choices
    )


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """An open database without runs."""
    file = tmp_path_factory.mktemp("results") / "empty.db"
    with open_store(file, create=True), ob.open_results(file) as opened:
        yield opened


@pytest.mark.parametrize("function", [*FUNCTIONS, *METHODS, *RECORDS])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_wrong_argument_is_one_line_with_the_fix(function, results, tmp_path, data):
    """One argument is wrong at a time, and all others are right."""
    call = (FUNCTIONS | METHODS | RECORDS)[function]
    parameters = dict(inspect.signature(call).parameters)
    own = (results,) if parameters.pop("self", None) else ()
    needed = {
        name: REQUIRED[name]
        for name, each in parameters.items()
        if each.default is each.empty and each.kind not in STARS
    }
    for name, parameter in parameters.items():
        if parameter.annotation == "Any":
            continue
        value = data.draw(wrong(parameter.annotation), label=name)
        is_listed = parameter.kind is inspect.Parameter.VAR_POSITIONAL
        listed, named = ([*needed.values(), value], {}) if is_listed else ([], needed | {name: value})
        with pytest.raises(UsageError) as caught:
            call(*own, *listed, **named)
        line = str(caught.value)
        assert "\n" not in line
        assert line.startswith((f"`{name}=", f"unknown {name} ")), line
        assert any(word in line for word in (": give ", "should ", ": did you mean ", ": known: ")), line
    assert list(tmp_path.iterdir()) == []


@checked
def taken(seed: Seed = 0, seeds: Seeds = 1, number: Number = 0.0, flag: bool = False, names: Texts = ()) -> Any:
    """Return the arguments as a function of the API receives them."""
    return {"seed": seed, "seeds": seeds, "number": number, "flag": flag, "names": names}


@settings(max_examples=50, deadline=None)
@given(number=st.integers(0, LARGEST_SEED), flag=st.booleans(), names=st.lists(st.text()))
def test_right_value_of_any_type_becomes_python_s(number, flag, names):
    for each in (number, float(number), np.int64(number), np.float64(number), np.array(number), torch.tensor(number)):
        received = taken(seed=each, number=each)
        assert (received["seed"], received["number"]) == (number, number)
        assert (type(received["seed"]), type(received["number"])) == (int, float)
    for several in ([number, 0.0, number], np.array([number, 0]), pd.Series([number, 0.0]), iter((number, 0))):
        assert taken(seeds=several)["seeds"] == ((number, 0) if number else (0,))
    assert taken(seeds=pd.Series([float(number)]))["seeds"] == (number,)  # a column with one row is no number of seeds
    assert taken(flag=np.bool_(flag))["flag"] is flag
    for several in (names, tuple(names), np.array(names, dtype=object), pd.Series(names, dtype=object)):
        assert taken(names=several)["names"] == tuple(names)


def test_error_of_pydantic_inside_a_function_is_not_one_of_its_arguments():
    @checked
    def fails(seed: int) -> None:
        TypeAdapter(int).validate_python("x")

    with pytest.raises(ValidationError):
        fails(1)


def test_value_with_many_lines_is_told_in_one(results):
    with pytest.raises(ob.UsageError) as caught:
        results.curve(pd.Series({"run": "a1", "task": "adding"}), "mse")
    assert str(caught.value).startswith("`run=run a1 task adding")
    assert "\n" not in str(caught.value)


def test_nearest_choice_is_suggested():
    with pytest.raises(ob.UsageError, match=r"^unknown preset 'quik': did you mean quick\?$"):
        ob.run("adding", "rnn", preset="quik")  # type: ignore[arg-type]
    with pytest.raises(ob.UsageError, match=r"^unknown on_divergence 'stopp': did you mean stop\?$"):
        ob.RunOptions(on_divergence="stopp")  # type: ignore[arg-type]
    for call in (ob.load_model, ob.evaluate, partial(ob.export, file="m.onnx", form="onnx")):
        with pytest.raises(ob.UsageError, match=r"^unknown weights 'bst': did you mean best\?$"):
            call("abc", weights="bst")
    with pytest.raises(ob.UsageError, match=r"^`device='gpu'`: give `device='cuda'`$"):
        ob.RunOptions(device="gpu")
    with pytest.raises(ob.UsageError, match=r"give `device='cuda'`, and choose the GPU by .*CUDA_VISIBLE_DEVICES=1$"):
        ob.RunOptions(device="cuda:1")  # type: ignore[arg-type]


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
    descriptions = [*built_in()["plugins"].values(), {"settings": built_in()["training"]}]
    names = {setting["name"] for each in descriptions for setting in each.get("settings", ())}
    assert "hidden_size" in names
    assert not names & SWEEP_ARGUMENTS
