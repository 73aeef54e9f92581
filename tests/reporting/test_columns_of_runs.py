"""A report of many runs: what it reads, and what it refuses before it reads anything."""

from __future__ import annotations

import pytest
from sqlalchemy import event
from support.pages import add_run

from orthobench.analysis.conditions import collect
from orthobench.errors import UsageError
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.write import write_report
from orthobench.store import open_store


@pytest.mark.parametrize("form", ["html", "csv", "reproduction"])
def test_folder_as_the_file_is_refused_before_the_database_is_read(tmp_path, form):
    with pytest.raises(UsageError, match=r"is a folder: name a file in it, such as .*report\."):
        write_report(None, form, Scope(), {}, tmp_path)  # type: ignore[arg-type]


def test_number_of_queries_does_not_grow_with_the_runs(tmp_path):
    assert queries(tmp_path / "one.db", 1) == queries(tmp_path / "four.db", 4)


def queries(file, seeds: int) -> int:
    """The number of SQL statements that collect the runs of these seeds."""
    statements: list[str] = []
    with open_store(str(file), create=True) as store:
        for seed in range(seeds):
            add_run(store, seed=seed)
        event.listen(store.engine, "before_cursor_execute", lambda _, __, text, *___: statements.append(text))
        (condition,) = collect(store)
    assert len(condition.variants[0].ends) == seeds
    return len(statements)
