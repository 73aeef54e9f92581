"""What a run is: a task, a model, their settings, the training settings and a seed, in one canonical form.

Settings are laid over each other: the plugins' defaults, the task's protocol, the paper's experiment, the preset, and
what was asked for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from orthobench.errors import UsageError, unknown
from orthobench.papers import Experiment, experiments
from orthobench.plugins import Catalog
from orthobench.settings import SHORT_NAMES, Settings, same
from orthobench.task import TrainingSettings

Preset = Literal["paper", "quick"]


@dataclass(frozen=True)
class RunSpec:
    """The canonical form of a run. Equal specs have equal keys, and no others do."""

    task: str
    model: str
    task_settings: dict[str, Any]
    model_settings: dict[str, Any]
    training: dict[str, Any]
    task_version: str
    model_version: str
    seed: int

    @property
    def key(self) -> str:
        """Names the run: 16 hexadecimal digits."""
        return digest(asdict(self))

    @property
    def variant(self) -> str:
        """Names the run without its seed: runs that differ by chance alone share it."""
        return digest({name: value for name, value in asdict(self).items() if name != "seed"})

    @property
    def condition(self) -> str:
        """Names the task and its settings: runs whose metrics may be compared share it."""
        return digest({"task": self.task, "settings": self.task_settings, "version": self.task_version})

    def record(self) -> dict[str, Any]:
        """What the database's record of the run holds of it."""
        return {
            "key": self.key,
            "variant": self.variant,
            "condition": self.condition,
            "task": self.task,
            "model": self.model,
            "seed": self.seed,
            "spec": asdict(self),
        }

    def with_seed(self, seed: int) -> RunSpec:
        return replace(self, seed=seed)


@dataclass(frozen=True)
class RunConfig:
    """A run's spec with the classes and validated settings that carry it out."""

    spec: RunSpec
    task_class: Any
    model_class: Any
    task_settings: Any
    model_settings: Any
    training: TrainingSettings
    probes: dict[str, Any]

    def with_seed(self, seed: int) -> RunConfig:
        return replace(self, spec=self.spec.with_seed(seed))


def digest(value: Any) -> str:
    """What names a JSON value: 16 hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def resolve(
    catalog: Catalog,
    task: str,
    model: str,
    given: Mapping[str, Any],
    preset: Preset = "paper",
    seed: int = 0,
    experiment: Experiment | None = None,
) -> RunConfig:
    """Make a run of what was asked for, over this experiment's settings; none given: those of the nearest.

    Raises:
        UsageError: an unknown task, model or setting, or a value that does not fit; one line with the remedy.
    """
    task_class, model_class = catalog.load("task", task), catalog.load("model", model)
    kinds: tuple[type[Settings], ...] = (task_class.Settings, model_class.Settings, TrainingSettings)
    known = {name for kind in kinds for name in kind.model_fields}
    given = _full_names(given, known)
    asked = ({k: v for k, v in task_class.quick.items() if k in known} if preset == "quick" else {}) | dict(given)
    values = dict(task_class.protocol)
    if experiment := experiment or _nearest(experiments(task, model), given):
        recorded = experiment.settings
        changed = [name for name, value in asked.items() if not same(recorded.get(name, value), value)]
        tied = {name for kind in kinds for name in kind.tied_to(changed)}
        values |= {name: value for name, value in recorded.items() if name not in tied}
    values |= asked

    read = [kind.read({name: values[name] for name in kind.model_fields if name in values}) for kind in kinds]
    return _config(catalog, task, model, read, seed)


def resolve_again(catalog: Catalog, spec: RunSpec) -> RunConfig:
    """A run from its canonical form, as another process needs it.

    Raises:
        UsageError: the plugins here are not those that the run was made with.
    """
    kinds: tuple[type[Settings], ...] = (
        catalog.load("task", spec.task).Settings,
        catalog.load("model", spec.model).Settings,
        TrainingSettings,
    )
    recorded = spec.task_settings, spec.model_settings, spec.training
    read = [kind.restore(values) for kind, values in zip(kinds, recorded, strict=True)]
    again = _config(catalog, spec.task, spec.model, read, spec.seed)
    if again.spec != spec:
        raise UsageError(
            f"run {spec.key} cannot be made here: {spec.task} {again.spec.task_version} and {spec.model} "
            f"{again.spec.model_version} are not {spec.task_version} and {spec.model_version}, or mean something else; "
            "use the same code everywhere, and plugin files that nobody edits meanwhile"
        )
    return again


def _config(catalog: Catalog, task: str, model: str, read: Sequence[Settings], seed: int) -> RunConfig:
    """A run of these settings: the task's, the model's and those of training."""
    task_settings, model_settings, training = read
    probes = catalog.probes(training.probes)  # type: ignore[attr-defined]
    classes = catalog.load("task", task), catalog.load("model", model)
    plugins = catalog.find("task", task), catalog.find("model", model)
    versions = [
        f"{cls.version}+{plugin.revision}" if plugin.revision else str(cls.version)
        for cls, plugin in zip(classes, plugins, strict=True)
    ]
    dumped = [settings.canonical() for settings in read]
    spec = RunSpec(task, model, dumped[0], dumped[1], dumped[2], versions[0], versions[1], seed)
    return RunConfig(spec, *classes, task_settings, model_settings, training, probes)  # type: ignore[arg-type]


def _full_names(given: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    """What was given, under the settings' names in place of the papers' symbols.

    Raises:
        UsageError: a name is none of a setting, or a setting is given under both.
    """
    named: dict[str, Any] = {}
    for name, value in given.items():
        full = name if name in known else SHORT_NAMES.get(name, name)
        if full not in known:
            raise unknown("setting", name, known)
        if full in named:
            raise UsageError(f"{full} is given twice ({named[full]} and {value}): give it once")
        named[full] = value
    return named


def _nearest(candidates: list[Experiment], given: Mapping[str, Any]) -> Experiment | None:
    """The experiment that agrees with the most of the given settings; of equals, the first.

    Settings of training do not count: a run of one epoch is not meant to be the experiment that happens to have one.
    """

    def agreement(experiment: Experiment) -> int:
        settings = experiment.task_settings | experiment.model_settings
        return sum(same(settings[name], value) for name, value in given.items() if name in settings)

    return max(candidates, key=agreement, default=None)
