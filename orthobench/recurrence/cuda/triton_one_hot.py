"""PD-SSM's recurrence: which unit each unit reads, the walk through the states and back, and the gradients of M_t.

A row of M_t = sum_k s_k A_k has one number for each unit. It stays in registers, in the search for its largest entry as
in the backward pass, where its softmax is computed again. A batch row walks through its states in one program. Back in
time a unit collects the gradients of all units that read it: it compares their places with its own, so that every sum
has the same order each time.
"""

# mypy: ignore-errors
# The bodies are Triton's language, not Python: annotations mean compile-time constants.

from __future__ import annotations

import triton
import triton.language as tl

_kernel = triton.jit(do_not_specialize=["T", "B", "n", "steps", "share", "width", "transitions"])


@triton.jit
def _selected_row(dictionary_ptr, factors_ptr, ok, row, n, unit, is_unit, K: tl.constexpr):
    """Row `row` of M for some transitions, `[BT, N]`; -inf in the columns after the last unit."""
    m = tl.where(is_unit[None, :] & (ok | ~ok)[:, None], 0.0, float("-inf"))
    for k in tl.static_range(K):
        a = tl.load(dictionary_ptr + (k * n + row) * n + unit, mask=is_unit, other=0.0)
        s = tl.load(factors_ptr + k, mask=ok, other=0.0)
        m += s[:, None] * a[None, :]
    return m


