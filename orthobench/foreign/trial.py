"""Find out from a few random steps how a layer is called, and check that it is a recurrence.

| interface | call |
| --- | --- |
| `cell` | `state = layer(x, state)` or `output, state = layer(x, state)` for a step `[batch, features]` |
| `rnn` | `outputs, state = layer(x, state)` for sequences, as `torch.nn.RNN` |
| `sequence` | `outputs = layer(x)` for sequences |

The user names the interface, or the first one with which the layer is a recurrence counts. Sequences are
`[time, batch, features]` or `[batch, time, features]`. Which axis is time shows when one step or one sequence is
disturbed: later steps change, and other sequences do not.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from orthobench.foreign.constructor import ADAPTER, NAME, WRAP
from orthobench.isolation import isolated
from orthobench.system.own_code import calls, described, place_of

_STEPS, _CELL_STEPS, _BATCH, INPUTS = 64, 7, 3, 5
"""Shape of the trial's inputs; the numbers differ from each other and from the trial's hidden sizes, so that no
axis is taken for another one.

A look-ahead or a dilation shows only if it is shorter than the sequence. A cell sees one step, so few are enough, as
they have to be for a layer that refuses more.
"""
_DISTURBANCE = 3.0
"""What is added to inputs from N(0, 1): far beyond rounding, and not so far that gates let nothing through."""


class Unfit(Exception):
    """A layer does not work as a model; the message is one line and says what is missing."""


class Refused(Exception):
    """A layer cannot be built, or called with a trial's inputs; other sizes may suit it.

    Args:
        error: what the layer raises.
        where: the sizes or settings with which it does so.
        fix: what the user can do; "" if only the code of the layer says.

    Attributes:
        progress: how far the layer got.
    """

    def __init__(self, error: BaseException, where: str, fix: str) -> None:
        self.progress = _progress(error)
        if _lacks_gpu(error):
            super().__init__("its Triton kernels need a GPU, and this machine has none: train it on one that has")
            return
        super().__init__("; ".join(filter(None, (f"{described(error)}, {where}", fix))))


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
    return [each for each in tree_leaves(value) if isinstance(each, Tensor)]


@dataclass(frozen=True)
class Way:
    """How a layer is called.

    Attributes:
        interface: "cell", "rnn" or "sequence".
        batch_first: whether sequences are `[batch, time, features]`, else `[time, batch, features]`.
        start: the state of the first call: "" to leave it out, "none" for None, "zeros" for `[batch, units]`, or "pair"
            for two of these.
        passes: the part of the returned value that the next call takes as state: "whole", "second", or "" if none. A
            tuple after the outputs is a state by itself, so the whole is not.
    """

    interface: str
    batch_first: bool = False
    start: str = ""
    passes: str = ""

    @property
    def is_cell(self) -> bool:
        return self.interface == "cell"

    def call(self, layer: nn.Module, x: Tensor, state: LayerValue, units: int) -> tuple[Tensor, LayerValue]:
        """Run a layer over x `[T, B, m]` from a state, or from its start if this is None.

        Returns:
            The outputs `[T, B, features]`, and the state that continues the sequence, or else None.
        """
        if self.is_cell:
            steps = []
            for each in x.unbind(0):
                output, state = self.step(layer, each, state, units)
                steps.append(output)
            return torch.stack(steps), state
        x = x.transpose(0, 1) if self.batch_first else x
        output, state = self._split(layer(x, *self._given(x, state, units)), x.shape[:2])
        return (output.transpose(0, 1) if self.batch_first else output), state

    def step(self, layer: nn.Module, x: Tensor, state: LayerValue, units: int) -> tuple[Tensor, LayerValue]:
        """Run a cell for a step x `[B, m]`; see `call`."""
        return self._split(layer(x, *self._given(x, state, units)), x.shape[:1])

    def _given(self, x: Tensor, state: LayerValue, units: int) -> tuple[LayerValue, ...]:
        """Return the arguments of a call other than the inputs."""
        if state is not None or self.start == "none":
            return (state,)
        if not self.start:
            return ()
        zeros = x.new_zeros(x.shape[0], units)
        return (zeros if self.start == "zeros" else (zeros, zeros.clone()),)

    def _split(self, value: LayerValue, rows: torch.Size) -> tuple[Tensor, LayerValue]:
        """Return the outputs in a returned value, and its part that continues the sequence.

        Raises:
            Unfit: no tensor has the shape of outputs.
        """
        value = tuple(value.values()) if isinstance(value, Mapping) else value
        output = next((each for each in tensors_of(value) if each.shape[:-1] == rows), None)
        if output is None:
            shapes = ", ".join(str(list(each.shape)) for each in tensors_of(value)) or type(value).__name__
            raise Unfit(
                f"returns {shapes} for {'a step' if self.is_cell else 'sequences'} {[*rows, INPUTS]}, and nothing of "
                f"shape {[*rows, 'features']}; {ADAPTER}"
            )
        second = value[1] if isinstance(value, (tuple, list)) and len(value) > 1 else None
        is_whole = self.passes == "whole" and not isinstance(second, (tuple, list))
        return output, value if is_whole else second if self.passes else None

    def in_words(self, x: Tensor, units: int) -> str:
        """Say with what the first call for x `[T, B, m]` is."""
        state = {"none": " and the state None", "zeros": f" and a state {[_BATCH, units]}"}
        state["pair"] = f" and a state of two tensors {[_BATCH, units]}"
        return f"for inputs {list(x.shape[1:] if self.is_cell else x.shape)}{state.get(self.start, '')}"


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


class LayerTrial:
    """The trial of a layer in evaluation mode.

    Args:
        named: the interface that the user names; None to take the first one that works.

    Attributes:
        x: the inputs `[time, batch, features]`.
    """

    def __init__(self, layer: nn.Module, inputs: int, units: int, named: str | None = None) -> None:
        self.layer, self.units, self.named = layer, units, named
        self.x = self._longest = torch.randn(_STEPS, _BATCH, inputs).to(device_of(layer) or "cpu")
        self._arguments = _arguments(layer)
        self._needs_state = sum(each.default is each.empty for each in self._arguments) > 1

    def interface(self) -> Interface:
        """Return what the trial finds; the numbers of outputs are missing.

        Raises:
            Unfit: the layer does not work as a model.
            Refused: the layer cannot be called, perhaps because of its size.
        """
        if len(self._arguments) > 1 and re.fullmatch(r"(x|xs|u|inp|inputs?)(_?t)?", self._arguments[1].name.lower()):
            first, second = (each.name for each in self._arguments[:2])
            raise Unfit(f"forward takes {first} before {second}: a layer takes its inputs first, then its state")
        refusals: list[tuple[tuple[Any, ...], Way, Exception]] = []
        waiting = [(way, _CELL_STEPS if way.is_cell else _STEPS) for way in self._ways()]
        for way, steps in waiting:
            self.x = self._longest[:steps]
            try:
                self._check_recurrence(way)
            except Exception as error:  # a wrong call may raise any error
                # A cell may also take whole sequences, without being a recurrence over them: its own bug says more.
                is_telling = isinstance(error, Unfit) or (self._needs_state and way.is_cell and bool(place_of(error)))
                refusals.append(((is_telling, _progress(error)), way, error))
                if steps == _STEPS and not isinstance(error, Unfit):
                    waiting.append((way, _CELL_STEPS))  # because some layers have a largest number of steps
                continue
            self._check(way)
            return self._with_state(way)
        _, way, telling = max(refusals, key=lambda refusal: refusal[0])  # the call that got furthest says most
        if isinstance(telling, Unfit):
            raise telling
        if place_of(telling) is None:
            fix = WRAP if self.named else ADAPTER
        else:
            fix = "" if self.named else f"if it is called otherwise, {NAME}"
        raise Refused(telling, way.in_words(self._longest, self.units), fix) from telling

    def _ways(self) -> list[Way]:
        """Return the ways of calling the layer in the order in which the trial tries them."""
        starts = ("none", "zeros", "pair") if self._needs_state else ("",)
        cells = [Way("cell", start=start, passes=passes) for start in starts for passes in ("whole", "second")]
        sequences = [Way("sequence", is_batch_first, starts[0]) for is_batch_first in (False, True)]
        if self.named is not None:
            return cells if self.named == "cell" else sequences
        return [*cells, *sequences] if self._needs_state else [*sequences, *cells]

    def _call(self, way: Way, x: Tensor, state: LayerValue = None) -> tuple[Tensor, LayerValue]:
        with torch.no_grad():
            return way.call(self.layer, x, state, self.units)

    def _outputs(self, way: Way, x: Tensor) -> Tensor:
        torch.default_generator.manual_seed(0)
        return self._call(way, x)[0]

    def _check_recurrence(self, way: Way) -> None:
        """Check that a layer is a recurrence over time that keeps the sequences apart, and nothing else.

        Raises:
            Unfit: it is not.
            Exception: the layer cannot be called in this way.
        """
        outputs = self._outputs(way, self.x)
        if not outputs.isfinite().all():
            raise Unfit("its outputs are NaN or infinite")
        self._call(way, self.x.flip(0) - 1)  # a call in between, which also draws other random numbers
        if not torch.equal(outputs, self._call(way, self.x)[0]):
            raise Unfit(
                "the same inputs give other outputs in a second call: it keeps a state between calls, or it is random "
                "in evaluation mode"
            )
        in_time, in_batch = self._mixes(way, 0), self._mixes(way, 1)
        if not in_time and not in_batch:  # perhaps a weight starts at zero
            self.shake()
            in_time, in_batch = self._mixes(way, 0), self._mixes(way, 1)
        if in_time and in_batch:
            raise Unfit("the sequences of a batch influence each other, so their order matters")
        if not in_time:
            before = f"none of the {len(self.x) - 1} steps before it"
            raise Unfit(f"its output at a step depends on {before}, so it is not a recurrence")

    def _mixes(self, way: Way, axis: int) -> bool:
        """Return whether the first entry along an axis of the inputs influences outputs of the others."""
        disturbed = self.x.clone()
        disturbed.select(axis, 0).add_(_DISTURBANCE)
        differ = _differ(self._outputs(way, self.x), self._outputs(way, disturbed))
        return bool(differ.narrow(axis, 1, differ.shape[axis] - 1).any())

    def _mixes_in_training(self, way: Way) -> bool:
        """Return whether the sequences of a batch influence each other in training; False if that cannot be tried."""
        buffers = [(buffer, buffer.clone()) for buffer in self.layer.buffers()]
        self.layer.train()
        try:
            # Twice, because dropout by another generator than torch's is not seeded here, and looks like an influence.
            with isolated():  # because what a layer sets in training must not reach the rest of the trial
                is_seeded = torch.equal(self._outputs(way, self.x), self._outputs(way, self.x))
                return is_seeded and self._mixes(way, 1)
        except KeyboardInterrupt:
            raise
        except BaseException:  # a layer may exit, or raise any error, and training will say so
            return False
        finally:
            self.layer.eval()
            for buffer, before in buffers:
                buffer.copy_(before)

    def shake(self) -> None:
        """Change all weights at random, because one that starts at zero may hide the others."""
        with torch.no_grad():
            for parameter in self.layer.parameters():
                if parameter.is_floating_point():
                    # By 0.3, because weights of the size that layers start with saturate nothing.
                    parameter.add_(0.3 * torch.randn_like(parameter))

    def _check(self, way: Way) -> None:
        """Check what a model has to be besides a recurrence.

        Raises:
            Unfit: the outputs depend on later steps, have another type than the inputs, or have no gradient.
        """
        outputs = self._outputs(way, self.x)
        if outputs.dtype != self.x.dtype:
            fix = "torch.view_as_real(outputs).flatten(-2)" if outputs.is_complex() else "outputs.float()"
            kind, needed = (str(each.dtype).removeprefix("torch.") for each in (outputs, self.x))
            raise Unfit(f"its outputs are {kind}, but they have to be {needed}, as its inputs: return {fix}")
        later = 37 if len(self.x) == _STEPS else 5  # primes, where no block of fewer steps begins
        disturbed = self.x.clone()
        disturbed[later:] += _DISTURBANCE
        # The rounding errors of a convolution by FFT reach earlier steps, up to 6e-7 in measurements.
        if _differ(outputs, self._outputs(way, disturbed), 1e-5)[:later].any():
            raise Unfit("its outputs depend on later steps, as those of a bidirectional layer: it must be causal")
        if self._mixes_in_training(way):
            raise Unfit(
                "the sequences of a batch influence each other in training, as by the batch statistics of BatchNorm: "
                "use LayerNorm"
            )
        trained = [parameter for parameter in self.layer.parameters() if parameter.requires_grad]
        if trained and not way.call(self.layer, self.x, None, self.units)[0].requires_grad:
            raise Unfit("its outputs have no gradient, so its weights cannot be trained")

    def without_gradient(self, way: Way) -> tuple[bool, list[str]]:
        """Return whether the gradient of an output reaches its own step alone, and which parameters it does not reach.

        The outputs have random weights, because their plain sum may be constant, as that of a softmax is.

        Raises:
            Exception: the layer runs in evaluation mode alone.
        """
        trained = {name: each for name, each in self.layer.named_parameters() if each.requires_grad}
        x = self._longest[: _CELL_STEPS if way.is_cell else _STEPS].clone().requires_grad_()
        outputs, _ = way.call(self.layer, x, None, self.units)
        weighted = outputs * torch.randn_like(outputs)

        def of(part: Tensor, leaves: list[Tensor]) -> list[Tensor]:
            return list(
                torch.autograd.grad(part.sum(), leaves, retain_graph=True, allow_unused=True, materialize_grads=True)
            )

        own, later = (bool(of(part, [x])[0][0].any()) for part in (weighted[:1], weighted[1:]))
        gradients = of(weighted, list(trained.values())) if trained else []
        without = [name for name, gradient in zip(trained, gradients, strict=True) if not gradient.any()]
        return own and not later, without

    def _with_state(self, way: Way) -> Interface:
        """Return the interface with the part of the returned value that continues a sequence, if there is one.

        Raises:
            Unfit: the user names an interface with a state, and none continues a sequence.
        """
        found = None
        if self.named != "sequence":
            try:
                found = self._continued(way if way.is_cell else replace(way, interface="rnn", passes="second"))
            except Exception:  # the layer takes no such state
                found = None
        if found is None and self.named == "rnn":
            raise Unfit("the state that it returns does not continue a sequence: set interface=sequence")
        return found or Interface(way, ())

    def _continued(self, way: Way) -> Interface | None:
        """Return the interface if the state that this way passes continues a sequence, one step at a time."""
        x = self.x[:_CELL_STEPS]  # rounding errors grow with the length
        whole, final = self._call(way, x)
        _, fewer = self._call(way, x[:, 1:])
        if not tensors_of(final) or len(tensors_of(final)) < len(tree_leaves(final)):
            return None  # no state, or one with other things than tensors
        axes = [batch_axis(one, other) for one, other in zip(tensors_of(final), tensors_of(fewer), strict=True)]
        state, steps = None, []
        for step in x.split(1):
            output, state = self._call(way, step, state)
            steps.append(output)
        first = self._call(way, x[:1])[1]  # a cache grows from step to step
        shapes = [[each.shape for each in tensors_of(value)] for value in (state, final, first)]
        if None in axes or shapes[0] != shapes[1] or shapes[0] != shapes[2]:
            return None
        # Rounding errors are far below, and a wrong state is near or above what starting anew at each step changes.
        afresh = torch.cat([self._call(way, step)[0] for step in x.split(1)])
        tolerance = 0.01 * float((whole - afresh).abs().max())
        if not tolerance or not float((whole - torch.cat(steps)).abs().max()) <= tolerance:
            return None
        zeros = tree_map(torch.zeros_like, final)
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
        return Interface(way, (), carries=True, from_zero=gap <= tolerance, traced=traced)


def _arguments(layer: nn.Module) -> list[inspect.Parameter]:
    """Return a layer's positional arguments; none if its forward pass does not say them."""
    try:
        parameters = inspect.signature(layer.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]


def _differ(before: Tensor, after: Tensor, tolerance: float = 1e-6) -> Tensor:
    """Return which outputs of a sequence at a step differ, `[time, batch]`; NaN differs from everything."""
    return ~((after - before).abs() <= tolerance * (1 + before.abs().amax())).all(-1)
