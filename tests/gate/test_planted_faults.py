"""The table of planted faults fits the code, so that `make faults` can plant each one."""

from __future__ import annotations

import os

import pytest
from gate import planted_faults
from gate.planted_faults import FAULTS, Fault, by_gate, plant
from support.checkout import ROOT, copy_checkout

from orthobench.gate.baseline import read_baseline
from orthobench.recurrence.cpu.library import INSTRUCTIONS, usable_variants

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


def test_every_file_of_kernels_has_a_fault_that_the_gate_sees():
    """Those of `ops` by hand, and those that are derived from the steps of cells."""
    folder = ROOT / "orthobench" / "recurrence"
    files = {str(file.relative_to(ROOT)) for file in (*folder.glob("ops/*/*.c"), *folder.glob("cpu/generated/*.c"))}
    assert len(files) > 20
    assert files - {fault.file for fault in FAULTS if fault.runs} == set()


PLANTED = [fault for fault in FAULTS if fault.name.endswith(("cornn.c", "delta.c", "minimal.c", "oscillators.c"))]
"""Not all files, because `make faults` plants the others: the quickest to compile, and delta.c, which Adam once hid."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the checkout with kernels for this machine, in which the faults' runs pass."""
    folder = tmp_path_factory.mktemp("planted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planted_faults, "COPY", folder)
        patch.setenv(INSTRUCTIONS, os.environ.get(INSTRUCTIONS, usable_variants()[0]))
        copy_checkout(folder)
        assert not by_gate(tuple(run for fault in PLANTED for run in fault.runs))
        yield folder


@pytest.mark.slow
@pytest.mark.parametrize("fault", PLANTED, ids=[fault.name for fault in PLANTED])
def test_gate_fails_on_nine_tenths_of_a_gradient(copy, fault: Fault):
    file = copy / fault.file
    right = file.read_text("utf-8")
    plant(file, right.replace(fault.old, fault.new))
    try:
        assert by_gate(fault.runs)
    finally:
        file.write_text(right, "utf-8")  # the next fault's build compiles it again
