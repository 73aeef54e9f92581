"""The report: what it says, and that a real browser shows it with the network off."""

from __future__ import annotations

import base64
import html.parser
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from support.pages import figures as figures_of
from support.pages import table_of_runs

from orthobench.analysis.conditions import collect
from orthobench.store import MetricRow, Status, open_store

SCRIPTS_OF_TWO_CONDITIONS = 8  # Plotly, index, environments, twice figures and runs, and the script that executes


class Text(html.parser.HTMLParser):
    """The page's visible text, and every address it would fetch."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.addresses: list[str] = []
        self.scripts = 0
        self.hidden = False
        self.feed(page)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        self.hidden = tag in ("script", "style")
        self.scripts += tag == "script"
        self.addresses += [value for name, value in attributes if name in ("src", "href") and value[:1] != "#"]

    def handle_endtag(self, tag):
        self.hidden = False

    def handle_data(self, data):
        if not self.hidden:
            self.words.append(data)


@pytest.fixture
def page(orthobench, tiny_options, tmp_path) -> Path:
    """The report of a small sweep: two models, two seeds, two conditions."""
    assert orthobench("sweep", "adding", "--models", "scornn,lstm", "--seeds", "2", *tiny_options).code == 0
    assert orthobench("run", "copying", "rnn", *tiny_options).code == 0
    outcome = orthobench("report", "--html")
    assert outcome.code == 0
    path = Path(outcome.out.strip())
    assert path == tmp_path / "reports" / "report.html"
    return path


def test_the_page_says_what_was_measured_and_printed(page, tmp_path):
    read = Text(page.read_text("utf-8"))
    for part in (
        "adding, T = 10",
        "copying, T = 10",
        "scornn",
        "lstm",
        "2 of 2",
        "±",
        "scores 0.1667",
        "drops towards zero",
        "precipitous drop",
        "ICML 2018, figure 2",
        "sequence_length 10 (paper 200)",
        "no paper's result",
        "ranked by the median over seeds of the ends",
        "that by an LSTM's c at step t counts its paths through h at step t",
        "the matrix W by which a step multiplies the state",
        "two one-sided t tests at 5 % with the tolerance as margin, 0.005 of a fraction, 2% of other numbers",
        "fewer than three seeds",
    ):
        assert part in read.text
    with open_store(str(tmp_path / "results.db")) as store:
        for condition in collect(store):
            for variant in condition.variants:
                assert f"{variant.final.mean:.4g}" in read.text
                assert f"{variant.median.value:.4g}" in read.text
                assert f"{variant.run.parameter_count:,}" in read.text


def test_the_page_needs_no_network(page):
    text = page.read_text("utf-8")
    read = Text(text)
    assert read.addresses == ["data:,"]
    assert not re.search(r"@import|url\(", text[: text.index("<body>")])
    assert read.scripts == SCRIPTS_OF_TWO_CONDITIONS
    assert page.stat().st_size < 3.5e6


def numbers(values: list | dict) -> np.ndarray:
    """The numbers of a drawn line: a list, or an array in base64."""
    if isinstance(values, dict):
        return np.frombuffer(base64.b64decode(values["bdata"]), np.dtype(values["dtype"]).newbyteorder("<"))
    return np.array(values)


def assert_drawn(line: dict, x, y) -> None:
    """The line has these points, at single precision."""
    np.testing.assert_allclose(numbers(line["x"]), x, rtol=1e-6)
    np.testing.assert_allclose(numbers(line["y"]), y, rtol=1e-6)


def test_figures_hold_the_numbers_of_the_database(page, tmp_path):
    with open_store(str(tmp_path / "results.db")) as store:
        runs = {model: [run.id for run in store.runs(task="adding", model=model)] for model in ("scornn", "lstm")}
        counts = {model: [run.parameter_count for run in store.runs(task="adding", model=model)] for model in runs}
        (key,) = {run.condition for run in store.runs(task="adding")}
        metrics = {id: store.metrics([id]) for ids in runs.values() for id in ids}
        traces = {id: store.traces([id]) for ids in runs.values() for id in ids}
        seconds = {model: [run.seconds["train"] for run in store.runs(task="adding", model=model)] for model in runs}
    figures = figures_of(page.read_text("utf-8"))[key]
    assert set(figures) == {"curves", "orthogonality", "gradients", "parameters", "seconds"}

    def by_seed(model: str, split: str, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Iterations, and the values `[seed, iteration]`."""
        rows = [[m for m in metrics[id] if (m.split, m.name) == (split, name)] for id in runs[model]]
        assert len(rows) == 2
        return np.array([m.iteration for m in rows[0]]), np.array([[m.value for m in seed] for seed in rows])

    def assert_band(lines: list[dict], model: str, split: str, name: str, label: str) -> None:
        """Three lines: the highest seed, the lowest, and the median, which alone stands in the legend."""
        iterations, values = by_seed(model, split, name)
        for line, y in zip(lines, (values.max(0), values.min(0), np.median(values, axis=0)), strict=True):
            assert_drawn(line, iterations / 4, y)  # 4 iterations an epoch
        assert [line.get("name") for line in lines if line.get("showlegend", True)] == [label]

    curves = [line for line in figures["curves"]["data"] if "text" not in line]  # without the marks of ends
    assert_band(curves[:3], "scornn", "test", "mse", "scornn")
    assert_band(curves[3:6], "lstm", "test", "mse", "lstm")
    (baseline,) = curves[6:]
    assert (baseline["name"], baseline["line"]["dash"]) == ("baseline 0.1667", "dash")
    assert_drawn(baseline, [0, 3], [1 / 6, 1 / 6])

    lines = [line for line in figures["orthogonality"]["data"] if "text" not in line]
    assert len(lines) == 3  # the LSTM's matrices are inside its gates
    assert_band(lines, "scornn", "probe", "orthogonality/W", "scornn")

    lines = {line["name"]: line for line in figures["gradients"]["data"] if "name" in line}
    states = [("scornn", "h"), ("lstm", "c"), ("lstm", "h")]
    assert list(lines) == [f"{model} {state}, epoch {epoch}" for model, state in states for epoch in (0, 3)]
    for model, state in states:
        for epoch in (0, 3):
            norms = [
                trace.values
                for id in runs[model]
                for trace in traces[id]
                if (trace.name, trace.iteration) == (f"gradient_norm/{state}", 4 * epoch)
            ]
            assert np.shape(norms) == (2, 10)
            assert_drawn(lines[f"{model} {state}, epoch {epoch}"], range(1, 11), np.median(norms, axis=0))

    sizes = {"scornn": 28 + 16 + 8 + 8 + 1, "lstm": 4 * (64 + 16 + 8) + 8 + 1}  # of 8 units, with the output map
    assert counts == {model: [size] * 2 for model, size in sizes.items()}
    for figure, costs in (
        ("parameters", sizes),
        ("seconds", {model: np.mean(spent) / 3 for model, spent in seconds.items()}),
    ):
        points = figures[figure]["data"]
        assert [point["name"] for point in points] == ["scornn", "lstm"]
        for point in points:
            best = by_seed(point["name"], "test", "mse")[1].min(1)
            assert_drawn(point, [costs[point["name"]]], [best.mean()])
            interval = scipy.stats.t.interval(0.95, 1, best.mean(), scipy.stats.sem(best))
            np.testing.assert_allclose(point["error_y"]["array"], (interval[1] - interval[0]) / 2)


