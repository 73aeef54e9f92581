"""The measured figure at the top of a page: its part of the matrix, and learning curves for a task."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from orthobench.analysis.conditions import Condition
from orthobench.plugins.layers import is_layer
from orthobench.reporting.account.matrix import ResultMatrix, compute_matrix
from orthobench.reporting.account.names import full_title
from orthobench.reporting.figures.figures import learning_curves
from orthobench.reporting.figures.stills import svg
from orthobench.reporting.figures.styles import Styles
from workshop.website.markdown import escape
from workshop.website.matrix_picture import picture, ranked
from workshop.website.results import everything

SIZE = (6.75, 3.5)
"""The width of a picture and the height of its panel, in inches."""
MOST_CURVES = 12
"""The largest number of variants whose curves can be told apart."""
READ = (
    "A score of 0 is the best predictor without memory and 100 a perfect one, as the median over the seeds. "
    "An arrow marks a model that holds the training lengths, with 90 or more, but not longer ones; a raised digit, "
    "fewer than three seeds; a raised L, a model that is linear in its inputs on a task that no linear function "
    "solves; a dot, a model that was not run on the task."
)


@cache
def matrix() -> ResultMatrix:
    """The matrix of the reference results."""
    return compute_matrix(everything().conditions)


def part_of(task: str = "", model: str = "") -> ResultMatrix | None:
    """Return the columns of a task, or the rows of a model, without empty ones; None if nothing is left.

    Layers of other packages are folded, because the page of results has a table of them.
    """
    whole = matrix()
    rows = [row for row in whole.rows if not model or row.model == model]
    chosen = [
        number
        for number, column in enumerate(whole.columns)
        if (not task or column.condition.task == task) and any(row.cells[number] for row in rows)
    ]
    rows = [replace(row, cells=[row.cells[number] for number in chosen], is_folded=is_layer(row.model)) for row in rows]
    rows = ranked([row for row in rows if any(row.cells)], range(len(chosen)))
    return ResultMatrix([whole.columns[number] for number in chosen], rows) if rows else None


def matrix_figure(task: str = "", model: str = "") -> list[str]:
    """Return the parts of a page that show its part of the matrix, which `pictures` draws."""
    name = task or model
    if part_of(task, model) is None:
        return []
    what = f"how far each model gets on {name}" if task else f"how far {name} gets on each task"
    images = "".join(f"![{what}, from 0 to 100]({name}-{kind}.svg#only-{kind})" for kind in ("light", "dark"))
    return [images, f"<small>{READ}</small>"]


def pictures() -> dict[str, str]:
    """Draw the pictures of `matrix_figure` and `curves_of` for all tasks and models, by their paths on the site."""
    tasks = {column.condition.task for column in matrix().columns}
    parts = {f"tasks/{name}": part_of(task=name) for name in tasks}
    measured = {condition.task for condition in everything().conditions}
    models = {row.model for row in matrix().rows if not is_layer(row.model)}
    parts |= {f"models/{name}": part_of(model=name) for name in models}
    return {
        f"{path}-{kind}.svg": picture(part, kind == "dark")
        for path, part in parts.items()
        if part
        for kind in ("light", "dark")
    } | {f"tasks/{task}-curves.svg": drawn for task in measured if (drawn := _curves(task))}


def curves_of(task: str) -> list[str]:
    """Return the parts of a page that show the learning curves of the task, which `pictures` draws."""
    condition = _clearest(task)
    if condition is None:
        return []
    caption = f"Learning curves on {escape(full_title(condition, everything().conditions))}"
    return [f"![{caption}]({task}-curves.svg)", f"<small>{caption}: medians, and the range over the seeds.</small>"]


def _clearest(task: str) -> Condition | None:
    """Return the task's condition with the most finished variants, of those whose curves can be told apart."""
    fitting = [each for each in everything().conditions if each.task == task and len(each.variants) <= MOST_CURVES]
    return max(fitting, key=lambda each: sum(bool(variant.finished) for variant in each.variants), default=None)


def _curves(task: str) -> str:
    condition = _clearest(task)
    return svg(learning_curves(condition, Styles(everything().conditions)), *SIZE) if condition else ""
