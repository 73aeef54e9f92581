/* The inputs of a short convolution, which are read or computed as a projection of a few numbers of each step. */
#ifndef ORTHOBENCH_CONVOLUTION_H
#define ORTHOBENCH_CONVOLUTION_H

#include "vectors.h"

enum { MOST_TAPS = 8, MOST_INPUTS = 8 }; /* for more, the caller computes the convolution or the projection itself */

struct source {
    const float *x;            /* [T, B, width], or with `inputs` u [T, B, inputs] */
    const float *input_weight; /* U transposed [inputs, width] */
    const float *weight;       /* [taps, width], the oldest input's first */
    const float *before;       /* x before the first step [taps - 1, B, width] */
    int64_t batch, width;      /* B and the features */
    int64_t taps, inputs;      /* inputs is 0 if x is read */
};

INLINE void load_weights(const int taps, const int inputs, const struct source *s, int64_t col, int count, vf *w,
                         vf *u) {
    for (int i = 0; i < taps; i++) w[i] = load(s->weight + i * s->width + col, count);
    for (int i = 0; i < inputs; i++) u[i] = load(s->input_weight + i * s->width + col, count);
}

/* x_t of some features, or one of the inputs before the first step. `u` is their part of U^T. */
INLINE vf source_at(const int inputs, const struct source *s, const vf *u, int64_t t, int64_t row, int64_t col,
                    int count) {
    if (t < 0) return load(s->before + ((t + s->taps - 1) * s->batch + row) * s->width + col, count);
    const int64_t at = t * s->batch + row;
    if (!inputs) return load(s->x + at * s->width + col, count);
    vf total = u[0] * s->x[at * inputs];
    for (int i = 1; i < inputs; i++) total += u[i] * s->x[at * inputs + i];
    return total;
}

/* CALL(taps, inputs) with constants in the usual cases. */
#define EACH_FORM(p, CALL)                                   \
    if ((p)->taps == 0) CALL(0, 0);                          \
    else if ((p)->taps == 4 && (p)->inputs == 0) CALL(4, 0); \
    else if ((p)->taps == 4 && (p)->inputs == 1) CALL(4, 1); \
    else CALL((int)(p)->taps, (int)(p)->inputs);

#endif
