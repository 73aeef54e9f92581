"""The history of the gate: where a number got worse, and what still passes."""

from __future__ import annotations

import re

import pytest

from orthobench.reporting.account.regressions import gated_numbers, regressions
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.page.html import write_html
from orthobench.reporting.page.sparks import GATE_HEIGHT, MARGIN
from orthobench.store.tables import CHECK

BAND = r'class="band" x="[^"]+" y="([^"]+)" width="[^"]+" height="([^"]+)"'


def add_check(store, commit: str, **metrics) -> None:
    """Record a check of the run adding/lstm; `metrics` have the values now, the verdict and the better direction."""
    findings = [
        {"run": "adding/lstm", "metric": name, "verdict": verdict, "reason": "", "direction": direction}
        | {"before": [0.2, 0.4], "now": now, "allowed": 0.1}
        for name, (now, verdict, direction) in metrics.items()
    ]
    store.add_benchmark(CHECK, {"findings": findings}, {"commit": commit * 10, "dirty": commit == "dd"})


@pytest.fixture
def store(database):
    add_check(database.store, "aa", mse=([0.3, 0.3], "same", "min"), recall=([0.3], "same", "max"))
    add_check(database.store, "bb", mse=([0.5, 0.7], "worse", "min"), recall=([0.25], "same", "max"))
    add_check(database.store, "cc", mse=([0.6], "worse", "min"), recall=([], "missing", "max"))
    add_check(database.store, "dd", mse=([0.3], "same", "min"), recall=([0.1], "worse", "max"))
    return database.store


def test_number_regresses_where_it_was_not_worse_before(store):
    found = {number.metric: [check.commit for check in number.regressions] for number in gated_numbers(store)}
    assert found == {"mse": ["bb" * 4 + "b"], "recall": ["dd" * 4 + "d+"]}
    assert [number.metric for number, _ in regressions(gated_numbers(store))] == ["recall", "mse"]


def test_commit_is_that_of_the_checked_repository_and_of_older_records_that_of_orthobench(database):
    facts = {"commit": "0" * 40, "dirty": True}
    for recorded in ({"commit": "12345678901+changes"}, {"commit": "12345678901"}, {"commit": ""}, {}):
        finding = {"run": "adding/lstm", "metric": "mse", "verdict": "worse"}
        database.store.add_benchmark(CHECK, {"findings": [finding]} | recorded, facts)
    (number,) = gated_numbers(database.store)
    assert [check.commit for check in number.checks] == ["123456789+", "123456789", "no commit", "000000000+"]


def test_limit_is_on_the_worse_side_of_the_baseline(store):
    limits = {number.metric: number.newest.limit for number in gated_numbers(store)}
    assert limits == {"mse": pytest.approx(0.4), "recall": pytest.approx(0.2)}


def test_page_draws_the_history(store, tmp_path):
    page = write_html(store, tmp_path / "page.html", Scope(), {}).read_text("utf-8")
    assert page.count('class="gate"') == 2
    assert page.count('class="worse"') == 3  # the missing value has no mark
    assert page.count('class="dot" cx') == 4
    assert 'href="#regressions"' in page
    heights = [(float(top), float(top) + float(size)) for top, size in re.findall(BAND, page)]
    assert len(heights) == 8
    assert sorted({bottom for _, bottom in heights})[-1] == GATE_HEIGHT - MARGIN  # of mse all that is lower passes
    assert min(top for top, _ in heights) == MARGIN  # and of recall all that is higher
