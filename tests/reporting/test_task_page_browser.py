"""A browser shows a task: the fullest condition, no trials, the chosen model in every chart, and nothing cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.browsing import open_page, wait
from support.pages import add_run

from orthobench.reporting.account.scope import Scope
from orthobench.reporting.page.html import write_html
from orthobench.store import open_store

pytestmark = pytest.mark.browser
MODELS = (
    *("lstm", "gru", "rnn", "scornn", "irnn", "exprnn", "enrnn", "dtriv", "nnrnn", "goru", "lem", "cornn", "lru"),
    *("urnn", "full_urnn", "eurnn", "ind_rnn", "deltanet", "rwkv7", "mlstm", "slstm", "antisymmetric"),
)
LAST = "antisymmetric"
DESKTOP = (1440, 900)
SHOWN = "#measured .filtered:not([hidden])"
PLOT = f"document.querySelector('{SHOWN} .chart:not([hidden]) .plot')"


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """A condition with 22 models, and one with two, of which one has 29 learning rates and the other one 3 seeds."""
    folder = tmp_path_factory.mktemp("tasks")
    with open_store(str(folder / "results.db"), create=True) as store:
        for number, model in enumerate(MODELS):
            add_run(store, model, 0, {"sequence_length": "10"}, final=0.01 * (1 + number))
        for number in range(29):
            settings = {"sequence_length": "12", "learning_rate": f"{1e-4 * (1 + number):.4g}"}
            add_run(store, "scornn", 0, settings, final=0.05 + 0.001 * number)
        for seed in range(3):
            add_run(store, "lstm", seed, {"sequence_length": "12"}, final=0.1)
        add_run(store, "lstm", 0, {"sequence_length": "12", "learning_rate": "0.5"}, final=0.02)
    with open_store(str(folder / "results.db")) as store:
        return write_html(store, folder / "page.html", Scope(), {})


def legend(browser) -> list[str]:
    wait(browser, f"return {PLOT}.drawn")
    entries = browser.find_elements("css selector", f"{SHOWN} .chart:not([hidden]) .legend button")
    return [entry.text for entry in entries]


def test_task_opens_on_the_condition_with_most_models_and_trials_stay_out(browser, page):
    open_page(browser, page, "#task-adding", DESKTOP)
    assert browser.find_element("css selector", "#conditions [aria-current]").text == "adding, T = 10"
    board = "const { scrollWidth, clientWidth } = document.querySelector('.filtered:not([hidden]) .tall');"
    assert browser.execute_script(f"{board} return scrollWidth <= clientWidth")
    browser.find_element("link text", "adding, T = 12").click()
    wait(browser, "return document.querySelector('#conditions [aria-current]').textContent === 'adding, T = 12'")
    assert sorted(legend(browser)) == ["LSTM", "baseline 0.1667", "scoRNN"]
    browser.find_element("xpath", "//label[text()='all variants']/input").click()
    wait(browser, f"return {PLOT}.data.filter(({{ name }}) => name?.startsWith('scoRNN')).length === 29")
    assert all("learning rate" in name for name in legend(browser) if name.startswith(("scoRNN", "LSTM")))


def test_chosen_model_stands_out_in_every_chart(browser, page):
    open_page(browser, page, "#task-adding", DESKTOP)
    condition = browser.find_element("css selector", SHOWN).get_attribute("id")
    open_page(browser, page, f"#{condition}?model={LAST}", DESKTOP)
    line = f"{PLOT}.data.find(({{ meta, line }}) => meta?.model === '{LAST}' && line.width)"
    assert wait(browser, f"return {PLOT}.drawn && {line}.line.width") == 4
    ink = browser.execute_script("return getComputedStyle(document.documentElement).getPropertyValue('--ink')")
    assert browser.execute_script(f"return {line}.line.color") == ink  # it has no colour of its own
    for title in ("Seeds", "Cost"):
        tabs = browser.find_elements("css selector", f"{SHOWN} [role=tab]")
        next(tab for tab in tabs if tab.text == title).click()
        wait(browser, f"return {PLOT}.drawn")
        sizes = f"""return Object.fromEntries([true, false].map((own) => [own, {PLOT}.data.filter(({{ meta }}) =>
            meta?.model && own === (meta.model === '{LAST}')).map(({{ marker }}) => marker.size)]))"""
        found = browser.execute_script(sizes)
        assert max(found["true"]) > max(found["false"])
    tabs = browser.find_elements("css selector", f"{SHOWN} [role=tab]")
    next(tab for tab in tabs if tab.text == "Seeds").click()
    rows = wait(browser, f"return {PLOT}.drawn && {PLOT}.layout.yaxis.ticktext")
    assert len(rows) == 21
    assert rows[-1] == "AntisymmetricRNN"


def test_page_of_a_model_has_one_condition_on_three_screens(browser, page):
    open_page(browser, page, "#model-lstm", DESKTOP)
    sections = browser.find_elements("css selector", "#measured .filtered")
    assert sum(section.is_displayed() for section in sections) == 1
    wait(browser, f"return {PLOT}.drawn && document.querySelector('#about table')")
    assert browser.execute_script("return document.documentElement.scrollHeight") <= 2700
    assert browser.find_element("css selector", "#about tbody th").text == "adding, T = 10"


def test_first_row_is_in_sight_at_200_percent(browser, page):
    for fragment, row in (("#task-adding", f"{SHOWN} .board tbody tr"), ("#matrix", "#solves tbody tr")):
        open_page(browser, page, fragment, (720, 450))
        bottom = browser.execute_script(f"return document.querySelector('{row}').getBoundingClientRect().bottom")
        assert 0 < bottom <= 450


def test_variant_with_three_seeds_stands_for_its_model_between_rivals(browser, page):
    """One seed of another learning rate is better, and so it is on the page of the task (`precedence`)."""
    open_page(browser, page, "#mine?model=lstm", DESKTOP)
    table = "[...document.querySelectorAll('[data-condition] tr[aria-current]')]"
    cells = "map((row) => [row.querySelector('.rank').textContent, row.cells[3].textContent])"
    assert ["2", "3 of 3"] in wait(browser, f"return {table}.length && {table}.{cells}")


def test_no_rule_asks_which_view_is_hidden(browser, page):
    """With such a rule (:has), Chromium styles the whole page again after each change, for seconds with 3,000 runs."""
    open_page(browser, page, "#task-adding", DESKTOP)
    rules = "[...document.styleSheets].flatMap(({ cssRules }) => [...cssRules]).map(({ cssText }) => cssText)"
    assert browser.execute_script(f"return {rules}.filter((text) => text.includes(':has(')).length") == 0
    width = "return getComputedStyle(document.querySelector('main')).maxWidth"
    wide = browser.execute_script(width)
    browser.execute_script("location.hash = '#runs'")
    wait(browser, f"{width} !== '{wide}'")
