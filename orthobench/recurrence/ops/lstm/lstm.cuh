/* The LSTM: i, f, o = sigmoid and g = tanh of x + W h_{t-1}, c_t = f c_{t-1} + i g, h_t = o tanh(c_t). */
#pragma once
#include "cuda/cell.cuh"

struct LstmForward : Cell {
    static constexpr int VALUES = 1, PRODUCTS = 4, INPUTS = 4, OUTPUTS = 1, SAVED = 5, STATES = 2;

    template <int PHASE> static MEMBER void step(const Unit &u) {
        const float i = sigmoid(u.product[0] + u.input[0]), f = sigmoid(u.product[1] + u.input[1]);
        const float g = hyperbolic_tangent(u.product[2] + u.input[2]), o = sigmoid(u.product[3] + u.input[3]);
        float *const saved = u.output + 1, &c = u.state[1];
        saved[0] = i, saved[1] = f, saved[2] = g, saved[3] = o, saved[4] = c;
        c = fmaf(f, c, i * g);
        u.output[0] = u.value[0] = u.state[0] = o * hyperbolic_tangent(c);
    }
};

/* The values and outputs are dL/dx, which is also the gradient of W h. */
struct LstmBackward : Cell {
    static constexpr int VALUES = 4, PRODUCTS = 1, INPUTS = 5, SECOND = 1, OUTPUTS = 4, STATES = 2, FACTORS = 6, TRACED = 2;

    static MEMBER void prepare(const float *input, const Constants &, float *factor) {
        const float i = input[0], f = input[1], g = input[2], o = input[3], before = input[4];
        const float tangent = hyperbolic_tangent(fmaf(f, before, i * g));
        factor[0] = g * sigmoid_slope(i);
        factor[1] = before * sigmoid_slope(f);
        factor[2] = i * tangent_slope(g);
        factor[3] = tangent * sigmoid_slope(o);
        factor[4] = o * tangent_slope(tangent);
        factor[5] = f;
    }

    template <int PHASE> static MEMBER void step(const Unit &u) {
        const float dh = u.input[5] + u.state[0] + u.product[0], dc = fmaf(dh, u.factor[4], u.state[1]);
        UNROLL for (int gate = 0; gate < 4; gate++)
            u.output[gate] = u.value[gate] = (gate == 3 ? dh : dc) * u.factor[gate];
        u.state[0] = 0.0f, u.state[1] = dc * u.factor[5];
        u.trace[0] = dh, u.trace[1] = dc;
    }
};
