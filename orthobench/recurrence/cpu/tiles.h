/* Products and transposes of small row-major matrices that stay in the L1 and L2 caches.
 *
 * Rows are padded with zeros to whole vectors and begin on a vector's boundary. */
#ifndef ORTHOBENCH_TILES_H
#define ORTHOBENCH_TILES_H

#include "vectors.h"

#if VL == 16
#define TALL 8 /* rows x 2 vectors of sums in registers, or twice the rows x 1 */
#define EACH_TALL(CASE) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8)
#else
#define TALL 4
#define EACH_TALL(CASE) CASE(1) CASE(2) CASE(3) CASE(4)
#endif

/* The sum of a o b over whole vectors. */
INLINE float dot(const float *a, const float *b, int64_t size) {
    vf total = {0};
    for (int64_t i = 0; i < size; i += VL) total += *(const vf *)(a + i) * *(const vf *)(b + i);
    return sum_of(total);
}

/* The left factor of a product: element (row, k) is at[row * by_row + k * by_depth]. */
struct left {
    const float *at;
    int64_t by_row, by_depth;
};

#define BY_ROWS(AT, LD) (&(struct left){AT, LD, 1})
#define BY_COLUMNS(AT, LD) (&(struct left){AT, 1, LD}) /* a transposed matrix */

/* How a product is stored: out = keep kept + scale rows[row] product. Without `kept`, out itself is used. With
 * keep = 0, nothing is read. Without `rows`, their factors are 1. */
struct into {
    float keep, scale;
    const float *rows, *kept; /* kept: with the row length of out */
};

#define INTO(...) (&(struct into){__VA_ARGS__})

INLINE void product_block(const int rows, const int vecs, int64_t depth, struct left a, const float *restrict b,
                          int64_t ldb, struct into how, float *restrict out, int64_t ldo) {
    vf sums[2 * TALL][2];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) sums[i][v] = (vf){0};
    const float *restrict at = a.at;
    for (int64_t k = 0; k < depth; k++, at += a.by_depth, b += ldb) {
        vf right[2];
        for (int v = 0; v < vecs; v++) right[v] = *(const vf *)(b + v * VL);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            const vf value = splat(at[i * a.by_row]);
            for (int v = 0; v < vecs; v++) sums[i][v] += value * right[v];
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        const vf factor = splat(how.rows ? how.rows[i] * how.scale : how.scale);
        for (int v = 0; v < vecs; v++) {
            const vf *const kept = (const vf *)((how.kept ? how.kept : out) + i * ldo + v * VL);
            const vf value = sums[i][v] * factor;
            *(vf *)(out + i * ldo + v * VL) = how.keep != 0.0f ? *kept * how.keep + value : value;
        }
    }
}

/* out [rows, columns] from the product of a [rows, depth] and b [depth, columns]; columns are padded to vectors. */
static void product_of_any(int64_t rows, int64_t columns, int64_t depth, const struct left *a, const float *b,
                           int64_t ldb, const struct into *how, float *out, int64_t ldo) {
    for (int64_t col = 0; col < columns; col += 2 * VL) {
        const int vecs = columns - col > VL ? 2 : 1, tall = 2 * TALL / vecs;
        for (int64_t row = 0; row < rows; row += tall) {
            const struct left part = {a->at + row * a->by_row, a->by_row, a->by_depth};
            const struct into part_how = {how->keep, how->scale, how->rows ? how->rows + row : NULL,
                                          how->kept ? how->kept + row * ldo + col : NULL};
            float *const to = out + row * ldo + col;
            switch ((rows - row < tall ? rows - row : tall) * 2 + vecs - 1) {
#define CASE(N)                                                                                       \
    case N * 2: product_block(N, 1, depth, part, b + col, ldb, part_how, to, ldo); break;               \
    case (TALL + N) * 2: product_block(TALL + N, 1, depth, part, b + col, ldb, part_how, to, ldo); break; \
    case N * 2 + 1: product_block(N, 2, depth, part, b + col, ldb, part_how, to, ldo); break;
                EACH_TALL(CASE)
#undef CASE
            }
        }
    }
}

