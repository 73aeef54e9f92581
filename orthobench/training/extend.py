"""Begin a longer run from the training state that a shorter run with the same settings has kept.

The longer run gets the shorter run's rows, and a checkpoint of the state before the shorter run's last evaluation. From
there it is resumed like an interrupted run, so it ends with the same numbers as a run trained from the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from orthobench.errors import UsageError
from orthobench.spec.resolve import RunConfig, RunSpec
from orthobench.store import Run, Status, Store, Weights
from orthobench.system.location import Location, Place
from orthobench.training.checkpoint import Checkpoints
from orthobench.training.learning_rates import length_dependence
from orthobench.training.state import Checkpoint
from orthobench.weights.structure import restore
from orthobench.weights.weights_files import BROKEN, decode, read_weights

LENGTH = ("epochs", "max_iterations")
"""The settings in which a longer run differs. Without a learning-rate schedule, no iteration depends on them."""


def why_not_longer(config: RunConfig) -> str:
    """Return why no shorter run with these settings can be continued to this one, or "" if one can."""
    dependence = length_dependence(config.spec.training)
    return dependence and f"its learning rates depend on its length ({dependence})"


def begin_longer(
    config: RunConfig, store: Store, database: Location, checkpoints: Checkpoints, weights_at: Place | None = None
) -> Run | None:
    """Create a run from the longest shorter run with a kept state, and return the shorter run, if there is one.

    The caller has locked the run. An existing run stays as it is.

    Args:
        weights_at: the folder or URL of weights given on the command line; no other URL is opened.

    Raises:
        UsageError: the kept state is missing, truncated or changed.
        StorageError: the checkpoint cannot be written.
    """
    if store.find(config.spec.key) is not None or why_not_longer(config):
        return None
    chosen = _longest(config.spec, store)
    if chosen is None:
        return None
    shorter, record = chosen
    state = _state(read_weights(database, shorter.key, record, weights_at), str(record.path))
    columns = config.spec.record() | {
        "status": Status.INTERRUPTED,
        "message": None,
        "preset": config.preset,
        "iterations": state.iteration,
        "total_iterations": _total(config.spec, shorter),
        "continued_from": shorter.key,
    }
    # Rows before the checkpoint, because a checkpoint newer than the newest row is not used.
    store.fork(shorter.id, columns, state.logged, state.iteration)
    checkpoints.save(vars(state) | {"key": config.spec.key})
    return shorter


def _longest(spec: RunSpec, store: Store) -> tuple[Run, Weights] | None:
    """Return the longest finished run whose iterations this run would repeat, and its kept state."""
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
    """Return the number of iterations of a run whose epochs are as long as the other run's."""
    total: int = spec.training["epochs"] * run.iterations_per_epoch
    return min(total, spec.training.get("max_iterations") or total)


def _state(content: bytes, name: str) -> Checkpoint:
    """Return the training state in a file."""
    decoded = decode(content, name)
    try:
        return Checkpoint.read(restore(decoded.facts["structure"], decoded.tensors))
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UsageError(f"{name} is not a training state of this version: {BROKEN}") from error
