"""The cluster kernels without a GPU: their numbers and races by emulation, and what the compiler makes of them.

The emulation has a thread for each thread of a cluster, so most cases have a small cluster or few steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from support.emulation import NO_WAITS, Emulator, emulate, emulated, runner, sanitizes
from support.machine_code import check_limits, machine_code
from torch import Tensor

from orthobench.recurrence import (
    LEAKY_RELU,
    MODRELU,
    RELU,
    TANH,
    Activation,
    Kind,
    comparison,
    gru,
    lstm,
    recurrence,
    reference,
)
from orthobench.recurrence.call import Call
from orthobench.recurrence.cuda import backend as cuda
from orthobench.recurrence.cuda import nvrtc, nvrtc_cluster, nvrtc_row, self_test, verdicts
from orthobench.recurrence.cuda.nvrtc_cluster import (
    GRU_SOURCE,
    LSTM_SOURCE,
    PLAIN_SOURCE,
    RESET_SOURCE,
    THREADS,
    Layout,
)

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Case:
    """A call; `processors` are those of the device, which choose the rows of a cluster."""

    operation: Any
    n: int
    parameters: dict[str, Any]
    vectors: tuple[str, ...] = ()
    steps: int = 3
    batch: int = 3
    processors: int = 132
    traced: bool = True

    def __str__(self) -> str:
        kinds = [str(value.kind) for value in self.parameters.values() if isinstance(value, Activation)]
        return "-".join((self.operation.name, *kinds, str(self.n), *self.vectors))


AFTER = {"reset_after": True}
EULER = {"activation": Activation(Kind.MODRELU, epsilon=0.01), "step_size": 0.3}
CASES = [
    Case(recurrence, 200, {"activation": MODRELU}, ("bias",)),
    Case(recurrence, 193, EULER, ("bias",), steps=2, batch=5, processors=8, traced=False),
    Case(recurrence, 256, {"activation": LEAKY_RELU}, batch=9, processors=8),
    Case(recurrence, 230, {"activation": RELU}, steps=1, batch=1, traced=False),
    Case(recurrence, 260, {"activation": TANH, "step_size": 0.1}, steps=2, batch=5, processors=16),
    Case(recurrence, 512, {"activation": MODRELU}, ("bias",), steps=2, batch=2),
    Case(lstm, 1, {}, steps=1, batch=1),
    Case(lstm, 20, {}, steps=5),
    Case(lstm, 64, {}, processors=2, traced=False),
    Case(lstm, 100, {}, processors=4),
    Case(lstm, 140, {}, steps=2, batch=5, processors=16, traced=False),
    Case(gru, 30, AFTER),
    Case(gru, 128, AFTER, ("candidate_bias",), batch=5, processors=4),
    Case(gru, 133, AFTER, ("candidate_bias",), steps=2, traced=False),
    Case(gru, 33, {}),
    Case(gru, 128, {}, batch=5, processors=4, traced=False),
    Case(gru, 130, {}, steps=2, batch=5, processors=16),
]


def arguments_of(form: Case) -> list[Tensor]:
    parameters = {**form.parameters, **{name: torch.empty(form.n) for name in form.vectors}}
    x, *others = self_test.problem(form.operation, parameters, form.n, form.batch)
    return [x.repeat(-(-form.steps // len(x)), 1, 1)[: form.steps], *others]


def evaluate(form: Case, run: self_test.Run, dtype: torch.dtype) -> dict[str, Tensor]:
    return comparison.evaluate(
        run, form.operation, form.parameters, form.vectors, arguments_of(form), dtype, form.traced
    )


def kernel(form: Case) -> self_test.Run:
    return runner(nvrtc_cluster.KERNELS[form.operation.name])


def emulated_on(form: Case, monkeypatch: pytest.MonkeyPatch, *options: str) -> Emulator:
    monkeypatch.setattr(nvrtc_cluster.launch, "processors", lambda device: form.processors)
    return emulate(monkeypatch, *options)


@emulated
@pytest.mark.parametrize("form", CASES, ids=str)
def test_values_and_gradients_are_the_references(form: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator = emulated_on(form, monkeypatch)
    actual = evaluate(form, kernel(form), torch.float32)
    expected = evaluate(form, reference.run, torch.float64)
    errors = {name: comparison.distance(actual[name], value) for name, value in expected.items()}
    assert {name: error for name, error in errors.items() if not error < 1e-6} == {}
    assert len(emulator.launches) == (2 if form.traced else 3), "a launch for each pass"


def test_the_cases_have_clusters_of_each_size_and_all_numbers_of_rows() -> None:
    layouts = [
        (form, nvrtc_cluster.plain(form.n) if form.operation is recurrence else nvrtc_cluster.gated_forward(form.n))
        for form in CASES
    ]
    assert {layout.blocks for _, layout in layouts} == {1, 2, 4, 8}
    chosen = {layout.choose(form.batch, form.processors) for form, layout in layouts if form.operation is recurrence}
    assert chosen >= {1, 4, 8}


@emulated
@pytest.mark.parametrize(
    "form",
    [
        Case(recurrence, 80, {"activation": MODRELU}, ("bias",), batch=1),
        Case(lstm, 34, {}, batch=1),
        Case(gru, 34, AFTER, batch=1),
        Case(gru, 34, {}, batch=1),
    ],
    ids=str,
)
def test_no_thread_reads_what_another_writes_without_a_wait(form: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster of two blocks, since the sanitizer is slow; the protocol is the same for any number."""
    if not sanitizes():
        pytest.skip("g++ has no thread sanitizer that runs here")
    monkeypatch.setattr(nvrtc_cluster, "plain", lambda n: Layout(2, 16, 8, 4, (1,)))
    monkeypatch.setattr(nvrtc_cluster, "gated_forward", lambda n: Layout(2, 4, 12, 1, (1,)))
    monkeypatch.setattr(nvrtc_cluster, "gated_backward", lambda n: Layout(2, 16, 12, 4, (1,)))
    monkeypatch.setattr(nvrtc_cluster, "reset_before", lambda n: Layout(2, 8, 8, 2, (1,)))
    for options, is_sound in (((), True), (NO_WAITS, False)):
        emulator = emulated_on(form, monkeypatch, "-fsanitize=thread", *options)
        evaluate(form, kernel(form), torch.float32)
        assert ("data race" not in emulator.errors) == is_sound, emulator.errors[:2000]


