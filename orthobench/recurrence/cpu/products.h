/* Products of float32 matrices, block by block in registers. */
#ifndef ORTHOBENCH_PRODUCTS_H
#define ORTHOBENCH_PRODUCTS_H

#include "memory.h"
#include "vectors.h"

/* A factor's rows, and the packed matrix that multiplies them (see `pack`). */
struct operand {
    const float *a;      /* rows of `depth` floats */
    int64_t lda;         /* floats between them */
    int64_t depth;       /* rows of the matrix */
    const float *packed; /* the matrix */
    const float *fetch;  /* memory that is asked for meanwhile, or NULL */
    int64_t lines;       /* its cache lines, asked for evenly over the depth */
};

enum {
    FAR = 768, /* a panel of this depth does not stay in any L1 cache */
    DEPTH = 128, /* rows of an outer product summed in registers: a panel of them, DEPTH x 2 vectors, stays in L1 */
};

/* out[rows][vecs] = sum over the operands of a[row : row + rows][depth] packed[depth][column : ...], of at most ROWS
 * rows. `column` counts the floats of a packed row before the panel. */
INTERNAL void multiply(int rows, int vecs, const struct operand *operands, int count, int64_t row, int64_t column,
                       float *out, int64_t ldo);

/* out [rows, padded(columns)], rows `ldo` floats apart: the products of the rows of `a` with its matrix, packed with
 * one gate. */
INTERNAL void multiply_rows(const struct operand *a, int64_t rows, int64_t columns, float *out, int64_t ldo);

/* Packs a matrix of `gates` blocks of n output columns, whose entry for output j and input k is from[j * sj + k * sk],
 * in panels. With one gate a panel is two vectors of columns (the last may be one). With several gates a panel has two
 * gates of VL units (the last panel of an odd number has one), so that one block of sums holds all gates. */
void pack(float *to, const float *from, int64_t n, int64_t depth, int64_t sj, int64_t sk, int64_t gates);

/* Packs the output columns [col, col + count) of a matrix whose entry for output j and input k is
 * from[j * sj + k * sk]. */
INTERNAL void pack_vector(float *to, int64_t stride, int64_t depth, const float *from, int64_t sj, int64_t sk,
                          int count);

/* y = a V + bias, see linear.c. */
void linear(int64_t first, int64_t last, int64_t total, int64_t depth, int64_t n, const float *a, const float *packed,
            const float *bias, float *out);

/* ------------------------------------------------------------------ sums of outer products */

/* Rows of dL/dz. */
struct rows {
    const float *first; /* the first row */
    int64_t depth, ld;  /* the number of rows, and the floats between them */
    int64_t run, gap;   /* after each `run` rows, `gap` more floats are left out; or 0 */
};

/* What a row of dL/dz is multiplied with: [state, input]. Without inputs, `input` is not read. */
struct factor {
    const float *state; /* [n] */
    const float *input; /* [m] */
};

/* Steps whose dz are kept for one addition to the sums of a group of batch rows. */
INLINE int64_t steps_of_sum(int64_t batch, int64_t groups, int64_t steps) {
    const int64_t rows = groups ? (batch + groups - 1) / groups : batch, count = DEPTH / rows > 2 ? DEPTH / rows : 2;
    return count < steps ? count : steps > 2 ? steps : 2;
}

/* Floats rounded up to an odd number of cache lines, so that rows fall on different cache sets. */
INLINE int64_t odd_lines(int64_t floats) { return ((floats + 15) / 16 | 1) * 16; }

/* Floats of memory for a copy of DEPTH rows of dz, of `width` columns. */
INTERNAL int64_t copy_size(int64_t width);

/* out [width, padded(n + m)] += the sum over at most DEPTH rows of dz [width] times their factor, [state [n], input
 * [m]], of which only the columns [from, to) are wanted; `from` is a multiple of VL. With AVX-512, states of
 * whole vectors are read in place. Other factors are copied in panels before their use, because their vectors would
 * cross cache lines. With memory for it, `copy`, dz and all factors are copied: they come from far, and rows a power of
 * two apart would fall on the same few cache sets. The `ahead` rows of dz behind these, and their factors, are then
 * fetched meanwhile. */
INTERNAL void accumulate_outer(const struct rows *dz, const struct factor *factors, int64_t ahead, int64_t width,
                               int64_t from, int64_t to, int64_t n, int64_t m, float *out, float *copy);

#endif
