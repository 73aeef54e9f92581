/* The cells of the operation lipschitz, written by `make cells` from its step. */
#include "cell.h"
#include "functions.h"

static const struct cell lipschitz = {
    .phases = 1,
    .carried = 1,
    .phase[0] = {.reads = BEFORE, .products = 2, .inputs = 1, .own = 1, .saved = 1, .states = 1},
};

INLINE void lipschitz_forward_0(struct unit *u) {
    const vf t0 = hyperbolic_tangent(u->product[1]);
    u->saved[0] = t0;
    const vf t2 = u->state[0] + (u->constants.a * (u->product[0] + t0));
    u->state[0] = t2;
}

EPILOGUE(lipschitz_finish_forward_0, forward, lipschitz, 0, lipschitz_forward_0)

INLINE void lipschitz_backward_0(struct unit *u) {
    const vf t0 = u->state[0] * u->constants.a;
    u->output[0] = t0 * tangent_slope(u->saved[0]);
    u->own[0] = t0;
    const vf t3 = u->state[0];
    u->state[0] = t3;
}

EPILOGUE(lipschitz_finish_backward_0, backward, lipschitz, 0, lipschitz_backward_0)

int lipschitz_forward(const struct dense *p, int64_t first, int64_t last) {
    return run_forward(&lipschitz, p, first, last, (epilogue *const[]){lipschitz_finish_forward_0});
}

int lipschitz_backward(const struct dense *p, int64_t first, int64_t last) {
    return run_backward(&lipschitz, p, first, last, (epilogue *const[]){lipschitz_finish_backward_0});
}
