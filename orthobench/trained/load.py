"""Load the model of a run from its kept weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from pydantic import BaseModel, NonNegativeInt, ValidationError
from torch import Tensor

from orthobench.errors import UsageError
from orthobench.isolation import isolated
from orthobench.model import Model, Signature
from orthobench.model.build import build_model, check_size
from orthobench.options.arguments import WhichWeights
from orthobench.plugins import Catalog
from orthobench.spec.resolve import RunConfig, RunSpec, resolve_again
from orthobench.store import Run, Status, Store, Weights
from orthobench.system.location import Location, Place
from orthobench.task import Batch, Task
from orthobench.weights.weights_files import BROKEN, SUFFIX, Content, decode, read_weights

BY_LENGTH = ("last_valid", "mean")
"""The readouts whose outputs depend on the number of valid steps."""
UNEXPECTED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError)
"""Errors that settings from a damaged file may raise in the code of a model."""


@dataclass
class TrainedModel:
    """A model with the weights of a run, and the run's task.

    Call it with a batch of the task, or with preprocessed inputs `[time, batch, features]` or symbol numbers
    `[time, batch]`. The outputs are `[batch, p]`, or `[time, batch, p]` if the task reads all steps.

    Attributes:
        model: the model, in evaluation mode.
        config: the run's classes and settings.
        signature: the shapes of inputs and outputs.
        kind: "best" or "last".
        iteration: the iteration after which the weights were saved.
        device: the device of the model and of the task's data.
        content: the file of the weights.
    """

    model: Model
    config: RunConfig
    signature: Signature
    kind: str
    iteration: int
    device: torch.device
    content: bytes = field(repr=False)

    @property
    def key(self) -> str:
        """The run's key."""
        return self.config.spec.key

    @cached_property
    def task(self) -> Task:
        """The run's task with its data. Its splits preprocess: `task.test.batch(torch.arange(3)).inputs`.

        Raises:
            UsageError: the data set is missing.
        """
        with isolated():
            return self.config.task_class(self.config.task_settings, self.config.spec.seed, self.device)

    @torch.no_grad()
    def __call__(
        self, inputs: Batch | Tensor, lengths: Tensor | None = None, positions: Tensor | None = None
    ) -> Tensor:
        """Return the outputs for preprocessed inputs.

        Args:
            inputs: a batch with its lengths and positions, or inputs alone.
            lengths: the number of valid steps of each sequence, `[batch]`; None for a single sequence, or if the task
                has sequences of one length.
            positions: the steps to read, `[answers, batch]`, if the task reads certain steps.

        Raises:
            UsageError: the outputs depend on lengths or positions, and these are missing, or are given twice.
        """
        if isinstance(inputs, Batch):
            if lengths is not None or positions is not None:
                raise UsageError("a batch has its own lengths and positions: leave `lengths` and `positions` out")
            lengths, positions, inputs = inputs.lengths, inputs.positions, inputs.inputs
        elif lengths is None and self.signature.readout in BY_LENGTH and inputs.shape[1] > 1:
            raise UsageError(
                f"the sequences of {self.config.spec.task} have several lengths, and padding would count as steps: "
                "give the whole batch, or `lengths`"
            )
        elif positions is None and self.signature.readout == "positions":
            raise UsageError(f"{self.config.spec.task} reads certain steps: give the whole batch, or `positions`")
        x, valid, read = (None if t is None else t.to(self.device) for t in (inputs, lengths, positions))
        outputs: Tensor = self.model(x, lengths=valid, positions=read)[0]
        return outputs


def load_run(
    store: Store,
    database: Location,
    run: Run,
    which: WhichWeights | None,
    device: torch.device,
    catalog: Catalog,
    weights_at: Place | None = None,
) -> TrainedModel:
    """Return the model of a stored run.

    Args:
        which: which weights; None: the best ones if they are kept, else the last ones.
        weights_at: as for `weights.files.read`.

    Raises:
        UsageError: the run keeps no such weights, or its file is missing, cut off, changed, of another model or at
            another URL.
    """
    record = choose_weights(run, store.weights([run.id]), which)
    content = read_weights(database, run.key, record, weights_at)
    trained = load_content(content, str(record.path), device, catalog)
    if trained.key != run.key:
        raise UsageError(f"weights {record.path} are of run {trained.key}, not of run {run.key}: {BROKEN}")
    return trained


