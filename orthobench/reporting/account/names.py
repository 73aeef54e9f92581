"""Names for people: of models, of their variants, and of tasks with their settings.

The name of a model is the user's label, else the title of the model's class, else the stored name. Settings are in
words, because `mod_arith` and `train_size=55000` are names for the command line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from orthobench.analysis.conditions import Condition, VariantData, name_of_task
from orthobench.analysis.variants import newer_version
from orthobench.errors import UsageError
from orthobench.papers import Experiment
from orthobench.settings import text
from orthobench.spec.index import built_in

NO_LABELS: Mapping[str, str] = {}
DATA_SIZES = {"train_size": "training", "test_size": "test", "validation_size": "validation"}
"""The settings that are numbers of sequences, with the split in words."""
IMAGES = ("mnist", "cifar10")
"""The tasks whose sequences are images."""
KINDS = {"formal_language": ("language", "{}"), "group_word": ("group", "words over {}")}
"""The setting that says which task a family of tasks is, and the name of this task."""
MEASURES = {"formal_language": "answers right", "group_word": "whole words right"}
"""What the main metric counts on tasks that track a state, because a study reads the states along the way, too."""
PHRASES = {
    "sequence_length": "T = {}",
    "hidden_size": "n = {}",
    "epochs": "{} epochs",
    "max_iterations": "at most {} iterations",
    "longest": "trained up to length {}",
    "shortest": "trained from length {}",
    "test_longest": "tested up to length {}",
    "test_shortest": "tested from length {}",
    "model_version": "version {}",
}
"""Settings whose names alone do not say what they are."""
FLAGS = {
    "longer_tests": ("scored at T", "tests at T alone"),
    "shuffle": ("shuffled", "not shuffled"),
    "audio": ("audio", ""),  # a folder instead of the data set; without one there is nothing to say
}
"""Settings that are on or off, whose names do not say what either means."""
VALUES = {
    "cycle_nav": "cycle navigation",
    "even_pairs": "even pairs",
    "mod_arith": "modular arithmetic",
    "mod_arith_brackets": "modular arithmetic with brackets",
    "event": "event-based",
    "adam_tf1": "Adam",
    "adagrad_tf1": "Adagrad",
    "sgd_momentum": "SGD with momentum",
}
"""Values of settings in words, where these are more than the value without underscores."""
PLAIN = ("language", "group", "encoding", "permuted")
"""Settings whose values need no name in a short title."""


def name_of(model: str, labels: Mapping[str, str] = NO_LABELS) -> str:
    """Return the name of a model for people.

    Args:
        labels: names that go before the title, by the stored names of models.
    """
    plugin = built_in()["plugins"].get(f"model/{model}")
    return labels.get(model) or (plugin["title"] if plugin else model)


def named(condition: Condition, labels: Mapping[str, str] = NO_LABELS) -> Condition:
    """Return a condition whose variants are labelled with names for people; `labels` as for `name_of`."""
    return replace(condition, variants=[_named(variant, labels) for variant in condition.variants])


def _named(variant: VariantData, labels: Mapping[str, str]) -> VariantData:
    words = [in_words(setting, value) for setting, value in variant.differing.items()]
    if version := newer_version(variant.run):
        words.append(f"now {version}")  # after the version of the runs, the last of a label's settings
    return replace(variant, label=", ".join([name_of(variant.run.model, labels), *filter(None, words)]))


def in_words(name: str, value: Any, task: str = "") -> str:
    """Return a setting in words, such as "55,000 training images", "permuted" or "no clip value".

    Args:
        value: the value, or the text by which the command line names it.
        task: the task to which the setting belongs, if any.
    """
    words, shown = name.replace("_", " "), text(value)
    if name in DATA_SIZES:
        words = f"{DATA_SIZES[name]} {'images' if task in IMAGES else 'sequences'}"
        return f"{int(shown):,} {words}" if shown.isdecimal() else f"no {words}"
    if shown in ("true", "false", "none"):
        off = f"not {words}" if words.endswith("ed") else f"no {words}"
        return FLAGS.get(name, (words, off))[shown != "true"]
    if name in PHRASES:
        return PHRASES[name].format(shown)
    if f"model/{shown}" in built_in()["plugins"]:  # a layout of data is named after the model whose program has it
        return f"{words} of {name_of(shown)}"
    said = VALUES.get(shown, shown.replace("_", " ") if shown.isidentifier() else shown)
    return said if name in PLAIN else f"{words} {said}"


def full_title(condition: Condition, among: Sequence[Condition]) -> str:
    """Return the condition's title, with the task settings that distinguish it from others with the same title."""
    return ", ".join(filter(None, (condition.title, distinguishing_settings(condition, among))))


