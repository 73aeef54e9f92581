"""A browser shows a cell under development: its runs, its place between rivals, and its newest version alone."""

from __future__ import annotations

import pytest
from support.pages import waiting

CELL = """
import torch

class MyCell(torch.nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.i, self.h = torch.nn.Linear(input_size, hidden_size), torch.nn.Linear(hidden_size, hidden_size)

    def forward(self, x, h):
        return torch.FUNCTION(self.i(x) + self.h(h))
"""


def edited(folder, function: str) -> None:
    (folder / "cell.py").write_text(CELL.replace("FUNCTION", function))


@pytest.fixture
def database(after, tiny_options, tmp_path):
    """Runs of two built-in models, and of a cell before and after an edit."""
    orthobench = after(("sweep", "adding", "--models", "scornn,lstm", "--seeds", "2", *tiny_options))
    for function, seeds in (("tanh", "2"), ("sigmoid", "1")):
        edited(tmp_path, function)
        orthobench("sweep", "adding", "--models", "./cell.py:MyCell", "--seeds", seeds, *tiny_options)
    return orthobench


def open_page(browser, page: str) -> None:
    browser.get("about:blank")
    browser.get(page)
    waiting(browser, 20).until(lambda page: page.execute_script("return 'ready' in document.documentElement.dataset"))


def rows(browser) -> list[list[str]]:
    table = "[...document.querySelectorAll('#mine tbody tr')]"
    return browser.execute_script(f"return {table}.map((row) => [...row.cells].map((cell) => cell.innerText.trim()))")


@pytest.mark.browser
def test_own_cell_stands_between_its_rivals_in_its_newest_version(browser, database):
    page = f"file://{database('report', '--html', '--label', 'cell.py:MyCell=Ours').out.strip()}"
    open_page(browser, page)
    browser.find_element("link text", "My cell").click()
    view = browser.find_element("id", "mine")
    assert view.find_element("tag name", "h2").text == "My cell: Ours"
    assert view.find_element("css selector", ".left-out").text.endswith("Ours: 2 runs")
    (card,) = view.find_elements("css selector", ".cards li")
    assert card.text.startswith("seed 0 ")
    assert card.find_element("css selector", "path.own").get_attribute("d").startswith("M4 ")
    shown = rows(browser)
    names = ["LSTM", "Ours", "baseline, without memory", "scoRNN"]
    assert sorted(row[0].lstrip("123").strip() for row in shown) == names
    values = [float(row[1]) for row in shown]
    assert values == sorted(values)  # lower is better
    (marked,) = view.find_elements("css selector", "tr[aria-current]")
    assert marked.find_element("css selector", "strong").text == "Ours"
    assert marked.find_elements("tag name", "td")[2].text == "1 of 1"
    assert "paper" not in view.text
    command = view.find_element("tag name", "pre").text
    assert command.startswith("orthobench sweep adding --models ./cell.py:MyCell --seeds 3 -s ")
    database(*command.split()[1:])
    assert "cell.py:MyCell,3\n" in database("report", "--format", "csv", "--columns", "model,seeds").out
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.browser
def test_any_model_has_this_page_and_a_model_without_runs_has_none(browser, database):
    page = f"file://{database('report', '--html', '--all-versions').out.strip()}"
    open_page(browser, f"{page}#mine?model=lstm")
    assert browser.find_element("css selector", "#mine h2").text == "LSTM among its nearest rivals"
    assert [row[0] for row in rows(browser) if "version 1+" in row[0]] != []  # one of the two versions is a rival
    open_page(browser, f"{page}#mine?model=gru")
    assert browser.find_element("css selector", "#missing h2").text == "No such page"


def test_earlier_versions_are_left_out_of_tables_and_counted(database, caplog):
    words = "left out: runs of earlier versions, which `all_versions` shows: cell.py:MyCell: 2 runs"
    chosen = ("report", "--format", "csv", "--columns", "model,seeds")
    newest = database(*chosen)
    assert "cell.py:MyCell,1\n" in newest.out
    assert newest.out.count("MyCell") == 1
    assert caplog.messages == [words]
    whole = database(*chosen, "--all-versions")
    assert whole.out.count("MyCell") == 2
    assert caplog.messages == [words]
