"""The trial of a layer: how it is called, whether it is a recurrence, and which part of what it returns is its state.

The trial runs a layer over three random sequences, and disturbs one sequence or step at a time. From the outputs that
change it learns whether inputs are `[time, batch, features]` or `[batch, time, features]`, whether the layer is causal,
and whether the state that it returns continues a sequence.

A layer that takes a state before its inputs, as in Flax, shows this by the sizes that it refuses. If inputs and state
have equal sizes, the names of its arguments decide.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from orthobench.foreign.constructor import PAGE
from orthobench.system.own_code import calls, described, place_of

_STEPS, _BATCH, INPUTS = (64, 16, 4), 3, 5
"""Shape of the trial's inputs; the numbers differ, so that no axis is taken for another one.

A look-ahead or a dilation shows only if it is shorter than the sequence. The shorter lengths are for layers that refuse
a longer one, or overflow in it. A cell cannot look ahead, so its trial begins with the shortest, which is faster.
"""


class Unfit(Exception):
    """A layer does not work as a model; the message is one line and says what is missing."""


class _Overflows(Unfit):
    """The outputs are not finite, perhaps because they grow from step to step."""


class _Forgets(Unfit):
    """The outputs at a step depend on none of the steps before it, perhaps because there are too few."""


class Refused(Exception):
    """A layer cannot be built, or called with a trial's inputs; other sizes may suit it.

    Args:
        error: what the layer raises.
        where: the sizes or settings with which it does so.

    Attributes:
        is_bug: whether code of the user's own raises the error, which no adapter can mend.
        progress: how far the layer got.
    """

    def __init__(self, error: BaseException, where: str) -> None:
        self.is_bug = place_of(error) is not None
        self.progress = _progress(error)
        if _lacks_gpu(error):
            super().__init__("its Triton kernels need a GPU, and this machine has none: train it on one that has")
            return
        hint = "" if self.is_bug else f"; {PAGE} has an adapter to paste"
        super().__init__(f"{described(error)}, {where}{hint}")


def _progress(error: BaseException) -> tuple[int, ...]:
    """Return how far a layer got until it raised an error; the larger of two tuples got further.

    It is the position in each function, from the outermost one, without those of this file, which call the layer.
    """
    return tuple(call.tb_lasti for call in calls(error) if call.tb_frame.f_code.co_filename != __file__)


def _lacks_gpu(error: BaseException) -> bool:
    """Return whether Triton raised an error on a machine without a GPU, where it says that it has no driver."""
    names = (call.tb_frame.f_globals.get("__name__", "") for call in calls(error))
    return not torch.cuda.is_available() and any(str(name).split(".")[0] == "triton" for name in names)


LayerValue = Any
"""What a layer takes and returns: a tensor, or tuples of tensors."""


def tensors_of(value: LayerValue) -> list[Tensor]:
    """Return the tensors of a value in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = tuple(value.values())
    return [each for part in value for each in tensors_of(part)] if isinstance(value, (tuple, list)) else []


def _is_state(value: LayerValue) -> bool:
    """Return whether a value consists of tensors in tuples or lists alone."""
    if isinstance(value, (tuple, list)):
        return bool(value) and all(map(_is_state, value))
    return isinstance(value, Tensor)


def _form(value: LayerValue) -> tuple[Any, ...]:
    """Return how a value nests, with () for each part that is not a tuple or list."""
    return tuple(map(_form, value)) if isinstance(value, (tuple, list)) else ()


def rebuild(value: LayerValue, tensors: Iterator[Tensor]) -> LayerValue:
    """Return a value of the same structure with other tensors."""
    if isinstance(value, Tensor):
        return next(tensors)
    parts = [rebuild(part, tensors) for part in value]
    if isinstance(value, list):
        return parts
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)  # a layer may read `state.h`


