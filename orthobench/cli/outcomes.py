"""Print compared samples and their verdicts, those of `check` and of `compare`: tables, CSV and JSON."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orthobench import api
from orthobench.cli import records
from orthobench.options.assignments import text

RIGHT = ("lost (95 %)", "allowed", "mean difference (95 %)", "p")
"""The columns that are aligned to the right."""
VERDICT, WHY = "verdict", "why"
COLORS = {"better": "green", "worse": "red", "same": ""}
"""The colours of the verdicts of `check`; the others are yellow."""
OPTIONAL = ("baseline", "mean difference (95 %)", "lost (95 %)", "allowed", "p", WHY)
"""The columns that a wider terminal gets, the first one first."""


@dataclass(frozen=True)
class Outcome:
    """Two samples and what they show, as text.

    Attributes:
        cells: by heading; the verdict is under "verdict".
        style: how a terminal shows the verdict.
    """

    cells: Mapping[str, str]
    style: str = ""


def of_finding(finding: api.Finding) -> Outcome:
    """Return a finding of `check`: means with standard deviations, and the loss with its upper bound."""
    color = COLORS.get(finding.verdict, "yellow") if finding.counts or finding.ending == "skipped" else ""
    return Outcome(finding.cells, color)


def of_contrast(contrast: api.Contrast, label: str = "") -> Outcome:
    """Return a contrast of `compare`: medians with intervals, and the difference of the means if no run diverged.

    Args:
        label: what both sides are runs of; by default the second selection is named.
    """
    result = contrast.result
    sizes = result.n if result else (None, None)
    before, now = (_median(side, n) for side, n in zip(contrast.medians, sizes, strict=True))
    cells = {
        **({"runs of": label} if label else {"second": contrast.second.text}),
        "metric": contrast.metric,
        "first, median": before,
        "second, median": now,
        "mean difference (95 %)": "" if contrast.difference is None else str(contrast.difference),
        "p": "" if contrast.p is None else f"{contrast.p:.2g}",
        VERDICT: contrast.verdict,
        WHY: contrast.reason,
    }
    colors = {"better": "green", "worse": "red"}
    return Outcome(cells, colors.get(contrast.second_is, "") if contrast.verdict.startswith(contrast.second_is) else "")


def _median(value: api.Median | None, n: int | None) -> str:
    return "" if value is None else f"{value} ({value.n if n is None else n})"


def print_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Print the outcomes, which have the same headings, as a table; on a narrow terminal the reasons stand below it."""
    if not outcomes:
        return
    headings = [*outcomes[0].cells]
    shown = records.print_table(
        headings,
        [[*each.cells.values()] for each in outcomes],
        optional=[name for name in OPTIONAL if name in headings],
        folds={headings[0]: records.NAME},
        right=RIGHT,
        styles={(number, VERDICT): each.style for number, each in enumerate(outcomes)},
    )
    for each in outcomes:
        if WHY not in shown and each.cells[WHY]:
            named = " ".join(list(each.cells.values())[:2])
            records.console().print(f"{named}: {each.cells[WHY]}")


