"""A browser works the page: routes, the table of runs, comparison, searches, figure tools, print, and no script."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import math
import re
import shlex
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from support.pages import add_run, waiting

from orthobench.reporting.account.scope import Scope
from orthobench.reporting.page.html import write_html
from orthobench.store import open_store

pytestmark = pytest.mark.browser
LONG = "x" * 10_000
SETTINGS = {"sequence_length": "10", "hidden_size": "8"}
HOSTILE = "$(touch hacked); 'quoted'"


@pytest.fixture(scope="module")
def keys() -> dict[str, str]:
    """The runs of the page, by their names in these tests."""
    return {}


@pytest.fixture(scope="module")
def page(tmp_path_factory, keys) -> Path:
    """A page of runs of two models, 120 runs of a sweep, one with a long message, and a search."""
    folder = tmp_path_factory.mktemp("page")
    with open_store(str(folder / "results.db"), create=True) as store:
        keys["good"] = add_run(store, "lstm", 0, SETTINGS, final=0.01)
        keys["other"] = add_run(store, "rnn", 1, SETTINGS, final=0.15)
        keys["failed"] = add_run(store, "rnn", 2, SETTINGS, final=0.5, status="failed", message=LONG)
        for number in range(120):
            settings = {**SETTINGS, "learning_rate": f"{1e-4 * (1 + number):.4g}"}
            keys[f"sweep {number}"] = add_run(store, "scornn", 0, settings, final=(1 + number) / 1000)
        for number in range(12):
            chosen = {"learning_rate": f"{1e-4 * (1 + number):.4g}", "activation": ("modrelu", "tanh")[number % 2]}
            results = {"chosen": chosen, "run": keys[f"sweep {number}"]}
            store.add_benchmark("search abc", results, {})
    with open_store(str(folder / "results.db")) as store:
        return write_html(store, folder / "page.html", Scope(), {})


def open_page(browser, page: Path, fragment: str = "") -> None:
    browser.get("about:blank")
    browser.get(page.as_uri() + fragment)
    wait(browser, "return 'ready' in document.documentElement.dataset")


def wait(browser, script: str, *arguments):
    """Wait until a script returns something true, and return it."""
    return waiting(browser, 20).until(lambda _: browser.execute_script(script, *arguments))


def view(browser) -> str:
    """The name of the page in sight."""
    return browser.execute_script("return document.querySelector('.view:not([hidden])').id")


def follow(browser, fragment: str) -> None:
    """Change the address as a link does, and wait for the page."""
    before = browser.title
    browser.execute_script("location.hash = arguments[0]", fragment)
    wait(browser, "return document.title !== arguments[0]", before)


def rows(browser) -> list[str]:
    """The runs of the table that have rows now."""
    return browser.execute_script("return [...document.querySelectorAll('tr[data-run]')].map((row) => row.dataset.run)")


def problems(browser) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


# Routes and access


@pytest.mark.slow
def test_unknown_and_malformed_addresses_are_named(browser, page):
    for fragment, words in (
        ("#nothing-of-this-name", "no page or part nothing-of-this-name"),
        ("#run-0000", "no page or part run-0000"),
        ("#%E0%A4%A", "The address #%E0%A4%A cannot be read"),
        ("#compare?runs=0000", "no page or part compare"),
    ):
        open_page(browser, page, fragment)
        assert view(browser) == "missing"
        assert words in browser.find_element("id", "missing").text
    browser.find_element("link text", "To the start").click()
    wait(browser, "return !document.getElementById('overview').hidden")
    assert problems(browser) == []


def test_page_sets_its_title_and_focus(browser, page, keys):
    open_page(browser, page)
    assert browser.title == "Which model solves which task – orthobench"
    follow(browser, "#runs")
    assert browser.title == "Runs – orthobench"
    follow(browser, f"#run-{keys['good']}")
    assert browser.title == "LSTM on adding, seed 0: mse 0.01012 – orthobench"
    assert browser.switch_to.active_element.text == "LSTM on adding, seed 0: mse 0.01012"
    assert keys["good"] in browser.find_element("css selector", "#run h2 + p").text


def test_skip_link_leads_to_the_content(browser, page):
    open_page(browser, page, "#runs")
    browser.execute_script("document.querySelector('.skip').click()")
    assert browser.switch_to.active_element.get_attribute("id") == "main"
    assert view(browser) == "runs"


@pytest.mark.slow
def test_back_button_returns_to_the_same_place(browser, page):
    open_page(browser, page, "#measured")
    wait(browser, "window.scrollTo(0, 900); return window.scrollY > 800")
    wait(browser, "return history.state?.y > 800")
    follow(browser, "#overview")
    assert browser.execute_script("return window.scrollY") == 0
    browser.back()
    wait(browser, "return window.scrollY > 800")


@pytest.mark.slow
def test_long_messages_wrap(browser, page, keys):
    for fragment in ("#overview", "#measured", f"#run-{keys['failed']}", "#runs?status=failed"):
        open_page(browser, page, fragment)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 1200, fragment
    assert browser.execute_script("return document.querySelector('tr[data-run]').offsetHeight") <= 60


def test_only_the_pages_own_scripts_run(browser, page):
    open_page(browser, page)
    browser.execute_script("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hacked = 1\">')")
    browser.execute_script(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'window.hacked = 1'}))"
    )
    assert any("Content Security Policy" in message for message in problems(browser))
    assert browser.execute_script("return typeof window.hacked") == "undefined"


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


# The table of runs


def test_table_rows_are_rendered_while_scrolling(browser, page, keys):
    open_page(browser, page, "#runs")
    first = rows(browser)
    assert first[0] == keys["good"]
    assert len(first) < 80
    assert browser.find_element("css selector", "#runs output").text == "123 of 123 runs"
    box = "document.getElementById('run-table')"
    assert browser.execute_script(f"return {box}.scrollHeight") > 120 * 50
    browser.execute_script(f"{box}.scrollTop = 1e6")
    wait(browser, "return Boolean(document.querySelector(`tr[data-run='${arguments[0]}']`))", keys["sweep 119"])
    assert len(rows(browser)) < 80


def test_filters_search_and_order_are_in_the_address(browser, page, keys):
    open_page(browser, page, "#runs?q=learning_rate%3D0.0003&sort=best&desc=1")
    assert browser.find_element("name", "q").get_attribute("value") == "learning_rate=0.0003"
    assert keys["sweep 2"] in rows(browser)
    field = browser.find_element("name", "q")
    field.clear()
    field.send_keys("lstm")
    wait(browser, "return location.hash.includes('q=lstm')")
    assert rows(browser) == [keys["good"]]
    field.clear()
    browser.find_element("css selector", "th[data-column=end] button").click()
    wait(browser, "return location.hash.includes('sort=end')")
    ordered = rows(browser)
    assert ordered[:2] == [keys["sweep 0"], keys["sweep 1"]]
    head = browser.find_element("css selector", "th[data-column=end]")
    assert head.get_attribute("aria-sort") == "ascending"
    browser.find_element("css selector", "th[data-column=end] button").click()
    assert rows(browser)[0] == keys["other"]  # the failed run has no end, and comes last either way
    assert "desc=1" in browser.current_url
    browser.refresh()
    wait(browser, "return 'ready' in document.documentElement.dataset")
    assert rows(browser)[0] == keys["other"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("sequence_length=10", 123),
        ("sequence_length=1", 0),
        ("seed=1", 1),
        ("T = 10", 123),
        ("T=1", 0),
        ("lstm hidden_size = 8", 1),
        ("learning_rate = 3e-4 scornn", 1),
        ('learning_rate="0.0003" rnn', 1),
    ],
)
def test_search_compares_whole_values_by_their_names_and_symbols(browser, page, words, found):
    open_page(browser, page, f"#runs?q={quote(words)}")
    assert browser.find_element("css selector", "#runs output").text == f"{found} of 123 runs"


@pytest.mark.slow
def test_arrow_of_sorted_results_has_the_direction_of_the_values(browser, tmp_path):
    with open_store(str(tmp_path / "results.db"), create=True) as store:
        for seed, final in enumerate((0.2, 0.9, 0.5)):
            add_run(store, "lstm", seed, {"longest": "4"}, final=final, task="formal_language")  # accuracy
            add_run(store, "lstm", seed, SETTINGS, final=final)
        page = write_html(store, tmp_path / "page.html", Scope(), {})
    head = "#run-table th[data-column=best]"
    order = f"return document.querySelector('{head}').getAttribute('aria-sort')"
    values = (
        "return [...document.querySelectorAll('#run-table tr[data-run]')].map((row) => "
        f"Number(row.cells[document.querySelector('{head}').cellIndex].textContent))"
    )
    for task, kinds in (("formal_language", ["descending", "ascending"]), ("adding", ["ascending", "descending"])):
        open_page(browser, page, f"#runs?task={task}")
        for kind in kinds:
            browser.find_element("css selector", f"{head} button").click()
            assert browser.execute_script(order) == kind
            shown = browser.execute_script(values)
            assert shown == sorted(shown, reverse=kind == "descending")
    open_page(browser, page, "#runs?sort=best")
    assert browser.execute_script(order) == "other"  # two metrics, each the best first


def test_numbers_of_runs_are_whole_and_counts_are_exact(browser, tmp_path):
    with open_store(str(tmp_path / "results.db"), create=True) as store:
        add_run(store, "lstm", 0, SETTINGS, final=0.0007895, parameter_count=15046)
        page = write_html(store, tmp_path / "page.html", Scope(), {})
    open_page(browser, page, "#runs")
    cells = "document.querySelectorAll('#run-table tr[data-run] .number .clamp')"
    shown = browser.execute_script(f"return [...{cells}].map((cell) => cell.textContent)")
    assert {"15,046", "0.0007895"} < set(shown)
    assert not browser.execute_script(f"return [...{cells}].some((cell) => cell.scrollWidth > cell.clientWidth)")


def test_differing_settings_are_columns(browser, page):
    open_page(browser, page, "#runs?model=scornn")
    heads = browser.execute_script(
        "return [...document.querySelectorAll('#run-table thead th')].map((th) => th.dataset.column)"
    )
    assert "learning_rate" in heads
    assert "hidden_size" not in heads  # the same in all of them


def test_rows_of_models_have_medians_and_chosen_columns(browser, page, keys):
    heads = "return [...document.querySelectorAll('#run-table thead th')].map((th) => th.dataset.column)"
    open_page(browser, page, "#runs?group=median&q=sequence_length%3D10&columns=model,seed,status,end&model=rnn")
    assert browser.execute_script(heads) == ["model", "seed", "status", "end"]
    (row,) = browser.find_elements("css selector", "#run-table tr[data-run]")
    assert row.text.split() == ["RNN", "2", "1", "finished", "1", "failed", "0.1501"]
    browser.find_element("css selector", ".compare-bar summary").click()
    browser.find_element("css selector", "#run-columns input[value=metric]").click()
    assert browser.execute_script(heads) == ["model", "seed", "status", "end", "metric"]
    browser.execute_script("document.querySelector('#run-table tr[data-run] a').click()")  # the list covers it
    wait(browser, "return document.querySelectorAll('#run-table tr[data-run]').length === 2")
    assert set(rows(browser)) == {keys["other"], keys["failed"]}


def test_ticked_runs_are_compared(browser, page, keys):
    open_page(browser, page, "#runs")
    for key in (keys["good"], keys["other"]):
        browser.find_element("css selector", f"tr[data-run='{key}'] input").click()
    assert set(re.search(r"pick=([^&]*)", browser.current_url)[1].split("%2C")) == {keys["good"], keys["other"]}
    browser.find_element("id", "compare-link").click()
    wait(browser, "return document.title.startsWith('2 runs compared')")
    table = browser.find_element("css selector", "#compare table").text
    assert re.search(r"^end 0\.01\S* 0\.15", table, re.M)
    assert re.search(r"^seed 0 1$", table, re.M)
    assert "forget_bias" in table
    assert "batch_size" not in table
    wait(browser, "return document.querySelector('#compare .plot').drawn")
    lines = "return document.querySelector('#compare .plot').data.map((trace) => trace.name)"
    names = browser.execute_script(lines)
    assert [name.split(",")[0] for name in names] == ["LSTM", "RNN", "baseline 0.1667"]
    assert problems(browser) == []


@pytest.mark.slow
def test_run_is_compared_with_its_baseline_with_links_back(browser, page, keys):
    open_page(browser, page, f"#run-{keys['good']}")
    text = browser.find_element("id", "run").text
    assert re.search(r"better than the baseline\s+yes", text)
    assert re.search(r"the best predictor without memory\s+0\.1667", text)
    wait(browser, "return document.querySelector('#run .plot').drawn")
    names = browser.execute_script("return document.querySelector('#run .plot').data.map((trace) => trace.name)")
    assert names == ["test mse", "baseline 0.1667"]
    browser.find_element("link text", "runs of this model").click()
    wait(browser, "return document.title.startsWith('Runs')")
    assert rows(browser) == [keys["good"]]


def test_vectors_of_a_run_are_those_of_the_database(browser, after, tiny_options, tmp_path):
    orthobench = after(("run", "adding", "rnn", *tiny_options))
    with open_store(str(tmp_path / "results.db")) as store:
        (run,) = store.runs()
        vectors = [each for each in store.traces([run.id]) if each.name == "gradient_norm/h"]
    open_page(browser, Path(orthobench("report", "--html").out.strip()), f"#run-{run.key}")
    plots = "[...document.querySelectorAll('#run .plot')]"
    wait(browser, f"return {plots}.some((plot) => plot.drawn)")
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")  # draws them all
    lines = browser.execute_script(
        f"return {plots}.flatMap((plot) => plot.data.map(({{ name, y }}) => [name, [...y]]))"
    )
    shown = [y for name, y in lines if name.startswith("gradient_norm/h")]
    assert len(shown) == 2
    for drawn, row in zip(shown, (vectors[0], vectors[-1]), strict=True):
        np.testing.assert_allclose(drawn, row.values, rtol=0.005)  # three digits
    assert problems(browser) == []


def test_search_page_has_parallel_coordinates_slices_and_importance(browser, page, keys):
    open_page(browser, page, "#runs")
    browser.find_element("css selector", ".searches a").click()
    wait(browser, "return document.title.startsWith('Search of learning_rate, activation')")
    wait(browser, "return document.querySelector('#search .plot').drawn")
    legend = browser.find_elements("css selector", "#search .legend")[0].text.split("\n")
    assert len(legend) == 11  # the ten best, and the others together
    best = browser.find_elements("css selector", "#search table")[0].text.split("\n")[1]
    assert best.split()[:4] == ["1", "0.001", "0.0001", "modrelu"]
    line = browser.execute_script("return document.querySelector('#search .plot').data.at(-1)")
    assert line["y"] == [0, 0, 0]  # the smallest rate, the first activation, the best value
    assert len(browser.find_elements("css selector", "#search .pair .plot")) == 2
    shares = [
        int(text.split()[-2])
        for text in browser.find_element("css selector", ".importance").text.split("\n")
        if "%" in text
    ]
    assert 99 <= sum(shares) <= 101
    assert problems(browser) == []


def test_legend_of_many_variants_is_shorter_than_the_plot(browser, page):
    open_page(browser, page, "#measured")
    plot = "document.querySelector('#measured .plot')"
    wait(browser, f"{plot}.scrollIntoView(); return {plot}.drawn")
    heights = browser.execute_script(f"return [{plot}.legend.offsetHeight, {plot}.offsetHeight]")
    assert heights[0] < heights[1]


# The tools of a figure


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


def test_commands_are_quoted_for_a_shell(browser, after, tiny_options, tmp_path):
    """The shell reads the command back as the words that the page means, whatever is in a value."""
    orthobench = after(("run", "adding", "rnn", *tiny_options))
    with open_store(str(tmp_path / "results.db")) as store:
        run = store.runs()[0]
        spec = run.spec | {"task_settings": run.spec["task_settings"] | {"marker_layout": HOSTILE}}
        store.update(run.id, {"spec": spec})
    page = Path(orthobench("report", "--html").out.strip())
    open_page(browser, page, f"#run-{run.key}")
    command = browser.find_element("css selector", "#run > pre").text
    assert f"marker_layout={HOSTILE}" in shlex.split(command)


# Print, and no script


def test_print_draws_every_figure_in_light_colours(browser, page):
    open_page(browser, page, "#measured")
    plots = "const plots = [...document.querySelectorAll('#measured .plot')].filter((plot) => plot.offsetParent);"
    wait(browser, f"{plots} return plots.length && plots.every((plot) => plot.base) && window.Plotly")
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": dark})
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    shown = browser.execute_script(
        f"{plots} return plots.map((plot) => [plot.getBoundingClientRect().height, plot.layout?.paper_bgcolor])"
    )
    assert all(height > 100 and ground == "#ffffff" for height, ground in shown), shown
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert (
        browser.execute_script("return getComputedStyle(document.querySelector('#measured .scroll')).overflowX")
        == "visible"
    )
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert not browser.find_elements("css selector", "#measured .main-svg[viewBox]")


def test_print_before_the_page_has_read_its_data_leaves_it_intact(browser, page):
    """Nothing can wait while a browser prints, so figures come with their data; one view is shown from the start."""
    source = """addEventListener("DOMContentLoaded", () => {
        window.early = [document.documentElement.dataset.ready, Boolean(window.Plotly)];
        window.dispatchEvent(new Event("beforeprint"));
        window.views = document.querySelectorAll(".view:not([hidden])").length;
        window.dispatchEvent(new Event("afterprint"));
    })"""
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": source})
    try:
        open_page(browser, page, "#task-adding")
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
    assert browser.execute_script("return [window.early, window.views]") == [[None, False], 1]
    plots = "[...document.querySelectorAll('#measured .plot')].filter((plot) => plot.offsetParent)"
    wait(browser, f"return {plots}.length && {plots}.every((plot) => plot.base)")
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    shown = browser.execute_script(
        f"return {plots}.map((plot) => [plot.querySelectorAll('svg path.js-line').length, plot.data?.length])"
    )
    assert shown
    assert all(lines > 0 and traces > 0 for lines, traces in shown)
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert problems(browser) == []


def test_browser_prints_the_whole_page(browser, page):
    open_page(browser, page, "#overview")
    wait(
        browser,
        "return [...document.querySelectorAll('#overview .plot')].every((plot) => plot.base) && window.Plotly",
    )
    printed = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert printed.startswith(b"%PDF")
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", printed, re.S)
    # With an object, because the expression takes a last byte that is a line end for the end of the line.
    unpacked = [zlib.decompressobj().decompress(stream) for stream in streams if stream[:1] == b"x"]
    assert any(content.count(b" l\n") > 50 for content in unpacked)  # lines of curves


def test_printed_run_has_all_its_figures_as_wide_as_the_paper(browser, page, keys):
    open_page(browser, page, f"#run-{keys['good']}")
    wait(browser, "return document.querySelector('#run .plot').drawn")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 700, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    )
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 500, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    )
    shown = browser.execute_script(
        "return [...document.querySelectorAll('#run .plot')].map((plot) => { const svg = "
        "plot.querySelector('.main-svg'); return svg && [svg.viewBox.baseVal.width, "
        "svg.getBoundingClientRect().width, plot.getBoundingClientRect().width, plot.getBoundingClientRect().height]})"
    )
    assert len(shown) == 4
    for scale, width, room, height in shown:
        assert scale > 0
        assert width == pytest.approx(room, abs=2)
        assert height > 60
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert not browser.find_elements("css selector", "#run .main-svg[viewBox]")


def test_printed_tables_have_all_rows_and_headings(browser, page):
    open_page(browser, page, "#runs")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert len(rows(browser)) == 123
    assert not browser.find_elements("css selector", "#run-table .spacer")
    named = (
        "return [...document.querySelectorAll(arguments[0])].map((head) => getComputedStyle(head, '::before').content)"
    )
    heads = browser.execute_script(named, "#run-table thead th")
    assert heads[:2] == ['"run"', '"task"']
    assert "none" not in heads
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert len(rows(browser)) < 80
    open_page(browser, page)
    assert browser.execute_script(named, "#solves thead th") == ['"model"', '"adding"']
    cells = browser.find_elements("css selector", "#solves tbody button")
    assert all(cell.is_displayed() for cell in cells)


POLICIES = {
    "scripts are off": None,
    "all of the same origin": "default-src 'self'",
    "no script, and the page's styles": "script-src 'none'",
    "Jenkins": "sandbox allow-same-origin; default-src 'none'; img-src 'self'; style-src 'self';",
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=list(POLICIES))
def test_without_scripts_the_page_says_how_to_draw_the_figures(browser, page, policy):
    with served_with(page, policy) as address:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": policy is None})
        browser.get("about:blank")
        browser.get(address)
        banner, words = browser.find_elements("css selector", ".scriptless")
        assert banner.is_displayed()
        assert "Content-Security-Policy" in banner.text
        assert "orthobench report --format svg" in banner.text
        assert "needs the page's script" in words.text
        assert not any(plot.is_displayed() for plot in browser.find_elements("css selector", ".plot"))
        assert "adding" in browser.find_element("id", "measured").text


@pytest.mark.parametrize("policy", ["", "default-src 'self' 'unsafe-inline'"])
def test_with_scripts_the_page_says_nothing_of_them(browser, page, policy):
    with served_with(page, policy) as address:
        browser.get(address)
        wait(browser, "return 'ready' in document.documentElement.dataset")
        assert not any(words.is_displayed() for words in browser.find_elements("css selector", ".scriptless"))
        follow(browser, "#runs")
        assert "script" not in browser.find_element("id", "runs").text


@contextmanager
def served_with(page: Path, policy: str | None) -> Iterator[str]:
    """Serve a page with a content security policy in its header, and yield its address."""

    class Handler(SimpleHTTPRequestHandler):
        def end_headers(self):
            if policy:
                self.send_header("Content-Security-Policy", policy)
            super().end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=page.parent)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/{page.name}"
        server.shutdown()
        thread.join()


def test_filters_act_only_on_pages_that_show_them(browser, page):
    open_page(browser, page, "#measured?model=lstm")
    names = browser.execute_script(
        "return [...document.querySelectorAll('#measured tbody tr[data-model]')]"
        ".filter((row) => row.offsetParent).map((row) => row.dataset.model)"
    )
    assert set(names) == {"lstm"}
    follow(browser, "#overview")
    assert len(browser.find_elements("css selector", "#solves tbody tr")) >= 2


def open_chart(browser, title: str) -> None:
    """Open a tab of the shown condition's charts."""
    tabs = browser.find_elements("css selector", "#measured .filtered:not([hidden]) [role=tab]")
    next(tab for tab in tabs if tab.text == title).click()