@dataclass(frozen=True)
class Way:
    """How a layer is called.

    Attributes:
        is_cell: whether it takes one step `[batch, features]`, else sequences.
        batch_first: whether sequences are `[batch, time, features]`, else `[time, batch, features]`.
        start: the state of the first call: "" to leave it out, "none" to pass None, or how many tensors of zeros,
            each `[batch, units]` ("1", "2") or `[1, batch, units]` ("1x1", "1x2").
        passes: the part of the returned value that the next call takes as state: "whole", "first", "rest", "second",
            or "" if none continues the sequence. The outputs come after a state that is the first part.
        state_first: whether the state is the first argument, and the inputs are the second.
    """

    is_cell: bool
    batch_first: bool = False
    start: str = ""
    passes: str = ""
    state_first: bool = False

    def call(self, layer: nn.Module, x: Tensor, state: LayerValue, units: int) -> tuple[Tensor, LayerValue]:
        """Run a layer over x `[T, B, m]` from a state, or from its start if this is None.

        Returns:
            The outputs `[T, B, features]`, and the state that continues the sequence, or else None.
        """
        if self.is_cell:
            steps = []
            for step in x.unbind(0):
                value = self._returned(layer, step, state, units)
                output, state = self._parts(value, step.shape[:1])
                steps.append(output)
            return torch.stack(steps), state if self.passes else None
        x = x.transpose(0, 1) if self.batch_first else x
        output, state = self._parts(self._returned(layer, x, state, units), x.shape[:2])
        return (output.transpose(0, 1) if self.batch_first else output), state

    def _returned(self, layer: nn.Module, x: Tensor, state: LayerValue, units: int) -> LayerValue:
        given = self._given(x, state, units)
        return layer(*given, x) if self.state_first else layer(x, *given)

    def start_in_words(self, units: int) -> str:
        """Say from which state the first call starts, after the words for its inputs."""
        if self.start in ("", "none"):
            return " and the state None" if self.start else ""
        shape = [*([1] if "x" in self.start else []), _BATCH, units]
        return f" and a state {shape}" if self.start[-1] == "1" else f" and a state of two tensors {shape}"

    def _given(self, x: Tensor, state: LayerValue, units: int) -> tuple[LayerValue, ...]:
        """Return the arguments of a call other than the inputs."""
        if state is not None:
            return (state,)
        if self.start in ("", "none"):
            return (None,) if self.start else ()
        leading = (1,) if "x" in self.start else ()
        zeros = x.new_zeros(*leading, x.shape[0 if self.is_cell or self.batch_first else 1], units)
        return (zeros if self.start[-1] == "1" else (zeros, zeros.clone()),)

    def _parts(self, value: LayerValue, rows: tuple[int, ...]) -> tuple[Tensor, LayerValue]:
        """Return the outputs in a returned value, and its part that continues the sequence.

        Raises:
            Unfit: no tensor has the shape of outputs.
        """
        output: Tensor | None
        if isinstance(value, Tensor):
            output = value
        else:
            if isinstance(value, Mapping):
                value = tuple(value.values())
            candidates = tensors_of(value[1:] if self.passes == "first" else value)
            output = next((each for each in candidates if tuple(each.shape[:-1]) == tuple(rows)), None)
        if output is None or tuple(output.shape[:-1]) != tuple(rows):
            shapes = ", ".join(str(list(each.shape)) for each in tensors_of(value)) or type(value).__name__
            raise Unfit(
                f"returns {shapes} for {'a step' if self.is_cell else 'sequences'} {[*rows, INPUTS]}, and nothing of "
                f"shape {[*rows, 'features']}"
            )
        match self.passes:
            case "whole":
                return output, value
            case "first":
                return output, value[0]
            case "second":
                return output, value[1]
            case "rest":
                return output, value[1:]
        return output, None


