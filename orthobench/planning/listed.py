"""An ordered list of runs in a TOML file, which `orthobench reproduce --file` trains.

[[runs]]
paper = "helfrich2018"
figure = "1"
models = ["scornn", "full_urnn"]
where = { sequence_length = 1000 }
seeds = 5

[[runs]] # a run with settings that differ from the paper
paper = "helfrich2018"
figure = "2"
models = ["lstm"]
settings = { learning_rate = 1e-2, max_iterations = 2000 }
tags = ["tried"]

[[runs]] # runs of a study
study = "state-tracking"
where = { group = "A5" }
seeds = 3

[[runs]] # the runs of a task, as in `orthobench sweep`
task = "adding"
models = "gated"
preset = "quick"

[[runs]] # runs that would take a processor weeks
paper = "helfrich2018"
table = "1"
device = "cuda"

[models] # lists of models by name, for several entries
gated = ["lstm", "torch.nn:GRU"]
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from orthobench.analysis.claims import refuse_wrong_claims
from orthobench.errors import UsageError, unknown
from orthobench.options.arguments import Preset, check_tag
from orthobench.options.seeds import MAX_SEEDS
from orthobench.papers import find_paper, find_study
from orthobench.planning.file import Name
from orthobench.planning.paper import resolve_experiments, restrict, study_runs
from orthobench.planning.sweep_runs import SweepRun, resolve_grid
from orthobench.plugins import Catalog
from orthobench.settings import Scalar, read_toml, text
from orthobench.settings.filters import narrow, read_conditions

EXPECTED = {
    "paper": 'the key of a paper, such as "helfrich2018"',
    "study": 'the name of a study, such as "state-tracking"',
    "task": 'the name of a task, such as "adding"',
    "preset": '"paper" or "quick"',
    "table": 'the number of a table, such as "1"',
    "figure": 'the number of a figure, such as "1"',
    "models": 'a list of models, such as ["scornn", "lstm"], or its name in [models]',
    "where": "settings with a value each, such as { sequence_length = 1000 }",
    "settings": "settings with a value each, such as { learning_rate = 1e-3 }",
    "tags": 'a list of names for the runs, such as ["tried"]',
    "seeds": f"a number of seeds from 1 to {MAX_SEEDS}",
    "device": '"cuda"',
}
SettingValues = dict[Name, Scalar]


class ListedRuns(BaseModel):
    """Runs of a paper, a study or a task; the fields are named like the options of the commands that train them."""

    # Strict, because TOML has types: whoever writes seeds = "5" or true has made a mistake.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    paper: Name | None = Field(None, description="a paper's key")
    study: Name | None = Field(None, description="the name of a study")
    task: Name | None = Field(None, description="a task, with models")
    preset: Preset | None = Field(None, description="of a study or task: paper (the default) or quick")
    table: Name | None = Field(None, description="restrict to this table")
    figure: Name | None = Field(None, description="restrict to this figure")
    models: list[Name] | None = Field(None, min_length=1, description="restrict to these models")
    where: SettingValues = Field({}, description="restrict to runs with these settings")
    settings: SettingValues = Field(
        {}, description="settings in place of the paper's: the runs are then not the paper's"
    )
    tags: list[Annotated[str, AfterValidator(check_tag)]] = Field([], description="names for the runs")
    seeds: int = Field(1, ge=1, le=MAX_SEEDS, description="how many seeds: 0, 1, 2, ...")
    device: Literal["cuda"] | None = Field(None, description="train the runs on a GPU alone; they take a CPU too long")

    def check(self) -> None:
        """Check that the entry says what it trains, and nothing that does not apply.

        Raises:
            UsageError: one line that names the fix.
        """
        kinds = [kind for kind in OTHERS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            raise UsageError("name either a paper, a study, or a task with models")
        if self.task is not None and self.models is None:
            raise UsageError("a task needs models: add a list such as models = ['scornn', 'lstm']")
        if unread := sorted(self.model_fields_set & OTHERS[kinds[0]]):
            raise UsageError(f"{', '.join(unread)} does not apply to a {kinds[0]}: leave it out")

    def resolve(self, catalog: Catalog) -> list[SweepRun]:
        """Return the runs, seed by seed.

        Raises:
            UsageError: the paper or study has no such table, figure, model or setting, the paper's file has a wrong
                claim, or the task or study does not exist.
        """
        seeds = range(self.seeds)
        if self.study is not None:
            runs, _ = study_runs(find_study(self.study), catalog, self.preset or "paper", seeds)
            runs = narrow(runs, read_conditions(**self.where, model=self.models), _described)
        elif self.task is not None:
            given = {name: text(value) for name, value in self.settings.items()}
            names = list(map(catalog.named, self.models or ()))
            runs = resolve_grid(catalog, self.task, names, given, [], seeds, self.preset or "paper")
        else:
            paper = find_paper(str(self.paper))
            refuse_wrong_claims(paper)
            experiments = restrict(paper, self.table, self.figure, self.models, self.where)
            runs = resolve_experiments(catalog, experiments, seeds, settings=self.settings)
        return [SweepRun(replace(config, tags=tuple(self.tags)), shown) for config, shown in runs]


def _described(run: SweepRun) -> dict[str, Any]:
    spec = run.config.spec
    return {"task": spec.task, "model": spec.model} | spec.settings


OTHERS = {
    "paper": {"preset"},
    "study": {"table", "figure", "settings"},
    "task": {"table", "figure", "where"},
}
"""What an entry can name, and the keys that do not apply then."""


def runs_in(path: Path, catalog: Catalog, device: str | None = None) -> list[SweepRun]:
    """Return the runs of a file, each once, in the order of the file.

    Args:
        device: "cpu" leaves out the entries for a GPU; "cuda" and None leave out nothing.

    Raises:
        UsageError: the file cannot be read, is not TOML, or has an invalid entry, which the message names.
    """
    runs: dict[str, SweepRun] = {}
    for number, entry in enumerate(_entries(path), 1):
        try:
            entry.check()
            resolved = entry.resolve(catalog)
        except UsageError as error:
            raise UsageError(f"{path}, entry {number}: {error}") from error
        for run in resolved if device is None or entry.device in (None, device) else ():
            runs.setdefault(run.config.spec.key, run)
    return list(runs.values())


def _entries(path: Path) -> list[ListedRuns]:
    content: dict[str, Any] = read_toml(path)
    entries, named = content.pop("runs", None), content.pop("models", {})
    is_list = isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)
    if content or not is_list or not entries:
        raise UsageError(f"{path} should be a list of [[runs]], each with a paper, a study or a task")
    if not isinstance(named, dict):
        raise UsageError(f'{path}: [models] should have lists of models by name, such as gated = ["lstm", "gru"]')
    checked = []
    for number, entry in enumerate(entries, 1):
        for key in entry:
            # Before pydantic sees the entry, because its message would not name the nearest key.
            if key not in ListedRuns.model_fields:
                raise unknown(f"key in entry {number} of {path}", key, ListedRuns.model_fields)
        models = entry.get("models")
        if isinstance(models, str):
            if models not in named:
                raise unknown(f"list of models in entry {number} of {path}", models, named)
            entry = {**entry, "models": named[models]}
        try:
            checked.append(ListedRuns(**entry))
        except ValidationError as error:
            key = str(error.errors()[0]["loc"][0])
            raise UsageError(f"{path}, entry {number}: {key} should be {EXPECTED[key]}") from error
    return checked
