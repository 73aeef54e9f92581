"""`orthobench bench` as its users meet it, small; nothing here looks at how long anything took."""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path

import pytest
import torch

from orthobench.bench.implementations import implementations
from orthobench.bench.memory import peak_of_step
from orthobench.bench.shapes import SHAPES, Shape
from orthobench.bench.suite import MultiplyAdd, Setup, measure_recurrences
from orthobench.plugins import Catalog
from orthobench.recurrence import backends
from orthobench.recurrence.cpu import call_c, library
from orthobench.store import open_store

STEP_PARTS = runpy.run_path(str(Path(__file__).parents[2] / "workshop" / "benchmarks" / "step_parts.py"))


def test_table_is_printed_and_saved(orthobench):
    outcome = orthobench("bench", "--quick", "--rounds", "1")
    assert outcome.code == 0
    for word in (*SHAPES, "eager loop", "nn.LSTM", "sgemm", "are not meaningful"):
        assert word in outcome.out
    with open_store("results.db") as store:
        (record,) = store.benchmarks("recurrence")
    assert record.environment.facts["packages"]["torch"]
    assert [shape_result["shape"]["name"] for shape_result in record.results["shapes"]] == list(SHAPES)


def test_json_output_equals_the_saved_results(orthobench):
    outcome = orthobench("bench", "--quick", "--rounds", "1", "--json", "--shape", "lstm-128", "--shape", "adding-200")
    printed = json.loads(outcome.out)
    with open_store("results.db") as store:
        (record,) = store.benchmarks()
    assert printed["benchmark"] == record.id
    assert printed["environment"] == record.environment.facts
    assert {name: printed[name] for name in record.results} == record.results
    assert (printed["quick"], printed["device"], printed["rounds"]) == (True, "cpu", 1)
    for shape_result in printed["shapes"]:
        rows = {row["implementation"]: row for row in shape_result["rows"]}
        eager, product, peak = rows["eager loop"], rows["sgemm"], rows["FMA peak"]
        for name, row in rows.items():
            assert row["of_sgemm"] == pytest.approx(row["gflops"] / product["gflops"])
            assert row["of_peak"] == pytest.approx(row["gflops"] / peak["gflops"])
            if name not in ("sgemm", "FMA peak"):
                assert row["ratio"] == pytest.approx(eager["seconds"] / row["seconds"])


@pytest.mark.parametrize("shape", ["adding-200", "lstm-128"])
def test_timed_step_equals_the_training_step(shape):
    """The graph is cut at W; gradients and the update stay the same, bit for bit."""
    timed = STEP_PARTS["TimedStep"](SHAPES[shape].small())
    steps = (timed, implementations(SHAPES[shape].small(), torch.device("cpu"))["cpu"]())
    for step in steps:
        step()
    pairs = zip(timed.step.network.parameters(), steps[1].network.parameters(), strict=True)
    for actual, expected in pairs:
        assert torch.equal(actual, expected)
        assert torch.equal(actual.grad, expected.grad)
    parts = timed.steps[0]
    assert parts.keys() >= {"forward", "backward", "weight gradient"}
    assert sum(parts.values()) == pytest.approx(2 * parts["whole step"])


def test_results_include_self_test_verdicts():
    setup, machine = Setup(torch.device("cpu")), {"device": "a fake GPU", "driver": "580.65.06"}

    def measure():
        backends.record_self_test("recurrence", "passed", machine)
        return [{"rows": []}]

    results = setup.results(measure)
    assert results["self_tests"] == machine | {"tests": {"recurrence": "passed"}}
    assert setup.results(list)["self_tests"] is None, "those of an earlier benchmark are not in the next"


