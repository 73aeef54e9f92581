"""A cell of the user over sequences: by a kernel that is compiled for its first use, or in a loop of its steps."""

from __future__ import annotations

import dataclasses
import functools
import logging
import pickle
import random
from collections.abc import Callable, Hashable, Iterator, Mapping, MutableSequence, Sequence, Set
from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.utils import parametrize

from orthobench.recurrence import backends, plain_tensors
from orthobench.recurrence.call import GradientTrace, Result, State
from orthobench.recurrence.compiler.expressions import UnfitError
from orthobench.recurrence.compiler.kernel import StepKernel
from orthobench.recurrence.compiler.text import VERSION
from orthobench.recurrence.compiler.trace import Step, batch_size, inspect, record
from orthobench.recurrence.cuda import self_test
from orthobench.system.location import variable
from orthobench.system.own_code import described, is_own_class, place_of

_logger = logging.getLogger("orthobench.recurrence")
_said: set[tuple[str, str]] = set()

RunStep = Callable[[Tensor, State], tuple[Tensor, State]]
"""A step of a cell: from x_t `[B, m]` and the state, the output `[B, n]` and the next state, tensors `[B, n]`."""

_CHECKED_STEPS, _CHECKED_ROWS, _TOLERANCE = 4, 3, 1e-4
"""The size of the comparison with the loop, and the largest relative difference. Rounding differs by 1e-6, and a wrong
gradient by more than a hundredth."""

_CHANGES = "the step changes an attribute of its module"

_MOST_SETTINGS = 8
"""How many settings of a module have a kernel, because each takes the time of a compiler."""


