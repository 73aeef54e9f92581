/* The fields of the mLSTM, the inputs of a chunk of steps and their gradients: for mlstm.c and mlstm_final.c.
 *
 * Tensors are contiguous and time major. Batch rows are independent, so the caller gives each thread a range of them,
 * and no thread waits. A row runs MLSTM_STEPS steps of one head after another, whose inputs stay in a core's cache. */
#ifndef ORTHOBENCH_MLSTM_H
#define ORTHOBENCH_MLSTM_H

#include <math.h>

#include "products.h"

enum { MLSTM_STEPS = 32 }; /* steps of a chunk, whose memories stay in a core's cache */

/* `length` is d rounded up to whole vectors. The state of a row is [heads, d + 1, d], C and n of each head, then m
 * [heads]. What a pass does not need, and what it does not want, is NULL. */
struct mlstm {
    int64_t steps, batch, heads;    /* T, B and the number of heads */
    int64_t size;                   /* d, the units of a head */
    int64_t parts;                  /* of the inputs: q, k, v and o, or without readings k and v */
    int64_t inputs;                 /* columns of u, or 0 */
    int64_t differentiated;         /* columns of du: all except the bias's */
    int64_t groups;                 /* groups of batch rows, whose gradients of U are summed separately */
    int64_t exponential;            /* whether the forget gate is exp(f), not sigmoid(f) */
    const float *x;                 /* [T, B, parts, heads, d], or NULL if they are computed from u */
    const float *u;                 /* [T, B, inputs], or NULL */
    const float *packed_inputs;     /* U [heads, parts, d, inputs], each [d, inputs] packed */
    const float *packed_transposed; /* U [heads, parts * length, differentiated], 0 behind d rows, packed for dz U */
    const float *gates;             /* i and f [T, B, 2, heads] */
    const float *start;             /* the state before the first step [B, state] */
    float *y;                       /* [T, B, heads, d], or NULL without readings */
    float *totals;                  /* n^T q [T, B, heads], for a backward pass */
    float *starts;                  /* the memories before each chunk [chunks, B, heads, memory], likewise */
    float *end;                     /* the state after the last step, as start */
    const float *grad_y;            /* as y, or NULL */
    float *dx;                      /* as x */
    float *du;                      /* [T, B, differentiated] */
    float *dgates;                  /* as gates */
    float *dweights;                /* dL/dU [groups, heads, inputs, parts * length], zeroed */
    float *dstart;                  /* as start; at first it has the gradient of the end */
    float *norms;                   /* squares of the norms [T, B], or NULL */
};

/* Floats of the state of a row. */
INLINE int64_t state_size(const struct mlstm *p) { return p->heads * (p->size * (p->size + 1) + 1); }

INLINE int64_t chunk_end(const struct mlstm *p, int64_t first) {
    return first + MLSTM_STEPS < p->steps ? first + MLSTM_STEPS : p->steps;
}

/* z [MLSTM_STEPS, parts, length] of one head's steps [first, last), 0 behind d features. */
INTERNAL void mlstm_read_inputs(const struct mlstm *p, int64_t row, int64_t head, int64_t first, int64_t last,
                                float *z);

/* du of a chunk's steps, from dL/dz [heads, MLSTM_STEPS, parts, length]. */
INTERNAL void mlstm_multiply_back(const struct mlstm *p, int64_t row, int64_t first, int64_t last, const float *dz);

/* Of a chunk's steps: dx, or the products of u with one head's dL/dz [MLSTM_STEPS, parts, length]. */
INTERNAL void mlstm_finish(const struct mlstm *p, int64_t row, int64_t head, int64_t group, int64_t first, int64_t last,
                     const float *dz);

#endif
