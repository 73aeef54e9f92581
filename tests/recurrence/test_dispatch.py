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
    Activation,
    Kind,
    build,
    dispatch,
    last_used,
    lstm,
    native,
    recurrence,
    set_backend,
    use_backend,
)

X, W, H = torch.randn(3, 2, 4), torch.eye(4), torch.zeros(2, 4)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    dispatch.forget_used()
    yield
    set_backend("auto")


@pytest.fixture
def _no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def forget() -> None:
        for function in (native.missing, native.kernels, build.library):
            function.cache_clear()
        dispatch._said.clear()

    monkeypatch.setenv("ORTHOBENCH_CACHE", str(tmp_path))
    monkeypatch.setenv("CC", "/nowhere/cc")
    forget()
    yield
    forget()


@pytest.mark.skipif(bool(native.missing()), reason="no C compiler")
def test_auto_takes_the_fastest() -> None:
    assert dispatch.chosen("recurrence", X, W) == "cpu"
    assert dispatch.chosen("recurrence", X.double(), W.double()) == "reference"
    recurrence(X, W, H)
    assert last_used() == {"cpu"}
    recurrence(X.double(), W.double(), H.double())
    assert last_used() == {"cpu", "reference"}


@pytest.mark.parametrize("name", ["reference", "portable", "cpu"])
def test_asking_in_each_way(name: str) -> None:
    expected = recurrence(X, W, H, backend="reference")
    dispatch.forget_used()
    torch.testing.assert_close(recurrence(X, W, H, backend=name), expected)
    assert last_used() == {name}
    with use_backend(name):
        assert dispatch.chosen("recurrence", X, W) == name
        assert dispatch.chosen("recurrence", X, W, backend="reference") == "reference"
        with use_backend("portable"):
            assert dispatch.chosen("recurrence", X, W) == "portable"
        assert dispatch.chosen("recurrence", X, W) == name
    set_backend(name)
    assert dispatch.chosen("recurrence", X, W) == name


@pytest.mark.parametrize("name", ["reference", "portable", "cpu"])
def test_last_state_of_every_back_end(name: str) -> None:
    x, weight = torch.randn(3, 2, 8 * 4), torch.randn(32, 8)
    full = lstm(x, weight, torch.zeros(2, 8), torch.zeros(2, 8), backend=name)
    last = lstm(x, weight, torch.zeros(2, 8), torch.zeros(2, 8), backend=name, last=True)
    for states, state in zip(full, last, strict=True):
        assert torch.equal(states[-1], state)


def test_what_cannot_serve_says_why() -> None:
    with pytest.raises(ValueError, match="float32, not float64"):
        recurrence(X.double(), W.double(), H.double(), backend="cpu")
    with pytest.raises(ValueError, match="slope"):
        recurrence(X, W, H, Activation(Kind.LEAKY_RELU, slope=-1.0), backend="cpu")
    with pytest.raises(ValueError, match="cuda cannot serve"):
        recurrence(X, W, H, backend="cuda")
    with pytest.raises(ValueError, match="one of auto, reference"):
        recurrence(X, W, H, backend="gpu")
    with pytest.raises(ValueError, match="unknown"):
        set_backend("gpu")


def test_falls_back_with_a_reason_said_once(caplog: pytest.LogCaptureFixture) -> None:
    dispatch._said.clear()
    with caplog.at_level(logging.INFO, "orthobench.recurrence"):
        for _ in range(2):
            recurrence(X, W, H, Activation(Kind.LEAKY_RELU, slope=-1.0))
    assert [record.message for record in caplog.records if "slope" in record.message] == [
        "recurrence: not on back end cpu: leaky ReLU with a negative slope: its output does not tell its side"
    ]
    assert last_used() == {"portable"}


@pytest.mark.parametrize("op", ["cornn", "lem", "lipschitz"])
def test_what_has_no_kernels_on_a_gpu_is_not_left_to_autograd(op: str) -> None:
    on_gpu: Any = SimpleNamespace(is_cuda=True, device=torch.device("cuda"), dtype=torch.float32)
    assert dispatch.chosen(op, on_gpu, on_gpu) == "portable"


@pytest.mark.usefixtures("_no_compiler")
def test_without_a_compiler_portable_serves_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "orthobench.recurrence"):
        for _ in range(2):
            recurrence(X, W, H)
    (message,) = [record.message for record in caplog.records]
    assert "/nowhere/cc" in message
    assert "slower" in message
    assert last_used() == {"portable"}
    with pytest.raises(ValueError, match="cannot be built"):
        recurrence(X, W, H, backend="cpu")


@pytest.mark.usefixtures("_no_compiler")
def test_the_build_is_announced(caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    monkeypatch.delenv("CC")
    with caplog.at_level(logging.INFO, "orthobench.recurrence"):
        if reason := native.missing():
            pytest.skip(reason)
    (message,) = [record.message for record in caplog.records]
    assert "compiling" in message
