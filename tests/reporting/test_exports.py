"""Exports: the curves of figures as CSV, tables for siunitx, and images of the sizes that papers need."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import pytest
from support.databases import RunDatabase, experiment, paper

from orthobench.analysis.conditions import collect
from orthobench.errors import UsageError
from orthobench.papers import Printed
from orthobench.reporting.figures.curve_sheets import figure_sheets, records_of
from orthobench.reporting.figures.drawing import empty_figure, is_mark
from orthobench.reporting.figures.figure_files import write_images
from orthobench.reporting.figures.pgfplots import pgfplots
from orthobench.reporting.figures.stills import TEXT
from orthobench.reporting.figures.styles import Styles
from orthobench.reporting.tables.latex import latex_cell
from orthobench.reporting.tables.paper_table import sheets, write
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
    rows = list(csv.DictReader(io.StringIO(write("csv", figure_sheets([lstm_figure(database)], Styles([]))))))
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
    (sheet,) = figure_sheets([database.view(paper(lstm, artifacts=CURVES))], Styles([]))
    assert [record["y"] for record in sheet.records if record["curve"] == "lstm, n = 8"] == values


def test_pgfplots_code_has_all_points_in_tables(database):
    """LaTeX is not needed for the test: its environments and braces close, and every number is that of the figure."""
    (figure,) = _figures(database)
    figure.update_yaxes(type="log", range=None)
    code = pgfplots([("T = 10", figure), ("50 %", figure)], 6.75, 3)
    assert code.count("{") == code.count("}")
    opened = [name for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", code)]
    assert opened == ["tikzpicture", "groupplot", "groupplot", "tikzpicture"]
    assert re.findall(r"title=\{(.*?)\}", code) == ["T = 10", r"50 \%"]
    assert re.findall(r"\\addlegendentry\{(.*?)\}", code) == ["lstm", "baseline 0.2"]
    (first, second) = code.split(r"\nextgroupplot")[1:]
    assert "ymode=log" in first
    tables = re.findall(r"table\[x=x, y=y\] \{\nx y\n(.*?)\n\}", first, re.S)
    drawn = [trace for trace in figure.data if len(trace["x"])]
    places = []
    for trace in drawn:
        points = np.stack([trace["x"], trace["y"]], axis=1)
        places += (
            [point[np.newaxis] for point in points] if is_mark(trace) else [points]
        )  # each mark has its own symbol
    assert len(tables) == len(places)
    for table, place in zip(tables, places, strict=True):
        points = np.array([[float(number) for number in line.split()] for line in table.splitlines()])
        np.testing.assert_allclose(points, place, rtol=1e-7)
    assert "only marks, mark=x]" in code.replace(", forget plot]", "]")
    assert "fill between[of=band1high and band1low]" in second


def test_map_is_exported_with_both_axes():
    figure = empty_figure("input step τ", "state step t")
    figure.add_heatmap(x=[1, 2], y=[1, 2], z=[[0.0, float("nan")], [-2.0, 1.0]])
    points = [(record["x"], record["y"], record["value"]) for record in records_of(figure)]
    assert points == [(1, 1, 1.0), (1, 2, pytest.approx(0.01)), (2, 2, pytest.approx(10.0))]


def test_unmeasured_figure_names_its_command(database, tmp_path):
    lstm = experiment("lstm", "curve", [Printed(metric="mse", outcome="falls")], artifact="figure 2")
    with pytest.raises(UsageError, match="orthobench reproduce k --figure 2 --seeds 3"):
        figure_sheets([database.view(paper(lstm, artifacts=CURVES))], Styles([]))
    with pytest.raises(UsageError, match="orthobench reproduce k --figure 2 --seeds 3"):
        write_images([], [database.view(paper(lstm, artifacts=CURVES))], "pdf", tmp_path / "images")
    assert not (tmp_path / "images").exists()


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("0.920", r"\num{0.920}"),
        ("1,234,567", r"\num{1234567}"),
        ("0.1234 ± 0.0056", r"\num{0.1234 +- 0.0056}"),
        ("1.2e-05 ± 3e-06", r"\num{1.2e-05 +- 3e-06}"),
        ("−3.5", r"\num{-3.5}"),
        ("0.12 [0.1, 0.3]", r"\num{0.12} [\num{0.1}, \num{0.3}]"),
        ("0.12 [0, 4.5e-07]", r"\num{0.12} [\num{0}, \num{4.5e-07}]"),
        ("0.12 [0.1, inf]", r"\num{0.12} [\num{0.1}, $\infty$]"),
        ("scoRNN, n = 170", "scoRNN, n = 170"),
        ("≈16k", r"$\approx$16k"),
        ("2 of 3, 1 diverged", "2 of 3, 1 diverged"),
        ("a_b & 5 %", r"a\_b \& 5 \%"),
        ("", ""),
    ],
)
def test_numbers_are_formatted_for_siunitx_and_text_is_escaped(text, latex):
    assert latex_cell(text) == latex


def test_latex_of_a_paper_has_published_measured_seeds_and_verdict(database):
    database.baseline = 100.0
    rnn = experiment("rnn", "last", [Printed(metric="mse", value=0.25, digits="0.250")])
    for seed, value in enumerate((0.25, 0.251, 0.2505)):
        database.run(rnn, seed, test=[1.0, value])
    text = write("latex", sheets(database.view(paper(rnn))))
    (row,) = [line for line in text.splitlines() if line.startswith("rnn")]
    cells = [cell.strip() for cell in row.removesuffix(r"\\").split(" & ")]
    assert cells[2] == r"\num{0.250}"
    number = r"\\num\{(\S+)\}"
    mean, low, high = map(float, re.fullmatch(rf"{number} \[{number}, {number}\]", cells[3]).groups())
    half_width = 2.919986 * 0.0005 / 3**0.5  # Student's t of three values, 90 %
    assert (mean, low, high) == pytest.approx((0.2505, 0.2505 - half_width, 0.2505 + half_width), abs=1e-4)
    assert cells[4:] == ["3 of 3", "agrees"]
    assert text.startswith("% \\usepackage{booktabs}\n% \\usepackage{siunitx}\n")
    assert text.count("{") == text.count("}")


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
