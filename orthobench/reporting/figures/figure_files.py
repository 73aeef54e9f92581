"""Write figures for papers as SVG, PDF, PNG and LaTeX code, one or two columns wide, with 8 pt text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orthobench.analysis.conditions import Condition
from orthobench.errors import UsageError
from orthobench.options.arguments import ImageFormat
from orthobench.reporting.account.paper_views import PaperView
from orthobench.reporting.figures.drawn_studies import draw_study, figures_of
from orthobench.reporting.figures.figure_record import Figure
from orthobench.reporting.figures.figures import learning_curves
from orthobench.reporting.figures.length_figures import over_length
from orthobench.reporting.figures.paper_figures import panel_figures, panel_title
from orthobench.reporting.figures.stills import draw_still
from orthobench.reporting.figures.styles import Styles
from orthobench.system.files import write_bytes
from orthobench.system.kinds import refuse_file, refuse_other_kinds

WIDTHS = {3.25: 1, 6.75: 3}
"""Widths in inches, for one and two columns of a paper, with the largest number of panels side by side."""
PANEL_HEIGHT = 2.0
"""Inches, including axes and labels."""


def write_images(conditions: list[Condition], views: list[PaperView], form: ImageFormat, folder: Path) -> list[Path]:
    """Write the papers' figures, one image per figure; without papers, learning curves and metrics over length.

    Each figure is written once per width, for example as `helfrich2018-figure-5-3.25in.pdf`; PGF code is in .tex.

    Raises:
        UsageError: the folder cannot be written, or no figure is measured.
    """
    refuse_file(folder)
    figures = paper_images(views, Styles(conditions))
    if not views:
        styles = Styles(conditions)
        figures = {f"{c.title}-{c.key}": [("", learning_curves(c, styles))] for c in conditions}
        figures |= {
            f"{c.title}-{c.key}-over-length": [("", drawn[1])] for c in conditions if (drawn := over_length(c, styles))
        }
    if views and not figures:
        raise UsageError(
            f"no figure in this selection is measured; measure it with: {'; '.join(missing_commands(views))}"
        )
    kind, suffix = ("LaTeX", "tex") if form == "pgf" else (form.upper(), form)
    paths = {
        folder / f"{_stem(name)}-{inches}in.{suffix}": (panels, inches)
        for name, panels in figures.items()
        for inches in WIDTHS
    }
    for path in paths:
        refuse_other_kinds(path, kind)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, (panels, inches) in paths.items():
            write_bytes(path, draw_still(panels, form, inches, WIDTHS[inches], PANEL_HEIGHT))
    except OSError as error:
        raise UsageError(f"figures in {folder} cannot be written: {error}") from error
    return [path.resolve() for path in paths]


def _stem(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)


def paper_images(views: Sequence[PaperView], styles: Styles) -> dict[str, list[tuple[str, Figure]]]:
    """Return the panels of each measured figure of the papers, with their titles, by figure name."""
    figures: dict[str, list[tuple[str, Figure]]] = {}
    for view in views:
        for part in view.artifacts:
            drawn = [
                (panel_title(part, panel) if name == "paper" else name, figure)
                for panel in part.panels
                for name, (_, figure) in panel_figures(part, panel, styles).items()
            ]
            result = part.study_result if part.is_study else None
            if result and result.is_whole:
                named = figures_of(part.artifact, draw_study(result, styles)).items()
                drawn += [(name.lstrip("0123456789 "), figure) for name, (_, figure) in named]
            if drawn:
                figures[f"{view.paper.key}-{part.artifact.name}"] = drawn
    return figures


def missing_commands(views: Sequence[PaperView]) -> list[str]:
    """Return the commands that measure what is missing in the papers' figures."""
    commands = (
        command
        for view in views
        for part in view.artifacts
        if part.table is None
        if (command := f"orthobench study {part.study.name}" if part.study else part.command)
    )
    return list(dict.fromkeys(commands))
