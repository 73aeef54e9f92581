"""The templates of the page: filters that write values, and the constants that the page explains."""

from __future__ import annotations

import functools
import math
import re

import jinja2
from jinja2.ext import Extension
from markupsafe import Markup, escape

from orthobench.analysis.inference import MEANINGS
from orthobench.analysis.scores import SOLVED, percents
from orthobench.analysis.variants import chosen_tests, untimed
from orthobench.papers import find_paper
from orthobench.reporting.account.captions import capitalized
from orthobench.reporting.account.matrix import FILL
from orthobench.reporting.account.names import in_words, panel_of
from orthobench.reporting.account.paper_views import APART, GROUPS, group_of
from orthobench.reporting.account.printed_numbers import explanation
from orthobench.reporting.account.regressions import regressions
from orthobench.reporting.account.verdict_sheet import GLYPHS, STATUSES
from orthobench.reporting.figures.drawing import flat_words
from orthobench.reporting.figures.drawn_studies import figures_of
from orthobench.reporting.figures.figures import SCORES, without_score
from orthobench.reporting.figures.paper_figures import printed_panels
from orthobench.reporting.page.commentary import prose
from orthobench.reporting.page.sparks import dot_plot, draw_gate, sketch, spark, strip
from orthobench.reporting.tables.condition_tables import seconds_heading
from orthobench.reporting.tables.printed_numbers import numbers_table
from orthobench.reporting.tables.reproduction import where_it_was_run

CHARTS = {
    "Course": ["curves"],
    "Seeds": ["seeds"],
    "Solved": ["solved"],
    "Lengths": ["lengths"],
    "Cost": ["parameters", "state", "seconds"],
    "Gradients": ["gradients"],
    "Orthogonality": [*SCORES],
}
"""The figures of a condition under each tab of its page."""


LARGE = 1e5
"""Numbers from this size on have an exponent, on the page and in its script."""


def shown_number(value: float | None, digits: int = 4) -> str:
    """Return a number as the report shows it."""
    if value is None:
        return "–"
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e+" in text and abs(value) < LARGE else text  # 1130 is easier to read than 1.13e+03


def signed(value: float) -> str:
    """Return a difference with its sign, in two digits; zero has none."""
    return f"{value:+.2g}".replace("-", "−") if value else "0"


def cited(text: str) -> Markup:
    """Return a note as HTML: words in backticks are code, and a cited discrepancy (D-NN) leads to its entry."""
    words = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))).replace("\\*", "*")
    return Markup(re.sub(r"\b(D-\d+)\b", r'<a href="#\1" title="where sources disagree">\1</a>', words))


def breakable(name: str) -> Markup:
    """Return a name as HTML that may break before its capitals, such as AntisymmetricRNN in a narrow column."""
    return Markup("<wbr>").join(re.split(r"(?<=[a-z]{2})(?=[A-Z])", name))


def short_name(key: str) -> str:
    """Return the short name of a paper, such as "scoRNN 2018", by its key."""
    return find_paper(key).short_name


FILTERS = (
    breakable,
    capitalized,
    chosen_tests,
    cited,
    dot_plot,
    draw_gate,
    explanation,
    figures_of,
    flat_words,
    group_of,
    in_words,
    numbers_table,
    panel_of,
    percents,
    printed_panels,
    prose,
    regressions,
    seconds_heading,
    short_name,
    signed,
    sketch,
    spark,
    strip,
    untimed,
    where_it_was_run,
    without_score,
)
"""The functions that templates apply to values, by their names."""
CONSTANTS = {
    "apart": APART,
    "charts": CHARTS,
    "fill_matrix": FILL,
    "glyphs": GLYPHS,
    "groups": GROUPS,
    "meanings": MEANINGS,
    "scores": SCORES,
    "solved_from": round(100 * SOLVED),
    "statuses": STATUSES,
}
"""What the page explains, the same for all results."""


class _Unindented(Extension):
    """Read templates without their indentation, because the page would repeat it in every row of its tables."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        return re.sub(r"^ +", "", source, flags=re.MULTILINE)


@functools.cache
def environment() -> jinja2.Environment:
    """Return the environment of the templates, in which a misspelt name is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("orthobench", "reporting/page"),
        autoescape=True,
        # Strict, because a misspelt name would leave a gap on the page that nobody notices.
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        extensions=[_Unindented],
    )
    environment.filters |= {function.__name__: function for function in FILTERS} | {"number": shown_number}
    environment.tests["infinite"] = math.isinf
    environment.globals |= CONSTANTS
    return environment