_STARTS = {True: ("", "none", "1", "2"), False: ("", "none", "1x1", "1x2", "1", "2")}
"""The starts that the trial of a cell, or else of a layer, tries in turn."""
_STATE = re.compile(
    r"(prev(ious)?_?|last_?|old_?|init(ial)?_?)?(h|hx|hc|c|s|carry|states?|hidden|hidden_state|rnn_state|memory|mem)"
    r"(_?(0|t|tm1|t_1|prev(ious)?|last|old|init(ial)?))?|(h|c)_?x"
)
_INPUT = re.compile(r"(x|xs|u|us|inp|inputs?)(_?(t|seq|sequences?|step))?|seq|sequences?|tokens?|src|emb(eddings?)?")
"""Names of the arguments of a forward pass. (`hidden_states` is neither, as it names the inputs in some packages.)"""


def _arguments(layer: nn.Module) -> list[inspect.Parameter]:
    """Return a layer's positional arguments; none if its forward pass does not say them."""
    try:
        parameters = inspect.signature(layer.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]


def _state_comes_first(arguments: list[str]) -> bool | None:
    """Return whether the names of the first two arguments say that the state is before the inputs.

    Returns:
        None if the names do not say it.
    """
    names = [name.lower() for name in arguments[:2]]
    kinds = ["state" if _STATE.fullmatch(name) else "input" if _INPUT.fullmatch(name) else "" for name in names]
    if len(kinds) < 2 or kinds[0] == kinds[1]:
        return None
    return kinds[0] == "state" or kinds[1] == "input"


@dataclass(frozen=True)
class Interface:
    """What the trials of a layer have found.

    Attributes:
        features: the number of outputs at two hidden sizes.
        has_width: whether the layer needs as many inputs as it has units.
        device: where the layer was tried: on the CPU, unless it runs only on a GPU.
        carries: whether the way passes a state that continues a sequence, and consists of tensors with a batch axis.
        from_zero: whether a state of zeros is the start of a sequence.
        traced: the tensor of the state that has the outputs of the last step, and which of its blocks of this
            width; None if there is none.
    """

    way: Way
    features: tuple[tuple[int, int], ...]
    has_width: bool = False
    device: str = "cpu"
    carries: bool = False
    from_zero: bool = False
    traced: tuple[int, int] | None = None

    @property
    def scales(self) -> bool:
        """Whether the number of outputs is the same at all hidden sizes, or proportional to the size."""
        (first, low), (second, high) = self.features
        return first != second and (low == high or low * second == high * first)

    def outputs(self, units: int) -> int:
        """Return the number of outputs at a hidden size: one of the trials', or any if it scales."""
        (first, low), (_, high) = self.features
        return low if low == high or units == first else low * units // first


def device_of(layer: nn.Module) -> torch.device | None:
    """Return the device of a layer's parameters; None without parameters."""
    return next((parameter.device for parameter in layer.parameters()), None)


def batch_axis(one: Tensor, other: Tensor) -> int | None:
    """Return the only axis in which two tensors, of batches of different size, differ; None without such an axis."""
    if one.dim() != other.dim():
        return None
    axes = [axis for axis in range(one.dim()) if one.shape[axis] != other.shape[axis]]
    return axes[0] if len(axes) == 1 else None


@dataclass(frozen=True)
class GradientReach:
    """What the gradient of a layer's outputs does not reach.

    Attributes:
        is_blind: whether it reaches the inputs of a step from the outputs of this step, and from no later ones.
        without: the names of the trained parameters that it does not reach.
    """

    is_blind: bool
    without: tuple[str, ...]


