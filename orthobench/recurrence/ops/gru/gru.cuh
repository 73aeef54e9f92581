/* The GRU: r, z = sigmoid(x + W h_{t-1}), h_t = z h_{t-1} + (1 - z) g. With the reset after the product,
 * g = act(x_g + r (W_g h_{t-1} + b); b'), else g = act(x_g + W_g (r h_{t-1}); b'). The vectors are b' and b; modReLU's epsilon is
 * the constant b. */
#pragma once
#include "cuda/activations.cuh"

template <int KIND> struct GruAfterForward : Cell {
    static constexpr int VALUES = 1, PRODUCTS = 3, INPUTS = 3, OUTPUTS = 1, SAVED = 5, STATES = 1, VECTORS = 2;

    template <int PHASE> static MEMBER void step(const Unit &u) {
        const float r = sigmoid(u.product[0] + u.input[0]), z = sigmoid(u.product[1] + u.input[1]);
        const float mixed = u.product[2] + u.vector[1];
        const float g = activated<KIND>(fmaf(r, mixed, u.input[2]), u.vector[0], u.constants.b);
        float *const saved = u.output + 1, &h = u.state[0];
        saved[0] = r, saved[1] = z, saved[2] = g, saved[3] = mixed, saved[4] = h;
        u.output[0] = u.value[0] = h = fmaf(z, h - g, g);
    }
};

/* The outputs are dL/dx of r, z and g; saved is the gradient of r (W_g h + b) / r. */
template <int KIND> struct GruAfterBackward : Cell {
    static constexpr int VALUES = 3, PRODUCTS = 1, INPUTS = 5, SECOND = 1, OUTPUTS = 3, SAVED = 1, STATES = 1, FACTORS = 5,
                         SUMS = 2, TRACED = 1;

    static MEMBER void prepare(const float *input, const Constants &constants, float *factor) {
        const float r = input[0], z = input[1], g = input[2], mixed = input[3], before = input[4];
        factor[2] = (1.0f - z) * activated_slope<KIND>(g, constants.b);
        factor[0] = factor[2] * mixed * sigmoid_slope(r);
        factor[1] = (before - g) * sigmoid_slope(z);
        factor[3] = factor[2] * r;
        factor[4] = z;
    }

    template <int PHASE> static MEMBER void step(const Unit &u) {
        const float dh = u.input[5] + u.state[0] + u.product[0];
        u.output[0] = u.value[0] = dh * u.factor[0];
        u.output[1] = u.value[1] = dh * u.factor[1];
        u.output[2] = dh * u.factor[2];
        u.output[3] = u.value[2] = dh * u.factor[3];
        u.state[0] = dh * u.factor[4];
        u.sum[0] += bias_gradient<KIND>(u.output[2], u.input[2]);
        u.sum[1] += u.output[3];
        u.trace[0] = dh;
    }
};

/* The second product is of r h. */
template <int KIND> struct GruBeforeForward : Cell {
    static constexpr int PHASES = 2, VALUES = 1, PRODUCTS = 2, VALUES_2 = 1, PRODUCTS_2 = 1, ROW_2 = 2, INPUTS = 3, OUTPUTS = 1,
                         SAVED = 4, STATES = 1, KEPT = 2, VECTORS = 1;

    template <int PHASE> static MEMBER void step(const Unit &u) {
        float &h = u.state[0], &r = u.state[1], &z = u.state[2];
        if constexpr (PHASE == 0) {
            r = sigmoid(u.product[0] + u.input[0]), z = sigmoid(u.product[1] + u.input[1]);
            u.value[0] = r * h;
        } else {
            const float g = activated<KIND>(u.product[0] + u.input[2], u.vector[0], u.constants.b);
            float *const saved = u.output + 1;
            saved[0] = r, saved[1] = z, saved[2] = g, saved[3] = h;
            u.output[0] = u.value[0] = h = fmaf(z, h - g, g);
        }
    }
};

/* The first product gives the gradient of h, and the second that of r h. Saved is r h_{t-1}. */
template <int KIND> struct GruBeforeBackward : Cell {
    static constexpr int PHASES = 2, VALUES = 2, PRODUCTS = 1, VALUES_2 = 1, PRODUCTS_2 = 1, ROW_2 = 2, INPUTS = 4, SECOND = 1,
                         OUTPUTS = 3, SAVED = 1, STATES = 1, KEPT = 2, FACTORS = 3, SUMS = 1, TRACED = 1;

    static MEMBER void prepare(const float *input, const Constants &constants, float *factor) {
        const float r = input[0], z = input[1], g = input[2], before = input[3];
        factor[0] = (1.0f - z) * activated_slope<KIND>(g, constants.b);
        factor[1] = (before - g) * sigmoid_slope(z);
        factor[2] = before * sigmoid_slope(r);
    }

    template <int PHASE> static MEMBER void step(const Unit &u) {
        float &carried = u.state[0], &dh = u.state[1], &dg = u.state[2];
        const float r = u.input[0], z = u.input[1], g = u.input[2], before = u.input[3];
        if constexpr (PHASE == 0) {
            dh = u.input[4] + carried + u.product[0];
            u.value[0] = dg = dh * u.factor[0];
        } else {
            const float d_reset = u.product[0];
            u.output[0] = u.value[0] = d_reset * u.factor[2];
            u.output[1] = u.value[1] = dh * u.factor[1];
            u.output[2] = dg;
            u.output[3] = r * before;
            carried = fmaf(dh, z, d_reset * r);
            u.sum[0] += bias_gradient<KIND>(dg, g);
            u.trace[0] = dh;
        }
    }
};
