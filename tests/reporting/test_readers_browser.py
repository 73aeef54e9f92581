"""A browser answers three questions of readers from the first screen: who wins, is this number true, how is my cell."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.browsing import open_page, wait
from support.pages import add_run
from support.records import columns_of

from orthobench.papers import find_paper
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.page.html import write_html
from orthobench.spec.index import built_in
from orthobench.store import open_store

pytestmark = pytest.mark.browser
SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
IN_SIGHT = """
const [selector, words] = arguments;
const fits = (node) => node.textContent.includes(words) && node.offsetParent;
const box = [...document.querySelectorAll(selector)].find(fits)?.getBoundingClientRect();
return Boolean(box?.height) && box.top >= 0 && box.bottom <= innerHeight && box.left >= 0 && box.left < innerWidth;
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """Runs of two models on four lengths, of a published number, and of a cell from a file."""
    folder = tmp_path_factory.mktemp("readers")
    paper = find_paper("helfrich2018")
    (printed,) = [
        each
        for each in paper.experiments_in("table 1")
        if each.label == "scoRNN, n = 170" and not each.task_settings["permuted"]
    ]
    with open_store(str(folder / "results.db"), create=True) as store:
        for seed in range(3):
            for length in ("10", "12", "14", "16"):
                settings = {"sequence_length": length, "hidden_size": "8"}
                add_run(store, "lstm", seed, settings, final=0.001 * (1 + seed))
                add_run(store, "rnn", seed, settings, final=0.1 + 0.001 * seed)
            code = {"plugins": [{"name": "cell.py:MyCell", "revision": "abc", "path": "cell.py", "files": {}}]}
            key = add_run(store, "gru", seed, settings | {"sequence_length": "10"}, final=0.05, environment=code)
            run = next(run for run in store.runs() if run.key == key)
            own = {"model": "cell.py:MyCell", "model_version": "1+abc"}
            store.update(run.id, columns_of(run.spec | own))
            add_run(store, printed.model, seed, task=printed.task, final=0.96 + 0.001 * seed, experiment=printed)
    with open_store(str(folder / "results.db")) as store:
        return write_html(store, folder / "page.html", Scope(), built_in()["variants"])


@pytest.fixture(params=SIZES)
def first_screen(browser, page, request):
    """The page as a reader finds it, on a desktop and on a phone."""
    open_page(browser, page, size=SIZES[request.param])
    return browser


def click(browser, selector: str, words: str) -> None:
    """Click what is on the screen already: nobody scrolls to find it."""
    assert browser.execute_script(IN_SIGHT, selector, words), (selector, words)
    next(node for node in browser.find_elements("css selector", selector) if words in node.text).click()


def test_model_that_wins_a_task_is_one_click_away(first_screen):
    click(first_screen, ".ways a", "Which model wins a task")
    wait(first_screen, IN_SIGHT, "#task-list .note", "adding, T = 10: LSTM in first place; MSE 0.00")
    click(first_screen, "#task-list .note a", "adding, T = 10")
    wait(first_screen, IN_SIGHT, ".headline", "LSTM in first place")


def test_cell_of_the_matrix_leads_to_the_ranking(first_screen):
    if first_screen.execute_script("return innerWidth") < 500:
        return  # a phone's first screen ends above the matrix
    click(first_screen, "#solves tr[data-model=lstm] td:not(.unrun) a", "")
    wait(first_screen, IN_SIGHT, ".headline", "LSTM in first place")
    wait(first_screen, IN_SIGHT, ".board tbody tr", "LSTM")


def test_verdict_and_interval_of_a_published_number_are_one_click_away(first_screen):
    click(first_screen, ".ways a", "Published numbers")
    for selector, words in (
        (".numbers tbody th", "scoRNN, n = 170"),
        (".numbers td", " ["),
        (".numbers .verdict", ""),
    ):
        wait(first_screen, IN_SIGHT, selector, words)


def test_own_cell_between_its_rivals_is_one_click_away(first_screen):
    click(first_screen, ".ways a", "Your own cell")
    wait(first_screen, IN_SIGHT, "#mine h2", "My cell")
    wait(first_screen, IN_SIGHT, "#mine tr[aria-current]", "cell.py:MyCell")
