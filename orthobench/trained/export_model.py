"""Export a trained model: its weights as safetensors, or its program as ONNX or as a PT2 archive of torch."""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path

import torch
from torch import Tensor, nn

from orthobench.errors import UsageError, needs_extra, one_line
from orthobench.foreign.interface import tensors_of
from orthobench.model import Model
from orthobench.options.arguments import ExportFormat
from orthobench.system.files import replacing, storage_error
from orthobench.system.kinds import refuse_other_kinds
from orthobench.task import as_stream
from orthobench.trained.load import TrainedModel

_TRACED = 5
"""The number of steps with which a program for any number is traced."""
KINDS: dict[ExportFormat, str] = {"safetensors": "safetensors", "onnx": "ONNX", "pt2": "PT2"}


@dataclass(frozen=True)
class Exported:
    """An exported file.

    Attributes:
        inputs: the shape of the program's input, where "T" is any number of steps; None for a file with weights only.
        outputs: the shape of its output.
        tokens: whether its input is numbers of symbols in int64, rather than features in float32.
        fixed: why the program has a fixed number of steps although none was given; empty if it has not.
    """

    file: Path
    form: ExportFormat
    inputs: tuple[int | str, ...] | None = None
    outputs: tuple[int | str, ...] | None = None
    tokens: bool = False
    fixed: str = ""


class Program(nn.Module):
    """The model with precomputed matrices, from preprocessed inputs to the task's outputs.

    Inputs are `[time, features]`, or `[time, batch, features]` if `is_batched`; outputs lack the batch likewise.
    Symbols are numbers `[time]` or `[time, batch]`. All steps are valid.
    """

    def __init__(self, model: Model, is_batched: bool) -> None:
        super().__init__()
        # A copy, because fixed weights leave the parameters of the model without effect.
        self.model = copy.deepcopy(model, _detached(model)).eval()
        self.is_batched = is_batched
        with torch.no_grad():
            self.model.fix_weights()

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs."""
        outputs: Tensor = self.model(inputs if self.is_batched else inputs.unsqueeze(1))[0]
        return outputs if self.is_batched else outputs.squeeze(-2)


def _detached(model: nn.Module) -> dict[int, Tensor]:
    """Return the memo with which `copy.deepcopy` detaches the results of computations that modules keep.

    torch cannot copy a tensor that has a graph. `torch.nn.RNNBase` keeps one in a list, `_flat_weights`, if its weight
    is parametrised.
    """
    memo: dict[int, Tensor] = {}
    for module in model.modules():
        for value in vars(module).values():
            memo |= {id(each): each.detach().clone() for each in tensors_of(value) if not each.is_leaf}
    return memo


def export(
    trained: TrainedModel, form: ExportFormat, file: Path, *, steps: int | None = None, batch: int | None = None
) -> Exported:
    """Write a trained model to a file, or replace a file of the same kind.

    The program includes the embedding of the model but not the preprocessing of the task. It runs over any number of
    steps, or that of the task's test data, which must be present, if torch cannot trace the model so.

    Args:
        steps: a fixed number of time steps T, which are then unrolled; None for any number.
        batch: the number of sequences B of an input `[T, B, features]`; None for an input `[T, features]`.

    Raises:
        UsageError: the format needs a missing package, the model cannot be expressed in it, or the
            file exists and is of another kind.
        StorageError: the file cannot be written.
    """
    refuse_other_kinds(file, KINDS[form])
    if form == "safetensors":
        if steps is not None or batch is not None:
            raise UsageError("a file of weights has no steps: leave `steps` and `batch` out")
        _write(file, trained.content)
        return Exported(file, form)
    if form == "onnx":
        _check_onnx()
    signature = trained.signature
    if signature.readout == "positions":
        raise UsageError("a program has no input for the positions that this task reads: write safetensors instead")
    features = () if signature.tokens else (signature.input_size,)
    sizes = (*(() if batch is None else (batch,)), *features)
    # On the CPU, because a program keeps the device on which it was traced.
    program = Program(trained.model.cpu(), is_batched=batch is not None)
    trained.model.to(trained.device)

    def content(length: int | None) -> tuple[bytes, tuple[int, ...]]:
        shape = (length or _TRACED, *sizes)
        inputs = torch.zeros(shape, dtype=torch.int64 if signature.tokens else torch.float32)
        with torch.no_grad():
            outputs = tuple(program(inputs).shape)
        facts = {"spec": asdict(trained.config.spec), "kind": trained.kind, "iteration": trained.iteration}
        facts["steps"] = length
        translate = _onnx if form == "onnx" else _pt2
        return translate(program, inputs, json.dumps(facts), length is None), outputs

    fixed, given = "", steps
    try:
        written, outputs = content(steps)
    except Exception as error:  # torch raises many kinds for programs that it cannot trace
        if steps is not None:
            raise
        fixed, given = _reason(error), _steps(trained)
        written, outputs = content(given)
    _write(file, written)
    if given is not None:
        return Exported(file, form, (given, *sizes), outputs, signature.tokens, fixed)
    every = signature.readout == "all"
    return Exported(file, form, ("T", *sizes), ("T", *outputs[1:]) if every else outputs, signature.tokens)


def _reason(error: BaseException) -> str:
    """Return the first line of the error that began a chain."""
    while error.__cause__ is not None:
        error = error.__cause__
    return one_line(error)


def _steps(trained: TrainedModel) -> int:
    """Return the number of time steps of the task's test data."""
    task = trained.task
    stream = as_stream(task, task.test)
    batch = task.test.batch(torch.arange(1, device=trained.device)) if stream is None else stream.piece(0, 1)
    return len(batch.inputs)


