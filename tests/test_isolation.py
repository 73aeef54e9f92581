"""A run has the numbers of its key whatever the program or another run has set, and leaves the program's state."""

from __future__ import annotations

import inspect
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import orthobench as ob
from orthobench.isolation import isolated
from orthobench.store import open_store
from orthobench.testing import problems

SETTINGS = {"sequence_length": 10, "train_size": 40, "test_size": 20, "batch_size": 10, "epochs": 2, "hidden_size": 8}
FEW_STEPS = {"sequence_length": 4, "train_size": 20, "test_size": 10, "batch_size": 10, "epochs": 1, "hidden_size": 8}
"""Of a run in an unusual state, in which torch notes the stack of calls with every operation."""

LAYER = """
import random, signal
import numpy as np
import torch
from torch import nn

class {name}(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.cell = nn.GRU(input_size, hidden_size)

    def forward(self, x, h=None):
        if self.training:
            {effect}
        return self.cell(x.to(torch.float32), h)
"""
EFFECTS = {
    "Wide": "torch.set_default_dtype(torch.float64)",
    "Elsewhere": "torch.set_default_device('meta')",
    "Low": "torch.autocast('cpu', torch.bfloat16).__enter__()",
    "Frozen": "self.once = torch.set_grad_enabled(False) if hasattr(self, 'once') else 1",
    "Denormal": "torch.set_flush_denormal(False)",
    "Coarse": "torch.set_float32_matmul_precision('medium')",
    "Anomalous": "torch.autograd.set_detect_anomaly(True)",
    "Deterministic": "torch.use_deterministic_algorithms(True)",
    "Seeded": "torch.manual_seed(0); np.random.seed(0); random.seed(0)",
    "Strict": "np.seterr(all='raise')",
    "Threaded": "torch.set_num_threads(2)",
}
"""What a layer does to the process in each training step, by the name of its class."""


def state() -> dict[str, Any]:
    """Return what numbers depend on, read without orthobench."""
    backends = torch.backends
    tiny = np.frombuffer(np.uint32(1000).tobytes(), np.float32)
    with torch.inference_mode(False):
        product = torch.from_numpy(tiny.copy()).to("cpu").mul(torch.ones(1, device="cpu")).numpy().tobytes()
    return {
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "autocast": [torch.is_autocast_enabled(device) for device in ("cpu", "cuda")],
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "anomaly": torch.is_anomaly_enabled(),
        "flushes": product == bytes(4),
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": (torch.get_deterministic_debug_mode(), backends.cudnn.deterministic, backends.cudnn.benchmark),
        "threads": torch.get_num_threads(),
        "numpy errors": np.geterr(),
        "torch's generator": (torch.initial_seed(), torch.get_rng_state().tolist()),
        "numpy's generator": repr(np.random.get_state(legacy=False)),
        "Python's generator": random.getstate(),
    }


@contextmanager
def unusual_state() -> Iterator[None]:
    """Set every part of the state to a value that a new process does not have."""
    with ExitStack() as stack:
        restore: list[tuple[Callable[[Any], object], Any]] = [
            (torch.set_default_dtype, torch.get_default_dtype()),
            (torch.set_flush_denormal, False),
            (torch.set_float32_matmul_precision, torch.get_float32_matmul_precision()),
            (torch.use_deterministic_algorithms, False),
            (torch.autograd.set_detect_anomaly, False),
            (torch.set_num_threads, torch.get_num_threads()),
            (lambda value: setattr(torch.backends.cudnn, "benchmark", value), False),
        ]
        for write, value in restore:
            stack.callback(write, value)
        torch.set_default_dtype(torch.float64)
        torch.set_float32_matmul_precision("medium")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.autograd.set_detect_anomaly(True)
        torch.set_num_threads(2)
        torch.backends.cudnn.benchmark = True
        stack.enter_context(torch.device("meta"))
        stack.enter_context(torch.autocast("cpu", torch.float16))
        stack.enter_context(torch.no_grad())
        stack.enter_context(np.errstate(all="ignore"))
        torch.manual_seed(7)
        np.random.seed(7)
        random.seed(7)
        yield


def rows(database: str, model: str) -> list[tuple[Any, ...]]:
    """Return every stored number of a model's runs that is not a time."""
    with open_store(database) as store:
        runs = [run for run in store.runs() if run.model == model]
        metrics = [(m.iteration, m.split, m.name, m.value) for m in store.metrics([run.id for run in runs])]
        return [*((run.status, run.message, run.best_value) for run in runs), *sorted(metrics, key=repr)]


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write_layers(**effects: str) -> list[str]:
    """Write a file for each layer; its class has the effect in each training step. Return the names of the models."""
    for name, effect in effects.items():
        Path(f"{name.lower()}.py").write_text(LAYER.format(name=name, effect=effect))
    return [f"./{name.lower()}.py:{name}" for name in effects]


def test_a_block_has_the_state_of_a_new_process():
    """The declared values are those of this torch, so another default of a later torch shows here."""
    source = f"import numpy as np, random, torch\nfrom typing import Any\n{inspect.getsource(state)}"
    compared = "{name: value for name, value in state().items() if 'generator' not in name and name != 'threads'}"
    code = f"{source}\nfrom orthobench import isolation\nnew = {compared}\n"
    code += "different = [part.write for part in isolation._PARTS if part.new != part.read()]\n"
    code += f"with isolation.isolated():\n    inside = {compared}\n"
    code += "assert different == [torch.set_flush_denormal], different\n"
    code += "assert inside == {**new, 'flushes': True}, (inside, new)\n"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_block_sets_every_part_and_restores_it():
    with isolated():
        new = state()
    with unusual_state():
        before = state()
        with isolated():
            inside = state()
        assert state() == before
    kept = ("threads", "torch's generator", "numpy's generator", "Python's generator")
    for name, value in before.items():
        assert inside[name] == (value if name in kept else new[name]), name
        assert value != new[name], f"{name} is not unusual here"