def print_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print rows as CSV; a row may lack columns."""
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def contrast_record(contrast: api.Contrast, value: str) -> dict[str, Any]:
    """Return a contrast as JSON values."""
    result = contrast.result
    record: dict[str, Any] = {
        "first": contrast.first.text,
        "second": contrast.second.text,
        "runs": [[run.key for run in side.runs] for side in (contrast.first, contrast.second)],
        "settings": contrast.settings,
        "environment": contrast.environment,
        "metric": contrast.metric,
        "value": value,
        "statuses": contrast.counts,
        "medians": [side and {"value": side.value, "interval": [side.low, side.high]} for side in contrast.medians],
        "paired": contrast.paired,
        "caution": contrast.caution or None,
        "standing": contrast.standing,
        "verdict": contrast.verdict,
        "deciding_seeds": contrast.deciding,
    }
    if result:
        difference = contrast.difference
        record["result"] = {
            "n": result.n,
            "difference": difference and difference.mean,
            "half_width": difference and difference.half_width,
            "test": result.test,
            "p": result.p,
            "p_holm": contrast.p,
            "smallest_p": result.smallest_p,
            "first_lower": result.first_lower,
            "words": result.words or None,
        }
    return record


def print_contrast(contrast: api.Contrast, title: str, value: str, several: bool) -> None:
    """Print the test of two selections, and what they do not share: runs, settings and environments.

    Args:
        title: what is compared, if there are several contrasts.
        several: whether there are, for which the p value is adjusted.
    """
    if several:
        records.console().print(title, style="bold", soft_wrap=True)
    for line in _lines(contrast, value, several):
        records.console().print(line)
    runs = [", ".join(f"{n} {status}" for status, n in each.items()) for each in contrast.counts]
    # Not the same two commits, for example, on both sides. Settings that both sides mix decide how to narrow them.
    environment = {name: sides for name, sides in contrast.environment.items() if sides[0] != sides[1]}
    differing = contrast.settings | environment
    rows = [(name, shown(left), shown(right)) for name, (left, right) in differing.items()]
    headings = ("differing", "first", "second")
    records.print_table(headings, [("runs", *runs), *rows], folds=dict.fromkeys(headings, records.TEXT))


def _lines(contrast: api.Contrast, value: str, several: bool) -> list[str]:
    """Describe the test of a contrast in words."""
    result = contrast.result
    if result is None:
        return [f"{contrast.metric}, {value}: too few finished or diverged runs to compare"]
    pairs = f"{result.n[0]} common seeds" if contrast.paired else f"{result.n[0]} and {result.n[1]} runs, not paired"
    return [
        f"{contrast.metric}, {value}: {pairs}; difference of the means of finished runs "
        + (f"{result.difference} (95 % interval)" if result.difference else "–"),
        f"{result.test}: p = {records.cell(result.p)}"
        + (f", by Holm over all comparisons {records.cell(contrast.p)}" if several else "")
        + f"; smallest possible p {records.cell(result.smallest_p)}",
        f"the first is lower in {result.first_lower:.0%} of the pairs of runs; a diverged run is the worst",
        *(text for text in (result.words, contrast.caution) if text),
    ]


def changes(differing: api.Differences) -> str:
    """Return the differences between two sides on one line."""
    return "; ".join(f"{name} {shown(first)} -> {shown(second)}" for name, (first, second) in differing.items())


def shown(values: Sequence[Any]) -> str:
    """Return the values of one side of a difference as text."""
    return ", ".join(map(_shown, values))


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, list):
        return text([_shown(entry) for entry in value])
    if isinstance(value, dict):
        plugin = value.get("path") or value.get("distribution")  # in an environment, with the hashes of its files
        return f"{plugin} {value.get('revision')}" if plugin else str(value)
    return text(value)


def print_contrasts(compared: Sequence[api.Contrast], value: str, advice: Sequence[str]) -> None:
    """Print the table of all contrasts, how to train the seeds which would decide, and each contrast."""
    out = records.console()
    out.print(f"first: {compared[0].first.text}", soft_wrap=True)
    print_outcomes([of_contrast(each) for each in compared])
    for line in advice:
        out.print(line, soft_wrap=True)
    for each in compared:
        out.print()
        print_contrast(each, each.second.text, value, several=len(compared) > 1)


def advice_for(contrasts: Sequence[api.Contrast], db: api.Location) -> list[str]:
    """Return the commands that add the seeds which would decide, and to how many."""
    commands = api.commands.deciding(contrasts, db)
    return [f"bring these to {needed_seeds(contrasts)} seeds:", *(f"  {each}" for each in commands)] if commands else []


def needed_seeds(contrasts: Sequence[api.Contrast]) -> int | None:
    """Return the number of seeds that would decide the contrasts which too few leave open; None if none is open."""
    return next((contrast.deciding for contrast in contrasts if contrast.deciding is not None), None)
