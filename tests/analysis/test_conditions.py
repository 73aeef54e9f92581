"""The conditions of runs, with what the runs have logged."""

from __future__ import annotations

import pytest
from sqlalchemy import delete
from support.databases import RunDatabase, experiment
from support.records import run_record

from orthobench.analysis.conditions import collect
from orthobench.metric import run_columns
from orthobench.papers import Printed
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import MetricRow, Status, TraceRow, open_store
from orthobench.store.tables import StoredMetric, StoredTrace

GRADIENTS = "gradient_norm/h"


@pytest.fixture
def database(tmp_path):
    with open_store(tmp_path / "results.db", create=True) as store:
        yield RunDatabase(store)


@pytest.fixture
def runs(database):
    """Three runs of one variant, of which the last alone has logged a second vector, and a run of another variant."""
    stored = []
    for model, seeds in {"rnn": 3, "lstm": 1}.items():
        own = experiment(model, "last", [Printed(metric="mse", value=0.01)])
        stored += [database.run(own, seed, test=[0.2, 0.1 / (seed + 1)]) for seed in range(seeds)]
    for run in stored:
        database.store.log(run.id, [], [TraceRow(GRADIENTS, 1, 10, [float(run.id), 2.0])], {})
    database.store.log(stored[2].id, [], [TraceRow("lag", 1, 10, [1.0])], {})
    return stored


def logged(conditions):
    """The test values and the vectors of every run, by its id, and the labels of the variants."""
    values, labels = {}, []
    for variant in (variant for condition in conditions for variant in condition.variants):
        labels.append(variant.label)
        for run in variant.runs:
            _, tests = variant.series("test", "mse").curve(run.id)
            vectors = {
                name: [v.tolist() for v in own.at(own.of_run(run.id)).values] for name, own in variant.traces.items()
            }
            values[run.id] = tests.tolist(), vectors
        assert {name for name, own in variant.traces.items() if not len(own)} == set()
        assert variant.series("test", "mse").runs.tolist() == [run.id for run in variant.runs]
    return values, labels


@pytest.mark.parametrize("chosen", [[0], [1, 2], [0, 1, 2], [1, 3], [0, 1, 2, 3]])
def test_known_measurements_of_some_runs_are_those_of_the_database(database, runs, chosen):
    own = [runs[number] for number in chosen]
    known = collect(database.store, runs)
    expected = logged(collect(database.store, own))
    with database.store.snapshot() as session:
        for table in StoredMetric, StoredTrace:
            session.execute(delete(table))
        session.commit()
    assert logged(collect(database.store, own, known)) == expected
    with pytest.raises(TypeError):  # without them nothing is left
        logged(collect(database.store, own))


def test_variant_with_an_unknown_run_is_read(database, runs):
    known = collect(database.store, [runs[0], runs[3]])
    assert logged(collect(database.store, runs, known)) == logged(collect(database.store, runs))


@pytest.mark.parametrize(
    ("changes", "differences"),
    [
        ({}, {}),
        ({"max_iterations": 100}, {"max_iterations": (100, None)}),
        ({"clip_norm": 1.0}, {"clip_norm": (1.0, None)}),
        ({"epochs": 3}, {"epochs": (3, 70)}),
    ],
)
def test_run_has_the_settings_of_an_experiment_only_if_it_has_all_of_them(database, changes, differences):
    """The paper's table lists neither a number of iterations nor a clipping."""
    config = resolve(Catalog(), "mnist", "scornn", {"permuted": False, **changes}, seed=0)
    record = run_record(config.spec, baselines={"accuracy": 0.1}, **run_columns(config.task_class.metrics))
    run = database.store.start(record, {"packages": {"torch": "2"}})
    progress = {"status": Status.FINISHED, "final_value": 0.4, "best_value": 0.4}
    database.store.log(run.id, [MetricRow("test", "accuracy", 1, 10, 0.4)], [], progress)
    ((variant,),) = (condition.variants for condition in collect(database.store))
    assert variant.comparison.differences == differences
    assert (variant.printed.value if variant.printed else None) == (None if differences else 0.973)
