/* Sums over the rows of a pass, such as the gradients of weights that all rows share.
 *
 * A sum of thousands of terms in float32 loses digits with each of them. So the terms of a few rows are added up, and
 * these sums are added up. `sums` [2, size], zeroed, has the sum of a range of rows, and behind it that of a few. */
#ifndef ORTHOBENCH_ROW_SUMS_H
#define ORTHOBENCH_ROW_SUMS_H

#include "vectors.h"

/* The number of rows, or 0 for the whole range. With AVX-512 it is the whole range, because stored results have been
 * computed so; those of other processors have no such reason. */
enum { FEW_ROWS = VL == 16 ? 0 : 32 };

/* Adds the terms of a row, `count` numbers from column `col` on. */
INLINE void add_to_sums(float *sums, int64_t size, int64_t col, vf terms, int count) {
    float *const few = sums + size + col;
    store(few, load(few, count) + terms, count);
}

/* Ends a row of a range that ends at `last`. */
INLINE void end_row(float *sums, int64_t size, int64_t row, int64_t last) {
    if (row + 1 < last && (!FEW_ROWS || (row + 1) % FEW_ROWS)) return;
    float *const few = sums + size;
    for (int64_t i = 0; i < size; i++) {
        sums[i] += few[i];
        few[i] = 0;
    }
}

#endif
