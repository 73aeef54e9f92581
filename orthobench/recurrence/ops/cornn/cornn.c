/* coRNN:
 *
 *     z_t = z_{t-1} + dt (tanh(x_t + W [y_{t-1}; z_{t-1}]) - gamma y_{t-1} - eps z_{t-1})
 *     y_t = y_{t-1} + dt z_t
 *
 * saved: tanh's output. The constants a, b, c are dt, gamma, eps. */
#include "cell.h"

enum { Y, Z, BOTH = 1 << Y | 1 << Z };

static const struct cell cornn = {
    .phases = 1,
    .carried = BOTH,
    .phase[0] = {.reads = BOTH_BEFORE, .products = 1, .inputs = 1, .saved = 1, .states = BOTH},
};

INLINE void cornn_step(struct unit *u) {
    const float step_size = u->constants.a, frequency = u->constants.b, damping = u->constants.c;
    const vf y = u->state[Y], force = u->saved[0] = hyperbolic_tangent(u->product[0]);
    u->state[Z] += step_size * (force - frequency * y - damping * u->state[Z]);
    u->state[Y] = y + step_size * u->state[Z];
}

INLINE void cornn_differentiate(struct unit *u) {
    const float step_size = u->constants.a, frequency = u->constants.b, damping = u->constants.c;
    const vf dy = u->state[Y], dz = u->trace[Z] = u->state[Z] + step_size * dy, force = step_size * dz;
    u->output[0] = force * tangent_slope(u->saved[0]);
    u->state[Y] = dy - frequency * force;
    u->state[Z] = dz - damping * force;
}

EPILOGUE(finish_step, forward, cornn, 0, cornn_step)
EPILOGUE(finish_gradient, backward, cornn, 0, cornn_differentiate)

int cornn_forward(const struct dense *p, int64_t first, int64_t last) {
    return run_forward(&cornn, p, first, last, (epilogue *const[]){finish_step});
}

int cornn_backward(const struct dense *p, int64_t first, int64_t last) {
    return run_backward(&cornn, p, first, last, (epilogue *const[]){finish_gradient});
}
