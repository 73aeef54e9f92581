"""A browser draws figures: their axes, tools, legends, and what they save."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re

import pytest
from support.browsing import follow, open_chart, open_page, problems, wait
from support.pages import add_run

from orthobench.reporting.account.scope import Scope
from orthobench.reporting.page.html import write_html
from orthobench.store import open_store

pytestmark = pytest.mark.browser
SETTINGS = {"sequence_length": "10", "hidden_size": "8"}


@pytest.mark.slow
def test_distant_figures_are_purged(browser, page):
    open_page(browser, page, "#measured")
    drawn = "return [...document.querySelectorAll('#measured .plot')].map((plot) => Boolean(plot.drawn))"
    plot = "document.querySelector('#measured .plot')"
    wait(browser, f"{plot}.scrollIntoView(); return {plot}.drawn")
    browser.execute_script(f"{plot}.closest('figure').style.marginBottom = '9000px'")
    wait(
        browser, f"window.scrollTo(0, document.body.scrollHeight); return !{plot}.drawn && !{plot}.querySelector('svg')"
    )
    assert not browser.execute_script(drawn)[0]
    wait(browser, f"{plot}.scrollIntoView(); return {plot}.drawn")


def test_legend_of_many_variants_is_shorter_than_the_plot(browser, page):
    open_page(browser, page, "#measured")
    plot = "document.querySelector('#measured .plot')"
    wait(browser, f"{plot}.scrollIntoView(); return {plot}.drawn")
    heights = browser.execute_script(f"return [{plot}.legend.offsetHeight, {plot}.offsetHeight]")
    assert heights[0] < heights[1]


@pytest.fixture
def tools(browser, page, keys):
    """The tools of the first figure of a run's page, all of them open."""
    open_page(browser, page, f"#run-{keys['good']}")
    wait(browser, "return document.querySelector('#run .plot').drawn")
    browser.find_element("css selector", "#run .tools summary").click()
    wait(browser, "return document.querySelector('#run .tools pre')")
    return browser.find_element("css selector", "#run .tools")


FIRST = "const plot = document.querySelector('#run .plot');"


def test_x_axis_is_iteration_epoch_or_seconds(browser, tools):
    from selenium.webdriver.support.ui import Select

    select = Select(tools.find_elements("css selector", "select")[0])
    assert [option.text for option in select.options] == ["epoch", "iteration", "seconds"]
    for unit, last in (("epoch", 10), ("seconds", 20), ("iteration", 40)):  # 4 iterations and 2 s an epoch
        select.select_by_visible_text(unit)
        ends = f"{FIRST} return Math.abs(Array.from(plot._fullData[0].x).at(-1) - {last}) < 1e-4"
        wait(browser, ends)


def test_labels_of_a_logarithmic_axis_do_not_overlap(browser, tools):
    browser.execute_script(f"{FIRST} Object.assign(plot.base.layout.yaxis, {{ type: 'log', range: [-4.1, -1.6] }})")
    tools.find_element("css selector", "input[type=checkbox]").click()
    wait(browser, f"{FIRST} return plot.layout.yaxis.type === 'log'")
    boxes = browser.execute_script(
        f"{FIRST} return Array.from(plot.querySelectorAll('.ytick text'), (text) => text.getBoundingClientRect())"
    )
    ordered = sorted(boxes, key=lambda box: box["top"])
    assert len(ordered) > 3
    assert all(upper["bottom"] <= lower["top"] + 4 for upper, lower in itertools.pairwise(ordered))  # 4: leading


