"""A browser shows the report of a small sweep: with the network off, on a phone, and worked by keys.

The baseline of its runs' own test sequences, 0.1443, lies outside the frames.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.pages import HOSTILE, table_of_runs, waiting


def _requests(browser) -> list[str]:
    messages = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [url for url in sent if not url.startswith(("data:", "chrome", "about:"))]


def wait(browser, until) -> None:
    waiting(browser, 20).until(until)


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
    wait(
        browser,
        lambda page: page.find_element("css selector", "nav a[aria-current]").get_attribute("textContent") == words,
    )


def open_page(browser, page: Path, fragment: str = "") -> None:
    browser.get(page.as_uri() + fragment)
    wait(browser, lambda page: page.execute_script("return 'ready' in document.documentElement.dataset"))


def rows_of_runs(browser) -> list:
    return visible(browser, "#runs tbody tr[data-run]")


@pytest.mark.browser
def test_browser_shows_the_page_offline(browser, page):
    open_page(browser, page, "#measured")
    titles = [tab.text for tab in visible(browser, "[role=tab]")]
    assert titles == ["Course", "Seeds", "Cost", "Gradients", "Orthogonality"]  # no run solves the task
    for title in reversed(titles):
        next(tab for tab in visible(browser, "[role=tab]") if tab.text == title).click()
        plots = visible(browser, ".plot")
        assert len(plots) == {"Cost": 2, "Orthogonality": 3}.get(title, 1)
        for plot in plots:
            browser.execute_script("arguments[0].scrollIntoView()", plot)
            wait(browser, lambda _, plot=plot: plot.find_elements("css selector", "svg.main-svg"))
            assert plot.size["height"] > 200
    lines = plots[0].find_elements("css selector", ".scatterlayer .trace path.js-line")
    assert len([line for line in lines if line.get_attribute("d")]) >= 3
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    assert _requests(browser) == [page.as_uri()]


@pytest.mark.browser
def test_task_is_shown_one_condition_at_a_time_and_the_chosen_model_thick(browser, page):
    from selenium.webdriver.common.keys import Keys

    open_page(browser, page)
    cell = next(cell for cell in browser.find_elements("css selector", "#solves tr[data-model=lstm] td a"))
    cell.click()
    wait(browser, lambda page: visible(page, "#measured"))
    (section,) = visible(browser, "#measured .filtered")
    assert browser.current_url.endswith(f"#{section.get_attribute('id')}?model=lstm")
    marked = visible(browser, ".board tr[aria-current]")
    assert [row.get_attribute("data-model") for row in marked] == ["lstm"]
    widths = (
        "const plot = document.querySelector('#measured .filtered:not([hidden]) .plot');"
        "if (!plot.drawn) return {};"
        "return Object.fromEntries(plot.data.filter(({ name }) => name).map(({ name, line }) => [name, line.width]))"
    )
    wait(browser, lambda page: page.execute_script(widths) == {"scoRNN": 1, "LSTM": 4})
    visible(browser, "[role=tab]")[0].send_keys(Keys.ARROW_RIGHT)
    assert browser.switch_to.active_element.text == "Seeds"
    first, second = visible(browser, "#conditions a")
    assert (first.text, first.get_attribute("aria-current")) == ("adding", "true")
    second.click()
    wait(browser, lambda page: visible(page, "#measured .filtered")[0].get_attribute("data-task") == "copying")
    assert [tab.text for tab in visible(browser, "[aria-selected=true]")] == ["Seeds"]  # stays open
    visible(browser, ".board a")[0].click()
    wait(browser, lambda page: page.current_url.endswith("?model=rnn"))
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.browser
def test_page_fits_a_phone_and_turns_dark(browser, page):
    browser.set_window_size(500, 900)
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True},
    )
    for name in ("measured", "overview", "paper-helfrich2018", "runs", "mine?model=lstm"):
        open_page(browser, page, f"#{name}")
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390, name
        browser.get("about:blank")
    open_page(browser, page, "#paper-helfrich2018")
    browser.find_element("css selector", ".menu summary").click()
    edges = "return [...document.querySelectorAll(arguments[0])].map((node) => node.getBoundingClientRect().right)"
    assert 300 < max(browser.execute_script(edges, ".menu div, .menu a")) <= 390
    browser.execute_script("document.querySelector('#paper-helfrich2018 .unmeasured').open = true")
    verdicts = browser.execute_script(edges, "#paper-helfrich2018 .unmeasured[open] td:is(.verdict, [data-label])")
    assert len(verdicts) > 9
    assert 300 < max(verdicts) <= 390
    browser.get("about:blank")
    browser.get(page.as_uri() + "#measured")
    wait(browser, lambda page: page.execute_script("return document.querySelector('#measured .plot').drawn"))
    light = browser.execute_script("return document.querySelector('#measured .plot').layout.paper_bgcolor")
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    assert light == "#ffffff"
    dark = "return document.querySelector('#measured .plot').layout.paper_bgcolor"
    wait(browser, lambda page: page.execute_script(dark) == "#14171b")


@pytest.mark.browser
def test_pages_filters_and_legends_work(browser, page):
    open_page(browser, page)
    assert [view.get_attribute("id") for view in visible(browser, ".view")] == ["overview"]
    browser.find_element("css selector", ".menu summary").click()
    go(browser, "scoRNN 2018")
    assert [view.get_attribute("id") for view in visible(browser, ".view")] == ["paper-helfrich2018"]

    go(browser, "Runs")
    assert len(rows_of_runs(browser)) == 5
    choose(browser, "model", "LSTM")
    choose(browser, "seed", "1")
    (row,) = rows_of_runs(browser)
    assert row.find_element("css selector", "th a").text.startswith("LSTM")
    assert browser.find_element("css selector", "#runs output").text == "1 of 5 runs"

    go(browser, "Tasks")
    choose(browser, "model", "LSTM")
    first = "document.querySelector('#measured .plot')"
    wait(browser, lambda page: page.execute_script(f"return {first}.drawn"))
    names = f"return {first}.data.map((trace) => trace.name).filter(Boolean)"
    wait(browser, lambda page: page.execute_script(names) == ["LSTM"])
    browser.find_element("css selector", "#measured button[type=reset]").click()
    wait(browser, lambda page: set(page.execute_script(names)) == {"scoRNN", "LSTM"})
    hidden = f"return {first}.data.filter((trace) => trace.visible === false).map((trace) => trace.meta.label)"
    next(node for node in browser.find_elements("css selector", ".legend button") if node.text == "scoRNN").click()
    assert pressed(browser, "#measured") == {"scoRNN": "false", "LSTM": "true"}
    assert browser.execute_script(hidden) == ["scoRNN"] * 2  # the line and its mark; no band is drawn then
    assert set(browser.execute_script(hidden)) == {"scoRNN"}  # and the marks


@pytest.mark.browser
def test_menu_of_papers_closes_and_shows_where_the_reader_is(browser, page):
    from selenium.webdriver.common.keys import Keys

    is_open = "return document.querySelector('nav .menu').open"
    open_page(browser, page)
    summary = browser.find_element("css selector", "nav .menu summary")
    assert summary.get_attribute("aria-current") is None
    summary.send_keys(Keys.ENTER)
    assert browser.execute_script(is_open)
    browser.switch_to.active_element.send_keys(Keys.TAB)  # to its first link
    assert browser.execute_script(is_open)
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not browser.execute_script(is_open)
    assert browser.switch_to.active_element == summary
    summary.send_keys(Keys.ENTER)
    browser.find_element("css selector", "nav > a:last-of-type").send_keys(Keys.TAB)  # leaves it
    assert not browser.execute_script(is_open)
    summary.click()
    browser.find_element("css selector", "header h1").click()
    assert not browser.execute_script(is_open)
    summary.click()
    go(browser, "scoRNN 2018")
    assert summary.get_attribute("aria-current") == "true"
    go(browser, "Runs")
    assert summary.get_attribute("aria-current") is None


@pytest.mark.browser
@pytest.mark.slow
def test_everything_is_reached_and_operated_by_keyboard(browser, page):
    """From the top by Tab alone: links, filters, leaderboards, tables and every legend; Enter and Space work them."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.get(page.as_uri())
    plots = visible(browser, "#overview .plot")
    assert len(plots) == 2  # the curves of both small conditions
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
    menu = browser.find_element("css selector", ".menu summary")
    for state in ("true", None):
        menu.send_keys(Keys.ENTER)
        assert menu.find_element("xpath", "..").get_attribute("open") == state
    assert toggled == {"button"}