class CompiledCell:
    """A cell's loop over time.

    A kernel serves one device, one size of inputs and states, and the attributes of the module when it was recorded.
    For others the step is recorded again.

    Args:
        module: the cell.
        step: runs one step of it.
    """

    def __init__(self, module: nn.Module, step: RunStep) -> None:
        self.module, self.step = module, step
        self._kernels: dict[Any, StepKernel | str] = {}
        self._changes: set[bool] = set()  # in training or not: where each step changes the module

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kernels": {}}  # a copy records its own steps

    def run(self, x: Tensor, state: State, trace: GradientTrace | None = None) -> Result:
        """Run all steps.

        Args:
            x: the inputs `[T, B, m]`.
            state: the initial state, tensors `[B, n]`.
            trace: receives the norms of gradients with respect to the output's state.
        """
        return self.by_kernel(x, state, trace) or self.loop(x, state, trace)

    def by_kernel(self, x: Tensor, state: State, trace: GradientTrace | None = None) -> Result | None:
        """Run all steps by the kernel, or return None if there is none; see `run`.

        A run records whether the kernel passed its comparison with the steps, or why there is none.
        """
        if not self._may_compile(x, state, trace):
            return None
        kernel = self._kernel(x, state)
        verdict = "passed" if isinstance(kernel, StepKernel) else kernel
        backends.record_self_test(type(self.module).__name__, verdict, {"cell_compiler": VERSION})
        if not isinstance(kernel, StepKernel):
            self._say(kernel)
            return None
        backends.record_used(x.device.type)
        with backends.outside_autocast(x.device), torch.cuda.device_of(x):  # on which kernels are launched
            return kernel.run(self._arguments(), x, state, trace)

    def loop(self, x: Tensor, state: State, trace: GradientTrace | None = None) -> Result:
        """Run all steps in PyTorch, one after another; see `run`."""
        outputs, states = [], []
        for step in x.unbind(0):
            output, state = self.step(step, state)
            outputs.append(output)
            states.append(state[0])
        if trace is not None:
            trace.watch("h", outputs)
        return torch.stack(outputs), state

    def explain(self, inputs: int, state: State) -> str:
        """Return what the compiler makes of the cell with these sizes, or why it does not compile it."""
        kernel = self._kernel(state[0].new_zeros(1, 1, inputs), state)
        if isinstance(kernel, StepKernel):
            return f"compiled ({kernel.description})"
        _said.add((type(self.module).__name__, kernel))
        return f"a loop in PyTorch: {kernel}"

    def _say(self, reason: str) -> None:
        """Log why the cell runs as a loop, once in a program, which may make many copies of a cell."""
        said = type(self.module).__name__, reason
        if said not in _said:
            _said.add(said)
            _logger.warning("%s runs as a loop in PyTorch: %s", *said)

    def _may_compile(self, x: Tensor, state: State, trace: GradientTrace | None) -> bool:
        """Return whether a kernel may run this call, as for the calls of operations."""
        kind = x.device.type
        if kind not in ("cpu", "cuda") or backends.chosen_backend() not in (backends.AUTO, kind):
            return False
        if plain_tensors.needs_torch():
            return False
        if (trace is not None and trace.of_sum) or x.dim() != 3 or 0 in x.shape:
            return False
        if any(each.dim() != 2 or len(each) != x.shape[1] for each in state):
            return False
        are_usual = all(each.device == x.device and each.dtype is torch.float32 for each in (x, *state))
        return are_usual and plain_tensors.are_plain((x, *state, *self._arguments().values()))

    def _arguments(self) -> dict[str, Tensor]:
        return dict((*self.module.named_parameters(), *self.module.named_buffers()))

    def _kernel(self, x: Tensor, state: State) -> StepKernel | str:
        """Return the kernel for these sizes, or the reason why there is none."""
        sizes = tuple(each.shape[-1] for each in state)
        try:
            changes = self.module.training in self._changes
            key = x.device, x.shape[-1], sizes, self.module.training if changes else _settings(self.module)
        except UnfitError as error:
            result: StepKernel | str = str(error)
        else:
            if key not in self._kernels:
                if sum(each[:3] == key[:3] for each in self._kernels) >= _MOST_SETTINGS:
                    return f"its attributes have had more than {_MOST_SETTINGS} values"
                self._kernels[key] = _CHANGES if changes else self._tried(x.device, x.shape[-1], sizes)
            result = self._kernels[key]
        return result

    def _tried(self, device: torch.device, inputs: int, sizes: Sequence[int]) -> StepKernel | str:
        """Return the kernel for these sizes, or the reason why there is none."""
        try:
            # A kernel is made in the program's first call, whatever that call is for.
            outside, unseen = backends.outside_autocast(device), saved_tensors_hooks(_itself, _itself)
            with torch.inference_mode(False), torch.enable_grad(), outside, unseen, _without_cached_weights():
                return self._compiled(device, inputs, sizes)
        except UnfitError as error:
            return str(error)
        except Exception as error:  # because a cell that torch can run should train
            return described(error) if place_of(error) else f"its compiler raises {described(error)}"

    def _compiled(self, device: torch.device, inputs: int, sizes: Sequence[int]) -> StepKernel:
        """Record, compile and check the step.

        Raises:
            UnfitError: it cannot be compiled, or the kernel computes something else than the step.
        """
        arguments = self._arguments()
        for name, each in arguments.items():
            if each.is_floating_point() and each.dtype != torch.float32:
                raise UnfitError(f"the kernels are for float32, and {name} is {each.dtype}".replace("torch.", ""))
        batch = batch_size([each.shape for each in arguments.values()] + [sizes, (inputs,)])
        x, *state = [_drawn(batch, size).to(device) for size in (inputs, *sizes)]
        recorded = self._recorded(x, state)
        inspect(self.step, *[_drawn(_CHECKED_ROWS, size).to(device) for size in (inputs, *sizes)])
        kernel = StepKernel(recorded, device)
        if device.type == "cpu" or variable(self_test.SWITCH) != "off":
            self._check(kernel, device, inputs, sizes)
        return kernel

    def _recorded(self, x: Tensor, state: Sequence[Tensor]) -> Step:
        """Return the recorded step.

        Raises:
            UnfitError: it cannot be compiled.
        """
        arguments = self._arguments()
        before = (_settings(self.module), *map(id, arguments.values()))

        def step() -> list[Tensor]:
            output, after = self.step(x, tuple(state))
            return [output, *after]

        recorded = record(step, arguments, x, state)
        if before != (_settings(self.module), *map(id, self._arguments().values())):
            self._changes.add(self.module.training)
            raise UnfitError(_CHANGES)
        output, *states = recorded.states
        if len(states) != len(state):
            raise UnfitError(f"the step returns {len(states)} states for {len(state)}")
        if output is not states[0]:
            raise UnfitError("its output is not the first of its states")
        return Step(recorded.units, states, recorded.program)

    def _check(self, kernel: StepKernel, device: torch.device, inputs: int, sizes: Sequence[int]) -> None:
        """Compare the kernel with the loop in values and all gradients, with and without a gradient of the inputs.

        Raises:
            UnfitError: they differ.
        """
        trained = {name: each for name, each in self.module.named_parameters() if each.requires_grad}
        names = ["the output", "the inputs", *(f"state {k}" for k in range(len(sizes))), *trained]

        def results(run: Callable[[Tensor, State], Result], of_x: bool) -> list[Tensor | None]:
            rows = _CHECKED_ROWS if of_x else 1  # one row, because a step may do something else for it
            x = _drawn(_CHECKED_STEPS, rows, inputs).to(device).requires_grad_(of_x)
            state = [_drawn(rows, size).to(device).requires_grad_() for size in sizes]
            outputs, final = run(x, tuple(state))
            loss = (outputs * outputs.detach().cos()).sum() + sum((each.square()).sum() for each in final)
            leaves = [*([x] if of_x else []), *state, *trained.values()]
            gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
            return [outputs.detach(), *([] if of_x else [None]), *gradients]

        for of_x in (True, False):
            kernels = results(lambda x, state: kernel.run(self._arguments(), x, state), of_x)
            loops = results(self.loop, of_x)
            if not all(each.isfinite().all() for each in loops if each is not None):
                raise UnfitError("the step gives NaN or infinity for random inputs and states")
            # Next to the largest gradient, because one that is zero in truth is a sum of rounding errors.
            scale = max(float(each.norm()) for each in loops[1:] if each is not None)
            for name, one, other in zip(names, kernels, loops, strict=True):
                if _differ(one, other, scale):
                    what = name if name == "the output" else f"the gradient of {name}"
                    raise UnfitError(f"its kernel and its loop differ in {what}")


