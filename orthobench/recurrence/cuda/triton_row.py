"""Row kernels: the whole time loop of one batch row in one program, W in registers, exact float32.

The product is a multiplication by the state and a sum over axis 0, never `tl.dot`. A batch row alone cannot feed tensor
cores, and the exact dot spills. W is given as M with out_j = sum_k M[k, j] in_k, so both directions sum over axis 0.

Up to 128 features (and from 193 to 256), M is one [N, N] tile and the state is a vector. From 129 to 192 features, a
tile of 256 would waste half its work. M is then 3 x 3 tiles of 64 x 64, and the state is a [64, 4] tile. Unit c * 64 +
r is at (r, c), and the last column is padding.
"""

# mypy: ignore-errors
# The bodies are Triton's language, not Python: annotations mean compile-time constants.

from __future__ import annotations

import triton
import triton.language as tl

from orthobench.recurrence.cuda.triton_cells import cell_backward, cell_forward

# If n is known to be a multiple of 16, Triton loads W in wider pieces, whose layout splits a column over threads. With
# 192 features, a step then has 20 barriers instead of 8, and 45 % more instructions.
_row = triton.jit(do_not_specialize=["T", "B", "n"])


@triton.jit
def _load_tile(m_ptr, n, row, column, SIZE: tl.constexpr):
    k = (row * SIZE + tl.arange(0, SIZE))[:, None]
    j = (column * SIZE + tl.arange(0, SIZE))[None, :]
    return tl.load(m_ptr + k * n + j, mask=(k < n) & (j < n), other=0.0)


@triton.jit
def _load_matrix(m_ptr, n, N: tl.constexpr, THREE: tl.constexpr):
    if THREE:
        tiles = (
            _load_tile(m_ptr, n, 0, 0, 64), _load_tile(m_ptr, n, 0, 1, 64), _load_tile(m_ptr, n, 0, 2, 64),
            _load_tile(m_ptr, n, 1, 0, 64), _load_tile(m_ptr, n, 1, 1, 64), _load_tile(m_ptr, n, 1, 2, 64),
            _load_tile(m_ptr, n, 2, 0, 64), _load_tile(m_ptr, n, 2, 1, 64), _load_tile(m_ptr, n, 2, 2, 64),
        )  # fmt: skip
    else:
        tiles = (_load_tile(m_ptr, n, 0, 0, N),)
    return tiles


@triton.jit
def _product(m, v, THREE: tl.constexpr):
    """M^T v, in the layout of v."""
    if THREE:
        # Splitting and joining along an axis that each thread holds is free, and a single sum for the three columns of
        # tiles needs a third of the barriers.
        even, odd = tl.split(tl.reshape(v, (64, 2, 2)))
        v_0, v_2 = tl.split(even)
        v_1, _ = tl.split(odd)
        a, b, c = v_0[:, None], v_1[:, None], v_2[:, None]
        out_0 = m[0] * a + m[3] * b + m[6] * c
        out_1 = m[1] * a + m[4] * b + m[7] * c
        out_2 = m[2] * a + m[5] * b + m[8] * c
        tile = tl.join(tl.join(out_0, out_2), tl.join(out_1, tl.zeros_like(out_1)))
        out = tl.reshape(tl.sum(tile, axis=0), (64, 4))
    else:
        out = tl.sum(m[0] * v[:, None], axis=0)
    return out


@triton.jit
def _units(N: tl.constexpr, THREE: tl.constexpr):
    return tl.arange(0, 64)[:, None] + 64 * tl.arange(0, 4)[None, :] if THREE else tl.arange(0, N)


@triton.jit
def _load(ptr, n, mask, GATED: tl.constexpr):
    first = tl.load(ptr, mask=mask, other=0.0)
    second = first
    if GATED:
        second = tl.load(ptr + n, mask=mask, other=0.0)
    return first, second


