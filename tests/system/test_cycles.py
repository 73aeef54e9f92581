"""The search for cyclic garbage pauses while a report is made, and goes on afterwards."""

from __future__ import annotations

import gc

from orthobench.system.cycles import without_cycle_search


def test_garbage_collection_pauses_and_resumes():
    with without_cycle_search():
        assert not gc.isenabled()
        with without_cycle_search():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
