"""`orthobench compare a.db b.db`: compare two databases."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orthobench.analysis.compare_databases import DatabaseComparison, Lone
    from orthobench.cli.filters import Filters
    from orthobench.options.arguments import ComparedValue

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


def are_databases(selections: Sequence[str]) -> bool:
    """Return whether the words name databases instead of selections of runs.

    Raises:
        UsageError: only some of the words name databases, or there are not exactly two.
    """
    from orthobench.errors import UsageError
    from orthobench.system.location import from_home

    databases = [
        text for text in selections if "://" in text or Path(text).suffix == ".db" or Path(from_home(text)).is_file()
    ]
    if databases and len(databases) < len(selections):
        raise UsageError(
            f"{databases[0]} is a database, and another word is not: name two databases, or selections of --db"
        )
    if databases and len(databases) != 2:
        raise UsageError(f"{len(databases)} databases: name two, such as orthobench compare before.db after.db")
    return bool(databases)


def compare_two(
    words: Sequence[str], filters: Filters, value: ComparedValue, paired: bool | None, json: bool, as_csv: bool
) -> None:
    """Compare two databases, and print the result as text, JSON or CSV.

    Raises:
        UsageError: the options contradict each other, both names mean the same database, or nothing can be compared.
    """
    from orthobench.analysis.compare_databases import ComparedDatabase, compare_databases
    from orthobench.cli import records
    from orthobench.cli.outcomes import print_csv
    from orthobench.errors import UsageError
    from orthobench.store.merge import opened_unchanged
    from orthobench.system.location import Location
    from orthobench.training.settled import status_in

    if json and as_csv:
        raise UsageError("--json and --csv are different outputs: give one of them")
    first, second = map(Location.of, words)
    if first.is_same(second):
        raise UsageError(f"{first} and {second} are the same database: name two")
    with ExitStack() as opened:
        sides = []
        for location in (first, second):
            store = opened.enter_context(opened_unchanged(location))
            sides.append(ComparedDatabase(str(location), store, status_in(store, location)))
        compared = compare_databases(sides[0], sides[1], filters.conditions(), value, paired)
    names = [side.name for side in sides]
    if json:
        records.print_json(_record(compared, names, value))
    elif as_csv:
        print_csv(COLUMNS, _rows(compared, names))
    else:
        _print(compared, names, value)


def _record(compared: DatabaseComparison, names: Sequence[str], value: str) -> dict[str, Any]:
    from orthobench.cli.outcomes import contrast_record

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


def _rows(compared: DatabaseComparison, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each match, and for each variant that only one database contains."""
    from orthobench.cli.outcomes import changes

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


def _print(compared: DatabaseComparison, names: Sequence[str], value: str) -> None:
    from orthobench.cli.outcomes import of_contrast, print_contrast, print_table
    from orthobench.cli.records import console

    out, sides = console(), (names[0], names[1])
    for match in compared.matches:
        print_contrast(match.contrast, match.label, sides, value, several=len(compared.matches) > 1)
        out.print(f"{match.identical} of {len(match.seeds)} common seeds have the same run and number")
        out.print()
    if compared.matches:
        print_table([of_contrast(match.contrast, sides, match.label) for match in compared.matches])
        out.print()
    for name, side in zip(names, compared.alone, strict=True):
        if side:
            out.print(f"only in {name}:")
        for lone in side:
            out.print(f"  {_shown(lone)}", soft_wrap=True)
    if not compared.matches:
        out.print("no settings are in both databases")


def _shown(lone: Lone) -> str:
    from orthobench.cli.outcomes import changes

    seeds = ", ".join(map(str, lone.seeds))
    differing = f" (here -> there: {changes(lone.settings)})" if lone.settings else ""
    return f"{lone.label}, seed {seeds}{differing}"