def test_models_are_compared_at_equal_size_and_at_table_3_sizes(orthobench):
    outcome = orthobench("bench", "--models", "--quick", "--rounds", "1", "--json")
    results = json.loads(outcome.out)
    assert results["clock"] == ("cpu" if results["threads"] == 1 else "wall")
    common, table = results["shapes"]
    assert {row["model"] for row in common["rows"]} == {e.name for e in Catalog() if e.kind == "model"}
    assert {row["hidden_size"] for row in common["rows"]} == {128}
    for rows in (common["rows"], table["rows"]):
        scornn = {row["hidden_size"]: row["seconds"] for row in rows if row["model"] == "scornn"}
        for row in rows:
            assert row["minutes"] == pytest.approx(row["seconds"] * 1100 / 60)
            assert row["ratio"] == pytest.approx(row["seconds"] / scornn[row["hidden_size"]])
    printed = {(row["model"], row["hidden_size"]): row["printed"] for row in table["rows"]}
    assert (printed["scornn", 170], printed["lstm", 512], printed["scornn", 116]) == (5.3, 5.6, None)
    assert "x scornn" in orthobench("bench", "--models", "--quick", "--rounds", "1").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--models", "--shape", "lstm-128"), "--models has its own shapes"),
        (("--shape", "mnist-17"), "unknown shape 'mnist-17': did you mean mnist-170"),
        (("--device", "cuda"), "no CUDA device"),
        (("--rounds", "0"), "Invalid value"),
        (("--db", "nowhere/r.db"), "no folder"),
        (("--db", "sqlite://"), "would be lost at the end"),
    ],
)
def test_invalid_input_is_one_line(orthobench, arguments, message, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    outcome = orthobench("bench", "--quick", *arguments)
    assert outcome.code == 2
    assert message in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_unavailable_back_end_is_named_with_the_reason(orthobench, monkeypatch):
    monkeypatch.setattr(call_c, "missing", lambda: "there is no C compiler")
    outcome = orthobench("bench", "--quick", "--rounds", "1", "--shape", "adding-200")
    assert outcome.code == 0
    assert "adding-200: without cpu: " in outcome.out
    assert "adding-200: without FMA peak: " in outcome.out
    assert "there is no C compiler" in outcome.out


@pytest.mark.parametrize("name", library.usable_variants())
def test_peak_measurement_computes_and_counts_its_work(name, monkeypatch):
    """Chain i starts at i, and x <- x / 2 + 1 takes it to i / 2 + 1, then i / 4 + 3 / 2."""
    monkeypatch.setenv("ORTHOBENCH_MARCH", name)
    kernels = library.load()
    lanes = kernels.vector_length()
    chains = kernels.multiply_add_flops() // (2 * lanes)
    out = torch.empty(lanes)
    for repeats, expected in ((0, lambda i: i), (1, lambda i: i / 2 + 1), (2, lambda i: i / 4 + 1.5)):
        kernels.multiply_add(repeats, 0.5, 1.0, out.data_ptr())
        assert out.tolist() == [sum(map(expected, range(chains)))] * lanes


def test_peak_covers_all_threads():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        work = MultiplyAdd(quick=True)
        work.out.fill_(torch.nan)
        work()
        assert work.gflop == pytest.approx(3e-9 * 1000 * work.library.multiply_add_flops())
        assert torch.equal(
            work.out, torch.full_like(work.out, 2.0 * (work.library.multiply_add_flops() // (2 * len(work.out[0]))))
        )
    finally:
        torch.set_num_threads(before)


def test_denormal_mode_is_restored():
    before = bool(torch.tensor(1e-40) * 1 == 0)
    try:
        for flushed in (True, False):
            torch.set_flush_denormal(flushed)
            measure_recurrences([SHAPES["adding-200"]], Setup(torch.device("cpu"), rounds=1, quick=True))
            assert bool(torch.tensor(1e-40) * 1 == 0) == flushed
    finally:
        torch.set_flush_denormal(before)


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="the system resets no peak memory")
@pytest.mark.slow
def test_eager_loop_memory_is_at_least_its_states():
    shape = Shape("memory", 64, 400, 1, 64, 1)
    peak = peak_of_step(shape, "eager loop", threads=1)
    assert peak > 4 * shape.batch * shape.steps * shape.hidden
