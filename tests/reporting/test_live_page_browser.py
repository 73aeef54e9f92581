"""A browser loads a served page again when its results change, and keeps what the reader has set."""

from __future__ import annotations

import pytest
from support.pages import add_run, waiting
from support.served import SETTINGS, served, write_database

from orthobench.reporting.web import serve as serving
from orthobench.store import MetricRow, open_store
from orthobench.training.announcements import announced
from orthobench.training.checkpoint import checkpoint_root, checkpoints_at

pytestmark = pytest.mark.browser
LAST = """
const { data } = document.querySelector(arguments[0]) ?? {};
return data && Math.max(...data.flatMap(({ x }) => Array.from(x ?? [])))"""
LIVE = "const { ready, live } = document.documentElement.dataset; return ready === '' && live === 'on'"


@pytest.fixture
def database(tmp_path):
    return write_database(tmp_path, status="running")


@pytest.fixture
def server(database, monkeypatch):
    monkeypatch.setattr(serving, "CHECK_SECONDS", 0.1)
    monkeypatch.setattr(serving, "RENDER_SHARE", 1.0)
    root = checkpoint_root(database)
    with open_store(database) as store:
        (run,) = store.runs()
    listed = [{"key": run.key}, {"key": "b" * 16, "label": "[2/2] rnn seed 0", "task": "adding", "seconds": 90}]
    with checkpoints_at(root, run.key).lock(), announced(root, listed), served(database) as opened:
        yield opened


def add_epoch(database, epoch):
    with open_store(database) as store:
        (run,) = [run for run in store.runs() if run.model == "lstm"]
        rows = [MetricRow("test", "mse", epoch, 4 * epoch, 0.1), MetricRow("train", "loss", epoch, 4 * epoch, 0.1)]
        store.log(run.id, rows, [], {"iterations": 4 * epoch, "final_value": 0.1})
        return run.key


def wait(browser, script, *arguments):
    # Long, because a page is shown for ten times as long as it took to load, and a busy machine takes seconds.
    return waiting(browser, 120).until(lambda _: browser.execute_script(script, *arguments))


def open_page(browser, server, fragment=""):
    browser.get(server.address + fragment)
    wait(browser, LIVE)
    browser.execute_script("window.before = true")  # a page that is loaded again does not have it


def assert_clean(browser):
    severe = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert severe == []


def test_new_epoch_appears_and_the_page_keeps_what_the_reader_has_set(browser, server, database):
    browser.set_window_size(1000, 500)
    open_page(browser, server, "#measured?model=lstm")
    figure = "#measured .plot[data-figure=curves]"
    assert wait(browser, LAST, figure) == 10
    training = browser.find_element("id", "training")
    assert "LSTM on adding, seed 0" in training.text
    assert "0 of 2 runs done · 1 training" in training.text
    assert "[2/2] rnn seed 0 on adding" in training.find_element("css selector", "ol").get_attribute("textContent")
    browser.execute_script(
        """document.querySelector("#training details").open = true;
        const figure = document.querySelector(arguments[0]).closest("figure");
        figure.querySelector(".legend button").click();
        figure.querySelector(".tools input[type=checkbox]").click();""",
        figure,
    )
    kind = "return document.querySelector(arguments[0]).layout.yaxis.type"
    assert wait(browser, f"{kind} === 'log'", figure)
    browser.execute_script(
        """Plotly.relayout(document.querySelector(arguments[0]), { "xaxis.range": [2, 5] });
        document.querySelector("#measured-filters [name=model]").focus({ preventScroll: true });
        window.scrollTo(0, 321);""",
        figure,
    )
    add_epoch(database, 11)
    assert wait(browser, LAST + " === 11", figure)
    zoom = "return JSON.stringify(document.querySelector(arguments[0]).layout.xaxis.range)"
    assert wait(browser, f"{zoom} === '[2,5]'", figure)  # set again after the figure has been drawn
    wait(browser, LIVE)
    shown = browser.execute_script(
        """const figure = document.querySelector(arguments[0]).closest("figure");
        return [window.before, figure.querySelector(".legend button").ariaPressed, window.scrollY, location.hash,
          figure.querySelector(".plot").layout.xaxis.range, document.querySelector("#training details").open,
          document.activeElement.name]""",
        figure,
    )
    assert shown == [None, "false", 321, "#measured?model=lstm", [2, 5], True, "model"]
    assert browser.execute_script(kind, figure) == "log"
    assert browser.execute_script("return document.querySelector('#measured .tools input').checked")
    assert browser.find_element("css selector", "#measured-filters [name=model]").get_attribute("value") == "lstm"
    assert_clean(browser)