def _check_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise needs_extra("ONNX", f"a package that is not installed ({error.name})", "onnx") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters inside the block, because they warn about their own code and packages that they miss.

    They also log the errors that they raise.
    """
    names = "torch.onnx", "torch.export", "torch._export", "torch._dynamo", "onnxscript"
    loggers = {name: logging.getLogger(name) for name in names}
    levels = {name: log.level for name, log in loggers.items()}
    for log in loggers.values():
        log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, log in loggers.items():
            log.setLevel(levels[name])


def _onnx(program: Program, inputs: Tensor, facts: str, any_length: bool) -> bytes:
    """Return the program as an ONNX file that contains the weights and the facts."""
    axes = ({0: "T"},) if any_length else None
    name = type(program.model).__name__
    with _quiet():
        from onnxscript.optimizer import remove_unused_nodes  # an optional extra

        try:
            exported = torch.onnx.export(
                program,
                (inputs,),
                dynamo=True,
                verbose=False,
                input_names=["inputs"],
                output_names=["outputs"],
                dynamic_shapes=axes,
            )
        except torch.onnx.OnnxExporterError as error:
            raise UsageError(
                f"{name} cannot be expressed in ONNX: write pt2 instead; docs/layers.md lists such models"
            ) from error
        assert exported is not None
        remove_unused_nodes(exported.model)  # the exporter leaves constants, of which runtimes warn when they load it
    exported.model.metadata_props["orthobench"] = facts
    return bytes(exported.model_proto.SerializeToString())


def _pt2(program: Program, inputs: Tensor, facts: str, any_length: bool) -> bytes:
    """Return the program as an archive that `torch.export.load` reads, with the facts in an extra file."""
    content = BytesIO()
    axes = ({0: torch.export.Dim.DYNAMIC},) if any_length else None
    with _quiet():
        exported = torch.export.export(program, (inputs,), dynamic_shapes=axes, strict=False)
        torch.export.save(exported, content, extra_files={"orthobench.json": facts})
    return content.getvalue()


def _write(file: Path, content: bytes) -> None:
    try:
        with replacing(file) as part:
            part.write_bytes(content)
    except OSError as error:
        raise storage_error(file, error) from error