def choose_weights(run: Run, records: Sequence[Weights], which: WhichWeights | None) -> Weights:
    """Return the record of a run's best or last weights.

    Raises:
        UsageError: the run keeps no such weights; the message says how to train them.
    """
    by_kind = {record.kind: record for record in records if record.kind != "state"}
    for kind in ("best", "last") if which is None else (which,):
        if kind in by_kind:
            return by_kind[kind]
    if not Status(run.status).is_final:
        raise UsageError(f"run {run.key} has not finished and has no weights yet: run its command again to resume it")
    what = f"only its {' and '.join(by_kind)} weights" if by_kind else "no weights"
    raise UsageError(
        f"run {run.key} has kept {what}: train it again with `force=True` and `keep_weights={which or 'best'!r}`; "
        f"`orthobench show {run.key}` prints its command"
    )


def load_file(file: Path, device: torch.device, catalog: Catalog) -> TrainedModel:
    """Return the model of a file of weights.

    Raises:
        UsageError: the file cannot be read, is cut off, or was not written by orthobench.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}: name a file of weights, or a run") from error
    return load_content(content, str(file), device, catalog)


def is_file(run: str | Path) -> bool:
    """Return whether this is the name of a file of weights, as opposed to the key of a run."""
    return isinstance(run, Path) or run.endswith(SUFFIX)


def load_content(content: bytes, name: str, device: torch.device, catalog: Catalog) -> TrainedModel:
    """Return the model of a file's content.

    Args:
        name: the file, as errors name it.

    Raises:
        UsageError: the content is cut off or is not a model's, or the run's plugins differ here.
    """
    decoded = decode(content, name)
    facts = _described(decoded, name)
    try:
        config = resolve_again(catalog, facts.spec, is_trained=True)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error
    try:
        _check_sizes(decoded, config, facts.signature, name)
        model = build_model(config.model_class, config.model_settings, facts.signature, torch.Generator())
        model.load_state_dict(decoded.tensors)
    except UNEXPECTED as error:
        reason = " ".join(str(error).split())[:400]
        raise UsageError(f"weights {name} are not of this {facts.spec.model}: {BROKEN} ({reason})") from error
    model.to(device).eval()
    return TrainedModel(model, config, facts.signature, facts.kind, facts.iteration, device, content)


class _Facts(BaseModel):
    """The facts of a file of weights, with their types."""

    key: str
    kind: WhichWeights
    iteration: NonNegativeInt
    spec: RunSpec
    signature: Signature


def _described(decoded: Content, name: str) -> _Facts:
    """Return the facts of a file of weights.

    Raises:
        UsageError: a fact is missing or of another type, or the run's settings have another key.
    """
    if decoded.facts.get("kind") == "state":
        raise UsageError(f"{name} is a training state: give the file of the best or the last weights")
    try:
        facts = _Facts.model_validate(decoded.facts)
        known = facts.key == facts.spec.key
    except ValidationError as error:
        reasons = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:3])
        raise UsageError(f"{name} lacks facts of its run ({reasons}): {BROKEN}") from error
    except (ValueError, TypeError, RecursionError) as error:  # settings that JSON cannot hold, such as NaN
        raise UsageError(f"{name} has settings that no run can have ({error}): {BROKEN}") from error
    if not known:
        raise UsageError(f"{name} has a key that does not follow from its settings: {BROKEN}")
    return facts


def _check_sizes(decoded: Content, config: RunConfig, signature: Signature, name: str) -> None:
    """Refuse a model that is too large for its file, or for this machine, before it takes memory.

    Raises:
        UsageError: its sizes are larger than the number of its weights, or its parameters than the memory.
    """
    settings, elements = config.model_settings, sum(tensor.numel() for tensor in decoded.tensors.values())
    sizes = [settings.hidden_size, settings.layers, signature.input_size, signature.output_size]
    if min(sizes) < 1 or max(sizes) > elements:
        raise UsageError(
            f"weights {name} are not of this {config.spec.model}: {BROKEN} (the file has {elements} numbers for a "
            f"model of size {max(sizes)})"
        )
    check_size(config.model_class, settings, signature)