def test_page_waits_for_a_reader_who_is_doing_something(browser, server, database):
    from selenium.common.exceptions import TimeoutException

    open_page(browser, server, "#measured")
    browser.execute_script(
        "window.busy = setInterval(() => window.dispatchEvent(new Event('pointermove')), 50);"
        "document.documentElement.dataset.news = ''"  # as after an answer of the server
    )
    with pytest.raises(TimeoutException):
        waiting(browser, 5).until(lambda _: browser.execute_script("return !window.before"))
    browser.execute_script("clearInterval(window.busy)")
    wait(browser, "return !window.before")
    wait(browser, LIVE)
    assert_clean(browser)


def test_own_cell_that_a_sweep_trains_comes_first(browser, database, monkeypatch):
    monkeypatch.setattr(serving, "CHECK_SECONDS", 0.1)
    planned = {"key": "c" * 16, "label": "[1/1] cell.py:Cell seed 0", "task": "adding", "model": "cell.py:Cell"}
    with announced(checkpoint_root(database), [planned | {"seconds": 90}]), served(database) as opened:
        open_page(browser, opened)
        wait(browser, "return document.querySelector('nav').firstElementChild.textContent === 'My cell'")
        browser.find_element("link text", "My cell").click()
        wait(browser, "return !document.getElementById('mine').hidden")
        view = browser.find_element("id", "mine")
        assert view.find_element("tag name", "h2").text == "My cell: cell.py:Cell"
        assert view.find_element("tag name", "summary").text == "1 run to come"
        assert "about 1 min 30 s" in view.find_element("tag name", "ol").get_attribute("textContent")
        assert_clean(browser)


@pytest.mark.slow
def test_new_run_appears_in_the_table_and_the_header(browser, server, database):
    open_page(browser, server, "#runs?sort=end&desc=1&q=model%3Drnn")
    wait(browser, "return document.querySelector('#run-filters output').textContent === '0 of 1 runs'")
    with open_store(database) as store:
        key = add_run(store, "rnn", 1, SETTINGS)
    wait(browser, "return document.querySelector(`tr[data-run='${arguments[0]}']`)", key)
    assert browser.find_element("css selector", ".masthead p").text.startswith("2 runs")
    states = "return [...document.querySelector('#run-filters').elements.status.options].map(({ text }) => text)"
    assert browser.execute_script(states) == ["all", "finished", "running"]
    assert browser.find_element("css selector", "#run-filters output").text == "1 of 2 runs"
    assert browser.execute_script("return document.querySelector('th[data-column=end]').ariaSort")
    assert_clean(browser)


@pytest.mark.slow
def test_page_of_a_run_is_updated(browser, server, database):
    with open_store(database) as store:
        (run,) = store.runs()
    open_page(browser, server, f"#run-{run.key}")
    wait(browser, LAST, "#run .plot")
    add_epoch(database, 11)
    assert wait(browser, LAST + " === 44", "#run .plot")
    assert_clean(browser)


def test_page_stays_when_the_database_cannot_be_read(browser, server, database, monkeypatch):
    open_page(browser, server, "#measured")
    wait(browser, LAST, "#measured .plot[data-figure=curves]")
    wait(browser, "return document.getElementById('pulse').textContent.startsWith('live, ')")

    def fail():
        raise OSError("the disk is gone")

    monkeypatch.setattr(server.page, "current", fail)
    pulse = "return document.getElementById('pulse').textContent"
    wait(browser, f"{pulse}.startsWith('the server is gone')")
    wait(browser, "return document.documentElement.dataset.live === 'off'")
    assert browser.execute_script("return window.before")