class LayerTrial:
    """The trial of a layer in evaluation mode: how it is called, and whether it is a recurrence.

    Attributes:
        x: the inputs `[time, batch, features]`.
    """

    def __init__(self, layer: nn.Module, inputs: int, units: int, cell_first: bool) -> None:
        self.layer, self.units, self.cell_first = layer, units, cell_first
        self._longest = torch.randn(_STEPS[0], _BATCH, inputs).to(device_of(layer) or "cpu")
        self.x = self._longest
        arguments = _arguments(layer)
        self._arguments = [each.name for each in arguments]
        self._needs_state = sum(each.default is each.empty for each in arguments) > 1
        by_name = _state_comes_first(self._arguments)
        self._sizes_differ, self._is_named = inputs != units, by_name is not None
        self._orders = (bool(by_name), not by_name) if self._sizes_differ else (bool(by_name),)

    def interface(self) -> Interface:
        """Return what the trial finds; the numbers of outputs are missing.

        Raises:
            Unfit: the layer does not work as a model.
            Exception: the layer cannot be called, perhaps because it refuses the size.
        """
        refusals: dict[bool, Exception] = {}
        recurrent: list[Exception] = []
        for is_cell in (True, False) if self.cell_first else (False, True):
            lengths = (_STEPS[-1], _STEPS[0]) if is_cell else _STEPS
            due_to_length = _Forgets if is_cell else (Refused, _Overflows)
            for steps in lengths:
                self.x = self._longest[:steps]
                try:
                    way = self._way(is_cell)
                except Exception as refusal:  # a layer may raise any error
                    refusals[is_cell] = refusal
                    if not isinstance(refusal, due_to_length):
                        break
                    continue
                try:
                    self._check(way)
                except Exception as refusal:
                    recurrent.append(refusal)
                    break
                return self._with_state(way)
        if recurrent:
            raise recurrent[0]  # that of a recurrence says most
        bug = refusals.get(True) if self.cell_first or self._needs_state else None
        if isinstance(bug, Refused) and bug.is_bug:
            raise bug  # a cell may accept whole sequences, and not be a recurrence over them
        others = [refusal for refusal in refusals.values() if isinstance(refusal, Unfit)]
        raise others[0] if others else max(refusals.values(), key=lambda refusal: getattr(refusal, "progress", ()))

    def _ways(self, is_cell: bool) -> Iterator[Way]:
        """Yield the ways of calling the layer in the order in which the trial tries them."""
        for start in _STARTS[is_cell]:
            for state_first in self._orders if start else (False,):
                if is_cell:
                    for passes in ("whole", *(("first",) if state_first else ()), "second", "rest"):
                        yield Way(True, False, start, passes, state_first)
                else:
                    for batch_first in (False, True):
                        yield Way(False, batch_first, start, "", state_first)

    def _way(self, is_cell: bool) -> Way:
        """Return the first way of calling the layer in which it is a recurrence and keeps the sequences apart."""
        refusal: Unfit | None = None
        raised: list[tuple[tuple[Any, ...], Way, Exception]] = []
        for way in self._ways(is_cell):
            if is_cell and way.start and isinstance(refusal, _Forgets) and len(self.x) < _STEPS[0]:
                raise refusal  # a longer sequence tells more than a start that the cell does not need
            try:
                if way.passes in ("whole", "rest") and self._nests(way):
                    continue
                if why := self._unstable(way):
                    refusal = why
                    continue
                in_time, in_batch = self._mixes(way, 0), self._mixes(way, 1)
                if not in_time and not in_batch:  # perhaps a weight starts at zero
                    self.shake()
                    in_time, in_batch = self._mixes(way, 0), self._mixes(way, 1)
            except Exception as error:  # a wrong call may raise any error
                has_run, has_state = isinstance(error, Unfit), way.start not in ("", "none")
                raised.append(((has_run, _progress(error), has_state), way, error))
                continue
            if in_time and not in_batch:
                return way
            if in_time:
                refusal = Unfit("the sequences of a batch influence each other, so their order matters")
            elif not in_batch:
                before = f"none of the {len(self.x) - 1} steps before it"
                refusal = _Forgets(f"its output at a step depends on {before}, so it is not a recurrence")
        if refusal is not None:
            raise refusal
        if not raised:
            raise Unfit(f"no way of calling it is a recurrence; {PAGE} has an adapter to paste")
        _, way, furthest = max(raised, key=lambda attempt: attempt[0])  # the one that got furthest says most
        if isinstance(furthest, Unfit):
            raise furthest
        inputs = list(self.x[0].shape if is_cell else self.x.shape)
        raise Refused(furthest, f"for inputs {inputs}{way.start_in_words(self.units)}") from furthest

    def _call(self, way: Way, x: Tensor, state: LayerValue = None) -> tuple[Tensor, LayerValue]:
        with torch.no_grad():
            return way.call(self.layer, x, state, self.units)

    def _outputs(self, way: Way, x: Tensor) -> Tensor:
        torch.default_generator.manual_seed(0)
        return self._call(way, x)[0]

    def _nests(self, way: Way) -> bool:
        """Return whether the state of a cell has other parts after two steps than after one.

        A cell that returns its outputs and a tuple may accept both together as its state, and then nests them.
        """
        one, two = (self._call(way, self.x[:steps])[1] for steps in (1, 2))
        return _form(one) != _form(two)

    def _unstable(self, way: Way) -> Unfit | None:
        """Return why the outputs of equal inputs are not always the same finite numbers; None if they are."""
        outputs = self._outputs(way, self.x)
        if not outputs.isfinite().all():
            return _Overflows("its outputs are NaN or infinite")
        self._outputs(way, self.x.flip(0) - 1)
        if not torch.equal(outputs, self._outputs(way, self.x)):
            return Unfit("it keeps a state between calls: the same inputs give other outputs after a call in between")
        torch.default_generator.manual_seed(1)
        if not torch.equal(outputs, self._call(way, self.x)[0]):
            return Unfit("it is random in evaluation mode: two calls with the same inputs differ")
        return None

    def _mixes(self, way: Way, axis: int) -> bool:
        """Return whether the first entry along an axis of the inputs influences outputs of the others."""
        disturbed = self.x.clone()
        disturbed.select(axis, 0).add_(3.0)
        differ = _differ(self._outputs(way, self.x), self._outputs(way, disturbed))
        return bool(differ.narrow(axis, 1, differ.shape[axis] - 1).any())

    def shake(self) -> None:
        """Change all weights at random, because one that starts at zero may hide the others."""
        with torch.no_grad():
            for parameter in self.layer.parameters():
                if parameter.is_floating_point():
                    parameter.add_(0.3 * torch.randn_like(parameter))

    def _check(self, way: Way) -> None:
        """Check what a model has to be.

        Raises:
            Unfit: it is not clear which argument is the state, or the outputs depend on later steps, have another type
                than the inputs, or have no gradient.
        """
        if way.start and not self._sizes_differ and not self._is_named:
            raise Unfit(
                f"inputs and state have the same size, so it is not clear which argument of forward("
                f"{', '.join(self._arguments) or '*args'}) is the state: name the inputs x and the state h"
            )
        outputs = self._outputs(way, self.x)
        if outputs.dtype != self.x.dtype:
            fix = "torch.view_as_real(outputs).flatten(-2)" if outputs.is_complex() else "outputs.float()"
            kind, needed = (str(each.dtype).removeprefix("torch.") for each in (outputs, self.x))
            raise Unfit(f"its outputs are {kind}, but they have to be {needed}, as its inputs: return {fix}")
        for first in (len(self.x) - 1, len(self.x) // 2):  # a layer that works on blocks may hide one of them
            disturbed = self.x.clone()
            disturbed[first:] += 3.0
            # The rounding errors of a convolution by FFT reach earlier steps, up to 6e-7 in measurements.
            if _differ(outputs, self._outputs(way, disturbed), 1e-5)[:first].any():
                raise Unfit("its outputs depend on later steps, as those of a bidirectional layer: it must be causal")
        trained = [parameter for parameter in self.layer.parameters() if parameter.requires_grad]
        if trained and not way.call(self.layer, self.x, None, self.units)[0].requires_grad:
            raise Unfit("its outputs have no gradient, so its weights cannot be trained")

    def gradients(self, way: Way) -> GradientReach:
        """Return what the gradient of the outputs does not reach.

        The outputs have random weights, because their plain sum may be constant, as that of a softmax is.

        Raises:
            Exception: the layer runs in evaluation mode alone.
        """
        trained = {name: each for name, each in self.layer.named_parameters() if each.requires_grad}
        for steps in _STEPS:
            x = self._longest[:steps].clone().requires_grad_()
            try:
                outputs, _ = way.call(self.layer, x, None, self.units)
                break
            except Exception:
                if steps == _STEPS[-1]:
                    raise
        weighted = outputs * torch.randn_like(outputs)

        def of(part: Tensor, leaves: list[Tensor]) -> list[Tensor]:
            return list(
                torch.autograd.grad(part.sum(), leaves, retain_graph=True, allow_unused=True, materialize_grads=True)
            )

        own, later = (bool(of(part, [x])[0][0].any()) for part in (weighted[:1], weighted[1:]))
        reached = [bool(gradient.any()) for gradient in of(weighted, list(trained.values()))] if trained else []
        without = [name for name, is_reached in zip(trained, reached, strict=True) if not is_reached]
        return GradientReach(own and not later, tuple(without))

    def _with_state(self, way: Way) -> Interface:
        """Return the interface with the part of the returned value that continues a sequence, if there is one."""
        others = ("first", "second", "rest") if way.state_first else ("second", "rest")
        for passes in (way.passes,) if way.is_cell else others:
            candidate = replace(way, passes=passes)
            try:
                if found := self._continued(candidate):
                    return found
            except Exception:  # the layer takes no such state
                continue
        return Interface(way, ())

    def _memory(self, way: Way, x: Tensor) -> float:
        """Return by how much the outputs change if every step starts a new sequence."""
        afresh = torch.cat([self._call(way, step)[0] for step in x.split(1)])
        return float((self._call(way, x)[0] - afresh).abs().max())

    def _continued(self, way: Way) -> Interface | None:
        """Return the interface if the state that this way passes continues a sequence, one step at a time."""
        x = self.x[: _STEPS[-1]]  # rounding errors grow with the length
        if not (memory := self._memory(way, x)):
            x, memory = self.x, self._memory(way, self.x)
        whole, final = self._call(way, x)
        _, fewer = self._call(way, x[:, 1:])
        if not _is_state(final):
            return None
        axes = [batch_axis(one, other) for one, other in zip(tensors_of(final), tensors_of(fewer), strict=True)]
        state, steps = None, []
        for step in x.split(1):
            output, state = self._call(way, step, state)
            steps.append(output)
        first = self._call(way, x[:1])[1]  # a cache grows from step to step
        shapes = [[each.shape for each in tensors_of(value)] for value in (state, final, first)]
        if None in axes or shapes[0] != shapes[1] or shapes[0] != shapes[2]:
            return None
        if not float((whole - torch.cat(steps)).abs().max()) <= 0.01 * memory:
            return None
        zeros = rebuild(final, iter([torch.zeros_like(each) for each in tensors_of(final)]))
        gap = float((whole - self._call(way, x, zeros)[0]).abs().max())
        traced = next(
            (
                (position, block)
                for position, (tensor, axis) in enumerate(zip(tensors_of(final), axes, strict=True))
                for block, part in enumerate(tensor.movedim(axis or 0, 0).flatten(1).split(whole.shape[-1], dim=1))
                if part.shape == whole[-1].shape and torch.equal(part, whole[-1])
            ),
            None,
        )
        return Interface(way, (), carries=True, from_zero=gap <= 0.01 * memory, traced=traced)


def _differ(before: Tensor, after: Tensor, tolerance: float = 1e-6) -> Tensor:
    """Return which outputs of a sequence at a step differ, `[time, batch]`."""
    return ((after - before).abs() > tolerance * (1 + before.abs().amax())).any(-1)
