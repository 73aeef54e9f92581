/* The backward loop of a dense recurrence, and dL/d[W, U], computed during it.
 *
 * After a few steps, while their dz and h are in the cache, their products are added to the sums. Each group of batch
 * rows has its own sums, and a thread has whole groups, so no sum depends on the number of threads. */
#ifndef ORTHOBENCH_WEIGHT_SUMS_H
#define ORTHOBENCH_WEIGHT_SUMS_H

#include "dense.h"

/* Columns of dz, and the columns of [state, u_t] whose products with them are added up. */
struct source {
    int64_t first, last;  /* columns of dz */
    int64_t from, to;     /* columns of [state, u_t] */
    const float *states;  /* of all steps [T, B, n], or NULL: then the ring has them in its columns behind dz */
    const float *initial; /* [B, n]: a product is with the state before its step, or with NULL with that of its step */
};

struct sums {
    struct source sources[8];
    int64_t count;          /* of sources */
    int64_t rows, width;    /* batch rows of this thread; columns of dz */
    int64_t chunk;          /* steps between additions */
    int64_t ld;             /* floats between dz of a row's steps: whole cache lines, an odd number of them */
    float *ring;            /* [rows, chunk, ld], a group's steps and rows equally far apart: dz, then the additional
                             * columns; NULL if no sums are computed */
    int64_t row;            /* floats between dz of a step's rows */
    int64_t started, spent; /* nanoseconds: when the loop began, and for the sums */
};

/* Starts a loop over `rows` batch rows from `first`, whose cell has one state or two: its step, and sums whose ring has
 * `extra` columns after the `width` columns of dz. Returns 0 without memory. */
INTERNAL int start_backward(struct step *s, struct sums *sums, const struct dense *p, int64_t first, int64_t rows,
                            int states, int64_t width, int64_t extra);

/* Ends the loop; its result is 0. */
INTERNAL int end_backward(const struct step *s, const struct sums *sums, uint64_t denormals);

/* Adds the products of the steps [t, t + chunk), if t starts a chunk. */
INTERNAL void add_products(struct sums *sums, const struct dense *p, int64_t t, int64_t first);

/* dL/dz of step t, [rows, width] from batch row `first`, its rows sums->row floats apart. */
INLINE float *dz_at(const struct sums *sums, const struct dense *p, int64_t t, int64_t first) {
    if (sums->ring) return sums->ring + t % sums->chunk * sums->ld;
    return p->dx + (t * p->batch + first) * sums->width;
}

#endif
