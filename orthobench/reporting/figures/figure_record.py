"""A figure as plain records in Plotly's schema, which the page draws. Plotly is imported only for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import plotly.graph_objects as go

FigureRecord = dict[str, Any]


class Figure:
    """The traces and the layout of a figure.

    The methods are named like those of Plotly's figures but check nothing; instead, tests pass every figure to Plotly,
    which refuses unknown properties and values.

    Attributes:
        data: the traces, each with its `type`.
        layout: the axes, the legend and the margins.
    """

    def __init__(self, layout: Mapping[str, Any]) -> None:
        self.data: list[FigureRecord] = []
        # A deep copy, because changes below merge into nested records.
        self.layout: FigureRecord = deepcopy(dict(layout))

    @property
    def models(self) -> list[str]:
        """The models that the figure's traces belong to, in the order of the traces."""
        return [*dict.fromkeys(trace["meta"]["model"] for trace in self.data if "model" in trace.get("meta", {}))]

    def add_scatter(self, **properties: Any) -> None:
        """Add a trace of points or lines; properties that are None are left out."""
        self._add("scatter", properties)

    def add_heatmap(self, **properties: Any) -> None:
        """Add a map; properties that are None are left out."""
        self._add("heatmap", properties)

    def update_xaxes(self, **properties: Any) -> None:
        """Change properties of the x axis."""
        _merge(self.layout, {"xaxis": properties})

    def update_yaxes(self, **properties: Any) -> None:
        """Change properties of the y axis."""
        _merge(self.layout, {"yaxis": properties})

    def update_layout(self, **properties: Any) -> None:
        """Change properties of the layout."""
        _merge(self.layout, properties)

    def to_plotly(self) -> go.Figure:
        """Return the figure as a Plotly figure, which checks every property.

        Raises:
            ValueError: a property or its value is unknown to Plotly.
        """
        import plotly.graph_objects as go

        return go.Figure(data=self.data, layout={"template": "none", **self.layout})

    def _add(self, kind: str, properties: Mapping[str, Any]) -> None:
        self.data.append({name: value for name, value in properties.items() if value is not None} | {"type": kind})


def _merge(record: FigureRecord, changes: Mapping[str, Any]) -> None:
    """Change a record in place; nested records keep the properties that are not given."""
    for name, value in changes.items():
        if isinstance(value, Mapping):
            _merge(record.setdefault(name, {}), value)
        else:
            record[name] = value