def run_one(model: str) -> None:
    ob.run("adding", model, settings=FEW_STEPS, display=ob.Display())


def sweep_here(model: str) -> None:
    ob.sweep("adding", [model, "rnn"], settings=FEW_STEPS, jobs=0)


def use_trained(model: str) -> None:
    run = ob.run("adding", model, settings=FEW_STEPS, options=ob.RunOptions(keep_weights="last"))
    ob.evaluate(run)
    _ = ob.load_model(run).task
    ob.export(run, "model.safetensors", "safetensors")


def check_contract(model: str) -> None:
    from orthobench.models.scornn import ScoRNN

    assert problems("model", ScoRNN) == []


@pytest.mark.parametrize("way", [run_one, sweep_here, use_trained, check_contract])
def test_the_program_finds_its_state_again(way):
    (model,) = write_layers(All="; ".join(EFFECTS[name] for name in EFFECTS if name not in ("Frozen", "Elsewhere")))
    with unusual_state():
        before = state()
        way(model)
        assert state() == before


@pytest.mark.parametrize("end", ["raise ArithmeticError", "signal.raise_signal(2)"])
@pytest.mark.parametrize("way", [run_one, sweep_here])
def test_an_error_or_ctrl_c_restores_the_state_too(way, end):
    (model,) = write_layers(Ends=f"torch.set_default_dtype(torch.float64); torch.manual_seed(1); {end}")
    before, handler = state(), signal.getsignal(signal.SIGINT)
    is_stored = way is sweep_here and "Arithmetic" in end  # other runs of a sweep go on
    with nullcontext() if is_stored else pytest.raises((ArithmeticError, KeyboardInterrupt)):
        way(model)
    assert state() == before
    assert signal.getsignal(signal.SIGINT) is handler


def test_layers_that_change_the_process_change_no_neighbour():
    names, settings = write_layers(**EFFECTS), FEW_STEPS
    ob.sweep("adding", ["scornn", "lstm", "torch.nn:GRU"], settings=settings, jobs=0, db="alone.db")
    ob.sweep("adding", [*names, "scornn", "lstm", "torch.nn:GRU"], settings=settings, jobs=0, db="together.db")
    for model in ("scornn", "lstm", "torch.nn:GRU"):
        assert rows("together.db", model) == rows("alone.db", model)
        assert rows("alone.db", model)[0][0] == "finished"


def numbers(database: str) -> tuple[Any, ...]:
    """Train a model into a new database, and return its result, the metrics of its weights, and the weights."""
    settings, options = {**SETTINGS, "dropout": 0.3, "layers": 2}, ob.RunOptions(keep_weights="last")
    run = ob.run("adding", "lstm", settings=settings, db=database, options=options)
    weights = ob.load_model(run, database).model.state_dict()
    tested = ob.evaluate(run, db=database).metrics
    return rows(database, "lstm"), tested, {name: each.numpy().tobytes() for name, each in weights.items()}


@pytest.mark.parametrize("around", [unusual_state, torch.no_grad, torch.inference_mode])
def test_the_state_around_a_run_changes_no_number(around):
    plain = numbers("plain.db")
    with around():
        other = numbers("other.db")
    assert other == plain
    assert other[0][0][0] == "finished"


def test_a_run_in_an_existing_database_draws_as_in_a_new_one():
    """The generators of a run begin at the same place whether its trainer was built before the database or after."""
    settings = {**SETTINGS, "dropout": 0.3, "layers": 2}
    ob.run("adding", "lstm", settings=settings, db="new.db")
    ob.run("adding", "rnn", settings=SETTINGS, db="old.db")
    ob.run("adding", "lstm", settings=settings, db="old.db")
    assert rows("old.db", "lstm") == rows("new.db", "lstm")


def test_a_run_draws_nothing_from_the_callers_generators():
    def drawn(seed: int, *, runs: bool) -> tuple[float, float, float]:
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        if runs:
            ob.run("adding", "rnn", settings=SETTINGS, seed=seed, display=ob.Display())
        return torch.rand(()).item(), np.random.rand(), random.random()

    assert [drawn(seed, runs=True) for seed in (1, 2, 1)] == [drawn(seed, runs=False) for seed in (1, 2, 1)]


def test_a_plugin_that_sets_state_at_import_leaves_the_program_alone():
    text = LAYER.format(name="Sets", effect="pass")
    Path("sets.py").write_text(text + "\ntorch.manual_seed(0)\ntorch.set_default_dtype(torch.float64)\n")
    before = state()
    run_one("./sets.py:Sets")
    assert state() == before
    Path("plugin.py").write_text("import torch\nfrom orthobench.models.rnn import RNN\n\nclass Mine(RNN):\n    pass\n")
    with Path("plugin.py").open("a") as file:
        file.write("\ntorch.manual_seed(0)\ntorch.set_default_dtype(torch.float64)\n")
    ob.run("adding", "plugin", settings=SETTINGS, options=ob.RunOptions(plugins=(Path("plugin.py"),)))
    assert state() == before
