"""Write figures as PNG or PDF files, with Plotly's Kaleido and the system's Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from orthobench.analysis.conditions import Condition
from orthobench.errors import UsageError
from orthobench.reporting.figures import learning_curves
from orthobench.reporting.pages import PaperView
from orthobench.reporting.paper_figures import panel_figures
from orthobench.reporting.studies import draw, figures_of
from orthobench.reporting.styles import Styles
from orthobench.store.overwrite import refuse_file, refuse_other_kinds

WIDTH, HEIGHT, SCALE = 720, 440, 2


def write_images(
    conditions: list[Condition], views: list[PaperView], form: Literal["png", "pdf"], folder: Path
) -> list[Path]:
    """Write the panels of the papers' figures; without papers, the learning curves of every condition.

    Raises:
        UsageError: Kaleido or Chromium is missing, or the folder cannot be written.
    """
    refuse_file(folder)
    styles = Styles(conditions)
    figures = {
        f"{view.paper.key}-{part.artifact.name}-{panel.title}-{name}": figure
        for view in views
        for part in view.artifacts
        for panel in part.panels
        for name, (_, figure) in panel_figures(part, panel, styles).items()
    }
    for view in views:
        for part in view.artifacts:
            result = part.study_result if part.is_study else None
            if result and result.is_whole:
                for name, (_, drawn) in figures_of(part.artifact, draw(result, styles)).items():
                    figures[f"{view.paper.key}-{part.artifact.name}-{name}"] = drawn
    if not views:
        figures = {f"{c.title}-{c.key}": learning_curves(c, styles) for c in conditions}
    written = []
    for name, figure in figures.items():
        path = folder / f"{''.join(c if c.isalnum() or c in '-_.' else '-' for c in name)}.{form}"
        figure.update_layout(template="plotly_white")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            refuse_other_kinds(path, form.upper())
            figure.write_image(path, width=WIDTH, height=HEIGHT, scale=SCALE)
        except OSError as error:
            raise UsageError(f"figure {path} cannot be written: {error}") from error
        except (ImportError, ValueError, RuntimeError) as error:
            first = (str(error).strip().splitlines() or ["?"])[0]
            raise UsageError(
                f"figures need Kaleido and Chromium: pip install -e '.[figures]' in the checkout ({first})"
            ) from error
        written.append(path.resolve())
    return written
