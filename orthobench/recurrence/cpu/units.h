/* The driver of the cells of independent units: it loads, stores, asks for memory ahead of its use, and sums; a cell
 * computes. `oscillators/oscillators.c` is a short example. Tensors are contiguous and time major. */
#ifndef ORTHOBENCH_UNITS_H
#define ORTHOBENCH_UNITS_H

#include "blocks.h"

#define UNROLL _Pragma("GCC unroll 4") /* for loops in the argument of EACH_BLOCK */

/* What a recurrence of independent units reads and writes: h is its first state, h_2 the second. Parts that a pass does
 * not need are NULL, and so are the gradients that the loss does not have. */
struct units {
    int64_t steps, batch, width;  /* T, B, n */
    int64_t variant;              /* which of the cell's variants: its activation, for example */
    const float *x;               /* [T, B, inputs * n] */
    const float *weight;          /* [vectors * n], or per step [T, B, vectors * n] */
    const float *h0, *h0_2;       /* [B, n] */
    float *h, *h_2;               /* [T, B, n] */
    const float *grad_h;          /* dL/dh_t of all steps [T, B, n] */
    const float *grad_last, *grad_last_2; /* the gradients of the final states [B, n], where grad_h does not have them */
    float *dx;                    /* as x */
    float *dweight;               /* [B, vectors * n], zeroed: each row's sum over time; or per step as weight */
    float *dh0, *dh0_2;           /* [B, n], zeroed */
    float *dh, *dh_2;             /* the gradients of each state [T, B, n], for their norms, or NULL */
};

/* The numbers of a unit. */
struct shape {
    int inputs, vectors, states;
    int per_step; /* whether the weight is given per step */
    int rereads;  /* whether the backward pass reads x */
};

/* One vector of units at a step, with the names of `cell.h`. */
struct unit {
    vf input[3];
    vf vector[4];
    vf factor[5]; /* what `prepare` computes from these two, before the states take registers */
    vf state[2];  /* forward: the states before the step, to replace by those of the step. Backward: their gradients, to
                   * replace by those of the states before */
    vf before[2]; /* backward: the states of the step before */
    vf after[2];  /* backward: the states of this step */
    vf output[3]; /* backward: dL/dx_t */
    vf trace[2];  /* backward: the gradients of the states, if `state` did not have all of them */
    vf sum[4];    /* backward: the vectors' gradients */
};

typedef void rule(struct unit *u);

INLINE void without_factors(struct unit *u) { (void)u; }

INLINE const float *before_step(int64_t t, int64_t size, const float *states, const float *initial) {
    return t ? states + (t - 1) * size : initial;
}

/* Blocks of a row, `width` floats apart. */
INLINE void load_blocks(vf *to, const int blocks, const float *from, int64_t width, int count) {
#pragma GCC unroll 4
    for (int k = 0; k < blocks; k++) to[k] = load(from + k * width, count);
}

/* All steps forward of the blocks [first, last), for a constant shape and function. */
INLINE void units_forward(const struct shape *shape, rule *compute, const struct units *shared, int64_t first,
                          int64_t last) {
    const struct units copy = *shared, *const p = &copy;
    const int64_t width = p->width, blocks = (width + VL - 1) / VL, size = p->batch * width;
    const int64_t inputs = shape->inputs, vectors = shape->vectors;
    const uint64_t denormals = flush_denormals();
    for (int64_t t = 0; t < p->steps; t++) {
        const float *const starts[] = {before_step(t, size, p->h, p->h0), before_step(t, size, p->h_2, p->h0_2)};
        float *const to[] = {p->h + t * size, p->h_2 + t * size};
        const float *const x = p->x + t * size * inputs;
        const float *const weight = p->weight + (shape->per_step ? t * size * vectors : 0);
        EACH_BLOCK({
            const int64_t wide = inputs * row * width + col;
            struct unit u;
            UNROLL for (int k = 0; k < inputs; k++) prefetch(x + wide + k * width, inputs * size);
            load_blocks(u.input, shape->inputs, x + wide, width, count);
            load_blocks(u.vector, shape->vectors, weight + (shape->per_step ? vectors * row * width : 0) + col, width, count);
            UNROLL for (int k = 0; k < shape->states; k++) u.state[k] = load(starts[k] + at, count);
            compute(&u);
            UNROLL for (int k = 0; k < shape->states; k++) store(to[k] + at, u.state[k], count);
        })
    }
    restore_denormals(denormals);
}

INLINE void units_backward(const struct shape *shape, rule *prepare, rule *compute, const struct units *shared,
                           int64_t first, int64_t last) {
    const struct units copy = *shared, *const p = &copy;
    const int64_t width = p->width, blocks = (width + VL - 1) / VL, size = p->batch * width;
    const int64_t inputs = shape->inputs, vectors = shape->vectors;
    const uint64_t denormals = flush_denormals();
    float *const carried[] = {p->dh0, p->dh0_2}, *const traces[] = {p->dh, p->dh_2};
    for (int64_t t = p->steps - 1; t >= 0; t--) {
        const float *const starts[] = {before_step(t, size, p->h, p->h0), before_step(t, size, p->h_2, p->h0_2)};
        const float *const ends[] = {p->h + t * size, p->h_2 + t * size};
        const float *const arriving[] = {arriving_at(t, p->steps, size, p->grad_h, p->grad_last),
                                         arriving_at(t, p->steps, size, NULL, p->grad_last_2)};
        const float *const x = shape->rereads ? p->x + t * size * inputs : NULL;
        const float *const weight = p->weight + (shape->per_step ? t * size * vectors : 0);
        float *const dx = p->dx + t * size * inputs, *const sums = p->dweight + (shape->per_step ? t * size * vectors : 0);
        EACH_BLOCK({
            const int64_t wide = inputs * row * width + col, by_row = vectors * row * width + col;
            struct unit u;
            if (shape->rereads) load_blocks(u.input, shape->inputs, x + wide, width, count);
            load_blocks(u.vector, shape->vectors, weight + (shape->per_step ? by_row : col), width, count);
            prepare(&u);
            UNROLL for (int k = 0; k < shape->states; k++) {
                u.before[k] = load(starts[k] + at, count);
                u.after[k] = load(ends[k] + at, count);
                prefetch(starts[k] + at, -size);
                u.state[k] = load(carried[k] + at, count);
                if (!arriving[k]) continue;
                prefetch(arriving[k] + at, -size);
                u.state[k] += load(arriving[k] + at, count);
            }
            UNROLL for (int k = 0; k < shape->states; k++) u.trace[k] = u.state[k];
            UNROLL for (int k = 0; k < inputs; k++) {
                if (shape->rereads) prefetch(x + wide + k * width, -inputs * size);
                prefetch(dx + wide + k * width, -inputs * size);
            }
            compute(&u);
            UNROLL for (int k = 0; k < vectors; k++) {
                float *const sum = sums + by_row + k * width;
                store(sum, shape->per_step ? u.sum[k] : load(sum, count) + u.sum[k], count);
            }
            UNROLL for (int k = 0; k < inputs; k++) store(dx + wide + k * width, u.output[k], count);
            UNROLL for (int k = 0; k < shape->states; k++) {
                store(carried[k] + at, u.state[k], count);
                if (traces[k]) store(traces[k] + t * size + at, u.trace[k], count);
            }
        })
    }
    restore_denormals(denormals);
}

#endif
