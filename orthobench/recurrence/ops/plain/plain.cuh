/* The plain recurrence h_t = act(x_t + W h_{t-1}; b), and its Euler form h_t = h_{t-1} + a act(...).
 * The constants are the step size a and the activation's slope or epsilon b. */
#pragma once
#include "cuda/activations.cuh"

template <int KIND, bool EULER> struct PlainForward : Cell {
    static constexpr int VALUES = 1, PRODUCTS = 1, INPUTS = 1, OUTPUTS = 1, SAVED = 1, STATES = 1, VECTORS = 1;

    /* Saved is z of a complex activation, because its output does not show it, and the update otherwise. */
    template <int PHASE> static MEMBER void step(const Unit &u) {
        const float z = u.product[0] + u.input[0], b = u.vector[0], parameter = u.constants.b;
        float y;
        if constexpr (is_complex(KIND)) {
            const float other = u.partner(z);
            y = z * complex_scale<KIND>(fmaf(z, z, other * other), b, parameter).s;
        } else {
            y = activated<KIND>(z, b, parameter);
        }
        u.output[1] = is_complex(KIND) ? z : y;
        u.output[0] = u.value[0] = u.state[0] = EULER ? fmaf(u.constants.a, y, u.state[0]) : y;
    }
};

/* The inputs are h or what was saved. The trace is the total gradient of h. */
template <int KIND, bool EULER> struct PlainBackward : Cell {
    static constexpr int VALUES = 1, PRODUCTS = 1, INPUTS = 1, SECOND = 1, OUTPUTS = 1, STATES = 1, VECTORS = 1, SUMS = 1,
                         TRACED = 1;

    template <int PHASE> static MEMBER void step(const Unit &u) {
        const float dh = u.input[1] + u.state[0] + u.product[0], dy = EULER ? u.constants.a * dh : dh, y = u.input[0];
        float dz, db;
        if constexpr (is_complex(KIND)) {
            const float other = u.partner(y), along = fmaf(y, dy, other * u.partner(dy));
            const Scale scale = complex_scale<KIND>(fmaf(y, y, other * other), u.vector[0], u.constants.b);
            dz = fmaf(along * scale.slope, y, dy * scale.s), db = along * scale.by_bias;
        } else {
            dz = dy * activated_slope<KIND>(y, u.constants.b), db = bias_gradient<KIND>(dz, y);
        }
        u.state[0] = EULER ? dh : 0.0f;
        u.output[0] = u.value[0] = dz;
        u.sum[0] += db;
        u.trace[0] = dh;
    }
};