def test_an_empty_or_unfinished_database_is_told(orthobench, tiny_options, tmp_path):
    with open_store(str(tmp_path / "results.db"), create=True):
        pass
    assert orthobench("report", "--html").code == 0
    assert "Nothing measured yet" in Text((tmp_path / "reports" / "report.html").read_text("utf-8")).text

    orthobench("run", "adding", "rnn", *tiny_options)
    with open_store(str(tmp_path / "results.db")) as store:
        run = store.runs()[0]
        store.update(run.id, {"status": Status.DIVERGED, "final_value": None, "best_value": None})
        store.rewind(run.id, -1, "t")
    assert orthobench("report", "--html").code == 0
    text = Text((tmp_path / "reports" / "report.html").read_text("utf-8")).text
    assert "Of 1 runs: 1 diverged; none finished: there are no results to compare yet." in text
    assert "1 diverged" in text
    assert "0 of 1" in text


def test_a_half_finished_sweep_is_told(orthobench, tiny_options, tmp_path):
    orthobench("sweep", "adding", "--models", "rnn", "--seeds", "2", *tiny_options)
    with open_store(str(tmp_path / "results.db")) as store:
        store.update(store.runs()[0].id, {"status": Status.INTERRUPTED, "final_value": None})
    assert orthobench("report", "--html").code == 0
    text = Text((tmp_path / "reports" / "report.html").read_text("utf-8")).text
    assert "Of 2 runs: 1 interrupted; 1 finished." in text
    assert "1 of 2" in text


HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


@pytest.fixture
def hostile_page(orthobench, tiny_options, tmp_path) -> Path:
    orthobench("run", "adding", "rnn", *tiny_options)
    with open_store(str(tmp_path / "results.db")) as store:
        run = store.runs()[0]
        spec = run.spec | {"task_settings": run.spec["task_settings"] | {"marker_layout": HOSTILE}}
        store.update(run.id, {"model": HOSTILE, "message": HOSTILE, "spec": spec})
        store.log(run.id, [MetricRow("probe", f"orthogonality/{HOSTILE}", 0, 0, 1.0)], [], {})
    return Path(orthobench("report", "--html").out.strip())


def test_names_never_become_markup(hostile_page):
    read = Text(hostile_page.read_text("utf-8"))
    assert read.scripts == SCRIPTS_OF_TWO_CONDITIONS - 2
    assert HOSTILE in " ".join(read.words)


def _requests(browser) -> list[str]:
    messages = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [url for url in sent if not url.startswith(("data:", "chrome", "about:"))]


def wait(browser, until) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 20).until(until)


def visible(browser, selector: str) -> list:
    return [element for element in browser.find_elements("css selector", selector) if element.is_displayed()]


def pressed(browser, selector: str) -> dict[str, str]:
    """Of the first such figure's legend: whether its lines are shown."""
    figure = browser.find_element("css selector", f"{selector} figure")
    buttons = figure.find_elements("css selector", ".legend button")
    return {button.text: button.get_attribute("aria-pressed") for button in buttons}


def choose(browser, name: str, value: str) -> None:
    from selenium.webdriver.support.ui import Select

    (field,) = visible(browser, f"[name={name}]")
    Select(field).select_by_visible_text(value)


def go(browser, words: str) -> None:
    """Follow a link of the head, and wait until its page stands."""
    browser.find_element("link text", words).click()
    wait(browser, lambda page: page.find_element("css selector", "nav [aria-current]").text == words)


def open_page(browser, page: Path, fragment: str = "") -> None:
    browser.get(page.as_uri() + fragment)
    wait(browser, lambda page: page.execute_script("return 'ready' in document.documentElement.dataset"))


def rows_of_runs(browser) -> list:
    return visible(browser, "#view-runs tbody tr[data-run]")


@pytest.mark.browser
def test_a_browser_shows_the_page_with_the_network_off(browser, page):
    browser.get(page.as_uri() + "#measured")
    wait(browser, lambda page: len(visible(page, ".plot")) == 6)
    for plot in (plots := visible(browser, ".plot")):
        browser.execute_script("arguments[0].scrollIntoView()", plot)
        wait(browser, lambda _, plot=plot: plot.find_elements("css selector", "svg.main-svg"))
        assert plot.size["height"] > 200
    lines = plots[0].find_elements("css selector", ".scatterlayer .trace path.js-line")
    assert len([line for line in lines if line.get_attribute("d")]) >= 3
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    assert _requests(browser) == [page.as_uri()]


@pytest.mark.browser
def test_the_page_fits_a_phone_and_turns_dark(browser, page):
    browser.set_window_size(500, 900)
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True},
    )
    for name in ("measured", "overview", "paper-helfrich2018", "runs"):
        open_page(browser, page, f"#{name}")
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390, name
        browser.get("about:blank")
    browser.get(page.as_uri() + "#measured")
    wait(browser, lambda page: page.execute_script("return document.querySelector('#view-measured .plot').drawn"))
    light = browser.execute_script("return document.querySelector('#view-measured .plot').layout.paper_bgcolor")
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    assert light == "#ffffff"
    dark = "return document.querySelector('#view-measured .plot').layout.paper_bgcolor"
    wait(browser, lambda page: page.execute_script(dark) == "#14171b")


