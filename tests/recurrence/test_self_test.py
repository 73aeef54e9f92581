"""The self-test of the CUDA kernels: what it measures, its verdicts, and the fall-back. C kernels stand for CUDA's."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from orthobench.recurrence import (
    IDENTITY,
    MODRELU,
    TANH,
    Activation,
    BackendError,
    Kind,
    backends,
    gated_recurrence,
    gru,
    lstm,
    operation,
    recurrence,
    reference,
    use_backend,
)
from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.cpu import native as cpu
from orthobench.recurrence.cuda import backend as cuda
from orthobench.recurrence.cuda import self_test

pytestmark = pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")

MACHINE = {"device": "a fake GPU", "driver": "1.2.3", "code": "abc"}
GOOD = cpu.run


def example(operation: Any = recurrence, n: int = 20, batch: int = 5, *parameters: Any) -> Call:
    x, weight = torch.empty(1, batch, operation.gates * n), torch.empty(operation.rows * n, operation.sources * n)
    return operation.call(x, weight, tuple(torch.empty(batch, n) for _ in operation.states), None, *parameters)


def failure(call: Call, run: Callable[[Call], Result]) -> str | None:
    return self_test.failure(call, run)


def wrong_gradient(call: Call) -> Result:
    """Kernels whose values are right and whose gradients lack a thousandth."""
    first, final = reference.run(call)
    return first.detach() + 0.999 * (first - first.detach()), final


@pytest.fixture(autouse=True)
def _fake_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ORTHOBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(self_test, "machine", lambda device: MACHINE)
    self_test._known.clear()
    backends.forget_used()
    operation._logged.clear()
    yield
    self_test._known.clear()
    backends.forget_used()


def stored(tmp_path: Path) -> dict[str, str]:
    (file,) = (tmp_path / "self-tests").glob("*.json")
    content = json.loads(file.read_text())
    assert content["machine"] == MACHINE
    tests: dict[str, str] = content["tests"]
    return tests


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("step_size", [None, 0.1])
def test_right_kernels_pass_with_every_activation(kind: Kind, step_size: float | None) -> None:
    """The problems stay away from the kinks: no unit falls on the other side in float32."""
    activation = Activation(kind, epsilon=0.01)
    for n, batch in ((2, 1), (62, 130)):
        for bias in (None, torch.empty(activation.bias_size(n))):
            assert self_test.measure(GOOD, example(recurrence, n, batch, activation, bias, step_size)) is None


@pytest.mark.parametrize(
    ("operation", "parameters"), [(gated_recurrence, (0.1,)), (lstm, ()), (gru, ()), (gru, (torch.empty(20), True))]
)
def test_right_kernels_of_the_other_operations_pass(operation: Any, parameters: tuple[Any, ...]) -> None:
    assert self_test.measure(GOOD, example(operation, 20, 5, *parameters)) is None


def test_problems_stay_away_from_the_kinks() -> None:
    n, batch = 40, 64
    call = example(recurrence, n, batch, MODRELU, torch.empty(n))
    x, weight, h0, bias = self_test.problem(recurrence, call.parameters, n, batch)
    h = h0
    for x_t in x:
        z = x_t + h @ weight.T
        assert float(z.abs().min()) > 0.09
        assert float((z.abs() + bias).abs().min()) > 0.05
        assert 0.2 < float((z.abs() + bias > 0).double().mean()) < 0.8, "both sides of the kink"
        h = z.sign() * (z.abs() + bias).relu()


def test_wrong_gradient_fails_and_is_named() -> None:
    reason = failure(example(), wrong_gradient)
    assert reason is not None
    assert "kernels of recurrence failed" in reason
    assert "gradient of W" in reason
    assert "outputs" not in reason


def test_device_that_computes_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "__matmul__", lambda a, b: a.new_zeros(a.shape[0], b.shape[1]))
    assert "computes nothing" in str(self_test.measure(GOOD, example()))


def test_nan_fails() -> None:
    def spoilt(call: Call) -> Result:
        first, final = reference.run(call)
        return first * torch.nan, final

    assert "nan" in str(failure(example(), spoilt))


def test_verdict_is_stored_and_not_tested_again(tmp_path: Path) -> None:
    assert failure(example(), GOOD) is None
    assert stored(tmp_path) == {"recurrence": "passed"}
    self_test._known.clear()  # as in another process

    def forbidden(call: Call) -> Result:
        raise AssertionError("tested again")

    assert failure(example(), forbidden) is None
    assert failure(example(n=64), forbidden) is None, "another size"
    assert failure(example(lstm), GOOD) is None
    assert stored(tmp_path) == {"recurrence": "passed", "lstm": "passed"}
    self_test.forget(torch.device("cpu"))
    self_test._known.clear()
    assert failure(example(), wrong_gradient) is not None


@pytest.mark.parametrize("fact", MACHINE)
def test_another_driver_device_or_code_tests_again(fact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert failure(example(), GOOD) is None
    self_test._known.clear()
    monkeypatch.setattr(self_test, "machine", lambda device: MACHINE | {fact: "another"})
    assert failure(example(), wrong_gradient) is not None


def test_damaged_file_of_verdicts_tests_again(tmp_path: Path) -> None:
    failure(example(), GOOD)
    (file,) = (tmp_path / "self-tests").glob("*.json")
    for damage in ("", "[]", '{"tests": ["recurrence"]}'):
        file.write_text(damage)
        self_test._known.clear()
        assert failure(example(), wrong_gradient) is not None


def test_unwritable_cache_tests_in_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTHOBENCH_CACHE", "/dev/null/nowhere")
    assert failure(example(), GOOD) is None
    self_test._known.clear()
    assert failure(example(), wrong_gradient) is not None


def test_compiler_error_is_a_reason_and_the_next_process_retries(tmp_path: Path) -> None:
    def without_compiler(call: Call) -> Result:
        raise RuntimeError("Failed to find C compiler.\nPlease specify via CC environment variable.")

    reason = failure(example(), without_compiler)
    assert reason is not None
    assert reason.endswith("failed their self-test: RuntimeError: Failed to find C compiler.")
    assert not (tmp_path / "self-tests").exists()
    self_test._known.clear()
    assert failure(example(), GOOD) is None


def test_lack_of_memory_is_not_a_verdict(tmp_path: Path) -> None:
    def full(call: Call) -> Result:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        failure(example(), full)
    assert not (tmp_path / "self-tests").exists()


def test_kernel_that_breaks_the_context_is_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    def illegal(call: Call) -> Result:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(self_test, "is_broken", lambda device: True)
    with pytest.raises(RuntimeError, match=r"broke the GPU's context .*illegal memory.* run the same command again"):
        failure(example(), illegal)
    self_test._known.clear()
    assert "illegal memory access" in str(failure(example(), GOOD))


def test_switched_off_self_test_trusts_all_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(self_test.SWITCH, "off")
    assert failure(example(), wrong_gradient) is None


def on_gpu(activation: Activation = TANH) -> Call:
    """A call that says it is on a GPU; only its type, device and sizes can be read."""
    x: Any = SimpleNamespace(
        device=torch.device("cuda", 0), dtype=torch.float32, shape=torch.Size((1, 2, 4)), is_cuda=False
    )
    return Call(recurrence, x, torch.empty(4, 4), (torch.empty(2, 4),), {"activation": activation})


def test_auto_falls_back_with_one_warning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(cuda, "unsupported", lambda call: None)
    monkeypatch.setattr(self_test, "measure", lambda run, call: "is wrong by 1")
    with caplog.at_level(logging.WARNING, "orthobench.recurrence"):
        for _ in range(3):
            assert operation.choose(on_gpu()) == "reference"
    (message,) = [record.message for record in caplog.records]
    assert "the CUDA kernels of recurrence failed their self-test: is wrong by 1" in message
    assert "back end reference" in message


def test_passing_kernels_serve_and_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "unsupported", lambda call: None)
    monkeypatch.setattr(self_test, "measure", lambda run, call: None)
    assert backends.last_self_tests() is None
    assert operation.choose(on_gpu(IDENTITY)) == "cuda"
    record = backends.last_self_tests()
    assert record == MACHINE | {"tests": {"recurrence": "passed"}}
    backends.forget_used()
    assert backends.last_self_tests() is None


def test_requested_back_end_states_why_it_does_not_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "unsupported", lambda call: None)
    monkeypatch.setattr(cuda, "run", wrong_gradient)
    arguments = torch.zeros(3, 2, 4), torch.eye(4), (torch.zeros(2, 4),)
    with use_backend("cuda"), pytest.raises(BackendError, match=r"failed their self-test: differs .* gradient of W"):
        recurrence(*arguments)


def test_query_of_the_back_end_tests_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "unsupported", lambda call: None)
    monkeypatch.setattr(cuda, "run", wrong_gradient)
    with use_backend("cuda"):
        assert recurrence.chosen_backend(torch.zeros(1, 1, 4), torch.eye(4)) == "cuda"
