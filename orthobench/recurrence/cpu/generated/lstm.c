/* The cells of the operation lstm, written by `make cells` from its step. */
#include "cell.h"
#include "functions.h"

static const struct cell lstm = {
    .phases = 1,
    .carried = 2,
    .phase[0] = {.reads = BEFORE, .products = 4, .inputs = 4, .saved = 4, .states = 3, .late = 1, .before = 2},
};

INLINE void lstm_forward_0(struct unit *u) {
    const vf t0 = sigmoid(u->product[3]);
    u->saved[0] = t0;
    const vf t2 = sigmoid(u->product[1]);
    u->saved[1] = t2;
    const vf t4 = sigmoid(u->product[0]);
    u->saved[2] = t4;
    const vf t6 = hyperbolic_tangent(u->product[2]);
    u->saved[3] = t6;
    u->kept[0] = t0;
    const vf t9 = mixture(t2, u->state[1], t4, t6);
    u->state[1] = t9;
}

INLINE void lstm_forward_0_late(struct unit *u) {
    u->state[0] = u->kept[0] * hyperbolic_tangent(u->state[1]);
}

LATE_EPILOGUE(lstm_finish_forward_0, lstm, 0, lstm_forward_0, lstm_forward_0_late)

INLINE void lstm_backward_0(struct unit *u) {
    const vf t0 = hyperbolic_tangent(mixture(u->saved[1], u->before[1], u->saved[2], u->saved[3]));
    const vf t1 = u->state[1] + ((u->state[0] * u->saved[0]) * tangent_slope(t0));
    u->output[0] = ((t1 * u->saved[3]) * u->saved[2]) * (1.0f - u->saved[2]);
    u->output[1] = ((t1 * u->before[1]) * u->saved[1]) * (1.0f - u->saved[1]);
    u->output[2] = (t1 * u->saved[2]) * tangent_slope(u->saved[3]);
    u->output[3] = ((u->state[0] * t0) * u->saved[0]) * (1.0f - u->saved[0]);
    u->trace[1] = t1;
    const vf t7 = t1 * u->saved[1];
    u->state[1] = t7;
}

EPILOGUE(lstm_finish_backward_0, backward, lstm, 0, lstm_backward_0)

int lstm_forward(const struct dense *p, int64_t first, int64_t last) {
    return run_forward(&lstm, p, first, last, (epilogue *const[]){lstm_finish_forward_0});
}

int lstm_backward(const struct dense *p, int64_t first, int64_t last) {
    return run_backward(&lstm, p, first, last, (epilogue *const[]){lstm_finish_backward_0});
}
