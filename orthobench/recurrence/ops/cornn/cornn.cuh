/* coRNN: z_t = z_{t-1} + a (tanh(x_t + W [y_{t-1}; z_{t-1}]) - b y_{t-1} - c z_{t-1}), y_t = y_{t-1} + a z_t. */
#pragma once
#include "cuda/cell.cuh"

struct CornnForward : Cell {
    static constexpr int VALUES = 2, PRODUCTS = 1, INPUTS = 1, OUTPUTS = 1, SAVED = 2, STATES = 2;

    template <int PHASE> static MEMBER void step(const Unit &u) {
        float &y = u.state[0], &z = u.state[1];
        const float force = hyperbolic_tangent(u.product[0] + u.input[0]);
        z = fmaf(u.constants.a, fmaf(-u.constants.c, z, fmaf(-u.constants.b, y, force)), z);
        y = fmaf(u.constants.a, z, y);
        u.output[0] = u.value[0] = y;
        u.output[1] = force, u.output[2] = u.value[1] = z;
    }
};

/* The products add to the gradients of y and z. */
struct CornnBackward : Cell {
    static constexpr int VALUES = 1, PRODUCTS = 2, INPUTS = 2, SECOND = 1, OUTPUTS = 1, STATES = 2, TRACED = 2;

    template <int PHASE> static MEMBER void step(const Unit &u) {
        const float dy = u.input[2] + u.state[0] + u.product[0];
        const float dz = fmaf(u.constants.a, dy, u.state[1] + u.product[1]), scaled = u.constants.a * dz;
        u.output[0] = u.value[0] = scaled * tangent_slope(u.input[0]);
        u.state[0] = fmaf(-u.constants.b, scaled, dy), u.state[1] = fmaf(-u.constants.c, scaled, dz);
        u.trace[0] = dy, u.trace[1] = dz;
    }
};
