"""Names of models for people: the user's label, else the title of the model's class, else the stored name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.errors import UsageError
from orthobench.spec.index import index

NO_LABELS: Mapping[str, str] = {}


def name_of(model: str, labels: Mapping[str, str] = NO_LABELS) -> str:
    """Return the name of a model for people.

    Args:
        labels: names that go before the title, by the stored names of models.
    """
    plugin = index()["plugins"].get(f"model/{model}")
    return labels.get(model) or (plugin["title"] if plugin else model)


def named(condition: Condition, labels: Mapping[str, str] = NO_LABELS) -> Condition:
    """Return a condition whose variants are labelled with names for people; `labels` as for `name_of`."""
    return replace(condition, variants=[_named(variant, labels) for variant in condition.variants])


def _named(variant: VariantData, labels: Mapping[str, str]) -> VariantData:
    model = variant.run.model
    name = name_of(model, labels)
    if name == model or not f"{variant.label} ".startswith(f"{model} "):
        return variant
    return replace(variant, label=name + variant.label.removeprefix(model))


def check_labels(labels: Mapping[str, str], models: Collection[str]) -> None:
    """Check that labels belong to models of a report, and that no two of its models would have one name.

    Raises:
        UsageError: a model has no run, or the label is the name of another model.
    """
    names = {model: name_of(model, labels) for model in sorted(models)}
    for model, label in labels.items():
        if model not in names:
            known = ", ".join(sorted(models)[:8])
            raise UsageError(f"the label '{label}' is of {model}, but this report has no run of it; it has {known}")
        others = [other for other, name in names.items() if name == label and other != model]
        if others:
            raise UsageError(f"the label '{label}' of {model} is the name of {others[0]}, too: give another one")
