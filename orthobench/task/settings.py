"""The settings of training, and those that generated data share."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from orthobench.settings import Settings

Size = Annotated[int, Field(ge=1)]
MULTIPLES = (2, 4, 8)
"""The multiples of the trained length at which tasks with the setting `longer_tests` test."""


class TrainingSettings(Settings):
    """The protocol: how a run is trained and how often it is tested."""

    batch_size: Size = Field(50, description="number of sequences in a training batch")
    epochs: Size = Field(10, description="number of passes over the training set")
    max_iterations: Size | None = Field(None, description="most iterations; none: only epochs limits the run")
    evaluate_every: Size | None = Field(
        None, description="iterations between evaluations; none: one evaluation per epoch"
    )
    evaluation_batch_size: Size = Field(1000, description="number of sequences in an evaluation batch")
    learning_rate_decay: float = Field(1.0, gt=0, le=1, description="factor on all learning rates at every decay")
    decay_every: Size = Field(1, description="epochs between decays")
    plateau_decay: float = Field(
        1.0,
        gt=0,
        le=1,
        description="factor on all learning rates after an epoch without a new best validation value",
        json_schema_extra={"neutral": 1.0},
    )
    warmup: float = Field(
        0.0,
        ge=0,
        description="linear warm-up of the learning rates from 0: a share of all iterations if below 1, "
        "else a number of iterations; none: 0",
        json_schema_extra={"neutral": 0.0},
    )
    schedule: Literal["constant", "cosine"] = Field(
        "constant",
        description="schedule of the learning rates after the warm-up; cosine: half a cosine down to the final rate",
        json_schema_extra={"neutral": "constant"},
    )
    final_rate: float | None = Field(
        None,
        ge=0,
        description="cosine: learning rate at the end, for every group of parameters; none: final_share decides",
        json_schema_extra={"neutral": None},
    )
    final_share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="cosine: learning rate at the end as a share of each group's learning rate; for final_rate=none",
        json_schema_extra={"neutral": 0.0},
    )
    solved_at: float | None = Field(
        None,
        description="stop when the main metric reaches this value at an evaluation, on the data of judged_by; "
        "none: train to the end",
        json_schema_extra={"neutral": None},
    )
    judged_by: Literal["test", "validation", "validation_only"] = Field(
        "test",
        description="data that decide when a run is solved or has diverged, and which weights are best; validation: "
        "tests are only reported; validation_only: no tests at all, for the trials of a search",
        json_schema_extra={"neutral": "test"},
    )
    shuffle: bool = Field(True, description="draw a new order of the training set in every epoch")
    clip_norm: float | None = Field(
        None, gt=0, description="largest norm of the gradient of all parameters; none: no limit"
    )
    clip_value: float | None = Field(
        None, gt=0, description="largest absolute value of a gradient entry; none: no limit"
    )
    diverged_above: float | None = Field(
        1e4,
        gt=0,
        description="a test loss above this multiple of the baseline means diverged; "
        "none: only a loss that is not finite",
        json_schema_extra={"neutral": 1e4},
    )
    probes: tuple[str, ...] = Field(
        (), description="probes in addition to the default ones, as a,b", json_schema_extra={"neutral": []}
    )

    @field_validator("warmup", mode="before")
    @classmethod
    def _no_warmup(cls, value: Any) -> Any:
        return 0.0 if value is None or str(value).lower() == "none" else value

    @field_validator("probes", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        """Read names separated by commas, and sort them because their order has no meaning."""
        names = {name.strip() for name in (value.split(",") if isinstance(value, str) else value or ())}
        if "" in names:
            raise ValueError("has an empty name: write probes=a,b")
        return sorted(names - {"none"})

    @model_validator(mode="after")
    def _check_schedule(self) -> Self:
        """Refuse values without effect and fractions of an iteration."""
        if self.warmup >= 1 and self.warmup != int(self.warmup):
            raise ValueError(f"warmup={self.warmup:g}: give a share below 1, or a whole number of iterations")
        if self.schedule != "cosine" and (self.final_rate is not None or self.final_share):
            raise ValueError("final_rate and final_share end a cosine: set schedule=cosine as well")
        if self.final_rate is not None and self.final_share:
            raise ValueError("final_rate and final_share both set the end of the cosine: give one of them")
        return self


class SyntheticSettings(Settings):
    """Settings of all generated data sets."""

    train_size: Size = Field(100_000, description="training sequences")
    test_size: Size = Field(10_000, description="test sequences")
    validation_size: int = Field(
        0,
        ge=0,
        description="validation sequences, which neither training nor tests have; none: 0",
        json_schema_extra={"neutral": 0},
    )


class ScalableSettings(SyntheticSettings):
    """Settings of generated data whose `sequence_length` can be that of longer tests."""

    longer_tests: bool = Field(
        False,
        description="whether to test at lengths of 2T, 4T and 8T as well, once after training",
        json_schema_extra={"neutral": False},
    )

    def longer(self) -> dict[int, Self]:
        """Return the settings at multiples of the length, by multiple, if longer tests are asked for."""
        length = self.sequence_length  # type: ignore[attr-defined]
        multiples = MULTIPLES if self.longer_tests else ()
        return {multiple: self.model_copy(update={"sequence_length": multiple * length}) for multiple in multiples}
