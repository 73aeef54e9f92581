"""Probes as plugins: asked for by a setting, taken on their schedule, accounted for, held against a contract."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orthobench.errors import UsageError
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import open_store
from orthobench.task import TrainingSettings
from orthobench.testing import problems

PROBE = """
from orthobench.probe import Probe, ProbeResult

class Weights(Probe):
    title, paper = "norm of the output map", "none"
    every_epochs = EVERY
    default = DEFAULT

    def __call__(self, context):
        return ProbeResult({"weights/V": float(context.model.output_weight.detach().norm())})
"""


@pytest.fixture
def write(tmp_path: Path):
    def _write(every: int = 1, default: bool = False, text: str = PROBE) -> Path:
        path = tmp_path / "weights.py"
        path.write_text(text.replace("EVERY", str(every)).replace("DEFAULT", str(default)))
        return path

    return _write


def test_run_has_the_default_and_requested_probes():
    catalog = Catalog()
    assert list(catalog.probes(())) == ["gradient_norm", "gradient_norm_of_mean", "orthogonality"]
    assert list(catalog.probes(["jacobian"])) == ["gradient_norm", "gradient_norm_of_mean", "jacobian", "orthogonality"]
    with pytest.raises(UsageError, match="unknown probe 'jacobin': did you mean jacobian"):
        catalog.probes(["jacobin"])
    with pytest.raises(UsageError, match="'orthogonality' is in every run: leave it out"):
        catalog.probes(["orthogonality"])


def test_only_requested_probes_change_the_key(tiny):
    plain = resolve(Catalog(), "adding", "rnn", tiny)
    assert "probes" not in plain.spec.training  # so that runs from before the setting keep their keys
    keys = {plain.spec.key}
    for value in ("jacobian", "heat_map", "heat_map,jacobian"):
        keys.add(resolve(Catalog(), "adding", "rnn", tiny | {"probes": value}).spec.key)
    assert len(keys) == 4
    assert resolve(Catalog(), "adding", "rnn", tiny | {"probes": "none"}).spec.key == plain.spec.key
    turned = resolve(Catalog(), "adding", "rnn", tiny | {"probes": "jacobian, heat_map,jacobian"})
    assert turned.spec.training["probes"] == ["heat_map", "jacobian"]
    assert turned.spec.key in keys


def test_names_are_read_from_text_and_lists():
    read = TrainingSettings.read
    assert read({"probes": ["b", "a"]}).probes == ("a", "b")
    assert read({"probes": None}).probes == ()
    with pytest.raises(UsageError, match="probes="):
        read({"probes": "a,"})


@pytest.mark.parametrize(("every", "taken"), [(0, [0, 12]), (1, [0, 4, 8, 12]), (2, [0, 8, 12])])
def test_probe_runs_on_its_schedule(orthobench, write, tiny_options, tmp_path, every, taken):
    path = write(every=every)
    arguments = ("run", "adding", "rnn", *tiny_options, "-s", "probes=weights", "--plugin", str(path))
    assert orthobench(*arguments).code == 0
    with open_store(str(tmp_path / "results.db")) as store:
        (run,) = store.runs()
        assert [row.iteration for row in store.metrics([run.id], "probe", "weights/V")] == taken
    assert {"probe weights", "probe orthogonality", "probe gradient_norm"} <= set(run.seconds)


def test_probe_sees_the_same_batch_throughout(orthobench, write, small_data, tmp_path):
    """Of a task too whose noise is another in every epoch."""
    path = write(text=PROBE.replace("context.model.output_weight.detach()", "context.batch.inputs"))
    sizes = "validation_size=20", "train_size=40", "test_size=20", "batch_size=10", "epochs=2", "hidden_size=4"
    options = ("-s", "noise_padded=true", "-s", "probes=weights", *(word for size in sizes for word in ("-s", size)))
    done = orthobench("run", "cifar10", "rnn", *options, "--plugin", str(path))
    assert done.code == 0, done.err
    with open_store(str(tmp_path / "results.db")) as store:
        seen = [row.value for row in store.metrics([store.runs()[0].id], "probe", "weights/V")]
    assert len(seen) == 3
    assert len(set(seen)) == 1


def test_default_probe_of_a_user_is_in_every_run(orthobench, write, tiny_options, tmp_path):
    assert orthobench("run", "adding", "rnn", *tiny_options, "--plugin", str(write(default=True))).code == 0
    with open_store(str(tmp_path / "results.db")) as store:
        assert store.metrics([store.runs()[0].id], "probe", "weights/V")


def test_shown_command_reproduces_a_run_with_probes(orthobench, tiny_options):
    orthobench("run", "adding", "rnn", *tiny_options, "-s", "probes=jacobian,heat_map")
    (listed,) = json.loads(orthobench("ls", "--json").out)
    command = json.loads(orthobench("show", listed["run"], "--json").out)["reproduce"].split()
    assert orthobench(*command[1:], "--db", "again.db").out.split()[1] == listed["run"]


def test_broken_probe_stops_only_runs_that_request_it(orthobench, write, tiny_options):
    path = str(write(text=PROBE.replace('title, paper = "norm of the output map", "none"', "")))
    assert orthobench("run", "adding", "rnn", *tiny_options, "--plugin", path).code == 0
    outcome = orthobench("run", "adding", "rnn", *tiny_options, "--plugin", path, "-s", "probes=weights")
    assert outcome.code == 2
    assert "probe 'weights'" in outcome.err
    assert "it does not set title, paper" in outcome.err


def test_probes_are_listed(orthobench):
    listed = {entry["name"]: entry for entry in json.loads(orthobench("plugins", "--json").out)}
    assert (listed["jacobian"]["kind"], listed["jacobian"]["default"]) == ("probe", False)
    assert listed["orthogonality"]["default"]
    assert "(-s probes=heat_map)" in orthobench("plugins").out


NORM = "float(context.model.output_weight.detach().norm())"
FAULTS = [
    (NORM, "float('nan')", "values_are_numbers"),
    (NORM, "context.model.output_weight", "values_are_numbers"),
    (
        'ProbeResult({"weights/V": float(context.model.output_weight.detach().norm())})',
        "ProbeResult()",
        "values_are_numbers",
    ),
    (
        "return ProbeResult({",
        "self.n = getattr(self, 'n', 0) + 1\n        return ProbeResult({'n': self.n, ",
        "the_same_co",
    ),
    ("return", "context.model.output_weight.data.zero_()\n        return", "the_model_is_left_alone"),
    ("return", "context.model.output_weight.square().sum().backward()\n        return", "the_model_is_left_alone"),
    ("return", "context.model.eval()\n        return", "the_model_is_left_alone"),
    ("return", "context.model.output_weight.detach().bernoulli(0.5)\n        return", "the_model_is_left_alone"),
    ("every_epochs = EVERY", "every_epochs = None", "the_schedule_is_a_number"),
    ("weights/V", "V", "names_begin_with_the_probes: V does not begin with the probe's name: call it weights/V"),
    ("weights/V", "weightsV", "names_begin_with_the_probes"),
]


@pytest.mark.parametrize(("right", "wrong", "check"), FAULTS)
def test_contract_finds_planted_faults(write, right, wrong, check):
    assert problems("probe", Catalog([write()]).load("probe", "weights")) == []
    assert right in PROBE
    path = write(text=PROBE.replace(right, wrong))
    values = problems("probe", Catalog([path]).load("probe", "weights"))
    assert any(problem.startswith(check) for problem in values), values
