/* Linear oscillators z_t = a z_{t-1} + b y_{t-1} + c x_t, y_t = y_{t-1} + d z_t, in float32. The vectors are a, b, c, d. */
#include "units.h"

enum { Y, Z };

static const struct shape oscillator = {.inputs = 1, .vectors = 4, .states = 2, .rereads = 1};

INLINE void oscillate(struct unit *u) {
    const vf *const w = u->vector, y = u->state[Y];
    u->state[Z] = w[0] * u->state[Z] + w[1] * y + w[2] * u->input[0];
    u->state[Y] = y + w[3] * u->state[Z];
}

INLINE void differentiate_oscillator(struct unit *u) {
    const vf *const w = u->vector, dy = u->state[Y], dz = u->trace[Z] = u->state[Z] + w[3] * dy;
    u->state[Y] = dy + w[1] * dz;
    u->state[Z] = w[0] * dz;
    u->output[0] = w[2] * dz;
    u->sum[0] = dz * u->before[Z];
    u->sum[1] = dz * u->before[Y];
    u->sum[2] = dz * u->input[0];
    u->sum[3] = dy * u->after[Z];
}

void oscillators_forward(const struct units *p, int64_t first, int64_t last) {
    units_forward(&oscillator, oscillate, p, first, last);
}

void oscillators_backward(const struct units *p, int64_t first, int64_t last) {
    units_backward(&oscillator, without_factors, differentiate_oscillator, p, first, last);
}
