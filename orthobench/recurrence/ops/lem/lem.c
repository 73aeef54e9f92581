/* LEM, with the step lengths a = dt sigmoid(x_t + W y_{t-1}) of each state, and o the elementwise product:
 *
 *     z_t = (1 - a_z) o z_{t-1} + a_z o tanh(x_t + W y_{t-1})
 *     y_t = (1 - a_y) o y_{t-1} + a_y o tanh(x_t + W z_t)
 *
 * saved: z's gate and candidate, y's gate and candidate, after their functions. The constant a is dt. */
#include "cell.h"

enum { Y, Z };

static const struct cell lem = {
    .phases = 2,
    .carried = 1 << Y | 1 << Z,
    .phase[0] = {.reads = BEFORE, .products = 3, .inputs = 3, .saved = 3, .kept = 1, .outputs = 3, .states = 1 << Z,
                 .before = 1 << Z},
    .phase[1] = {.reads = SECOND_NOW, .products = 1, .inputs = 1, .saved = 1, .outputs = 12, .states = 1 << Y,
                 .before = 1 << Y},
};

/* The next state, as in the definition: the difference of candidate and state would turn infinity into NaN. */
INLINE vf lem_step(float step_size, vf state, vf gate, vf candidate) {
    const vf length = step_size * gate;
    return mixture(1.0f - length, state, length, candidate);
}

INLINE void z_forward(struct unit *u) {
    u->saved[0] = sigmoid(u->product[0]);
    u->saved[1] = hyperbolic_tangent(u->product[1]);
    u->saved[2] = u->kept[0] = sigmoid(u->product[2]);
    u->state[Z] = lem_step(u->constants.a, u->state[Z], u->saved[0], u->saved[1]);
}

INLINE void y_forward(struct unit *u) {
    u->saved[3] = hyperbolic_tangent(u->product[0]);
    u->state[Y] = lem_step(u->constants.a, u->state[Y], u->kept[0], u->saved[3]);
}

/* The gradients of a state's gate and candidate before their functions. */
INLINE void lem_differentiate(struct unit *u, const int state, vf gate, vf candidate, vf *output) {
    const vf length = u->constants.a * gate, g = u->state[state], by_length = length * g;
    output[0] = by_length * (candidate - u->before[state]) * (1.0f - gate);
    output[1] = by_length * tangent_slope(candidate);
    u->state[state] = (1.0f - length) * g;
}

INLINE void y_backward(struct unit *u) { lem_differentiate(u, Y, u->saved[2], u->saved[3], u->output + 2); }
INLINE void z_backward(struct unit *u) { lem_differentiate(u, Z, u->saved[0], u->saved[1], u->output); }

EPILOGUE(finish_z, forward, lem, 0, z_forward)
EPILOGUE(finish_y, forward, lem, 1, y_forward)
EPILOGUE(finish_dz, backward, lem, 0, z_backward)
EPILOGUE(finish_dy, backward, lem, 1, y_backward)

int lem_forward(const struct dense *p, int64_t first, int64_t last) {
    return run_forward(&lem, p, first, last, (epilogue *const[]){finish_z, finish_y});
}

int lem_backward(const struct dense *p, int64_t first, int64_t last) {
    return run_backward(&lem, p, first, last, (epilogue *const[]){finish_dz, finish_dy});
}
