#include "products.h"
#include "tiles.h"

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

enum { AHEAD = 24 }; /* rows of a far panel that are fetched before their use */

/* sums[rows][vecs] += a[rows] w[vecs], a's elements lda apart. */
INLINE void add_column(const int rows, const int vecs, vf sums[ROWS][2], const float *a, int64_t lda, const float *w) {
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        const vf value = splat(a[i * lda]);
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) sums[i][v] += value * ((const vf_unaligned *)w)[v];
    }
}

/* `multiply` for a constant number of rows and vectors: one block of accumulators. */
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
        if (depth < FAR && at->fetch) {
            const int64_t lines = at->lines;
            const float *line = at->fetch;
            int64_t due = 0;
#pragma GCC unroll 2
            for (int64_t k = 0; k < depth; k++) {
                if ((due += lines) >= depth) {
                    __builtin_prefetch(line, 0, 2);
                    line += 16;
                    due -= depth;
                }
                add_column(rows, vecs, sums, a + k, lda, panel + k * vecs * VL);
            }
        } else if (depth < FAR)
#pragma GCC unroll 2
            for (int64_t k = 0; k < depth; k++) add_column(rows, vecs, sums, a + k, lda, panel + k * vecs * VL);
        else
#pragma GCC unroll 2
            for (int64_t k = 0; k < depth; k++) {
                for (int v = 0; v < vecs; v++)
                    __builtin_prefetch(panel + (k + AHEAD) * vecs * VL + v * VL, 0, 3);
                add_column(rows, vecs, sums, a + k, lda, panel + k * vecs * VL);
            }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) *(vf *)(out + i * ldo + v * VL) = sums[i][v];
}

void multiply(int rows, int vecs, const struct operand *operands, int count, int64_t row, int64_t column,
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

void multiply_rows(const struct operand *a, int64_t rows, int64_t columns, float *out, int64_t ldo) {
    const int64_t blocks = (rows + ROWS - 1) / ROWS;
    for (int64_t col = 0; col < columns; col += 2 * VL)
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t row = rows * b / blocks;
            multiply((int)(rows * (b + 1) / blocks - row), columns - col > VL ? 2 : 1, a, 1, row, col,
                     out + row * ldo + col, ldo);
        }
}

void pack_vector(float *to, int64_t stride, int64_t depth, const float *from, int64_t sj, int64_t sk,
                 int count) {
    if (sk == 1) {
        transpose(count, depth, from, sj, to, stride);
        return;
    }
    for (int64_t k = 0; k < depth; k++) {
        if (sj == 1) *(vf *)(to + k * stride) = load(from + k * sk, count);
        else
            for (int lane = 0; lane < VL; lane++) to[k * stride + lane] = lane < count ? from[lane * sj + k * sk] : 0;
    }
}

void pack(float *to, const float *from, int64_t n, int64_t depth, int64_t sj, int64_t sk, int64_t gates) {
    if (gates == 1) {
        for (int64_t col = 0; col < n; col += 2 * VL) {
            const int vecs = n - col > VL ? 2 : 1;
            for (int v = 0; v < vecs; v++)
                pack_vector(to + col * depth + v * VL, vecs * VL, depth, from + (col + v * VL) * sj, sj, sk,
                            lanes(n - col - v * VL));
        }
        return;
    }
    for (int64_t col = 0; col < n; col += VL)
        for (int64_t gate = 0; gate < gates; gate++)
            pack_vector(to + (col * gates + gate / 2 * 2 * VL) * depth + gate % 2 * VL,
                        gate == gates - 1 && gate % 2 == 0 ? VL : 2 * VL, depth,
                        from + (gate * n + col) * sj, sj, sk, lanes(n - col));
}

/* ------------------------------------------------------------------ sums of outer products */

enum {
    BLOCK = (ROWS + VL - 1) / VL * VL, /* floats of a copied row of at most ROWS columns of dz */
    COPIED = DEPTH * BLOCK + 16, /* floats between copied blocks, with an extra line to avoid a common cache set */
    FEW = VL / 2, /* columns of inputs that are cheaper without a vector of their own */
    EVERY = 8, /* rows between requests; each is for one row of the next tile's sums */
};

int64_t copy_size(int64_t width) { return (width / ROWS + 1) * COPIED; }

/* Requests for the cache lines of rows that come from memory, one after the other. */
struct lines {
    const struct rows *dz;
    const struct factor *factors;
    int64_t row, line;      /* the next */
    int64_t of_dz, of_both; /* lines in a row */
    int64_t due;            /* requests in the present tile */
};

INLINE void fetch_line(struct lines *at) {
    const int64_t line = at->line++;
    if (line < at->of_dz) __builtin_prefetch(at->dz->first + at->row * at->dz->ld + line * 16, 0, 2);
    else __builtin_prefetch(at->factors[at->row].state + (line - at->of_dz) * 16, 0, 2);
    if (at->line < at->of_both) return;
    at->line = 0;
    at->row++;
}

