"""The checks of probe plugins."""

from __future__ import annotations

from typing import Any

import torch

from orthobench.plugins import Catalog, registered_names
from orthobench.probe import ProbeContext, ProbeResult
from orthobench.task import Batch
from orthobench.testing.require import no_global_draws, require

BATCH = 3


def _context(probe_class: Any, model_name: str = "lstm") -> ProbeContext:
    """Return a small model on the adding problem, or on words over a group if the probe measures nothing there."""
    measures = _entries(probe_class()(_small("adding", model_name)))
    return _small("adding" if measures else "group_word", model_name)


def _small(task_name: str, model_name: str) -> ProbeContext:
    """Return a small model on a small task; an LSTM has two states and no recurrent matrix."""
    catalog = Catalog()
    task_class, model_class = catalog.load("task", task_name), catalog.load("model", model_name)
    length = "sequence_length" if task_name == "adding" else "longest"
    settings = task_class.Settings.read({length: 6, "train_size": BATCH, "test_size": BATCH})
    task = task_class(settings, 0, torch.device("cpu"))
    small = model_class.Settings.read({"hidden_size": 4})
    model = model_class(small, task.signature, torch.Generator().manual_seed(0))
    return ProbeContext(model, task, Batch.of(task.train, torch.arange(BATCH)))


def _entries(result: ProbeResult) -> dict[str, list[float]]:
    entries = {f"value {name}": [value] for name, value in result.values.items()}
    return entries | {f"vector {name}": list(vector) for name, vector in result.vectors.items()}


def values_are_numbers(probe_class: Any) -> None:
    """The result for an LSTM, a plain RNN or an Euler step contains numbers, which may be infinite, but not NaN."""
    results = [_entries(probe_class()(_context(probe_class, name))) for name in ("lstm", "rnn", "antisymmetric")]
    require(any(results), "its result is empty")
    for name, numbers in (entry for entries in results for entry in entries.items()):
        require(all(isinstance(number, int | float) for number in numbers), f"{name} holds more than numbers")
        require(not bool(torch.tensor(numbers).isnan().any()), f"{name} is NaN")


def the_same_context_gives_the_same_result(probe_class: Any) -> None:
    """The same context gives the same numbers twice, from one instance of the class and from two."""
    context, probe = _context(probe_class), probe_class()
    first = _entries(probe(context))
    require(first == _entries(probe(context)), "the second result differs")
    require(first == _entries(probe_class()(context)), "another object of the class gives other numbers")


def the_model_is_left_alone(probe_class: Any) -> None:
    """The probe does not change parameters, gradients, mode and the global generators."""
    context = _context(probe_class)
    before = {name: value.clone() for name, value in context.model.state_dict().items()}
    with no_global_draws("the probe"):
        probe_class()(context)
    require(all(torch.equal(value, before[name]) for name, value in context.model.state_dict().items()), "it trains")
    require(all(parameter.grad is None for parameter in context.model.parameters()), "it leaves gradients behind")
    require(context.model.training, "it leaves the model in evaluation mode")


def the_schedule_is_a_number_of_epochs(probe_class: Any) -> None:
    """`every_epochs` is a whole number, at least 0."""
    every = probe_class.every_epochs
    require(isinstance(every, int) and every >= 0, f"every_epochs is {every!r}")


def names_begin_with_the_probes(probe_class: Any) -> None:
    """Every result is named after its probe, such as `heat_map/h`, because the probes of a run have different names."""
    contexts = (_context(probe_class, "lstm"), _context(probe_class, "rnn"))
    names = [name.partition(" ")[2] for context in contexts for name in _entries(probe_class()(context))]
    prefixes = registered_names("probe", probe_class) or [name.partition("/")[0] for name in names[:1]]
    for name in names:
        is_own = any(name == prefix or name.startswith((f"{prefix}/", f"{prefix}_")) for prefix in prefixes)
        require(is_own, f"{name} does not begin with the probe's name: call it {prefixes[0]}/{name}")


CHECKS = (
    values_are_numbers,
    the_same_context_gives_the_same_result,
    the_model_is_left_alone,
    the_schedule_is_a_number_of_epochs,
    names_begin_with_the_probes,
)
