"""Options of pytest for CI: a skip that nobody expects is a failure, and slow tests are run in turns."""

import re
import zlib
from collections.abc import Generator
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--strict-skips", action="store_true", help="fail tests that skip for no reason in allowed_skips")
    parser.addoption("--turn", metavar="K/N", help="run the Kth of N equal shares of the selected tests")
    parser.addini("allowed_skips", "regular expressions: the reasons that --strict-skips accepts", type="linelist")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of other turns. A hash of the test's name decides, so a new test moves no other one."""
    if not (turn := config.getoption("--turn")):
        return
    number, shares = map(int, turn.split("/"))
    if not 1 <= number <= shares:
        raise pytest.UsageError(f"--turn={turn}: give 1/{shares} to {shares}/{shares}")
    others = [item for item in items if zlib.crc32(item.nodeid.encode()) % shares != number - 1]
    items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % shares == number - 1]
    config.hook.pytest_deselected(items=others)


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
