"""Count the parameters of models and the sizes of their states, without training them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

from orthobench.errors import OrthobenchError, UsageError
from orthobench.model import Model, Signature, State
from orthobench.model.build import build_model
from orthobench.spec.resolve import RunConfig
from orthobench.system.own_code import described
from orthobench.task import Batch, SyntheticSettings

LARGEST_ON_CPU = 2**11
"""The largest hidden size of a model that is built on the CPU."""


class Counter:
    """A counter of the parameters of models. It builds each task only once per combination of settings."""

    def __init__(self) -> None:
        self.signatures: dict[str, Signature] = {}

    def count(self, config: RunConfig) -> int:
        """Return the parameter count of a run's model.

        The model is built on the device "meta", which takes no memory. If its code reads numbers, it is built on the
        CPU instead.

        Raises:
            OrthobenchError: the data of the task is missing, or the model cannot be built.
        """
        signature = self._signature(config)
        with suppress(Exception), torch.device("meta"):  # a plugin may raise any error on tensors without numbers
            return _built(config, signature).parameter_count()
        if config.model_settings.hidden_size > LARGEST_ON_CPU:
            raise UsageError(f"{config.spec.model} is too large to be counted: name fewer parameters")
        with _errors_of(config):
            return _built(config, signature).parameter_count()

    def state_size(self, config: RunConfig) -> int:
        """Return how many real numbers the model carries from step to step, for one sequence.

        A built-in model is built on the device "meta", as in `count`, and says what its first state is. Another one is
        built on the CPU, and runs over two steps.

        Raises:
            OrthobenchError: as for `count`, or the model returns no state.
        """
        signature = self._signature(config)
        if config.catalog.find("model", config.spec.model).is_built_in:
            with suppress(Exception), torch.device("meta"):
                return _size_of(_built(config, signature).initial_state(1))
            if getattr(config.model_settings, "hidden_size", 0) > LARGEST_ON_CPU:
                raise UsageError(f"{config.spec.model} is too large for its state to be counted")
        steps = torch.zeros(2, 1, dtype=torch.long) if signature.tokens else torch.zeros(2, 1, signature.input_size)
        where = torch.zeros(1, 1, dtype=torch.long) if signature.readout == "positions" else None
        with _errors_of(config), torch.no_grad():
            _, state = Batch(steps, steps, positions=where).through(_built(config, signature).eval())
        size = _size_of(state)
        if not size:
            raise UsageError(f"{config.spec.model} returns no state whose size could be counted: match its parameters")
        return size

    def _signature(self, config: RunConfig) -> Signature:
        """Return the signature of a run's task, with a single sequence of generated data, which changes no shape."""
        settings, condition = config.task_settings, config.spec.condition
        if condition not in self.signatures:
            if isinstance(settings, SyntheticSettings):
                settings = settings.model_copy(update={"train_size": 1, "test_size": 1})
            task = config.task_class(settings, config.spec.seed, torch.device("cpu"))
            self.signatures[condition] = task.signature
        return self.signatures[condition]


def _built(config: RunConfig, signature: Signature) -> Model:
    return build_model(config.model_class, config.model_settings, signature, torch.Generator())


@contextmanager
def _errors_of(config: RunConfig) -> Iterator[None]:
    """Turn any error of a plugin in the `with` block into one line."""
    try:
        yield
    except OrthobenchError:  # its message already names the cause
        raise
    except Exception as error:
        raise UsageError(f"{config.spec.model} cannot be built: {described(error)}") from error


def _size_of(state: State) -> int:
    return sum(part.numel() * (2 if part.is_complex() else 1) for part in state)
