"""Draw the figures of the papers, in which every published panel has its place, measured or not."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orthobench.analysis.conditions import Condition
from orthobench.analysis.curves import curve_over_seeds
from orthobench.analysis.paper_tables import fill_command
from orthobench.analysis.printed_curves import printed_curves
from orthobench.papers import Artifact, Experiment
from orthobench.reporting.account.captions import BASELINE_WORDS, caption, facts_of
from orthobench.reporting.account.names import panel_of
from orthobench.reporting.account.paper_views import ArtifactView, NearMiss
from orthobench.reporting.figures import figures
from orthobench.reporting.figures.drawing import (
    PUBLISHED_SYMBOL,
    add_curve,
    beyond_frame,
    has_baseline,
    is_edge,
    published_notes,
)
from orthobench.reporting.figures.figure_record import Figure
from orthobench.reporting.figures.figures import Drawn
from orthobench.reporting.figures.length_figures import over_length
from orthobench.reporting.figures.styles import GREY, Style, Styles

STATED_WORDS = "Crossed circles: levels that the paper's text states."
NEAR_MISSES = "Thin and grey, and not counted: runs with other numbers of sequences than the paper's."
NEAR_MISS_DASHES = ("solid", "longdash", "dot", "dashdot")
"""The dashes of near misses in one panel; "dash" is the baseline's."""


@dataclass(frozen=True)
class PrintedPanel:
    """A panel of a published figure: its measured conditions, the curves that are not measured, and their command."""

    title: str
    conditions: list[Condition]
    printed: list[Experiment]
    missing: list[Experiment]
    command: str
    near_misses: list[NearMiss]

    @property
    def missing_names(self) -> str:
        """The labels of the curves that are not measured, as text; those with runs are drawn, finished or not."""
        drawn = {variant.label for panel in self.conditions for variant in panel.variants}
        return ", ".join(dict.fromkeys(each.label for each in self.missing if each.label not in drawn))


def printed_panels(part: ArtifactView) -> list[PrintedPanel]:
    """Return the panels of a figure in the paper's order, whether measured or not."""
    by_title: dict[str, list[Experiment]] = {}
    for experiment in part.printed:
        by_title.setdefault(panel_of(experiment), []).append(experiment)
    result = []
    identities = {experiment.identity for experiment in part.missing}
    for title, experiments in by_title.items():
        missing = [experiment for experiment in experiments if experiment.identity in identities]
        command = fill_command(part.artifact, missing, part.printed)
        conditions = [panel for panel in part.panels if _holds(experiments, panel)]
        near = [each for each in part.near_misses if each.experiment in experiments]
        result.append(PrintedPanel(title, conditions, experiments, missing, command, near))
    return result


def panel_figures(part: ArtifactView, panel: Condition, styles: Styles) -> Drawn:
    """Return the drawings of a measured panel of a paper's figure, by name; empty without data."""
    artifact = part.artifact
    printed = _printed_panel(part, panel)
    if artifact.shows == "gradient_norms":
        return _gradient_norms(artifact.name, panel, styles, printed.printed if printed else [])
    missing = [f"not measured: {printed.missing_names}"] if printed and printed.missing_names else []
    if artifact.shows == "over_length":
        drawn = over_length(panel, styles)
        return {"paper": (drawn[0].also([*facts_of(artifact.name, panel), *missing]), drawn[1])} if drawn else {}
    if artifact.shows == "orthogonality":
        distances = figures.orthogonality(panel, styles, artifact.x)
        words = caption("Distance from orthogonal, ‖W*W − I‖", artifact.name, panel).also(missing)
        return {"paper": (words, distances)} if distances else {}
    metric = panel.metric_named(artifact.metric)
    marks = _published(printed, metric.name, artifact.split)
    bests = [each.label for each in printed.printed if figures.is_of_all_epochs(each)] if printed else []
    figure = figures.learning_curves(panel, styles, artifact.x, artifact.metric, artifact.split, marks, bests)
    _add_printed_curves(figure, part, panel, styles)
    if not any("model" in trace.get("meta", {}) for trace in figure.data):
        return {}
    notes = [BASELINE_WORDS] if has_baseline(figure) else []
    notes += published_notes(figure)
    if printed and _add_near_misses(figure, artifact, printed.near_misses):
        notes.append(NEAR_MISSES)
    return {"paper": (caption("Learning curves", artifact.name, panel).also(missing, notes), figure)}


def _add_near_misses(figure: Figure, artifact: Artifact, near_misses: Sequence[NearMiss]) -> bool:
    """Add the medians of near misses as thin grey lines, and return whether there are any."""
    traces = len(figure.data)
    for number, near in enumerate(near_misses):
        variant = near.variant
        metric = artifact.metric or variant.run.metric
        curve = curve_over_seeds(variant.series(artifact.split, metric), variant.finished)
        name = f"{near.experiment.label}, other data"
        label = ", ".join(filter(None, (name, beyond_frame(figure, curve.median))))
        before = len(figure.data)
        epochs = near.experiment.settings.get("epochs") or 1
        # The paper's epochs, because one of fewer sequences is shorter.
        scale = epochs / variant.run.total_iterations if artifact.x == "epoch" else 1
        add_curve(figure, curve, curve.x * scale, label, Style(GREY, NEAR_MISS_DASHES[number % 4]), plain=True)
        figure.data[before:] = [trace for trace in figure.data[before:] if not is_edge(trace)]
        for trace in figure.data[before:]:
            owner = {"model": variant.run.model, "tags": variant.tags}
            trace["meta"] = {"label": label, "name": name, "near_miss": True, **owner, **(trace.get("meta") or {})}
    return len(figure.data) > traces


