"""The canonical form of a run: a task, a model, their settings, the training settings and a seed.

Settings take precedence in this order: the user's overrides, the preset, the paper's experiment, the task's protocol,
the plugins' defaults.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orthobench.data.checksums import files_md5
from orthobench.errors import UsageError
from orthobench.options.arguments import Preset
from orthobench.options.assignments import given_twice
from orthobench.papers import Experiment, experiments
from orthobench.plugins import Catalog, Plugin, PluginKind
from orthobench.plugins.sources import named_files
from orthobench.settings import SHORT_NAMES, Settings, merged_settings, run_names, same, spec_columns, unknown_setting

if TYPE_CHECKING:
    from orthobench.model import Model, ModelSettings
    from orthobench.plugins.sources import Sources
    from orthobench.probe import Probe
    from orthobench.task import Task, TrainingSettings


@dataclass(frozen=True)
class RunSpec:
    """The canonical form of a run. Equal specs have equal keys.

    Specs that differ only in the place of a file or folder share their keys: its checksum is in them, not its path.
    """

    task: str
    model: str
    task_settings: dict[str, Any]
    model_settings: dict[str, Any]
    training: dict[str, Any]
    task_version: str
    model_version: str
    seed: int

    @cached_property
    def _names(self) -> dict[str, str]:
        return run_names(asdict(self))

    @property
    def key(self) -> str:
        """The run's name: 16 hexadecimal digits."""
        return self._names["key"]

    @property
    def variant(self) -> str:
        """The run's name without its seed. Runs that differ in the seed alone share it."""
        return self._names["variant"]

    @property
    def condition(self) -> str:
        """The name of the task and its settings. Runs whose metrics are comparable share it."""
        return self._names["condition"]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the task, the model and training, by name."""
        return merged_settings(vars(self))

    def record(self) -> dict[str, Any]:
        """Return the columns of the database's run record that follow from the spec."""
        spec = asdict(self)
        return spec_columns(spec) | {"spec": spec}

    def with_seed(self, seed: int) -> RunSpec:
        return replace(self, seed=seed)


@dataclass(frozen=True)
class RunConfig:
    """A run to train: its spec, and the plugins from which its classes come.

    The classes are imported on first use, because they load torch. A run that has a result needs none of them.

    Attributes:
        preset: the preset of the command that asked for the run; not part of the spec.
        tags: names that the list of runs gives this one; not part of the spec.
    """

    spec: RunSpec
    catalog: Catalog = field(repr=False, compare=False)
    preset: Preset = "paper"
    tags: tuple[str, ...] = ()

    @cached_property
    def task_class(self) -> type[Task]:
        task_class: type[Task] = self.catalog.load("task", self.spec.task)
        return task_class

    @cached_property
    def model_class(self) -> type[Model]:
        model_class: type[Model] = self.catalog.load("model", self.spec.model)
        return model_class

    @cached_property
    def task_settings(self) -> Settings:
        return self.task_class.Settings.restore(self.spec.task_settings)

    @cached_property
    def model_settings(self) -> ModelSettings:
        return self.model_class.Settings.restore(self.spec.model_settings)

    @cached_property
    def training(self) -> TrainingSettings:
        from orthobench.task import TrainingSettings  # here, because it loads torch, which readers of specs do not need

        return TrainingSettings.restore(self.spec.training)

    @property
    def purpose_of_weights(self) -> tuple[str, ...]:
        """What distinguishes the seed of the weights from the other seeds of the run."""
        plugin = self.catalog.find("model", self.spec.model)
        return ("model", self.spec.model) if plugin.seeds_by_name else ("model",)

    @cached_property
    def probes(self) -> dict[str, type[Probe]]:
        """The classes of the default probes and of those that the settings add, by name."""
        return self.catalog.probes(self.spec.training.get("probes", ()))

    @cached_property
    def sources(self) -> tuple[Sources, ...]:
        """The source code of the run's task, model and probes, of those that are not built in."""
        own_code = [code for plugin in self._plugins if (code := _sources(self.catalog, plugin)) is not None]
        return tuple({code.origin: code for code in own_code}.values())

    @property
    def _plugins(self) -> list[Plugin]:
        plugins = [self.catalog.find("task", self.spec.task), self.catalog.find("model", self.spec.model)]
        return plugins + [self.catalog.find("probe", name) for name in self.probes]

    def with_seed(self, seed: int) -> RunConfig:
        return replace(self, spec=self.spec.with_seed(seed))