@emulated
def test_each_run_of_a_launch_has_its_own_matrix_and_the_numbers_that_it_has_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs, steps, batch, n = 2, 3, 3, 200
    emulator = emulate(monkeypatch)
    macros = nvrtc_cluster.plain(n).constants(2) | {"COLUMNS": 4} | nvrtc_row.form(MODRELU, False, False, False)

    def states(x: Tensor, weight: Tensor, h0: Tensor, bias: Tensor) -> Tensor:
        result, count = torch.empty_like(x), len(weight)
        clusters = count * -(-batch // 2)
        sizes = (steps, batch, count, n)
        emulator.load(PLAIN_SOURCE, x.device, macros).launch(
            "cluster_forward", 4 * clusters, THREADS, (x, weight, h0, bias, result, result, *sizes, 0.0, 0.0, 0.0)
        )
        return result

    x, weight = comparison.normal(steps, runs, batch, n, seed=0).float(), comparison.normal(runs, n, n, seed=1).float()
    h0, bias = comparison.normal(runs, batch, n, seed=2).float(), comparison.normal(runs, n, seed=3).float()
    weight /= n**0.5
    together = states(x.flatten(1, 2), weight, h0.flatten(0, 1), bias).view(steps, runs, batch, n)
    for run in range(runs):
        alone = states(x[:, run].contiguous(), weight[run : run + 1], h0[run], bias[run : run + 1])
        assert torch.equal(together[:, run], alone)
        own = [each.double() for each in (x[:, run], weight[run], h0[run], bias[run])]
        exact, _ = reference.run(recurrence.call(*own[:2], (own[2],), None, MODRELU, own[3]))
        assert comparison.distance(alone, exact) < 1e-6


@emulated
def test_the_rows_of_a_cluster_do_not_change_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for processors in (132, 8, 4):
        form = Case(recurrence, 200, {"activation": MODRELU}, ("bias",), batch=4, processors=processors)
        emulator = emulated_on(form, monkeypatch)
        results.append(evaluate(form, kernel(form), torch.float32))
        macros = emulator.launches[0][3]
        assert macros["ROWS"] * macros["PASSES"] == {132: 1, 8: 2, 4: 4}[processors]
    for name, value in results[0].items():
        assert all(torch.equal(value, other[name]) for other in results[1:]), name


def test_the_rows_are_the_fewest_with_which_all_clusters_run_at_once() -> None:
    layout = nvrtc_cluster.plain(512)
    assert [layout.choose(batch, 132) for batch in (1, 16, 17, 50, 64, 65, 128, 1000)] == [1, 1, 2, 4, 4, 8, 8, 8]


@pytest.mark.parametrize("n", [1, 15, 64, 65, 100, 128, 129, 200, 256])
def test_a_gated_cluster_holds_the_whole_matrix(n: int) -> None:
    for layout, inputs, columns in (
        (nvrtc_cluster.gated_forward(n), n, 4 * n),
        (nvrtc_cluster.gated_backward(n), 4 * n, n),
    ):
        check_layout(layout, inputs, columns)


@pytest.mark.parametrize("n", [1, 64, 65, 128, 129, 256])
def test_a_cluster_with_two_products_a_step_holds_the_whole_matrix(n: int) -> None:
    layout = nvrtc_cluster.reset_before(n)
    assert layout.groups * layout.depth >= n
    assert layout.blocks * 8 * (32 // layout.groups) * 2 >= n
    assert 6 * layout.depth <= 128
    assert 4 * layout.at_once <= layout.groups


@pytest.mark.parametrize("n", [193, 200, 256, 257, 360, 511, 512])
def test_a_plain_cluster_holds_the_whole_matrix(n: int) -> None:
    check_layout(nvrtc_cluster.plain(n), n, n)


def check_layout(layout: Layout, inputs: int, columns: int) -> None:
    assert layout.groups * layout.depth >= inputs
    assert layout.blocks * 8 * (32 // layout.groups) * 4 >= columns
    assert layout.depth % 4 == 0
    assert 4 * layout.depth <= 128, "registers of W"
    for rows in layout.rows:
        constants = layout.constants(rows)
        assert constants["ROWS"] * constants["PASSES"] == rows
        assert 4 * constants["ROWS"] <= layout.groups


@pytest.fixture(scope="session")
def _nvrtc() -> None:
    try:
        nvrtc.library()
    except nvrtc.NvrtcError as error:
        pytest.skip(str(error))


PLAIN_FORM = {"COLUMNS": 4, **nvrtc_row.form(MODRELU, False, False, False)}


# The last number is the most instructions of a step, a few above those of NVRTC 13.0.
@pytest.mark.usefixtures("_nvrtc")
@pytest.mark.parametrize(
    ("source", "name", "layout", "rows", "instructions"),
    [
        (PLAIN_SOURCE, "cluster_forward", nvrtc_cluster.plain(256), 4, 445),
        (PLAIN_SOURCE, "cluster_backward", nvrtc_cluster.plain(256), 4, 445),
        (PLAIN_SOURCE, "cluster_forward", nvrtc_cluster.plain(360), 4, 605),
        (PLAIN_SOURCE, "cluster_backward", nvrtc_cluster.plain(360), 4, 605),
        (PLAIN_SOURCE, "cluster_forward", nvrtc_cluster.plain(512), 4, 745),
        (PLAIN_SOURCE, "cluster_backward", nvrtc_cluster.plain(512), 4, 745),
        (PLAIN_SOURCE, "cluster_forward", nvrtc_cluster.plain(512), 8, 1430),
        (PLAIN_SOURCE, "cluster_backward", nvrtc_cluster.plain(512), 8, 1430),
        (LSTM_SOURCE, "lstm_forward", nvrtc_cluster.gated_forward(128), 1, 330),
        (LSTM_SOURCE, "lstm_forward", nvrtc_cluster.gated_forward(128), 2, 610),
        (LSTM_SOURCE, "lstm_forward", nvrtc_cluster.gated_forward(256), 4, 970),
        (LSTM_SOURCE, "lstm_backward", nvrtc_cluster.gated_backward(128), 2, 490),
        (LSTM_SOURCE, "lstm_backward", nvrtc_cluster.gated_backward(256), 4, 820),
        (GRU_SOURCE, "gru_forward", nvrtc_cluster.gated_forward(256), 4, 950),
        (GRU_SOURCE, "gru_backward", nvrtc_cluster.gated_backward(256), 4, 840),
        (RESET_SOURCE, "reset_forward", nvrtc_cluster.reset_before(128), 2, 500),
        (RESET_SOURCE, "reset_forward", nvrtc_cluster.reset_before(256), 4, 770),
        (RESET_SOURCE, "reset_backward", nvrtc_cluster.reset_before(128), 2, 500),
        (RESET_SOURCE, "reset_backward", nvrtc_cluster.reset_before(256), 4, 800),
    ],
)
def test_a_step_is_short_and_spills_nothing(
    source: Path, name: str, layout: Layout, rows: int, instructions: int, tmp_path: Path
) -> None:
    form = PLAIN_FORM if source is PLAIN_SOURCE else nvrtc_cluster._pass(name.endswith("forward"))
    code = machine_code(source, name, layout.constants(rows) | form, tmp_path)
    check_limits(code, THREADS)
    products = (6 if source is RESET_SOURCE else 4) * layout.depth * rows
    assert products <= code.loop["FFMA"] <= products + 12 + 20 * rows
    assert code.loop["MEMBAR"] == code.loop["UCGABAR_ARV"] == code.loop["BAR"] == 0, "no barrier, no fence"
    assert sum(code.loop.values()) <= instructions


@pytest.mark.usefixtures("_nvrtc")
@pytest.mark.parametrize("architecture", ["sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize(
    "source", [PLAIN_SOURCE, LSTM_SOURCE, GRU_SOURCE, RESET_SOURCE], ids=lambda source: source.stem
)
def test_it_compiles_for_every_architecture_with_clusters(source: Path, architecture: str) -> None:
    if source is PLAIN_SOURCE:
        form = {"COLUMNS": 4, **nvrtc_row.form(LEAKY_RELU, True, True, True)}
        forms = [form | nvrtc_cluster.plain(512).constants(8)]
    else:
        is_reset = source is RESET_SOURCE
        forward, backward = (
            nvrtc_cluster.reset_before(256) if is_reset else layout(256)
            for layout in (nvrtc_cluster.gated_forward, nvrtc_cluster.gated_backward)
        )
        forms = [
            nvrtc_cluster._pass(True) | forward.constants(1),
            nvrtc_cluster._pass(False, True, True) | backward.constants(2),
        ]
    for form in forms:
        assert nvrtc.compile_source(source.read_text(), source.name, architecture, form)[:4] == b"\x7fELF"


def call(operation: Any, n: int, *parameters: Any) -> Call:
    x, weight = torch.empty(1, 2, operation.gates * n), torch.empty(operation.rows * n, n)
    result: Call = operation.call(x, weight, tuple(torch.empty(2, n) for _ in operation.states), None, *parameters)
    return result


def test_it_serves_what_it_has_on_devices_with_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    has_clusters = True
    monkeypatch.setattr(nvrtc_cluster, "has_clusters", lambda device: has_clusters)
    served = [
        call(recurrence, 193),
        call(recurrence, 512),
        call(lstm, 1),
        call(lstm, 256),
        call(gru, 256),
        call(gru, 1),
    ]
    others = [call(recurrence, 192), call(recurrence, 513), call(lstm, 257), call(gru, 257, None, True)]
    others.append(call(recurrence, 300, Activation(Kind.COMPLEX_MODRELU, epsilon=0.01)))
    assert all(nvrtc_cluster.serves(each) for each in served)
    assert not any(nvrtc_cluster.serves(each) for each in others)
    assert [list(cuda.runs(each)) for each in (served[0], others[0], others[1])] == [
        ["cluster", "triton"], ["nvrtc", "triton"], ["triton"],
    ]  # fmt: skip
    monkeypatch.setenv(verdicts.SWITCH, "off")
    assert list(cuda.runs(served[0])) == ["triton"], "it never serves untested"
    has_clusters = False
    assert not any(nvrtc_cluster.serves(each) for each in served)


def test_a_device_has_clusters_from_capability_9_on(monkeypatch: pytest.MonkeyPatch) -> None:
    capability = (8, 9)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert not nvrtc_cluster.has_clusters(torch.device("cuda", 0))
    capability = (9, 0)
    assert nvrtc_cluster.has_clusters(torch.device("cuda", 0))
    assert not nvrtc_cluster.has_clusters(torch.device("cpu"))


def test_where_it_fails_its_self_test_tritons_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    tested: list[str] = []

    def failure(call: Any, run: Any, kernels: str) -> str | None:
        tested.append(kernels)
        return "is wrong" if kernels == "cluster" else None

    monkeypatch.setattr(nvrtc_cluster, "has_clusters", lambda device: True)
    monkeypatch.setattr(verdicts, "failure", failure)
    assert cuda.unusable(call(lstm, 128)) is None
    assert tested == ["cluster", "triton"]
