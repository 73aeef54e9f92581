"""A layer that runs the cells of a model class over time, with the interface of `torch.nn.RNN`."""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import PackedSequence
from torch.utils.hooks import RemovableHandle

from orthobench.errors import UsageError, unknown
from orthobench.model import Model, Signature, State
from orthobench.nn.compiled import register, run_opaque
from orthobench.nn.packed_sequences import run_cell
from orthobench.recurrence.backends import outside_autocast

LayerState = Tensor | tuple[Tensor, ...]
"""The state of a layer: one tensor `[num_layers * directions, B, features]`, or a tuple of them, as for an LSTM."""


LOW_TYPES = (torch.bfloat16, torch.float16)
"""The types of low precision, which inputs may have under `torch.autocast`."""


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """Return the type of an enabled `torch.autocast` for this device, or None."""
    if not torch.amp.is_autocast_available(device.type) or not torch.is_autocast_enabled(device.type):
        return None
    return torch.get_autocast_dtype(device.type)


_BIASES = {"bias", "candidate_bias", "recurrent_bias"}
"""The names of the biases that a cell does not need. Others, such as a gate's, decide how it starts."""

_EMBEDDING, _BLOCKS = "put torch.nn.Embedding before the layer", "give num_layers, and put blocks around a layer"
_OF_MODELS = {"embedding_size": _EMBEDDING, "embedding_start": _EMBEDDING, "layers": _BLOCKS, "block": _BLOCKS}
"""The settings that a layer does not have, and what takes their place."""

_R = TypeVar("_R")


def _outside_autocast(method: Callable[..., _R]) -> Callable[..., _R]:
    """Decorate a method of a layer that computes in the precision of the parameters."""

    @functools.wraps(method)
    def run(self: RecurrentLayer, *args: Any, **kwargs: Any) -> _R:
        with outside_autocast(self._any_tensor().device):
            return method(self, *args, **kwargs)

    return run


