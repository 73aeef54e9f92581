"""Exports: the curves of figures as CSV, tables for siunitx, and images of the sizes that papers need."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_pgf import LatexManager
from support.databases import RunDatabase, experiment, paper

from orthobench.analysis.conditions import collect
from orthobench.errors import UsageError
from orthobench.papers import Printed
from orthobench.reporting.figures.drawing import empty_figure
from orthobench.reporting.figures.figure_files import write_images
from orthobench.reporting.figures.stills import TEXT, draw_still
from orthobench.reporting.figures.styles import Styles
from orthobench.reporting.latex import latex_table
from orthobench.reporting.tables.curve_tables import figure_tables, records_of
from orthobench.reporting.tables.paper_tables import paper_tables
from orthobench.reporting.tables.table import write
from orthobench.store import Status, open_store

CURVES = [{"name": "figure 2", "shows": "learning_curves"}]
FALLS, RISES = [0.2, 0.15, 0.05, 0.01], [0.2, 0.18, 0.1, 0.03]


@pytest.fixture
def database(tmp_path):
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        yield RunDatabase(store)


def lstm_figure(database):
    printed = [Printed(metric="mse", outcome="falls")]
    lstm = experiment("lstm", "curve", printed, artifact="figure 2")
    database.run(lstm, 0, test=FALLS)
    database.run(lstm, 1, test=RISES)
    database.run(lstm, 2, test=[0.3, 0.9], status=Status.DIVERGED)
    return database.view(paper(lstm, artifacts=CURVES))


def test_csv_of_a_figure_has_its_curves(database):
    rows = list(csv.DictReader(io.StringIO(write("csv", figure_tables([lstm_figure(database)], Styles([]))))))
    curve = [row for row in rows if row["curve"] == "lstm, n = 8"]
    assert [float(row["x"]) for row in curve] == [0, 1, 2, 3]
    values = np.array([FALLS, RISES])
    for name, expected in (
        ("y", [0.2, 0.18, *np.median(values, axis=0)[2:]]),
        ("low", values.min(0)),
        ("high", [0.3, 0.9, *values.max(0)[2:]]),
    ):
        np.testing.assert_allclose([float(row[name]) for row in curve], expected)
    assert [row["note"] for row in curve] == ["", "2 of 3 seeds left: 1 diverged", "", ""]
    assert {(row["x_axis"], row["panel"]) for row in rows} == {("epoch", "T = 10")}


def test_every_point_of_a_long_curve_is_exported_in_double_precision(database):
    values = (np.arange(3000) % 7 / 7 + 1e-9).tolist()
    lstm = experiment("lstm", "curve", [Printed(metric="mse", outcome="falls")], artifact="figure 2")
    database.run(lstm, 0, test=values)
    (sheet,) = figure_tables([database.view(paper(lstm, artifacts=CURVES))], Styles([]))
    assert sheet.frame["y"][sheet.frame["curve"] == "lstm, n = 8"].tolist() == values


def test_latex_code_of_a_figure_needs_no_latex_to_be_written(database, monkeypatch):
    """Its groups close, its texts are escaped, and it names no font or command that a document has not."""
    monkeypatch.setattr(LatexManager, "_get_cached_or_new", lambda: pytest.fail("LaTeX was asked for a size"))
    (figure,) = _figures(database)
    figure.update_yaxes(type="log", range=None)
    figure.update_layout(xaxis={"title": {"text": "a_b<sub>t &amp; 1</sub> & $"}})
    code = draw_still([("T = 10 %", figure), ("#2", figure)], "pgf", 6.75, 3, 2.0).decode()
    assert re.sub(r"\\[{}]", "", code).count("{") == re.sub(r"\\[{}]", "", code).count("}")
    opened = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", code):
        assert kind == "begin" or opened.pop() == name
        opened += [name] * (kind == "begin")
    assert opened == []
    assert r"\pgfpathrectangle{\pgfpointorigin}{\pgfqpoint{6.750000in}" in code
    texts = [text.rpartition(r"\%}")[2] for text in re.findall(r"\\pgftext\[.*?\]\{(.*)\}\}%", code)]
    assert {r"T = 10 \%", r"\#2", "lstm", r"$\mathrm{10^{-1}}$"} <= set(texts)
    assert r"a\_b$_{\text{t~\&~1}}$ \& \$".replace("~", "\N{NO-BREAK SPACE}") in texts
    assert "mathdefault" not in code
    assert "DejaVu" not in code


def test_map_has_no_latex_code():
    figure = empty_figure("input step τ", "state step t")
    figure.add_heatmap(x=[1, 2], y=[1, 2], z=[[0.0, 1.0], [-2.0, 1.0]])
    assert draw_still([("", figure)], "pgf", 3.25, 1, 2.0) == b"% A map of colours: use the format pdf.\n"


def test_map_is_exported_with_both_axes():
    figure = empty_figure("input step τ", "state step t")
    figure.add_heatmap(x=[1, 2], y=[1, 2], z=[[0.0, float("nan")], [-2.0, 1.0]])
    points = [(record["x"], record["y"], record["value"]) for record in records_of(figure)]
    assert points == [(1, 1, 1.0), (1, 2, pytest.approx(0.01)), (2, 2, pytest.approx(10.0))]


def test_unmeasured_figure_names_its_command(database, tmp_path):
    lstm = experiment("lstm", "curve", [Printed(metric="mse", outcome="falls")], artifact="figure 2")
    with pytest.raises(UsageError, match="orthobench reproduce k --figure 2 --seeds 3"):
        figure_tables([database.view(paper(lstm, artifacts=CURVES))], Styles([]))
    with pytest.raises(UsageError, match="orthobench reproduce k --figure 2 --seeds 3"):
        write_images([], [database.view(paper(lstm, artifacts=CURVES))], "pdf", tmp_path / "images")
    assert not (tmp_path / "images").exists()


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("0.920", ["0.920"]),
        ("1,234,567", ["1234567"]),
        ("0.1234 ± 0.0056", ["0.1234 +- 0.0056"]),
        ("1.2e-05 ± 3e-06", [r"{\num{1.2e-05} $\pm$ \num{3e-06}}"]),  # siunitx refuses two exponents in one number
        ("−3.5", ["-3.5"]),
        ("0.12 [0.1, 0.3]", ["0.12", r"[\num{0.1}, \num{0.3}]"]),
        ("0.12 [0, 4.5e-07]", ["0.12", r"[\num{0}, \num{4.5e-07}]"]),
        ("0.12 [-inf, inf]", ["0.12", r"[$-\infty$, $\infty$]"]),
        ("scoRNN, n = 170", ["{scoRNN, n = 170}"]),
        ("≈16k", [r"{$\approx$16k}"]),
        ("2 of 3, 1 diverged", ["{2 of 3, 1 diverged}"]),
        ("a_b & 5 %", [r"{a\_b \& 5 \%}"]),
        ("", ["{}"]),
    ],
)
def test_numbers_are_in_number_columns_and_text_is_escaped(text, latex):
    """The column has another number, so a text in it is in braces, and another interval if the number has one."""
    others = ["1", "1 [0.5, 2]"] if len(latex) == 2 else ["1"]
    rows = [["row", text], *(["other", other] for other in others)]
    code = latex_table("A & B", pd.DataFrame(rows, columns=["model", "MSE [95 %]"]))
    line = next(line for line in code.splitlines() if line.startswith("row"))
    assert line.removesuffix(r" \\").split(" & ", 1)[1] == " & ".join(latex)
    assert (r"\begin{tabular}{@{}lS@{\,}l@{}}" in code) == (r"{MSE} & [95 \%] \\" in code) == (len(latex) == 2)
    assert r"\caption{A \& B}" in code


def test_table_is_as_wide_as_a_column_of_a_paper_or_as_both():
    """Long texts and headings are broken into lines; a line of a heading that begins with a bracket is no option."""
    narrow = latex_table("", pd.DataFrame([["one two three four five", "1"]], columns=["model", "test loss [95 %]"]))
    assert narrow.count(r"\begin{table}") == 1
    assert r"\begin{tabularx}{\linewidth}{@{}>{\raggedright\arraybackslash}XS@{}}" in narrow
    assert r"% \usepackage{tabularx}" in narrow
    assert r"model & {\shortstack{{test loss}\\{[95 \%]}}} \\" in narrow
    wide = latex_table("", pd.DataFrame([["0.1234 [0.1, 0.2]"] * 3], columns=["a", "b", "c"]))
    assert wide.count(r"\begin{table*}") == wide.count(r"\end{table*}") == 1
    assert r"\begin{tabular}{@{}SSS@{}}" in wide.replace(r"@{\,}l", "")


def test_latex_of_a_paper_has_published_measured_seeds_and_verdict(database):
    database.baseline = 100.0
    rnn = experiment("rnn", "last", [Printed(metric="mse", value=0.25, digits="0.250")])
    for seed, value in enumerate((0.25, 0.251, 0.2505)):
        database.run(rnn, seed, test=[1.0, value])
    text = write("latex", paper_tables(database.view(paper(rnn)), for_print=True))
    (row,) = [line for line in text.splitlines() if line.startswith("rnn")]
    cells = [cell.strip() for cell in row.removesuffix(r"\\").split(" & ")]
    assert cells[3:5] == ["0.250", ""]
    number = r"\\num\{(\S+)\}"
    mean, low, high = map(float, (cells[5], *re.fullmatch(rf"\[{number}, {number}\]", cells[6]).groups()))
    half_width = 2.919986 * 0.0005 / 3**0.5  # Student's t of three values, 90 %
    assert (mean, low, high) == pytest.approx((0.2505, 0.2505 - half_width, 0.2505 + half_width), abs=1e-4)
    assert cells[7:] == ["3 of 3", "agrees"]
    assert text.startswith("% \\usepackage{booktabs}\n% \\usepackage{siunitx}\n")
    assert text.count("{") == text.count("}")


def test_printed_table_leaves_out_what_is_not_measured(database):
    printed = [Printed(metric="mse", value=0.25, digits="0.250")]
    rnn, lstm = (experiment(model, "last", printed) for model in ("rnn", "lstm"))
    database.run(rnn, 0, test=[1.0, 0.25])
    view = database.view(paper(rnn, lstm))
    (table,), (whole,) = paper_tables(view, for_print=True, unmeasured=False), paper_tables(view)
    assert [row[0] for row in table.rows] == [whole.rows[0][0]]
    assert len(whole.rows) == 2


def _figures(database):
    from orthobench.reporting.figures.figures import learning_curves

    lstm_figure(database)
    (condition,) = collect(database.store)
    return [learning_curves(condition, Styles([condition]))]


def test_images_have_the_width_and_font_size_of_a_paper(orthobench, tiny_options):
    orthobench("sweep", "adding", "--models", "rnn,lstm", *tiny_options)
    orthobench("run", "copying", "rnn", *tiny_options)
    for form, conditions in (("svg", 2), ("pdf", 1), ("png", 1)):
        chosen = ("--task", "adding") if conditions == 1 else ()
        outcome = orthobench("report", "--format", form, "-o", "figures", *chosen)
        assert outcome.err == ""
        written = [Path(line) for line in outcome.out.splitlines()]
        assert len(written) == 2 * conditions  # at two widths
        for path in written:
            inches = float(re.search(r"-([\d.]+)in\.", path.name)[1])
            content = path.read_bytes()
            if form == "pdf":
                width = float(re.search(rb"MediaBox \[ ?0 0 ([\d.]+)", content)[1])
                assert width == pytest.approx(72 * inches, abs=0.5)
                assert b"/Type3" not in content
            elif form == "png":
                assert int.from_bytes(content[16:20], "big") == pytest.approx(600 * inches, abs=1)
            else:
                root = xml.etree.ElementTree.fromstring(content)
                assert float(root.get("width").removesuffix("pt")) == pytest.approx(72 * inches, abs=0.1)
                texts = [*root.iter("{http://www.w3.org/2000/svg}text")]
                styles = [node.get("style") for text in texts for node in text.iter() if node.get("style")]
                sizes = {size for style in styles for size in re.findall(r"font[^;]*?([\d.]+)px", style)}  # in points
                assert sizes == {str(TEXT)} == {"8"}
