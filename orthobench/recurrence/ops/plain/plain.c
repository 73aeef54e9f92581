/* The plain recurrences, whose kinds of activations share one text. */
#include "activations.h"
#include "cell.h"

enum { H = 1 };

/* ------------------------------------------------------------------ h_t = act(x_t + W h_{t-1}; b)
 * or in the Euler form h_t = h_{t-1} + eps act(...). saved: of the complex kinds z, else in the Euler form the
 * activation's output, else nothing: h is enough. The vector is the activation's b. The constant a is eps, and b the
 * activation's slope or epsilon. The variant is 2 kind + euler. */

static const struct cell from_output = {
    .phases = 1,
    .apart = 1,
    .phase[0] = {.reads = BEFORE, .products = 1, .inputs = 1, .states = H, .sums = 1, .after = H},
};
static const struct cell from_saved = {
    .phases = 1,
    .apart = 1,
    .phase[0] = {.reads = BEFORE, .products = 1, .inputs = 1, .saved = 1, .states = H, .sums = 1},
};
static const struct cell euler = {
    .phases = 1,
    .apart = 1,
    .carried = H,
    .phase[0] = {.reads = BEFORE, .products = 1, .inputs = 1, .saved = 1, .states = H, .sums = 1},
};

INLINE void step(const int kind, const int is_euler, struct unit *u) {
    const vf z = u->product[0], a = activate(kind, z, u->vector[0], u->constants.b);
    u->saved[0] = kind >= COMPLEX_MODRELU ? z : a;
    u->state[0] = is_euler ? u->state[0] + u->constants.a * a : a;
}

INLINE void gradient(const int kind, const int is_euler, struct unit *u) {
    const vf g = is_euler ? u->state[0] * u->constants.a : u->state[0];
    const vf a = kind < COMPLEX_MODRELU && !is_euler ? u->after[0] : u->saved[0];
    const struct derivative d = differentiate(kind, g, a, u->vector[0], u->constants.b);
    u->output[0] = d.z;
    u->sum[0] = d.bias;
}

#define EACH_KIND(CASE)                                                                             \
    CASE(IDENTITY, from_output) CASE(TANH, from_output) CASE(RELU, from_output)                     \
    CASE(LEAKY_RELU, from_output) CASE(MODRELU, from_output) CASE(COMPLEX_MODRELU, from_saved)      \
    CASE(COMPLEX_MODRELU_SMOOTH, from_saved)

#define CASE(KIND, CELL)                                                                \
    INLINE void step_##KIND(struct unit *u) { step(KIND, 0, u); }                       \
    INLINE void euler_step_##KIND(struct unit *u) { step(KIND, 1, u); }                 \
    INLINE void gradient_##KIND(struct unit *u) { gradient(KIND, 0, u); }               \
    INLINE void euler_gradient_##KIND(struct unit *u) { gradient(KIND, 1, u); }         \
    EPILOGUE(finish_##KIND, forward, CELL, 0, step_##KIND)                              \
    EPILOGUE(finish_euler_##KIND, forward, euler, 0, euler_step_##KIND)                 \
    EPILOGUE(finish_gradient_##KIND, backward, CELL, 0, gradient_##KIND)                \
    EPILOGUE(finish_euler_gradient_##KIND, backward, euler, 0, euler_gradient_##KIND)
EACH_KIND(CASE)
#undef CASE

INLINE const struct cell *cell_of(const struct dense *p) {
    return p->variant % 2 ? &euler : p->variant / 2 >= COMPLEX_MODRELU ? &from_saved : &from_output;
}

int recurrence_forward(const struct dense *p, int64_t first, int64_t last) {
#define CASE(KIND, CELL) finish_##KIND, finish_euler_##KIND,
    static epilogue *const finish[] = {EACH_KIND(CASE)};
#undef CASE
    return run_forward(cell_of(p), p, first, last, finish + p->variant);
}

int recurrence_backward(const struct dense *p, int64_t first, int64_t last) {
#define CASE(KIND, CELL) finish_gradient_##KIND, finish_euler_gradient_##KIND,
    static epilogue *const finish[] = {EACH_KIND(CASE)};
#undef CASE
    return run_backward(cell_of(p), p, first, last, finish + p->variant);
}
