/* The cells of the operation lem, written by `make cells` from its step. */
#include "cuda/derived.cuh"

struct LemForward : Cell {
    static constexpr int PHASES = 2, STATES = 2, VALUES = 1, PRODUCTS = 3, INPUTS = 4, OUTPUTS = 1, SAVED = 7, KEPT = 4, VALUES_2 = 1, PRODUCTS_2 = 1, ROW_2 = 3;

    template <int PHASE> static MEMBER void step(const Unit &u) {
        if constexpr (PHASE == 0) {
            const vf t0 = sigmoid((u.product[0] + u.input[0]));
            u.state[2] = t0;
            const vf t2 = hyperbolic_tangent((u.product[1] + u.input[1]));
            u.state[3] = t2;
            u.state[4] = sigmoid((u.product[2] + u.input[2]));
            u.state[5] = u.state[1];
            const vf t6 = u.constants.a * t0;
            const vf t7 = mixture((1.0f - t6), u.state[1], t6, t2);
            u.value[0] = t7;
            u.state[1] = t7;
        } else {
            u.output[1] = u.state[2];
            u.output[2] = u.state[3];
            u.output[3] = u.state[4];
            const vf t3 = hyperbolic_tangent((u.product[0] + u.input[3]));
            u.output[4] = t3;
            u.output[5] = u.state[5];
            u.output[6] = u.state[0];
            u.output[7] = u.state[1];
            const vf t8 = u.constants.a * u.state[4];
            const vf t9 = mixture((1.0f - t8), u.state[0], t8, t3);
            u.state[0] = t9;
            u.output[0] = u.value[0] = u.state[0];
        }
    }
};

struct LemBackward : Cell {
    static constexpr int PHASES = 2, STATES = 2, VALUES = 3, PRODUCTS = 1, INPUTS = 7, SECOND = 1, OUTPUTS = 4, FACTORS = 6, TRACED = 2, VALUES_2 = 1, PRODUCTS_2 = 1, ROW_2 = 3;

    static MEMBER void prepare(const float *input, const float *vector, const Constants &constants, float *factor) {
        const vf t0 = constants.a * input[0];
        factor[0] = (t0 * (input[1] - input[4])) * (1.0f - input[0]);
        factor[1] = t0 * tangent_slope(input[1]);
        const vf t3 = constants.a * input[2];
        factor[2] = (t3 * (input[3] - input[5])) * (1.0f - input[2]);
        factor[3] = t3 * tangent_slope(input[3]);
        factor[4] = 1.0f - t3;
        factor[5] = 1.0f - t0;
    }

    template <int PHASE> static MEMBER void step(const Unit &u) {
        if constexpr (PHASE == 0) {
            u.state[0] += u.input[7] + u.product[0];
            u.value[0] = u.state[0] * u.factor[3];
        } else {
            u.state[1] += u.product[0];
            const vf t0 = u.state[1] * u.factor[0];
            u.output[0] = t0;
            const vf t2 = u.state[1] * u.factor[1];
            u.output[1] = t2;
            const vf t4 = u.state[0] * u.factor[2];
            u.output[2] = t4;
            u.output[3] = u.state[0] * u.factor[3];
            u.value[0] = t0;
            u.value[1] = t2;
            u.value[2] = t4;
            u.trace[0] = u.state[0];
            u.trace[1] = u.state[1];
            const vf t12 = u.state[0] * u.factor[4];
            const vf t13 = u.state[1] * u.factor[5];
            u.state[0] = t12;
            u.state[1] = t13;
        }
    }
};
