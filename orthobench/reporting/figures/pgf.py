r"""Draw figures as LaTeX code for `\input`, in the fonts of the document that shows them."""

from __future__ import annotations

import io
import re
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pgf import RendererPgf
from matplotlib.figure import Figure

from orthobench.reporting.latex import escaped

MATH = re.compile(r"((?<!\\)\$.*?(?<!\\)\$)")
BEGINNING = r"""% \usepackage{amsmath}
% \usepackage{pgf}
\begingroup
\makeatletter
"""


def pgf(still: Figure) -> str:
    """Return a composed figure as LaTeX code."""
    code = io.StringIO()
    with matplotlib.rc_context({"pgf.rcfonts": False}):  # the fonts are those of the document
        still.draw(_Renderer(still, code))
    width, height = still.get_size_inches()
    box = rf"\pgfpathrectangle{{\pgfpointorigin}}{{\pgfqpoint{{{width:f}in}}{{{height:f}in}}}}"
    begin = f"{BEGINNING}\\begin{{pgfpicture}}\n{box}\n\\pgfusepath{{use as bounding box, clip}}\n"
    return f"{begin}{code.getvalue()}\\end{{pgfpicture}}\n\\makeatother\n\\endgroup\n"


class _Renderer(RendererPgf):
    """Measures text with matplotlib's own fonts, because matplotlib's renderer asks LaTeX, which may not be there."""

    def __init__(self, still: Figure, code: io.StringIO) -> None:
        super().__init__(still, code)
        self.ruler = FigureCanvasAgg(still).get_renderer()

    def get_text_width_height_descent(self, s: str, prop: Any, ismath: Any) -> tuple[float, float, float]:
        width, height, descent = self.ruler.get_text_width_height_descent(s, prop, ismath)
        return width, height, descent

    def draw_text(
        self, gc: Any, x: float, y: float, s: str, prop: Any, angle: float, ismath: Any = False, mtext: Any = None
    ) -> None:
        if ismath:
            words = [part if at % 2 else escaped(part.replace(r"\$", "$")) for at, part in enumerate(MATH.split(s))]
            # matplotlib defines this command in a preamble that the document does not have.
            s = "".join(words).replace(r"\mathdefault", r"\mathrm")
        else:
            s = escaped(s)
        super().draw_text(gc, x, y, s, prop, angle, ismath, mtext)
