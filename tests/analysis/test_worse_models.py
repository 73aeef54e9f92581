"""What "worse" says of models that are broken on purpose, of a constant, and of the same model with other seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from analysis.test_broken_models import BREAKS, INTACT, broken
from reporting.test_constant_predictor import BLIND
from support.configs import with_classes

from orthobench.analysis.compare import contrasts
from orthobench.analysis.compare_databases import ComparedDatabase, compare_databases
from orthobench.analysis.inference import verdict
from orthobench.gate.baseline import MetricBaseline
from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.settings.filters import parse_conditions
from orthobench.spec.resolve import resolve
from orthobench.store import open_store
from orthobench.training.lifecycle import train

SETTINGS: dict[str, Any] = {"sequence_length": 8, "train_size": 4000, "test_size": 500, "batch_size": 20, "epochs": 1}
SETTINGS |= {"hidden_size": 16, "optimizer": "adam", "learning_rate": 0.02, "shuffle": False, "evaluate_every": 200}
FAULTS = ("untrained", "sign of the gradient turned")
AGAIN = "other seeds"
SEEDS = 4


@pytest.fixture(scope="module")
def databases(tmp_path_factory) -> Mapping[str, Path]:
    """Four seeds of a GRU on adding, whole and broken, each in a database; the constant is in that of the whole one."""
    folder = tmp_path_factory.mktemp("worse")
    (folder / "blind.py").write_text(BLIND)
    catalog, files = Catalog([folder / "blind.py"]), {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for fault in (INTACT, AGAIN, *FAULTS):
        files[fault] = folder / f"{fault}.db"
        with open_store(str(files[fault]), create=True) as store:
            for model in ("gru", "blind") if fault == INTACT else ("gru",):
                for seed in range(SEEDS):
                    config = resolve(catalog, "adding", model, SETTINGS, seed=seed + 10 * (fault == AGAIN))
                    if fault in FAULTS:
                        config = with_classes(config, model_class=broken(config.model_class, BREAKS[fault]))
                    train(config, store, RunOptions(device="cpu", keep_weights="none"))
    torch.set_num_threads(threads)
    return files


def compared(databases: Mapping[str, Path], other: str, seeds: int):
    """Return the comparison of the intact model with another one, over this number of seeds."""
    chosen = ",".join(str(seed) for start in (0, 10) for seed in range(start, start + seeds))
    with open_store(str(databases[INTACT])) as first, open_store(str(databases[other])) as second:
        sides = ComparedDatabase("intact", first), ComparedDatabase(other, second)
        (match,) = compare_databases(*sides, parse_conditions(["model=gru", f"seed={chosen}"])).matches
    return match.contrast


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_broken_model_is_clearly_worse_with_three_seeds_and_tested_apart_with_four(databases, fault):
    three, four = (compared(databases, fault, seeds) for seeds in (3, 4))
    assert (three.verdict, three.deciding) == ("worse in every seed", 4)
    assert (four.verdict, four.deciding) == ("worse, tested apart", None)


@pytest.mark.slow
def test_other_seeds_of_a_model_overlap(databases):
    assert [compared(databases, AGAIN, seeds).verdict for seeds in (3, 4)] == ["overlaps", "overlaps"]


@pytest.mark.slow
def test_constant_is_tested_apart(databases):
    with open_store(str(databases[INTACT])) as store:
        (contrast,) = contrasts(store, ["model=gru", "model=blind"], {}, lambda run: run.status)
        (turned,) = contrasts(store, ["model=blind", "model=gru"], {}, lambda run: run.status)
        (same,) = contrasts(store, ["model=blind", "model=blind"], {}, lambda run: run.status)
    assert contrast.verdict == "worse, tested apart"
    assert turned.verdict == "better, tested apart"
    assert same.verdict == "overlaps"


@pytest.mark.slow
def test_check_calls_broken_models_worse_and_other_seeds_not(databases):
    def ends(name: str) -> list[float]:
        with open_store(str(databases[name])) as store:
            values = [run.final_value for run in store.runs(model="gru")]
        assert None not in values
        return [value for value in values if value is not None]

    before = ends(INTACT)
    margin = MetricBaseline(direction="min", values=dict(enumerate(before))).margin
    assert margin is not None
    assert [verdict(before, ends(fault), "min", margin)[0] for fault in FAULTS] == ["worse", "worse"]
    assert verdict(before, ends(AGAIN), "min", margin)[0] == "same"
    constant = [0.1667] * SEEDS
    assert verdict(before, constant, "min", margin)[0] == "worse"
