"""What tests of pages do in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.pages import waiting


def open_page(browser, page: Path, fragment: str = "", size: tuple[int, int] | None = None) -> None:
    """Open a page, in a window of this width and height, and wait until its script has run."""
    if size:
        width, height = size
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get("about:blank")
    browser.get(page.as_uri() + fragment)
    wait(browser, "return 'ready' in document.documentElement.dataset")


def wait(browser, script: str, *arguments) -> Any:
    """Wait until a script returns something true, and return it."""
    return waiting(browser, 20).until(lambda _: browser.execute_script(script, *arguments))


def view(browser) -> str:
    """The name of the page in sight."""
    return browser.execute_script("return document.querySelector('.view:not([hidden])').id")


def follow(browser, fragment: str) -> None:
    """Change the address as a link does, and wait for the page."""
    before = browser.title
    browser.execute_script("location.hash = arguments[0]", fragment)
    wait(browser, "return document.title !== arguments[0]", before)


def rows(browser) -> list[str]:
    """The runs of the table that have rows now."""
    return browser.execute_script("return [...document.querySelectorAll('tr[data-run]')].map((row) => row.dataset.run)")


def problems(browser) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def open_chart(browser, title: str) -> None:
    """Open a tab of the shown condition's charts."""
    tabs = browser.find_elements("css selector", "#measured .filtered:not([hidden]) [role=tab]")
    next(tab for tab in tabs if tab.text == title).click()


def of_rows(browser, table: str, field: str) -> list[str]:
    """Return a data field of the rows of a table that are visible."""
    script = "return [...document.querySelectorAll(arguments[0])].filter((row) => row.offsetParent)"
    return browser.execute_script(f"{script}.map((row) => row.dataset[arguments[1]])", f"{table} tr[data-model]", field)
