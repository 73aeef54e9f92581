"""A browser shows the page's views: addresses, access, scripts that may run, the matrix, and filters."""

from __future__ import annotations

import re

import pytest
from support.browsing import follow, of_rows, open_page, problems, view, wait

pytestmark = pytest.mark.browser


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


def test_filters_act_only_on_pages_that_show_them(browser, page):
    open_page(browser, page, "#measured?model=lstm")
    names = browser.execute_script(
        "return [...document.querySelectorAll('#measured tbody tr[data-model]')]"
        ".filter((row) => row.offsetParent).map((row) => row.dataset.model)"
    )
    assert set(names) == {"lstm"}
    follow(browser, "#overview")
    assert len(browser.find_elements("css selector", "#solves tbody tr")) >= 2


def test_matrix_is_sorted_filtered_and_names_the_command_of_an_empty_cell(browser, page):
    open_page(browser, page)
    original = of_rows(browser, "#solves", "model")
    heading = browser.find_element("css selector", "#solves thead th:nth-child(2) button")
    heading.click()
    scores = browser.execute_script(
        "return [...document.querySelectorAll('#solves tbody tr')]"
        ".map((row) => Number(row.cells[1].dataset.score ?? -1))"
    )
    assert scores == sorted(scores, reverse=True)
    assert heading.find_element("xpath", "..").get_attribute("aria-sort") == "descending"
    browser.find_element("css selector", "#solves thead th:nth-child(1) button").click()
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
    heading = browser.find_element("css selector", "#solves thead th:nth-child(2) span")
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
