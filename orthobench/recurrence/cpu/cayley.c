/* The scaled Cayley transform around LAPACK's inverse: I + A, W = (2 M - I) D from M = (I + A)^{-1}, and the gradient of
 * A. D has the signs +1 and -1 on its diagonal. */
#include "products.h"
#include "tiles.h"

enum { SIDE = 16 }; /* rows and columns of a block that is transposed */

/* I + A [n, n], from the entries of A above its diagonal, row by row. */
void shifted_skew(int64_t n, const float *upper, double *out) {
    for (int64_t i = 0; i < n; i++) {
        out[i * n + i] = 1;
        for (int64_t j = i + 1; j < n; j++, upper++) {
            out[i * n + j] = *upper;
            /* A difference as in torch, because the negative of 0 would be -0. */
            out[j * n + i] = 0.0f - *upper;
        }
    }
}

/* A block of at most SIDE rows and columns. */
INLINE void turn_block(int64_t height, int64_t width, const double *from, int64_t stride, const float *signs,
                       int signs_of_rows, float *along, float *across, int64_t n) {
    _Alignas(64) float block[SIDE * SIDE] = {0}, turned[SIDE * SIDE];
    for (int64_t i = 0; i < height; i++)
        for (int64_t j = 0; j < width; j++) block[i * SIDE + j] = (float)from[i * stride + j];
    transpose(SIDE, SIDE, block, SIDE, turned, SIDE);
    for (int64_t i = 0; i < height; i++)
        for (int64_t j = 0; j < width; j++)
            along[i * n + j] = signs_of_rows ? block[i * SIDE + j] : block[i * SIDE + j] * (2 * signs[j]);
    for (int64_t j = 0; j < width; j++)
        for (int64_t i = 0; i < height; i++)
            across[j * n + i] = signs_of_rows ? turned[j * SIDE + i] * (2 * signs[i]) : turned[j * SIDE + i];
}

/* W [n, n] and `kept` = M^T [n, n] in float32. Entry (i, j) of M is inverse[i * by_row + j * by_column], where one
 * of the strides is 1. */
void cayley_weight(int64_t n, int64_t by_row, int64_t by_column, const double *inverse, const float *signs,
                   float *weight, float *kept) {
    const int turned = by_row == 1;
    const int64_t stride = turned ? by_column : by_row;
    for (int64_t row = 0; row < n; row += SIDE)
        for (int64_t col = 0; col < n; col += SIDE) {
            const int64_t height = n - row < SIDE ? n - row : SIDE, width = n - col < SIDE ? n - col : SIDE;
            float *const along = (turned ? kept : weight) + row * n + col;
            float *const across = (turned ? weight : kept) + col * n + row;
            const float *const factors = signs + (turned ? row : col);
            const double *const from = inverse + row * stride + col;
            if (height == SIDE && width == SIDE) turn_block(SIDE, SIDE, from, stride, factors, turned, along, across, n);
            else turn_block(height, width, from, stride, factors, turned, along, across, n);
        }
    for (int64_t i = 0; i < n; i++)
        weight[i * n + i] = (float)(inverse[i * stride + i] * (2.0 * signs[i]) - signs[i]);
}

/* 2 G D, packed (see `pack`); entry (i, j) of G is gradient[i * by_row + j * by_column]. */
void pack_scaled(int64_t n, const float *gradient, int64_t by_row, int64_t by_column, const float *signs,
                 float *packed) {
    pack(packed, gradient, n, n, by_column, by_row, 1);
    for (int64_t col = 0; col < n; col += 2 * VL) {
        const int vecs = n - col > VL ? 2 : 1;
        float *const panel = packed + col * n;
        for (int v = 0; v < vecs; v++) {
            const vf scale = 2.0f * load(signs + col + v * VL, lanes(n - col - v * VL));
            for (int64_t k = 0; k < n; k++) *(vf *)(panel + (k * vecs + v) * VL) *= scale;
        }
    }
}

/* The rows [first, last) of out = (a B) C [n, n], with B and C packed; `between` is [n, n], too. */
void two_products(int64_t first, int64_t last, int64_t n, const float *a, const float *packed_b,
                  const float *packed_c, float *between, float *out) {
    linear(first, last, n, n, n, a, packed_b, NULL, between);
    linear(first, last, n, n, n, between, packed_c, NULL, out);
}

/* The entries of V^T - V above its diagonal, row by row; v is [n, n]. */
void skew_entries(int64_t n, const float *v, float *upper) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++) *upper++ = v[j * n + i] - v[i * n + j];
}
