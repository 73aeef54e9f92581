/* LEM: lengths p = a sigmoid(x_0 + W_0 y_{t-1}) and q = a sigmoid(x_2 + W_2 y_{t-1}),
 * z_t = z_{t-1} + p (tanh(x_1 + W_1 y_{t-1}) - z_{t-1}), y_t = y_{t-1} + q (tanh(x_3 + W_3 z_t) - y_{t-1}). b is 1 / a. */
#pragma once
#include "cuda/cell.cuh"

struct LemForward : Cell {
    static constexpr int PHASES = 2, VALUES = 1, PRODUCTS = 3, VALUES_2 = 1, PRODUCTS_2 = 1, ROW_2 = 3, INPUTS = 4, OUTPUTS = 1,
                         SAVED = 7, STATES = 2, KEPT = 4;

    template <int PHASE> static MEMBER void step(const Unit &u) {
        float &y = u.state[0], &z = u.state[1], &p = u.state[2], &q = u.state[3], &z_candidate = u.state[4], &before = u.state[5];
        if constexpr (PHASE == 0) {
            p = u.constants.a * sigmoid(u.product[0] + u.input[0]), q = u.constants.a * sigmoid(u.product[2] + u.input[2]);
            z_candidate = hyperbolic_tangent(u.product[1] + u.input[1]), before = z;
            u.value[0] = z = fmaf(p, z_candidate - z, z);
        } else {
            const float y_candidate = hyperbolic_tangent(u.product[0] + u.input[3]);
            float *const saved = u.output + 1;
            saved[0] = p, saved[1] = z_candidate, saved[2] = q, saved[3] = y_candidate, saved[4] = y, saved[5] = before, saved[6] = z;
            u.output[0] = u.value[0] = y = fmaf(q, y_candidate - y, y);
        }
    }
};

struct LemBackward : Cell {
    static constexpr int PHASES = 2, VALUES = 3, PRODUCTS = 1, VALUES_2 = 1, PRODUCTS_2 = 1, ROW_2 = 3, INPUTS = 7, SECOND = 1,
                         OUTPUTS = 4, STATES = 2, KEPT = 2, FACTORS = 4, TRACED = 2;

    static MEMBER void prepare(const float *input, const Constants &constants, float *factor) {
        const float p = input[0], z_candidate = input[1], q = input[2], y_candidate = input[3], y = input[4], z = input[5];
        factor[0] = (z_candidate - z) * p * fmaf(-p, constants.b, 1.0f);
        factor[1] = p * tangent_slope(z_candidate);
        factor[2] = (y_candidate - y) * q * fmaf(-q, constants.b, 1.0f);
        factor[3] = q * tangent_slope(y_candidate);
    }

    template <int PHASE> static MEMBER void step(const Unit &u) {
        float &carried_y = u.state[0], &carried_z = u.state[1], &dy = u.state[2], &d_candidate = u.state[3];
        if constexpr (PHASE == 0) {
            dy = u.input[7] + carried_y + u.product[0];
            u.value[0] = d_candidate = dy * u.factor[3];
        } else {
            const float dz = carried_z + u.product[0];
            u.output[0] = u.value[0] = dz * u.factor[0];
            u.output[1] = u.value[1] = dz * u.factor[1];
            u.output[2] = u.value[2] = dy * u.factor[2];
            u.output[3] = d_candidate;
            carried_y = fmaf(-dy, u.input[2], dy), carried_z = fmaf(-dz, u.input[0], dz);
            u.trace[0] = dy, u.trace[1] = dz;
        }
    }
};
