"""Draw all figures of a study."""

from __future__ import annotations

from orthobench.papers import Artifact
from orthobench.reporting.account.names import distinguishing_settings
from orthobench.reporting.account.studies import StoredStudy
from orthobench.reporting.figures import study_figures
from orthobench.reporting.figures.figures import Drawn
from orthobench.reporting.figures.styles import Styles
from orthobench.reporting.figures.tracking_figures import tracking_figures


def draw_study(result: StoredStudy, styles: Styles) -> Drawn:
    """Draw the figures of a study that have data."""
    drawing = result.study.drawing
    if result.has_panels:
        return study_figures.trajectories(result.record.results["panels"])
    if drawing == "times":
        return {"table 3": study_figures.minutes(result.record.results, styles, result.study.names)}
    drawings = tracking_figures(result.conditions) if drawing == "state_tracking" else {}
    for number, (figure, condition) in enumerate(result.conditions):
        others = [other for name, other in result.conditions if name == figure]
        data = distinguishing_settings(condition, others)
        title = f" ({data})" if data else ""
        for name, (words, drawn) in study_figures.DRAWINGS[drawing](figure, condition, styles).items():
            drawings[f"{number} {name}{title}"] = (words.also([data] if data else []), drawn)
    return drawings


def figures_of(artifact: Artifact, drawings: Drawn) -> Drawn:
    """Return the drawings of a study that belong to a paper's figure."""
    word = f" {artifact.panel} " if artifact.panel else ""
    return {name: drawn for name, drawn in drawings.items() if word in f" {name} "}
