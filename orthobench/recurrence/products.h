/* Products of float32 matrices, block by block in registers. */
#ifndef ORTHOBENCH_PRODUCTS_H
#define ORTHOBENCH_PRODUCTS_H

#include "vectors.h"

#define EACH_ROWS(CASE) CASE(1) CASE(2) CASE(3) CASE(4) EACH_ROWS_AVX2(CASE)
#if ROWS >= 6
#define EACH_ROWS_AVX2(CASE) CASE(5) CASE(6) EACH_ROWS_AVX512(CASE)
#else
#define EACH_ROWS_AVX2(CASE)
#endif
#if ROWS >= 14
#define EACH_ROWS_AVX512(CASE) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12) CASE(13) CASE(14)
#else
#define EACH_ROWS_AVX512(CASE)
#endif


/* A factor's rows, and the packed matrix that multiplies them (see `pack`). */
struct operand {
    const float *a;
    int64_t lda, depth;
    const float *packed;
};

/* out[rows][vecs] = sum over the operands of a[row : row + rows][depth] packed[depth][column : ...]: one block of
 * accumulators. `column` counts the floats of a packed row before the panel. */
INLINE void tile(const int rows, const int vecs, const struct operand *operands, int count, int64_t row,
                 int64_t column, float *restrict out, int64_t ldo) {
    vf sums[ROWS][2];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) sums[i][v] = (vf){0};
    for (const struct operand *at = operands; at < operands + count; at++) {
        const int64_t lda = at->lda, depth = at->depth;
        const float *restrict a = at->a + row * lda, *restrict panel = at->packed + column * depth;
#pragma GCC unroll 2
        for (int64_t k = 0; k < depth; k++) {
            const vf *w = (const vf *)(panel + k * vecs * VL);
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                const vf value = splat(a[i * lda + k]);
#pragma GCC unroll 2
                for (int v = 0; v < vecs; v++) sums[i][v] += value * w[v];
            }
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) *(vf *)(out + i * ldo + v * VL) = sums[i][v];
}

static void multiply(int rows, int vecs, const struct operand *operands, int count, int64_t row, int64_t column,
                     float *out, int64_t ldo) {
    switch (rows * 2 + vecs - 1) {
#define CASE(N)                                                           \
    case N * 2: tile(N, 1, operands, count, row, column, out, ldo);       \
        return;                                                           \
    case N * 2 + 1: tile(N, 2, operands, count, row, column, out, ldo);   \
        return;
        EACH_ROWS(CASE)
#undef CASE
    }
}

/* Output columns [col, col + count) of a matrix whose entry for output j and input k is from[j * sj + k * sk]. */
static void pack_vector(float *to, int64_t stride, int64_t depth, const float *from, int64_t sj, int64_t sk, int count) {
    for (int64_t k = 0; k < depth; k++)
        for (int lane = count; lane < VL; lane++) to[k * stride + lane] = 0;
    if (sk == 1) {
        for (int lane = 0; lane < count; lane++)
            for (int64_t k = 0; k < depth; k++) to[k * stride + lane] = from[lane * sj + k];
    } else {
        for (int64_t k = 0; k < depth; k++)
            for (int lane = 0; lane < count; lane++) to[k * stride + lane] = from[lane * sj + k * sk];
    }
}

/* ------------------------------------------------------------------ sums of outer products */

enum {
    DEPTH = 128, /* rows summed in registers: a panel of them, DEPTH x 2 vectors, stays in L1 */
    BLOCK = (ROWS + VL - 1) / VL * VL, /* floats of a packed row of at most ROWS columns of dz */
};

/* One addend of a weight's gradient, dz^T [state, input]; `input` is NULL where no input is summed beside the state. */
struct pair {
    const float *dz, *state, *input;
};

/* The columns of [state, input] rounded up to whole vectors: the row length of a sum of outer products. */
INLINE int64_t padded(int64_t columns) { return (columns + VL - 1) / VL * VL; }

/* Floats of memory that accumulate_outer needs. */
INLINE int64_t outer_memory(int64_t width, int64_t columns) {
    return ((width / ROWS + 1) * BLOCK + padded(columns) + 2 * VL) * DEPTH;
}

