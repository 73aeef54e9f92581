"""A browser prints the page, and shows it without its script."""

from __future__ import annotations

import base64
import re
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.browsing import follow, open_page, problems, rows, wait

pytestmark = pytest.mark.browser


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
