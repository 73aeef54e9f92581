/* The recurrence h_t = act(x_t + a_t h_{t-1}) of independent units, all steps in one launch: a thread runs one unit of a row. */
#pragma once
#include "cuda/activations.cuh"

constexpr int STEPS_AHEAD = 8; /* whose inputs a thread loads together */

struct IndependentArguments {
    const float *x, *weight, *start; /* [T, B, n]; [n] or [T, B, n]; [B, n] */
    float *h;                        /* [T, B, n] */
    const float *gradient, *final;   /* dL/dh [T, B, n] or null; dL/dh_T [B, n] or null */
    float *dx, *d_weight, *d_start;  /* [T, B, n]; [B, n], or [T, B, n] of weights [T, B, n]; [B, n] */
    float *trace;                    /* dL/dh_t in total, [T, B, n], or null */
    int steps, batch, features, per_step;
};

template <int KIND> DEVICE void independent_forward(const IndependentArguments &p) {
    const ptrdiff_t slab = (ptrdiff_t)p.batch * p.features, at = (ptrdiff_t)block_index() * 128 + thread_index();
    if (at >= slab) return;
    const float shared = p.per_step ? 0.0f : p.weight[at % p.features];
    float h = p.start[at];
    for (int t = 0; t < p.steps; t += STEPS_AHEAD) {
        float x[STEPS_AHEAD], weight[STEPS_AHEAD];
        UNROLL for (int i = 0; i < STEPS_AHEAD; i++) {
            x[i] = t + i < p.steps ? p.x[(t + i) * slab + at] : 0.0f;
            weight[i] = p.per_step && t + i < p.steps ? p.weight[(t + i) * slab + at] : shared;
        }
        UNROLL for (int i = 0; i < STEPS_AHEAD; i++)
            if (t + i < p.steps) p.h[(t + i) * slab + at] = h = activated<KIND>(fmaf(weight[i], h, x[i]), 0.0f, 0.0f);
    }
}

template <int KIND> DEVICE void independent_backward(const IndependentArguments &p) {
    const ptrdiff_t slab = (ptrdiff_t)p.batch * p.features, at = (ptrdiff_t)block_index() * 128 + thread_index();
    if (at >= slab) return;
    const float shared = p.per_step ? 0.0f : p.weight[at % p.features];
    float carried = p.final ? p.final[at] : 0.0f, sum = 0.0f;
    for (int last = p.steps - 1; last >= 0; last -= STEPS_AHEAD) {
        float gradient[STEPS_AHEAD], h[STEPS_AHEAD + 1], weight[STEPS_AHEAD];
        UNROLL for (int i = 0; i < STEPS_AHEAD; i++) {
            const int t = last - i;
            gradient[i] = p.gradient && t >= 0 ? p.gradient[t * slab + at] : 0.0f;
            weight[i] = p.per_step && t >= 0 ? p.weight[t * slab + at] : shared;
        }
        UNROLL for (int i = 0; i <= STEPS_AHEAD; i++) {
            const int t = last - i;
            h[i] = t >= 0 ? p.h[t * slab + at] : p.start[at];
        }
        UNROLL for (int i = 0; i < STEPS_AHEAD; i++) {
            const int t = last - i;
            if (t < 0) break;
            const float dh = gradient[i] + carried, dz = dh * activated_slope<KIND>(h[i], 0.0f);
            p.dx[t * slab + at] = dz;
            if (p.per_step) p.d_weight[t * slab + at] = dz * h[i + 1];
            sum = fmaf(dz, h[i + 1], sum);
            carried = dz * weight[i];
            if (p.trace) p.trace[t * slab + at] = dh;
        }
    }
    if (!p.per_step) p.d_weight[at] = sum;
    p.d_start[at] = carried;
}
