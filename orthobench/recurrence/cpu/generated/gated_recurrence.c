/* The cells of the operation gated_recurrence, written by `make cells` from its step. */
#include "cell.h"
#include "functions.h"

static const struct cell gated_recurrence = {
    .phases = 1,
    .carried = 1,
    .phase[0] = {.reads = BEFORE, .products = 1, .inputs = 2, .own = 1, .saved = 2, .states = 1},
};

INLINE void gated_recurrence_forward_0(struct unit *u) {
    const vf t0 = sigmoid((u->product[0] + u->input[1]));
    u->saved[0] = t0;
    const vf t2 = hyperbolic_tangent((u->product[0] + u->input[0]));
    u->saved[1] = t2;
    const vf t4 = u->state[0] + ((u->constants.a * t0) * t2);
    u->state[0] = t4;
}

EPILOGUE(gated_recurrence_finish_forward_0, forward, gated_recurrence, 0, gated_recurrence_forward_0)

INLINE void gated_recurrence_backward_0(struct unit *u) {
    const vf t0 = u->state[0] * u->constants.a;
    const vf t1 = (t0 * u->saved[0]) * tangent_slope(u->saved[1]);
    u->output[0] = t1;
    const vf t3 = ((t0 * u->saved[1]) * u->saved[0]) * (1.0f - u->saved[0]);
    u->output[1] = t3;
    u->own[0] = t1 + t3;
    const vf t6 = u->state[0];
    u->state[0] = t6;
}

EPILOGUE(gated_recurrence_finish_backward_0, backward, gated_recurrence, 0, gated_recurrence_backward_0)

int gated_recurrence_forward(const struct dense *p, int64_t first, int64_t last) {
    return run_forward(&gated_recurrence, p, first, last, (epilogue *const[]){gated_recurrence_finish_forward_0});
}

int gated_recurrence_backward(const struct dense *p, int64_t first, int64_t last) {
    return run_backward(&gated_recurrence, p, first, last, (epilogue *const[]){gated_recurrence_finish_backward_0});
}
