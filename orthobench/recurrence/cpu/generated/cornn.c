/* The cells of the operation cornn, written by `make cells` from its step. */
#include "cell.h"
#include "functions.h"

static const struct cell cornn = {
    .phases = 1,
    .carried = 3,
    .phase[0] = {.reads = BOTH_BEFORE, .products = 1, .inputs = 1, .saved = 1, .states = 3},
};

INLINE void cornn_forward_0(struct unit *u) {
    const vf t0 = hyperbolic_tangent(u->product[0]);
    u->saved[0] = t0;
    const vf t2 = u->state[1] + (u->constants.a * ((t0 - (u->constants.b * u->state[0])) - (u->constants.c * u->state[1])));
    const vf t3 = u->state[0] + (u->constants.a * t2);
    u->state[0] = t3;
    u->state[1] = t2;
}

EPILOGUE(cornn_finish_forward_0, forward, cornn, 0, cornn_forward_0)

INLINE void cornn_backward_0(struct unit *u) {
    const vf t0 = u->state[1] + (u->state[0] * u->constants.a);
    const vf t1 = t0 * u->constants.a;
    u->output[0] = t1 * tangent_slope(u->saved[0]);
    u->trace[1] = t0;
    const vf t4 = u->state[0] - (t1 * u->constants.b);
    const vf t5 = t0 - (t1 * u->constants.c);
    u->state[0] = t4;
    u->state[1] = t5;
}

EPILOGUE(cornn_finish_backward_0, backward, cornn, 0, cornn_backward_0)

int cornn_forward(const struct dense *p, int64_t first, int64_t last) {
    return run_forward(&cornn, p, first, last, (epilogue *const[]){cornn_finish_forward_0});
}

int cornn_backward(const struct dense *p, int64_t first, int64_t last) {
    return run_backward(&cornn, p, first, last, (epilogue *const[]){cornn_finish_backward_0});
}
