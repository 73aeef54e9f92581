"""Live tables on a terminal or in a notebook: one row for each run.

A live row fits on one line of the terminal. A wide terminal shows everything. Below `WIDE` columns the row has no
settings, loss and baseline, below `MEDIUM` columns no bar and no rate. Below `NARROW` columns it shows only the run and
its metric. Where the row is still too long, the name of the run is cut, and never a number.
"""

from __future__ import annotations

import io
import math
import os
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from orthobench.display.console import Console

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

WIDE, MEDIUM, NARROW = 120, 76, 60
"""Widths of terminals, in columns."""
NOTEBOOK = 120
"""The width of a notebook's cell, in columns."""
RENEWED = 0.2
"""The least number of seconds between two versions of a notebook's display."""
CELL = '<pre style="white-space:pre;overflow-x:auto;line-height:normal">{code}</pre>'
"""The HTML of a notebook's display."""


def ipython() -> Any:
    """Return the IPython shell in which this process runs, or None. It is asked without importing IPython."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


def is_notebook() -> bool:
    """Return whether output goes to cells of a notebook."""
    return getattr(ipython(), "kernel", None) is not None


def is_live() -> bool:
    """Return whether the display can renew its rows: in a notebook, or on a terminal that can move its cursor."""
    is_terminal = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    return is_terminal or is_notebook()


def short_label(label: str) -> str:
    """Return the label of a run without its settings."""
    return " ".join(word for word in label.split() if "=" not in word)


class LiveDisplay:
    """A context manager with the rows of a live display.

    Attributes:
        live: whether the display has rows; otherwise lines are printed, and there is no `bar`.
    """

    live: bool
    bar: Bar

    def __enter__(self) -> Self:
        if self.live:
            self.bar.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.live:
            self.bar.stop()


def live_table() -> Bar:
    """Create a live table with one row per run, and with columns that fit the terminal."""
    from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.table import Column
    from rich.text import Text

    class Name(TextColumn):
        """A column that is cut where the row is too long: rich cuts columns that may wrap first."""

        def render(self, task: Any) -> Text:
            text = super().render(task)
            text.no_wrap, text.overflow = True, "ellipsis"
            return text

    def text(template: str) -> TextColumn:
        return TextColumn(template, markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))

    console = Console(stderr=True, width=NOTEBOOK if is_notebook() else None)
    fields = "{task.fields[position]}  {task.fields[result]} {task.fields[baseline]}"
    short = Name("{task.fields[short]}", markup=False, table_column=Column(overflow="ellipsis"))
    value = text("{task.fields[value]}")
    epoch, rate = text("{task.fields[epoch]}"), text("{task.fields[rate]}")
    columns: list[ProgressColumn]
    if console.width >= WIDE:
        columns = [text("{task.description}"), BarColumn(bar_width=24), text(fields), TimeRemainingColumn()]
    elif console.width >= MEDIUM:
        columns = [short, BarColumn(bar_width=8), epoch, rate, value, TimeRemainingColumn()]
    elif console.width >= NARROW:
        columns = [short, epoch, value, TimeRemainingColumn()]
    else:
        columns = [short, value]
    return (notebook_bar() if is_notebook() else Bar)(*columns, console=console)


def notebook_bar() -> type[Bar]:
    """Return the class of live tables for notebooks.

    rich's own needs ipywidgets. This one is the output of a cell, which IPython replaces by the newer one.
    """
    from rich.progress import Progress as Bar

    class NotebookBar(Bar):
        shown_at = -math.inf

        def start(self) -> None:
            from IPython.display import display

            self.cell = display(self, display_id=True)

        def update(self, *arguments: Any, **fields: Any) -> None:
            super().update(*arguments, **fields)
            if time.monotonic() - self.shown_at > RENEWED:
                self.renew()

        def renew(self) -> None:
            self.shown_at = time.monotonic()
            self.cell.update(self)

        stop = renew

        def _repr_mimebundle_(self, *_: Any, **__: Any) -> dict[str, str]:
            drawn = Console(file=io.StringIO(), width=NOTEBOOK, record=True, force_jupyter=False)
            drawn.print(self.get_renderable())
            text = drawn.export_text(clear=False)
            return {"text/plain": text, "text/html": drawn.export_html(inline_styles=True, code_format=CELL)}

    return NotebookBar


def add_row(bar: Bar, label: str, total: int | None = None, **fields: str) -> TaskID:
    """Add a row to a live table; `fields` are the initial texts of its columns."""
    texts: dict[str, Any] = dict.fromkeys(("position", "epoch", "rate", "result", "value", "baseline"), "") | fields
    return bar.add_task(label, total=total, short=short_label(label), **texts)
