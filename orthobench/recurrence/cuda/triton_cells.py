"""The pointwise part of one step, shared by the row kernels and the step kernels.

These functions work on tiles of any shape. HALF and INNER say how a tile, reshaped to (HALF, 2, INNER), holds
the pairs of a complex activation along its middle axis. `GATED` is the kind of the gated AntisymmetricRNN, the other
kinds are those of `Activation`.
"""

# mypy: ignore-errors
# The bodies are Triton's language, not Python: annotations mean compile-time constants.

from __future__ import annotations

import triton
import triton.language as tl

GATED = "gated"
TINY = tl.constexpr(1.1754944e-38)  # the smallest normal number; the approximate root treats smaller ones as 0


@triton.jit
def tanh(x):
    # 1 - 2 / (1 + e^2|x|) cancels near 0 and e^2x overflows: a polynomial (fitted to 4e-8 below 0.55) and e^-2|x|.
    square = x * x
    p = 0.01645876094698906
    p = p * square - 0.05268414691090584
    p = p * square + 0.13320942223072052
    p = p * square - 0.33332958817481995
    near = x + x * square * p
    decay = tl.exp(-2.0 * tl.abs(x))
    far = (1.0 - decay) / (1.0 + decay)
    return tl.where(tl.abs(x) < 0.55, near, tl.where(x < 0, -far, far))


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _ramp(x):
    return tl.where(x <= 0, 0.0, x)  # not maximum(): it would swallow NaN


@triton.jit
def _pair_sum(v, HALF: tl.constexpr, INNER: tl.constexpr):
    """In both columns of a pair, the sum over the pair."""
    total = tl.sum(tl.reshape(v, (HALF, 2, INNER)), axis=1)
    both = tl.broadcast_to(tl.expand_dims(total, 1), (HALF, 2, INNER))
    return tl.reshape(both, v.shape)


@triton.jit
def _complex_scale(z, bias, epsilon, KIND: tl.constexpr, HALF: tl.constexpr, INNER: tl.constexpr):
    """Return the real factor s of u = s z, ds/dr (1/r) with r = |z|, and ds/db."""
    squared = _pair_sum(z * z, HALF, INNER)
    if KIND == "complex_modrelu_smooth":
        squared += epsilon
        modulus = tl.sqrt(tl.where(squared < TINY, TINY, squared))
        inverse = 1.0 / (modulus + epsilon)
        shifted = _ramp(modulus + bias)
        scale = shifted * inverse
        d_bias = tl.where(shifted == 0, 0.0, inverse)
        d_scale = (d_bias - scale * inverse) / modulus
    else:
        zero = squared < TINY
        modulus = tl.sqrt(tl.where(zero, 1.0, squared))
        inverse = 1.0 / (modulus + epsilon)
        shifted = _ramp(modulus + epsilon + bias)
        scale = tl.where(zero, 0.0, shifted * inverse)
        d_bias = tl.where(zero | (shifted == 0), 0.0, inverse)
        d_scale = -bias * d_bias * inverse / modulus
    return scale, d_scale, d_bias


@triton.jit
def _activate(z, bias, slope, epsilon, KIND: tl.constexpr, HALF: tl.constexpr, INNER: tl.constexpr):
    if KIND == "complex_modrelu" or KIND == "complex_modrelu_smooth":
        scale, _, _ = _complex_scale(z, bias, epsilon, KIND, HALF, INNER)
        u = scale * z
    elif KIND == "modrelu":
        modulus = _ramp(tl.abs(z) + epsilon + bias)
        u = tl.where(z == 0, 0.0, tl.where(z < 0, -modulus, modulus))
    elif KIND == "tanh":
        u = tanh(z + bias)
    elif KIND == "relu":
        u = _ramp(z + bias)
    elif KIND == "leaky_relu":
        u = z + bias
        u = tl.where(u >= 0, u, slope * u)
    else:
        u = z + bias
    return u


@triton.jit
def activation_backward(g, saved, bias, slope, epsilon, KIND: tl.constexpr, HALF: tl.constexpr, INNER: tl.constexpr):
    """dL/dz and the terms of dL/db from g = dL/du; `saved` is z for the complex kinds and u for the others."""
    if KIND == "complex_modrelu" or KIND == "complex_modrelu_smooth":
        scale, d_scale, d_bias = _complex_scale(saved, bias, epsilon, KIND, HALF, INNER)
        along = _pair_sum(saved * g, HALF, INNER)
        dz = scale * g + saved * (d_scale * along)
        db = d_bias * along
    elif KIND == "modrelu":
        dz = tl.where(saved == 0, 0.0, g)
        db = tl.where(saved < 0, -dz, dz)
    else:
        dz = g
        if KIND == "tanh":
            dz = g * (1.0 - saved * saved)
        elif KIND == "relu":
            dz = tl.where(saved <= 0, 0.0, g)
        elif KIND == "leaky_relu":
            dz = tl.where(saved >= 0, g, slope * g)
        db = dz
    return dz, db


@triton.jit
def cell_forward(
    mixed, x, gate, h, bias, step_size, slope, epsilon,
    KIND: tl.constexpr, RESIDUAL: tl.constexpr, HALF: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """One step from W h: the new state, and two values that `cell_backward` needs (they only differ when gated)."""
    if KIND == "gated":
        saved = tanh(mixed + x)
        saved_gate = sigmoid(mixed + gate)
        update = saved * saved_gate
    else:
        z = mixed + x
        update = _activate(z, bias, slope, epsilon, KIND, HALF, INNER)
        saved = update
        if KIND == "complex_modrelu" or KIND == "complex_modrelu_smooth":
            saved = z
        saved_gate = saved
    if RESIDUAL:
        update = h + step_size * update
    return update, saved, saved_gate


@triton.jit
def cell_backward(
    g, saved, saved_gate, bias, step_size, slope, epsilon,
    KIND: tl.constexpr, RESIDUAL: tl.constexpr, HALF: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """From g = dL/dh_t: the gradients of W h_{t-1}, of x_t, of the gate's input, and the terms of dL/db."""
    if RESIDUAL:
        g = step_size * g
    if KIND == "gated":
        dx = g * saved_gate * (1.0 - saved * saved)
        d_gate = g * saved * saved_gate * (1.0 - saved_gate)
        d_mixed = dx + d_gate
        d_bias = dx
    else:
        dx, d_bias = activation_backward(g, saved, bias, slope, epsilon, KIND, HALF, INNER)
        d_gate = dx
        d_mixed = dx
    return d_mixed, dx, d_gate, d_bias