def of_rows(browser, table: str, field: str) -> list[str]:
    """Return a data field of the rows of a table that are visible."""
    script = "return [...document.querySelectorAll(arguments[0])].filter((row) => row.offsetParent)"
    return browser.execute_script(f"{script}.map((row) => row.dataset[arguments[1]])", f"{table} tr[data-model]", field)


def test_matrix_is_sorted_filtered_and_names_the_command_of_an_empty_cell(browser, page):
    open_page(browser, page)
    original = of_rows(browser, "#solves", "model")
    heading = browser.find_element("css selector", "#solves thead th[data-column='0'] button")
    heading.click()
    scores = browser.execute_script(
        "return [...document.querySelectorAll('#solves tbody tr')]"
        ".map((row) => Number(row.cells[1].dataset.score ?? -1))"
    )
    assert scores == sorted(scores, reverse=True)
    assert heading.find_element("xpath", "..").get_attribute("aria-sort") == "descending"
    browser.find_element("css selector", "#solves thead th[data-column='-1'] button").click()
    assert of_rows(browser, "#solves", "model") == original
    browser.execute_script(
        "const cell = document.querySelector('#solves tbody td'); cell.className = 'unrun';"
        "cell.innerHTML = '<button type=button>·</button>'; cell.firstChild.click()"
    )
    words = wait(browser, "return document.getElementById('matrix-command').textContent")
    assert words.startswith("Not run under this condition: orthobench sweep ")
    assert "on this task had other settings" in words  # because the test emptied the cell of a model that ran
    assert "MODEL" not in words
    place = "const { top, bottom } = document.getElementById('matrix-command').getBoundingClientRect();"
    browser.execute_script("document.getElementById('solves').style.marginBottom = '3000px'")
    assert browser.execute_script(f"{place} return top >= 0 && bottom <= window.innerHeight")  # in sight
    browser.find_element("xpath", "//*[@id='matrix-command']/button[text()='close']").click()
    assert browser.find_element("id", "matrix-command").text == ""
    browser.execute_script("document.getElementById('solves').style.marginBottom = ''")
    browser.execute_script(
        "const list = document.querySelector('#matrix-filters select'); list.value = 'gated';"
        "list.dispatchEvent(new Event('change', { bubbles: true }))"
    )
    assert set(of_rows(browser, "#solves", "family")) == {"gated"}
    browser.execute_script(
        "document.querySelectorAll('#solves tbody tr')[1].dataset.folded = '';"
        "const list = document.querySelector('#matrix-filters select'); list.value = '';"
        "list.dispatchEvent(new Event('change', { bubbles: true }))"
    )
    assert of_rows(browser, "#solves", "model") == [original[0], *original[2:]]
    browser.find_element("css selector", "#matrix-filters [name=folded]").click()
    assert of_rows(browser, "#solves", "model") == original


