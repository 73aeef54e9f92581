/* The cells of the operation gru, written by `make cells` from its step. */
#include "cuda/derived.cuh"

struct GruTanhForward : Cell {
    static constexpr int PHASES = 2, STATES = 1, VECTORS = 2, VALUES = 1, PRODUCTS = 2, INPUTS = 3, OUTPUTS = 1, SAVED = 4, KEPT = 2, VALUES_2 = 1, PRODUCTS_2 = 1, ROW_2 = 2;

    template <int PHASE> static MEMBER void step(const Unit &u) {
        if constexpr (PHASE == 0) {
            const vf t0 = sigmoid((u.product[0] + u.input[0]));
            u.state[1] = t0;
            u.state[2] = sigmoid((u.product[1] + u.input[1]));
            u.value[0] = t0 * u.state[0];
        } else {
            u.output[1] = u.state[1];
            u.output[2] = u.state[2];
            const vf t2 = hyperbolic_tangent(((u.product[0] + u.input[2]) + u.vector[1]));
            u.output[3] = t2;
            u.output[4] = u.state[0];
            const vf t5 = mixture(u.state[2], u.state[0], (1.0f - u.state[2]), t2);
            u.state[0] = t5;
            u.output[0] = u.value[0] = u.state[0];
        }
    }
};

struct GruTanhBackward : Cell {
    static constexpr int PHASES = 2, STATES = 1, VECTORS = 2, VALUES = 2, PRODUCTS = 1, INPUTS = 4, SECOND = 1, OUTPUTS = 3, SAVED = 1, FACTORS = 3, SUMS = 2, TRACED = 1, VALUES_2 = 1, PRODUCTS_2 = 1, ROW_2 = 2;

    static MEMBER void prepare(const float *input, const float *vector, const Constants &constants, float *factor) {
        factor[0] = (input[0] * input[3]) * (1.0f - input[0]);
        const vf t1 = 1.0f - input[1];
        factor[1] = ((input[3] - input[2]) * input[1]) * t1;
        factor[2] = t1 * tangent_slope(input[2]);
    }

    template <int PHASE> static MEMBER void step(const Unit &u) {
        if constexpr (PHASE == 0) {
            u.state[0] += u.input[4] + u.product[0];
            u.value[0] = u.state[0] * u.factor[2];
        } else {
            const vf t0 = u.product[0] * u.factor[0];
            u.output[0] = t0;
            const vf t2 = u.state[0] * u.factor[1];
            u.output[1] = t2;
            const vf t4 = u.state[0] * u.factor[2];
            u.output[2] = t4;
            u.output[3] = u.input[0] * u.input[3];
            u.value[0] = t0;
            u.value[1] = t2;
            u.sum[1] = u.sum[1] + t4;
            u.trace[0] = u.state[0];
            const vf t11 = (u.product[0] * u.input[0]) + (u.state[0] * u.input[1]);
            u.state[0] = t11;
        }
    }
};

struct GruResetAfterTanhForward : Cell {
    static constexpr int PHASES = 1, STATES = 1, VECTORS = 2, VALUES = 1, PRODUCTS = 3, INPUTS = 3, OUTPUTS = 1, SAVED = 5;

    template <int PHASE> static MEMBER void step(const Unit &u) {
        const vf t0 = sigmoid((u.product[1] + u.input[1]));
        u.output[1] = t0;
        const vf t2 = sigmoid((u.product[0] + u.input[0]));
        u.output[2] = t2;
        const vf t4 = u.product[2] + u.vector[0];
        u.output[3] = t4;
        const vf t6 = hyperbolic_tangent(((u.input[2] + held((t2 * t4))) + u.vector[1]));
        u.output[4] = t6;
        u.output[5] = u.state[0];
        const vf t9 = mixture(t0, u.state[0], (1.0f - t0), t6);
        u.state[0] = t9;
        u.output[0] = u.value[0] = u.state[0];
    }
};