@contextmanager
def _without_cached_weights() -> Iterator[None]:
    """Let parametrised weights be computed in the `with` block, and keep none of it for the block around it.

    Because a weight that `parametrize.cached` holds would be a constant of the step, and one that is recorded, without
    a gradient, would stay in the program's own block.
    """
    before = parametrize._cache_enabled, parametrize._cache
    parametrize._cache_enabled, parametrize._cache = 0, {}
    try:
        yield
    finally:
        parametrize._cache_enabled, parametrize._cache = before


def _itself(tensor: Tensor) -> Tensor:
    """Return a tensor as it is: what is saved here belongs to no checkpoint of the program."""
    return tensor


def _drawn(*shape: int) -> Tensor:
    """Draw normal numbers, whatever generator, type and device the program has set."""
    return torch.from_numpy(np.random.RandomState(len(shape)).standard_normal(shape).astype(np.float32))


def _differ(one: Tensor | None, other: Tensor | None, scale: float) -> bool:
    if one is None or other is None:
        return any(each is not None and bool(each.any()) for each in (one, other))
    return not bool((one - other).norm() <= _TOLERANCE * (other.norm() + 0.1 * scale + 1e-3))


_NUMBERS = frozenset({bool, int, float})
_FUNCTIONS = (FunctionType, BuiltinFunctionType, ModuleType)
_HOOKS = vars(nn.Module()).keys() - {"training", "_parameters", "_buffers", "_modules"}
"""What torch keeps in each module besides its settings, most of it hooks."""


def _settings(module: nn.Module) -> Any:
    """Return what a recorded step takes for granted besides its sizes, as a value that can be hashed.

    These are the attributes of the module and of those in it, and the names and sizes of its parameters and buffers. It
    counts, too, which of these are the same tensor, and which are trained, because only their gradients are compared.
    Attributes are followed through containers, data classes, and objects and classes of the cell's own file or of the
    user's own code. Anything else is another setting when it is another object.

    Raises:
        UnfitError: a module has hooks, which a kernel would not call.
    """
    registered = {id(each) for each in (*module.parameters(), *module.buffers())}
    places: dict[int, int] = {}

    def is_followed(cls: type) -> bool:
        is_of_cell = cls.__module__ == type(module).__module__
        return is_of_cell or dataclasses.is_dataclass(cls) or is_own_class(cls)

    def setting(value: Any) -> Any:
        if type(value) is str or value is None:
            return value
        if type(value) in _NUMBERS:
            return type(value), value
        if id(value) in places:
            return "again", places[id(value)]
        if isinstance(value, Tensor):
            if id(value) not in registered:
                return "tensor", id(value)  # the kernel keeps it, so no other one gets its number
            places[id(value)] = len(places)
            return value.shape, value.dtype, value.requires_grad
        if isinstance(value, MethodType):
            return value.__func__, setting(value.__self__)
        if isinstance(value, np.ndarray):
            numbers = setting(tuple(value.flat)) if value.dtype.hasobject else value.tobytes()
            return value.shape, value.dtype, numbers
        if isinstance(value, (random.Random, np.random.Generator, np.random.RandomState)):
            return pickle.dumps(value)  # so that a step that draws from it changes it
        if isinstance(value, _FUNCTIONS):
            return value
        kind: type | None = None
        if isinstance(value, functools.partial):
            parts: Any = value.func, value.args, value.keywords
        elif isinstance(value, (tuple, MutableSequence)):
            parts = value
        elif isinstance(value, Mapping):
            parts = value.items()
        elif isinstance(value, Set):
            return frozenset(map(setting, value))
        elif isinstance(value, nn.Module) or is_followed(value if isinstance(value, type) else type(value)):
            kind, parts = value if isinstance(value, type) else type(value), _own_attributes(value)
        else:
            return value if isinstance(value, Hashable) else id(value)
        if not isinstance(value, tuple):  # a tuple may be gone when the next one has its number
            places[id(value)] = len(places)
        return kind, *map(setting, parts)  # a class as it is, because its attributes are among those of the object

    for name, each in module.named_modules():
        own = each.__dict__
        if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]:
            raise UnfitError(f"{name or 'the cell'} has hooks")
    return setting(module)


def _own_attributes(value: Any) -> Iterator[Any]:
    """Yield the attributes of an object and of its classes, or of a class, but not of those of torch."""
    is_class = isinstance(value, type)
    if not is_class and hasattr(value, "__dict__"):
        yield from (item for item in vars(value).items() if item[0] not in _HOOKS)
    for each in (value if is_class else type(value)).__mro__[:-1]:
        if each.__module__.partition(".")[0] != "torch":
            for name, own in vars(each).items():
                if isinstance(own, MemberDescriptorType) and not is_class:  # of `__slots__`
                    yield name, getattr(value, name, None)
                elif not name.startswith("__"):
                    yield name, own
