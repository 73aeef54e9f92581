"""A browser shows the studies' figures: maps, panels, the complex plane; on a phone too."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pages import waiting

from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import open_store


@pytest.fixture
def page(orthobench, tiny, tiny_options) -> Path:
    """Toy dynamics, and a heat map and clouds of one small run."""
    orthobench("study", "toy-dynamics")
    probed = {"probes": "heat_map,jacobian"}
    orthobench("run", "adding", "enrnn", *tiny_options, "-s", "probes=heat_map,jacobian")
    key = resolve(Catalog(), "adding", "enrnn", tiny | probed).spec.key
    with open_store("results.db") as store:
        for name in ("heat-maps", "jacobians"):
            store.add_benchmark(f"study {name}", {"preset": "quick", "figures": {"a figure": [key]}}, {})
    return Path(orthobench("report", "--html").out.strip())


@pytest.mark.browser
@pytest.mark.slow
def test_browser_shows_the_studies(browser, page):
    browser.get(page.as_uri() + "#studies")
    marks = {"heat-maps": "g.heatmaplayer image", "jacobians": ".scatterlayer .trace", "toy-dynamics": "path.point"}
    parts = "document.querySelectorAll('#study-toy-dynamics :is(.pair, .finding, .claims)')"
    order = browser.execute_script(f"return [...{parts}].map(({{ className }}) => className)")
    assert order == ["pair panels", "finding", "claims"]
    for name, mark in marks.items():
        plots = browser.find_elements("css selector", f"#study-{name} .plot")
        assert plots
        for plot in plots:
            browser.execute_script("arguments[0].scrollIntoView()", plot)
            assert plot.size["height"] > 200
            waiting(browser, 20).until(lambda _, p=plot, m=mark: p.find_elements("css selector", m), name)
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    )
    browser.refresh()
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