struct GruResetAfterTanhBackward : Cell {
    static constexpr int PHASES = 1, STATES = 1, VECTORS = 2, VALUES = 3, PRODUCTS = 1, INPUTS = 5, SECOND = 1, OUTPUTS = 3, SAVED = 1, FACTORS = 4, SUMS = 2, TRACED = 1;

    static MEMBER void prepare(const float *input, const float *vector, const Constants &constants, float *factor) {
        const vf t0 = 1.0f - input[0];
        const vf t1 = t0 * tangent_slope(input[3]);
        const vf t2 = t1 * input[1];
        factor[0] = (t2 * input[2]) * (1.0f - input[1]);
        factor[1] = ((input[4] - input[3]) * input[0]) * t0;
        factor[2] = t1;
        factor[3] = t2;
    }

    template <int PHASE> static MEMBER void step(const Unit &u) {
        u.state[0] += u.input[5] + u.product[0];
        const vf t0 = u.state[0] * u.factor[0];
        u.output[0] = t0;
        const vf t2 = u.state[0] * u.factor[1];
        u.output[1] = t2;
        const vf t4 = u.state[0] * u.factor[2];
        u.output[2] = t4;
        const vf t6 = u.state[0] * u.factor[3];
        u.output[3] = t6;
        u.value[0] = t0;
        u.value[1] = t2;
        u.value[2] = t6;
        u.sum[0] = u.sum[0] + t6;
        u.sum[1] = u.sum[1] + t4;
        u.trace[0] = u.state[0];
        const vf t14 = u.state[0] * u.input[0];
        u.state[0] = t14;
    }
};

struct GruModreluForward : Cell {
    static constexpr int PHASES = 2, STATES = 1, VECTORS = 2, VALUES = 1, PRODUCTS = 2, INPUTS = 3, OUTPUTS = 1, SAVED = 4, KEPT = 2, VALUES_2 = 1, PRODUCTS_2 = 1, ROW_2 = 2;

    template <int PHASE> static MEMBER void step(const Unit &u) {
        if constexpr (PHASE == 0) {
            const vf t0 = sigmoid((u.product[0] + u.input[0]));
            u.state[1] = t0;
            u.state[2] = sigmoid((u.product[1] + u.input[1]));
            u.value[0] = t0 * u.state[0];
        } else {
            u.output[1] = u.state[1];
            u.output[2] = u.product[0] + u.input[2];
            u.output[3] = u.state[2];
            u.output[4] = u.state[0];
            const vf t4 = mixture(u.state[2], u.state[0], (1.0f - u.state[2]), (sign_of((u.product[0] + u.input[2])) * relu(((magnitude((u.product[0] + u.input[2])) + u.constants.a) + u.vector[1]))));
            u.state[0] = t4;
            u.output[0] = u.value[0] = u.state[0];
        }
    }
};

struct GruModreluBackward : Cell {
    static constexpr int PHASES = 2, STATES = 1, VECTORS = 2, VALUES = 2, PRODUCTS = 1, INPUTS = 4, SECOND = 1, OUTPUTS = 3, SAVED = 1, FACTORS = 5, SUMS = 2, TRACED = 1, VALUES_2 = 1, PRODUCTS_2 = 1, ROW_2 = 2;

    static MEMBER void prepare(const float *input, const float *vector, const Constants &constants, float *factor) {
        factor[0] = (input[0] * input[3]) * (1.0f - input[0]);
        const vf t1 = sign_of(input[1]);
        const vf t2 = relu(((magnitude(input[1]) + constants.a) + vector[1]));
        const vf t3 = 1.0f - input[2];
        factor[1] = ((input[3] - (t1 * t2)) * input[2]) * t3;
        factor[2] = t2;
        const vf t6 = t3 * t1;
        factor[3] = t6 * t1;
        factor[4] = t6;
    }

