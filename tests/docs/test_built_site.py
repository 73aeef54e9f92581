"""The built site: whole, offline, readable on a phone and in the dark; `make docs` builds it as strictly as this."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from support.pages import waiting

pytest.importorskip("mkdocs", reason="the extra orthobench[docs] is not installed")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
REPORT = Path("reports", "reference.html")
"""The report on the reference results. Its links to itself are routes of its script (see `tests/reporting`)."""
FETCHED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src"}
"""The elements whose attribute a browser fetches by itself."""

FOUND_FIRST = {
    "install": "start.html",
    "docker": "start.html",
    "windows": "start.html",
    "hyperparameter": "train.html",
    "early stopping": "train.html",
    "error bars": "comparison.html",
}
"""What people search for, and the first page that the search should find."""


class Page(HTMLParser):
    """The ids, the links and the fetched addresses of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if (address := values.get(FETCHED.get(tag, ""))) and values.get("rel") not in ("canonical", "next", "prev"):
            self.fetched.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    return {path.resolve(): Page(path.read_text("utf-8")) for path in site.rglob("*.html")}


def is_remote(address: str) -> bool:
    return address.startswith("//") or urlsplit(address).scheme in ("http", "https")


def test_internal_links_resolve_to_files_and_anchors(site, pages):
    broken = []
    for path, page in pages.items():
        for link in () if path == (site / REPORT).resolve() else page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].ids if target in pages else set()
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in anchors):
                broken.append((str(path.relative_to(site.resolve())), link))
    assert broken == []
    assert len(pages) > 90


def test_no_page_fetches_from_the_network(site, pages):
    assert [address for page in pages.values() for address in page.fetched if is_remote(address)] == []
    for sheet in site.rglob("*.css"):
        text = sheet.read_text("utf-8")
        assert re.findall(r"url\(['\"]?((?:https?:)?//[^)]*)\)", text) == []
        assert "@import" not in text


def test_every_page_has_content_and_no_raw_markup(pages, site):
    for path in pages.keys() - {(site / REPORT).resolve()}:
        text = path.read_text("utf-8")
        article = re.search(r"<article.*?</article>", text, re.S)
        assert article or path.name == "404.html"
        plain = re.sub(r"<(pre|code).*?</\1>", "", article[0] if article else "", flags=re.S)
        assert not re.search(r"\\[<|_*]|^\| ---|^:::|\]\(", plain, re.M), path


def test_report_is_a_page_of_the_site(site):
    with closing(sqlite3.connect(f"file:{ROOT / 'results.db'}?mode=ro", uri=True)) as database:
        (count,) = database.execute("SELECT count(*) FROM run").fetchone()
    assert f"{count:,} runs" in (site / REPORT).read_text("utf-8")
    assert f'href="../{REPORT.as_posix()}"' in (site / "results" / "index.html").read_text("utf-8")


@pytest.mark.browser
def test_browser_reads_and_searches_the_site_from_disk(site, chromium):
    """The search works too, whose worker browsers refuse to pages from the disk."""
    from selenium.webdriver.common.by import By

    for kind in ("browser", "performance"):
        chromium.get_log(kind)
    for name in ("index.html", "models/scornn.html", "commands/sweep.html", "papers/helfrich2018.html"):
        for width, scheme in ((1300, "light"), (390, "dark")):
            metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
            chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            feature = {"name": "prefers-color-scheme", "value": scheme}
            chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            chromium.get((site / name).as_uri())
            assert chromium.execute_script("return document.documentElement.scrollWidth") <= width, name
            background = chromium.execute_script("return getComputedStyle(document.body).backgroundColor")
            lightness = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
            assert (lightness > 200) == (scheme == "light"), (name, background)
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.get((site / "models" / "scornn.html").as_uri())
    formula = chromium.find_element(By.CSS_SELECTOR, ".equation math")
    assert formula.size["height"] > 10
    bars = "return [...document.querySelectorAll('.equation')].map((box) => box.offsetWidth - box.clientWidth)"
    assert set(chromium.execute_script(bars)) == {0}  # none has a scrollbar at its side
    box = chromium.find_element(By.CSS_SELECTOR, "input.md-search__input")
    chromium.execute_script("arguments[0].focus()", box)
    box.send_keys("scaled Cayley")
    results = waiting(chromium, 30).until(
        lambda browser: [
            link.get_attribute("href") for link in browser.find_elements(By.CSS_SELECTOR, "a.md-search-result__link")
        ]
    )
    assert any("models/scornn.html" in link for link in results)
    first = "return document.querySelector('a.md-search-result__link')?.href.includes(arguments[0])"
    for words, wanted in FOUND_FIRST.items():
        chromium.get((site / "index.html").as_uri())
        box = chromium.find_element(By.CSS_SELECTOR, "input.md-search__input")
        chromium.execute_script("arguments[0].focus()", box)
        box.send_keys(words)
        waiting(chromium, 30).until(lambda browser, name=wanted: browser.execute_script(first, name))
    messages = [json.loads(entry["message"])["message"] for entry in chromium.get_log("performance")]
    requested = {
        message["params"]["request"]["url"] for message in messages if message["method"] == "Network.requestWillBeSent"
    }
    assert {url for url in requested if is_remote(url)} == set()
    assert [entry["message"] for entry in chromium.get_log("browser")] == []
