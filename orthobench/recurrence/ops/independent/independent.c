/* The recurrence h_t = act(a_t o h_{t-1} + x_t) of independent units, in float32. The vector is a, the same at every step
 * and row, or given per step. The slope of the activation follows from h_t. The variant is 2 activation + per step. */
#include "units.h"

enum { LINEAR, RECTIFIED, TANGENT };

static const struct shape constant = {.inputs = 1, .vectors = 1, .states = 1};
static const struct shape per_step = {.inputs = 1, .vectors = 1, .states = 1, .per_step = 1};

INLINE vf activated(const int kind, vf z) {
    return kind == RECTIFIED ? relu(z) : kind == TANGENT ? hyperbolic_tangent(z) : z;
}

/* g times the activation's slope where its value is h. */
INLINE vf through(const int kind, vf h, vf g) {
    return kind == RECTIFIED ? select_lanes(h <= 0, (vf){0}, g) : kind == TANGENT ? g * tangent_slope(h) : g;
}

INLINE void step(const int kind, struct unit *u) {
    u->state[0] = activated(kind, u->vector[0] * u->state[0] + u->input[0]);
}

INLINE void gradient(const int kind, struct unit *u) {
    const vf g = u->output[0] = through(kind, u->after[0], u->state[0]);
    u->state[0] = u->vector[0] * g;
    u->sum[0] = u->before[0] * g;
}

#define EACH_KIND(CASE) CASE(LINEAR) CASE(RECTIFIED) CASE(TANGENT)

#define CASE(KIND)                                                     \
    INLINE void step_##KIND(struct unit *u) { step(KIND, u); }         \
    INLINE void gradient_##KIND(struct unit *u) { gradient(KIND, u); }
EACH_KIND(CASE)
#undef CASE

void independent_forward(const struct units *p, int64_t first, int64_t last) {
    switch (p->variant) {
#define CASE(KIND)                                                                        \
    case 2 * KIND: units_forward(&constant, step_##KIND, p, first, last); break;          \
    case 2 * KIND + 1: units_forward(&per_step, step_##KIND, p, first, last); break;
        EACH_KIND(CASE)
#undef CASE
    }
}

void independent_backward(const struct units *p, int64_t first, int64_t last) {
    switch (p->variant) {
#define CASE(KIND)                                                                         \
    case 2 * KIND: units_backward(&constant, without_factors, gradient_##KIND, p, first, last); break;      \
    case 2 * KIND + 1: units_backward(&per_step, without_factors, gradient_##KIND, p, first, last); break;
        EACH_KIND(CASE)
#undef CASE
    }
}
