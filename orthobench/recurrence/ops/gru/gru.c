/* GRU, with r, z = sigmoid(x_t + W h_{t-1}) of their blocks and o the elementwise product:
 *
 *     g_t = act(x_t + W_g (r o h_{t-1})), or with r after the product act(x_t + r o (W_g h_{t-1} + b))
 *     h_t = z o h_{t-1} + (1 - z) o g_t
 *
 * saved: the gates r, z, g after their functions; with r after the product also W_g h_{t-1} + b. The vectors are the
 * activation's and b, and the constant b is modReLU's epsilon. The variant is 2 (r after the product) + modReLU. */
#include "activations.h"
#include "cell.h"

enum { H = 1 };

/* `value` is r h_{t-1}; backward it is recomputed for dL/dW_g. */
static const struct cell gru_before = {
    .phases = 2,
    .carried = H,
    .phase[0] = {.reads = BEFORE, .products = 2, .inputs = 2, .saved = 2, .kept = 1, .outputs = 1, .adds = H,
                 .before = H},
    .phase[1] = {.reads = VALUE, .products = 1, .inputs = 1, .saved = 1, .outputs = 6, .states = H, .sums = 1,
                 .before = H},
};

/* The gradient of its own product, dL/d(W_g h_{t-1} + b), differs from dL/dx_t. */
static const struct cell gru_after = {
    .phases = 2,
    .carried = H,
    .phase[0] = {.reads = BEFORE, .products = 2, .inputs = 2, .saved = 2, .kept = 2},
    .phase[1] = {.reads = BEFORE, .products = 1, .inputs = 1, .own = 1, .saved = 2, .states = H, .outputs = 7,
                 .sums = 3, .before = H},
};

INLINE void gates(struct unit *u) {
    const vf r = u->saved[0] = u->kept[1] = sigmoid(u->product[0]);
    u->saved[1] = u->kept[0] = sigmoid(u->product[1]);
    u->value = r * u->state[0];
}

INLINE void candidate(const int kind, vf mixed, struct unit *u) {
    const vf g = u->saved[2] = activate(kind, mixed, u->vector[0], u->constants.b), z = u->kept[0];
    u->state[0] = mixture(z, u->state[0], 1.0f - z, g);
}

INLINE void before_tangent(struct unit *u) { candidate(TANH, u->product[0], u); }
INLINE void before_modrelu(struct unit *u) { candidate(MODRELU, u->product[0], u); }

INLINE vf reset(struct unit *u) {
    u->saved[3] = u->product[0] + u->vector[1];
    return held(u->saved[3] * u->kept[1]) + u->input[0]; /* rounded twice, because stored results are */
}

INLINE void after_tangent(struct unit *u) { candidate(TANH, reset(u), u); }
INLINE void after_modrelu(struct unit *u) { candidate(MODRELU, reset(u), u); }

/* All but r's gate. */
INLINE void differentiate_step(const int kind, struct unit *u) {
    const vf z = u->saved[1], g = u->saved[2], dh = u->state[0];
    /* Neither kind's derivative needs the bias. */
    const struct derivative d = differentiate(kind, dh * (1.0f - z), g, (vf){0}, u->constants.b);
    u->sum[0] = d.bias;
    u->output[1] = dh * (u->before[0] - g) * z * (1.0f - z);
    u->output[2] = d.z;
    u->state[0] = dh * z;
}

INLINE void differentiate_tangent(struct unit *u) { differentiate_step(TANH, u); }
INLINE void differentiate_modrelu(struct unit *u) { differentiate_step(MODRELU, u); }

/* product: dL/d(r h_{t-1}). */
INLINE void differentiate_reset(struct unit *u) {
    const vf r = u->saved[0], d = u->product[0];
    u->value = r * u->before[0];
    u->output[0] = d * u->value * (1.0f - r);
    u->state[0] += d * r;
}

INLINE void differentiate_after(const int kind, struct unit *u) {
    const vf r = u->saved[0];
    differentiate_step(kind, u);
    u->own[0] = u->sum[1] = u->output[2] * r;
    u->output[0] = u->own[0] * u->saved[3] * (1.0f - r);
}

INLINE void differentiate_after_tangent(struct unit *u) { differentiate_after(TANH, u); }
INLINE void differentiate_after_modrelu(struct unit *u) { differentiate_after(MODRELU, u); }

EPILOGUE(finish_gates, forward, gru_before, 0, gates)
EPILOGUE(finish_gates_after, forward, gru_after, 0, gates)
EPILOGUE(finish_before_tangent, forward, gru_before, 1, before_tangent)
EPILOGUE(finish_before_modrelu, forward, gru_before, 1, before_modrelu)
EPILOGUE(finish_after_tangent, forward, gru_after, 1, after_tangent)
EPILOGUE(finish_after_modrelu, forward, gru_after, 1, after_modrelu)
EPILOGUE(finish_reset, backward, gru_before, 0, differentiate_reset)
EPILOGUE(finish_tangent_gradient, backward, gru_before, 1, differentiate_tangent)
EPILOGUE(finish_modrelu_gradient, backward, gru_before, 1, differentiate_modrelu)
EPILOGUE(finish_after_tangent_gradient, backward, gru_after, 1, differentiate_after_tangent)
EPILOGUE(finish_after_modrelu_gradient, backward, gru_after, 1, differentiate_after_modrelu)

int gru_forward(const struct dense *p, int64_t first, int64_t last) {
    static epilogue *const finish[][2] = {
        {finish_gates, finish_before_tangent},
        {finish_gates, finish_before_modrelu},
        {finish_gates_after, finish_after_tangent},
        {finish_gates_after, finish_after_modrelu},
    };
    return run_forward(p->variant < 2 ? &gru_before : &gru_after, p, first, last, finish[p->variant]);
}

int gru_backward(const struct dense *p, int64_t first, int64_t last) {
    static epilogue *const finish[][2] = {
        {finish_reset, finish_tangent_gradient},
        {finish_reset, finish_modrelu_gradient},
        {NULL, finish_after_tangent_gradient},
        {NULL, finish_after_modrelu_gradient},
    };
    return run_backward(p->variant < 2 ? &gru_before : &gru_after, p, first, last, finish[p->variant]);
}