def distinguishing_settings(condition: Condition, among: Sequence[Condition]) -> str:
    """Return in words the settings that distinguish a condition from others with the same title; empty without others.

    Conditions with equal settings differ in the version of the task.
    """
    differing = distinguishing_values(condition, among)
    return ", ".join(filter(None, (in_words(name, value, condition.task) for name, value in differing.items())))


def distinguishing_values(condition: Condition, among: Sequence[Condition]) -> dict[str, Any]:
    """Return the settings of `distinguishing_settings` by name."""
    same = [_task_settings(other) for other in among if other.title == condition.title]
    names = dict.fromkeys(name for settings in same for name in settings)
    differing = [name for name in names if len({str(settings.get(name)) for settings in same}) > 1]
    own = _task_settings(condition)
    return {name: own.get(name) for name in differing}


def _task_settings(condition: Condition) -> dict[str, Any]:
    version = condition.variants[0].run.spec["task_version"] if condition.variants else None
    return {**condition.settings, "version": version}


def short_labels(conditions: Sequence[Condition]) -> list[str]:
    """Name each condition by its title and the fewest settings that tell it from the others.

    Texts come first, then numbers, then sizes of data sets and shortest lengths. What validation is like comes last,
    because no shown score is of it.
    """
    of_task = Counter(condition.task for condition in conditions)
    labels = [short_title(each, of_task[each.task] > 1) for each in conditions]
    names = {name: None for condition in conditions for name in condition.settings if name != "sequence_length"}

    def is_number(name: str) -> bool:
        return any(isinstance(condition.settings.get(name), (int, float)) for condition in conditions)

    def place(name: str) -> tuple[bool, bool, bool, bool]:
        is_flag = any(isinstance(condition.settings.get(name), bool) for condition in conditions)
        of_validation = name.startswith("validation_")
        return (
            of_validation,
            is_number(name) and not is_flag,
            name.endswith(("_size", "shortest")),
            name != "train_size",
        )

    for name in sorted(names, key=place):
        same = {label for label in labels if labels.count(label) > 1}
        for label in same:
            sharing = [number for number, other in enumerate(labels) if other == label]
            values = [conditions[number].settings.get(name) for number in sharing]
            if len(set(map(str, values))) > 1:
                for number, value in zip(sharing, values, strict=True):
                    said = in_words(name, value, conditions[number].task) if value not in (None, False) else ""
                    labels[number] = ", ".join(filter(None, (label, said)))
    return labels


def short_title(condition: Condition, has_others: bool) -> str:
    """Return the title of a condition, without its length if its task has no others."""
    name, phrase = KINDS.get(condition.task, ("", ""))
    if name in condition.settings:
        return phrase.format(in_words(name, condition.settings[name]))
    return condition.title if has_others else condition.data_name


def panel_of(experiment: Experiment) -> str:
    """Return the panel of a figure to which it belongs: the sequence length, or the task with its order of pixels."""
    if length := experiment.task_settings.get("sequence_length"):
        return f"T = {length}"
    kind = "permuted " if experiment.task_settings.get("permuted") else ""
    return f"{kind}{name_of_task(experiment.task)}"


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
