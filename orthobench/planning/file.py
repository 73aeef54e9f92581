"""A sweep in a TOML file: the task, models, settings, grid and seeds of `orthobench sweep`.

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
import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orthobench.errors import UsageError, unknown
from orthobench.planning import MAX_SEEDS
from orthobench.planning.grid import Axis, read_grid
from orthobench.settings import text
from orthobench.spec import Preset

Scalar = str | bool | int | float
Name = Annotated[str, Field(min_length=1)]
Points = Annotated[list[Scalar | Annotated[list[Scalar], Field(min_length=1)]], Field(min_length=1)]

EXPECTED = {
    "settings": "a value: text, a number, true or false, or a list of names",
    "grid": 'a text such as "1e-3,1e-4" or "128..512:x2", or a list of values, or of lists of bound values',
}


class SweepFile(BaseModel):
    """The content of a sweep file; docs/sweep.md explains it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, title="orthobench sweep")

    task: Name = Field(description="the task; `orthobench plugins` lists them")
    models: list[Name] = Field(min_length=1, description="the models")
    preset: Preset = Field("paper", description="paper: the paper's settings; quick: a small version")
    seeds: int = Field(1, ge=1, le=MAX_SEEDS, description="how many seeds: 0, 1, 2, ...")
    settings: dict[Name, Scalar | list[Name]] = Field({}, description="hyper-parameters of every run")
    grid: dict[Name, Name | Points] = Field(
        {},
        description="hyper-parameters to combine: by name, or by names bound together such as (n,rho), a text as on "
        "the command line, or a list of values, or of lists of bound values",
    )

    def overrides(self) -> dict[str, str]:
        """Return the settings of every run, as text."""
        return {name: text(value) for name, value in self.settings.items()}

    def axes(self) -> list[Axis]:
        """Return the grid's axes.

        Raises:
            UsageError: an axis is empty or repeats a value.
        """
        return read_grid(self.grid)


def read_file(path: Path) -> SweepFile:
    """Read a sweep file.

    Raises:
        UsageError: the file cannot be read, is no TOML, or has an invalid entry; one line with the remedy.
    """
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    for key in content:
        if key not in SweepFile.model_fields:
            raise unknown(f"key of {path}", key, SweepFile.model_fields)
    try:
        return SweepFile(**content)
    except ValidationError as error:
        raise UsageError(f"{path}: {_explain(error)}") from error


def schema() -> str:
    """Return the JSON schema of sweep files, as in docs/sweep.schema.json."""
    content = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | SweepFile.model_json_schema()
    return json.dumps(content, indent=2)


def _explain(error: ValidationError) -> str:
    """Describe the first error; for a value of the wrong type, name all types that are valid."""
    problem = error.errors()[0]
    key, *rest = problem["loc"]
    where = ".".join(str(part) for part in (key, *rest[:1]))
    if problem["type"] == "missing":
        return f"{where} is missing: say what to run with task and models"
    if key in EXPECTED and rest:
        return f"{where} should be {EXPECTED[str(key)]}"
    message = problem["msg"].removeprefix("Input ")
    return f"{where}={problem['input']}: {message[0].lower()}{message[1:]}"
