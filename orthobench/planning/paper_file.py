"""An ordered list of papers' runs in a TOML file: what `orthobench reproduce --file` trains.

[[runs]]
paper = "helfrich2018"
figure = "1"
models = ["scornn", "full_urnn"]
where = { sequence_length = 1000 }
seeds = 5
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orthobench.errors import UsageError, unknown
from orthobench.papers import find_paper
from orthobench.planning import MAX_SEEDS
from orthobench.planning.paper import resolve_experiments, restrict
from orthobench.planning.plan import SweepRun
from orthobench.plugins import Catalog
from orthobench.settings import read_toml

EXPECTED = {
    "paper": 'the key of a paper, such as "helfrich2018"',
    "table": 'the number of a table, such as "1"',
    "figure": 'the number of a figure, such as "1"',
    "models": 'a list of models, such as ["scornn", "lstm"]',
    "where": "settings with a value each, such as { sequence_length = 1000 }",
    "seeds": f"a number of seeds from 1 to {MAX_SEEDS}",
}
Name = Annotated[str, Field(min_length=1)]


class PaperRuns(BaseModel):
    """Runs of one paper; the same words as the options of `orthobench reproduce`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    paper: Name = Field(description="the paper's key")
    table: Name | None = Field(None, description="restrict to this table")
    figure: Name | None = Field(None, description="restrict to this figure")
    models: list[Name] | None = Field(None, min_length=1, description="restrict to these models")
    where: dict[Name, str | bool | int | float] = Field({}, description="restrict to runs with these settings")
    seeds: int = Field(1, ge=1, le=MAX_SEEDS, description="how many seeds: 0, 1, 2, ...")

    def resolve(self, catalog: Catalog) -> list[SweepRun]:
        """Return the runs, seed by seed.

        Raises:
            UsageError: the paper has no such table, figure, model or setting.
        """
        experiments = restrict(find_paper(self.paper), self.table, self.figure, self.models, self.where)
        return resolve_experiments(catalog, experiments, range(self.seeds))


def runs_in(path: Path, catalog: Catalog) -> list[SweepRun]:
    """Return the runs of a file in its order, each once.

    Raises:
        UsageError: the file cannot be read, is no TOML, or has an invalid entry; the line names the entry.
    """
    runs: dict[str, SweepRun] = {}
    for number, entry in enumerate(_entries(path), 1):
        try:
            for run in entry.resolve(catalog):
                runs.setdefault(run.config.spec.key, run)
        except UsageError as error:
            raise UsageError(f"{path}, entry {number}: {error}") from error
    return list(runs.values())


def _entries(path: Path) -> Iterator[PaperRuns]:
    content: dict[str, Any] = read_toml(path)
    entries = content.pop("runs", None)
    if content or not isinstance(entries, list) or not entries:
        raise UsageError(f"{path} should be a list of [[runs]], each with a paper and what to train of it")
    for number, entry in enumerate(entries, 1):
        for key in entry:
            if key not in PaperRuns.model_fields:
                raise unknown(f"key in entry {number} of {path}", key, PaperRuns.model_fields)
        try:
            yield PaperRuns(**entry)
        except ValidationError as error:
            key = str(error.errors()[0]["loc"][0])
            raise UsageError(f"{path}, entry {number}: {key} should be {EXPECTED[key]}") from error