@pytest.mark.browser
def test_pages_filters_and_legends_work(browser, page):
    open_page(browser, page)
    assert [view.get_attribute("id") for view in visible(browser, ".view")] == ["view-overview"]
    go(browser, "helfrich2018")
    assert [view.get_attribute("id") for view in visible(browser, ".view")] == ["view-paper-helfrich2018"]

    go(browser, "Runs")
    assert len(rows_of_runs(browser)) == 5
    choose(browser, "model", "lstm")
    choose(browser, "seed", "1")
    (row,) = rows_of_runs(browser)
    assert row.find_element("css selector", "th a").text.startswith("lstm")
    assert browser.find_element("css selector", "#view-runs output").text == "1 of 5 runs"

    go(browser, "Everything measured")
    choose(browser, "model", "lstm")
    first = "document.querySelector('#view-measured .plot')"
    wait(browser, lambda page: page.execute_script(f"return {first}.drawn"))
    names = f"return {first}.data.map((trace) => trace.name).filter(Boolean)"
    wait(browser, lambda page: page.execute_script(names) == ["lstm", "baseline 0.1667"])
    browser.find_element("css selector", "#view-measured button[type=reset]").click()
    wait(browser, lambda page: page.execute_script(names) == ["scornn", "lstm", "baseline 0.1667"])
    hidden = f"return {first}.data.filter((trace) => trace.visible === false).map((trace) => trace.meta.label)"
    browser.find_element("css selector", "#view-measured .legend button").click()
    assert pressed(browser, "#view-measured") == {
        "scornn": "false",
        "lstm": "true",
        "baseline 0.1667": "true",
    }
    assert browser.execute_script(hidden)[:3] == ["scornn"] * 3  # the line and both edges of its band
    assert set(browser.execute_script(hidden)) == {"scornn"}  # and the marks