class RecurrentLayer(nn.Module):
    """The base class of layers; a subclass names its `model`.

    Inputs are `[T, B, input_size]`, `[B, T, input_size]` with `batch_first`, `[T, input_size]` without a batch, or a
    `PackedSequence`. Outputs have `layer.output_size` features for each direction, and states `layer.features`. For
    most cells both are the number of hidden units, and a complex unit counts as two. LRU outputs the features of its
    block, and EURNN the real parts of its units.

    Constrained weights are functions of free parameters, so any torch optimiser preserves the constraint. Some cells
    also need `layer.after_step()` after each step of the optimiser: see `needs_after_step`. In float32 the layer runs
    on orthobench's kernels, which can be differentiated once; for other types, under `use_backend("reference")` and
    when exported it runs in PyTorch.

    Args:
        input_size: the number of input features m.
        hidden_size: the number of hidden units n.
        num_layers: the number of layers, each of which reads the outputs of the one below.
        bias: whether the biases are trained; without, they stay 0.
        batch_first: whether inputs and outputs are `[B, T, features]`. States are not affected.
        dropout: the probability of a zero among the outputs of each layer but the last, in training.
        bidirectional: whether a second cell in each layer reads the sequence from its end; outputs are concatenated.
        proj_size: the features of a linear map of each layer's outputs; 0: no map. States are not affected.
        device: the device of the parameters.
        dtype: the floating-point type of the parameters.
        nonlinearity: the setting `activation` of a cell that has a choice, by the name that `torch.nn.RNN` gives it.
        generator: the source of the initial parameters; default: a generator seeded from torch's.
        settings: the settings of the cell, as `orthobench plugins NAME` lists them.

    Raises:
        UsageError: a size or a setting is invalid.
    """

    model: ClassVar[type[Model]]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        nonlinearity: str | None = None,
        generator: torch.Generator | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        input_size = _whole("input_size", input_size, 1)
        num_layers = _whole("num_layers", num_layers, 1)
        proj_size = _whole("proj_size", proj_size, 0)
        if not 0 <= dropout < 1:
            raise UsageError(f"dropout={dropout} should be at least 0 and below 1")
        if not isinstance(bias, (bool, np.bool_)):
            raise UsageError(f"bias={bias} should be true or false, as in torch.nn.LSTM; give nonlinearity by its name")
        if dropout and num_layers == 1:
            message = f"dropout={dropout} acts between layers, so it does nothing with num_layers=1"
            warnings.warn(message, stacklevel=2)
        for name, fix in _OF_MODELS.items():
            if name in settings:
                raise UsageError(f"{name} is a setting of whole models: {fix}")
        known = self.model.Settings.model_fields
        if nonlinearity is not None:
            if "activation" not in known:
                raise UsageError(f"nonlinearity={nonlinearity}: {type(self).__name__} has only one nonlinearity")
            settings["activation"] = nonlinearity
        for name in settings:
            if name not in known:
                raise unknown("setting", name, known)
        self.settings = self.model.Settings.read({**settings, "hidden_size": hidden_size})
        self.input_size, self.hidden_size = input_size, self.settings.hidden_size
        self.num_layers, self.bias = num_layers, bool(bias)
        self.batch_first, self.dropout, self.bidirectional = batch_first, dropout, bidirectional
        self.directions = 2 if bidirectional else 1
        self.proj_size = proj_size
        self.features = self.model.state_features(self.settings)
        self.output_size = proj_size or self.model.output_features(self.settings)
        target = torch.get_default_device() if device is None else torch.device(device)
        is_meta = target.type == "meta"
        self.cells, self.projections = self._drawn(generator, "meta" if is_meta else "cpu")
        self._register()
        self.to(device=None if is_meta else target, dtype=dtype)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__doc__ is None:
            cls.__doc__ = inspect.getdoc(inspect.getmodule(cls.model))

    def _drawn(self, generator: torch.Generator | None, device: str = "cpu") -> tuple[nn.ModuleList, nn.ParameterList]:
        """Return newly drawn cells and projections.

        Args:
            device: "meta" for tensors without memory. Others are drawn on the CPU, so that the numbers do not depend on
                the device of the layer.
        """
        cells, projections = nn.ModuleList(), nn.ParameterList()
        with torch.device(device), torch.autocast("cpu", enabled=False):
            generator = generator or _drawn_generator()
            for layer in range(self.num_layers):
                inputs = self.directions * self.output_size if layer else self.input_size
                for _ in range(self.directions):
                    cells.append(self.model(self.settings, Signature(inputs, 0, "all"), generator))
                    if not self.bias:
                        self._fix_biases(cells[-1])
                    if self.proj_size:
                        weight = torch.empty(self.proj_size, self.model.output_features(self.settings))
                        projections.append(nn.Parameter(nn.init.xavier_uniform_(weight, generator=generator)))
        return cells, projections

    def _fix_biases(self, cell: nn.Module) -> None:
        """Replace a cell's biases by zeros that nothing trains, not even after `requires_grad_(True)`."""
        biases = {name: parameter for name, parameter in cell.named_parameters() if name.endswith("bias")}
        if fixed := sorted(biases.keys() - _BIASES):
            raise UsageError(f"bias=False: {type(self).__name__} needs its biases ({', '.join(fixed)})")
        for name, bias in biases.items():
            delattr(cell, name)
            cell.register_buffer(name, torch.zeros_like(bias, requires_grad=False))

    def flatten_parameters(self) -> None:
        """Do nothing: the method exists for programs that call it on layers of torch."""

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw all parameters and buffers again, in place.

        A weight with a parametrisation of `torch.nn.utils.parametrize` starts at what that makes of the drawn value.
        """
        cells, projections = self._drawn(generator)
        fresh = nn.ModuleDict({"cells": cells, "projections": projections})
        with torch.no_grad():
            for name, value in fresh.named_parameters():
                path, _, own = name.rpartition(".")
                if parametrize.is_parametrized(owner := self.get_submodule(path), own):
                    # Detached, because a Parameter would replace the parametrisation.
                    setattr(owner, own, value.detach().to(getattr(owner, own)))
                else:
                    self.get_parameter(name).copy_(value)
            for name, drawn in fresh.named_buffers():
                self.get_buffer(name).copy_(drawn)

    @property
    def needs_after_step(self) -> bool:
        """Whether `after_step` does anything for this layer's cells."""
        return any(cell.needs_step_end for cell in self._models())

    @_outside_autocast
    @torch.no_grad()
    def after_step(self) -> None:
        """Restore what an optimiser's step does not keep, such as the unitary matrix of `FullURNN`."""
        for cell in self._models():
            if cell.needs_step_end:
                with _unsharded(cell):
                    cell.after_step()
                    cell.retract()

    def attach(self, optimizer: torch.optim.Optimizer) -> RemovableHandle:
        """Have an optimiser call `after_step` after each of its steps, for programs that call the optimiser themselves.

        Returns:
            A handle whose method `remove` ends it.
        """
        return optimizer.register_step_post_hook(lambda *_: self.after_step())

    def param_groups(self, lr: float, constrained_lr: float | None = None) -> list[dict[str, Any]]:
        """Return parameter groups for an optimiser of torch: the free parameters, then those of constrained matrices.

        Args:
            lr: the learning rate of the free parameters.
            constrained_lr: that of the parameters of constrained matrices; None: the same.

        Raises:
            UsageError: there is a separate rate, but no constrained matrix.
        """
        names = self.model.matrix_parameters
        constrained: list[nn.Parameter] = []
        free: list[nn.Parameter] = list(self.projections)
        for cell in self._models():
            for name, parameter in cell.named_parameters():
                (constrained if name.partition(".")[0] in names else free).append(parameter)
        groups: list[dict[str, Any]] = [{"params": free, "lr": lr}]
        if constrained:
            groups.append({"params": constrained, "lr": lr if constrained_lr is None else constrained_lr})
        elif constrained_lr is not None:
            raise UsageError(f"constrained_lr={constrained_lr}: {type(self).__name__} has no constrained matrix")
        return groups

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        for key in self._fixed_biases(prefix):
            given = state_dict.get(key)
            if given is not None and not given.is_meta and given.count_nonzero():
                state_dict[key] = torch.zeros_like(given)
                unexpected_keys.append(key)  # as for a layer of torch, which has no such key
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def _fixed_biases(self, prefix: str) -> list[str]:
        """Return the names in a state_dict of the biases that stay zero."""
        if self.bias:
            return []
        names = (f"cells.{index}.{name}" for index, cell in enumerate(self.cells) for name, _ in cell.named_buffers())
        return [prefix + name for name in names if name.rpartition(".")[2] in _BIASES]

    @_outside_autocast
    @torch.no_grad()
    def for_inference(self) -> Self:
        """Return a copy in evaluation mode whose recurrent matrices are computed once, for inference or `torch.export`.

        The parameters of its constrained matrices have no effect, so train the layer itself, not the copy.
        """
        fixed = copy.deepcopy(self).eval()
        for cell in fixed._models():
            cell.fix_weights()
        return fixed

    @_outside_autocast
    def penalty(self) -> Tensor | None:
        """Return the sum of the cells' penalties, a scalar to add to the loss; None if the cells have none."""
        penalties = [penalty for cell in self._models() if (penalty := cell.penalty()) is not None]
        return torch.stack(penalties).sum() if penalties else None

    def forward(
        self,
        inputs: Tensor | PackedSequence | None = None,
        state: LayerState | None = None,
        *,
        input: Tensor | PackedSequence | None = None,
        hx: LayerState | None = None,
    ) -> tuple[Tensor | PackedSequence, LayerState]:
        """Run the layer.

        Args:
            inputs: see the class.
            state: the initial state of the sequences; default: the cells' own. For a packed batch and `batch_first`
                it is as for `torch.nn.RNN`.
            input: the inputs by the name that `torch.nn.RNN` gives them.
            hx: the initial state by the name that `torch.nn.RNN` gives it.

        Under `torch.autocast` inputs and state may have the lower precision too. The layer computes in the precision of
        its parameters, and returns what `torch.nn.LSTM` returns: the type of autocast, or float64 if its parameters
        are float64.

        Returns:
            The outputs in the layout of the inputs, and the state after the last step of each sequence and direction.

        Raises:
            UsageError: the shapes or types do not fit, or an argument is given under both names.
            TypeError: there are no inputs.
        """
        inputs, state = only_one("inputs", inputs, "input", input), only_one("state", state, "hx", hx)
        if inputs is None:
            raise TypeError(f"{type(self).__name__}.forward() needs inputs: give inputs, or input as in torch")
        data = inputs[0] if isinstance(inputs, PackedSequence) else inputs
        dtype, low = self._dtype(), autocast_dtype(data.device)
        if data.dtype != dtype and (low is None or data.dtype not in LOW_TYPES):
            raise UsageError(f"inputs are {data.dtype}, but the parameters are {dtype}: give inputs.to({dtype})")
        if low is None:
            return self._forward(inputs, state)
        with outside_autocast(data.device):
            outputs, final = self._forward(_converted(inputs, dtype), _converted(state, dtype))
        return (outputs, final) if dtype == torch.float64 else (_converted(outputs, low), _converted(final, low))

    def _any_tensor(self) -> Tensor:
        """Return a tensor that has the type and device of the layer."""
        for own in self.cells[0]._parameters.values():  # the usual case, in a fifth of the time
            if own is not None:
                return own
        return next(itertools.chain(self.parameters(), self.buffers()))

    def _dtype(self) -> torch.dtype:
        """Return the type of the parameters.

        Raises:
            UsageError: a type of low precision, in which a constrained matrix would not keep its constraint.
        """
        dtype = self._any_tensor().dtype
        if dtype not in (torch.float32, torch.float64):
            raise UsageError(
                f"a layer's parameters should be float32 or float64, not {dtype}: call layer.float(), and use "
                "torch.autocast for mixed precision"
            )
        return dtype

    def _forward(
        self, inputs: Tensor | PackedSequence, state: LayerState | None
    ) -> tuple[Tensor | PackedSequence, LayerState]:
        if isinstance(inputs, PackedSequence):
            return self._forward_packed(inputs, state)
        batched = inputs.dim() == 3
        x = inputs if batched else inputs.unsqueeze(-2)
        x = x.transpose(0, 1) if self.batch_first and batched else x
        if x.dim() != 3 or not x.shape[0] or x.shape[-1] != self.input_size:
            layout = "[batch, time, features]" if self.batch_first else "[time, batch, features]"
            raise UsageError(
                f"inputs {list(inputs.shape)} should be {layout} or [time, features], "
                f"with {self.input_size} features and at least one step"
            )
        if not batched and state is not None:
            state = state[:, None] if isinstance(state, Tensor) else tuple(each[:, None] for each in state)
        starts = self._starts(state, x.shape[1])
        if x.shape[1]:
            x, final = self._through_layers(x, starts, None)
        else:  # a row of zeros runs instead, which gives every parameter a gradient of zero
            x, starts = _with_row(x), [tuple(_with_row(each) for each in start) for start in starts]
            x, final = self._through_layers(x, starts, None)
            x, final = x[:, :0], [each[:, :0] for each in final]
        x = x.transpose(0, 1) if self.batch_first and batched else x
        return (x, _as_given(final)) if batched else (x[:, 0], _as_given([each[:, 0] for each in final]))

    def _forward_packed(self, inputs: PackedSequence, state: LayerState | None) -> tuple[PackedSequence, LayerState]:
        data, batch_sizes, order, original = inputs
        if data.dim() != 2 or data.shape[-1] != self.input_size:
            raise UsageError(f"packed inputs {list(data.shape)} should have {self.input_size} features")
        if state is not None and order is not None:
            state = state[:, order] if isinstance(state, Tensor) else tuple(each[:, order] for each in state)
        x, final = self._through_layers(data, self._starts(state, int(batch_sizes[0])), batch_sizes)
        if original is not None:
            final = [each[:, original] for each in final]
        return PackedSequence(x, batch_sizes, order, original), _as_given(final)

    def _through_layers(
        self, x: Tensor, starts: list[State], batch_sizes: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """Run all layers; return the last outputs and each state tensor of all cells, `[cells, B, features]`."""
        finals = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(self.directions):
                index = layer * self.directions + direction
                output, final = self._run_cell(index, x, starts[index], batch_sizes, direction == 1)
                outputs.append(nn.functional.linear(output, self.projections[index]) if self.proj_size else output)
                finals.append(final)
            x = torch.cat(outputs, dim=-1) if self.bidirectional else outputs[0]
            if self.dropout and layer < self.num_layers - 1:
                x = nn.functional.dropout(x, self.dropout, self.training)
        if len(finals) == 1:  # without a copy
            return x, [each[None] for each in finals[0]]
        return x, [torch.stack(tensors) for tensors in zip(*finals, strict=True)]

    def _run_cell(
        self, index: int, x: Tensor, start: State, batch_sizes: Tensor | None, reverse: bool
    ) -> tuple[Tensor, State]:
        if torch.compiler.is_compiling() and not torch.compiler.is_exporting():
            outputs = self.model.output_features(self.settings)
            return run_opaque(self.cells[index], self._numbers[index], x, start, batch_sizes, reverse, outputs)
        return run_cell(cast(Model, self.cells[index]), x, start, batch_sizes, reverse)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._register()

    def _register(self) -> None:
        """Give the cells of this layer, or of its copy, numbers by which compiled programs find them."""
        self._numbers = [register(cell) for cell in self.cells]

    def _starts(self, state: LayerState | None, batch_size: int) -> list[State]:
        """Return the initial state of every cell."""
        defaults = [cell.initial_state(batch_size) for cell in self._models()]
        if state is None:
            return defaults
        tensors = (state,) if isinstance(state, Tensor) else tuple(state)
        expected = [len(defaults), batch_size, self.features]
        if [list(each.shape) for each in tensors] != [expected] * len(defaults[0]):
            kind = f"{len(defaults[0])} tensors" if len(defaults[0]) > 1 else "one tensor"
            raise UsageError(f"the state should be {kind} of shape {expected}, not {[list(t.shape) for t in tensors]}")
        for given, own in zip(tensors, defaults[0], strict=True):
            if (given.dtype, given.device) != (own.dtype, own.device):
                raise UsageError(f"the state is {given.dtype} on {given.device}, not {own.dtype} on {own.device}")
        return list(zip(*(each.unbind() for each in tensors), strict=True))

    def _models(self) -> list[Model]:
        return [cell for cell in self.cells if isinstance(cell, Model)]

    def extra_repr(self) -> str:
        options = {
            "num_layers": (self.num_layers, 1),
            "bias": (self.bias, True),
            "batch_first": (self.batch_first, False),
            "dropout": (self.dropout, 0.0),
            "bidirectional": (self.bidirectional, False),
            "proj_size": (self.proj_size, 0),
        }
        changed = {name: value for name, (value, default) in options.items() if value != default}
        changed |= self.settings.model_dump(exclude={"hidden_size"}, exclude_unset=True)
        return ", ".join((f"{self.input_size}, {self.hidden_size}", *(f"{k}={v}" for k, v in changed.items())))


def only_one(name: str, value: _R, alias: str, other: _R) -> _R:
    """Return the value of an argument that has two names; None if it is not given.

    Raises:
        UsageError: it is given under both names.
    """
    if value is not None and other is not None:
        raise UsageError(f"{name} and {alias} are the same argument: give one of them")
    return other if value is None else value


def _whole(name: str, value: Any, least: int) -> int:
    """Return a size as Python's own type; whole numbers of NumPy count.

    Raises:
        UsageError: it is not a whole number, or too small.
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise UsageError(f"{name}={value} should be a whole number, at least {least}")
    return int(value)


@contextmanager
def _unsharded(cell: nn.Module) -> Iterator[None]:
    """Put whole tensors in place of the parameters of which `fully_shard` leaves each process a part, then share them.

    A matrix is restored by all of its entries.
    """
    parts: dict[str, Any] = {name: each for name, each in cell.named_parameters() if hasattr(each, "full_tensor")}
    wholes = {name: nn.Parameter(part.full_tensor()) for name, part in parts.items()}
    _exchange(cell, wholes)
    try:
        yield
    finally:
        _exchange(cell, parts)
    for name, part in parts.items():
        from torch.distributed.tensor import distribute_tensor  # only here, because its import takes long

        part.copy_(distribute_tensor(wholes[name].detach(), part.device_mesh, part.placements))


def _exchange(module: nn.Module, parameters: dict[str, nn.Parameter]) -> None:
    for name, parameter in parameters.items():
        path, _, own = name.rpartition(".")
        module.get_submodule(path).register_parameter(own, parameter)


def _drawn_generator() -> torch.Generator:
    """Return a generator whose seed is drawn from torch's default generator, so that `torch.manual_seed` fixes it."""
    return torch.Generator().manual_seed(int(torch.randint(2**62, (), device="cpu")))


def _with_row(tensor: Tensor) -> Tensor:
    """Return an empty batch `[..., 0, features]` with a row of zeros, `[..., 1, features]`."""
    return nn.functional.pad(tensor, (0, 0, 0, 1))


def _converted(value: Any, dtype: torch.dtype) -> Any:
    """Return inputs, outputs or a state in another type."""
    if isinstance(value, (Tensor, PackedSequence)):
        return value.to(dtype)
    return None if value is None else tuple(each.to(dtype) for each in value)


def _as_given(tensors: list[Tensor]) -> LayerState:
    return tensors[0] if len(tensors) == 1 else tuple(tensors)