    template <int PHASE> static MEMBER void step(const Unit &u) {
        if constexpr (PHASE == 0) {
            u.state[0] += u.input[4] + u.product[0];
            u.value[0] = select_lanes((u.factor[2] > 0.0f), (u.state[0] * u.factor[3]), splat(0.0f));
        } else {
            const vf t0 = u.product[0] * u.factor[0];
            u.output[0] = t0;
            const vf t2 = u.state[0] * u.factor[1];
            u.output[1] = t2;
            u.output[2] = select_lanes((u.factor[2] > 0.0f), (u.state[0] * u.factor[3]), splat(0.0f));
            u.output[3] = u.input[0] * u.input[3];
            u.value[0] = t0;
            u.value[1] = t2;
            u.sum[1] = u.sum[1] + select_lanes((u.factor[2] > 0.0f), (u.state[0] * u.factor[4]), splat(0.0f));
            u.trace[0] = u.state[0];
            const vf t10 = (u.product[0] * u.input[0]) + (u.state[0] * u.input[2]);
            u.state[0] = t10;
        }
    }
};

struct GruResetAfterModreluForward : Cell {
    static constexpr int PHASES = 1, STATES = 1, VECTORS = 2, VALUES = 1, PRODUCTS = 3, INPUTS = 3, OUTPUTS = 1, SAVED = 5;

    template <int PHASE> static MEMBER void step(const Unit &u) {
        const vf t0 = sigmoid((u.product[0] + u.input[0]));
        u.output[1] = t0;
        const vf t2 = u.product[2] + u.vector[0];
        u.output[2] = t2;
        const vf t4 = u.input[2] + held((t0 * t2));
        u.output[3] = t4;
        const vf t6 = sigmoid((u.product[1] + u.input[1]));
        u.output[4] = t6;
        u.output[5] = u.state[0];
        const vf t9 = mixture(t6, u.state[0], (1.0f - t6), (sign_of(t4) * relu(((magnitude(t4) + u.constants.a) + u.vector[1]))));
        u.state[0] = t9;
        u.output[0] = u.value[0] = u.state[0];
    }
};

struct GruResetAfterModreluBackward : Cell {
    static constexpr int PHASES = 1, STATES = 1, VECTORS = 2, VALUES = 3, PRODUCTS = 1, INPUTS = 5, SECOND = 1, OUTPUTS = 3, SAVED = 1, FACTORS = 5, SUMS = 2, TRACED = 1;

    static MEMBER void prepare(const float *input, const float *vector, const Constants &constants, float *factor) {
        const vf t0 = relu(((magnitude(input[2]) + constants.a) + vector[1]));
        factor[0] = t0;
        const vf t2 = 1.0f - input[3];
        const vf t3 = sign_of(input[2]);
        const vf t4 = t2 * t3;
        factor[1] = t4 * t3;
        factor[2] = (input[0] * input[1]) * (1.0f - input[0]);
        factor[3] = ((input[4] - (t3 * t0)) * input[3]) * t2;
        factor[4] = t4;
    }

    template <int PHASE> static MEMBER void step(const Unit &u) {
        u.state[0] += u.input[5] + u.product[0];
        const vf t0 = select_lanes((u.factor[0] > 0.0f), (u.state[0] * u.factor[1]), splat(0.0f));
        const vf t1 = t0 * u.factor[2];
        u.output[0] = t1;
        const vf t3 = u.state[0] * u.factor[3];
        u.output[1] = t3;
        u.output[2] = t0;
        const vf t6 = t0 * u.input[0];
        u.output[3] = t6;
        u.value[0] = t1;
        u.value[1] = t3;
        u.value[2] = t6;
        u.sum[0] = u.sum[0] + t6;
        u.sum[1] = u.sum[1] + select_lanes((u.factor[0] > 0.0f), (u.state[0] * u.factor[4]), splat(0.0f));
        u.trace[0] = u.state[0];
        const vf t14 = u.state[0] * u.input[3];
        u.state[0] = t14;
    }
};