def test_y_axis_is_logarithmic_and_smoothing_keeps_the_raw_curve(browser, tools):
    from selenium.webdriver.support.ui import Select

    tools.find_element("css selector", "input[type=checkbox]").click()
    wait(browser, f"{FIRST} return plot.layout.yaxis.type === 'log'")
    Select(tools.find_elements("css selector", "select")[1]).select_by_visible_text("10 iterations")
    wait(browser, f"{FIRST} return plot.data.length === 3")
    raw, smooth = browser.execute_script(
        f"{FIRST} return plot._fullData.slice(0, 2).map(({{ y, opacity }}) => [Array.from(y), opacity])"
    )
    assert (raw[1], smooth[1]) == (0.25, 1)
    assert smooth[0][5] == pytest.approx(math.prod(raw[0][4:7]) ** (1 / 3))  # a test every 4 iterations
    assert smooth[0][0] == raw[0][0]


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ("", ["log y", "smooth"]),
        (
            "const [line] = plot.figure.data; line.x = [...Array(11).keys()]; line.y = line.x.map((x) => x - 5);",
            ["smooth"],
        ),
        ("plot.figure.layout.yaxis.scaleanchor = 'x';", []),
        ("plot.longest = 71;", ["log y"]),
    ],
)
def test_tools_suit_the_figure(browser, tools, change, kinds):
    """Negative values, a plane with equal axes, or a curve without all its points do not have every tool."""
    browser.execute_script(
        f"{FIRST} plot.nextElementSibling.remove(); plot.base = plot.tools = null; {change}"
        "plot.legend.querySelector('button').click()"
    )
    wait(browser, "return document.querySelector('#run .tools')")
    labels = browser.execute_script(
        "return [...document.querySelectorAll('#run .tools')[0].querySelectorAll('label')]"
        ".map((label) => label.firstChild.textContent.trim() || label.textContent)"
    )
    assert [label for label in labels if label in ("log y", "smooth")] == kinds


def test_names_in_tooltips_are_whole(browser, tools):
    assert browser.execute_script(f"{FIRST} return plot.layout.hoverlabel.namelength") == -1


def test_data_and_pictures_are_saved(browser, tools, tmp_path):
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    saved = {}
    for kind in ("CSV", "SVG", "PNG"):
        next(node for node in tools.find_elements("css selector", "button") if node.text == kind).click()
        wait(browser, "return true")
        for _ in range(100):
            ready = [path for path in tmp_path.iterdir() if path.suffix == f".{kind.lower()}" and path.stat().st_size]
            if ready:
                saved[kind] = ready[0]
                break
            browser.execute_async_script("setTimeout(arguments[0], 50)")
    records = list(csv.reader(io.StringIO(saved["CSV"].read_text("utf-8"))))
    assert records[0] == ["line", "iteration", "MSE"]
    assert len(records) == 1 + 11 + 2  # the curve and the baseline
    assert float(records[1][2]) == pytest.approx(1.0)
    assert saved["SVG"].read_text("utf-8").startswith("<svg")
    assert saved["PNG"].read_bytes().startswith(b"\x89PNG")
    assert problems(browser) == []


@pytest.mark.slow
def test_names_stand_at_the_ends_of_lines_and_bands_are_few_until_asked_for(browser, tmp_path):
    with open_store(str(tmp_path / "results.db"), create=True) as store:
        for number, model in enumerate(("lstm", "rnn", "gru", "irnn", "ornn", "lru")):
            for seed in (0, 1):
                add_run(store, model, seed, SETTINGS, final=0.02 * (1 + number) + 0.001 * seed)
        page = write_html(store, tmp_path / "page.html", Scope(), {})
    open_page(browser, page, "#measured")
    plot = "const plot = document.querySelector('#measured [data-figure=curves]');"
    wait(browser, f"{plot} plot.scrollIntoView(); return plot.drawn")
    places = (
        f"{plot} const {{ yaxis }} = plot._fullLayout, top = plot.getBoundingClientRect().top;"
        "return [...plot.legend.children].map((node) => { const box = node.getBoundingClientRect();"
        "  const y = plot.data.find(({ name }) => name === node.textContent).y.at(-1);"
        "  return [yaxis._offset + yaxis.l2p(y), (box.top + box.bottom) / 2 - top, box.height]; })"
    )
    names = sorted(browser.execute_script(places))
    assert len(names) == 7  # six models and the baseline
    for _, at, height in names[1:-1]:
        assert all(abs(at - other) >= height - 1 or other == at for _, other, _ in names)  # none overlaps
    assert all(abs(end - at) <= 2 * height for end, at, height in names)
    edges = f"{plot} return plot.data.filter(({{ line }}) => line?.width === 0).length"
    assert browser.execute_script(edges) == 8
    browser.execute_script(
        f"{plot} [...plot.parentElement.querySelectorAll('.tools label')].find(({{ textContent }}) => "
        "textContent === 'all bands').firstChild.click()"
    )
    wait(browser, edges.replace("length", "length === 12"))
    browser.execute_script(
        f"window.print = () => {{ window.printed = document.title; }}; {plot}"
        "[...plot.parentElement.querySelectorAll('.tools button')].find((node) => node.textContent === 'PDF').click()"
    )
    wait(browser, "return window.printed?.endsWith('-6.75in')")
    assert problems(browser) == []