/* out[rows][vecs] += sum over k of a[k][rows] b[k][vecs], a's rows BLOCK apart. */
INLINE void outer_tile(const int rows, const int vecs, int64_t depth, const float *restrict a, const float *restrict b,
                       float *restrict out, int64_t ldo) {
    vf sums[ROWS][2] = {{{0}}};
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) __builtin_prefetch(out + i * ldo + v * VL, 1, 3);
#pragma GCC unroll 2
    for (int64_t k = 0; k < depth; k++) {
        const vf *w = (const vf *)(b + k * vecs * VL);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            const vf value = splat(a[k * BLOCK + i]);
#pragma GCC unroll 2
            for (int v = 0; v < vecs; v++) sums[i][v] += value * w[v];
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) {
            *(vf *)(out + i * ldo + v * VL) += sums[i][v];
        }
}

static void multiply_outer(int rows, int vecs, int64_t depth, const float *a, const float *b, float *out, int64_t ldo) {
    switch (rows * 2 + vecs - 1) {
#define CASE(N)                                                            \
    case N * 2: outer_tile(N, 1, depth, a, b, out, ldo);       \
        return;                                                            \
    case N * 2 + 1: outer_tile(N, 2, depth, a, b, out, ldo);   \
        return;
        EACH_ROWS(CASE)
#undef CASE
    }
}

INLINE void prefetch_row(const float *row, int64_t floats) {
    for (int64_t i = 0; i < floats; i += 16) __builtin_prefetch(row + i, 0, 2);
}

/* out [width, padded(n + m)] += the sum over `depth` <= DEPTH pairs of dz [width] times [state [n], input [m]]. The rows
 * are copied into blocks first. Read in place, rows a power of two apart fall on the same few cache sets. The `ahead`
 * pairs behind them are fetched meanwhile. */
static void accumulate_outer(const struct pair *pairs, int64_t depth, int64_t ahead, int64_t width, int64_t n, int64_t m,
                             float *out, float *memory) {
    const int64_t columns = n + m, ldo = padded(columns), blocks = (width + ROWS - 1) / ROWS;
    float *const packed_b = memory, *const packed_a = memory + (ldo + VL) * DEPTH;
    int64_t starts[blocks + 1]; /* of the blocks of dz's columns; a division for each row would cost more than its copy */
    for (int64_t block = 0; block <= blocks; block++) starts[block] = width * block / blocks;
    for (int64_t r = 0; r < depth; r++) {
        for (int64_t col = 0; col < ldo; col += VL) {
            const int64_t panel = col / (2 * VL), vecs = ldo - panel * 2 * VL > VL ? 2 : 1;
            float *const to = packed_b + panel * 2 * VL * DEPTH + r * vecs * VL + col % (2 * VL);
            *(vf *)to = col < n ? load(pairs[r].state + col, lanes(n - col)) : (vf){0};
        }
        for (int64_t j = 0; j < m; j++) {
            const int64_t col = n + j, panel = col / (2 * VL), vecs = ldo - panel * 2 * VL > VL ? 2 : 1;
            packed_b[panel * 2 * VL * DEPTH + r * vecs * VL + col % (2 * VL)] = pairs[r].input[j];
        }
        for (int64_t block = 0; block < blocks; block++) {
            const float *const from = pairs[r].dz + starts[block];
            const int height = (int)(starts[block + 1] - starts[block]);
            for (int i = 0; i < BLOCK; i += VL)
                *(vf *)(packed_a + (block * DEPTH + r) * BLOCK + i) = load(from + i, lanes(height > i ? height - i : 0));
        }
    }
    const int64_t tiles = blocks * ((ldo + 2 * VL - 1) / (2 * VL));
    int64_t fetched = 0, done = 0;
    for (int64_t col = 0; col < ldo; col += 2 * VL)
        for (int64_t block = 0; block < blocks; block++) {
            const int64_t row = starts[block];
            for (done++; fetched < ahead * done / tiles; fetched++) {
                prefetch_row(pairs[depth + fetched].state, n);
                prefetch_row(pairs[depth + fetched].dz, width);
            }
            multiply_outer((int)(starts[block + 1] - row), ldo - col > VL ? 2 : 1, depth,
                           packed_a + block * DEPTH * BLOCK, packed_b + col * DEPTH, out + row * ldo + col, ldo);
        }
}

#endif
