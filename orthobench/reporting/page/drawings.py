"""All figures of a page, with their remarks and their blocks of data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from orthobench.analysis.conditions import Condition
from orthobench.analysis.paper_tables import fill_command
from orthobench.reporting.account.account import Account
from orthobench.reporting.account.names import short_labels
from orthobench.reporting.account.paper_views import ArtifactView
from orthobench.reporting.account.studies import StoredStudy
from orthobench.reporting.figures.drawing import remarks
from orthobench.reporting.figures.drawn_studies import draw_study
from orthobench.reporting.figures.figure_json import figure_json
from orthobench.reporting.figures.figures import Drawn, condition_figures
from orthobench.reporting.figures.length_figures import over_length
from orthobench.reporting.figures.paper_figures import panel_figures
from orthobench.reporting.figures.styles import Styles
from orthobench.reporting.page.compressed_blocks import json_block
from orthobench.reporting.tables.study_tables import study_tables
from orthobench.reporting.tables.table import Table

NO_RATES: Mapping[str, Any] = {}
MANY_VARIANTS, FEW_POINTS = 2_000, 24
"""From this number of variants on, the lines of tasks have this number of points, because with all of them the page of
10,000 runs of 3,500 variants would have 9 MB more."""


@dataclass(frozen=True)
class Part:
    """The figures of a condition, a panel of a paper or a study.

    Attributes:
        key: the key of the condition or panel, or "study-" and the name of the study.
        figures: captions and figures, by name.
        block: the data of the figures.
        command: what measures them; empty for conditions, whose runs have their own commands.
        tables: the tables of a study.
    """

    key: str
    figures: Drawn
    block: Markup
    command: str = ""
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Drawings:
    """The figures of a page.

    Attributes:
        parts: by their keys.
        file_names: the first part of the names of files for the figures of each condition or panel, and its metric.
    """

    styles: Styles
    parts: dict[str, Part]
    file_names: dict[str, tuple[str, str]]


def draw(account: Account) -> Drawings:
    """Draw what is measured."""
    conditions = [*account.conditions, *(each for result in account.studies for _, each in result.conditions)]
    styles = Styles(conditions)
    count = sum(len(condition.variants) for condition in account.conditions)
    points = FEW_POINTS if count >= MANY_VARIANTS else None
    panels = [(part, panel) for view in account.papers for part in view.artifacts for panel in part.panels]
    parts = [
        *(_study_part(result, styles) for result in account.studies),
        *(_condition_part(condition, styles, points) for condition in account.conditions),
        *(_panel_part(part, panel, styles) for part, panel in panels),
    ]
    return Drawings(styles, {part.key: part for part in parts}, _file_names(account))


def _study_part(result: StoredStudy, styles: Styles) -> Part:
    name, figures = result.study.name, draw_study(result, styles)
    return _part(f"study-{name}", figures, command=f"orthobench study {name}", tables=study_tables(result))


def _condition_part(condition: Condition, styles: Styles, points: int | None) -> Part:
    lengths = over_length(condition, styles)
    figures = condition_figures(condition, styles) | ({"lengths": lengths} if lengths else {})
    return _part(condition.key, figures, rates=_rates(condition), points=points)


def _panel_part(part: ArtifactView, panel: Condition, styles: Styles) -> Part:
    command = fill_command(part.artifact, part.printed, part.printed)
    return _part(panel.key, panel_figures(part, panel, styles), rates=_rates(panel), command=command)


def _part(
    key: str,
    figures: Drawn,
    rates: Mapping[str, Any] = NO_RATES,
    command: str = "",
    tables: Sequence[Table] = (),
    points: int | None = None,
) -> Part:
    plain = {name: figure_json(figure, points) for name, (_, figure) in figures.items()}
    explained = {name: (caption.also(*remarks(figure)), figure) for name, (caption, figure) in figures.items()}
    data = json_block(f"figures-{key}", {"figures": plain, "rates": rates})
    return Part(key, explained, data, command, tables)


def _rates(condition: Condition) -> dict[str, list[float | None]]:
    """Return iterations and training seconds per epoch, by variant label."""
    return {
        variant.label: [
            variant.run.iterations_per_epoch,
            variant.seconds_per_epoch.mean if variant.seconds_per_epoch else None,
        ]
        for variant in condition.variants
    }


def _file_names(account: Account) -> dict[str, tuple[str, str]]:
    named = [(condition, account.labels[condition.key]) for condition in account.conditions]
    for view in account.papers:
        for part in view.artifacts:
            panels = zip(part.panels, short_labels(part.panels), strict=True)
            named += [(panel, f"{view.paper.short_name} {part.artifact.name} {label}") for panel, label in panels]
    return {
        condition.key: (re.sub(r"[^\w.]+", "-", name.replace(" = ", "")).strip("-"), condition.metric.name)
        for condition, name in named
    }