def _published(panel: PrintedPanel | None, metric: str, split: str) -> dict[str, float]:
    """Return the values that the paper publishes for the curves of a panel anywhere, by label."""
    experiments = panel.printed if panel else []
    return {
        experiment.label: printed.value
        for experiment in experiments
        for printed in experiment.printed
        if (printed.metric, printed.split) == (metric, split) and printed.value is not None
    }


def _add_printed_curves(figure: Figure, part: ArtifactView, panel: Condition, styles: Styles) -> None:
    """Add the curves that the paper publishes as numbers, dotted and with crossed circles."""
    printed_panel = _printed_panel(part, panel)
    curves = [*printed_curves(part.artifact, printed_panel.printed if printed_panel else [], panel.variants)]
    for curve in curves:
        name = f"{curve.experiment.label}, published"
        figure.add_scatter(
            x=curve.x,
            y=curve.y,
            mode="lines+markers",
            name=html.escape(name),
            meta={"published": True, "label": name},
            marker={"symbol": PUBLISHED_SYMBOL, "size": 8},
            line={"dash": "dot", "color": styles.of(panel, curve.variant).color if curve.variant else GREY, "width": 1},
        )
    drawn = [float(value) for trace in figure.data for value in trace["y"] if np.isfinite(value)]
    axis = figure.layout["yaxis"]
    if curves and figures.spans_decades(drawn):
        _make_logarithmic(figure)
    elif curves and "range" in axis and axis.get("type") != "log":
        ends = [float(curve.y[-1]) for curve in curves]
        axis["range"] = [min(axis["range"][0], *ends), max(axis["range"][1], *ends)]


def _make_logarithmic(figure: Figure) -> None:
    """Make the y axis logarithmic and show all of it; on a linear one, low values to compare would all be at 0."""
    figure.layout["yaxis"].pop("range", None)
    figure.layout.pop("meta", None)
    figure.update_yaxes(type="log", rangemode="normal")


def _gradient_norms(name: str, panel: Condition, styles: Styles, printed: Sequence[Experiment]) -> Drawn:
    """Return the paper's two panels: dL/dh_t at the beginning of training and after training.

    Marks are the levels that the paper's text states.

    They show the norm of a sample's gradient if the runs have it, because the published levels are closer to it.
    """
    drawn: Drawn = {}
    names = {name for variant in panel.variants for name in variant.traces}
    norm = next((norm for norm in reversed(figures.NORMS) if f"{norm}/h" in names), "gradient_norm")
    for last in (False, True):
        figure = figures.gradient_norms(panel, styles, (last,), norm, states=("h",))
        if figure is not None:
            moment = "after training" if last else "at the beginning of training"
            notes = [STATED_WORDS] if _add_levels(figure, panel, styles, printed, last) else []
            notes += figures.about_gradients(figure)
            words = caption(figures.NORMS[norm], name, panel).also([moment], notes)
            drawn[moment] = (words, figure)
    return drawn


def _add_levels(figure: Figure, panel: Condition, styles: Styles, printed: Sequence[Experiment], trained: bool) -> bool:
    """Mark the levels that the text states for the drawn variants, and return whether there are any."""
    by_label = {variant.label: variant for variant in panel.variants}
    found = False
    for experiment in printed:
        levels = [level for each in experiment.printed for level in each.levels if level.trained == trained]
        variant = by_label.get(experiment.label)
        if levels and variant:
            found, name = True, f"{experiment.label}, published"
            figure.add_scatter(
                x=[level.x for level in levels],
                y=[level.y for level in levels],
                mode="markers",
                name=html.escape(name),
                meta={"published": True, "label": name},
                marker={"symbol": PUBLISHED_SYMBOL, "size": 10, "color": styles.of(panel, variant).color},
            )
    return found


def _printed_panel(part: ArtifactView, panel: Condition) -> PrintedPanel | None:
    return next(
        (printed for printed in printed_panels(part) if panel.key in [own.key for own in printed.conditions]), None
    )


def panel_title(part: ArtifactView, panel: Condition) -> str:
    """Return the title of a measured panel in the published figure, such as "T = 750"."""
    printed = _printed_panel(part, panel)
    return printed.title if printed else panel.title


def _holds(experiments: list[Experiment], panel: Condition) -> bool:
    """Return whether a measured condition belongs to these experiments."""
    labels = {variant.label for variant in panel.variants}
    return any(
        experiment.label in labels
        and experiment.task == panel.task
        and all(panel.settings.get(name) == value for name, value in experiment.task_settings.items())
        for experiment in experiments
    )
