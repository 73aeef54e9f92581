/* The cells of the operation lstm, written by `make cells` from its step. */
#include "cuda/derived.cuh"

struct LstmForward : Cell {
    static constexpr int PHASES = 1, STATES = 2, VALUES = 1, PRODUCTS = 4, INPUTS = 4, OUTPUTS = 1, SAVED = 5;

    template <int PHASE> static MEMBER void step(const Unit &u) {
        const vf t0 = sigmoid((u.product[3] + u.input[3]));
        u.output[1] = t0;
        const vf t2 = sigmoid((u.product[1] + u.input[1]));
        u.output[2] = t2;
        const vf t4 = sigmoid((u.product[0] + u.input[0]));
        u.output[3] = t4;
        const vf t6 = hyperbolic_tangent((u.product[2] + u.input[2]));
        u.output[4] = t6;
        u.output[5] = u.state[1];
        const vf t9 = mixture(t2, u.state[1], t4, t6);
        const vf t10 = t0 * hyperbolic_tangent(t9);
        u.state[0] = t10;
        u.state[1] = t9;
        u.output[0] = u.value[0] = u.state[0];
    }
};

struct LstmBackward : Cell {
    static constexpr int PHASES = 1, STATES = 2, VALUES = 4, PRODUCTS = 1, INPUTS = 5, SECOND = 1, OUTPUTS = 4, FACTORS = 5, TRACED = 2;

    static MEMBER void prepare(const float *input, const float *vector, const Constants &constants, float *factor) {
        const vf t0 = hyperbolic_tangent(mixture(input[1], input[4], input[2], input[3]));
        factor[0] = input[0] * tangent_slope(t0);
        factor[1] = (input[3] * input[2]) * (1.0f - input[2]);
        factor[2] = (input[4] * input[1]) * (1.0f - input[1]);
        factor[3] = input[2] * tangent_slope(input[3]);
        factor[4] = (t0 * input[0]) * (1.0f - input[0]);
    }

    template <int PHASE> static MEMBER void step(const Unit &u) {
        u.state[0] += u.input[5] + u.product[0];
        const vf t0 = u.state[1] + (u.state[0] * u.factor[0]);
        const vf t1 = t0 * u.factor[1];
        u.output[0] = t1;
        const vf t3 = t0 * u.factor[2];
        u.output[1] = t3;
        const vf t5 = t0 * u.factor[3];
        u.output[2] = t5;
        const vf t7 = u.state[0] * u.factor[4];
        u.output[3] = t7;
        u.value[0] = t1;
        u.value[1] = t3;
        u.value[2] = t5;
        u.value[3] = t7;
        u.trace[0] = u.state[0];
        u.trace[1] = t0;
        const vf t15 = splat(0.0f);
        const vf t16 = t0 * u.input[1];
        u.state[0] = t15;
        u.state[1] = t16;
    }
};
