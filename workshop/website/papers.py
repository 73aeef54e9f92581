"""The pages of the papers, with published and measured values, from the views of the report."""

from __future__ import annotations

from orthobench.analysis.claims import ClaimResult
from orthobench.reporting.account.paper_views import ArtifactView, PaperView
from orthobench.reporting.tables.paper_tables import paper_tables
from orthobench.reporting.tables.reproduction import decided_claims, figure_curves
from workshop.website.markdown import escape, fenced, page, table
from workshop.website.plugins import prose
from workshop.website.results import everything

VERDICTS = (
    "A number agrees or differs by a test of equivalence over at least three seeds; fewer seeds leave it undecided. "
    "Where our runs or the interval spread over more than four tolerances, it is too wide to say. "
    "A claim is a check on the runs of a figure or table. It holds if it looks as stated for more than 80 % of the "
    "seeds, or of the pairs of seeds, and does not hold below 20 %; in between it depends on the seed. A claim with "
    "fewer than three seeds on a side counts in no total. Claims that deliberately broken models also pass are "
    "marked and not counted."
)


def paper_pages() -> dict[str, str]:
    """Return the index of the papers and a page for each of them, by path."""
    views = everything().papers
    pages = {"papers/index.md": page("# Papers", VERDICTS, overview())}
    return pages | {f"papers/{view.paper.key}.md": _paper(view) for view in views}


def overview(folder: str = "") -> str:
    """Build a table with a row for each paper: what has been measured, and which claims held.

    Args:
        folder: the path from the page with the table to the pages of the papers, with a slash at the end.
    """
    rows = []
    for view in everything().papers:
        measured, total = view.coverage
        counts, verdicts = view.claim_counts, view.verdicts
        differ = verdicts["better"] + verdicts["worse"]
        rows.append(
            [
                f"[{view.paper.key}]({folder}{view.paper.key}.md)",
                escape(f"{view.paper.authors}: {view.paper.title}"),
                f"{measured} of {total}",
                f"{verdicts['agree']}, {differ}, {verdicts['undecided']}, {verdicts['too_wide']}",
                f"{counts.confirmed}, {counts.seed_decides}, {counts.refuted}",
                str(counts.undecided),
            ]
        )
    header = [
        "key",
        "paper",
        "results measured",
        "agree, differ, undecided, too wide to say",
        "claims: held, depend on the seed, did not hold",
        "claims open",
    ]
    return table(header, rows)


def _paper(view: PaperView) -> str:
    measured, total = view.coverage
    return page(
        f"# {escape(view.paper.title)}",
        f"{escape(view.paper.citation)}. Key: `{view.paper.key}`.",
        f"Published results measured: {measured} of {total}. {VERDICTS}",
        *(part for artifact in view.artifacts for part in _artifact(view, artifact)),
    )


def _artifact(view: PaperView, part: ArtifactView) -> list[str]:
    """Return the parts of a paper's page about a table or figure."""
    name = part.artifact.name[:1].upper() + part.artifact.name[1:]
    title = f"{name}: {part.artifact.title}" if part.artifact.title else name
    parts = [f"## {escape(title)}"]
    if part.table:
        (own,) = paper_tables(PaperView(view.paper, [part]))
        parts.append(table(list(map(escape, own.headings)), [list(map(escape, row)) for row in own.rows]))
    parts += [figure_curves(panel) for panel in part.panels]
    if decided := [result for result in part.claim_results if result.is_decided]:
        parts.append(decided_claims(decided))
    if pending := [result for result in part.claim_results if not result.is_decided]:
        parts.append(_pending(pending))
    notes = dict.fromkeys(
        [*part.artifact.notes, *(note for row in part.table.rows for note in row.notes)]
        if part.table
        else part.artifact.notes
    )
    parts.append("\n".join(f"* {prose(note)}" for note in notes))
    if part.command:
        parts += ["Not measured yet:", fenced(part.command)]
    return parts


def _pending(claims: list[ClaimResult]) -> str:
    """Return the claims that no run decides yet, in a collapsed block."""
    rows = "\n".join(f"    * {escape(result.claim.text)}" for result in claims)
    return f'??? note "{len(claims)} claims that no run decides yet"\n\n{rows}'
