"""Draw how far models track states: the implied against the measured horizon, by family, and by eigenvalue."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.horizons import Horizon, horizons, log_correlation
from orthobench.analysis.logged import named
from orthobench.reporting.account.captions import Caption
from orthobench.reporting.account.matrix import families_of_models
from orthobench.reporting.figures.drawing import empty_figure
from orthobench.reporting.figures.figure_record import Figure
from orthobench.reporting.figures.figures import Drawn
from orthobench.reporting.figures.styles import GREY, color_of_family

BEYOND = 1.3
"""A horizon beyond the longest test is drawn this many times as far."""
FILLED = "Filled: the run learned the task at all training lengths. Open: it did not, and has no state to lose."
HORIZONS = Caption(
    "Horizon implied by the distinguishability ratio, where it crosses the decoder's threshold, against the "
    "measured one, where the decoder reads fewer than 90 % of the states along the way, on a scale from chance (0) to "
    "perfect (1): one point for each run whose decoder reads the states of the training sequences",
    notes=[
        "Both come from the margins of the same test sequences, so this is no forecast.",
        "Outermost points: beyond the longest test.",
        FILLED,
    ],
)
CORRELATED = (
    "The correlation is that of the logarithms, over the runs whose states are read at all training lengths, with both "
    "horizons within the tests."
)
BY_FAMILY = Caption(
    "Measured horizon by family, up to which the decoder reads the states along the way, one point for each run; "
    "within a family, tasks are in the order of the tables",
    notes=[FILLED],
)
EIGENVALUES = Caption(
    "Smallest real part of the eigenvalues of a step's Jacobian after training, against the measured horizon",
    notes=[FILLED],
)


@dataclass(frozen=True)
class Tracked:
    """A finished run with its horizons, as the figures show it."""

    figure: str
    variant: VariantData
    family: str
    horizon: Horizon

    @property
    def words(self) -> str:
        fits = "" if self.horizon.fits else ", states not read at the training lengths"
        return html.escape(f"{self.variant.label}, {self.figure}, seed {self.horizon.seed}{fits}")

    def drawn(self, horizon: float) -> float:
        """Return where a horizon is drawn."""
        longest = self.horizon.longest
        return BEYOND * longest if horizon > longest else self.horizon.shown(horizon)


def tracked_runs(conditions: Sequence[tuple[str, Condition]]) -> list[Tracked]:
    """Return the runs with horizons of the conditions, which come with the names of their figures."""
    families = families_of_models()
    return [
        Tracked(figure, variant, families.get(variant.run.model, "other"), horizon)
        for figure, condition in conditions
        for variant in condition.variants
        for horizon in horizons(variant)
    ]


def tracking_figures(conditions: Sequence[tuple[str, Condition]]) -> Drawn:
    """Return the figures over all conditions of a study that have data."""
    runs = tracked_runs(conditions)
    if not runs:
        return {}
    colors = {family: color_of_family(family) for family in sorted({run.family for run in runs})}
    predicted = [run for run in runs if run.horizon.is_predicted]
    drawn: Drawn = {"horizons": (_about(predicted), _predicted(predicted, colors))} if predicted else {}
    drawn["families"] = (BY_FAMILY, _by_family(runs, colors))
    lowest = {id(run): value for run in runs if (value := lowest_eigenvalue(run.variant, run.horizon.run)) is not None}
    known = [run for run in runs if id(run) in lowest]
    if known:
        figure = _scatter(known, "smallest real part of an eigenvalue", lambda run: lowest[id(run)], colors)
        drawn["eigenvalues"] = (EIGENVALUES, figure)
    return drawn


def lowest_eigenvalue(variant: VariantData, run: int) -> float | None:
    """Return the smallest real part of the eigenvalues of a run's last one-step Jacobians; None without them."""
    own = [vectors.at(vectors.run == run) for vectors in named(variant.traces, "jacobian/eigenvalues/").values()]
    logged = [row for vectors in own for row in zip(vectors.iteration.tolist(), vectors.values, strict=True)]
    last = max((iteration for iteration, _ in logged), default=0)
    parts = [values[::2] for iteration, values in logged if iteration == last]
    reals = np.concatenate([[], *(part[np.isfinite(part)] for part in parts)])
    return float(reals.min()) if len(reals) else None


def _about(runs: Sequence[Tracked]) -> Caption:
    """Return the caption of the implied horizons, with their correlation with the measured ones if there is one."""
    inside = [run.horizon for run in runs if run.horizon.loses and run.horizon.is_predicted_inside]
    correlation = log_correlation(inside)
    return HORIZONS if correlation is None else HORIZONS.also([f"correlation {correlation:.2f}"], [CORRELATED])


def _predicted(runs: Sequence[Tracked], colors: Mapping[str, str]) -> Figure:
    figure = _scatter(runs, "horizon implied by the ratio", lambda run: run.drawn(run.horizon.predicted), colors)
    figure.update_xaxes(type="log")
    ends = [1.0, BEYOND * max(run.horizon.longest for run in runs)]
    line = {"color": GREY, "dash": "dash", "width": 1.5}
    figure.add_scatter(x=ends, y=ends, mode="lines", name="implied = measured", line=line, hoverinfo="skip")
    return figure


def _by_family(runs: Sequence[Tracked], colors: Mapping[str, str]) -> Figure:
    families, figures = list(colors), list(dict.fromkeys(run.figure for run in runs))
    step = 0.7 / max(len(figures), 2)
    place = {
        (family, figure): at + step * (number - (len(figures) - 1) / 2)
        for at, family in enumerate(families)
        for number, figure in enumerate(figures)
    }
    figure = _scatter(runs, "", lambda run: place[run.family, run.figure], colors)
    figure.update_xaxes(
        tickvals=[*range(len(families))], ticktext=families, range=[-0.5, len(families) - 0.5], showgrid=False
    )
    return figure


def _scatter(runs: Sequence[Tracked], x_title: str, x: Callable[[Tracked], float], colors: Mapping[str, str]) -> Figure:
    """Draw the measured horizon of each run over x, in the colours of the families, which all figures share."""
    figure = empty_figure(x_title, "measured horizon", logarithmic=True)
    for family, color in colors.items():
        for fits in (True, False):
            own = [run for run in runs if run.family == family and run.horizon.fits == fits]
            if own:
                figure.add_scatter(
                    x=[x(run) for run in own],
                    y=[run.drawn(run.horizon.measured) for run in own],
                    hovertext=[run.words for run in own],
                    mode="markers",
                    name=html.escape(family),
                    legendgroup=family,
                    showlegend=fits or not any(run.horizon.fits for run in runs if run.family == family),
                    marker={"color": color, "symbol": "circle" if fits else "circle-open", "size": 8, "opacity": 0.8},
                )
    figure.update_layout(hovermode="closest")
    return figure
