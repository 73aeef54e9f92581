"""A browser shows the first screen without scrolling, answers its question, and keeps the headings of the matrix."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver.support.ui import Select
from support.browsing import open_page, wait
from support.databases import RunDatabase, experiment

from orthobench.reporting.account.commentary import Commentary
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.page.html import write_html
from orthobench.store import open_store

pytestmark = pytest.mark.browser
MODELS = ("scornn", "exprnn", "enrnn", "dtriv", "nnrnn", "lstm", "gru", "goru", "rnn", "irnn", "lem", "cornn", "lru")
TITLE = "Orthogonal cells copy"


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """Thirteen models on four tasks, with three seeds each; the LSTM has one on copying."""
    folder = tmp_path_factory.mktemp("first")
    with open_store(str(folder / "results.db"), create=True) as store:
        database = RunDatabase(store)
        for number, model in enumerate(MODELS):
            for task, settings in (("formal_language", {"language": "parity"}), ("group_word", {"group": "S3"})):
                own = experiment(model, "last", []).model_copy(update={"task": task, "task_settings": settings})
                for seed in range(3):
                    database.run(own, seed, test=[0.6] * 4)
            for task in ("adding", "copying"):
                own = experiment(model, "last", []).model_copy(update={"task": task})
                for seed in range(1 if (model, task) == ("lstm", "copying") else 3):
                    database.run(own, seed, test=[0.2 * (number + 0.1 * seed) / len(MODELS)] * 4)
        lead = 'Of [12](REPRODUCTION.md#abilities "row") cells.'
        return write_html(store, folder / "page.html", Scope(), {}, Commentary(title=TITLE, lead=lead))


def box(browser, selector: str) -> dict[str, float]:
    return browser.execute_script(f"return document.querySelector('{selector}').getBoundingClientRect().toJSON()")


def test_desktop_shows_all_of_it_without_scrolling(browser, page):
    open_page(browser, page, size=(1440, 900))
    assert browser.find_element("css selector", ".first h2").text == TITLE
    assert browser.find_element("css selector", ".first .lead").text == "Of 12 cells."  # without the link of the check
    for part in (".abilities", "#ask"):
        assert 0 < box(browser, part)["bottom"] <= 900
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")


def test_phone_shows_three_columns_and_both_lists(browser, page):
    open_page(browser, page, size=(390, 844))
    headings = browser.find_elements("css selector", ".abilities thead th")
    names = ["adding, T = 10", "copying, T = 10", "parity", "words over S3"]
    assert [heading.text.split("\n")[0] for heading in headings[1:]] == names
    for selector in (".abilities thead th:nth-child(4)", "#ask [name=first]", "#ask [name=second]"):
        assert 0 < box(browser, selector)["right"] <= 390
        assert box(browser, selector)["bottom"] <= 844
    assert browser.execute_script("return document.documentElement.scrollWidth") == 390


def test_question_is_answered_for_the_chosen_cells(browser, page):
    """The scores are 100 less a thirteenth for each model before, so that the RNN has 38 and scoRNN 100."""
    open_page(browser, page, size=(1440, 900))
    first, second = (
        Select(browser.find_element("css selector", f"#ask [name={name}]")) for name in ("first", "second")
    )
    assert [each.first_selected_option.text for each in (first, second)] == ["scoRNN", "LSTM"]
    second.select_by_visible_text("RNN")
    answers = [node.text.split("\n") for node in browser.find_elements("css selector", "#ask dd:nth-of-type(even)")]
    assert answers == [["yes, in every seed", "3 and 3 seeds, p = 0.1"]] * 2 + [["seeds overlap", "3 and 3 seeds"]] * 2
    command = browser.find_element("css selector", "#ask code").text
    assert command == "orthobench compare-tuned -t adding,copying --models scornn,rnn --seeds 4"
    first.select_by_visible_text("RNN")
    second.select_by_visible_text("scoRNN")
    words = browser.find_element("css selector", "#ask").text
    assert (words.count("no, in every seed"), "yes" in words) == (2, False)
    second.select_by_visible_text("LSTM")
    assert "too few seeds\n3 and 1 seeds" in browser.find_element("css selector", "#ask").text
    second.select_by_visible_text("RNN")
    assert "the same cell" in browser.find_element("css selector", "#ask").text


def test_matrix_is_one_click_away_and_keeps_its_headings(browser, page):
    open_page(browser, page, size=(1440, 500))
    browser.find_element("link text", "Every model on 4 tasks").click()
    wait(browser, "return document.querySelector('#solves').getBoundingClientRect().height")
    assert browser.find_element("css selector", "nav a[aria-current]").text == "Every model"
    scrolled = "const node = document.querySelector('#matrix .scroll'); node.scrollTop = 200; return node.scrollTop"
    assert browser.execute_script(scrolled) > 50
    top = box(browser, "#matrix .scroll")["top"]
    assert box(browser, "#solves thead th:nth-child(2)")["top"] == pytest.approx(top, abs=2)
    assert box(browser, "#solves tbody tr")["top"] < top
