"""Records of runs, for databases that tests fill by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from orthobench.settings import spec_columns
from orthobench.spec.resolve import RunSpec
from orthobench.store import Run

_SPEC = {
    "note": ["ü", None, 0.1],
    "task": "adding",
    "model": "rnn",
    "seed": 0,
    "task_settings": {},
    "model_settings": {},
    "training": {},
    "task_version": "1",
    "model_version": "1",
}

_PARTS = ("task", "model", "seed")
_RUN = {
    "device": "cpu",
    "backend": "reference",
    "parameter_count": 3,
    "metric": "mse",
    "goal": "min",
    "baselines": {"mse": 0.5},
    "total_iterations": 10,
    "iterations_per_epoch": 5,
}


def run_record(spec: RunSpec | None = None, /, **columns: Any) -> dict[str, Any]:
    """Return the columns of a run at its start, as `Store.start` takes them.

    The names of the run follow from its spec, in which `columns` replace the task, the model and the seed.

    Raises:
        TypeError: a run has no column of such a name.
    """
    unknown = columns.keys() - Run.__table__.columns.keys()
    if unknown:
        raise TypeError(f"a run has no columns {sorted(unknown)}")
    facts = asdict(spec) if spec else columns.pop("spec", _SPEC)
    return _RUN | columns_of(facts | {name: columns[name] for name in _PARTS if name in columns}) | columns


def columns_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a run that a spec determines, with the spec."""
    return spec_columns(spec) | {"spec": spec}


def key_of(seed: int) -> str:
    """Return the key of `run_record(seed=seed)`."""
    key: str = run_record(seed=seed)["key"]
    return key