@pytest.mark.browser
def test_everything_is_reached_and_worked_by_keys(browser, page):
    """From the top by Tab alone: links, filters, leaderboards, tables and every legend; Enter and Space work them."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.get(page.as_uri())
    plots = visible(browser, "#view-overview .plot")
    assert len(plots) == 4  # the curves of both small conditions, and two of a leaderboard
    for plot in plots:
        browser.execute_script("arguments[0].scrollIntoView()", plot)
        wait(browser, lambda _, plot=plot: plot.find_elements("css selector", "svg.main-svg"))
    browser.execute_script("document.querySelector('.skip').focus()")  # what was scrolled to would be the start
    reached, toggled, ring = [], set(), "return getComputedStyle(arguments[0]).outlineStyle"
    for _ in range(200):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        at = browser.switch_to.active_element
        if at.tag_name == "body":
            break
        reached.append(at)
        assert browser.execute_script(ring, at) != "none", at.get_attribute("outerHTML")[:200]
        assert at.accessible_name or at.tag_name == "summary", at.get_attribute("outerHTML")[:200]
        if at.get_attribute("aria-pressed") and at.tag_name not in toggled:
            toggled.add(at.tag_name)
            for key, state in ((Keys.SPACE, "false"), (Keys.ENTER, "true")):
                ActionChains(browser).send_keys(key).perform()
                assert browser.switch_to.active_element == at  # it keeps the focus
                assert at.get_attribute("aria-pressed") == state
    focusable = "a[href], select, button, summary, .scroll, .plot"
    missed = [element for element in visible(browser, focusable)[1:] if element not in reached]
    assert [element.get_attribute("outerHTML")[:100] for element in missed] == []
    board = browser.find_element("css selector", "details.board summary")
    for state in (None, "true"):
        board.send_keys(Keys.ENTER)
        assert board.find_element("xpath", "..").get_attribute("open") == state
    assert toggled == {"button"}


@pytest.mark.browser
def test_a_figure_is_zoomed_and_moved_by_keys(browser, page):
    from selenium.webdriver.common.keys import Keys

    browser.get(page.as_uri() + "#measured")
    plot = browser.find_element("css selector", "#view-measured .plot")
    wait(browser, lambda _: plot.get_attribute("tabindex") == "0")
    ranges = "return ['xaxis', 'yaxis'].map((axis) => arguments[0].layout[axis].range)"
    whole = browser.execute_script(ranges, plot)

    def after(keys: str):
        plot.send_keys(keys)
        return [pytest.approx(axis) for axis in browser.execute_script(ranges, plot)]

    zoomed = [[low + (high - low) / 4, high - (high - low) / 4] for low, high in whole]
    assert after("+") == zoomed
    width = whole[0][1] - whole[0][0]
    assert after(Keys.ARROW_RIGHT) == [[end + width / 8 for end in zoomed[0]], zoomed[1]]
    assert after(Keys.ARROW_LEFT + "-") == whole
    assert after("+" + Keys.ARROW_UP) != whole
    assert after("0") == whole


@pytest.mark.browser
def test_runs_are_found_by_their_tags(browser, orthobench, tiny_options):
    """Tags are names that users gave: they stand on the page as text, whatever is in them."""
    orthobench("sweep", "adding", "--models", "rnn,lstm", *tiny_options, "--tag", "both")
    orthobench("run", "adding", "lstm", *tiny_options, "--tag", HOSTILE[:60] + "'\"")
    page = Path(orthobench("report", "--html").out.strip())
    open_page(browser, page, "#runs")
    choose(browser, "tag", HOSTILE[:60] + "'\"")
    (row,) = rows_of_runs(browser)
    assert HOSTILE[:60] + "'\"" in row.get_attribute("textContent")
    go(browser, "Everything measured")
    choose(browser, "tag", HOSTILE[:60] + "'\"")
    (row,) = visible(browser, "#view-measured tbody tr")
    assert "lstm" in row.text
    first = "document.querySelector('#view-measured .plot')"
    wait(browser, lambda page: page.execute_script(f"return {first}.drawn"))
    assert set(pressed(browser, "#view-measured")) == {"lstm", "baseline 0.1667"}
    choose(browser, "tag", "both")
    assert len(visible(browser, "#view-measured tbody tr")) == 2
    key = next(run["key"] for run in table_of_runs(page) if run["model"] == "lstm")
    browser.get(page.as_uri() + f"#run-{key}")
    wait(browser, lambda page: HOSTILE[:60] in page.find_element("id", "view-run").text)
    assert browser.execute_script("return typeof window.hacked") == "undefined"


@pytest.mark.browser
def test_a_run_has_a_page_and_keys_reach_it(browser, page):
    from selenium.webdriver.common.keys import Keys

    run = table_of_runs(page)[0]
    key = run["key"]
    open_page(browser, page, "#runs")
    link = browser.find_element("css selector", f"a[href='#run-{key}']")
    link.send_keys(Keys.ENTER)
    wait(browser, lambda page: visible(page, "#view-run h2"))
    text = browser.find_element("id", "view-run").text
    assert f"orthobench run adding {run['model']} --seed {run['seed']}" in text
    assert "sequence_length" in text
    wait(browser, lambda page: page.find_elements("css selector", "#view-run svg.main-svg"))
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.browser
def test_hostile_names_do_nothing_in_a_browser(browser, hostile_page):
    key = table_of_runs(hostile_page)[0]["key"]
    for name in ("overview", "measured", "runs", f"run-{key}"):
        browser.get(hostile_page.as_uri() + f"#{name}")
        if name not in ("overview", "runs"):
            wait(browser, lambda page: page.find_elements("css selector", ".view:not([hidden]) svg.main-svg"))
        assert browser.execute_script("return typeof window.hacked") == "undefined"
        browser.get("about:blank")


@pytest.mark.browser
@pytest.mark.slow
def test_figures_become_files(orthobench, tiny_options, tmp_path):
    pytest.importorskip("kaleido")
    if not shutil.which("chromium"):
        pytest.skip("needs chromium")
    orthobench("run", "adding", "rnn", *tiny_options)
    for form, start in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<svg")):
        narrow, wide = (Path(line) for line in orthobench("report", "--format", form, "-o", "figures").out.splitlines())
        assert narrow.read_bytes().startswith(start)
        assert wide.read_bytes().startswith(start)
        assert narrow.parent == wide.parent == tmp_path / "figures"
