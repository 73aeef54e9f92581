"""`orthobench compare-databases`: compare the runs that two databases have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from orthobench import api
from orthobench.cli.filters import filtered
from orthobench.cli.options import Json, Paired, Value
from orthobench.cli.outcomes import changes, contrast_record, of_contrast, print_contrast, print_csv, print_outcomes
from orthobench.cli.records import console
from orthobench.display import print_json
from orthobench.errors import UsageError

COLUMNS = (
    "where",
    "runs",
    "common_seeds",
    "metric",
    "first",
    "second",
    "first_n",
    "second_n",
    "difference",
    "half_width",
    "p",
    "verdict",
    "identical",
    "changed",
)


@filtered()
def command(
    first: Annotated[api.Location, typer.Argument(metavar="FIRST", parser=api.Location.of, help="A file or a URL.")],
    second: Annotated[api.Location, typer.Argument(metavar="SECOND", parser=api.Location.of, help="Another database.")],
    value: Value = "end",
    paired: Paired = None,
    where: Sequence[str] = (),
    json: Json = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print a table as CSV; first_n and second_n count runs.")] = False,
) -> None:
    """Compare two databases, for example of two commits.

    Compare runs with the same settings, and list the versions and environments that differ and the runs that only one
    database has. The test and the verdict are those of `orthobench compare`. Neither database changes.
    """
    if json and csv:
        raise UsageError("--json and --csv are different outputs: give one of them")
    compared = api.compare_databases(first, second, value=value, paired=paired, where=where)
    names = [str(first), str(second)]
    if json:
        print_json(_record(compared, names, value))
    elif csv:
        print_csv(COLUMNS, _rows(compared, names))
    else:
        _print(compared, names, value)


def _record(compared: api.DatabaseComparison, names: Sequence[str], value: str) -> dict[str, Any]:
    matches = [
        {"runs_of": match.label, "seeds": match.seeds, "identical": match.identical}
        | contrast_record(match.contrast, value)
        for match in compared.matches
    ]
    alone = [
        [{"runs_of": lone.label, "seeds": lone.seeds, "settings": lone.settings} for lone in side]
        for side in compared.alone
    ]
    return {"databases": list(names), "both": matches, "only_first": alone[0], "only_second": alone[1]}


def _rows(compared: api.DatabaseComparison, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each match, and for each variant that only one database contains."""
    rows: list[dict[str, Any]] = []
    for match in compared.matches:
        contrast, result = match.contrast, match.contrast.result
        first, second = (None if median is None else median.value for median in contrast.medians)
        rows.append(
            {
                "where": "both",
                "runs": match.label,
                "common_seeds": len(match.seeds),
                "metric": contrast.metric,
                "first": first,
                "second": second,
                "first_n": result and result.n[0],
                "second_n": result and result.n[1],
                "difference": contrast.difference and contrast.difference.mean,
                "half_width": contrast.difference and contrast.difference.half_width,
                "p": contrast.p,
                "verdict": contrast.verdict,
                "identical": match.identical,
                "changed": changes(contrast.settings | contrast.environment),
            }
        )
    for name, count, side in zip(names, ("first_n", "second_n"), compared.alone, strict=True):
        rows += [
            {"where": name, "runs": lone.label, count: len(lone.seeds), "changed": changes(lone.settings)}
            for lone in side
        ]
    return rows


def _print(compared: api.DatabaseComparison, names: Sequence[str], value: str) -> None:
    out = console()
    for side, name in zip(("first", "second"), names, strict=True):
        out.print(f"{side}: {name}", soft_wrap=True)
    if not compared.matches:
        out.print("no settings are in both databases")
    print_outcomes([of_contrast(match.contrast, match.label) for match in compared.matches])
    for name, alone in zip(names, compared.alone, strict=True):
        if alone:
            out.print(f"only in {name}:", soft_wrap=True)
        for lone in alone:
            out.print(f"  {_shown(lone)}")
    for match in compared.matches:
        out.print()
        print_contrast(match.contrast, match.label, value, several=len(compared.matches) > 1)
        out.print(f"{match.identical} of {len(match.seeds)} common seeds have the same run and number")


def _shown(lone: api.Lone) -> str:
    seeds = ", ".join(map(str, lone.seeds))
    differing = f" (here -> there: {changes(lone.settings)})" if lone.settings else ""
    return f"{lone.label}, seed {seeds}{differing}"
