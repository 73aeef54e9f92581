"""The table of the numbers that each paper prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from orthobench.reporting.account.printed_numbers import DEVICES, KINDS, Hours, PrintedNumbers
from orthobench.reporting.tables.table import Table, table_of

HEADER = [
    "paper",
    "printed",
    "measured",
    *KINDS,
    "open",
    "not run here",
    "open: hours on a CPU core",
    "open: hours on a GPU",
]


def numbers_table(papers: Sequence[PrintedNumbers]) -> Table:
    """Return a table with a row for each paper, and their sums."""
    total = PrintedNumbers(
        "all",
        sum((paper.counts for paper in papers), Counter()),
        0,
        {
            device: Hours(
                sum(paper.hours[device].total for paper in papers),
                sum(paper.hours[device].unknown for paper in papers),
            )
            for device in DEVICES
        },
    )
    return table_of("Counts, and hours of the open ones", HEADER, [paper.row for paper in (*papers, total)])
