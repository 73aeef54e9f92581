"""Find the interface of a layer, and check that it is a causal recurrence.

The user names the interface, or the arguments of `forward` say it: a layer that needs a state is a cell, and one that
takes none has sequences. If the state may be left out, the layer has sequences if it remembers their steps, and else it
is a cell. Sequences are `[time, batch, features]` or `[batch, time, features]`: a layer remembers along time alone.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from orthobench.foreign.constructor import ADAPTER, NAME, WRAP
from orthobench.foreign.interface import Interface, LayerValue, Unfit, Way, tensors_of
from orthobench.isolation import isolated
from orthobench.system.own_code import calls, described, place_of

_STEPS, _CELL_STEPS, _BATCH, INPUTS = 64, 7, 3, 5
"""Shape of the trial's inputs; the numbers differ from each other and from the trial's hidden sizes, so that no
axis is taken for another one.

A look-ahead or a dilation shows only if it is shorter than the sequence. A cell sees one step, so few are enough, as
they have to be for a layer that refuses more.
"""
_ROOM = __name__.rpartition(".")[0]
_CUT = 4
"""The step at which a sequence is cut in two."""
_DISTURBANCE = 3.0
"""What is added to inputs from N(0, 1): far beyond rounding, and not so far that gates let nothing through."""


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

    It is the position in each function, from the outermost one, without those of this room, which call the layer.
    """
    frames = [(call.tb_lasti, str(call.tb_frame.f_globals.get("__name__"))) for call in calls(error)]
    return tuple(position for position, module in frames if not module.startswith(_ROOM))


def _lacks_gpu(error: BaseException) -> bool:
    """Return whether Triton raised an error on a machine without a GPU, where it says that it has no driver."""
    names = (call.tb_frame.f_globals.get("__name__", "") for call in calls(error))
    return not torch.cuda.is_available() and any(str(name).split(".")[0] == "triton" for name in names)


def device_of(layer: nn.Module) -> torch.device | None:
    """Return the device of a layer's parameters; None without parameters."""
    return next((parameter.device for parameter in layer.parameters()), None)


def _batch_axis(one: Tensor, other: Tensor) -> int | None:
    """Return the only axis in which two tensors, of batches of different size, differ; None without such an axis."""
    if one.dim() != other.dim():
        return None
    axes = [axis for axis in range(one.dim()) if one.shape[axis] != other.shape[axis]]
    return axes[0] if len(axes) == 1 else None


class Reach(NamedTuple):
    """Which outputs change if the first step of a sequence and the late steps of another one do.

    Attributes:
        later: those at later steps of the first sequence: the layer remembers.
        earlier: those at earlier steps of the other sequence.
        others: those of a sequence that stays as it is.
    """

    later: bool
    earlier: bool
    others: bool


