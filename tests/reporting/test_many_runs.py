"""A page of 3,000 runs: every run is in its data, its table scrolls to the last one, and the file stays small."""

from __future__ import annotations

import pytest
from support.pages import add_run, table_of_runs

from orthobench.reporting.account.scope import Scope
from orthobench.reporting.page.html import write_html
from orthobench.store import open_store

COUNT = 3_000
LAST_ROW = """
const done = arguments[0], box = document.getElementById("run-table");
let steps = 0;
const step = () => {
  const rows = [...box.querySelectorAll("tr[data-run]")].map((row) => Number(row.getAttribute("aria-rowindex")));
  if (rows.some((row, number) => number && row !== rows[number - 1] + 1)) return done(rows);
  if (rows.at(-1) === arguments[1] || ++steps > 1000) return done(rows.at(-1));
  box.scrollTop += 1000;
  requestAnimationFrame(step);
};
requestAnimationFrame(step);
"""


@pytest.mark.slow
@pytest.mark.browser
def test_page_of_3000_runs_works(tmp_path, browser):
    with open_store(str(tmp_path / "results.db"), create=True) as store:
        for number in range(COUNT):
            settings = {"learning_rate": f"{1e-4 * (1 + number % 50):.4g}"}
            add_run(store, ("lstm", "rnn", "scornn")[number % 3], number // 50, settings, final=(1 + number) / COUNT)
        page = write_html(store, tmp_path / "page.html", Scope(), {})
    assert len({row["key"] for row in table_of_runs(page)}) == COUNT
    assert page.stat().st_size < 12e6
    browser.get(f"{page.as_uri()}#runs")
    browser.set_script_timeout(120)
    script = LAST_ROW.replace("arguments[1]", str(COUNT + 1))
    assert browser.execute_async_script(script) == COUNT + 1
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