def test_long_heading_of_the_matrix_keeps_to_its_column(browser, page):
    """The settings of a task may take five lines. The heading of the next column must not be printed over them."""
    open_page(browser, page)
    heading = browser.find_element("css selector", "#solves thead th[data-column='0'] span")
    label = heading.text
    fill = "arguments[0].textContent = arguments[1]; arguments[0].closest('div').style.width = arguments[2]"
    browser.execute_script(fill, heading, "copying, T = 2000, layout of scoRNN, 20,000 sequences", "12rem")
    left, first, last, right = browser.execute_script(
        "const [outer, inner] = [arguments[0].closest('th'), arguments[0]].map((each) => each.getBoundingClientRect());"
        "return [outer.left, inner.left, inner.right, outer.right]",
        heading,
    )
    browser.execute_script(fill, heading, label, "")
    assert last - first > 50  # several lines of 17 pixels
    assert left <= first + 1
    assert last <= right + 1


@pytest.mark.slow
def test_model_has_a_page_of_its_tasks(browser, page):
    open_page(browser, page, "#model-lstm")
    assert browser.title == "LSTM – orthobench"
    wait(browser, "return document.querySelector('#about table')")
    first, *_ = browser.find_elements("css selector", "#about tbody tr")
    assert re.fullmatch(r"adding \d+ 1 seed; .*not tuned", first.text)
    assert "hidden_size" in browser.find_element("css selector", "#about details").get_attribute("textContent")
    assert not browser.find_element("css selector", "[data-figure=seeds]").is_displayed()
    assert set(of_rows(browser, "#measured", "model")) == {"lstm"}
    name = "return document.querySelector('#measured .plot').dataset.file"
    assert browser.execute_script(name).startswith("adding-")


@pytest.mark.slow
def test_runs_of_a_variant_share_a_colour_where_runs_are_compared(browser, page, keys):
    open_page(browser, page, f"#compare?runs={keys['other']},{keys['failed']},{keys['good']}")
    wait(browser, "return document.querySelector('#compare .plot').drawn")
    lines = browser.execute_script("return document.querySelector('#compare .plot').data.map(({ line }) => line)")
    (first, second, other), *_ = [[(line["color"], line["dash"]) for line in lines[:3]]]
    assert first[0] == second[0] != other[0]
    assert first[1] != second[1]


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
