"""A sweep in a TOML file, with the task, models, settings, grid and seeds of `orthobench sweep`.

task = "adding"
models = ["scornn"]
seeds = 5

[settings]
epochs = 3

[grid]
learning_rate = [1e-3, 1e-4]
sequence_length = "100..400:x2"
"(n,rho)" = [[170, 17], [360, 36]]
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orthobench.errors import UsageError, unknown
from orthobench.options.arguments import Preset
from orthobench.planning import MAX_SEEDS
from orthobench.planning.grid import GridAxis, read_grid
from orthobench.settings import Scalar, read_toml, text

Name = Annotated[str, Field(min_length=1)]
Points = Annotated[list[Scalar | Annotated[list[Scalar], Field(min_length=1)]], Field(min_length=1)]

EXPECTED = {
    "task": 'the name of a task, such as "adding"',
    "models": 'a list of models, such as ["scornn", "lstm"]',
    "preset": '"paper" or "quick"',
    "seeds": f"a whole number of seeds from 1 to {MAX_SEEDS}",
    "settings": "a value: text, a number, true or false, or a list of names",
    "match_parameters": 'a number of parameters such as 15000 or "15k", or a model of the sweep',
    "grid": 'a text such as "1e-3,1e-4" or "128..512:x2", or a list of values, or of lists of bound values',
}


class SweepFile(BaseModel):
    """The content of a sweep file; docs/sweep.md explains it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, title="orthobench sweep")

    task: Name = Field(description="the task; `orthobench plugins` lists them")
    models: list[Name] = Field(min_length=1, description="the models")
    preset: Preset = Field("paper", description="paper: the paper's settings; quick: a small version")
    match_parameters: Annotated[int, Field(ge=1)] | Name | None = Field(
        None,
        description="choose hidden sizes of equal parameter counts: 15000, 15k or a model of the sweep",
    )
    seeds: int = Field(1, ge=1, le=MAX_SEEDS, description="how many seeds: 0, 1, 2, ...")
    settings: dict[Name, Scalar | list[Name]] = Field({}, description="hyper-parameters of every run")
    grid: dict[Name, Name | Points] = Field(
        {},
        description="hyper-parameters to combine: by name, or by names bound together such as (n,rho), a text as on "
        "the command line, or a list of values, or of lists of bound values",
    )

    def overrides(self) -> dict[str, str]:
        """Return the settings that all runs share, as text."""
        return {name: text(value) for name, value in self.settings.items()}

    def axes(self) -> list[GridAxis]:
        """Return the axes of the grid.

        Raises:
            UsageError: an axis is empty or repeats a value.
        """
        return read_grid(self.grid)


def read_file(path: Path) -> SweepFile:
    """Read a sweep file.

    Raises:
        UsageError: the file cannot be read, is not TOML, or has an invalid entry; the message gives the fix.
    """
    content = read_toml(path)
    for key in content:
        # Before pydantic sees it, because its message would not name the nearest key.
        if key not in SweepFile.model_fields:
            raise unknown(f"key of {path}", key, SweepFile.model_fields)
    try:
        return SweepFile(**content)
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
    within = () if key == "match_parameters" else rest[:1]  # pydantic adds the type that it tried
    where = ".".join(str(part) for part in (key, *within))
    if problem["type"] == "missing":
        return f"{where} is missing: name a task and models"
    return f"{where} should be {EXPECTED[str(key)]}"
