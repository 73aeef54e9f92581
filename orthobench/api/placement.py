"""Find out where a cell stands among the built-in ones that were tuned alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from orthobench.analysis.placement import Place, rivals, rivals_on, step_milliseconds
from orthobench.api.tuned_comparison import compare_tuned
from orthobench.display.display import Display
from orthobench.errors import UsageError
from orthobench.options.arguments import AtLeastZero, Count, Database, Model, Texts
from orthobench.options.checked import checked
from orthobench.options.run_options import RunOptions
from orthobench.planning.tuned_protocol import protocol
from orthobench.reporting.latex import escaped
from orthobench.session.tuned_session import TunedColumn
from orthobench.system.files import write_bytes

INCHES, PANEL = 5.0, 2.4
"""The width of the figure, and the height of its panel."""


@dataclass(frozen=True)
class Placement:
    """A cell's result in a column, and its place among the built-in cells.

    Attributes:
        result: the search and the fresh seeds, as `compare_tuned` returns them.
        place: None without a score, or if the settings of the task are not the protocol's.
    """

    result: TunedColumn
    place: Place | None

    @property
    def is_unmeasured(self) -> bool:
        """Whether the installation has no results of this column."""
        return all(rival.column != self.result.column.name for rival in rivals())

    @property
    def title(self) -> str:
        """The column for people."""
        return self.result.column.title

    @property
    def parameters(self) -> int:
        """The cell's number of parameters."""
        return self.result.models[0].size.parameters

    @property
    def milliseconds(self) -> float | None:
        """The CPU time of a training step on one thread; None if it was not measured."""
        times = [time for run in self.result.models[0].runs if (time := step_milliseconds(run)) is not None]
        return min(times, default=None)


@checked
def place(
    model: Model,
    columns: Texts = (),
    *,
    seeds: Count | None = None,
    settings: Mapping[str, Any] | None = None,
    db: Database | None = None,
    jobs: AtLeastZero | None = None,
    options: RunOptions | None = None,
    dry_run: bool = False,
    display: Display | None = None,
) -> list[Placement]:
    """Train a cell under the tuned protocol, and return where it stands among the built-in cells.

    Only this cell is trained: the results of the others come with the installation. The same call resumes, and trains
    nothing twice.

    Args:
        model: a layer of another program, or a model.
        columns: columns of the protocol, such as "copying" or "A5"; all of them by default.
        seeds: number of fresh seeds.
        settings: hyper-parameters of the cell that the search does not try.
        dry_run: train nothing; the models of the results have their `cost`.

    Returns:
        The cell's place in each column, in the order of the protocol.

    Raises:
        UsageError: a name or value is invalid, or no run could start.
        StorageError: the database cannot be written.
        Stopped: the user pressed Ctrl-C; the same call resumes.
    """
    results = compare_tuned(
        columns or column_names(),
        [model],
        seeds=seeds,
        settings=settings,
        db=db,
        jobs=jobs,
        options=options,
        dry_run=dry_run,
        display=display,
    )
    return [Placement(result, _place(result)) for result in results]


def draw_places(model: str, placements: Sequence[Placement], path: Path) -> None:
    """Write a figure of a cell's places.

    Args:
        path: a file whose name ends in .svg, .png or .pdf.

    Raises:
        UsageError: the name ends in something else.
        StorageError: the file cannot be written.
    """
    # Here, because matplotlib takes longer to import than a dry run.
    from orthobench.reporting.figures.placement_figure import placement_figure
    from orthobench.reporting.figures.stills import Drawable, draw_still

    form = path.suffix.lower().removeprefix(".")
    if form not in get_args(Drawable):
        raise UsageError(f"{path} is no .svg, .png or .pdf: give it one of these endings")
    places = [
        (placement.result.column.name, placement.place) for placement in placements if placement.place is not None
    ]
    figure = placement_figure(model.rpartition(":")[2], places)
    write_bytes(path, draw_still([("", figure)], cast("Drawable", form), INCHES, 1, PANEL))


def latex_row(model: str, placements: Sequence[Placement]) -> str:
    """Return a cell's scores and ranks as a row of a LaTeX table."""
    places = [placement.place for placement in placements]
    cells = ["--" if each is None else f"{round(100 * each.score)} ({each.rank}/{each.count})" for each in places]
    return " & ".join([escaped(model.rpartition(":")[2]), *cells]) + r" \\"


def column_names() -> list[str]:
    """Return the names of the columns, in the order of the protocol."""
    return [column.name for column in protocol().columns]


def _place(result: TunedColumn) -> Place | None:
    (model,) = result.models
    known = rivals_on(model.entry.trials[0].config.spec.condition)
    return Place(tuple(model.scores), tuple(known)) if model.scores and known else None