/* Whether an outer product reads states of whole vectors where they are. Narrower vectors read them for more blocks of
 * dz, and rows a power of two apart would fall on the same few cache sets each time. Then all panels are copied. */
enum { READ_IN_PLACE = VL == 16 };

/* The place in a row, moved over the gap behind it if there is one; `left` counts the rows before. */
INLINE const float *after_gap(const float *at, const struct rows *dz, int64_t *left) {
    if (--*left) return at;
    *left = dz->run;
    return at + dz->gap;
}

/* out[height][vecs] += sum over the rows k of dz[k][column : column + height] right[k][vecs]. Rows that are not read in
 * place follow one another from right[0] on. Sums that are `far` are not in the L2 cache. Those of the next tile and the lines that are due are then asked for meanwhile, evenly: all at
 * once would fill the core's queue of misses. */
INLINE void outer_tile(const int far, const int height, const int vecs, const struct rows *dz, int64_t column,
                       const float *const *right, const float *next, struct lines *ahead, float *restrict out,
                       int64_t ldo) {
    vf sums[ROWS][2];
    const int64_t ld = dz->ld, depth = dz->depth, due = far ? EVERY * ahead->due : 0;
    int64_t k = 0, asked = 0, left = dz->run;
    const float *restrict a = dz->first + column;
#pragma GCC unroll 16
    for (int i = 0; i < height; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) {
            sums[i][v] = (vf){0};
            if (!far) __builtin_prefetch(out + i * ldo + v * VL, 1, 3);
        }
    for (; far && k + EVERY <= depth; k += EVERY, next += ldo) {
        __builtin_prefetch(next, 1, 3);
        __builtin_prefetch(next + VL, 1, 3);
        for (asked += due; asked >= depth; asked -= depth) fetch_line(ahead);
#pragma GCC unroll 2
        for (int j = 0; j < EVERY; j++, a += ld) add_column(height, vecs, sums, a, 1, right[k + j]);
    }
    if (READ_IN_PLACE) {
#pragma GCC unroll 2
        for (; k < depth; k++, a = after_gap(a + ld, dz, &left)) add_column(height, vecs, sums, a, 1, right[k]);
    } else for (const float *w = right[0] + k * vecs * VL; k < depth; a += dz->gap) {
        const int64_t stop = dz->run && dz->run < depth - k ? k + dz->run : depth;
#pragma GCC unroll 2
        for (; k < stop; k++, a += ld, w += vecs * VL) add_column(height, vecs, sums, a, 1, w);
    }
#pragma GCC unroll 16
    for (int i = 0; i < height; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) *(vf *)(out + i * ldo + v * VL) += sums[i][v];
}

static void multiply_outer(int far, int height, int vecs, const struct rows *dz, int64_t column,
                           const float *const *right, const float *next, struct lines *ahead, float *out,
                           int64_t ldo) {
    switch (height * 4 + far * 2 + vecs - 1) {
#define CASE_OF(N, IS_FAR, VECS)                                                             \
    case N * 4 + IS_FAR * 2 + VECS - 1:                                                      \
        outer_tile(IS_FAR, N, VECS, dz, column, right, next, ahead, out, ldo);               \
        return;
#define CASE(N) CASE_OF(N, 0, 1) CASE_OF(N, 0, 2) CASE_OF(N, 1, 1) CASE_OF(N, 1, 2)
        EACH_ROWS(CASE)
#undef CASE
#undef CASE_OF
    }
}

/* Columns [col, col + vecs * VL) of [state, input], 0 behind the last. */
INLINE void copy_panel(const int vecs, float *panel, const struct factor *factors, int64_t depth, int64_t col,
                       int64_t n, int64_t m, const float **right) {
    if (col + vecs * VL <= n) {
        for (int64_t r = 0; r < depth; r++, panel += vecs * VL) {
            right[r] = panel;
            for (int v = 0; v < vecs; v++)
                *(vf *)(panel + v * VL) = *(const vf_unaligned *)(factors[r].state + col + v * VL);
        }
        return;
    }
    for (int64_t r = 0; r < depth; r++, panel += vecs * VL) {
        right[r] = panel;
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL;
            *(vf *)(panel + v * VL) = at < n ? load(factors[r].state + at, lanes(n - at)) : (vf){0};
        }
        for (int64_t at = col > n ? col : n; at < n + m && at < col + vecs * VL; at++)
            panel[at - col] = factors[r].input[at - n];
    }
}

/* The rows of dz, cut into the blocks of columns that a tile reads, one block after the other. */
static void copy_blocks(float *to, const struct rows *dz, int64_t width, int64_t blocks) {
    for (int64_t block = 0; block < blocks; block++, to += COPIED) {
        const int64_t start = width * block / blocks, height = width * (block + 1) / blocks - start;
        for (int64_t r = 0; r < dz->depth; r++)
            for (int64_t i = 0; i < height; i += VL)
                *(vf *)(to + r * BLOCK + i) = load(dz->first + r * dz->ld + start + i, lanes(height - i));
    }
}

