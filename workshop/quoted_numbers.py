"""List what authors quote and no longer stands in its table: numbers in documents, and verdicts of remarks.

A number in a document or in the commentary links to the heading above `<!-- table: forecasts -->`, in this or another
document: `[35](#forecasts "row")`. The title of the link, which may be missing, is the first cell of the row that has
the number. A remark of the commentary, reports/commentary.toml, names the verdict for which it was written, and
reports/REPRODUCTION.md has those of today.
"""

from __future__ import annotations

import html
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

DOCUMENTS = ("*.md", "docs/*.md", "workshop/benchmarks/*.md", "reports/*.md", "reports/commentary.toml")
NUMBER = r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?"
QUOTED = re.compile(rf'\[({NUMBER})(?:\s%)?\]\(([^)\s#]*)#([\w-]+)(?:\s+"([^"]*)")?\)')


def rows_of(text: str, table: str) -> list[list[str]]:
    """Return the cells of a document's table by its name, without the headings."""
    block = re.search(rf"<!-- table: {table} -->(.*?)<!-- end of table -->", text, re.S)
    lines = re.findall(r"^\|(.*)\|$", html.unescape(block[1]), re.M)[2:] if block else []
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)] for line in lines]


def wrong_numbers(root: Path) -> Iterator[str]:
    """Yield a line for each linked number that its table lacks: its file, its line, the number and the table."""
    for path in sorted(path for pattern in DOCUMENTS for path in root.glob(pattern)):
        text = re.sub(r"(?ms)^```.*?^```$|`[^`\n]*`", lambda code: "\n" * code[0].count("\n"), path.read_text("utf-8"))
        for link in QUOTED.finditer(text):
            number, file, table, row = link.groups()
            other = path.parent / file if file else path
            row = row and " ".join(row.split())
            rows = rows_of(other.read_text("utf-8"), table) if other.is_file() else []
            cells = [cell for first, *cells in rows if row in (None, first) for cell in cells]
            if number not in re.findall(rf"(?<![\w.,-]){NUMBER}(?!\w)", " ".join(cells)):
                where = f'the row "{row}" of table {table}' if row else f"table {table}"
                yield f"{path.relative_to(root)}:{text.count(chr(10), 0, link.start()) + 1}: {number} is not in {where}"


def outdated_remarks(root: Path) -> Iterator[str]:
    """Yield a line for each remark whose verdict has changed: what it is about, its verdict, and that of today."""
    reports = root / "reports"
    today: dict[tuple[str, str], str] = {}
    for paper, result, claim, *_, verdict in rows_of((reports / "REPRODUCTION.md").read_text("utf-8"), "measured"):
        # A number's row and column are in its second cell, after the table; a claim's text is in its third.
        today |= {(paper, name.replace("\\", "")): verdict for name in (f"{result}: {claim}", result)}
    for remark in tomllib.loads((reports / "commentary.toml").read_text("utf-8"))["remark"]:
        about = f"{remark['artifact']}: {' '.join(remark['about'].split())}"
        verdict = today.get((remark["paper"], about), "not decided")
        if not verdict.startswith(remark["verdict"]):
            words = f"written for '{remark['verdict']}', now '{verdict}': {remark['paper']}, {about}"
            yield f"reports/commentary.toml: {words}"


if __name__ == "__main__":
    root = Path(__file__).parent.parent
    problems = [*wrong_numbers(root), *outdated_remarks(root)]
    print(*problems, sep="\n", end="\n" if problems else "")
    sys.exit(bool(problems))
