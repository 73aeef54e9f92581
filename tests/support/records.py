"""Records of runs, for databases that tests fill by hand."""

from __future__ import annotations

from typing import Any

from orthobench.spec.resolve import RunSpec
from orthobench.store import Run

_RUN = {
    "key": "abc0000000000000",
    "variant": "v",
    "condition": "c",
    "task": "adding",
    "model": "rnn",
    "seed": 0,
    "spec": {
        "note": ["ü", None, 0.1],
        "task": "adding",
        "model": "rnn",
        "seed": 0,
        "task_settings": {},
        "model_settings": {},
        "training": {},
        "task_version": "1",
        "model_version": "1",
    },
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

    A spec replaces the columns that identify the run, and `columns` replace any.

    Raises:
        TypeError: a run has no column of such a name.
    """
    unknown = columns.keys() - Run.__table__.columns.keys()
    if unknown:
        raise TypeError(f"a run has no columns {sorted(unknown)}")
    return _RUN | (spec.record() if spec else {}) | columns
