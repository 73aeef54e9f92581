"""A study of a paper about what happens inside models, with the runs or the computation that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from orthobench.options.arguments import Preset


class PaperRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def __copy__(self) -> Self:
        """Copy the fields alone, because the copy may change them (`model_copy`), and cached properties follow."""
        copied = super().__copy__()
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied


class StudyRun(PaperRecord):
    """A run of a study; `settings` override the settings of the task, the paper and the preset."""

    figure: str
    task: str
    model: str
    settings: dict[str, Any] = {}
    most_seeds: int | None = None


class StudyRuns(PaperRecord):
    """Runs of a study that share a task: every model with every one of the `points`."""

    preset: Preset
    figure: str
    task: str
    models: list[str] = Field(description='names; ["all"]: every model of this project')
    settings: dict[str, Any] = Field({}, description="settings of all these runs")
    own: dict[str, dict[str, Any]] = Field({}, description="by model, settings in place of these")
    variants: dict[str, list[dict[str, Any]]] = Field(
        {}, description="by model, settings of further runs of it, in place of these"
    )
    points: list[dict[str, Any]] = Field([{}], description="settings of one run each")
    most_seeds: int | None = Field(None, ge=1, description="train at most this number of seeds, whatever is asked for")

    def runs(self, all_models: Sequence[str]) -> list[StudyRun]:
        """Return the runs, model by model.

        Args:
            all_models: the names of all built-in models.
        """
        return [
            StudyRun(
                figure=self.figure,
                task=self.task,
                model=model,
                settings={**point, **self.settings, **self.own.get(model, {}), **variant},
                most_seeds=self.most_seeds,
            )
            for model in (all_models if self.models == ["all"] else self.models)
            for variant in [{}, *self.variants.get(model, [])]
            for point in self.points
        ]


class Study(PaperRecord):
    """A study: trained runs, a computation, or a benchmark.

    `finding` says what the figure of the paper shows, or the background of a study of this project. `assumptions` say
    what the paper leaves open and which choices were taken here.
    """

    name: str
    title: str
    figure: str = Field(description="its figure or table in the paper")
    finding: str
    assumptions: str
    drawing: Literal[
        "orthogonality",
        "gradient_norms",
        "heat_maps",
        "sizes",
        "jacobians",
        "over_setting",
        "euler_stability",
        "gradient_bounds",
        "state_tracking",
        "longer_tests",
        "trajectories",
        "times",
    ]
    is_own: bool = Field(False, description="whether the question is of this project, and `finding` its background")
    has_page: bool = Field(False, description="whether the report shows it on a page of its own")
    claims: list[dict[str, Any]] = Field([], description="statements of this project about the runs, not of the paper")
    run: list[StudyRuns] = []
    computation: Literal["", "toy_dynamics"] = Field("", description="a function of `orthobench.analysis.dynamics`")
    benchmark: str = Field("", description="the name of a benchmark of `orthobench bench`")
    other_seconds: dict[str, float] = Field({}, description="seconds per epoch that another source prints")
    paper: str = Field("", description="the paper's key")
    source: str = Field("", description="the paper's citation")
    names: dict[str, str] = Field({}, description="the paper's names of models, by their names here")

    def runs(self, preset: Preset, all_models: Sequence[str] = ()) -> list[StudyRun]:
        """Return the runs at the sizes of the paper, or of the quick version.

        Args:
            all_models: the names of all built-in models, for studies that use all of them.
        """
        return [run for group in self.run if group.preset == preset for run in group.runs(all_models)]

    @property
    def record(self) -> str:
        """The name of the study's records in the database."""
        return self.benchmark or f"study {self.name}"
