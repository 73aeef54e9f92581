/* The cells of the operation gru, written by `make cells` from its step. */
#include "cell.h"
#include "functions.h"

static const struct cell gru_tanh = {
    .phases = 2,
    .carried = 1,
    .phase[0] = {.reads = BEFORE, .products = 2, .inputs = 2, .saved = 2, .kept = 1, .outputs = 1, .adds = 1, .before = 1},
    .phase[1] = {.reads = VALUE, .products = 1, .inputs = 1, .saved = 1, .states = 1, .outputs = 6, .sums = 2, .before = 1},
};

INLINE void gru_tanh_forward_0(struct unit *u) {
    const vf t0 = sigmoid(u->product[0]);
    u->saved[0] = t0;
    const vf t2 = sigmoid(u->product[1]);
    u->saved[1] = t2;
    u->kept[0] = t2;
    u->value = t0 * u->state[0];
}

EPILOGUE(gru_tanh_finish_forward_0, forward, gru_tanh, 0, gru_tanh_forward_0)

INLINE void gru_tanh_backward_0(struct unit *u) {
    const vf t0 = u->saved[0] * u->before[0];
    u->output[0] = (u->product[0] * t0) * (1.0f - u->saved[0]);
    u->value = t0;
    const vf t3 = u->product[0] * u->saved[0];
    u->state[0] = u->state[0] + t3;
}

EPILOGUE(gru_tanh_finish_backward_0, backward, gru_tanh, 0, gru_tanh_backward_0)

INLINE void gru_tanh_forward_1(struct unit *u) {
    const vf t0 = hyperbolic_tangent((u->product[0] + u->vector[1]));
    u->saved[2] = t0;
    const vf t2 = mixture(u->kept[0], u->state[0], (1.0f - u->kept[0]), t0);
    u->state[0] = t2;
}

EPILOGUE(gru_tanh_finish_forward_1, forward, gru_tanh, 1, gru_tanh_forward_1)

INLINE void gru_tanh_backward_1(struct unit *u) {
    const vf t0 = 1.0f - u->saved[1];
    u->output[1] = ((u->state[0] * (u->before[0] - u->saved[2])) * u->saved[1]) * t0;
    const vf t2 = (u->state[0] * t0) * tangent_slope(u->saved[2]);
    u->output[2] = t2;
    u->sum[1] = t2;
    const vf t5 = u->state[0] * u->saved[1];
    u->state[0] = t5;
}

EPILOGUE(gru_tanh_finish_backward_1, backward, gru_tanh, 1, gru_tanh_backward_1)

int gru_tanh_forward(const struct dense *p, int64_t first, int64_t last) {
    return run_forward(&gru_tanh, p, first, last, (epilogue *const[]){gru_tanh_finish_forward_0, gru_tanh_finish_forward_1});
}

int gru_tanh_backward(const struct dense *p, int64_t first, int64_t last) {
    return run_backward(&gru_tanh, p, first, last, (epilogue *const[]){gru_tanh_finish_backward_0, gru_tanh_finish_backward_1});
}

static const struct cell gru_reset_after_tanh = {
    .phases = 2,
    .carried = 1,
    .phase[0] = {.reads = BEFORE, .products = 2, .inputs = 2, .saved = 2, .kept = 2},
    .phase[1] = {.reads = BEFORE, .products = 1, .inputs = 1, .own = 1, .saved = 2, .states = 1, .outputs = 7, .sums = 3, .before = 1},
};

INLINE void gru_reset_after_tanh_forward_0(struct unit *u) {
    const vf t0 = sigmoid(u->product[1]);
    u->saved[0] = t0;
    const vf t2 = sigmoid(u->product[0]);
    u->saved[1] = t2;
    u->kept[0] = t0;
    u->kept[1] = t2;
}

EPILOGUE(gru_reset_after_tanh_finish_forward_0, forward, gru_reset_after_tanh, 0, gru_reset_after_tanh_forward_0)

INLINE void gru_reset_after_tanh_forward_1(struct unit *u) {
    const vf t0 = u->product[0] + u->vector[0];
    u->saved[2] = t0;
    const vf t2 = hyperbolic_tangent(((u->input[0] + held((u->kept[1] * t0))) + u->vector[1]));
    u->saved[3] = t2;
    const vf t4 = mixture(u->kept[0], u->state[0], (1.0f - u->kept[0]), t2);
    u->state[0] = t4;
}

