"""The options that CI gives to pytest do what CI relies on."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.selection import factors, pairwise

TESTS = Path(__file__).parent

SKIPS = """
    import pytest

    @pytest.mark.skipif(True, reason="no GPU here")
    def test_marked(): ...

    def test_called():
        pytest.skip("without the server of 2 databases")

    def test_runs(): ...

    @pytest.mark.xfail
    def test_expected():
        assert False
"""
MODULE = """
    import pytest
    pytest.importorskip("nothing_of_this_name", reason="the extra is not installed")
    def test_never(): ...
"""


@pytest.fixture
def run(tmp_path: Path):
    """A function that runs pytest on the text of a file and returns its output."""

    def call(text: str, allowed: list[str], *options: str) -> str:
        lines = [line[4:] for line in text.splitlines()]
        (tmp_path / "test_here.py").write_text("\n".join(lines))
        (tmp_path / "pytest.ini").write_text("\n    ".join(["[pytest]\nmarkers = grid\nallowed_skips =", *allowed]))
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "support.selection", "-rA", *options]
        environment = {**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        return done.stdout + done.stderr

    return call


def test_unexpected_skip_is_a_failure(run) -> None:
    assert "1 passed, 2 skipped, 1 xfailed" in run(SKIPS, [])
    assert "1 failed, 1 passed, 1 xfailed, 1 error" in run(SKIPS, [], "--strict-skips")
    output = run(SKIPS, ["no GPU here"], "--strict-skips")
    assert "1 failed, 1 passed, 1 skipped, 1 xfailed" in output
    assert "does not name: without the server of 2 databases" in output
    assert "2 skipped" in run(SKIPS, ["no GPU here", r"without the server of \d databases"], "--strict-skips")


def test_summary_counts_the_skipped_tests_of_each_reason(run) -> None:
    output = run(SKIPS, [])
    lines = [line.strip() for line in output[output.index(" skipped ") :].splitlines()]
    assert {"1 no GPU here", "1 without the server of 2 databases"} <= {*lines}


def test_reason_is_compared_as_a_whole(run) -> None:
    assert "1 failed, 1 passed, 1 xfailed, 1 error" in run(SKIPS, ["no GPU", "server"], "--strict-skips")


def test_skipped_module_is_detected(run) -> None:
    assert "1 skipped" in run(MODULE, [])
    assert "1 error" in run(MODULE, [], "--strict-skips")
    assert "1 skipped" in run(MODULE, ["the extra is not installed"], "--strict-skips")


GRID = """
    import pytest

    @pytest.mark.grid
    @pytest.mark.parametrize("first", range(4))
    @pytest.mark.parametrize("second", ["a", "b", "c"])
    @pytest.mark.parametrize("third", [True, False, None])
    def test_sampled(first, second, third): ...

    @pytest.mark.parametrize("first", range(4))
    @pytest.mark.parametrize("second", range(3))
    def test_whole(first, second): ...
"""


def test_grid_runs_its_pairs_and_everything_on_request(run) -> None:
    """No two values of different parameters are left out together; a sample of 4 x 3 x 3 cases has 12 or a few more."""
    passed = re.findall(r"PASSED .*::test_sampled\[(\w+)-(\w)-(\d)\]", run(GRID, []))
    assert 12 <= len(passed) <= 15
    for first, second, count in ((0, 1, 9), (0, 2, 12), (1, 2, 12)):
        assert len({(case[first], case[second]) for case in passed}) == count
    assert run(GRID, []).count("::test_whole[") == 12
    assert "48 passed" in run(GRID, [], "--whole-grids")


def test_record_in_a_grid_counts_by_its_fields() -> None:
    @dataclass(frozen=True)
    class Case:
        op: str
        bias: bool

    cases = [{"case.op": repr(op), "case.bias": repr(bias)} for op in "ab" for bias in (True, False)]
    results = [factors(SimpleNamespace(params={"case": Case(op, bias)})) for op in "ab" for bias in (True, False)]
    assert results == cases
    assert pairwise(cases) == [0, 1, 2, 3]
    assert pairwise([{"n": 1}, {"n": 2}, {"n": 1}]) == [0, 1]


def test_turns_divide_the_tests(run) -> None:
    """Every test has exactly one turn."""
    text = "\n".join(f"    def test_{number}(): ..." for number in range(40))
    outputs = [run(text, [], f"--turn={turn}/3") for turn in (1, 2, 3)]
    names = [line.split("::")[1] for output in outputs for line in output.splitlines() if line.startswith("PASSED")]
    assert sorted(names) == sorted(f"test_{number}" for number in range(40))
    assert all(" passed, " in output for output in outputs)
    assert "give 1/3 to 3/3" in run(text, [], "--turn=4/3")
