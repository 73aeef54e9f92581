"""The verdict sheet: what held and what did not, numbers versus published ones, and all artifacts at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from orthobench.analysis.claims import ClaimResult
from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.paper_tables import TableCell
from orthobench.analysis.statistics import Conclusion
from orthobench.papers import Paper
from orthobench.reporting.account.paper_views import ArtifactView, MeasuredNumber, PaperView, distinct_numbers

SquareStatus = Literal["agree", "fails", "partial", "none"]


@dataclass(frozen=True)
class DecidedClaim:
    """A decided claim with its place in the papers.

    Attributes:
        tried: other variants of the claim's model on the same task with the same settings.
    """

    paper: Paper
    part: ArtifactView
    result: ClaimResult
    tried: Sequence[VariantData] = ()

    @property
    def share(self) -> str:
        """The share of seeds, or of pairs of seeds, for which the claim looks true."""
        return str(self.result.share or "")


@dataclass(frozen=True)
class Computed:
    """The panels of a computed figure, which count as one claim, and how many of them held."""

    paper: Paper
    part: ArtifactView
    confirmed: int
    total: int
    share: str = ""


@dataclass(frozen=True)
class Dot:
    """A measured number versus the published one, in units of the tolerance.

    Attributes:
        offset: by how many tolerances the measured number exceeds the published one.
        low: the lower end of the 90 % interval that decides, also in tolerances; None without one.
        high: the upper end.
    """

    paper: Paper
    part: ArtifactView
    row: str
    column: str
    cell: TableCell
    offset: float
    low: float | None
    high: float | None

    @property
    def is_single(self) -> bool:
        """Whether the number comes from one seed."""
        return self.cell.measured is not None and self.cell.measured.n == 1


def _verdicts(views: Sequence[PaperView]) -> dict[Conclusion, list[DecidedClaim]]:
    """Return the counted and decided claims on trained runs by their verdict, without repeated checks of the same runs.

    Claims that cannot fail are left out.
    """
    seen = set[str]()
    verdicts: dict[Conclusion, list[DecidedClaim]] = {"held": [], "depends on the seed": [], "did not hold": []}
    for view in views:
        for part in view.artifacts:
            for result in part.claim_results:
                if result.share is None or result.uncounted or (result.evidence and result.evidence in seen):
                    continue
                seen.add(result.evidence)
                verdicts[result.share.conclusion].append(DecidedClaim(view.paper, part, result))
    return verdicts


def _computed(views: Sequence[PaperView]) -> list[Computed]:
    figures = []
    for view in views:
        for part in view.artifacts:
            panels = [r for r in part.claim_results if r.claim.is_computed and r.is_decided and not r.claim.cannot_fail]
            if panels:
                confirmed = sum(r.conclusion == "held" for r in panels)
                figures.append(Computed(view.paper, part, confirmed, len(panels)))
    return figures


def _tried(result: ClaimResult, by_key: dict[str, Condition]) -> list[VariantData]:
    own = {variant.run.variant for variant in (*result.own, *result.rivals)}
    models = {variant.run.model for variant in result.own}
    conditions = dict.fromkeys(variant.run.condition for variant in result.own)
    return [
        variant
        for key in conditions
        if key in by_key
        for variant in by_key[key].variants
        if variant.run.model in models and variant.run.variant not in own and variant.median
    ]


def dots(views: Sequence[PaperView]) -> list[Dot]:
    """Return every distinct measured number for which there is a published one of the same unit and machine."""
    return [dot for number in distinct_numbers(views) if (dot := _dot(number))]


def _dot(number: MeasuredNumber) -> Dot | None:
    measured, target = number.cell.measured, number.cell.target
    if measured is None or target is None:
        return None
    ends = (None if value is None else target.units(value) for value in (measured.low, measured.high))
    place = (number.paper, number.part, number.row, number.column, number.cell)
    return Dot(*place, target.units(measured.value), *ends)


@dataclass(frozen=True)
class Square:
    """A square of the matrix of papers by tables and figures."""

    part: ArtifactView
    status: SquareStatus
    confirmed: int
    against: int

    @property
    def words(self) -> str:
        """The counts with their names."""
        if progress := self.part.study_progress:
            return progress
        (measured, total), (trained, experiments) = self.part.coverage, self.part.trained
        decided = self.confirmed + self.against
        counts = {"results measured": (measured, total)} if total else {"experiments trained": (trained, experiments)}
        counts["checks that hold"] = (self.confirmed, decided)
        words = "; ".join(f"{name}: {part} of {whole}" for name, (part, whole) in counts.items() if whole)
        return words or "orthobench trains none of its results"


GLYPHS: dict[SquareStatus, str] = {"agree": "✓", "fails": "✗", "partial": "◐", "none": "·"}
STATUSES: dict[SquareStatus, str] = {
    "agree": "everything measured agrees with the paper",
    "fails": "a claim or a number does not hold",
    "partial": "nothing that three seeds decide contradicts the paper, but not all is measured or decided",
    "none": "nothing measured",
}


def square(part: ArtifactView) -> Square:
    """Return the state of a table or figure, in which anything that contradicts the paper outweighs the rest.

    A claim that depends on the seed, has fewer than three seeds, is decided at settings chosen here, or compares times
    neither supports nor contradicts the paper.
    """
    cells = [cell for cell in part.table.cells if cell.measured] if part.table else []
    claims = [result for result in part.claim_results if not result.claim.cannot_fail]
    counted = [each for each in claims if not (each.at_own_settings or each.is_of_times)]
    conclusions = ["not decided" if each.is_hollow else each.conclusion for each in counted]
    confirmed = conclusions.count("held") + sum(cell.is_confirmed for cell in cells)
    against = conclusions.count("did not hold") + sum(cell.is_refuted for cell in cells)
    measured, total = part.coverage
    undecided = len(conclusions) > conclusions.count("held") or any(
        cell.verdict in ("undecided", "too wide to say") for cell in cells
    )
    status: SquareStatus = "partial"
    if against:
        status = "fails"
    elif not part.trained[0] and not confirmed and not part.study_progress:
        status = "none"
    elif confirmed and measured == total and not undecided:
        status = "agree"
    return Square(part, status, confirmed, against)


@dataclass(frozen=True)
class VerdictSheet:
    """What held and what did not, over all papers.

    Attributes:
        failed: the claims that did not hold, with the other variants of the same model under the same condition.
        held: the claims that held.
        computed: the computed figures.
        seed_decided: the claims that depend on the seed.
        dots: the measured versus the published numbers.
        squares: the state of each table and figure, by its key.
        own: the conditions, if there is nothing else to show.
    """

    failed: list[DecidedClaim]
    held: list[DecidedClaim]
    computed: list[Computed]
    seed_decided: list[DecidedClaim]
    dots: list[Dot]
    squares: dict[str, Square]
    own: list[Condition]


def verdict_sheet(views: Sequence[PaperView], conditions: Sequence[Condition]) -> VerdictSheet:
    """Return the verdicts on the papers' claims and numbers."""
    verdicts, by_key = _verdicts(views), {condition.key: condition for condition in conditions}
    return VerdictSheet(
        failed=[replace(each, tried=_tried(each.result, by_key)) for each in verdicts["did not hold"]],
        held=verdicts["held"],
        computed=_computed(views),
        seed_decided=verdicts["depends on the seed"],
        dots=dots(views),
        squares={part.key: square(part) for view in views for part in view.artifacts},
        own=own_conditions(conditions, views),
    )


def own_conditions(conditions: Sequence[Condition], views: Sequence[PaperView]) -> list[Condition]:
    """Return all conditions if no paper's experiment was measured, because these runs are then all there is to show."""
    return [] if any(view.coverage[0] for view in views) else list(conditions)