/* out[i][c] += sum over the rows k of dz[k][i] times input `first + c` of row k, of `count` inputs. A vector holds VL
 * columns of dz, since it would be nearly empty with the inputs. */
INLINE void add_inputs(const int count, const struct rows *dz, const struct factor *factors, int64_t width,
                       int64_t first, float *out, int64_t ldo) {
    for (int64_t i = 0; i < width; i += 2 * VL) {
        const int counts[] = {lanes(width - i), width - i > VL ? lanes(width - i - VL) : 0};
        vf sums[FEW][2], totals[FEW][2]; /* a lane of `totals` is read, so gcc keeps that array in memory */
#pragma GCC unroll 8
        for (int c = 0; c < count; c++) sums[c][0] = sums[c][1] = (vf){0};
        const float *from = dz->first + i;
        int64_t left_out = dz->run;
        for (int64_t k = 0; k < dz->depth; k++, from = after_gap(from + dz->ld, dz, &left_out)) {
            const float *const input = factors[k].input + first;
            const vf left = load(from, counts[0]), right = load(from + VL, counts[1]);
#pragma GCC unroll 8
            for (int c = 0; c < count; c++) {
                sums[c][0] += left * splat(input[c]);
                sums[c][1] += right * splat(input[c]);
            }
        }
#pragma GCC unroll 8
        for (int c = 0; c < count; c++) totals[c][0] = sums[c][0], totals[c][1] = sums[c][1];
        for (int c = 0; c < count; c++)
            for (int v = 0; v < 2; v++)
                for (int lane = 0; lane < counts[v]; lane++) out[(i + v * VL + lane) * ldo + c] += totals[c][v][lane];
    }
}

#define EACH_FEW(CASE) CASE(1) CASE(2) EACH_FEW_AVX2(CASE)
#if VL >= 8
#define EACH_FEW_AVX2(CASE) CASE(3) CASE(4) EACH_FEW_AVX512(CASE)
#else
#define EACH_FEW_AVX2(CASE)
#endif
#if VL >= 16
#define EACH_FEW_AVX512(CASE) CASE(5) CASE(6) CASE(7) CASE(8)
#else
#define EACH_FEW_AVX512(CASE)
#endif

static void add_few_inputs(int64_t count, const struct rows *dz, const struct factor *factors, int64_t width,
                           int64_t first, float *out, int64_t ldo) {
    switch (count) {
#define CASE(N)                                                \
    case N: add_inputs(N, dz, factors, width, first, out, ldo); \
        return;
        EACH_FEW(CASE)
#undef CASE
    }
}

void accumulate_outer(const struct rows *dz, const struct factor *factors, int64_t ahead, int64_t width,
                      int64_t from, int64_t to, int64_t n, int64_t m, float *out, float *copy) {
    _Alignas(64) float panel[DEPTH * 2 * VL];
    const float *right[DEPTH];
    const int64_t depth = dz->depth, ldo = padded(n + m), blocks = (width + ROWS - 1) / ROWS;
    const int64_t inputs = to - padded(n); /* of a vector without states */
    if (inputs > 0 && inputs <= FEW) {
        to = padded(n);
        add_few_inputs(inputs, dz, factors, width, to - n, out + to, ldo);
    }
    const int64_t tiles = blocks * ((to - from + 2 * VL - 1) / (2 * VL));
    struct lines later = {dz, factors, depth, 0, (width + 15) / 16, (width + 15) / 16 + (n + 15) / 16, 0};
    const int64_t lines = ahead * later.of_both;
    int64_t done = 0;
    if (copy) copy_blocks(copy, dz, width, blocks);
    for (int64_t col = from; col < to; col += 2 * VL) {
        const int vecs = to - col > VL ? 2 : 1;
        if (READ_IN_PLACE && !copy && n % VL == 0 && col + vecs * VL <= n)
            for (int64_t r = 0; r < depth; r++) right[r] = factors[r].state + col;
        else if (vecs == 2) copy_panel(2, panel, factors, depth, col, n, m, right);
        else copy_panel(1, panel, factors, depth, col, n, m, right);
        for (int64_t block = 0; block < blocks; block++) {
            const int64_t row = width * block / blocks, end = width * (block + 1) / blocks;
            const float *const next = end < width ? out + end * ldo + col : out + col + 2 * VL;
            const struct rows copied = {copy + block * COPIED, depth, BLOCK};
            later.due = lines * (done + 1) / tiles - lines * done / tiles;
            multiply_outer(copy != NULL, (int)(end - row), vecs, copy ? &copied : dz, copy ? 0 : row, right, next,
                           &later, out + row * ldo + col, ldo);
            done++;
        }
    }
}
