"""The search for cyclic garbage pauses while a report is made, and goes on afterwards."""

from __future__ import annotations

import gc

import pytest

from orthobench.reporting.account import account as accounts
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.page import html
from orthobench.system.cycles import without_cycle_search


def test_garbage_collection_pauses_and_resumes():
    with without_cycle_search():
        assert not gc.isenabled()
        with without_cycle_search():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_page_is_built_in_a_pause_and_an_error_ends_it(monkeypatch):
    seen: list[bool] = []

    def fail(*arguments: object) -> None:
        seen.append(gc.isenabled())
        raise LookupError

    monkeypatch.setattr(accounts, "load_views", fail)
    with pytest.raises(LookupError):
        html.build_page(None, Scope(), {})
    assert seen == [False]
    assert gc.isenabled()