EPILOGUE(gru_reset_after_tanh_finish_forward_1, forward, gru_reset_after_tanh, 1, gru_reset_after_tanh_forward_1)

INLINE void gru_reset_after_tanh_backward_1(struct unit *u) {
    const vf t0 = 1.0f - u->saved[0];
    const vf t1 = (u->state[0] * t0) * tangent_slope(u->saved[3]);
    const vf t2 = t1 * u->saved[1];
    u->output[0] = (t2 * u->saved[2]) * (1.0f - u->saved[1]);
    u->output[1] = ((u->state[0] * (u->before[0] - u->saved[3])) * u->saved[0]) * t0;
    u->output[2] = t1;
    u->own[0] = t2;
    u->sum[0] = t2;
    u->sum[1] = t1;
    const vf t9 = u->state[0] * u->saved[0];
    u->state[0] = t9;
}

EPILOGUE(gru_reset_after_tanh_finish_backward_1, backward, gru_reset_after_tanh, 1, gru_reset_after_tanh_backward_1)

int gru_reset_after_tanh_forward(const struct dense *p, int64_t first, int64_t last) {
    return run_forward(&gru_reset_after_tanh, p, first, last, (epilogue *const[]){gru_reset_after_tanh_finish_forward_0, gru_reset_after_tanh_finish_forward_1});
}

int gru_reset_after_tanh_backward(const struct dense *p, int64_t first, int64_t last) {
    return run_backward(&gru_reset_after_tanh, p, first, last, (epilogue *const[]){NULL, gru_reset_after_tanh_finish_backward_1});
}

static const struct cell gru_modrelu = {
    .phases = 2,
    .carried = 1,
    .phase[0] = {.reads = BEFORE, .products = 2, .inputs = 2, .saved = 2, .kept = 1, .outputs = 1, .adds = 1, .before = 1},
    .phase[1] = {.reads = VALUE, .products = 1, .inputs = 1, .saved = 1, .states = 1, .outputs = 6, .sums = 2, .before = 1},
};

INLINE void gru_modrelu_forward_0(struct unit *u) {
    const vf t0 = sigmoid(u->product[0]);
    u->saved[0] = t0;
    const vf t2 = sigmoid(u->product[1]);
    u->saved[1] = t2;
    u->kept[0] = t2;
    u->value = t0 * u->state[0];
}

EPILOGUE(gru_modrelu_finish_forward_0, forward, gru_modrelu, 0, gru_modrelu_forward_0)

INLINE void gru_modrelu_backward_0(struct unit *u) {
    const vf t0 = u->saved[0] * u->before[0];
    u->output[0] = (u->product[0] * t0) * (1.0f - u->saved[0]);
    u->value = t0;
    const vf t3 = u->product[0] * u->saved[0];
    u->state[0] = u->state[0] + t3;
}

EPILOGUE(gru_modrelu_finish_backward_0, backward, gru_modrelu, 0, gru_modrelu_backward_0)

INLINE void gru_modrelu_forward_1(struct unit *u) {
    u->saved[2] = u->product[0];
    const vf t1 = mixture(u->kept[0], u->state[0], (1.0f - u->kept[0]), (sign_of(u->product[0]) * relu(((magnitude(u->product[0]) + u->constants.a) + u->vector[1]))));
    u->state[0] = t1;
}

EPILOGUE(gru_modrelu_finish_forward_1, forward, gru_modrelu, 1, gru_modrelu_forward_1)

INLINE void gru_modrelu_backward_1(struct unit *u) {
    const vf t0 = sign_of(u->saved[2]);
    const vf t1 = relu(((magnitude(u->saved[2]) + u->constants.a) + u->vector[1]));
    const vf t2 = 1.0f - u->saved[1];
    u->output[1] = ((u->state[0] * (u->before[0] - (t0 * t1))) * u->saved[1]) * t2;
    const vf t4 = (u->state[0] * t2) * t0;
    u->output[2] = select_lanes((t1 > 0.0f), (t4 * t0), splat(0.0f));
    u->sum[1] = select_lanes((t1 > 0.0f), t4, splat(0.0f));
    const vf t7 = u->state[0] * u->saved[1];
    u->state[0] = t7;
}

