"""Step kernels, with one launch per time step that fuses the product and the pointwise part; for any n, LSTM and GRU.

Launches cost more than the work, so a training step should be captured in a CUDA graph: shapes are static and nothing
waits for the host. Products run on tensor cores as three TF32 products, which keeps float32 accuracy. Triton's own
"tf32x3" needs twice as many instructions, half of them to keep infinities (which become NaN here). The matrix is given
as M `[columns, K]` with out_j = sum_k in_k M[j, k], the order in which both directions read it contiguously.

Tensors through time are `[T, B, n]`, and a step is one slab of them. `t_other` and `t_previous` are the slabs of other
steps, or 0 for a tensor `[B, n]` of the initial state.

n is a compile-time constant, because its divisibility decides how wide loads may be (1030 is not a multiple of 4).
"""

# mypy: ignore-errors
# The bodies are Triton's language, not Python: annotations mean compile-time constants.

from __future__ import annotations

import triton
import triton.language as tl

from orthobench.recurrence.cuda.triton_cells import cell_backward, cell_forward, sigmoid, tanh

# Time indices must not be specialised by value, because some steps would then compile their own kernels.
_step = triton.jit(do_not_specialize=["t", "t_other", "t_previous"])


@triton.jit
def _halves(v):
    """Split into the nearest number with TF32's 11 bits, and the remainder."""
    high = ((v.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    return high, v - high


@triton.jit
def _tile_product(
    in_ptr, m_ptr, rows, columns, columns_ok, B, STRIDE: tl.constexpr,
    K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """in[rows] M[columns]^T, `[BM, BN]`, from the first K of STRIDE columns of `in`."""
    in_row = in_ptr + rows[:, None] * STRIDE
    m_row = m_ptr + columns[None, :].to(tl.int64) * K
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(in_row + k[None, :], mask=(rows < B)[:, None] & (k < K)[None, :], other=0.0)
        m = tl.load(m_row + k[:, None], mask=columns_ok[None, :] & (k < K)[:, None], other=0.0)
        a_high, a_low = _halves(a)
        m_high, m_low = _halves(m)
        # A tensor core rounds its sums towards zero, so one chain over all slices would shrink the state at every step.
        # Each slice therefore has its own sum, small terms first, and the slices are added as float32, to nearest.
        part = tl.dot(a_low, m_high, input_precision="tf32")
        part = tl.dot(a_high, m_low, part, input_precision="tf32")
        acc += tl.dot(a_high, m_high, part, input_precision="tf32")
    return acc


@triton.jit
def _gradient(ptr, slab, t, offsets, ok, FINAL: tl.constexpr, LAST: tl.constexpr):
    """dL/dh_t from the loss itself: for all steps `[T, B, n]`, or with `FINAL` for only the last step `[B, n]`."""
    if FINAL:
        g = tl.load(ptr + offsets, mask=ok & LAST, other=0.0)
    else:
        g = tl.load(ptr + t * slab + offsets, mask=ok, other=0.0)
    return g


@triton.jit
def _tile_offsets(B, n: tl.constexpr, BM: tl.constexpr, UNITS: tl.constexpr):
    """Rows and units of this program's tile, the offsets in a `[B, n]` slab, and which exist."""
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    units = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    return rows, units, rows[:, None] * n + units[None, :], (rows < B)[:, None] & (units < n)[None, :]


@triton.jit
def _gate_products(
    in_ptr, m_ptr, rows, B, n: tl.constexpr, GATES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Multiply for up to four gates: four `[BM, BN / 4]` tiles, from one tile whose columns run gate first."""
    column = tl.arange(0, BN)
    gate = column % 4
    unit = tl.program_id(1) * (BN // 4) + column // 4
    acc = _tile_product(in_ptr, m_ptr, rows, gate * n + unit, (unit < n) & (gate < GATES), B, n, n, BM, BN, BK)
    even, odd = tl.split(tl.reshape(acc, (BM, BN // 4, 2, 2)))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@_step
def step_forward(
    x_ptr, m_ptr, previous_ptr, bias_ptr, states_ptr, kept_ptr, t, t_other, B, step_size, slope, epsilon,
    n: tl.constexpr, KIND: tl.constexpr, RESIDUAL: tl.constexpr, KEEP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """h_t from slab `t_other` of `previous` (h_0, or the states)."""
    GATED: tl.constexpr = KIND == "gated"
    COMPLEX: tl.constexpr = KIND == "complex_modrelu" or KIND == "complex_modrelu_smooth"
    rows, units, offsets, ok = _tile_offsets(B, n, BM, BN)
    slab = tl.cast(B, tl.int64) * n
    previous_ptr += t_other * slab
    mixed = _tile_product(previous_ptr, m_ptr, rows, units, units < n, B, n, n, BM, BN, BK)
    wide = offsets
    if GATED:
        wide = offsets + rows[:, None] * n
        x_ptr += t * slab
        kept_ptr += t * slab
    x_ptr += t * slab + wide
    x = tl.load(x_ptr, mask=ok, other=0.0)
    gate = x
    if GATED:
        gate = tl.load(x_ptr + n, mask=ok, other=0.0)
    h = mixed
    if RESIDUAL:
        h = tl.load(previous_ptr + offsets, mask=ok, other=0.0)
    bias = tl.load(bias_ptr + (units // 2 if COMPLEX else units), mask=units < n, other=0.0)[None, :]
    h, saved, saved_gate = cell_forward(
        mixed, x, gate, h, bias, step_size, slope, epsilon, KIND, RESIDUAL, BM * BN // 2, 1
    )  # fmt: skip
    tl.store(states_ptr + t * slab + offsets, h, mask=ok)
    if KEEP:
        kept_ptr += t * slab + wide
        tl.store(kept_ptr, saved, mask=ok)
        if GATED:
            tl.store(kept_ptr + n, saved_gate, mask=ok)


@_step
def step_backward(
    grad_ptr, m_ptr, kept_ptr, bias_ptr, dx_ptr, mixed_ptr, total_ptr, dbias_ptr, t, t_other, B,
    step_size, slope, epsilon,
    n: tl.constexpr, KIND: tl.constexpr, RESIDUAL: tl.constexpr, BIAS: tl.constexpr, TOTAL: tl.constexpr,
    FINAL: tl.constexpr, LAST: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Carry the gradient from step t + 1 (which does not exist if `LAST`) to x_t.

    `mixed` receives dL/d(W h_{t-1}), which is dL/dx_t unless gated, and `total` (with `TOTAL`) receives dL/dh_t.
    `dbias` `[B, n]` gathers the terms of dL/db.
    """
    GATED: tl.constexpr = KIND == "gated"
    COMPLEX: tl.constexpr = KIND == "complex_modrelu" or KIND == "complex_modrelu_smooth"
    rows, units, offsets, ok = _tile_offsets(B, n, BM, BN)
    slab = tl.cast(B, tl.int64) * n
    g = _gradient(grad_ptr, slab, t, offsets, ok, FINAL, LAST)
    if not LAST:
        g += _tile_product(mixed_ptr + t_other * slab, m_ptr, rows, units, units < n, B, n, n, BM, BN, BK)
        if RESIDUAL:
            g += tl.load(total_ptr + t_other * slab + offsets, mask=ok, other=0.0)
    if TOTAL:
        tl.store(total_ptr + t * slab + offsets, g, mask=ok)
    wide = offsets
    if GATED:
        wide = offsets + rows[:, None] * n
        dx_ptr += t * slab
        kept_ptr += t * slab
    kept_ptr += t * slab + wide
    saved = tl.load(kept_ptr, mask=ok, other=0.0)
    saved_gate = saved
    if GATED:
        saved_gate = tl.load(kept_ptr + n, mask=ok, other=0.0)
    bias = tl.load(bias_ptr + (units // 2 if COMPLEX else units), mask=units < n, other=0.0)[None, :]
    d_mixed, dx, d_gate, dbias = cell_backward(
        g, saved, saved_gate, bias, step_size, slope, epsilon, KIND, RESIDUAL, BM * BN // 2, 1
    )  # fmt: skip
    tl.store(mixed_ptr + t * slab + offsets, d_mixed, mask=ok)
    if GATED:
        dx_ptr += t * slab + wide
        tl.store(dx_ptr, dx, mask=ok)
        tl.store(dx_ptr + n, d_gate, mask=ok)
    if BIAS:
        dbias_ptr += offsets
        tl.store(dbias_ptr, tl.load(dbias_ptr, mask=ok) + dbias, mask=ok)


@_step
def lstm_forward(
    x_ptr, m_ptr, h_previous_ptr, c_previous_ptr, h_ptr, c_ptr, gates_ptr, t, t_other, B,
    n: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """h_t, c_t and the gates i, f, g, o `[T, B, 4n]`."""
    rows, _, offsets, ok = _tile_offsets(B, n, BM, BN // 4)
    slab = tl.cast(B, tl.int64) * n
    i, f, g, o = _gate_products(h_previous_ptr + t_other * slab, m_ptr, rows, B, n, 4, BM, BN, BK)
    wide = 4 * t * slab + offsets + 3 * rows[:, None] * n
    x_ptr += wide
    i = sigmoid(i + tl.load(x_ptr, mask=ok, other=0.0))
    f = sigmoid(f + tl.load(x_ptr + n, mask=ok, other=0.0))
    g = tanh(g + tl.load(x_ptr + 2 * n, mask=ok, other=0.0))
    o = sigmoid(o + tl.load(x_ptr + 3 * n, mask=ok, other=0.0))
    c = f * tl.load(c_previous_ptr + t_other * slab + offsets, mask=ok, other=0.0) + i * g
    tl.store(c_ptr + t * slab + offsets, c, mask=ok)
    tl.store(h_ptr + t * slab + offsets, o * tanh(c), mask=ok)
    gates_ptr += wide
    tl.store(gates_ptr, i, mask=ok)
    tl.store(gates_ptr + n, f, mask=ok)
    tl.store(gates_ptr + 2 * n, g, mask=ok)
    tl.store(gates_ptr + 3 * n, o, mask=ok)


@_step
def lstm_backward(
    grad_h_ptr, grad_c_ptr, m_ptr, gates_ptr, c_ptr, c_previous_ptr, dx_ptr, carry_c_ptr, total_h_ptr, total_c_ptr,
    t, t_other, t_previous, B,
    n: tl.constexpr, TRACE: tl.constexpr, FINAL: tl.constexpr, LAST: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """dL/dx_t; `grad_c` `[B, n]` is the gradient of the last cells, `carry_c` `[B, n]` the one from later steps."""
    rows, units, offsets, ok = _tile_offsets(B, n, BM, BN)
    slab = tl.cast(B, tl.int64) * n
    gh = _gradient(grad_h_ptr, slab, t, offsets, ok, FINAL, LAST)
    gc = _gradient(grad_c_ptr, slab, t, offsets, ok, True, LAST)
    carry_c_ptr += offsets
    if not LAST:
        gh += _tile_product(dx_ptr + 4 * t_other * slab, m_ptr, rows, units, units < n, B, 4 * n, 4 * n, BM, BN, BK)
        gc += tl.load(carry_c_ptr, mask=ok, other=0.0)
    wide = 4 * t * slab + offsets + 3 * rows[:, None] * n
    gates_ptr += wide
    i = tl.load(gates_ptr, mask=ok, other=0.0)
    f = tl.load(gates_ptr + n, mask=ok, other=0.0)
    g = tl.load(gates_ptr + 2 * n, mask=ok, other=0.0)
    o = tl.load(gates_ptr + 3 * n, mask=ok, other=0.0)
    squashed = tanh(tl.load(c_ptr + t * slab + offsets, mask=ok, other=0.0))
    c_previous = tl.load(c_previous_ptr + t_previous * slab + offsets, mask=ok, other=0.0)
    gc += gh * o * (1.0 - squashed * squashed)
    if TRACE:
        tl.store(total_h_ptr + t * slab + offsets, gh, mask=ok)
        tl.store(total_c_ptr + t * slab + offsets, gc, mask=ok)
    tl.store(carry_c_ptr, gc * f, mask=ok)
    dx_ptr += wide
    tl.store(dx_ptr, gc * g * i * (1.0 - i), mask=ok)
    tl.store(dx_ptr + n, gc * c_previous * f * (1.0 - f), mask=ok)
    tl.store(dx_ptr + 2 * n, gc * i * (1.0 - g * g), mask=ok)
    tl.store(dx_ptr + 3 * n, gh * squashed * o * (1.0 - o), mask=ok)


@_step
def gru_forward(
    x_ptr, m_ptr, previous_ptr, bias_ptr, states_ptr, gates_ptr, t, t_other, B,
    n: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """h_t (reset after the product), and r, z, the candidate g and its recurrent part q `[T, B, 4n]`."""
    rows, units, offsets, ok = _tile_offsets(B, n, BM, BN // 4)
    slab = tl.cast(B, tl.int64) * n
    previous_ptr += t_other * slab
    r, z, q, _ = _gate_products(previous_ptr, m_ptr, rows, B, n, 3, BM, BN, BK)
    x_ptr += 3 * t * slab + offsets + 2 * rows[:, None] * n
    r = sigmoid(r + tl.load(x_ptr, mask=ok, other=0.0))
    z = sigmoid(z + tl.load(x_ptr + n, mask=ok, other=0.0))
    q += tl.load(bias_ptr + units, mask=units < n, other=0.0)[None, :]
    g = tanh(tl.load(x_ptr + 2 * n, mask=ok, other=0.0) + r * q)
    h = z * tl.load(previous_ptr + offsets, mask=ok, other=0.0) + (1.0 - z) * g
    tl.store(states_ptr + t * slab + offsets, h, mask=ok)
    gates_ptr += 4 * t * slab + offsets + 3 * rows[:, None] * n
    tl.store(gates_ptr, r, mask=ok)
    tl.store(gates_ptr + n, z, mask=ok)
    tl.store(gates_ptr + 2 * n, g, mask=ok)
    tl.store(gates_ptr + 3 * n, q, mask=ok)


@_step
def gru_backward(
    grad_ptr, m_ptr, gates_ptr, previous_ptr, dx_ptr, mixed_ptr, carry_ptr, total_ptr, t, t_other, t_previous, B,
    n: tl.constexpr, TRACE: tl.constexpr, FINAL: tl.constexpr, LAST: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """dL/dx_t, dL/d(W h_{t-1}) in `mixed` `[T, B, 3n]`; `carry` `[B, n]` holds the direct part of dL/dh_{t-1}."""
    rows, units, offsets, ok = _tile_offsets(B, n, BM, BN)
    slab = tl.cast(B, tl.int64) * n
    gh = _gradient(grad_ptr, slab, t, offsets, ok, FINAL, LAST)
    carry_ptr += offsets
    if not LAST:
        gh += _tile_product(mixed_ptr + 3 * t_other * slab, m_ptr, rows, units, units < n, B, 3 * n, 3 * n, BM, BN, BK)
        gh += tl.load(carry_ptr, mask=ok, other=0.0)
    if TRACE:
        tl.store(total_ptr + t * slab + offsets, gh, mask=ok)
    gates_ptr += 4 * t * slab + offsets + 3 * rows[:, None] * n
    r = tl.load(gates_ptr, mask=ok, other=0.0)
    z = tl.load(gates_ptr + n, mask=ok, other=0.0)
    g = tl.load(gates_ptr + 2 * n, mask=ok, other=0.0)
    q = tl.load(gates_ptr + 3 * n, mask=ok, other=0.0)
    h = tl.load(previous_ptr + t_previous * slab + offsets, mask=ok, other=0.0)
    tl.store(carry_ptr, gh * z, mask=ok)
    dg = gh * (1.0 - z) * (1.0 - g * g)
    dr = dg * q * r * (1.0 - r)
    dz = gh * (h - g) * z * (1.0 - z)
    wide = 3 * t * slab + offsets + 2 * rows[:, None] * n
    dx_ptr += wide
    tl.store(dx_ptr, dr, mask=ok)
    tl.store(dx_ptr + n, dz, mask=ok)
    tl.store(dx_ptr + 2 * n, dg, mask=ok)
    mixed_ptr += wide
    tl.store(mixed_ptr, dr, mask=ok)
    tl.store(mixed_ptr + n, dz, mask=ok)
    tl.store(mixed_ptr + 2 * n, dg * r, mask=ok)


@_step
def gru_gates_forward(
    x_ptr, m_ptr, previous_ptr, gates_ptr, reset_ptr, t, t_other, B,
    n: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """First half of a step that resets before the product: r, z (in `gates` `[T, B, 3n]`), and r h_{t-1}."""
    rows, _, offsets, ok = _tile_offsets(B, n, BM, BN // 4)
    slab = tl.cast(B, tl.int64) * n
    previous_ptr += t_other * slab
    r, z, _, _ = _gate_products(previous_ptr, m_ptr, rows, B, n, 2, BM, BN, BK)
    wide = 3 * t * slab + offsets + 2 * rows[:, None] * n
    r = sigmoid(r + tl.load(x_ptr + wide, mask=ok, other=0.0))
    z = sigmoid(z + tl.load(x_ptr + wide + n, mask=ok, other=0.0))
    h = tl.load(previous_ptr + offsets, mask=ok, other=0.0)
    tl.store(gates_ptr + wide, r, mask=ok)
    tl.store(gates_ptr + wide + n, z, mask=ok)
    tl.store(reset_ptr + t * slab + offsets, r * h, mask=ok)


@_step
def gru_candidate_forward(
    x_ptr, m_ptr, previous_ptr, gates_ptr, reset_ptr, states_ptr, t, t_other, B,
    n: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Second half: the candidate g (third in `gates`) and h_t."""
    rows, units, offsets, ok = _tile_offsets(B, n, BM, BN)
    slab = tl.cast(B, tl.int64) * n
    mixed = _tile_product(reset_ptr + t * slab, m_ptr, rows, units, units < n, B, n, n, BM, BN, BK)
    wide = 3 * t * slab + offsets + 2 * rows[:, None] * n
    g = tanh(mixed + tl.load(x_ptr + wide + 2 * n, mask=ok, other=0.0))
    z = tl.load(gates_ptr + wide + n, mask=ok, other=0.0)
    h = tl.load(previous_ptr + t_other * slab + offsets, mask=ok, other=0.0)
    tl.store(gates_ptr + wide + 2 * n, g, mask=ok)
    tl.store(states_ptr + t * slab + offsets, z * h + (1.0 - z) * g, mask=ok)


@_step
def gru_candidate_backward(
    grad_ptr, m_ptr, gates_ptr, previous_ptr, dx_ptr, carry_ptr, total_ptr, t, t_other, t_previous, B,
    n: tl.constexpr, TRACE: tl.constexpr, FINAL: tl.constexpr, LAST: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """First half of the backward step: dL/dx_t of z and g; `carry` `[B, n]` holds the direct part of dL/dh_{t-1}."""
    rows, units, offsets, ok = _tile_offsets(B, n, BM, BN)
    slab = tl.cast(B, tl.int64) * n
    gh = _gradient(grad_ptr, slab, t, offsets, ok, FINAL, LAST)
    carry_ptr += offsets
    if not LAST:
        next_ptr = dx_ptr + 3 * t_other * slab
        gh += _tile_product(next_ptr, m_ptr, rows, units, units < n, B, 3 * n, 2 * n, BM, BN, BK)
        gh += tl.load(carry_ptr, mask=ok, other=0.0)
    if TRACE:
        tl.store(total_ptr + t * slab + offsets, gh, mask=ok)
    wide = 3 * t * slab + offsets + 2 * rows[:, None] * n
    z = tl.load(gates_ptr + wide + n, mask=ok, other=0.0)
    g = tl.load(gates_ptr + wide + 2 * n, mask=ok, other=0.0)
    h = tl.load(previous_ptr + t_previous * slab + offsets, mask=ok, other=0.0)
    tl.store(carry_ptr, gh * z, mask=ok)
    tl.store(dx_ptr + wide + n, gh * (h - g) * z * (1.0 - z), mask=ok)
    tl.store(dx_ptr + wide + 2 * n, gh * (1.0 - z) * (1.0 - g * g), mask=ok)


@_step
def gru_gates_backward(
    m_ptr, gates_ptr, previous_ptr, dx_ptr, carry_ptr, t, t_previous, B,
    n: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Second half: dL/dx_t of r, and its share of `carry`."""
    rows, units, offsets, ok = _tile_offsets(B, n, BM, BN)
    slab = tl.cast(B, tl.int64) * n
    candidate_ptr = dx_ptr + 3 * t * slab + 2 * n
    d_reset = _tile_product(candidate_ptr, m_ptr, rows, units, units < n, B, 3 * n, n, BM, BN, BK)
    wide = 3 * t * slab + offsets + 2 * rows[:, None] * n
    r = tl.load(gates_ptr + wide, mask=ok, other=0.0)
    h = tl.load(previous_ptr + t_previous * slab + offsets, mask=ok, other=0.0)
    carry_ptr += offsets
    tl.store(carry_ptr, tl.load(carry_ptr, mask=ok, other=0.0) + d_reset * r, mask=ok)
    tl.store(dx_ptr + wide, d_reset * h * r * (1.0 - r), mask=ok)
