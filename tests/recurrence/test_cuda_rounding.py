"""The step kernels keep the norm of an orthogonal recurrence, with sums that round as those of tensor cores.

A tensor core adds eight products to its accumulator at a time and rounds the sum towards zero (Fasi, Higham, Mikaitis,
Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 7:e330, 2021). The interpreter's product
rounds to nearest; here it is replaced by a model of the tensor core. On a GPU the same test runs on the tensor cores.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from support.gradients import gradient
from support.interpreter import INTERPRETED, ON_GPU, run_interpreted

from orthobench.recurrence import IDENTITY, recurrence
from orthobench.recurrence.cuda import backend as cuda

DEPTH = 8  # products of TF32 numbers that one instruction adds
STEPS, BATCH = 10, 8

Array = np.ndarray[Any, Any]


def towards_zero(x: Array) -> Array:
    """Return float64 numbers as float32, rounded towards zero."""
    nearest = x.astype(np.float32)
    return np.where(np.abs(nearest.astype(np.float64)) > np.abs(x), np.nextafter(nearest, np.float32(0)), nearest)


def tf32(x: Array) -> Array:
    """Return float32 numbers without the 13 bits that TF32 lacks."""
    return (np.ascontiguousarray(x).view(np.int32) & np.int32(-0x2000)).view(np.float32).astype(np.float64)


def tensor_core(a: Array, b: Array, sums: Array) -> Array:
    """Return a b + sums of float32 `[M, K]`, `[K, N]` and `[M, N]`, as a tensor core adds."""
    a, b = tf32(a), tf32(b)
    for start in range(0, a.shape[1], DEPTH):
        part = slice(start, start + DEPTH)
        sums = towards_zero(sums.astype(np.float64) + a[:, part] @ b[part])
    return sums.astype(np.float32)


@pytest.fixture
def _tensor_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if ON_GPU:
        yield
        return
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def create_dot(self: object, a: Any, b: Any, sums: Any, *others: object) -> Any:
        return TensorHandle(tensor_core(a.data, b.data, sums.data), sums.dtype.scalar)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)
    yield


@pytest.mark.gpu
@pytest.mark.skipif(not (ON_GPU or INTERPRETED), reason="no GPU: covered by test_in_the_interpreter")
@pytest.mark.usefixtures("_tensor_cores")
@pytest.mark.parametrize("n", [272, 512])
def test_orthogonal_recurrence_keeps_its_norm(n: int) -> None:
    generator, device = torch.Generator().manual_seed(0), "cuda" if ON_GPU else "cpu"
    weight = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64)).Q.float()
    start = torch.randn(BATCH, n, generator=generator).to(device).requires_grad_()
    x = torch.zeros(STEPS, BATCH, n, device=device)
    states, (final,) = cuda.run(recurrence.call(x, weight.to(device), (start,), None, IDENTITY))
    final.backward(start.detach())
    for result, transposed in ((states[-1], weight), (gradient(start), weight.T)):
        exact = start.detach().cpu().double()
        for _ in range(STEPS):
            exact = exact @ transposed.double().T
        drift = float(result.detach().cpu().double().norm() / exact.norm()) - 1
        assert abs(drift) < 3e-7 * STEPS
        assert float((result.detach().cpu() - exact).norm() / exact.norm()) < 1e-6 * STEPS**0.5


def test_model_of_the_tensor_core_rounds_towards_zero() -> None:
    """One more than 2^24 is not a float32; two products whose sum it is lose the one."""
    a, b = np.array([[4096.0, 1.0]], np.float32), np.array([[4096.0], [1.0]], np.float32)
    assert tensor_core(a, b, np.zeros((1, 1), np.float32)) == 2.0**24
    assert tensor_core(-a, b, np.full((1, 1), 2.0, np.float32)) == 1 - 2.0**24
    assert towards_zero(np.array([-1 - 1e-9, 1 + 1e-9, 1 - 1e-9])).tolist() == [-1.0, 1.0, 1 - 2.0**-24]


@pytest.mark.slow
@pytest.mark.skipif(ON_GPU or INTERPRETED, reason="the kernels' tests run in this process")
def test_in_the_interpreter() -> None:
    run_interpreted(__file__, "gpu")