/* Blocks of one width and a constant number of rows. */
INLINE void product_of_rows(const int rows, const int vecs, int64_t depth, struct left a, const float *b, int64_t ldb,
                            struct into how, float *out, int64_t ldo) {
    const int tall = 2 * TALL / vecs, rest = rows % tall;
    for (int row = 0; row < rows; row += tall) {
        const struct left part = {a.at + row * a.by_row, a.by_row, a.by_depth};
        const struct into part_how = {how.keep, how.scale, how.rows ? how.rows + row : NULL,
                                      how.kept ? how.kept + row * ldo : NULL};
        if (!rest || row + tall <= rows) product_block(tall, vecs, depth, part, b, ldb, part_how, out + row * ldo, ldo);
        else product_block(rest, vecs, depth, part, b, ldb, part_how, out + row * ldo, ldo);
    }
}

/* The same; with constant numbers of rows and columns it need not choose among blocks. */
INLINE void product(int64_t rows, int64_t columns, int64_t depth, const struct left *a, const float *b, int64_t ldb,
                    const struct into *how, float *out, int64_t ldo) {
    if (!__builtin_constant_p(rows) || !__builtin_constant_p(columns)) {
        product_of_any(rows, columns, depth, a, b, ldb, how, out, ldo);
        return;
    }
    for (int64_t col = 0; col < columns; col += 2 * VL) {
        const struct into part = {how->keep, how->scale, how->rows, how->kept ? how->kept + col : NULL};
        if (columns % (2 * VL) == 0 || columns - col > VL)
            product_of_rows((int)rows, 2, depth, *a, b + col, ldb, part, out + col, ldo);
        else product_of_rows((int)rows, 1, depth, *a, b + col, ldb, part, out + col, ldo);
    }
}

#if VL == 16
/* Exchanges the lanes of rows that are `width` apart: a stage of a transpose. */
INLINE void exchange(const int width, vf *rows) {
    vi low, high;
    for (int lane = 0; lane < VL; lane++) {
        low[lane] = lane & width ? VL + lane - width : lane;
        high[lane] = lane & width ? VL + lane : lane + width;
    }
#pragma GCC unroll 16
    for (int i = 0; i < VL; i++)
        if (!(i & width)) {
            const __m512 a = (__m512)rows[i], b = (__m512)rows[i + width];
            rows[i] = (vf)_mm512_permutex2var_ps(a, (__m512i)low, b);
            rows[i + width] = (vf)_mm512_permutex2var_ps(a, (__m512i)high, b);
        }
}

/* to[j][i] = from[i][j] for 16 rows and columns. */
INLINE void transpose_block(const float *from, int64_t ldf, float *to, int64_t ldt) {
    vf rows[VL];
#pragma GCC unroll 16
    for (int i = 0; i < VL; i++) rows[i] = *(const vf_unaligned *)(from + i * ldf);
    exchange(8, rows);
    exchange(4, rows);
    exchange(2, rows);
    exchange(1, rows);
#pragma GCC unroll 16
    for (int i = 0; i < VL; i++) *(vf *)(to + i * ldt) = rows[i];
}
#endif

/* to [columns, rows] = the transpose of from [rows, columns]; the rows of `to` are padded with zeros. Both numbers of
 * columns may be those of padded rows. */
static void transpose(int64_t rows, int64_t columns, const float *from, int64_t ldf, float *to, int64_t ldt) {
    for (int64_t row = 0; row < rows; row += VL)
        for (int64_t col = 0; col < columns; col += VL) {
            const int64_t height = lanes(rows - row), width = lanes(columns - col);
            const float *const source = from + row * ldf + col;
            float *const target = to + col * ldt + row;
#if VL == 16
            if (height == VL && width == VL) {
                transpose_block(source, ldf, target, ldt);
                continue;
            }
#endif
            for (int64_t j = 0; j < width; j++)
                for (int64_t i = 0; i < VL; i++) target[j * ldt + i] = i < height ? source[i * ldf + j] : 0.0f;
        }
}

#endif