def resolve(
    catalog: Catalog,
    task: str,
    model: str,
    overrides: Mapping[str, Any],
    preset: Preset = "paper",
    seed: int = 0,
    experiment: Experiment | None = None,
    *,
    published: bool = True,
) -> RunConfig:
    """Resolve the settings of a run.

    Args:
        overrides: the user's settings, as values or as text.
        experiment: the paper's experiment underneath; None selects the experiment with most overrides in common,
            among those that give defaults.
        published: whether to select one; if not, no model has settings of a paper for this task.

    Raises:
        UsageError: a task, model or setting is unknown, or a value is invalid; one line with the remedy.
    """
    from orthobench.task import TrainingSettings  # here, because it loads torch

    if not (isinstance(model, str) and model in catalog.names("model")):  # because it may be another file's path, too
        model = catalog.named(model)
    task = catalog.named_task(task, overrides)
    task_class: type[Task] = catalog.load("task", task)
    model_class: type[Model] = catalog.load("model", model)
    groups: tuple[type[Settings], ...] = (task_class.Settings, model_class.Settings, TrainingSettings)
    known = {name for group in groups for name in group.model_fields}
    for whose, others in ((f"the task {task}", groups[0]), ("training", groups[2])):
        if shared := model_class.Settings.model_fields.keys() & others.model_fields.keys():
            names = ", ".join(sorted(shared))
            raise UsageError(f"the model {model} has settings that {whose} has too, {names}: rename them")
    overrides = _full_names(overrides, known, unnamed_arguments(model_class))
    quick = {name: value for name, value in task_class.quick.items() if name in known} if preset == "quick" else {}
    upper = quick | overrides
    values = _protocol(catalog, task, model)
    sources = [each for each in experiments(task, model) if each.defaults] if published else []
    nearest = None if experiment else _nearest(sources, overrides)
    if recorded := experiment.settings if experiment else nearest.lent if nearest else {}:
        changed = [name for name, value in upper.items() if not same(recorded.get(name, value), value)]
        tied = {name for group in groups for name in group.tied_to(changed)}
        values |= {name: value for name, value in recorded.items() if name not in tied}
        for name in {name for group in groups for name in group.without_need(values | upper)}:
            values.pop(name, None)
    values |= upper

    task_group, model_group, training_group = (
        {name: values[name] for name in group.model_fields if name in values} for group in groups
    )
    spec = _spec(
        catalog,
        task,
        model,
        task_class.Settings.read(task_group),
        model_class.Settings.read(model_group),
        TrainingSettings.read(training_group),
        seed,
    )
    # Loaded only because an unknown probe should be refused before the run starts.
    catalog.probes(spec.training.get("probes", ()))
    return RunConfig(spec, catalog, preset)


def default_preset(catalog: Catalog, task: str, models: Iterable[str]) -> Preset:
    """Return the preset of a command that names none: "quick" with code from outside, because it has no paper.

    Own data has no paper's settings either, and its task trains with those of its own.
    """
    named = [catalog.find("model", model) for model in models]
    named += [] if ":" in task else [catalog.find("task", task)]
    return "paper" if all(plugin.is_built_in for plugin in named) else "quick"


def _protocol(catalog: Catalog, task: str, model: str) -> dict[str, Any]:
    """Return the protocol of a task for a model.

    Its optimiser is for models that name none. If task and model are both built in, the papers say what trains them.
    """
    from orthobench.task import PROTOCOL_OF_MODELS

    values, settings = dict(catalog.load("task", task).protocol), catalog.load("model", model).Settings
    is_published = catalog.find("task", task).is_built_in and catalog.find("model", model).is_built_in
    left = () if is_published else left_to_protocol(settings)
    return {name: value for name, value in values.items() if name in left or name not in PROTOCOL_OF_MODELS}


def left_to_protocol(settings: type[Settings]) -> tuple[str, ...]:
    """Return the settings of a model that it leaves to the task's protocol, because it gives them no default."""
    from orthobench.task import PROTOCOL_OF_MODELS

    if _declares(settings, "optimizer"):
        return ()
    return tuple(name for name in PROTOCOL_OF_MODELS if not _declares(settings, name))


def _declares(settings: type[Settings], name: str) -> bool:
    """Return whether a model's settings give a setting of all models a default of their own."""
    from orthobench.model import ModelSettings

    own = [each for each in settings.__mro__ if not issubclass(ModelSettings, each)]
    return any(name in inspect.get_annotations(each) for each in own)


