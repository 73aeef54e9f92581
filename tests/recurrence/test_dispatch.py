"""Which back end serves, what is said about it, and what is recorded."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from orthobench.recurrence import (
    MODRELU,
    Activation,
    BackendError,
    Kind,
    backends,
    cornn,
    diagonal_recurrence,
    gru,
    last_used,
    lem,
    lipschitz,
    lstm,
    operation,
    recurrence,
    set_backend,
    use_backend,
)
from orthobench.recurrence.cpu import call_c, library

X, W, H = torch.randn(3, 2, 4), torch.eye(4), (torch.zeros(2, 4),)


def run(name: str, *arguments: Any) -> torch.Tensor:
    """The outputs of the plain recurrence by one back end."""
    with use_backend(name):
        return recurrence(*arguments)[0]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    backends.forget_used()
    yield
    set_backend("auto")


@pytest.fixture
def _no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def forget() -> None:
        for function in (call_c.missing, call_c.kernels):
            function.cache_clear()
        operation._logged.clear()

    monkeypatch.setattr(library, "FOLDER", tmp_path)
    forget()
    yield
    forget()


@pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")
def test_auto_selects_the_fastest() -> None:
    assert recurrence.chosen_backend(X, W) == "cpu"
    assert recurrence.chosen_backend(X.double(), W.double()) == "reference"
    recurrence(X, W, H)
    assert last_used() == {"cpu"}
    recurrence(X.double(), W.double(), (H[0].double(),))
    assert last_used() == {"cpu", "reference"}


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_back_end_is_selected_by_call_context_and_default(name: str) -> None:
    expected = run("reference", X, W, H)
    backends.forget_used()
    torch.testing.assert_close(run(name, X, W, H), expected)
    assert last_used() == {name}
    with use_backend(name):
        assert recurrence.chosen_backend(X, W) == name
        with use_backend("reference"):
            assert recurrence.chosen_backend(X, W) == "reference"
        assert recurrence.chosen_backend(X, W) == name
    set_backend(name)
    assert recurrence.chosen_backend(X, W) == name


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_final_state_of_every_back_end_matches(name: str) -> None:
    x, weight = torch.randn(3, 2, 8 * 4), torch.randn(32, 8)
    zeros = (torch.zeros(2, 8), torch.zeros(2, 8))
    with use_backend(name):
        outputs, (h, c) = lstm(x, weight, zeros)
        _, halfway = lstm(x[:2], weight, zeros)
        _, (resumed_h, resumed_c) = lstm(x[2:], weight, halfway)
    assert torch.equal(outputs[-1], h)
    assert torch.equal(resumed_h, h)
    assert torch.equal(resumed_c, c)


def test_diagonal_recurrence_uses_dispatch() -> None:
    u, decay, start = torch.randn(9, 2, 4), torch.full((4,), 0.5), (torch.zeros(2, 4),)
    results = []
    for name, server in (("auto", "cpu"), ("cpu", "cpu"), ("reference", "reference")):
        backends.forget_used()
        with use_backend(name):
            results.append(diagonal_recurrence(u, decay, start)[0])
        assert last_used() == {server}
    torch.testing.assert_close(results[1], results[2])
    assert diagonal_recurrence.chosen_backend(u.double(), decay.double()) == "reference"


def test_operation_without_a_c_kernel_uses_the_reference() -> None:
    x, weight, cell_weight = torch.randn(3, 2, 16), torch.randn(16, 4), torch.eye(4)
    assert lstm.chosen_backend(x, weight) == "cpu"
    assert lstm.chosen_backend(x, weight, cell_weight) == "reference"
    with use_backend("cpu"), pytest.raises(BackendError, match="the C kernel of lstm has no cell_weight"):
        lstm(x, weight, (*H, *H), None, cell_weight)


def test_unavailable_back_end_states_the_reason() -> None:
    with pytest.raises(ValueError, match="float32, not float64"):
        run("cpu", X.double(), W.double(), (H[0].double(),))
    with pytest.raises(ValueError, match="slope"):
        run("cpu", X, W, H, None, Activation(Kind.LEAKY_RELU, slope=-1.0))
    with pytest.raises(ValueError, match="cuda cannot serve"):
        run("cuda", X, W, H)
    with pytest.raises(ValueError, match="one of auto, reference"):
        run("gpu", X, W, H)
    with pytest.raises(ValueError, match="unknown"):
        set_backend("gpu")


def test_fallback_is_reported_once_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    operation._logged.clear()
    with caplog.at_level(logging.INFO, "orthobench.recurrence"):
        for _ in range(2):
            recurrence(X, W, H, None, Activation(Kind.LEAKY_RELU, slope=-1.0))
    assert [record.message for record in caplog.records if "slope" in record.message] == [
        "recurrence: not on back end cpu: leaky ReLU with a negative slope: its output does not show its side"
    ]
    assert last_used() == {"reference"}


@pytest.mark.parametrize(
    ("operation", "parameters"),
    [(cornn, (0.1, 1.0, 1.0)), (lem, (0.1,)), (lipschitz, (0.1,)), (gru, (None, True, MODRELU))],
    ids=lambda value: getattr(value, "name", None),
)
def test_operation_without_gpu_kernels_uses_the_reference(operation: Any, parameters: Any) -> None:
    on_gpu: Any = SimpleNamespace(is_cuda=True, device=torch.device("cuda"), dtype=torch.float32)
    assert operation.chosen_backend(on_gpu, on_gpu, *parameters) == "reference"


@pytest.mark.usefixtures("_no_library")
def test_reference_serves_without_a_library_and_warns(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "orthobench.recurrence"):
        for _ in range(2):
            recurrence(X, W, H)
    (message,) = [record.message for record in caplog.records]
    assert "the C kernels are not built" in message
    assert "slower" in message
    assert last_used() == {"reference"}
    with pytest.raises(ValueError, match="are not built"):
        run("cpu", X, W, H)
