/* The minimal recurrences h_t = a_t o h_{t-1} + (1 - a_t) o g(c_t), in float32: minGRU and minLSTM.
 *
 * The vectors are the biases of the inputs. The backward pass recomputes the gates, which costs less than reading them.
 * Two gates are z, c with a = sigmoid(-z), three are f, i, c with a = sigmoid(f) / (sigmoid(f) + sigmoid(i)). The variant
 * is 2 (gates - 2) + positive. */
#include "units.h"

static const struct shape min_gru = {.inputs = 2, .vectors = 2, .states = 1, .rereads = 1};
static const struct shape min_lstm = {.inputs = 3, .vectors = 3, .states = 1, .rereads = 1};

struct terms {
    vf keep, value;          /* a, g */
    vf by_first, by_second;  /* da by the first two gates, as factors of a (1 - a) */
    vf slope;                /* dg/dc */
};

INLINE struct terms terms_of(const int gates, const int positive, const struct unit *u) {
    struct terms own;
    const vf first = u->input[0] + u->vector[0];
    if (gates == 2) {
        own.keep = sigmoid(-first);
        own.by_first = splat(-1.0f), own.by_second = (vf){0};
    } else {
        /* 1 / sigmoid of f and i. `exponential` holds them at e^88, so below -40, where sigmoid(x) is e^x, both are
         * multiplied by the larger sigmoid. Of two negative infinities NaN comes out, as in the definition. */
        const vf second = u->input[1] + u->vector[1];
        const vf larger = select_lanes(first > second, first, second);
        const vf shift = select_lanes(larger < -40.0f, larger, splat(0.0f));
        const vf one = select_lanes(larger < -40.0f, splat(0.0f), splat(1.0f));
        const vf f = one + exponential(shift - first), i = one + exponential(shift - second);
        own.keep = 1.0f / (1.0f + f / i);
        own.by_first = 1.0f - one / f, own.by_second = one / i - 1.0f;
    }
    const vf c = u->input[gates - 1] + u->vector[gates - 1];
    if (positive) {
        const vf s = sigmoid(c);
        own.value = select_lanes(c >= 0, c + 0.5f, s);
        own.slope = select_lanes(c >= 0, splat(1.0f), s * (1.0f - s));
    } else {
        own.value = c, own.slope = splat(1.0f);
    }
    return own;
}

/* The difference of the two states would turn infinity into NaN. */
INLINE void step(const int gates, const int positive, struct unit *u) {
    const struct terms own = terms_of(gates, positive, u);
    u->state[0] = mixture(own.keep, u->state[0], 1.0f - own.keep, own.value);
}

enum { KEEP, VALUE, BY_FIRST, BY_SECOND, SLOPE }; /* the factors */

INLINE void prepare(const int gates, const int positive, struct unit *u) {
    const struct terms own = terms_of(gates, positive, u);
    u->factor[KEEP] = own.keep, u->factor[VALUE] = own.value, u->factor[SLOPE] = own.slope;
    u->factor[BY_FIRST] = own.by_first, u->factor[BY_SECOND] = own.by_second;
}

INLINE void gradient(const int gates, struct unit *u) {
    const vf g = u->state[0], keep = u->factor[KEEP], rest = 1.0f - keep;
    const vf by_keep = g * (u->before[0] - u->factor[VALUE]) * (keep * rest);
    u->output[0] = by_keep * u->factor[BY_FIRST];
    u->output[1] = by_keep * u->factor[BY_SECOND];
    u->output[gates - 1] = g * rest * u->factor[SLOPE];
    for (int gate = 0; gate < gates; gate++) u->sum[gate] = u->output[gate];
    u->state[0] = keep * g;
}

#define EACH_VARIANT(CASE) CASE(min_gru, 0) CASE(min_gru, 1) CASE(min_lstm, 0) CASE(min_lstm, 1)

#define CASE(CELL, POSITIVE)                                                                                  \
    INLINE void CELL##_step_##POSITIVE(struct unit *u) { step(CELL.inputs, POSITIVE, u); }                    \
    INLINE void CELL##_prepare_##POSITIVE(struct unit *u) { prepare(CELL.inputs, POSITIVE, u); }             \
    INLINE void CELL##_gradient_##POSITIVE(struct unit *u) { gradient(CELL.inputs, u); }
EACH_VARIANT(CASE)
#undef CASE

enum { of_min_gru = 0, of_min_lstm = 2 };

void minimal_forward(const struct units *p, int64_t first, int64_t last) {
    switch (p->variant) {
#define CASE(CELL, POSITIVE) \
    case of_##CELL + POSITIVE: units_forward(&CELL, CELL##_step_##POSITIVE, p, first, last); break;
        EACH_VARIANT(CASE)
#undef CASE
    }
}

void minimal_backward(const struct units *p, int64_t first, int64_t last) {
    switch (p->variant) {
#define CASE(CELL, POSITIVE) \
    case of_##CELL + POSITIVE:                                                                                      \
        units_backward(&CELL, CELL##_prepare_##POSITIVE, CELL##_gradient_##POSITIVE, p, first, last); break;
        EACH_VARIANT(CASE)
#undef CASE
    }
}
