/* The cells of the operation lipschitz, written by `make cells` from its step. */
#include "cuda/derived.cuh"

struct LipschitzForward : Cell {
    static constexpr int PHASES = 1, STATES = 1, VALUES = 1, PRODUCTS = 2, INPUTS = 1, OUTPUTS = 1, SAVED = 1;

    template <int PHASE> static MEMBER void step(const Unit &u) {
        const vf t0 = hyperbolic_tangent((u.product[1] + u.input[0]));
        u.output[1] = t0;
        const vf t2 = u.state[0] + (u.constants.a * (u.product[0] + t0));
        u.state[0] = t2;
        u.output[0] = u.value[0] = u.state[0];
    }
};

struct LipschitzBackward : Cell {
    static constexpr int PHASES = 1, STATES = 1, VALUES = 2, PRODUCTS = 1, INPUTS = 1, SECOND = 1, OUTPUTS = 1, SAVED = 1, FACTORS = 1, TRACED = 1;

    static MEMBER void prepare(const float *input, const float *vector, const Constants &constants, float *factor) {
        factor[0] = constants.a * tangent_slope(input[0]);
    }

    template <int PHASE> static MEMBER void step(const Unit &u) {
        u.state[0] += u.input[1] + u.product[0];
        const vf t0 = u.state[0] * u.factor[0];
        u.output[0] = t0;
        const vf t2 = u.state[0] * u.constants.a;
        u.output[1] = t2;
        u.value[0] = t2;
        u.value[1] = t0;
        u.trace[0] = u.state[0];
        const vf t7 = u.state[0];
        u.state[0] = t7;
    }
};
