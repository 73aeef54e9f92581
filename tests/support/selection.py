"""Which tests run: pairs of a grid's values, slow tests in turns; and a skip that nobody expects is a failure."""

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import combinations
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--strict-skips", action="store_true", help="fail tests that skip for no reason in allowed_skips")
    parser.addoption("--turn", metavar="K/N", help="run the Kth of N equal shares of the selected tests")
    parser.addoption("--whole-grids", action="store_true", help="run every case of tests marked as a grid")
    parser.addini("allowed_skips", "regular expressions: the reasons that --strict-skips accepts", type="linelist")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of other turns, and what a sample of a grid leaves out.

    A hash of a test's name decides its turn, so a new test moves no other one.
    """
    chosen = items if config.getoption("--whole-grids") else _sampled(items)
    if turn := config.getoption("--turn"):
        number, shares = map(int, turn.split("/"))
        if not 1 <= number <= shares:
            raise pytest.UsageError(f"--turn={turn}: give 1/{shares} to {shares}/{shares}")
        chosen = [item for item in chosen if zlib.crc32(item.nodeid.encode()) % shares == number - 1]
    selected = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in selected])
    items[:] = chosen


def _sampled(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests without those cases of grids whose pairs of values other cases have, too."""
    grids = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("grid") and hasattr(item, "callspec"):
            grids[item.parent, item.originalname].append(item)
    left_out = {
        case
        for cases in grids.values()
        for case in set(cases) - {cases[number] for number in pairwise([factors(case.callspec) for case in cases])}
    }
    return [item for item in items if item not in left_out]


def factors(callspec: Any) -> dict[str, Hashable]:
    """Return the values of a case by the names of its parameters; of a record, the values of its fields."""
    values: dict[str, Hashable] = {}
    for name, value in callspec.params.items():
        if is_dataclass(value) and not isinstance(value, type):
            shared = (field.name for field in fields(value) if field.name != "name")  # a name belongs to one record
            values |= {f"{name}.{field}": repr(getattr(value, field)) for field in shared}
        else:
            values[name] = repr(value) if isinstance(value, (str, int, float, bool, tuple, type(None))) else id(value)
    return values


def pairwise(cases: Sequence[Mapping[str, Hashable]]) -> list[int]:
    """Return the numbers of cases that together have every pair of values, chosen greedily: the most new pairs first.

    A case with one factor alone is a pair with itself, so that every value stays.
    """
    pairs: list[set[Any]] = [
        set(combinations(sorted(case.items(), key=lambda entry: entry[0]), 2)) or set(case.items()) for case in cases
    ]
    missing: set[Any] = set().union(*pairs)
    chosen = []
    while missing:
        best = max(range(len(cases)), key=lambda number: len(pairs[number] & missing))
        chosen.append(best)
        missing -= pairs[best]
    return sorted(chosen)


def _strict(report: Any, config: pytest.Config) -> Any:
    if report.skipped and not hasattr(report, "wasxfail") and config.getoption("--strict-skips"):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not any(re.fullmatch(allowed, reason) for allowed in config.getini("allowed_skips")):
            report.outcome = "failed"
            report.longrepr = f"skipped for a reason that allowed_skips of pyproject.toml does not name: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    return _strict((yield), item.config)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    return _strict((yield), collector.config)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many tests were skipped for each reason, which names the packages that they need."""
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if isinstance(report.longrepr, tuple)]
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    if reasons:
        terminalreporter.section("skipped")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:5} {reason}")
