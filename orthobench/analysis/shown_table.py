"""What a Python prompt or a notebook shows of a result that is a table."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import pandas as pd


class ShownTable(ABC):
    """A result that is shown as a line of text and its table."""

    most_rows: ClassVar[int | None] = 20

    @property
    @abstractmethod
    def table(self) -> pd.DataFrame: ...

    @abstractmethod
    def _words(self) -> str:
        """Return the line of text."""

    def __repr__(self) -> str:
        table = self.table
        shown = table.to_string(index=False, float_format="{:.4g}".format, max_rows=self.most_rows)
        return self._words() if table.empty else f"{self._words()}\n{shown}"

    def _repr_html_(self) -> str:
        table = self.table.to_html(index=False, float_format="{:.4g}".format, max_rows=self.most_rows, na_rep="")
        return f"{html.escape(self._words())}\n{table}"
