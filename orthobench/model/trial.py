"""The trial of a layer: how it is called, whether it is a recurrence, and which part of what it returns is its state.

The trial runs a layer over four steps of three random sequences, and disturbs one sequence or step at a time. From the
outputs that change it learns whether inputs are `[time, batch, features]` or `[batch, time, features]`, whether the
layer is causal, and whether the state that it returns continues a sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from orthobench.errors import one_line
from orthobench.model.constructor import PAGE

_STEPS, _BATCH, INPUTS = 4, 3, 5
"""Shape of the trial's inputs; the three numbers differ, so that no axis is taken for another one."""


class Unfit(Exception):
    """A layer does not work as a model; the message is one line and says what is missing."""


class Refused(Exception):
    """A layer cannot be called with a trial's inputs; other sizes may suit it."""


Value = Any
"""What a layer takes and returns: a tensor, or tuples of tensors."""


def tensors_of(value: Value) -> list[Tensor]:
    """Return the tensors of a value in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = tuple(value.values())
    return [each for part in value for each in tensors_of(part)] if isinstance(value, (tuple, list)) else []


def _is_state(value: Value) -> bool:
    """Return whether a value consists of tensors in tuples or lists alone."""
    if isinstance(value, (tuple, list)):
        return bool(value) and all(map(_is_state, value))
    return isinstance(value, Tensor)


def rebuild(value: Value, tensors: Iterator[Tensor]) -> Value:
    """Return a value of the same structure with other tensors."""
    if isinstance(value, Tensor):
        return next(tensors)
    parts = [rebuild(part, tensors) for part in value]
    return parts if isinstance(value, list) else tuple(parts)


@dataclass(frozen=True)
class Way:
    """How a layer is called.

    Attributes:
        is_cell: whether it takes one step `[batch, features]`, else sequences.
        batch_first: whether sequences are `[batch, time, features]`, else `[time, batch, features]`.
        start: the state of the first call: "" to leave it out, "none" to pass None, or how many tensors of zeros,
            each `[batch, units]` ("1", "2") or `[1, batch, units]` ("1x1", "1x2").
        passes: the part of the returned value that the next call takes as state: "whole", "rest", "second", or ""
            if none continues the sequence.
    """

    is_cell: bool
    batch_first: bool = False
    start: str = ""
    passes: str = ""

    def call(self, layer: nn.Module, x: Tensor, state: Value, units: int) -> tuple[Tensor, Value]:
        """Run a layer over x `[T, B, m]` from a state, or from its start if this is None.

        Returns:
            The outputs `[T, B, features]`, and the state that continues the sequence, or else None.
        """
        if self.is_cell:
            steps = []
            for step in x.unbind(0):
                value = layer(step, *self._given(step, state, units))
                output, state = self._parts(value, step.shape[:1])
                steps.append(output)
            return torch.stack(steps), state if self.passes else None
        x = x.transpose(0, 1) if self.batch_first else x
        output, state = self._parts(layer(x, *self._given(x, state, units)), x.shape[:2])
        return (output.transpose(0, 1) if self.batch_first else output), state

    def _given(self, x: Tensor, state: Value, units: int) -> tuple[Value, ...]:
        """Return the arguments of a call after the inputs."""
        if state is not None:
            return (state,)
        if self.start in ("", "none"):
            return (None,) if self.start else ()
        leading = (1,) if "x" in self.start else ()
        zeros = x.new_zeros(*leading, x.shape[0 if self.is_cell or self.batch_first else 1], units)
        return (zeros if self.start[-1] == "1" else (zeros, zeros.clone()),)

    def _parts(self, value: Value, rows: tuple[int, ...]) -> tuple[Tensor, Value]:
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
            output = next((each for each in tensors_of(value) if tuple(each.shape[:-1]) == tuple(rows)), None)
        if output is None or tuple(output.shape[:-1]) != tuple(rows):
            shapes = ", ".join(str(list(each.shape)) for each in tensors_of(value)) or type(value).__name__
            raise Unfit(
                f"returns {shapes} for {'a step' if self.is_cell else 'sequences'} {[*rows, INPUTS]}, and nothing of "
                f"shape {[*rows, 'features']}"
            )
        match self.passes:
            case "whole":
                return output, value
            case "second":
                return output, value[1]
            case "rest":
                return output, value[1:]
        return output, None


_STARTS = {True: ("", "none", "1", "2"), False: ("", "none", "1x1", "1x2", "1", "2")}
"""The starts that the trial of a cell, or else of a layer, tries in turn."""


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


class Trial:
    """The trial of a layer in evaluation mode: how it is called, and whether it is a recurrence.

    Attributes:
        x: the inputs `[time, batch, features]`.
    """

    def __init__(self, layer: nn.Module, inputs: int, units: int, cell_first: bool) -> None:
        self.layer, self.units, self.cell_first = layer, units, cell_first
        self.x = torch.randn(_STEPS, _BATCH, inputs).to(device_of(layer) or "cpu")

    def interface(self) -> Interface:
        """Return what the trial finds; the numbers of outputs are missing.

        Raises:
            Unfit: the layer does not work as a model.
            Exception: the layer cannot be called, perhaps because it refuses the size.
        """
        refusals: list[Exception] = []
        for is_cell in (True, False) if self.cell_first else (False, True):
            try:
                way = self._way(is_cell)
                self._check(way)
            except Exception as refusal:  # a layer may raise any error
                refusals.append(refusal)
                continue
            return self._with_state(way)
        raise next((refusal for refusal in refusals if isinstance(refusal, Unfit)), refusals[0])

    def _way(self, is_cell: bool) -> Way:
        """Return the first way of calling the layer in which it is a recurrence and keeps the sequences apart."""
        refusal: Exception = Unfit("")
        others = ("whole", "second", "rest") if is_cell else (False, True)
        for start in _STARTS[is_cell]:
            for other in others:
                way = Way(True, False, start, str(other)) if is_cell else Way(False, bool(other), start)
                try:
                    if why := self._unstable(way):
                        refusal = Unfit(why)
                        continue
                    in_time, in_batch = self._mixes(way, 0), self._mixes(way, 1)
                    if not in_time and not in_batch:  # perhaps a weight starts at zero
                        self._shake()
                        in_time, in_batch = self._mixes(way, 0), self._mixes(way, 1)
                except Exception as error:  # a wrong call may raise any error
                    if not str(refusal) or "missing" in str(refusal):  # a required state, say
                        refusal = error
                    continue
                if in_time and not in_batch:
                    return way
                if in_time:
                    refusal = Unfit("the sequences of a batch influence each other, so their order matters")
                elif not in_batch:
                    refusal = Unfit("its output at a step depends on that step alone, so it is not a recurrence")
        if isinstance(refusal, Unfit):
            raise refusal
        inputs = list(self.x[0].shape if is_cell else self.x.shape)
        raise Refused(f"forward raises for inputs {inputs}: {one_line(refusal)}; {PAGE} has an adapter to paste")

    def _call(self, way: Way, x: Tensor, state: Value = None) -> tuple[Tensor, Value]:
        with torch.no_grad():
            return way.call(self.layer, x, state, self.units)

    def _outputs(self, way: Way, x: Tensor) -> Tensor:
        torch.default_generator.manual_seed(0)
        return self._call(way, x)[0]

    def _unstable(self, way: Way) -> str:
        """Return why the outputs of equal inputs are not always the same finite numbers; "" if they are."""
        outputs = self._outputs(way, self.x)
        if not outputs.isfinite().all():
            return "its outputs are NaN or infinite"
        self._outputs(way, self.x.flip(0) - 1)
        if not torch.equal(outputs, self._outputs(way, self.x)):
            return "it keeps a state between calls: the same inputs give other outputs after a call in between"
        torch.default_generator.manual_seed(1)
        if not torch.equal(outputs, self._call(way, self.x)[0]):
            return "it is random in evaluation mode: two calls with the same inputs differ"
        return ""

    def _mixes(self, way: Way, axis: int) -> bool:
        """Return whether the first entry along an axis of the inputs influences outputs of the others."""
        disturbed = self.x.clone()
        disturbed.select(axis, 0).add_(3.0)
        differ = _differ(self._outputs(way, self.x), self._outputs(way, disturbed))
        return bool(differ.narrow(axis, 1, differ.shape[axis] - 1).any())

    def _shake(self) -> None:
        with torch.no_grad():
            for parameter in self.layer.parameters():
                if parameter.is_floating_point():
                    parameter.add_(0.3 * torch.randn_like(parameter))

    def _check(self, way: Way) -> None:
        """Check what a model has to be.

        Raises:
            Unfit: the outputs depend on later steps or have no gradient.
        """
        outputs = self._outputs(way, self.x)
        disturbed = self.x.clone()
        disturbed[-1] += 3.0
        if _differ(outputs, self._outputs(way, disturbed))[:-1].any():
            raise Unfit("its outputs depend on later steps, as those of a bidirectional layer: it must be causal")
        trained = [parameter for parameter in self.layer.parameters() if parameter.requires_grad]
        if trained and not way.call(self.layer, self.x, None, self.units)[0].requires_grad:
            raise Unfit("its outputs have no gradient, so its weights cannot be trained")

    def _with_state(self, way: Way) -> Interface:
        """Return the interface with the part of the returned value that continues a sequence, if there is one."""
        for passes in (way.passes,) if way.is_cell else ("second", "rest"):
            candidate = Way(way.is_cell, way.batch_first, way.start, passes)
            try:
                if found := self._continued(candidate):
                    return found
            except Exception:  # the layer takes no such state
                continue
        return Interface(way, ())

    def _continued(self, way: Way) -> Interface | None:
        """Return the interface if the state that this way passes continues a sequence, one step at a time."""
        whole, final = self._call(way, self.x)
        _, fewer = self._call(way, self.x[:, 1:])
        if not _is_state(final):
            return None
        axes = [batch_axis(one, other) for one, other in zip(tensors_of(final), tensors_of(fewer), strict=True)]
        state, steps = None, []
        for x in self.x.split(1):
            output, state = self._call(way, x, state)
            steps.append(output)
        shapes = [[each.shape for each in tensors_of(value)] for value in (state, final)]
        if None in axes or shapes[0] != shapes[1]:
            return None
        afresh = torch.cat([self._call(way, x)[0] for x in self.x.split(1)])
        memory = float((whole - afresh).abs().max())
        if not float((whole - torch.cat(steps)).abs().max()) <= 0.01 * memory:
            return None
        zeros = rebuild(final, iter([torch.zeros_like(each) for each in tensors_of(final)]))
        gap = float((whole - self._call(way, self.x, zeros)[0]).abs().max())
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


def _differ(before: Tensor, after: Tensor) -> Tensor:
    """Return which outputs of a sequence at a step differ, `[time, batch]`."""
    return ((after - before).abs() > 1e-6 * (1 + before.abs().amax())).any(-1)
