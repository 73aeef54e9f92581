/* Pointwise functions in float32, with errors of a few units in the last place. */
#pragma once
#include "device.cuh"

DEVICE float sigmoid(float x) { return reciprocal(1.0f + exponential2(-1.44269504f * x)); }

DEVICE float hyperbolic_tangent(float x) {
    const float size = fabsf(x), square = x * x;
    const float large = fmaf(-2.0f, reciprocal(1.0f + exponential2(2.88539008f * size)), 1.0f);
    /* x + x^3 p(x^2), a least-squares fit of the relative error for |x| < 0.6, because there 1 - 2 / (1 + e^2x) cancels. */
    float p = fmaf(square, -0.00590586802f, 0.020805385f);
    p = fmaf(square, p, -0.0537866838f);
    p = fmaf(square, p, 0.133319587f);
    p = fmaf(square, p, -0.333332986f);
    const float small = fmaf(x * square, p, x);
    return size < 0.6f ? small : copysignf(large, x);
}

/* 1 - tanh(x)^2, from y = tanh(x). */
DEVICE float tangent_slope(float y) { return fmaf(-y, y, 1.0f); }
/* s (1 - s), from s = sigmoid(x). */
DEVICE float sigmoid_slope(float s) { return s * (1.0f - s); }
/* e^x for x <= 80. */
DEVICE float exponential(float x) { return exponential2(1.44269504f * x); }