class LayerTrial:
    """The trial of a layer in evaluation mode.

    Args:
        named: the interface that the user names; None to find it.

    Attributes:
        x: the inputs `[time, batch, features]`.
    """

    def __init__(self, layer: nn.Module, inputs: int, units: int, named: str | None = None) -> None:
        self.layer, self.units, self.named = layer, units, named
        self.x = self._longest = torch.randn(_STEPS, _BATCH, inputs).to(device_of(layer) or "cpu")

    def interface(self) -> Interface:
        """Return what the trial finds; the numbers of outputs are missing.

        Raises:
            Unfit: the layer does not work as a model.
            Refused: the layer cannot be called, perhaps because of its size.
        """
        unfit: list[Unfit] = []
        refusals: list[tuple[tuple[int, ...], Way, BaseException]] = []
        for way in self._ways():
            for steps in (_CELL_STEPS,) if way.is_cell else (_STEPS, _CELL_STEPS):
                self.x = self._longest[:steps]
                try:
                    reach = self._reach_of_same(way)
                except Unfit as reason:
                    unfit.append(reason)
                except (Exception, SystemExit) as error:  # a wrong call may raise any error
                    refusals.append((_progress(error), way, error))
                    continue  # because some layers have a largest number of steps
                else:
                    if reach.later:
                        self._check(way, reach)
                        return self._with_state(way)
                    before = f"none of the {steps - 1} steps before it"
                    unfit.append(Unfit(f"its output at a step depends on {before}, so it is not a recurrence"))
                break
        if unfit:
            raise unfit[0]
        _, way, furthest = max(refusals, key=lambda refusal: refusal[0])  # it says most
        if place_of(furthest) is None:
            fix = WRAP if self.named else ADAPTER
        else:
            fix = "" if self.named else f"if it is called otherwise, {NAME}"
        raise Refused(furthest, way.in_words(self._longest, self.units), fix) from furthest

    def _ways(self) -> list[Way]:
        """Return the ways of calling the layer, of which the first with which it remembers is the right one.

        Raises:
            Unfit: the layer takes its state before its inputs.
        """
        arguments = _arguments(self.layer)
        if len(arguments) > 1 and re.fullmatch(r"(x|xs|u|inp|inputs?)(_?t)?", arguments[1].name.lower()):
            first, second = (each.name for each in arguments[:2])
            raise Unfit(f"forward takes {first} before {second}: a layer takes its inputs first, then its state")
        needs_state = sum(each.default is each.empty for each in arguments) > 1
        cells = [Way("cell", needs_state=needs_state, is_pair=is_pair) for is_pair in (True, False)]
        sequences = [Way("sequence", batch_first, needs_state) for batch_first in (False, True)]
        if self.named is not None:
            return cells if self.named == "cell" else sequences
        return cells if needs_state else sequences if len(arguments) == 1 else [*sequences, *cells]

    def _call(self, way: Way, x: Tensor, state: LayerValue = None) -> tuple[Tensor, LayerValue]:
        with torch.no_grad():
            return way.call(self.layer, x, state, self.units)

    def _outputs(self, way: Way, x: Tensor) -> Tensor:
        torch.default_generator.manual_seed(0)
        return self._call(way, x)[0]

    def _reach(self, way: Way) -> Reach:
        """Return how far inputs reach: the one test of memory, causality and separate sequences."""
        late = 37 if len(self.x) == _STEPS else 5  # primes, where no block of fewer steps begins
        disturbed = self.x.clone()
        disturbed[0, 0] += _DISTURBANCE
        disturbed[late:, -1] += _DISTURBANCE
        before, after = self._outputs(way, self.x), self._outputs(way, disturbed)
        # The rounding errors of a convolution by FFT reach earlier steps, up to 6e-7 in measurements. NaN is a change.
        changed = ~((after - before).abs() <= 1e-5 * (1 + before.abs().amax())).all(-1)
        return Reach(*(bool(part.any()) for part in (changed[1:, 0], changed[:late, -1], changed[:, 1:-1])))

    def _reach_of_same(self, way: Way) -> Reach:
        """Return how far inputs reach in a layer whose outputs are finite, and the same in each call.

        Raises:
            Unfit: they are not.
            Exception: the layer cannot be called in this way.
        """
        outputs = self._outputs(way, self.x)
        if not outputs.isfinite().all():
            raise Unfit("its outputs are NaN or infinite")
        reach = self._reach(way)
        if not torch.equal(outputs, self._call(way, self.x)[0]):  # with other random numbers, after another call
            raise Unfit(
                "the same inputs give other outputs in a second call: it keeps a state between calls, or it is random "
                "in evaluation mode"
            )
        if not any(reach):  # perhaps a weight starts at zero
            self.shake()
            reach = self._reach(way)
        return reach

    def _mixes_in_training(self, way: Way) -> bool:
        """Return whether the sequences of a batch influence each other in training; False if that cannot be tried."""
        self.layer.train()
        try:
            # Twice, because dropout by another generator than torch's is not seeded here, and looks like an influence.
            with isolated():  # because what a layer sets in training must not reach the rest of the trial
                is_seeded = torch.equal(self._outputs(way, self.x), self._outputs(way, self.x))
                return is_seeded and self._reach(way).others
        except KeyboardInterrupt:
            raise
        except BaseException:  # a layer may exit, or raise any error, and training will say so
            return False
        finally:
            self.layer.eval()

    def shake(self) -> None:
        """Change all weights at random, because one that starts at zero may hide the others."""
        with torch.no_grad():
            for parameter in self.layer.parameters():
                if parameter.is_floating_point():
                    # By 0.3, because weights of the size that layers start with saturate nothing.
                    parameter.add_(0.3 * torch.randn_like(parameter))

    def _check(self, way: Way, reach: Reach) -> None:
        """Check what a model has to be besides a recurrence.

        Raises:
            Unfit: sequences influence each other, the outputs depend on later steps, have another type than the inputs,
                or have no gradient.
        """
        if reach.others:
            raise Unfit("the sequences of a batch influence each other, so their order matters")
        outputs = self._outputs(way, self.x)
        if outputs.dtype != self.x.dtype:
            fix = "torch.view_as_real(outputs).flatten(-2)" if outputs.is_complex() else "outputs.float()"
            kind, needed = (str(each.dtype).removeprefix("torch.") for each in (outputs, self.x))
            raise Unfit(f"its outputs are {kind}, but they have to be {needed}, as its inputs: return {fix}")
        if reach.earlier:
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
            with contextlib.suppress(Exception):  # the layer takes no such state
                found = self._continued(way if way.is_cell else replace(way, interface="rnn"))
        if found is None and self.named == "rnn":
            raise Unfit("the state that it returns does not continue a sequence: set interface=sequence")
        return found or Interface(way, ())

    def _continued(self, way: Way) -> Interface | None:
        """Return the interface if the state that a layer returns continues a sequence that is cut in two."""
        x = self.x[:_CELL_STEPS]  # rounding errors grow with the length
        whole, final = self._call(way, x)
        _, fewer = self._call(way, x[:, 1:])
        _, state = self._call(way, x[:_CUT])
        continued, afresh = self._call(way, x[_CUT:], state)[0], self._call(way, x[_CUT:])[0]
        parts = tensors_of(final)
        if not parts or len(parts) < len(tree_leaves(final)):
            return None  # no state, or one with other things than tensors
        found = [_batch_axis(one, other) for one, other in zip(parts, tensors_of(fewer), strict=True)]
        axes = tuple(axis for axis in found if axis is not None)
        is_same_size = [each.shape for each in parts] == [each.shape for each in tensors_of(state)]  # unlike a cache
        # Rounding errors are far below, and a wrong state is near or above what starting anew changes.
        tolerance = 0.01 * float((whole[_CUT:] - afresh).abs().max())
        if None in found or not is_same_size or not 0 < tolerance >= float((whole[_CUT:] - continued).abs().max()):
            return None
        zeros = tree_map(torch.zeros_like, final)
        gap = float((whole - self._call(way, x, zeros)[0]).abs().max())
        traced = next(
            (
                (position, block)
                for position, (tensor, axis) in enumerate(zip(parts, axes, strict=True))
                for block, part in enumerate(tensor.movedim(axis, 0).flatten(1).split(whole.shape[-1], dim=1))
                if part.shape == whole[-1].shape and torch.equal(part, whole[-1])
            ),
            None,
        )
        return Interface(way, (), axes=axes, from_zero=gap <= tolerance, traced=traced)


def _arguments(layer: nn.Module) -> list[inspect.Parameter]:
    """Return a layer's positional arguments; none if its forward pass does not say them."""
    try:
        parameters = inspect.signature(layer.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
