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

/* The sum of a o b over whole vectors, four of them at once, because each sum waits for the one before it. */
INLINE float dot(const float *a, const float *b, int64_t size) {
    vf totals[4] = {{0}};
    int64_t i = 0;
    for (; i + 4 * VL <= size; i += 4 * VL)
        for (int j = 0; j < 4; j++) totals[j] += *(const vf *)(a + i + j * VL) * *(const vf *)(b + i + j * VL);
    for (; i < size; i += VL) totals[0] += *(const vf *)(a + i) * *(const vf *)(b + i);
    return sum_of((totals[0] + totals[1]) + (totals[2] + totals[3]));
}

/* Memory that is read or written soon. It is requested a few cache lines at a time, because more would wait for each
 * other. */
struct ahead {
    const float *next, *end;
};

enum { REQUESTED = 8 };

INLINE void request_some(struct ahead *ahead, const int write) {
    for (int line = 0; line < REQUESTED && ahead->next < ahead->end; line++, ahead->next += 16) {
        if (write) __builtin_prefetch(ahead->next, 1);
        else __builtin_prefetch(ahead->next, 0);
    }
}

/* Lane r: the sum of a o b over row r of `count` rows of whole vectors. */
INLINE vf dots(int count, int64_t size, const float *a, const float *b) {
    vf sums[VL];
    for (int r = 0; r < VL; r++) sums[r] = (vf){0};
    for (int r = 0; r < count; r++)
        for (int64_t c = 0; c < size; c += VL)
            sums[r] += *(const vf *)(a + r * size + c) * *(const vf *)(b + r * size + c);
    return sums_of_rows(sums);
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

enum { TRIANGLE = 16 }; /* rows of a triangular system, all in registers; a multiple of a vector's lanes */

/* A vector of columns of the rows. */
INLINE void load_rows(const float *from, int64_t ld, vf *rows) {
#pragma GCC unroll 16
    for (int i = 0; i < TRIANGLE; i++) rows[i] = *(const vf *)(from + i * ld);
}

INLINE void store_rows(const vf *rows, float *to, int64_t ld) {
#pragma GCC unroll 16
    for (int i = 0; i < TRIANGLE; i++) *(vf *)(to + i * ld) = rows[i];
}

/* rows += the part of A below its diagonal, or also the diagonal, times `from` [TRIANGLE, columns]. */
INLINE void add_below(const int also_diagonal, struct left a, const float *from, int64_t ld, vf *rows) {
#pragma GCC unroll 16
    for (int s = 0; s < TRIANGLE; s++) {
        const vf row = *(const vf *)(from + s * ld);
#pragma GCC unroll 16
        for (int t = s + !also_diagonal; t < TRIANGLE; t++) rows[t] += row * a.at[t * a.by_row + s * a.by_depth];
    }
}

/* rows_t += the sum over s < t of A_ts rows_s, one row after the other. */
INLINE void substitute(struct left a, vf *rows) {
#pragma GCC unroll 16
    for (int s = 0; s < TRIANGLE; s++)
#pragma GCC unroll 16
        for (int t = s + 1; t < TRIANGLE; t++) rows[t] += rows[s] * a.at[t * a.by_row + s * a.by_depth];
}

/* The last row first: what is above the diagonal comes below it. */
INLINE struct left reversed(struct left a) {
    return (struct left){a.at + (TRIANGLE - 1) * (a.by_row + a.by_depth), -a.by_row, -a.by_depth};
}

#if VL == 16
/* Columns [0, 4) of the rows from, 4 apart, one after the other. An insertion from memory does not wait for the port
 * that shuffles, which limits a transpose. */
INLINE __m512 every_fourth(const float *from, int64_t ldf) {
    __m512 rows = _mm512_castps128_ps512(_mm_loadu_ps(from));
    rows = _mm512_insertf32x4(rows, _mm_loadu_ps(from + 4 * ldf), 1);
    rows = _mm512_insertf32x4(rows, _mm_loadu_ps(from + 8 * ldf), 2);
    return _mm512_insertf32x4(rows, _mm_loadu_ps(from + 12 * ldf), 3);
}

/* to[j][i] = from[i][j] for 16 rows and columns. */
INLINE void transpose_block(const float *from, int64_t ldf, float *to, int64_t ldt) {
    for (int col = 0; col < VL; col += 4, from += 4, to += 4 * ldt) {
        const __m512 a = every_fourth(from, ldf), b = every_fourth(from + ldf, ldf);
        const __m512 c = every_fourth(from + 2 * ldf, ldf), d = every_fourth(from + 3 * ldf, ldf);
        const __m512d ab_low = (__m512d)_mm512_unpacklo_ps(a, b), ab_high = (__m512d)_mm512_unpackhi_ps(a, b);
        const __m512d cd_low = (__m512d)_mm512_unpacklo_ps(c, d), cd_high = (__m512d)_mm512_unpackhi_ps(c, d);
        *(vf *)to = (vf)_mm512_unpacklo_pd(ab_low, cd_low);
        *(vf *)(to + ldt) = (vf)_mm512_unpackhi_pd(ab_low, cd_low);
        *(vf *)(to + 2 * ldt) = (vf)_mm512_unpacklo_pd(ab_high, cd_high);
        *(vf *)(to + 3 * ldt) = (vf)_mm512_unpackhi_pd(ab_high, cd_high);
    }
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
