/* Products of many rows with one matrix, in float32: input projections and output maps. */
#include "products.h"

enum { TOGETHER = 4 * ROWS }; /* rows that read a panel of the matrix while it is in L1 */

/* out[r] = a[r] W^T + bias for the rows r in [first, last), of `depth` and `n` floats each. W is packed (see `pack`,
 * one gate); bias is [n] or NULL. A row's arithmetic is the same in every range. `out` starts at a cache line, and has
 * `total` rows; if they are of whole vectors and more than the caches hold, they are written around them. */
void linear(int64_t first, int64_t last, int64_t total, int64_t depth, int64_t n, const float *a, const float *packed,
            const float *bias, float *out) {
    _Alignas(64) float block[ROWS * 2 * VL];
    const uint64_t denormals = flush_denormals();
    const struct operand operand = {a, depth, depth, packed};
    const int around = passes_caches(total, n);
    for (int64_t start = first; start < last; start += TOGETHER) {
        const int64_t end = last - start < TOGETHER ? last : start + TOGETHER, blocks = (end - start + ROWS - 1) / ROWS;
        const int64_t ahead = last - end < TOGETHER ? last - end : TOGETHER;
        const int64_t lines = n > 4 * VL ? ahead * depth / 16 : 0; /* fewer columns read faster than they fetch */
        const int64_t tiles = blocks * ((n + 2 * VL - 1) / (2 * VL));
        int64_t fetched = 0, done = 0;
        for (int64_t col = 0; col < n; col += 2 * VL) {
            const int vecs = n - col > VL ? 2 : 1;
            for (int64_t b = 0; b < blocks; b++) {
                const int64_t row = start + (end - start) * b / blocks;
                const int rows = (int)(start + (end - start) * (b + 1) / blocks - row);
                for (done++; fetched < lines * done / tiles; fetched++)
                    __builtin_prefetch(a + end * depth + fetched * 16, 0, 2);
                multiply(rows, vecs, &operand, 1, row, col, block, 2 * VL);
                for (int v = 0; v < vecs; v++) {
                    const int64_t at = col + v * VL;
                    const int count = lanes(n - at);
                    const vf shift = bias ? load(bias + at, count) : (vf){0};
                    for (int i = 0; i < rows; i++) {
                        const vf value = *(const vf *)(block + (i * 2 + v) * VL) + shift;
                        store_result(around, out + (row + i) * n + at, value, count);
                    }
                }
            }
        }
    }
    end_streams();
    restore_denormals(denormals);
}
