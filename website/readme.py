"""What documents show of the reference results: the matrix, the papers and the findings.

`python -m website.readme` renews README.md, its pictures, and docs/findings.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from orthobench.analysis.claims import ClaimResult
from orthobench.analysis.paper_tables import TIMES, Cell
from orthobench.reporting.matrix import make_matrix, picture
from website.findings import findings
from website.markdown import table
from website.results import Decided, decided, everything

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BEGIN = "<!-- From results.db, by `make readme`. -->"
END = "<!-- End of the table. -->"


def pictures() -> dict[Path, str]:
    """Draw the matrix of the reference results for light and dark pages, by the file of each picture."""
    matrix = make_matrix(everything().conditions)
    return {ROOT / "docs" / f"matrix-{name}.svg": picture(matrix, name == "dark") for name in ("light", "dark")}


def papers_table() -> str:
    """Build the table of papers, with the verdicts on their claims and on their numbers; times are left out."""
    by_paper: dict[str, list[Decided]] = {}
    for entry in decided():
        by_paper.setdefault(entry.paper.paper.short_name, []).append(entry)
    rows = []
    for name, entries in by_paper.items():
        claims = in_words([entry.claim for entry in entries if entry.claim])
        cells = [(entry.part.artifact.name, *entry.cell[1:]) for entry in entries if entry.cell]
        numbers = "; ".join(_numbers([cell for cell in cells if cell[2].printed.metric not in TIMES]))
        if claims or numbers:
            rows.append([name, claims or "–", numbers or "–"])
    return table(["paper", "claims", "numbers"], rows)


def _numbers(cells: Sequence[tuple[str, str, Cell]]) -> list[str]:
    """Return the numbers that three seeds decide in words, and the count of the others by their verdict."""
    valued = [(part, label, cell) for part, label, cell in cells if cell.printed.value is not None]
    decisive = [
        f"{part}, {label}: {cell.measured.value:.3g}, published {cell.printed.text}, {cell.words}"
        for part, label, cell in valued
        if (cell.is_settled or cell.is_refuted) and cell.measured
    ]
    others = Counter(cell.words for _, _, cell in valued if not (cell.is_settled or cell.is_refuted))
    return decisive + [f"{count} {words}" for words, count in others.most_common()]


def in_words(claims: Sequence[ClaimResult]) -> str:
    """Describe how many claims held, how many depend on the seed, and how many did not hold."""
    counts = Counter(claim.conclusion for claim in claims)
    plural = {"depends on the seed": "depend on the seed"}
    named = [(count, plural.get(words, words) if count > 1 else words) for words, count in counts.most_common()]
    return ", ".join(f"{count} {words}" for count, words in named)


def with_table(text: str) -> str:
    """Return the text of README.md with the updated table."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{papers_table()}\n{END}{tail}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text("utf-8")), "utf-8")
    for file, content in {**pictures(), **findings(everything())}.items():
        file.write_text(content, "utf-8")