@pytest.mark.browser
def test_figure_is_zoomed_and_panned_by_keyboard(browser, page):
    from selenium.webdriver.common.keys import Keys

    browser.get(page.as_uri() + "#measured")
    plot = browser.find_element("css selector", "#measured .plot")
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
    assert after("+") == zoomed
    legend = plot.find_element("xpath", "..").find_element("css selector", ".legend button")
    legend.click()
    assert pressed(browser, "#measured")[legend.text] == "false"
    kept = browser.execute_script(ranges, plot)
    assert kept == [pytest.approx(axis) for axis in zoomed], "a line that goes does not move the others"
    browser.execute_script("document.querySelector('#measured figure').style.marginBottom = '9000px'")
    drawn = "return Boolean(arguments[0].drawn)"
    browser.execute_script("window.scrollTo(0, document.body.scrollHeight)")
    wait(browser, lambda page: not page.execute_script(drawn, plot))
    browser.execute_script("arguments[0].scrollIntoView()", plot)
    wait(browser, lambda page: page.execute_script(drawn, plot))
    assert browser.execute_script(ranges, plot) == kept, "nor does the way to another figure and back"
    plot.find_element("xpath", "..").find_element("xpath", ".//label[contains(., 'log y')]/input").click()
    wait(browser, lambda page: page.execute_script("return arguments[0].layout.yaxis.type", plot) == "log")
    across, up = browser.execute_script(ranges, plot)
    assert across == kept[0]
    assert up != kept[1], "powers of ten are no values"


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
    go(browser, "Tasks")
    choose(browser, "tag", HOSTILE[:60] + "'\"")
    (row,) = visible(browser, "#measured details tbody tr")
    assert "LSTM" in row.text
    first = "document.querySelector('#measured .plot')"
    wait(browser, lambda page: page.execute_script(f"return {first}.drawn"))
    assert set(pressed(browser, "#measured")) == {"LSTM"}
    choose(browser, "tag", "both")
    assert len(visible(browser, "#measured details tbody tr")) == 2
    key = next(run["key"] for run in table_of_runs(page) if run["model"] == "lstm")
    browser.get(page.as_uri() + f"#run-{key}")
    wait(browser, lambda page: HOSTILE[:60] in page.find_element("id", "run").text)
    assert browser.execute_script("return typeof window.hacked") == "undefined"


@pytest.mark.browser
def test_run_page_is_reached_by_keyboard(browser, page):
    from selenium.webdriver.common.keys import Keys

    run = table_of_runs(page)[0]
    key = run["key"]
    open_page(browser, page, "#runs")
    link = browser.find_element("css selector", f"a[href='#run-{key}']")
    link.send_keys(Keys.ENTER)
    wait(browser, lambda page: visible(page, "#run h2"))
    text = browser.find_element("id", "run").text
    assert f"orthobench run adding {run['model']} --seed {run['seed']}" in text
    assert "sequence_length" in text
    wait(browser, lambda page: page.find_elements("css selector", "#run svg.main-svg"))
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.slow
@pytest.mark.browser
def test_hostile_names_do_nothing_in_a_browser(browser, hostile_page):
    key = table_of_runs(hostile_page)[0]["key"]
    for name in ("overview", "measured", "runs", f"run-{key}"):
        browser.get(hostile_page.as_uri() + f"#{name}")
        if name not in ("overview", "runs"):
            wait(browser, lambda page: page.find_elements("css selector", ".view:not([hidden]) svg.main-svg"))
        assert browser.execute_script("return typeof window.hacked") == "undefined"
        browser.get("about:blank")
