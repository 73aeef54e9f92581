"""The settings of tasks of own data; what the data itself says is filled in."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from orthobench.arrays.arrange import Missing, Sequences, Targets, checked
from orthobench.arrays.own_files import checksum, read_own_data
from orthobench.arrays.parts import Divided, divide, usual_window
from orthobench.arrays.tables import Roles
from orthobench.arrays.words import Kind
from orthobench.data.checksums import with_checksum
from orthobench.errors import UsageError
from orthobench.settings import Settings
from orthobench.task import Size

NONE: Any = {"neutral": None}


class DataSettings(Settings):
    """The settings of all tasks of own data."""

    kind: ClassVar[Kind]
    file_name: ClassVar[str] = ""
    """The name of the file in the name of the task."""

    data: str = Field("", description="file or folder with the data; by default the one in the name of the task")
    data_md5: str | None = Field(None, description="checksum of names and contents; computed from the data unless set")
    target: str | None = Field(None, description="a table's column with the targets; none: y", json_schema_extra=NONE)
    sequence: str | None = Field(
        None, description="a table's column with the name of the sequence; none: sequence", json_schema_extra=NONE
    )
    time: str | None = Field(None, description="a table's column with the time; none: time", json_schema_extra=NONE)
    missing: Missing = Field(
        "refuse",
        description="what becomes of features without a value; mask: 0 and an input that says so; "
        "forward: the value of the step before",
        json_schema_extra={"neutral": "refuse"},
    )
    validation_share: float = Field(0.1, ge=0, lt=1, description="share of the data for validation; 0: none")
    test_share: float = Field(0.2, gt=0, lt=1, description="share of the data for the test")
    split_seed: int | None = Field(
        0,
        ge=0,
        description="seed by which sequences are dealt to the parts, the same for all runs; none: in the file's order",
    )
    standardise: bool = Field(
        True, description="scale features and amounts by the mean and standard deviation of the training data"
    )
    window: int | None = Field(
        None, ge=2, description="steps of a window of one long series; none for other data, which has sequences"
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        """Fill in the checksum, and what follows from the data."""
        if Path(self.data).name != self.file_name:
            raise ValueError(
                f"there is no {self.file_name} here, and data={self.data or 'none'}: write it with its folder, "
                f"{self.kind}:FOLDER/{self.file_name}"
            )
        known = self.__dict__  # of a frozen model
        try:
            known |= with_checksum(known, "data", checksum)
            found = self.sequences
        except UsageError as error:
            raise ValueError(f"{self.kind}:{self.file_name}: {error}") from error
        if "targets" in known:
            known["targets"] = "step" if found.by_step else "sequence"
        if found.is_series and self.window is None:
            known["window"] = usual_window(len(found.steps), self)
        return self

    @property
    def sequences(self) -> Sequences:
        """The sequences in the data.

        Raises:
            UsageError: the data cannot be read or trained on.
        """
        roles, targets = Roles(self.target, self.sequence, self.time), getattr(self, "targets", None)
        return _open(Path(self.data), str(self.data_md5), self.kind, targets, self.missing, roles)

    @property
    def divided(self) -> Divided:
        """The sequences or windows of each part.

        Raises:
            UsageError: there are too few.
        """
        try:
            return divide(self.sequences, self)
        except UsageError as error:
            raise UsageError(f"{self.kind}:{self.file_name}: {error}") from error

    @property
    def train_size(self) -> int:
        """The number of training sequences, or of windows."""
        return len(self.divided.parts[0])


class RegressionSettings(DataSettings):
    kind: ClassVar[Kind] = "regression"

    targets: Targets | None = Field(None, description="what has a target; none: as the data says")


class ClassificationSettings(RegressionSettings):
    kind = "classification"

    class_weights: Literal["balanced"] | None = Field(
        None,
        description="weights of the classes in the loss; balanced: the inverse of their share of the training data; "
        "none: all equal",
        json_schema_extra=NONE,
    )


class ForecastSettings(DataSettings):
    kind = "forecast"

    horizon: Size = Field(1, description="steps between the last features read and those that are forecast")


@functools.lru_cache(maxsize=4)
def _open(path: Path, md5: str, kind: Kind, targets: Targets | None, missing: Missing, roles: Roles) -> Sequences:
    """Return the sequences in a file or folder with this checksum, which decides whether to read it again."""
    return checked(read_own_data(path, roles, kind, targets), kind, missing)
