"""Begin a longer run with the training state that a shorter run of the same settings has kept.

The longer run gets the shorter one's rows, and a checkpoint of its state before its last evaluation. From there it is
resumed like a run that was cut off. So it ends with the numbers of a run that trained from the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from orthobench.errors import UsageError
from orthobench.spec import RunConfig, RunSpec
from orthobench.store import Run, Status, Store, Weights
from orthobench.training.checkpoint import Checkpoints
from orthobench.training.schedule import length_dependence
from orthobench.training.trainer import Checkpoint
from orthobench.weights.content import BROKEN, decode
from orthobench.weights.folder import read
from orthobench.weights.structure import restore

LENGTH = ("epochs", "max_iterations")
"""The settings in which a longer run differs. No iteration depends on them, without a schedule of learning rates."""


def why_not_longer(config: RunConfig) -> str:
    """Return why no shorter run of these settings can be continued to this one; "" if one can."""
    dependence = length_dependence(config.spec.training)
    return dependence and f"its learning rates depend on its length ({dependence})"


def begin_longer(
    config: RunConfig, store: Store, database: str, checkpoints: Checkpoints, weights_at: str | None = None
) -> Run | None:
    """Create a run from the longest shorter one with a kept state, and return that one; None without one.

    The caller has locked the run. A run that exists stays as it is.

    Args:
        weights_at: the folder or URL of weights that the command names; no other URL is opened.

    Raises:
        UsageError: the kept state is missing, cut off or changed.
        StorageError: the checkpoint cannot be written.
    """
    if store.find(config.spec.key) is not None or why_not_longer(config):
        return None
    chosen = _longest(config.spec, store)
    if chosen is None:
        return None
    shorter, record = chosen
    state = _state(read(database, shorter.key, record, weights_at), record.path)
    columns = config.spec.record() | {
        "status": Status.INTERRUPTED,
        "message": None,
        "request": None,
        "preset": config.preset,
        "iterations": state.iteration,
        "total_iterations": _total(config.spec, shorter),
        "continued_from": shorter.key,
    }
    store.fork(shorter.id, columns, state.logged, state.iteration)
    checkpoints.save(vars(state) | {"key": config.spec.key})
    return shorter


def _longest(spec: RunSpec, store: Store) -> tuple[Run, Weights] | None:
    """Return the finished run with the most iterations of those that this run would repeat, and its kept state."""
    wanted_spec = _without_length(asdict(spec))
    runs = store.runs(task=spec.task, model=spec.model, seed=spec.seed, status=Status.FINISHED)
    shorter = {
        run.id: run for run in runs if _without_length(run.spec) == wanted_spec and run.iterations < _total(spec, run)
    }
    kept_states = [record for record in store.weights(list(shorter)) if record.kind == "state"]
    longest = max(kept_states, key=lambda record: record.iteration, default=None)
    return None if longest is None else (shorter[longest.run_id], longest)


def _without_length(spec: Mapping[str, Any]) -> dict[str, Any]:
    training = {name: value for name, value in spec["training"].items() if name not in LENGTH}
    return {**spec, "training": training}


def _total(spec: RunSpec, run: Run) -> int:
    """Return the number of iterations of a run; its epochs are as long as those of the other run."""
    total: int = spec.training["epochs"] * run.iterations_per_epoch
    return min(total, spec.training.get("max_iterations") or total)


def _state(content: bytes, name: str) -> Checkpoint:
    """Return the training state in a file."""
    decoded = decode(content, name)
    try:
        return Checkpoint.read(restore(decoded.facts["structure"], decoded.tensors))
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UsageError(f"{name} is no training state of this version: {BROKEN}") from error
