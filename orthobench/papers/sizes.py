"""The models' sizes as the papers print them: what a parameter count is held against."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from importlib.resources import files

from pydantic import BaseModel, ConfigDict, field_validator

UNITS = {"k": 1_000, "M": 1_000_000}


class Size(BaseModel):
    """One row: a model at the task's numbers of inputs and outputs, and the count as printed, such as "16k".

    `embedding` is the number of parameters that the paper counts beside the model. A note explains why the model's
    own count differs from the printed one; `count` then is the model's own count.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str
    task: str
    inputs: int
    outputs: int
    model: str
    settings: str
    embedding: int
    printed: str
    count: int | None
    note: str

    @field_validator("count", mode="before")
    @classmethod
    def _read_empty(cls, value: str | int | None) -> str | int | None:
        return None if value == "" else value

    def agrees(self, count: int) -> bool:
        """Whether a count comes out as printed, at the printed digits."""
        number, unit = self.printed[:-1], UNITS[self.printed[-1]]
        digits = len(number.partition(".")[2])
        return round((count + self.embedding) / unit, digits) == float(number)


def sizes() -> Iterator[Size]:
    """All rows, paper by paper."""
    with files("orthobench.papers").joinpath("sizes.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            yield Size.model_validate(row)
