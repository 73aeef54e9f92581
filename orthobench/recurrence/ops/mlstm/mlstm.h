/* The mLSTM's problem, the inputs of a chunk of steps and their gradients: for mlstm.c and mlstm_final.c.
 *
 * Tensors are contiguous and time major. Batch rows are independent, so the caller gives each thread a range of them,
 * and no thread waits. A row runs CHUNK steps of one head after another, whose inputs stay in a core's cache. */
#ifndef ORTHOBENCH_MLSTM_H
#define ORTHOBENCH_MLSTM_H

#include <math.h>

#include "products.h"

#define CHUNK 32

/* NULL: x with a projection, u without; y without
 * readings; totals and starts without them or a backward pass; gradients that are absent or not wanted. A state of a
 * row is [heads, d + 1, d], C and n of each head, then m [heads]. */
struct mlstm {
    int64_t steps, batch, heads, size, inputs, groups, exponential;
    int64_t parts;              /* of the inputs: q, k, v and o, or without readings k and v */
    int64_t differentiated;     /* number of inputs that du has: all except the bias's */
    const float *x,             /* [T, B, parts, heads, d], or NULL if they are computed from u */
        *u;                     /* [T, B, inputs], or NULL */
    const float *packed_inputs; /* U [heads, parts, d, inputs], each [d, inputs] packed */
    const float *packed_transposed; /* U [heads, parts * length, differentiated], 0 behind d rows, packed for dz U */
    const float *gates;         /* [T, B, 2, heads]: i, f */
    const float *start;
    float *y,                   /* [T, B, heads, d] */
        *totals,                /* n^T q, [T, B, heads] */
        *starts,                /* the memories before each chunk, [chunks, B, heads, memory] */
        *end;                   /* the final state of each row */
    const float *grad_y;
    float *dx,                  /* as x */
        *du,                    /* [T, B, differentiated] */
        *dgates,                /* as gates */
        *dweights;              /* [groups, heads, inputs, parts * length], zeroed */
    float *dstart,              /* as start; at first it has the gradient of the end */
        *norms;                 /* squares of the norms, [T, B] */
};

/* Floats of the state of a row. */
INLINE int64_t state_size(const struct mlstm *p) { return p->heads * (p->size * (p->size + 1) + 1); }

INLINE int64_t chunk_end(const struct mlstm *p, int64_t first) {
    return first + CHUNK < p->steps ? first + CHUNK : p->steps;
}

/* Lane j of the first vector: the sum of neighbours 2j and 2j + 1 of both, one after the other. */
INLINE vf neighbours(vf a, vf b) {
    vi even;
    for (int lane = 0; lane < VL; lane++) even[lane] = 2 * lane;
    return shuffle(a, b, even) + shuffle(a, b, even + 1);
}

/* Lane j: the sum of row j's lanes. */
INLINE vf sums_of_rows(vf *rows) {
#pragma GCC unroll 4
    for (int count = VL / 2; count; count /= 2)
#pragma GCC unroll 8
        for (int j = 0; j < count; j++) rows[j] = neighbours(rows[2 * j], rows[2 * j + 1]);
    return rows[0];
}

/* out [steps, length], rows `ldo` floats apart: the products of one matrix with the rows of an operand. */
static void multiply_rows(const struct operand *rows, int64_t steps, int64_t length, float *out, int64_t ldo) {
    const int64_t blocks = (steps + ROWS - 1) / ROWS;
    for (int64_t col = 0; col < length; col += 2 * VL)
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t t = steps * b / blocks;
            multiply((int)(steps * (b + 1) / blocks - t), length - col > VL ? 2 : 1, rows, 1, t, col,
                     out + t * ldo + col, ldo);
        }
}

/* z [CHUNK, parts, length] of one head's steps [first, last), 0 behind d features. */
static void read_inputs(const struct mlstm *p, int64_t row, int64_t head, int64_t first, int64_t last, float *z) {
    const int64_t d = p->size, length = padded(d), width = p->heads * d, steps = last - first, m = p->inputs;
    const int64_t parts = p->parts;
    for (int64_t part = 0; part < parts; part++) {
        if (p->u) {
            const struct operand u = {.a = p->u + (first * p->batch + row) * m, .lda = p->batch * m, .depth = m,
                                      .packed = p->packed_inputs + (head * parts + part) * length * m};
            multiply_rows(&u, steps, length, z + part * length, parts * length);
            continue;
        }
        for (int64_t t = 0; t < steps; t++) {
            const float *const x = p->x + (((first + t) * p->batch + row) * parts + part) * width + head * d;
            for (int64_t j = 0; j < d; j += VL)
                *(vf *)(z + (t * parts + part) * length + j) = load(x + j, lanes(d - j));
        }
    }
}

/* du of a chunk's steps, from dL/dz [heads, CHUNK, parts, length]. */
static void multiply_back(const struct mlstm *p, int64_t row, int64_t first, int64_t last, const float *dz) {
    _Alignas(64) float block[ROWS * 2 * VL];
    const int64_t width = p->parts * padded(p->size), m = p->differentiated, steps = last - first;
    const int64_t blocks = (steps + ROWS - 1) / ROWS;
    struct operand operands[p->heads];
    for (int64_t head = 0; head < p->heads; head++)
        operands[head] = (struct operand){.a = dz + head * CHUNK * width, .lda = width, .depth = width,
                                          .packed = p->packed_transposed + head * width * padded(m)};
    for (int64_t col = 0; col < m; col += 2 * VL)
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t t = steps * b / blocks, vecs = m - col > VL ? 2 : 1;
            const int rows = (int)(steps * (b + 1) / blocks - t);
            multiply(rows, (int)vecs, operands, (int)p->heads, t, col, block, 2 * VL);
            for (int i = 0; i < rows; i++)
                for (int64_t v = 0; v < vecs; v++)
                    store(p->du + ((first + t + i) * p->batch + row) * m + col + v * VL,
                          *(const vf *)(block + (i * 2 + v) * VL), lanes(m - col - v * VL));
        }
}

/* Of a chunk's steps: dx, or the products of u with one head's dL/dz [CHUNK, parts, length]. */
static void finish(const struct mlstm *p, int64_t row, int64_t head, int64_t group, int64_t first, int64_t last,
                   const float *dz) {
    const int64_t d = p->size, length = padded(d), m = p->inputs, steps = last - first, parts = p->parts;
    if (p->dx)
        for (int64_t t = 0; t < steps; t++)
            for (int64_t part = 0; part < parts; part++) {
                float *const dx = p->dx + ((((first + t) * p->batch + row) * parts + part) * p->heads + head) * d;
                for (int64_t j = 0; j < d; j += VL)
                    store(dx + j, *(const vf *)(dz + (t * parts + part) * length + j), lanes(d - j));
            }
    if (!p->dweights) return;
    struct factor factors[CHUNK];
    for (int64_t t = 0; t < steps; t++) factors[t] = (struct factor){dz + t * parts * length, NULL};
    const struct rows rows = {p->u + (first * p->batch + row) * m, steps, p->batch * m};
    accumulate_outer(&rows, factors, 0, m, 0, parts * length, parts * length, 0,
                     p->dweights + (group * p->heads + head) * m * parts * length, NULL);
}

#endif
