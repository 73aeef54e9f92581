"""Carry out a study: train its runs, compute its panels or measure its times, and record its content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orthobench.analysis.dynamics import COMPUTATIONS
from orthobench.bench.models import measure_models
from orthobench.bench.suite import Setup
from orthobench.options.arguments import Preset
from orthobench.papers import Study
from orthobench.planning.sweep_runs import SweepRun
from orthobench.plugins import Catalog
from orthobench.session.session import Session, SweepResult
from orthobench.system import environment


def train_study(
    session: Session,
    study: Study,
    catalog: Catalog,
    preset: Preset,
    runs: Sequence[SweepRun],
    figures: Mapping[str, Sequence[str]],
) -> SweepResult | None:
    """Record a study and train its runs; the result is None if it computes or measures instead of training.

    Args:
        runs: the runs of the study.
        figures: the keys of the runs of each figure.

    Raises:
        UsageError: none of the runs could start.
        Stopped: the user stopped the session.
    """
    if study.benchmark:
        _measure(study, catalog, session, preset == "quick")
        return None
    if study.computation:
        _record(study, session, {"preset": "paper", **COMPUTATIONS[study.computation]()})
        return None
    _record(study, session, {"preset": preset, "figures": figures})
    return session.sweep(runs)


def _record(study: Study, session: Session, results: dict[str, Any]) -> None:
    """Record the content of a study, unless its newest record is the same."""
    store = session.open_store
    before = store.benchmarks(study.record)
    if not before or before[-1].results != results:
        store.add_benchmark(study.record, results, environment.describe(session.device))


def _measure(study: Study, catalog: Catalog, session: Session, quick: bool) -> None:
    """Measure all models as `orthobench bench --models` does, once per environment."""
    store, facts = session.open_store, environment.describe(session.device)
    for benchmark in store.benchmarks(study.record):
        if benchmark.environment.facts == facts and benchmark.results["quick"] == quick:
            return
    setup = Setup(session.device, 1 if quick else 5, quick, tell=session.display.print_line)
    store.add_benchmark(study.record, measure_models(catalog.usable("model"), setup), facts)
