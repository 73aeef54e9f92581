/* dL/d[W, U], computed during the backward loop.
 *
 * After a few steps, while their dz and h are in the cache, their products are added to the sums. Each group of batch
 * rows has its own sums, and a thread has whole groups, so no sum depends on the number of threads. */
#ifndef ORTHOBENCH_WEIGHT_SUMS_H
#define ORTHOBENCH_WEIGHT_SUMS_H

#include "dense.h"

/* Columns [first, last) of dz, whose products with the columns [from, to) of [state, u_t] are added up. The state is
 * that before step t, or without an initial one that of step t. Without states it is in the ring's columns behind
 * dz. */
struct source {
    int64_t first, last, from, to;
    const float *states, *initial;
};

struct sums {
    struct source sources[3];
    int64_t count;
    int64_t rows, width; /* batch rows of this thread; columns of dz */
    int64_t chunk;       /* steps between additions */
    int64_t ld;          /* floats between dz of a row's steps: whole cache lines, an odd number of them */
    float *ring;         /* [rows, chunk, ld], a group's steps and rows equally far apart: dz, then the additional
                          * columns; NULL if no sums are computed */
    int64_t row;         /* floats between dz of a step's rows */
    int64_t started, spent; /* nanoseconds */
};

/* Starts sums whose ring has `beside` columns behind dz; 0 without memory. */
INTERNAL int start_sums(struct sums *sums, const struct problem *p, int64_t rows, int64_t width, int64_t beside);

/* Adds the products of the steps [t, t + chunk), if t starts a chunk. Of the steps behind the last, dz is still 0. */
INTERNAL void add_products(struct sums *sums, const struct problem *p, int64_t t, int64_t first);

INTERNAL void end_sums(struct sums *sums, const struct problem *p);

/* dL/dz of step t, [rows, width] from batch row `first`, its rows sums->row floats apart. */
INLINE float *dz_at(const struct sums *sums, const struct problem *p, int64_t t, int64_t first) {
    if (sums->ring) return sums->ring + t % sums->chunk * sums->ld;
    return p->dx + (t * p->batch + first) * sums->width;
}

#endif
