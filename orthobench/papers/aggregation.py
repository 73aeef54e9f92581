"""How a published value was computed from runs: over how many seeds, scaled or not, and by which evaluation."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Selection = Literal["curve", "last", "final", "early_stopped", "best_test", "best_valid"]


class Aggregation(BaseModel):
    """What a paper says about how it computed its numbers; a field that no source states is None.

    A measured number is computed in the same way. If nothing is stated, it is the mean over all seeds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    over: Literal["mean", "median", "best"] | None = Field(
        None, description="how the number is computed from the seeds"
    )
    seeds: int | None = Field(None, ge=1, description="the number of seeds")
    deviation: Literal["sample", "population", "none"] | None = Field(
        None, description="the number after ±; sample: divided by seeds - 1; population: by seeds; none: not printed"
    )
    scaled: bool | None = Field(None, description="whether it is (a - chance) / (1 - chance) of an accuracy a")
    chance: float | None = Field(None, ge=0, lt=1, description="that chance; none: the task's baseline")
    selection: Selection | None = Field(
        None,
        description="the evaluation that counts; curve and last: the end, the median of the last tenth; final: the "
        "last; early_stopped: the last, where the test stops training; best_test, best_valid: the best on that split",
    )

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if self.over == "best" and self.seeds is None:
            raise ValueError("the best of how many seeds? give seeds")
        if self.chance is not None and not self.scaled:
            raise ValueError("chance scales a number: set scaled as well")
        return self

    def upon(self, lower: Aggregation) -> Aggregation:
        """Return this record with its missing fields filled in from a lower one."""
        own = {name: value for name, value in self if value is not None}
        return Aggregation(**{**dict(lower), **own})

    @property
    def words(self) -> str:
        """The stated fields in words, such as "best of 3, scaled"; empty if nothing is stated."""
        parts = [self.over_seeds(self.seeds)] if self.over or self.seeds else []
        parts += ["scaled"] if self.scaled else []
        parts += [f"{self.deviation} deviation"] if self.deviation in ("sample", "population") else []
        return ", ".join(parts)

    def over_seeds(self, seeds: int | None) -> str:
        """Describe how the number is computed over seeds, for example "best of 3"."""
        over = self.over or "mean"
        return over if seeds is None else "one seed" if seeds == 1 else f"{over} of {seeds}"