def resolve_again(catalog: Catalog, spec: RunSpec, preset: Preset = "paper", *, is_trained: bool = False) -> RunConfig:
    """Resolve a run from its canonical form, in another process.

    Args:
        preset: the preset of the command that asked for the run, which the canonical form does not have.
        is_trained: whether the weights exist already, so that it does not matter how they were seeded.

    Raises:
        UsageError: the plugins differ from those of the spec, or are missing; or its model is a layer that the user has
            not named, whose code is not imported.
    """
    plugins: tuple[tuple[PluginKind, str], ...] = (("task", spec.task), ("model", spec.model))
    for kind, name in plugins:
        if ":" not in name and name not in catalog.names(kind):
            raise UsageError(f"its {kind} {name:.200} is neither built in nor installed: give its file with `plugins`")
    config = RunConfig(spec, catalog, preset)
    again = _spec(
        catalog, spec.task, spec.model, config.task_settings, config.model_settings, config.training, spec.seed
    )
    if is_trained and not spec.model_version.endswith(_SEEDED_ALIKE):
        again = replace(again, model_version=again.model_version.removesuffix(_SEEDED_ALIKE))
    if again != spec:
        here, needed = _versions(again), _versions(spec)
        difference = f"this code has {here}, and the run needs {needed}"
        if here == needed:
            difference = f"its settings differ here, with the same versions {here}"
        raise UsageError(
            f"run {spec.key} does not match this code: {difference}; use the same code everywhere, and do not edit "
            "plugins in between"
        )
    return config


def _versions(spec: RunSpec) -> str:
    return f"{spec.task} {spec.task_version} and {spec.model} {spec.model_version}"


def _spec(
    catalog: Catalog,
    task: str,
    model: str,
    task_settings: Settings,
    model_settings: Settings,
    training: TrainingSettings,
    seed: int,
) -> RunSpec:
    """Return the canonical form of these settings."""
    return RunSpec(
        task,
        model,
        task_settings.canonical(),
        model_settings.canonical(),
        training.canonical(),
        _version(catalog, catalog.find("task", task), catalog.load("task", task).version_of(task_settings)),
        _version(catalog, catalog.find("model", model), catalog.load("model", model).version),
        seed,
    )


def _sources(catalog: Catalog, plugin: Plugin) -> Sources | None:
    """Return the source code of a plugin with the checksum of the files that its class names; None if it is built in.

    Raises:
        UsageError: there is no such file.
    """
    if (sources := plugin.sources()) is None:
        return None
    files = named_files(catalog.load(plugin.kind, plugin.name), sources)
    if not files:
        return sources
    folder = Path(os.path.commonpath([file.parent for file in files]))
    return replace(sources, data=files_md5(folder, files))


_SEEDED_ALIKE = ".2"
"""What ends the version of a model whose weights are seeded without its name. Earlier versions seeded them with it."""


def _version(catalog: Catalog, plugin: Plugin, number: int) -> str:
    """Return a plugin's version number, with the revision of its sources if it is not built in."""
    sources = _sources(catalog, plugin)
    if sources is None:
        return str(number)
    return f"{number}+{sources.revision}" + ("" if plugin.kind != "model" or plugin.seeds_by_name else _SEEDED_ALIKE)


def unnamed_arguments(model_class: type[Model]) -> str:
    """Say that the `**kwargs` of a layer's constructor are not settings; "" for any other model."""
    constructor = getattr(model_class, "constructor", None)
    if constructor is None or not constructor.takes_more:
        return ""
    return f"the **kwargs of {model_class.title} are not settings: name the argument in its constructor"


def _full_names(overrides: Mapping[str, Any], known: set[str], note: str) -> dict[str, Any]:
    """Return overrides under the settings' names in place of the papers' symbols.

    Args:
        note: what the error for an unknown name should say.

    Raises:
        UsageError: a name is unknown, or a setting has two values.
    """
    named: dict[str, Any] = {}
    for name, value in overrides.items():
        full = name if name in known else SHORT_NAMES.get(name, name)
        if full not in known:
            if name == "seed":
                raise UsageError("the seed is not a setting: give `seed=3`, or `seeds=3` for a sweep")
            raise unknown_setting("setting", name, known, note)
        if full in named:
            raise given_twice(full, named[full], value)
        named[full] = value
    return named


def _nearest(candidates: list[Experiment], overrides: Mapping[str, Any]) -> Experiment | None:
    """Return the first experiment that agrees with the most overrides.

    Settings of training do not count: a run of one epoch should not become an experiment of one epoch.
    """

    def agreement(experiment: Experiment) -> int:
        settings = experiment.task_settings | experiment.model_settings
        return sum(same(settings[name], value) for name, value in overrides.items() if name in settings)

    return max(candidates, key=agreement, default=None)
