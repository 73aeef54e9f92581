"""Compare stored runs, in one database or in two."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from orthobench.analysis.compare import Contrast, contrasts
from orthobench.analysis.compare_databases import ComparedDatabase, DatabaseComparison
from orthobench.analysis.compare_databases import compare_databases as compare_matches
from orthobench.api.opened import SomeResults, opened
from orthobench.errors import UsageError
from orthobench.options.arguments import ComparedValue, Database, Texts
from orthobench.options.checked import checked
from orthobench.settings.filters import read_conditions
from orthobench.store.merge import opened_unchanged
from orthobench.system.cycles import without_cycle_search
from orthobench.system.location import Location
from orthobench.training.settled import status_in


@checked
def compare(
    results: SomeResults,
    *selections: str,
    value: ComparedValue = "end",
    paired: bool | None = None,
    where: Texts = (),
    **conditions: Any,
) -> list[Contrast]:
    """Compare a selection of runs with others: their settings, environments, and the metric by a test over seeds.

    Args:
        results: open results, or a database.
        selections: the key of a run, or conditions such as "model=scornn,hidden_size=170", for each selection. The
            first one is the reference.
        value: the test value that represents a run: "end" is the median of the last tenth of its test values, "final"
            the last one, "best" the best one, "at_best_validation" the one at the best validation.
        paired: whether to pair the runs by seed. By default they are paired if they have enough seeds in common for
            a test: six, or more for several selections.
        where: conditions that restrict all selections.
        conditions: further conditions by name, such as `task="adding"`.

    Returns:
        The contrast between the first selection and each other one.

    Raises:
        UsageError: there are fewer than two selections, one is empty, their metrics differ, a finished run has no
            number, or the runs cannot be paired.
    """
    if len(selections) < 2:
        raise UsageError("name two selections, for example model=scornn model=lstm")
    shared = read_conditions(where, **conditions)
    with opened(results) as runs, without_cycle_search():
        return contrasts(runs.store, selections, shared, status_in(runs.store, runs.db), value, paired)


@checked
def compare_databases(
    first: Database,
    second: Database,
    *,
    value: ComparedValue = "end",
    paired: bool | None = None,
    where: Texts = (),
    **conditions: Any,
) -> DatabaseComparison:
    """Compare the runs of two databases, for example of two commits, that have the same task, model and settings.

    Neither database changes.

    Args:
        first: a file or an SQLAlchemy URL.
        second: another one.
        value: as for `compare`.
        paired: as for `compare`.
        where: conditions that restrict the runs of both databases.
        conditions: further conditions by name, such as `task="adding"`.

    Returns:
        The contrasts between runs that both have, and what only one of them has.

    Raises:
        UsageError: a database cannot be read, both names mean the same one, neither has such runs, a finished run has
            no number, or the runs cannot be paired.
    """
    places, restricted = list(map(Location.of, (first, second))), read_conditions(where, **conditions)
    if places[0].is_same(places[1]):
        raise UsageError(f"{first} and {second} are the same database: name two")
    with ExitStack() as stack, without_cycle_search():
        stores = [stack.enter_context(opened_unchanged(place)) for place in places]
        sides = [
            ComparedDatabase(str(place), store, status_in(store, place))
            for place, store in zip(places, stores, strict=True)
        ]
        return compare_matches(sides[0], sides[1], restricted, value, paired)
