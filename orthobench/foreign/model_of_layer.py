"""Models from layers of other programs: any `nn.Module` that runs over sequences, or a cell that runs one step.

The constructor's signature says which arguments are sizes; the others become settings (`constructor`). How the layer is
called follows from a trial pass (`trial`).

A layer without an argument for the size of its inputs has one width. A linear map in front, which starts as torch's
Linear, brings the inputs to this width if they have another one.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import itertools
import json
import math
import re
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils._pytree import TreeSpec, tree_structure, tree_unflatten

from orthobench.errors import UsageError
from orthobench.foreign.constructor import WRAP, Constructor, read_constructor, settings_class
from orthobench.foreign.interface import Interface, LayerValue, Unfit, tensors_of
from orthobench.foreign.trial import INPUTS, LayerTrial, Refused, device_of
from orthobench.isolation import isolated, seed_generators
from orthobench.matrices.constrain import constrain
from orthobench.matrices.initial import torch_linear_
from orthobench.model.base import Model, ModelSettings, Signature, State
from orthobench.recurrence import GradientTrace, has_any_length, scan_steps
from orthobench.recurrence.compiler.cell import CompiledCell
from orthobench.settings import text
from orthobench.system.own_code import place_of

_TRIAL_SIZES = (8, 16)
"""Hidden sizes of two trials, from which the number of outputs at other sizes follows."""

_NAMED = 4
"""The largest number of parameters that a warning names."""


# Cached, because the trials are remembered by class, and a layer should have the same class each time.
@functools.cache
def model_of(layer: Any, name: str) -> type[Foreign]:
    """Return the model class of a layer's class.

    Args:
        name: the name by which the user calls the layer, such as "torch.nn:GRU".

    Raises:
        UsageError: the class is not an `nn.Module`, or its constructor has no argument for a size.
    """
    if not (inspect.isclass(layer) and issubclass(layer, nn.Module)):
        raise UsageError("it is not a class derived from torch.nn.Module")
    constructor, paper = read_constructor(layer), getattr(layer, "paper", "")
    members: dict[str, Any] = {
        "title": name,
        "paper": paper if isinstance(paper, str) else "",
        "Settings": settings_class(layer, name, constructor),
        "module_class": layer,
        "name": name,
        "constructor": constructor,
        "data_files": getattr(layer, "data_files", ()),
        "__doc__": inspect.getdoc(layer),
        "__module__": __name__,
    }
    return type(layer.__name__, (Foreign,), members)


@contextlib.contextmanager
def _drawing(seed: int) -> Iterator[None]:
    """Seed the random generators in the `with` block; what is printed is dropped."""
    with isolated(), contextlib.redirect_stdout(io.StringIO()):
        seed_generators(seed)
        yield


def _drawn_seed(generator: torch.Generator) -> int:
    """Draw a seed; 0 for a model without memory, whose weights have no values."""
    try:
        return int(torch.randint(2**62, (), generator=generator, device="cpu"))
    except RuntimeError:
        return 0


class Foreign(Model):
    """The base class of the models that `model_of` creates.

    Attributes:
        module_class: the class of the layer.
        name: the name by which the user calls it.
        constructor: the arguments of its constructor.
    """

    module_class: ClassVar[type[nn.Module]]
    name: ClassVar[str]
    constructor: ClassVar[Constructor]

    def __init__(self, settings: ModelSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        size, units = signature.input_size, settings.hidden_size
        self.interface, self.units = self.trial(settings), units
        self.map_weight: nn.Parameter | None = None
        if self.interface.has_width and size != units:
            weight, bias = torch.empty(units, size), torch.empty(units)
            self.map_weight = nn.Parameter(torch_linear_(weight, size, generator))
            self.map_bias = nn.Parameter(torch_linear_(bias, size, generator))
        with _drawing(_drawn_seed(generator)):
            size = units if self.interface.has_width else size
            self.layer = self.make(settings, size, units)
            self._shapes = self._state_shapes(size)
        self.compiled_cell = CompiledCell(self.layer, self._step) if self.interface.way.is_cell else None
        self.step_matrices = tuple(name for name in self.recurrent_matrices() if not name.endswith("]"))

    @classmethod
    def make(cls, settings: ModelSettings, inputs: int, units: int) -> nn.Module:
        """Construct the layer; the weights come from the global generators.

        Raises:
            UsageError: weights should be constrained, and the layer has no recurrent weights that are known.
        """
        given = {cls.constructor.hidden: units, **cls.constructor.fixed}
        if cls.constructor.inputs is not None:
            given = {cls.constructor.inputs: inputs, **given}
        for argument in cls.constructor.arguments:
            value = getattr(settings, argument.setting)
            if not (argument.is_optional and value is None):
                given[argument.name] = value
        layer = cls.constructor.call(cls.module_class, given)
        if (constraint := getattr(settings, "constrain", None)) is not None:
            if not (weights := _recurrent_weights(layer)):
                raise UsageError(
                    f"{cls.name} has no weight_hh to constrain: name the square weights in its class, such as "
                    f"recurrent_weights = ('W',), or leave constrain={constraint} out"
                )
            for weight in weights:
                owner, _, own = weight.rpartition(".")
                constrain(layer.get_submodule(owner), own, constraint)
        return layer

    @classmethod
    def _arguments(cls, settings: Any, inputs: int, units: int) -> str:
        """Say with which sizes and settings other than the defaults the constructor is called."""
        words = [
            f"{argument.setting}={text(getattr(settings, argument.setting))}"
            for argument in cls.constructor.arguments
            if argument.is_required or getattr(settings, argument.setting) != argument.default
        ]
        sizes = [f"{cls.constructor.inputs}={inputs}"] if cls.constructor.inputs else []
        return "for " + ", ".join([*words, *sizes, f"{cls.constructor.hidden}={units}"])

    @classmethod
    def trial(cls, settings: ModelSettings) -> Interface:
        """Return the interface of the layer with these settings.

        Raises:
            UsageError: the layer does not work as a model; one line that says what is missing.
        """
        return _trial(cls, cls._fixed(settings), settings.hidden_size)

    @classmethod
    def faults(cls, settings: ModelSettings) -> list[str]:
        """Return what is wrong with the layer, one line each.

        No gradient reaches earlier steps or some parameters, or equal seeds do not give equal weights.

        Raises:
            UsageError: the layer does not work as a model.
        """
        return list(_faults(cls, cls._fixed(settings), cls.trial(settings)))

    @classmethod
    def _fixed(cls, settings: ModelSettings) -> str:
        """Return the settings on which a trial depends besides the hidden size, as JSON to be hashed."""
        names = {"interface", *(each.setting for each in cls.constructor.arguments)}
        return json.dumps(settings.model_dump(mode="json", include=names), sort_keys=True)

    @classmethod
    def state_features(cls, settings: ModelSettings) -> int:
        return cls.trial(settings).outputs(settings.hidden_size)

    def initial_state(self, batch_size: int) -> State:
        """Return zeros if the layer starts from zeros and carries a state, else no tensors."""
        if not self.interface.from_zero:
            return ()
        zeros = [self.output_weight.new_zeros(batch_size, math.prod(shape)) for shape, _, _ in self._shapes]
        return tuple(
            each if kind.is_floating_point else each.to(each.dtype.to_complex() if kind.is_complex else kind)
            for each, (_, _, kind) in zip(zeros, self._shapes, strict=True)
        )

    def run(
        self, inputs: Tensor, state: State | None = None, trace: GradientTrace | None = None
    ) -> tuple[Tensor, State]:
        return self.states(self.embed(inputs), state or (), trace)

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        x = inputs if self.map_weight is None else nn.functional.linear(inputs, self.map_weight, self.map_bias)
        own = self._unpacked(state) if state else None
        if self.interface.from_zero and has_any_length(x):
            return self._scanned(x, state)
        if self.compiled_cell is not None and self.interface.from_zero and self.interface.traced == (0, 0):
            start = state or self.initial_state(x.shape[1])
            if (result := self.compiled_cell.by_kernel(x, start, trace)) is not None:
                return result
        # Cached, because a parametrised weight, such as an orthogonal one, would be computed again at each step.
        with parametrize.cached():
            if trace is not None and self.interface.traced is not None:
                return self._step_by_step(x, own, trace)
            outputs, final = self.interface.way.call(self.layer, x, own, self.units)
            return outputs, self._packed(final) if self.interface.from_zero else ()

    def _step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Run one step of a cell."""
        output, after = self.interface.way.step(self.layer, x, self._unpacked(state), self.units)
        return output, self._packed(after)

    def _step_by_step(self, x: Tensor, state: LayerValue, trace: GradientTrace) -> tuple[Tensor, State]:
        """Run one step at a time, so that the state is one tensor in the output and in the next step."""
        assert self.interface.traced is not None
        position, block = self.interface.traced
        hidden = []
        for step in x.split(1):
            _, after = self.interface.way.call(self.layer, step, state, self.units)
            parts = list(self._packed(after))
            blocks = list(parts[position].split(self.features, dim=1))
            hidden.append(blocks[block])
            parts[position] = torch.cat(blocks, dim=1) if len(blocks) > 1 else blocks[0]
            state = self._unpacked(tuple(parts))
        trace.watch("h", hidden)
        return torch.stack(hidden), self._packed(state) if self.interface.from_zero else ()

    def _scanned(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Run one step at a time in an exported program for any number of steps."""

        def step(state: State, inputs: State) -> tuple[State, Tensor]:
            output, after = self.interface.way.call(self.layer, inputs[0][None], self._unpacked(state), self.units)
            return self._packed(after), output[0]

        for module in self.layer.modules():
            if isinstance(module, nn.RNNBase):
                module._init_flat_weights()  # it would do so in a step, which must not change the layer
        return scan_steps(step, state or self.initial_state(x.shape[1]), (x,))

    def readout(self, outputs: Tensor, final: State) -> Tensor:
        return outputs[-1] if self.signature.readout == "last" else outputs

    def state_parts(self) -> dict[str, slice]:
        parts, start = {}, 0
        for number, (shape, _, _) in enumerate(self._shapes):
            parts["h" if number == 0 else f"h{number + 1}"] = slice(start, start + math.prod(shape))
            start += math.prod(shape)
        return parts

    def recurrent_matrices(self) -> dict[str, Tensor]:
        """Return the matrices that the layer declares as `recurrent_weights`, or else those named `weight_hh`.

        Blocks of one weight, such as those of gates, are numbered: "weight_hh_l0[1]".
        """
        matrices: dict[str, Tensor] = {}
        for name in _recurrent_weights(self.layer):
            weight = functools.reduce(getattr, name.split("."), self.layer)
            assert isinstance(weight, Tensor)
            rows, columns = weight.shape if weight.dim() == 2 else (1, 2)
            if rows == columns:
                matrices[name] = weight
            elif rows % columns == 0:
                matrices |= {f"{name}[{k}]": part for k, part in enumerate(weight.split(columns), 1)}
        return matrices

    def penalty(self) -> Tensor | None:
        penalties = [value for penalty in _methods(self.layer, "penalty") if (value := penalty()) is not None]
        return sum(penalties[1:], penalties[0]) if penalties else None

    def after_step(self) -> None:
        for after_step in _methods(self.layer, "after_step"):
            after_step()

    def fix_weights(self) -> None:
        for module in list(self.layer.modules()):
            for name in list(getattr(module, "parametrizations", ())):
                parametrize.remove_parametrizations(module, name)

    @classmethod
    def measures(cls) -> list[str]:
        """Return in words how the layer with its default settings is run, and which probes cannot measure it.

        Raises:
            UsageError: the layer does not work as a model with its default settings.
        """
        settings = cls.Settings.read({"hidden_size": _TRIAL_SIZES[0]})
        model = cls(settings, Signature(INPUTS, 0, "all"), torch.Generator().manual_seed(0))
        way = model.interface.way
        kind = "a cell, run over time here" if way.is_cell else f"a layer with interface={way.interface}"
        order = "" if way.is_cell else f" for inputs [{'batch, time' if way.batch_first else 'time, batch'}, features]"
        front = "" if not model.interface.has_width else ", with a linear map from the inputs to its width in front"
        lines = [f"{kind}{order}{front}"]
        if model.compiled_cell is not None and model.interface.from_zero:
            lines.append(model.compiled_cell.explain(INPUTS, model.initial_state(1)))
        if not model.interface.from_zero:
            lines.append(
                "no state that starts at zero and from which it can continue: no Jacobians and no score of their "
                "orthogonality, and no tasks that carry it"
            )
        if model.interface.traced is None:
            lines.append("no norms of gradients through time, as its outputs are not its state")
        lines += [fault.removeprefix(f"{cls.name}: ") for fault in cls.faults(settings)]
        matrices = model.recurrent_matrices()
        if not model.step_matrices:
            why = "those of gates count apart" if matrices else "declare them as recurrent_weights"
            lines.append(f"no square recurrent weights of a step whose distance from orthogonal is measured: {why}")
        return lines

    def _state_shapes(self, inputs: int) -> list[tuple[tuple[int, ...], int, torch.dtype]]:
        """Return the shape of each tensor of the state without its batch axis, that axis, and the type.

        Raises:
            UsageError: the outputs do not have the expected number of features.
        """
        way = self.interface.way
        self._state: TreeSpec | None = None
        self.layer.eval()
        if self.interface.device != "cpu":
            self.layer.to(self.interface.device)
        with torch.no_grad():
            x = torch.zeros(1, 2, inputs, device=device_of(self.layer))
            outputs, state = way.call(self.layer, x, None, self.units)
        if self.interface.device != "cpu":
            self.layer.to("cpu")
        self.layer.train()
        if outputs.shape[-1] != self.features:
            raise UsageError(f"{self.name} has {outputs.shape[-1]} outputs, and {self.features} were expected")
        axes = self.interface.axes
        if not axes:
            return []
        self._state = tree_structure(state)
        return [
            ((*each.shape[:axis], *each.shape[axis + 1 :]), axis, each.dtype)
            for each, axis in zip(tensors_of(state), axes, strict=True)
        ]

    def _packed(self, state: LayerValue) -> State:
        """Return the tensors of the layer's state as `[batch, features]`."""
        return tuple(
            tensor.movedim(axis, 0).reshape(tensor.shape[axis], -1)
            for tensor, (_, axis, _) in zip(tensors_of(state), self._shapes, strict=True)
        )

    def _unpacked(self, state: State) -> LayerValue:
        """Return the layer's state from tensors `[batch, features]`."""
        parts = [
            tensor.reshape(len(tensor), *shape).movedim(0, axis).contiguous()
            for tensor, (shape, axis, _) in zip(state, self._shapes, strict=True)
        ]
        assert self._state is not None
        return tree_unflatten(parts, self._state)


def _methods(module: nn.Module, name: str) -> Iterator[Callable[[], Any]]:
    """Yield the outermost methods of a name: a module that has one also answers for the modules inside it."""
    inside: set[nn.Module] = set()
    for each in module.modules():
        if each not in inside and callable(method := getattr(each, name, None)):
            inside.update(each.modules())
            yield method


def _recurrent_weights(layer: nn.Module) -> list[str]:
    """Return the names of a layer's recurrent weights."""
    declared = getattr(layer, "recurrent_weights", None)
    if declared is not None:
        return [declared] if isinstance(declared, str) else list(declared)
    found = []
    for path, module in layer.named_modules():
        own = [*module._parameters, *getattr(module, "parametrizations", ())]
        found += [f"{path}.{name}" if path else name for name in own if re.fullmatch(r"weight_hh(_l\d+)?", name)]
    return [name for name in found if ".parametrizations." not in f".{name}"]


@functools.cache
def _trial(cls: type[Foreign], fixed: str, units: int) -> Interface:
    """Try a layer at small sizes, or at the given one if it refuses these.

    Args:
        fixed: the settings of the constructor's arguments as JSON.

    Raises:
        UsageError: the layer does not work as a model.
    """
    refusals: list[Refused] = []
    devices = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)  # some layers have kernels for GPUs alone
    widths = (False, True) if cls.constructor.inputs else (True,)
    for device, sizes, has_width in itertools.product(devices, (_TRIAL_SIZES, (units, units)), widths):
        try:
            found = _small_trial(cls, fixed, sizes, has_width, device)
        except Unfit as reason:
            raise UsageError(f"{cls.name}: {reason}") from reason
        except Refused as error:
            if sizes[0] == units:  # other sizes may be refused only because they are others
                refusals.append(error)
            continue
        if found.scales or sizes[0] == units:
            return found
    refusal = max(refusals, key=lambda error: error.progress)
    raise UsageError(f"{cls.name}: {refusal}") from refusal


