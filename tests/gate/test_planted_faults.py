"""The table of planted faults fits the code, so that `make faults` can plant each one."""

from __future__ import annotations

import pytest
from gate.planted_faults import FAULTS
from support.checkout import ROOT

from orthobench.gate.baseline import read_baseline

UNSEEN_BY_THE_GATE = {
    "mean over the padding as well",
    "tolerance of exact runs in the metric's unit",
    "margin left out of the ranks",
}
"""No built-in task reads the mean of the states; and a gate that is wrong cannot be its own judge."""


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_every_fault_has_its_text_tests_and_runs(fault):
    assert (ROOT / fault.file).read_text("utf-8").count(fault.old) == 1
    assert fault.tests
    for target in fault.tests:
        file, _, name = target.partition("::")
        assert f"def {name or 'test_'}" in (ROOT / file).read_text("utf-8")
    assert set(fault.runs) <= {run.name for run in read_baseline(ROOT / "checks" / "baseline.toml").run if run.exact}
    assert fault.runs or fault.name in UNSEEN_BY_THE_GATE


def test_faults_are_distinct():
    assert (
        len({fault.name for fault in FAULTS})
        == len({(fault.file, fault.old, fault.new) for fault in FAULTS})
        == len(FAULTS)
    )
