/* LSTM, with the gates i, f, g, o of z = x_t + W h_{t-1} and o the elementwise product:
 *
 *     c_t = sigmoid(z_f) o c_{t-1} + sigmoid(z_i) o tanh(z_g)
 *     h_t = sigmoid(z_o) o tanh(c_t)
 *
 * saved: the gates i, f, g, o after their functions. */
#include "cell.h"

enum { H, C };

static const struct cell lstm = {
    .phases = 1,
    .carried = 1 << C,
    .phase[0] = {.reads = BEFORE, .products = 4, .inputs = 4, .saved = 4, .states = 1 << H | 1 << C, .late = 1 << H,
                 .before = 1 << C, .after = 1 << C},
};

INLINE void lstm_step(struct unit *u) {
    const vf i = u->saved[0] = sigmoid(u->product[0]), f = u->saved[1] = sigmoid(u->product[1]);
    const vf g = u->saved[2] = hyperbolic_tangent(u->product[2]);
    u->kept[0] = u->saved[3] = sigmoid(u->product[3]);
    u->state[C] = mixture(f, u->state[C], i, g);
}

INLINE void lstm_output(struct unit *u) { u->state[H] = u->kept[0] * hyperbolic_tangent(u->state[C]); }

INLINE void lstm_differentiate(struct unit *u) {
    const vf i = u->saved[0], f = u->saved[1], g = u->saved[2], o = u->saved[3];
    const vf squashed = hyperbolic_tangent(u->after[C]), dh = u->state[H];
    const vf dc = u->trace[C] = u->state[C] + dh * o * tangent_slope(squashed);
    u->output[0] = dc * g * i * (1.0f - i);
    u->output[1] = dc * u->before[C] * f * (1.0f - f);
    u->output[2] = dc * i * tangent_slope(g);
    u->output[3] = dh * squashed * o * (1.0f - o);
    u->state[C] = dc * f;
}

LATE_EPILOGUE(finish_step, lstm, 0, lstm_step, lstm_output)
EPILOGUE(finish_gradient, backward, lstm, 0, lstm_differentiate)

int lstm_forward(const struct dense *p, int64_t first, int64_t last) {
    return run_forward(&lstm, p, first, last, (epilogue *const[]){finish_step});
}

int lstm_backward(const struct dense *p, int64_t first, int64_t last) {
    return run_backward(&lstm, p, first, last, (epilogue *const[]){finish_gradient});
}
