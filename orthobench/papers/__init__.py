"""Papers as data: each experiment's settings and printed results, one TOML file a paper.

The settings are the defaults of a run, and the printed results stand beside the measured ones in the report.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from orthobench.errors import unknown
from orthobench.papers.study import Study as Study


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Printed(_Record):
    """One printed result: a value in the metric's unit (accuracies as fractions), or for a figure what it shows.

    A number that the source no longer tells is `lost`, never guessed.
    """

    metric: str
    split: Literal["train", "valid", "test"] = "test"
    value: float | None = None
    error: float | None = Field(None, description="what is printed after the value's ±")
    outcome: str | None = None
    lost: bool = False
    quoted: bool = Field(False, description="the paper took it from another one")
    artifact: str = Field("", description="where it is printed, if not where its experiment is")
    column: str = Field("", description="its column's label, where nothing is run that would tell it")

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if (self.value is not None) + (self.outcome is not None) + self.lost != 1:
            raise ValueError("a printed result has a value, or an outcome, or is lost")
        return self


class Column(_Record):
    """A column of a table: which printed results stand in it."""

    label: str
    metric: str
    split: Literal["train", "valid", "test"] = "test"
    where: dict[str, Any] = Field({}, description="task settings of the results in it")

    def holds(self, experiment: Experiment, printed: Printed) -> bool:
        return (printed.metric, printed.split) == (self.metric, self.split) and experiment.has(self.where)


class Claim(_Record):
    """What a paper says of a figure or table, as a check on the runs behind it (`orthobench.analysis.claims`)."""

    text: str
    check: Literal[
        "ends_below", "ends_above", "stays_above", "first", "returns", "late", "best", "worst", "grows",
        "stays_below", "remembers", "remembers_at_start", "forgets", "forgets_at_start", "forgets_more", "near_one",
        "two_fixed_points", "contracts", "leaves", "keeps_distance",
    ]  # fmt: skip
    model: str = ""
    panel: str = Field("", description="of a figure that is computed: the part it is about, instead of a model")
    where: dict[str, Any] = Field({}, description="settings of the experiments it is about")
    others: list[str] = Field([], description="first, best, worst: the models compared with; none named: all others")
    factor: float = Field(
        0.5,
        description="ends_, stays_above, first, returns: of the baseline; late: epochs; grows: of the first value; "
        "stays_below: the limit; remembers, forgets: what is left over the sequence; near_one: how far from it; "
        "contracts, leaves, keeps_distance: of the distance from the origin at the start",
    )
    metric: str = Field("", description="if not the task's own: a probe's number or vector")

    @model_validator(mode="after")
    def _is_about_something(self) -> Self:
        if bool(self.model) == bool(self.panel):
            raise ValueError("a claim is about a model or a panel")
        return self


class Small(_Record):
    """A version of a figure that takes a minute or two and shows what is claimed: models with the quick preset of the
    figure's task, or the small version of its study.
    """

    models: list[str] = []
    settings: dict[str, Any] = Field({}, description="over those of the preset")
    claims: list[Claim] = Field([], description="if not the figure's own")


class Artifact(_Record):
    """A table or figure: its name as experiments give it, how it is shown, and what is claimed of it.

    With `shows` = "study" it consists of the named study of the paper, and of no experiments. Other tables and figures
    may name a study as well.
    """

    name: str
    title: str = ""
    shows: Literal["table", "learning_curves", "orthogonality", "gradient_norms", "study"] = "table"
    study: str = ""
    panel: str = Field(
        "", description="a word in the names of those of the study's figures that belong here; none: all"
    )
    columns: list[Column] = []
    claims: list[Claim] = []
    small: Small | None = None
    notes: list[str] = []

    @model_validator(mode="after")
    def _small_is_of_models_or_a_study(self) -> Self:
        if self.small is not None and bool(self.small.models) == bool(self.study):
            raise ValueError("a small version is of models, or of the study that the figure names")
        return self


class Protocol(_Record):
    """What all of a paper's experiments on one task share."""

    task_settings: dict[str, Any] = {}
    training: dict[str, Any] = {}


