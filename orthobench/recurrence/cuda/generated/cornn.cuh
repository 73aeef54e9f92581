/* The cells of the operation cornn, written by `make cells` from its step. */
#include "cuda/derived.cuh"

struct CornnForward : Cell {
    static constexpr int PHASES = 1, STATES = 2, VALUES = 2, PRODUCTS = 1, INPUTS = 1, OUTPUTS = 1, SAVED = 2;

    template <int PHASE> static MEMBER void step(const Unit &u) {
        const vf t0 = hyperbolic_tangent((u.product[0] + u.input[0]));
        u.output[1] = t0;
        const vf t2 = u.state[1] + (u.constants.a * ((t0 - (u.constants.b * u.state[0])) - (u.constants.c * u.state[1])));
        u.output[2] = t2;
        const vf t4 = u.state[0] + (u.constants.a * t2);
        u.state[0] = t4;
        u.state[1] = t2;
        u.output[0] = u.value[0] = u.state[0];
        u.value[1] = u.state[1];
    }
};

struct CornnBackward : Cell {
    static constexpr int PHASES = 1, STATES = 2, VALUES = 1, PRODUCTS = 2, INPUTS = 2, SECOND = 1, OUTPUTS = 1, FACTORS = 1, TRACED = 2;

    static MEMBER void prepare(const float *input, const float *vector, const Constants &constants, float *factor) {
        factor[0] = constants.a * tangent_slope(input[0]);
    }

    template <int PHASE> static MEMBER void step(const Unit &u) {
        u.state[0] += u.input[2] + u.product[0];
        u.state[1] += u.product[1];
        const vf t0 = u.state[1] + (u.state[0] * u.constants.a);
        const vf t1 = t0 * u.factor[0];
        u.output[0] = t1;
        u.value[0] = t1;
        u.trace[0] = u.state[0];
        u.trace[1] = t0;
        const vf t6 = u.state[0] - (t0 * (u.constants.a * u.constants.b));
        const vf t7 = t0 - (t0 * (u.constants.a * u.constants.c));
        u.state[0] = t6;
        u.state[1] = t7;
    }
};
