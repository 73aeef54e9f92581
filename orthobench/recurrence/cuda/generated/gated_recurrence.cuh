/* The cells of the operation gated_recurrence, written by `make cells` from its step. */
#include "cuda/derived.cuh"

struct GatedRecurrenceForward : Cell {
    static constexpr int PHASES = 1, STATES = 1, VALUES = 1, PRODUCTS = 1, INPUTS = 2, OUTPUTS = 1, SAVED = 2;

    template <int PHASE> static MEMBER void step(const Unit &u) {
        const vf t0 = sigmoid((u.product[0] + u.input[1]));
        u.output[1] = t0;
        const vf t2 = hyperbolic_tangent((u.product[0] + u.input[0]));
        u.output[2] = t2;
        const vf t4 = u.state[0] + ((u.constants.a * t0) * t2);
        u.state[0] = t4;
        u.output[0] = u.value[0] = u.state[0];
    }
};

struct GatedRecurrenceBackward : Cell {
    static constexpr int PHASES = 1, STATES = 1, VALUES = 1, PRODUCTS = 1, INPUTS = 2, SECOND = 1, OUTPUTS = 2, SAVED = 1, FACTORS = 2, TRACED = 1;

    static MEMBER void prepare(const float *input, const float *vector, const Constants &constants, float *factor) {
        factor[0] = (constants.a * input[0]) * tangent_slope(input[1]);
        factor[1] = ((constants.a * input[1]) * input[0]) * (1.0f - input[0]);
    }

    template <int PHASE> static MEMBER void step(const Unit &u) {
        u.state[0] += u.input[2] + u.product[0];
        const vf t0 = u.state[0] * u.factor[0];
        u.output[0] = t0;
        const vf t2 = u.state[0] * u.factor[1];
        u.output[1] = t2;
        const vf t4 = t0 + t2;
        u.output[2] = t4;
        u.value[0] = t4;
        u.trace[0] = u.state[0];
        const vf t8 = u.state[0];
        u.state[0] = t8;
    }
};
