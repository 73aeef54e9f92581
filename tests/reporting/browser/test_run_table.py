"""A browser shows the table of runs, the page of a run, runs next to each other, and searches."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from support.browsing import open_page, problems, rows, wait
from support.pages import add_run
from support.records import columns_of

from orthobench.reporting.account.scope import Scope
from orthobench.reporting.page.html import write_html
from orthobench.store import open_store

pytestmark = pytest.mark.browser
SETTINGS = {"sequence_length": "10", "hidden_size": "8"}
HOSTILE = "$(touch hacked); 'quoted'"


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


def test_commands_are_quoted_for_a_shell(browser, after, tiny_options, tmp_path):
    """The shell reads the command back as the words that the page means, whatever is in a value."""
    orthobench = after(("run", "adding", "rnn", *tiny_options))
    with open_store(str(tmp_path / "results.db")) as store:
        run = store.runs()[0]
        spec = run.spec | {"task_settings": run.spec["task_settings"] | {"marker_layout": HOSTILE}}
        store.update(run.id, columns := columns_of(spec))
    page = Path(orthobench("report", "--html").out.strip())
    open_page(browser, page, f"#run-{columns['key']}")
    command = browser.find_element("css selector", "#run > pre").text
    assert f"marker_layout={HOSTILE}" in shlex.split(command)


@pytest.mark.slow
def test_runs_of_a_variant_share_a_colour_where_runs_are_compared(browser, page, keys):
    open_page(browser, page, f"#compare?runs={keys['other']},{keys['failed']},{keys['good']}")
    wait(browser, "return document.querySelector('#compare .plot').drawn")
    lines = browser.execute_script("return document.querySelector('#compare .plot').data.map(({ line }) => line)")
    (first, second, other), *_ = [[(line["color"], line["dash"]) for line in lines[:3]]]
    assert first[0] == second[0] != other[0]
    assert first[1] != second[1]
