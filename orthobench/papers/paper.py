"""The records of a paper: its protocol, experiments, tables, figures and printed numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from orthobench.papers.paper_study import PaperRecord, Study

Selection = Literal["curve", "last", "final", "early_stopped", "best_test", "best_valid"]


class Aggregation(PaperRecord):
    """What a paper says about how it computed its numbers; a field that no source states is None.

    A measured number is computed in the same way. If nothing is stated, it is the mean over all seeds.
    """

    over: Literal["mean", "median", "best"] | None = Field(
        None, description="how the number is computed from the seeds"
    )
    seeds: int | None = Field(None, ge=1, description="the number of seeds")
    deviation: Literal["sample", "population", "none"] | None = Field(
        None, description="the number after ±; sample: divided by seeds - 1; population: by seeds; none: not printed"
    )
    scaled: bool | None = Field(None, description="whether it is (a - chance) / (1 - chance) of an accuracy a")
    chance: float | None = Field(None, ge=0, lt=1, description="that chance; none: the task's baseline")
    selection: Selection | None = Field(
        None,
        description="the evaluation that counts; curve and last: the end, the median of the last tenth; final: the "
        "last; early_stopped: the last, where the test stops training; best_test, best_valid: the best on that split",
    )

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if self.over == "best" and self.seeds is None:
            raise ValueError("over = 'best' needs the number of seeds: give seeds")
        if self.chance is not None and not self.scaled:
            raise ValueError("chance scales a number: set scaled as well")
        return self

    def upon(self, lower: Aggregation) -> Aggregation:
        """Return this record with its missing fields filled in from a lower one."""
        own = {name: value for name, value in self if value is not None}
        if not own:  # as most records are
            return lower
        return Aggregation(**{**dict(lower), **own})

    @property
    def words(self) -> str:
        """The stated fields in words, such as "best of 3, scaled"; empty if nothing is stated."""
        parts = [self.over_seeds(self.seeds)] if self.over or self.seeds else []
        parts += ["scaled"] if self.scaled else []
        parts += [f"{self.deviation} deviation"] if self.deviation in ("sample", "population") else []
        return ", ".join(parts)

    def over_seeds(self, seeds: int | None) -> str:
        """Describe how the number is computed over seeds, for example "best of 3"."""
        over = self.over or "mean"
        return over if seeds is None else "one seed" if seeds == 1 else f"{over} of {seeds}"


class Level(PaperRecord):
    """A level that the text of a paper states for a curve over time steps."""

    x: float = Field(description="the time step")
    y: float
    trained: bool = Field(False, description="whether it is of the model after training, and not before")


class Printed(PaperRecord):
    """A published result: a value in the metric's unit (accuracies as fractions), a curve, or an outcome in words.

    A number that no source contains any more is `lost`. Outcomes and curves come from figures and logs.
    """

    metric: str
    split: Literal["train", "valid", "test"] = "test"
    value: float | None = None
    digits: str = Field("", description="the value as printed, with its trailing zeros")
    error: float | None = Field(None, description="the number printed after the value's ±")
    outcome: str | None = None
    curve: list[tuple[float, float]] = Field(
        [], description="points (x, value) of a printed curve; x in epochs or iterations as its figure has them"
    )
    levels: list[Level] = Field([], description="levels that the text states for a figure's curve")
    lost: bool = False
    quoted: bool = Field(False, description="quoted from another paper")
    artifact: str = Field("", description="its table or figure, if not its experiment's")
    column: str = Field("", description="its column's label, for a result that is not run here")
    aggregation: Aggregation = Field(Aggregation(), description="how it was computed, if not as its table says")

    @model_validator(mode="after")
    def _check_result(self) -> Self:
        if (self.value is not None) + (self.outcome is not None) + bool(self.curve) + self.lost != 1:
            raise ValueError("a printed result has a value, a curve or an outcome, or is lost")
        return self

    @property
    def number(self) -> str:
        """The value with all its published digits; empty without a value."""
        return "" if self.value is None else self.digits or f"{self.value:g}"

    @property
    def text(self) -> str:
        """The result as published: the number with its error, or the outcome in words."""
        if self.lost:
            return "lost"
        number = self.number or self.outcome or (f"curve of {len(self.curve)} points" if self.curve else "")
        return number if self.error is None else f"{number} ± {self.error:g}"


class Column(PaperRecord):
    """A column of a table, with the metric and the settings of the results in it."""

    label: str
    metric: str
    split: Literal["train", "valid", "test"] = "test"
    where: dict[str, Any] = Field({}, description="task settings of its results")

    def holds(self, experiment: Experiment, printed: Printed) -> bool:
        return (printed.metric, printed.split) == (self.metric, self.split) and experiment.has(self.where)


class Small(PaperRecord):
    """A small version of a figure, which takes a minute or two: models with the quick preset, or a quick study."""

    models: list[str] = []
    settings: dict[str, Any] = Field({}, description="settings that override the preset's")
    claims: list[dict[str, Any]] = Field([], description="claims, if not the figure's own")


class Artifact(PaperRecord):
    """A table or figure: the name by which experiments refer to it, its kind (`shows`) and its claims.

    With `shows` = "study", it consists of a study of the paper instead of experiments. Other tables and figures may
    name a study in addition.
    """

    name: str
    paper: str = Field("", description="the paper's key")
    title: str = ""
    shows: Literal["table", "learning_curves", "orthogonality", "gradient_norms", "over_length", "study"] = "table"
    study: str = ""
    panel: str = Field("", description="a word in the names of the study's drawings that belong to it; none: all")
    x: Literal["epoch", "iteration"] = Field("epoch", description="the printed axis of learning curves")
    stacked: bool = Field(False, description="whether the figure's panels stand below each other")
    metric: str = Field("", description="the metric of learning curves; none: the task's main one")
    split: Literal["train", "valid", "test"] = Field("test", description="of that metric")
    rows: list[str] = Field([], description="the labels of a table's rows in the printed order; none: the experiments'")
    columns: list[Column] = []
    aggregation: Aggregation = Field(Aggregation(), description="how its numbers were computed from runs")
    claims: list[dict[str, Any]] = Field(
        [], description="as the file has them; `orthobench.analysis.claims` reads them"
    )
    small: Small | None = None
    notes: list[str] = []

    @model_validator(mode="after")
    def _check_small_version(self) -> Self:
        if self.small is not None and bool(self.small.models) == bool(self.study):
            raise ValueError("a small version names either models or the figure's study")
        return self


class Protocol(PaperRecord):
    """Settings that all experiments of a paper on a task share."""

    task_settings: dict[str, Any] = {}
    training: dict[str, Any] = {}
    defaults: bool = Field(
        True, description="whether runs take settings from these experiments; false: only `reproduce` does"
    )


class Experiment(PaperRecord):
    """A model on a task as a paper trained it; its settings include the paper's protocol for the task."""

    artifact: str = Field(description="its table or figure, such as 'figure 2'")
    task: str
    model: str
    row: str = Field("", description="its row's label in a table, if model and hidden size are not unique")
    task_settings: dict[str, Any] = {}
    model_settings: dict[str, Any] = {}
    training: dict[str, Any] = {}
    parameters: str = Field("", description="the printed parameter count, as printed")
    selection: Selection = "curve"
    aggregation: Aggregation = Field(
        Aggregation(), description="how its numbers were computed, if not as its table says"
    )
    own_settings: bool = Field(
        False, description="whether settings that no source states, and this project chose, decide its results"
    )
    printed: list[Printed] = []
    notes: list[str] = []
    paper: str = ""
    name: str = Field("", description="the model's name as printed")
    shared: frozenset[str] = Field(
        frozenset(), description="names of the settings that all experiments on the task share"
    )
    common: dict[str, Any] = Field({}, description="the settings of task and training in its protocol")
    defaults: bool = Field(True, description="whether runs take its settings; its protocol can deny it too")
    own_data: bool = Field(
        False,
        description="whether its data set is another one than its protocol's; runs take the protocol's settings, so "
        "that models are compared on the same data",
    )

    @field_validator("task_settings", "model_settings", "training")
    @classmethod
    def _read_none(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Read "none" as None, because TOML has no null."""
        return {name: None if value == "none" else value for name, value in settings.items()}

    def differences(self, settings: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Return the settings in which a run differs from the experiment: by name, its value and the paper's value."""
        return {
            name: (settings.get(name), value) for name, value in self.settings.items() if settings.get(name) != value
        }

    def has(self, settings: Mapping[str, Any]) -> bool:
        """Return whether the experiment has all these settings."""
        return all(self.settings.get(name) == value for name, value in settings.items())

    @property
    def label(self) -> str:
        """The label of the experiment's row in a table."""
        size, name = self.model_settings.get("hidden_size"), self.name or self.model
        return self.row or (name if size is None else f"{name}, n = {size}")

    @cached_property
    def identity(self) -> str:
        """A text that identifies the experiment among the experiments of all papers."""
        parts = [self.paper, self.artifact, self.row, self.task, self.model, self.settings]
        return json.dumps(parts, sort_keys=True)

    def aggregation_of(self, printed: Printed, artifact: Artifact) -> Aggregation:
        """Return how a result was computed, according to the result, else the experiment, else the table or figure."""
        # Only if the file has it, because the field's default must not outweigh what the table says.
        own = Aggregation(selection=self.selection if "selection" in self.model_fields_set else None)
        whole = printed.aggregation.upon(self.aggregation).upon(own).upon(artifact.aggregation)
        return whole.upon(Aggregation(selection=self.selection))

    def printed_in(self, artifact: str) -> list[Printed]:
        """Return the results of the experiment that were published in this table or figure."""
        return [printed for printed in self.printed if (printed.artifact or self.artifact) == artifact]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of task, model and training together; their names do not overlap."""
        return {**self.task_settings, **self.model_settings, **self.training}

    @property
    def lent(self) -> dict[str, Any]:
        """The settings that a run takes from the experiment by default."""
        return self.settings | self.common if self.own_data else self.settings


class Elsewhere(PaperRecord):
    """A published result without an experiment in this file, and the reason; the report shows only the result."""

    artifact: str
    label: str
    reason: str
    printed: list[Printed]


class Paper(PaperRecord):
    key: str
    title: str
    subject: str = Field(description="what people call it: its model or its idea, such as scoRNN")
    authors: str
    venue: str
    year: int
    priority: int = Field(
        description="papers with smaller numbers come first in the search for defaults and in reports; with equal "
        "numbers, the key decides"
    )
    names: dict[str, str] = Field(
        {},
        description="models' names as printed, by their names here; the label of a row begins with the name, or else "
        "with the stored name",
    )
    aggregation: Aggregation = Field(Aggregation(), description="how its numbers were computed, if not as a table says")
    protocol: dict[str, Protocol] = {}
    artifact: list[Artifact] = Field([], description="tables and figures in the paper's order")
    experiment: list[Experiment]
    elsewhere: list[Elsewhere] = []
    study: list[Study] = []

    def experiments(self, task: str | None = None, model: str | None = None) -> list[Experiment]:
        """Return the experiments, if given only for this task and model, each with the protocol of its task."""
        return [
            experiment
            for experiment in self._experiments
            if task in (None, experiment.task) and model in (None, experiment.model)
        ]

    @cached_property
    def _experiments(self) -> list[Experiment]:
        return [self._complete(experiment) for experiment in self.experiment]

    def _complete(self, experiment: Experiment) -> Experiment:
        shared = self.protocol.get(experiment.task, Protocol())
        return experiment.model_copy(
            update={
                "paper": self.key,
                "name": self.names.get(experiment.model, experiment.model),
                "defaults": shared.defaults and experiment.defaults,
                "shared": frozenset(shared.task_settings) - experiment.task_settings.keys(),
                "common": shared.task_settings | shared.training,
                "task_settings": shared.task_settings | experiment.task_settings,
                "training": shared.training | experiment.training,
            }
        )

    def artifacts(self) -> list[Artifact]:
        """Return the tables and figures in the order of the paper, then any that only experiments name."""
        return list(self._artifacts)

    @cached_property
    def _artifacts(self) -> list[Artifact]:
        known = {artifact.name: artifact for artifact in self.artifact}
        for experiment in self.experiments():
            names = {experiment.artifact, *(printed.artifact for printed in experiment.printed if printed.artifact)}
            for name in sorted(names - known.keys()):
                results = [printed for e in self.experiments_in(name) for printed in e.printed_in(name)]
                numbers = any(printed.value is not None or printed.lost for printed in results)
                known[name] = Artifact(name=name, shows="table" if numbers else "learning_curves")
        artifacts = [
            artifact.model_copy(update={"paper": self.key, "aggregation": artifact.aggregation.upon(self.aggregation)})
            for artifact in known.values()
        ]
        return [artifact if artifact.shows != "table" else self._with_columns(artifact) for artifact in artifacts]

    def experiments_in(self, artifact: str) -> list[Experiment]:
        """Return the experiments of a table or figure, in order."""
        return [e for e in self.experiments() if e.artifact == artifact or e.printed_in(artifact)]

    def _with_columns(self, artifact: Artifact) -> Artifact:
        """Add columns to a table; if the file describes none, add one per metric and distinguishing settings."""
        if artifact.columns:
            return artifact
        cells = [(e, printed) for e in self.experiments_in(artifact.name) for printed in e.printed_in(artifact.name)]
        settings = [e.task_settings | {"task": e.task} for e, _ in cells]
        distinguishing = [
            name
            for name in dict.fromkeys(name for each in settings for name in each)
            if len({str(each.get(name)) for each in settings}) > 1
        ]
        columns: dict[str, Column] = {}
        for (_, printed), each in zip(cells, settings, strict=True):
            where = {name: each[name] for name in distinguishing if name in each}
            words = [printed.metric, *([printed.split] if printed.split != "test" else [])]
            label = ", ".join(words + [f"{name} {str(value).lower()}" for name, value in where.items()])
            where.pop("task", None)
            columns[label] = Column(label=label, metric=printed.metric, split=printed.split, where=where)
        return artifact.model_copy(update={"columns": list(columns.values())})

    @property
    def short_name(self) -> str:
        """What people call the paper, such as "scoRNN 2018"."""
        return f"{self.subject} {self.year}"

    @property
    def citation(self) -> str:
        return f"{self.authors}. {self.title}. {self.venue} {self.year}"
