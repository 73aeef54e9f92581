"""Databases of runs with chosen values, and papers about them."""

from __future__ import annotations

from support.records import run_record

from orthobench.analysis.conditions import collect
from orthobench.metric import run_columns
from orthobench.papers import Experiment, Paper, Printed
from orthobench.plugins import Catalog
from orthobench.reporting.account.paper_views import view_paper
from orthobench.spec.resolve import resolve
from orthobench.store import MetricRow, Status

LUCKY = [0.3] * 29 + [0.01]
"""A curve of thirty tests that ends at 0.3, though its last test is 0.01."""
SETTINGS = {"sequence_length": 10, "train_size": 40, "test_size": 20}
TRAINING = {"batch_size": 10, "epochs": 3}


def experiment(model: str, selection: str, printed: list[Printed], artifact: str = "table 1") -> Experiment:
    return Experiment(
        artifact=artifact,
        task="adding",
        model=model,
        task_settings=SETTINGS,
        model_settings={"hidden_size": 8},
        training=TRAINING,
        selection=selection,
        printed=printed,
    )


def paper(*experiments: Experiment, artifacts=()) -> Paper:
    return Paper(
        key="k",
        title="t",
        subject="cells",
        authors="a",
        venue="v",
        year=2000,
        priority=9,
        experiment=experiments,
        artifact=artifacts,
    )


class RunDatabase:
    """A database of runs with chosen values, and the view that a paper's page has of it."""

    baseline = 0.2
    """The best score without memory of every run."""

    def __init__(self, store, plugins=()) -> None:
        self.store = store
        self.catalog = Catalog(plugins)

    def run(
        self,
        experiment: Experiment,
        seed: int,
        test,
        valid=None,
        status=Status.FINISHED,
        cpu="a CPU",
        seconds=120.0,
        parts=(),
        **changes,
    ):
        """Store a run of an experiment with these test and validation values, one every 10 iterations; return it.

        `parts` has the back end of each segment, and what its environment has besides that of all runs.
        """
        config = resolve(self.catalog, experiment.task, experiment.model, changes, seed=seed, experiment=experiment)
        spec, main = config.spec, config.task_class.main_metric()
        record = run_record(
            spec,
            backend="cpu",
            parameter_count=100 if experiment.model == "rnn" else 200,
            baselines={main.name: self.baseline},
            total_iterations=40,
            iterations_per_epoch=10,
            **run_columns(config.task_class.metrics),
        )
        machine = {"packages": {"torch": "2"}, "cpu": cpu, "accelerator": None, "commit": None, "dirty": False}
        run = self.store.start(record, machine)
        for number, (backend, others) in enumerate(parts):
            self.store.start(record, machine | others)
            self.store.rewind(run.id, number or -1, f"{run.key} {number}")
            self.store.log(run.id, [], [], {}, backend)
        rows = [
            MetricRow(split, main.name, i, 10 * i, value)
            for split, values in (("test", test), ("valid", valid or []))
            for i, value in enumerate(values)
        ]
        iterations = 40 if status == Status.FINISHED else 10 * (len(test) - 1)
        best = min(test) if main.goal == "min" else max(test)
        progress = {"final_value": test[-1], "best_value": best, "status": status, "iterations": iterations}
        self.store.log(run.id, rows, [], progress | {"seconds": {"train": seconds}})
        return run

    def view(self, whole: Paper):
        keys = {
            item.identity: resolve(self.catalog, item.task, item.model, {}, experiment=item).spec.variant
            for item in whole.experiments()
        }
        return view_paper(whole, collect(self.store), keys)
