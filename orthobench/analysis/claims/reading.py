"""Read the claims of a paper's TOML file: `check` names the class, and the other keys are its fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_args

from pydantic import Field, TypeAdapter, ValidationError

from orthobench.analysis.claims import comparisons, curve_shapes, gradients, lengths, over_setting, trajectories
from orthobench.analysis.claims.claim import Claim
from orthobench.errors import UsageError, unknown
from orthobench.papers import Artifact, Study

# fmt: off
ClaimKind = Annotated[
    curve_shapes.EndsBelow | curve_shapes.EndsBetween | curve_shapes.SettlesAbove | curve_shapes.Starts
    | curve_shapes.Waits | curve_shapes.Bypasses | curve_shapes.DropsWithin | curve_shapes.Smooth
    | curve_shapes.Returns | curve_shapes.Late | curve_shapes.Grows | curve_shapes.StaysBelow
    | curve_shapes.StaysAbove | comparisons.First | comparisons.Later | comparisons.Slower | comparisons.Rougher
    | comparisons.Best | comparisons.Worst | comparisons.Similar | comparisons.Ratio | comparisons.FailsOnlyHere
    | over_setting.ImprovesWith | over_setting.NearBest | gradients.Remembers | gradients.Forgets
    | gradients.DecaysTo | gradients.FadesTo | gradients.ForgetsMore | gradients.StandsOut | gradients.NearOne
    | lengths.HoldsLengths | lengths.ReachesFarther | lengths.Tracks | lengths.PredictsHorizon
    | trajectories.EndsAtDistance | trajectories.FixedPoints,
    Field(discriminator="check"),
]
# fmt: on
"""All kinds of claims; a new class is added here."""

_ADAPTER: TypeAdapter[ClaimKind] = TypeAdapter(ClaimKind)
KINDS: dict[str, type[Claim]] = {kind.model_fields["check"].default: kind for kind in get_args(get_args(ClaimKind)[0])}
"""All kinds of claims by the value of `check` that names them."""


def read_claims(artifact: Artifact | Study) -> list[ClaimKind]:
    """Return the claims of a table or figure, or of this project about a study.

    Raises:
        UsageError: a claim has an unknown check or a field that is missing, unknown or wrong.
    """
    place = " ".join(filter(None, (artifact.paper, artifact.name)))
    return [_read(table, place) for table in artifact.claims]


def _read(table: Mapping[str, Any], place: str) -> ClaimKind:
    try:
        return _ADAPTER.validate_python(table)
    except ValidationError as error:
        problems = "; ".join(_problem(detail["type"], detail["loc"], detail["msg"], table) for detail in error.errors())
        raise UsageError(f"{place}, claim '{table.get('text', '')}': {problems}") from None


def _problem(kind: str, location: tuple[int | str, ...], message: str, table: Mapping[str, Any]) -> str:
    """Describe one of the errors that pydantic finds in a claim."""
    if kind == "union_tag_not_found":
        return f"check is missing; known: {', '.join(sorted(KINDS))}"
    if kind == "union_tag_invalid":
        return str(unknown("check", str(table["check"]), KINDS))
    check, *field = map(str, location)
    fields = KINDS[check].model_fields
    if kind == "missing":
        return f"{check} needs {field[0]}: {fields[field[0]].description}"
    if kind == "extra_forbidden":
        return str(unknown(f"field of {check}", field[0], fields))
    return ": ".join((".".join((check, *field)), message.removeprefix("Value error, ")))
