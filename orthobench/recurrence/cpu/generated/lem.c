/* The cells of the operation lem, written by `make cells` from its step. */
#include "cell.h"
#include "functions.h"

static const struct cell lem = {
    .phases = 2,
    .carried = 3,
    .phase[0] = {.reads = BEFORE, .products = 3, .inputs = 3, .saved = 3, .kept = 1, .states = 2, .outputs = 3, .before = 2},
    .phase[1] = {.reads = SECOND_NOW, .products = 1, .inputs = 1, .saved = 1, .states = 1, .outputs = 12, .before = 1},
};

INLINE void lem_forward_0(struct unit *u) {
    const vf t0 = sigmoid(u->product[0]);
    u->saved[0] = t0;
    const vf t2 = hyperbolic_tangent(u->product[1]);
    u->saved[1] = t2;
    const vf t4 = sigmoid(u->product[2]);
    u->saved[2] = t4;
    u->kept[0] = t4;
    const vf t7 = u->constants.a * t0;
    const vf t8 = mixture((1.0f - t7), u->state[1], t7, t2);
    u->state[1] = t8;
}

EPILOGUE(lem_finish_forward_0, forward, lem, 0, lem_forward_0)

INLINE void lem_backward_0(struct unit *u) {
    const vf t0 = u->constants.a * u->saved[0];
    const vf t1 = u->state[1] * t0;
    u->output[0] = (t1 * (u->saved[1] - u->before[1])) * (1.0f - u->saved[0]);
    u->output[1] = t1 * tangent_slope(u->saved[1]);
    const vf t4 = u->state[1] * (1.0f - t0);
    u->state[1] = t4;
}

EPILOGUE(lem_finish_backward_0, backward, lem, 0, lem_backward_0)

INLINE void lem_forward_1(struct unit *u) {
    const vf t0 = hyperbolic_tangent(u->product[0]);
    u->saved[3] = t0;
    const vf t2 = u->constants.a * u->kept[0];
    const vf t3 = mixture((1.0f - t2), u->state[0], t2, t0);
    u->state[0] = t3;
}

EPILOGUE(lem_finish_forward_1, forward, lem, 1, lem_forward_1)

INLINE void lem_backward_1(struct unit *u) {
    const vf t0 = u->constants.a * u->saved[2];
    const vf t1 = u->state[0] * t0;
    u->output[2] = (t1 * (u->saved[3] - u->before[0])) * (1.0f - u->saved[2]);
    u->output[3] = t1 * tangent_slope(u->saved[3]);
    const vf t4 = u->state[0] * (1.0f - t0);
    u->state[0] = t4;
}

EPILOGUE(lem_finish_backward_1, backward, lem, 1, lem_backward_1)

int lem_forward(const struct dense *p, int64_t first, int64_t last) {
    return run_forward(&lem, p, first, last, (epilogue *const[]){lem_finish_forward_0, lem_finish_forward_1});
}

int lem_backward(const struct dense *p, int64_t first, int64_t last) {
    return run_backward(&lem, p, first, last, (epilogue *const[]){lem_finish_backward_0, lem_finish_backward_1});
}
