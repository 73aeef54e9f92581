"""The table of headline results in README.md, which `python -m website.readme` updates from the reference results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from orthobench.analysis.claims import ClaimResult
from orthobench.analysis.paper_tables import TIMES
from website.markdown import escape, table
from website.results import Decided, decided

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN = "<!-- From results.db, by `make readme`. -->"
END = "<!-- End of the table. -->"


def headline_table() -> str:
    """Build the table, with a row for each measured number that was published and for each artifact with claims.

    Times on other machines are left out, and so are numbers that an earlier paper also prints.
    """
    rows: list[list[str]] = []
    seen: set[tuple[str, ...]] = set()
    for title, entries in _by_part():
        for entry in entries:
            if entry.cell is None or entry.cell[2].printed.metric in TIMES:
                continue
            row, label, cell = entry.cell
            assert cell.measured is not None
            if cell.printed.value is None or (runs := tuple(cell.runs)) in seen:
                continue
            seen.add(runs)
            seeds = f"{cell.measured.n} seed{'s' * (cell.measured.n != 1)}"
            rows.append(
                [title, escape(f"{row}, {label}: {cell.printed.text}"), f"{cell.measured}, {seeds}", cell.words]
            )
        if claims := [entry.claim for entry in entries if entry.claim]:
            rows.append([title, f"{len(claims)} claim{'s' * (len(claims) != 1)} checked", in_words(claims), ""])
    return table(["paper and part", "published", "measured [90 % interval]", "verdict"], rows)


def in_words(claims: Sequence[ClaimResult]) -> str:
    """Describe how many claims held and how many depend on the seed, with the share of each."""
    confirmed = sum(claim.conclusion == "held" for claim in claims)
    shares = [str(claim.share) for claim in claims if claim.conclusion == "depends on the seed"]
    verb = "depends" if len(shares) == 1 else "depend"
    return f"{confirmed} held" + (f", {len(shares)} {verb} on the seed ({', '.join(shares)})" if shares else "")


def _by_part() -> Iterator[tuple[str, list[Decided]]]:
    """Yield each table or figure with its decided results, in the order of the papers."""
    parts: dict[str, list[Decided]] = {}
    for entry in decided():
        parts.setdefault(f"{entry.paper.paper.key}, {entry.part.artifact.name}", []).append(entry)
    yield from parts.items()


def with_table(text: str) -> str:
    """Return the text of README.md with the updated table."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{headline_table()}\n{END}{tail}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text("utf-8")), "utf-8")
