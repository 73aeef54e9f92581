/* The selective scan's x as a convolution, a chunk of steps at a time. */
#ifndef ORTHOBENCH_INPUTS_H
#define ORTHOBENCH_INPUTS_H

#include "chunk.h"

/* x_t = silu(z_t), z_t = sum_i w_i o s_{t - taps + 1 + i} + b, of a source s, or of its projection s_t = U u_t of
 * `inputs` numbers u. A row has ld = padded(width) floats, 0 behind the last feature. */
struct inputs {
    float *x;      /* [SCAN_STEPS, ld] */
    float *slopes; /* the derivatives of silu [SCAN_STEPS, ld], or NULL */
};

INLINE struct source source_of(const struct selective *p) {
    return (struct source){p->x, p->input_weight, p->convolution, p->before, p->batch, p->width, p->taps, p->inputs};
}

INLINE void convolve(const int taps, const int inputs, const struct chunk *chunk, int64_t col, const struct inputs *m) {
    const struct selective *const p = chunk->p;
    const struct source source = source_of(p);
    const int64_t ld = padded(p->width), first = chunk->first, row = chunk->row;
    const int count = lanes(p->width - col);
    const vf bias = p->convolution_bias ? load(p->convolution_bias + col, count) : (vf){0};
    vf w[MOST_TAPS];
    vf u[MOST_INPUTS];
    vf window[MOST_TAPS];
    load_weights(taps, inputs, &source, col, count, w, u);
    for (int i = 1; i < taps; i++) window[i] = source_at(inputs, &source, u, first - taps + i, row, col, count);
    for (int64_t t = 0; t < chunk->count; t++) {
        for (int i = 1; i < taps; i++) window[i - 1] = window[i];
        window[taps - 1] = source_at(inputs, &source, u, first + t, row, col, count);
        vf z = bias;
        for (int i = 0; i < taps; i++) z += w[i] * window[i];
        const vf s = short_sigmoid(z), x = z * s;
        *(vf *)(m->x + t * ld + col) = x;
        if (m->slopes) *(vf *)(m->slopes + t * ld + col) = s + x * (1.0f - s);
    }
}

/* Point to x of a chunk, or to the place of a convolution's x. */
static void place_inputs(struct chunk *chunk, const struct inputs *m) {
    const struct selective *const p = chunk->p;
    chunk->x = p->taps ? m->x : p->x + chunk->at * p->width;
    chunk->ldx = p->taps ? padded(p->width) : p->batch * p->width;
}

/* Computes a block of x of a chunk, if x is a convolution. */
INLINE void make_inputs(const struct chunk *chunk, int64_t col, const struct inputs *m) {
    if (!chunk->p->taps) return;
#define CONVOLVE(TAPS, INPUTS) convolve(TAPS, INPUTS, chunk, col, m)
    EACH_FORM(chunk->p, CONVOLVE)
#undef CONVOLVE
}

/* The gradients of a convolution. */
struct inputs_gradients {
    float *later;       /* dz of the taps - 1 steps behind a chunk, then of its first ones [taps - 1, ld], the next
                         * step's first */
    float *convolution; /* sums for the weight [taps, ld] */
    float *bias;        /* sums for the bias [ld] */
    float *projection;  /* sums for U transposed [inputs, ld] */
};

#define ADD(TO, VALUE) (*(vf *)(TO) += (VALUE))

/* The gradients by the weights, and by the source or U; by `before` in the first chunk. `dx` has the gradients by x of
 * a block, `stride` vectors apart, and `mapped` what the map adds to them, [SCAN_STEPS, ld], or NULL. */
INLINE void convolve_backward(const int taps, const int inputs, const struct chunk *chunk, int64_t col, const vf *dx,
                              int64_t stride, const float *mapped, const float *slopes,
                              const struct inputs_gradients *g) {
    const struct selective *const p = chunk->p;
    const struct source source = source_of(p);
    const int64_t width = p->width, ld = padded(width), first = chunk->first, row = chunk->row;
    const int count = lanes(width - col);
    vf w[MOST_TAPS];
    vf u[MOST_INPUTS];
    vf window[MOST_TAPS];
    vf dz[MOST_TAPS]; /* dz[i]: of step t + i */
    vf by_weight[MOST_TAPS];
    vf by_input[MOST_INPUTS];
    vf by_bias = {0};
    load_weights(taps, inputs, &source, col, count, w, u);
    for (int i = 0; i < taps; i++) by_weight[i] = (vf){0};
    for (int j = 0; j < inputs; j++) by_input[j] = (vf){0};
    for (int i = 0; i < taps - 1; i++) {
        window[i] = source_at(inputs, &source, u, first + chunk->count - taps + 1 + i, row, col, count);
        dz[i] = *(const vf *)(g->later + i * ld + col);
    }
    for (int64_t t = chunk->count - 1; t >= 0; t--) {
        for (int i = taps - 1; i > 0; i--) window[i] = window[i - 1], dz[i] = dz[i - 1];
        window[0] = source_at(inputs, &source, u, first + t - taps + 1, row, col, count);
        const vf more = mapped ? *(const vf *)(mapped + t * ld + col) : (vf){0};
        dz[0] = (dx[t * stride] + more) * *(const vf *)(slopes + t * ld + col);
        by_bias += dz[0];
        vf by_source = {0};
        for (int i = 0; i < taps; i++) {
            by_weight[i] += dz[0] * window[i];
            by_source += w[taps - 1 - i] * dz[i]; /* s_t is input taps - 1 - i of step t + i */
        }
        if (!inputs) store(p->dx + step_at(chunk, t) * width + col, by_source, count);
        for (int j = 0; j < inputs; j++) by_input[j] += p->x[step_at(chunk, t) * inputs + j] * by_source;
    }
    for (int i = 0; i < taps; i++) ADD(g->convolution + i * ld + col, by_weight[i]);
    for (int j = 0; j < inputs; j++) ADD(g->projection + j * ld + col, by_input[j]);
    ADD(g->bias + col, by_bias);
    for (int i = 0; i < taps - 1; i++) *(vf *)(g->later + i * ld + col) = dz[i];
    for (int j = 0; chunk->first == 0 && j < taps - 1; j++) { /* the source of step j - taps + 1 */
        vf by_source = {0};
        for (int i = 0; i <= j; i++) by_source += w[j - i] * dz[i];
        store(p->dbefore + (chunk->at + j * p->batch) * width + col, by_source, count);
    }
}

#endif