@functools.cache
def _small_trial(cls: type[Foreign], fixed: str, sizes: tuple[int, int], has_width: bool, device: str) -> Interface:
    """Try a layer at two hidden sizes.

    Raises:
        Unfit: the layer does not work as a model.
        Refused: the layer refuses the sizes.
        UsageError: it cannot be constrained.
    """
    settings: Any = types.SimpleNamespace(**json.loads(fixed))
    features: list[tuple[int, int]] = []
    with torch._C.DisableTorchFunction(), _drawing(0):
        for units in sizes:
            inputs = units if has_width else INPUTS
            try:
                layer = cls.make(settings, inputs, units).eval().to(device)
            except UsageError:
                raise
            except (Exception, SystemExit) as error:
                fix = "" if place_of(error) else WRAP
                raise Refused(error, cls._arguments(settings, inputs, units), fix) from error
            trial = LayerTrial(layer, inputs, units, settings.interface)
            if not features:
                found = trial.interface()
                steps = len(trial.x)
            output, _ = found.way.call(layer, trial.x[:steps], None, units)
            features.append((units, output.shape[-1]))
    return replace(found, features=tuple(features), has_width=has_width, device=device)


@functools.cache
def _faults(cls: type[Foreign], fixed: str, interface: Interface) -> tuple[str, ...]:
    """Return what `Foreign.faults` returns; nothing if a layer cannot be tried in training."""
    settings: Any = types.SimpleNamespace(**json.loads(fixed))
    units = interface.features[0][0]
    inputs = units if interface.has_width else INPUTS

    def made() -> nn.Module:
        with torch._C.DisableTorchFunction(), _drawing(0):
            return cls.make(settings, inputs, units).train().to(interface.device)

    try:
        first, layer = made(), made()
        weights = zip(first.state_dict().values(), layer.state_dict().values(), strict=True)
        is_seeded = all(torch.equal(*pair) for pair in weights if isinstance(pair[0], Tensor))
        with torch._C.DisableTorchFunction(), _drawing(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a layer may take the changed weights for a step of training
            trial = LayerTrial(layer, inputs, units)
            trial.shake()  # because a weight that starts at zero may hide others from the gradient
            is_blind, without = trial.without_gradient(interface.way)
    except KeyboardInterrupt:
        raise
    except BaseException:  # because a layer may raise anything, and training will say so
        return ()
    lines = []
    if is_blind:
        lines.append("no gradient reaches earlier steps, so it learns nothing through time: is its state detached?")
    if without:
        more = f" and {len(without) - _NAMED} more" if len(without) > _NAMED else ""
        which = f"{', '.join(without[:_NAMED])}{more}"
        lines.append(f"no gradient reaches {which}, but the number of parameters counts them: use or remove them")
    if not is_seeded:
        lines.append(
            "equal seeds do not give equal weights, so a run cannot be repeated: draw them by torch, numpy.random or "
            "random, without a generator of your own, which nothing seeds"
        )
    return tuple(f"{cls.name}: {line}" for line in lines)
