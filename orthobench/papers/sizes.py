"""The model sizes that the papers print, with which parameter counts are compared."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from importlib.resources import files

from pydantic import BaseModel, ConfigDict, field_validator

UNITS = {"k": 1_000, "M": 1_000_000}


class PrintedSize(BaseModel):
    """A row: a model with the numbers of inputs and outputs of the task, and the published count, such as "16k".

    `embedding` is the number of parameters that the paper counts in addition to the model. If the count of the model
    here differs from the published one, a note explains why, and `count` is the count of the model here.
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
        """Return whether a count agrees with the published one to the published digits."""
        number, unit = self.printed[:-1], UNITS[self.printed[-1]]
        digits = len(number.partition(".")[2])
        return round((count + self.embedding) / unit, digits) == float(number)


def sizes() -> Iterator[PrintedSize]:
    """Yield all rows, paper by paper."""
    with files("orthobench.papers").joinpath("sizes.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            yield PrintedSize.model_validate(row)
