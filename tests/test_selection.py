"""The options that CI gives to pytest do what CI relies on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
        (tmp_path / "pytest.ini").write_text("\n    ".join(["[pytest]\nallowed_skips =", *allowed]))
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "support.selection", "-rA", *options]
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        return done.stdout + done.stderr

    return call


def test_an_unexpected_skip_is_a_failure(run) -> None:
    assert "1 passed, 2 skipped, 1 xfailed" in run(SKIPS, [])
    assert "1 failed, 1 passed, 1 xfailed, 1 error" in run(SKIPS, [], "--strict-skips")
    found = run(SKIPS, ["no GPU here"], "--strict-skips")
    assert "1 failed, 1 passed, 1 skipped, 1 xfailed" in found
    assert "does not name: without the server of 2 databases" in found
    assert "2 skipped" in run(SKIPS, ["no GPU here", r"without the server of \d databases"], "--strict-skips")


def test_a_reason_is_compared_as_a_whole(run) -> None:
    assert "1 failed, 1 passed, 1 xfailed, 1 error" in run(SKIPS, ["no GPU", "server"], "--strict-skips")


def test_a_module_that_skips_is_seen(run) -> None:
    assert "1 skipped" in run(MODULE, [])
    assert "1 error" in run(MODULE, [], "--strict-skips")
    assert "1 skipped" in run(MODULE, ["the extra is not installed"], "--strict-skips")


def test_turns_share_the_tests(run) -> None:
    """Every test has exactly one turn."""
    text = "\n".join(f"    def test_{number}(): ..." for number in range(40))
    outputs = [run(text, [], f"--turn={turn}/3") for turn in (1, 2, 3)]
    names = [line.split("::")[1] for output in outputs for line in output.splitlines() if line.startswith("PASSED")]
    assert sorted(names) == sorted(f"test_{number}" for number in range(40))
    assert all(" passed, " in output for output in outputs)
    assert "give 1/3 to 3/3" in run(text, [], "--turn=4/3")
