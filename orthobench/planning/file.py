"""A sweep, a run or a search in a TOML file, with the words of `orthobench sweep`, `run` and `tune`.

task = "adding"
models = ["scornn"]
seeds = 5

[settings]
epochs = 3

[grid]
learning_rate = [1e-3, 1e-4]
sequence_length = "100..400:x2"
"(n,rho)" = [[170, 17], [360, 36]]

The file of a run has `model` and `seed` in place of the models and seeds, and no grid. In the file of a search the grid
is the space, and `trials` and `prune` stand in place of the seeds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from orthobench.errors import UsageError, unknown
from orthobench.options.arguments import LARGEST_SEED, Preset
from orthobench.options.seeds import MAX_SEEDS, parse_seeds
from orthobench.planning.grid import GridAxis, read_grid
from orthobench.settings import Scalar, read_toml, text
from orthobench.system.location import from_home

Name = Annotated[str, Field(min_length=1)]
Points = Annotated[list[Scalar | Annotated[list[Scalar], Field(min_length=1)]], Field(min_length=1)]

EXPECTED = {
    "task": 'the name of a task, such as "adding", or own data, "array:data.npz"',
    "model": 'the name of a model, such as "scornn"',
    "models": 'a list of models, such as ["scornn", "lstm"]',
    "preset": '"paper" or "quick"',
    "seed": f"a whole number from 0 to {LARGEST_SEED}",
    "seeds": f'a whole number of seeds from 1 to {MAX_SEEDS}, or seeds such as "3-5"',
    "settings": "a value: text, a number, true or false, or a list of names",
    "match_parameters": 'a number of parameters such as 15000 or "15k", or a model of the sweep',
    "grid": 'a text such as "1e-3,1e-4" or "128..512:x2", or a list of values, or of lists of bound values',
    "plugins": 'a list of Python files, such as ["my_cell.py"]',
    "trials": "a whole number of trials of at least 1",
    "prune": "true or false",
}


class TrainingFile(BaseModel):
    """What the files of all commands contain."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    task: Name = Field(description="the task; `orthobench plugins` lists them")
    preset: Preset | None = Field(
        None, description="paper: the paper's settings; quick: a small version, the default for code of yours"
    )
    settings: dict[Name, Scalar | list[Name]] = Field({}, description="hyper-parameters of every run")
    plugins: list[Name] = Field(
        [], description="Python files with tasks, models or probes of yours; paths begin at the folder of this file"
    )

    def plugin_files(self, file: Path) -> tuple[Path, ...]:
        """Return the paths of the plugin files.

        Args:
            file: the path of this file.
        """
        return tuple(file.parent / from_home(name) for name in self.plugins)

    def overrides(self) -> dict[str, str]:
        """Return the settings that all runs share, as text."""
        return {name: text(value) for name, value in self.settings.items()}


class RunFile(TrainingFile):
    """The content of a run's file."""

    model: Name = Field(description="the model")
    seed: int = Field(0, ge=0, le=LARGEST_SEED, description="seed of the data, the weights and the order of examples")


class GridFile(TrainingFile):
    """What the files of sweeps and searches have in common."""

    models: list[Name] = Field(min_length=1, description="the models")
    match_parameters: Annotated[int, Field(ge=1)] | Name | None = Field(
        None,
        description="choose hidden sizes of equal parameter counts: 15000, 15k or a model of the sweep",
    )
    grid: dict[Name, Name | Points] = Field(
        {},
        description="hyper-parameters to combine: by name, or by names bound together such as (n,rho), a text as on "
        "the command line, or a list of values, or of lists of bound values",
    )


class SweepFile(GridFile):
    """The content of a sweep file; docs/train.md explains it."""

    model_config = ConfigDict(title="orthobench sweep")

    seeds: Annotated[int, Field(ge=1, le=MAX_SEEDS)] | Name = Field(
        1, description="how many seeds: 0, 1, 2, ...; or the seeds, as 3-5"
    )

    @field_validator("seeds")
    @classmethod
    def _check_seeds(cls, seeds: int | str) -> int | str:
        try:
            parse_seeds(str(seeds))
        except UsageError as error:
            raise ValueError(str(error)) from error
        return seeds

    def seed_list(self) -> list[int]:
        """Return the seeds."""
        return parse_seeds(str(self.seeds))

    def axes(self) -> list[GridAxis]:
        """Return the axes of the grid.

        Raises:
            UsageError: an axis is empty or repeats a value.
        """
        return read_grid(self.grid)


class SearchFile(GridFile):
    """The content of a search's file; docs/train.md explains it."""

    trials: int | None = Field(None, ge=1, description="number of trials in total")
    prune: bool | None = Field(None, description="whether to end trials early that are worse than the median")


File = TypeVar("File", bound=TrainingFile)


def read_file(path: Path, kind: type[File]) -> File:
    """Read a file of a sweep, a run or a search.

    Raises:
        UsageError: the file cannot be read, is not TOML, or has an invalid entry; the message gives the fix.
    """
    content = read_toml(path)
    for key in content:
        # Before pydantic sees it, because its message would not name the nearest key.
        if key not in kind.model_fields:
            raise unknown(f"key of {path}", key, kind.model_fields)
    try:
        return kind(**content)
    except ValidationError as error:
        raise UsageError(f"{path}: {_explain(error)}") from error


def sweep_schema() -> str:
    """Return the JSON schema of sweep files, which docs/sweep.schema.json contains."""
    content = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | SweepFile.model_json_schema()
    return json.dumps(content, indent=2)


def _explain(error: ValidationError) -> str:
    """Describe the first error, and list the valid values."""
    problem = error.errors()[0]
    key, *rest = problem["loc"]
    within = () if key in ("match_parameters", "seeds") else rest[:1]  # pydantic adds the type that it tried
    where = ".".join(str(part) for part in (key, *within))
    if problem["type"] == "missing":
        needed = "a task and a model" if key == "model" else "a task and models"
        return f"{where} is missing: name {needed}"
    return f"{where} should be {EXPECTED[str(key)]}"