@_kernel
def one_hot_places(
    dictionary_ptr, transition_ptr, place_ptr, transitions, n, width,
    K: tl.constexpr, N: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """Fill `place` `[transitions, n]` with the largest entry of each row of M."""
    row = tl.program_id(1)
    unit = tl.arange(0, N)
    number = tl.program_id(0) * BT + tl.arange(0, BT)
    ok = number < transitions
    number = number.to(tl.int64)
    m = _selected_row(dictionary_ptr, transition_ptr + number * width, ok, row, n, unit, unit < n, K)
    tl.store(place_ptr + number * n + row, tl.argmax(m, axis=1).to(tl.int32), mask=ok)


@triton.jit
def _load_step(step_ptr, place_ptr, transition_ptr, t, B, n, width, unit, ok, K: tl.constexpr):
    """The places and the factors of a step, whose number of the transition is a float."""
    number = tl.load(step_ptr + t * B).to(tl.int64)
    place = tl.load(place_ptr + number * n + unit, mask=ok, other=-1)
    factor_ptr = transition_ptr + number * width + K + 2 * unit
    return place, tl.load(factor_ptr, mask=ok, other=0.0), tl.load(factor_ptr + 1, mask=ok, other=0.0)


@_kernel
def one_hot_forward(
    x_ptr, step_ptr, place_ptr, transition_ptr, h0_ptr, states_ptr, T, B, n, width, K: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    unit = tl.arange(0, N)
    ok = unit < n
    slab = 2 * tl.cast(B, tl.int64) * n
    x_ptr += row * 2 * n + 2 * unit
    states_ptr += row * 2 * n + 2 * unit
    step_ptr += row
    re = tl.load(h0_ptr + row * 2 * n + 2 * unit, mask=ok, other=0.0)
    im = tl.load(h0_ptr + row * 2 * n + 2 * unit + 1, mask=ok, other=0.0)
    place, d_re, d_im = _load_step(step_ptr, place_ptr, transition_ptr, 0, B, n, width, unit, ok, K)
    x_re = tl.load(x_ptr, mask=ok, other=0.0)
    x_im = tl.load(x_ptr + 1, mask=ok, other=0.0)
    for t in range(T):
        # The next step's numbers do not depend on the state, so that they are fetched during this one.
        later = tl.minimum(t + 1, T - 1)
        next_place, next_re, next_im = _load_step(
            step_ptr, place_ptr, transition_ptr, later, B, n, width, unit, ok, K
        )  # fmt: skip
        next_x = tl.load(x_ptr + later * slab, mask=ok, other=0.0)
        next_y = tl.load(x_ptr + later * slab + 1, mask=ok, other=0.0)
        source = tl.where(ok, place, 0)
        m_re, m_im = tl.gather(re, source, 0), tl.gather(im, source, 0)
        re = d_re * m_re - d_im * m_im + x_re
        im = d_re * m_im + d_im * m_re + x_im
        tl.store(states_ptr, re, mask=ok)
        tl.store(states_ptr + 1, im, mask=ok)
        states_ptr += slab
        place, d_re, d_im, x_re, x_im = next_place, next_re, next_im, next_x, next_y


@_kernel
def one_hot_backward(
    grad_ptr, step_ptr, place_ptr, transition_ptr, dx_ptr, dh0_ptr, norms_ptr, T, B, n, width,
    K: tl.constexpr, N: tl.constexpr, TRACE: tl.constexpr, FINAL: tl.constexpr,
):  # fmt: skip
    """dL/dx_t, which is dL/dh_t; `grad` is its direct part `[T, B, 2n]`, or with `FINAL` of the last step `[B, 2n]`."""
    row = tl.program_id(0).to(tl.int64)
    unit = tl.arange(0, N)
    ok = unit < n
    slab = 2 * tl.cast(B, tl.int64) * n
    grad_ptr += row * 2 * n + 2 * unit
    dx_ptr += row * 2 * n + 2 * unit
    step_ptr += row
    last = 0 if FINAL else (T - 1) * slab
    re = tl.load(grad_ptr + last, mask=ok, other=0.0)
    im = tl.load(grad_ptr + last + 1, mask=ok, other=0.0)
    place, d_re, d_im = _load_step(step_ptr, place_ptr, transition_ptr, T - 1, B, n, width, unit, ok, K)
    for i in range(T):
        t = T - 1 - i
        earlier = tl.maximum(t - 1, 0)
        next_place, next_re, next_im = _load_step(
            step_ptr, place_ptr, transition_ptr, earlier, B, n, width, unit, ok, K
        )  # fmt: skip
        own_re, own_im = tl.zeros_like(re), tl.zeros_like(im)
        if not FINAL:
            own_re = tl.load(grad_ptr + earlier * slab, mask=ok & (t > 0), other=0.0)
            own_im = tl.load(grad_ptr + earlier * slab + 1, mask=ok & (t > 0), other=0.0)
        tl.store(dx_ptr + t * slab, re, mask=ok)
        tl.store(dx_ptr + t * slab + 1, im, mask=ok)
        if TRACE:
            tl.store(norms_ptr + tl.cast(t, tl.int64) * B + row, tl.sqrt(tl.sum(re * re + im * im, axis=0)))
        by_re, by_im = re * d_re + im * d_im, im * d_re - re * d_im
        is_read = place[:, None] == unit[None, :]
        re = tl.sum(tl.where(is_read, by_re[:, None], 0.0), axis=0) + own_re
        im = tl.sum(tl.where(is_read, by_im[:, None], 0.0), axis=0) + own_im
        place, d_re, d_im = next_place, next_re, next_im
    tl.store(dh0_ptr + row * 2 * n + 2 * unit, re, mask=ok)
    tl.store(dh0_ptr + row * 2 * n + 2 * unit + 1, im, mask=ok)


@_kernel
def one_hot_transitions_backward(
    dx_ptr, before_ptr, step_ptr, transition_ptr, dictionary_ptr, by_share_ptr, by_row_ptr, steps, share, n, width,
    K: tl.constexpr, KP: tl.constexpr, N: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """The gradients of s and A, through one row of M in some of the steps.

    With c = conj(d) o dL/dh_t and p = softmax(row of M), dL/dM = p o (g - p . g), where g is the product of c of the
    row's unit with the state before the step `[steps, 2n]`. `by_share` `[shares, K, n, n]` has the sums over the steps
    of a share, and `by_row` `[n, steps, K]` the part of each row in dL/ds.
    """
    part, row = tl.program_id(0), tl.program_id(1)
    unit = tl.arange(0, N)
    is_unit = unit < n
    kind = tl.arange(0, KP)
    total = tl.zeros((KP, N), tl.float32)
    end = tl.minimum(steps, (part + 1) * share)
    for first in range(part * share, end, BT):
        step = first + tl.arange(0, BT)
        ok = step < end
        step = step.to(tl.int64)
        number = tl.load(step_ptr + step, mask=ok, other=0.0).to(tl.int64)
        factors_ptr = transition_ptr + number * width
        m = _selected_row(dictionary_ptr, factors_ptr, ok, row, n, unit, is_unit, K)
        p = tl.exp(m - tl.max(m, axis=1)[:, None])
        p /= tl.sum(p, axis=1)[:, None]
        d_re = tl.load(factors_ptr + K + 2 * row, mask=ok, other=0.0)
        d_im = tl.load(factors_ptr + K + 2 * row + 1, mask=ok, other=0.0)
        re = tl.load(dx_ptr + (step * n + row) * 2, mask=ok, other=0.0)
        im = tl.load(dx_ptr + (step * n + row) * 2 + 1, mask=ok, other=0.0)
        both = ok[:, None] & is_unit[None, :]
        h_ptr = before_ptr + step[:, None] * 2 * n + 2 * unit[None, :]
        g = (re * d_re + im * d_im)[:, None] * tl.load(h_ptr, mask=both, other=0.0)
        g += (im * d_re - re * d_im)[:, None] * tl.load(h_ptr + 1, mask=both, other=0.0)
        g = p * (g - tl.sum(p * g, axis=1)[:, None])
        for k in tl.static_range(K):
            a = tl.load(dictionary_ptr + (k * n + row) * n + unit, mask=is_unit, other=0.0)
            s = tl.load(factors_ptr + k, mask=ok, other=0.0)
            tl.store(by_row_ptr + (row * steps.to(tl.int64) + step) * K + k, tl.sum(g * a[None, :], axis=1), mask=ok)
            of_kind = tl.sum(g * s[:, None], axis=0)
            total += tl.where((kind == k)[:, None], of_kind[None, :], 0.0)
    out_ptr = by_share_ptr + ((part * K + kind[:, None]).to(tl.int64) * n + row) * n + unit[None, :]
    tl.store(out_ptr, total, mask=(kind < K)[:, None] & is_unit[None, :])