class Experiment(_Record):
    """One model on one task as a paper ran it; its settings include the paper's protocol for the task."""

    artifact: str = Field(description="where it is printed, such as 'figure 2'")
    task: str
    model: str
    row: str = Field("", description="its row's label in a table, if model and hidden size do not tell it from others")
    task_settings: dict[str, Any] = {}
    model_settings: dict[str, Any] = {}
    training: dict[str, Any] = {}
    parameters: str = Field("", description="the printed parameter count, as printed")
    selection: Literal["curve", "last", "best_test", "best_valid"] = "curve"
    printed: list[Printed] = []
    notes: list[str] = []
    paper: str = ""
    shared: frozenset[str] = Field(frozenset(), description="settings that all experiments on the task have")

    @field_validator("task_settings", "model_settings", "training")
    @classmethod
    def _read_none(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """TOML has no word for nothing."""
        return {name: None if value == "none" else value for name, value in settings.items()}

    def differences(self, settings: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Where a run's settings are not this experiment's: by name, the run's value and the paper's."""
        return {
            name: (settings.get(name), value) for name, value in self.settings.items() if settings.get(name) != value
        }

    def has(self, settings: Mapping[str, Any]) -> bool:
        """Whether all these settings are this experiment's."""
        return all(self.settings.get(name) == value for name, value in settings.items())

    @property
    def label(self) -> str:
        """Its row in a table."""
        size = self.model_settings.get("hidden_size")
        return self.row or (self.model if size is None else f"{self.model}, n = {size}")

    @property
    def identity(self) -> str:
        """Names the experiment among all papers'."""
        parts = [self.paper, self.artifact, self.row, self.task, self.model, self.settings]
        return json.dumps(parts, sort_keys=True)

    def printed_in(self, artifact: str) -> list[Printed]:
        """What of it is printed in this table or figure."""
        return [printed for printed in self.printed if (printed.artifact or self.artifact) == artifact]

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of all three kinds together; their names do not overlap."""
        return {**self.task_settings, **self.model_settings, **self.training}


class Elsewhere(_Record):
    """A printed result of something that is not run here, with the reason; it stands in the report by itself."""

    artifact: str
    label: str
    reason: str
    printed: list[Printed]


class Paper(_Record):
    key: str
    title: str
    authors: str
    venue: str
    year: int
    priority: int = Field(description="papers with smaller numbers come first where defaults are looked up")
    protocol: dict[str, Protocol] = {}
    artifact: list[Artifact] = Field([], description="tables and figures in the paper's order")
    experiment: list[Experiment]
    elsewhere: list[Elsewhere] = []
    study: list[Study] = []

    def experiments(self) -> list[Experiment]:
        """The experiments, each with its task's protocol filled in."""
        return [self._complete(experiment) for experiment in self.experiment]

    def _complete(self, experiment: Experiment) -> Experiment:
        shared = self.protocol.get(experiment.task, Protocol())
        return experiment.model_copy(
            update={
                "paper": self.key,
                "shared": frozenset(shared.task_settings) - experiment.task_settings.keys(),
                "task_settings": shared.task_settings | experiment.task_settings,
                "training": shared.training | experiment.training,
            }
        )

    def artifacts(self) -> list[Artifact]:
        """Its tables and figures: those described, in the paper's order, then those that only experiments name."""
        known = {artifact.name: artifact for artifact in self.artifact}
        for experiment in self.experiments():
            names = {experiment.artifact, *(printed.artifact for printed in experiment.printed if printed.artifact)}
            for name in sorted(names - known.keys()):
                results = [printed for e in self.experiments_in(name) for printed in e.printed_in(name)]
                numbers = any(printed.value is not None or printed.lost for printed in results)
                known[name] = Artifact(name=name, shows="table" if numbers else "learning_curves")
        return [artifact if artifact.shows != "table" else self._with_columns(artifact) for artifact in known.values()]

    def experiments_in(self, artifact: str) -> list[Experiment]:
        """The experiments that a table or figure needs, in order."""
        return [e for e in self.experiments() if e.artifact == artifact or e.printed_in(artifact)]

    def _with_columns(self, artifact: Artifact) -> Artifact:
        """The artifact with a column for every kind of number in it, where none are described."""
        if artifact.columns:
            return artifact
        cells = [(e, printed) for e in self.experiments_in(artifact.name) for printed in e.printed_in(artifact.name)]
        settings = [e.task_settings | {"task": e.task} for e, _ in cells]
        telling = [
            name
            for name in dict.fromkeys(name for each in settings for name in each)
            if len({str(each.get(name)) for each in settings}) > 1
        ]
        columns: dict[str, Column] = {}
        for (_, printed), each in zip(cells, settings, strict=True):
            where = {name: each[name] for name in telling if name in each}
            words = [printed.metric, *([printed.split] if printed.split != "test" else [])]
            label = ", ".join(words + [f"{name} {str(value).lower()}" for name, value in where.items()])
            where.pop("task", None)
            columns[label] = Column(label=label, metric=printed.metric, split=printed.split, where=where)
        return artifact.model_copy(update={"columns": list(columns.values())})

    @property
    def citation(self) -> str:
        return f"{self.authors}. {self.title}. {self.venue} {self.year}"


@cache
def papers() -> tuple[Paper, ...]:
    """All papers, the one whose settings are the first choice as defaults first."""
    texts = [entry.read_text("utf-8") for entry in files(__name__).iterdir() if entry.name.endswith(".toml")]
    loaded = [Paper.model_validate(tomllib.loads(text)) for text in texts]
    return tuple(sorted(loaded, key=lambda paper: paper.priority))


def find_paper(key: str) -> Paper:
    """The paper of this key.

    Raises:
        UsageError: there is none; the message names the nearest.
    """
    known = {paper.key: paper for paper in papers()}
    if key not in known:
        raise unknown("paper", key, known)
    return known[key]


@cache
def studies() -> tuple[Study, ...]:
    """Return the studies of all papers, each with its paper's citation."""
    return tuple(study.model_copy(update={"source": paper.citation}) for paper in papers() for study in paper.study)


def find_study(name: str) -> Study:
    """Return the study of this name.

    Raises:
        UsageError: no paper has it; the message names the nearest.
    """
    by_name = {study.name: study for study in studies()}
    if name not in by_name:
        raise unknown("study", name, by_name)
    return by_name[name]


def experiments(task: str, model: str) -> list[Experiment]:
    """Every paper's experiments with this model on this task, first choice first."""
    return [
        experiment
        for paper in papers()
        for experiment in paper.experiments()
        if (experiment.task, experiment.model) == (task, model)
    ]