def test_data_table_has_the_points(browser, tools):
    assert len(tools.find_elements("css selector", "details tbody tr")) == 13


@pytest.mark.slow
def test_long_legend_shows_the_rest_on_demand(browser, page):
    open_page(browser, page, "#task-adding")
    wait(browser, "return document.querySelector('#measured .plot').drawn")
    browser.find_element("xpath", "//label[text()='all variants']/input").click()
    wait(browser, "return document.querySelector('#measured .legend.long')")
    shown = "return [...document.querySelectorAll('#measured .legend')[0].children].filter((one) => one.offsetParent)"
    assert len(browser.execute_script(shown)) == 13
    more = browser.find_element("css selector", "#measured .legend [aria-expanded]")
    assert re.fullmatch(r"\d+ more", more.text)
    more.send_keys("\n")
    assert len(browser.execute_script(shown)) > 100
    assert more.get_attribute("aria-expanded") == "true"


@pytest.mark.slow
def test_filtered_figure_of_seeds_has_no_empty_rows(browser, page):
    open_page(browser, page, "#measured?task=adding&model=scornn")
    plot = "document.querySelector('#measured .filtered:not([hidden]) [data-figure=seeds]')"
    open_chart(browser, "Seeds")
    wait(browser, f"return {plot}.drawn")
    labels, rows = browser.execute_script(f"return [{plot}.layout.yaxis.ticktext, {plot}.layout.yaxis.tickvals]")
    assert len(labels) == 20
    assert all("scoRNN" in label for label in labels)
    assert [-row for row in rows] == list(range(len(labels)))


def test_figure_without_a_line_of_the_chosen_model_is_hidden(browser, page):
    open_page(browser, page, "#measured?task=adding&model=rnn")
    solved = browser.find_element("css selector", "#measured [data-figure=solved]")
    assert '"rnn"' not in solved.get_attribute("data-models")
    assert "Solved" not in [tab.text for tab in browser.find_elements("css selector", "[role=tab]")]
    assert browser.find_element("css selector", "#measured [data-figure=curves]").is_displayed()
    follow(browser, "#task-adding")
    open_chart(browser, "Solved")
    assert solved.is_displayed()


@pytest.mark.slow
def test_figure_of_seeds_on_a_phone_is_as_wide_as_the_screen(browser, page):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    )
    open_page(browser, page, "#task-adding")
    open_chart(browser, "Seeds")
    plot = "document.querySelector('#measured [data-figure=seeds]')"
    wait(browser, f"{plot}.scrollIntoView(); return {plot}.drawn")
    wait(browser, f"return {plot}._fullLayout.xaxis._length > 280")
    rows, height = browser.execute_script(
        f"return [{plot}.layout.yaxis.tickvals.length, {plot}._fullLayout.yaxis._length]"
    )
    assert height / rows > 25  # a name and its symbols
    overlap = f"""return [...{plot}.querySelectorAll('.ytick text')].map((node) => node.getBoundingClientRect())
        .sort((one, other) => one.top - other.top).some((one, at, all) => at && one.top < all[at - 1].bottom - 1)"""
    assert not browser.execute_script(overlap)