@_row
def row_forward(
    x_ptr, m_ptr, h0_ptr, bias_ptr, states_ptr, kept_ptr, T, B, n, step_size, slope, epsilon,
    KIND: tl.constexpr, RESIDUAL: tl.constexpr, KEEP: tl.constexpr, N: tl.constexpr, THREE: tl.constexpr,
):  # fmt: skip
    GATED: tl.constexpr = KIND == "gated"
    COMPLEX: tl.constexpr = KIND == "complex_modrelu" or KIND == "complex_modrelu_smooth"
    HALF: tl.constexpr = 32 if THREE else N // 2
    INNER: tl.constexpr = 4 if THREE else 1
    row = tl.program_id(0).to(tl.int64)
    unit = _units(N, THREE)
    ok = unit < n
    m = _load_matrix(m_ptr, n, N, THREE)
    h = tl.load(h0_ptr + row * n + unit, mask=ok, other=0.0)
    bias = tl.load(bias_ptr + (unit // 2 if COMPLEX else unit), mask=ok, other=0.0)
    width = 2 * n if GATED else n  # of a row of x, and of what is saved
    slab = tl.cast(B, tl.int64) * n
    wide_slab = tl.cast(B, tl.int64) * width
    x_ptr += row * width + unit
    kept_ptr += row * width + unit
    states_ptr += row * n + unit
    # Inputs are fetched two steps ahead, because a step is shorter than the latency of memory.
    x, gate = _load(x_ptr, n, ok, GATED)
    x_1, gate_1 = _load(x_ptr + wide_slab, n, ok & (T > 1), GATED)
    for t in range(T):
        x_ptr += wide_slab
        x_2, gate_2 = _load(x_ptr + wide_slab, n, ok & (t + 2 < T), GATED)
        mixed = _product(m, h, THREE)
        h, saved, saved_gate = cell_forward(
            mixed, x, gate, h, bias, step_size, slope, epsilon, KIND, RESIDUAL, HALF, INNER
        )  # fmt: skip
        tl.store(states_ptr, h, mask=ok)
        if KEEP:
            tl.store(kept_ptr, saved, mask=ok)
        if GATED:
            tl.store(kept_ptr + n, saved_gate, mask=ok)
        states_ptr += slab
        kept_ptr += wide_slab
        x, gate, x_1, gate_1 = x_1, gate_1, x_2, gate_2


@_row
def row_backward(
    grad_ptr, m_ptr, kept_ptr, bias_ptr, dx_ptr, dh0_ptr, dbias_ptr, norms_ptr, T, B, n, step_size, slope, epsilon,
    KIND: tl.constexpr, RESIDUAL: tl.constexpr, BIAS: tl.constexpr, TRACE: tl.constexpr, FINAL: tl.constexpr,
    N: tl.constexpr, THREE: tl.constexpr,
):  # fmt: skip
    """The backward pass; `grad` is dL/dh_t of all steps `[T, B, n]`, or with `FINAL` of only the last step `[B, n]`."""
    GATED: tl.constexpr = KIND == "gated"
    COMPLEX: tl.constexpr = KIND == "complex_modrelu" or KIND == "complex_modrelu_smooth"
    HALF: tl.constexpr = 32 if THREE else N // 2
    INNER: tl.constexpr = 4 if THREE else 1
    row = tl.program_id(0).to(tl.int64)
    unit = _units(N, THREE)
    ok = unit < n
    m = _load_matrix(m_ptr, n, N, THREE)
    bias = tl.load(bias_ptr + (unit // 2 if COMPLEX else unit), mask=ok, other=0.0)
    width = 2 * n if GATED else n
    slab = tl.cast(B, tl.int64) * n
    wide_slab = tl.cast(B, tl.int64) * width
    grad_ptr += row * n + unit
    if not FINAL:
        grad_ptr += (T - 1) * slab
    kept_ptr += (T - 1) * wide_slab + row * width + unit
    dx_ptr += (T - 1) * wide_slab + row * width + unit
    norms_ptr += (T - 1) * tl.cast(B, tl.int64) + row
    grad = tl.load(grad_ptr, mask=ok, other=0.0)
    grad_1 = tl.zeros_like(grad)
    if not FINAL:
        grad_1 = tl.load(grad_ptr - slab, mask=ok & (T > 1), other=0.0)
    saved, saved_gate = _load(kept_ptr, n, ok, GATED)
    kept_1, kept_gate_1 = _load(kept_ptr - wide_slab, n, ok & (T > 1), GATED)
    carry = tl.zeros_like(grad)
    dbias = tl.zeros_like(grad)
    for t in range(T):
        kept_ptr -= wide_slab
        grad_2 = grad_1
        if not FINAL:
            grad_ptr -= slab
            grad_2 = tl.load(grad_ptr - slab, mask=ok & (t + 2 < T), other=0.0)
        kept_2, kept_gate_2 = _load(kept_ptr - wide_slab, n, ok & (t + 2 < T), GATED)
        g = grad + carry
        if TRACE:
            tl.store(norms_ptr, tl.sqrt_rn(tl.sum(g * g)))
            norms_ptr -= B
        d_mixed, dx, d_gate, dbias_t = cell_backward(
            g, saved, saved_gate, bias, step_size, slope, epsilon, KIND, RESIDUAL, HALF, INNER
        )  # fmt: skip
        tl.store(dx_ptr, dx, mask=ok)
        if GATED:
            tl.store(dx_ptr + n, d_gate, mask=ok)
        dx_ptr -= wide_slab
        if BIAS:
            dbias += dbias_t
        carry = _product(m, d_mixed, THREE)
        if RESIDUAL:
            carry += g
        grad, saved, saved_gate = grad_1, kept_1, kept_gate_1
        grad_1, kept_1, kept_gate_1 = grad_2, kept_2, kept_gate_2
    tl.store(dh0_ptr + row * n + unit, carry, mask=ok)
    if BIAS:
        tl.store(dbias_ptr + row * n + unit, dbias, mask=ok)