EPILOGUE(gru_modrelu_finish_backward_1, backward, gru_modrelu, 1, gru_modrelu_backward_1)

int gru_modrelu_forward(const struct dense *p, int64_t first, int64_t last) {
    return run_forward(&gru_modrelu, p, first, last, (epilogue *const[]){gru_modrelu_finish_forward_0, gru_modrelu_finish_forward_1});
}

int gru_modrelu_backward(const struct dense *p, int64_t first, int64_t last) {
    return run_backward(&gru_modrelu, p, first, last, (epilogue *const[]){gru_modrelu_finish_backward_0, gru_modrelu_finish_backward_1});
}

static const struct cell gru_reset_after_modrelu = {
    .phases = 2,
    .carried = 1,
    .phase[0] = {.reads = BEFORE, .products = 2, .inputs = 2, .saved = 2, .kept = 2},
    .phase[1] = {.reads = BEFORE, .products = 1, .inputs = 1, .own = 1, .saved = 2, .states = 1, .outputs = 7, .sums = 3, .before = 1},
};

INLINE void gru_reset_after_modrelu_forward_0(struct unit *u) {
    const vf t0 = sigmoid(u->product[0]);
    u->saved[0] = t0;
    const vf t2 = sigmoid(u->product[1]);
    u->saved[1] = t2;
    u->kept[0] = t2;
    u->kept[1] = t0;
}

EPILOGUE(gru_reset_after_modrelu_finish_forward_0, forward, gru_reset_after_modrelu, 0, gru_reset_after_modrelu_forward_0)

INLINE void gru_reset_after_modrelu_forward_1(struct unit *u) {
    const vf t0 = u->product[0] + u->vector[0];
    u->saved[2] = t0;
    const vf t2 = u->input[0] + held((u->kept[1] * t0));
    u->saved[3] = t2;
    const vf t4 = mixture(u->kept[0], u->state[0], (1.0f - u->kept[0]), (sign_of(t2) * relu(((magnitude(t2) + u->constants.a) + u->vector[1]))));
    u->state[0] = t4;
}

EPILOGUE(gru_reset_after_modrelu_finish_forward_1, forward, gru_reset_after_modrelu, 1, gru_reset_after_modrelu_forward_1)

INLINE void gru_reset_after_modrelu_backward_1(struct unit *u) {
    const vf t0 = relu(((magnitude(u->saved[3]) + u->constants.a) + u->vector[1]));
    const vf t1 = 1.0f - u->saved[1];
    const vf t2 = sign_of(u->saved[3]);
    const vf t3 = (u->state[0] * t1) * t2;
    const vf t4 = select_lanes((t0 > 0.0f), (t3 * t2), splat(0.0f));
    const vf t5 = t4 * u->saved[0];
    u->output[0] = (t5 * u->saved[2]) * (1.0f - u->saved[0]);
    u->output[1] = ((u->state[0] * (u->before[0] - (t2 * t0))) * u->saved[1]) * t1;
    u->output[2] = t4;
    u->own[0] = t5;
    u->sum[0] = t5;
    u->sum[1] = select_lanes((t0 > 0.0f), t3, splat(0.0f));
    const vf t12 = u->state[0] * u->saved[1];
    u->state[0] = t12;
}

EPILOGUE(gru_reset_after_modrelu_finish_backward_1, backward, gru_reset_after_modrelu, 1, gru_reset_after_modrelu_backward_1)

int gru_reset_after_modrelu_forward(const struct dense *p, int64_t first, int64_t last) {
    return run_forward(&gru_reset_after_modrelu, p, first, last, (epilogue *const[]){gru_reset_after_modrelu_finish_forward_0, gru_reset_after_modrelu_finish_forward_1});
}

int gru_reset_after_modrelu_backward(const struct dense *p, int64_t first, int64_t last) {
    return run_backward(&gru_reset_after_modrelu, p, first, last, (epilogue *const[]){NULL, gru_reset_after_modrelu_finish_backward_1});
}
