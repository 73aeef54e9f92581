/* Independent units in blocks: a block is one vector of features of one batch row.
 *
 * The caller gives each thread a range of blocks, and no thread waits. A row has ceil(width / VL) blocks, the last
 * possibly partial. */
#ifndef ORTHOBENCH_BLOCKS_H
#define ORTHOBENCH_BLOCKS_H

#include "vectors.h"

/* Runs its argument with the batch row and the features from `col` of each block in [first, last). `at` is their place
 * in a tensor [B, width], and `count` the number of features. */
#define EACH_BLOCK(...)                                                              \
    for (int64_t block = first, row = first / blocks; block < last; row++) {    \
        const int64_t end = last < (row + 1) * blocks ? last : (row + 1) * blocks; \
        for (; block < end; block++) {                                          \
            const int64_t col = (block - row * blocks) * VL, at = row * width + col; \
            const int count = lanes(width - col);                               \
            __VA_ARGS__                                                        \
        }                                                                       \
    }

/* The gradient that arrives at step t from outside, [B, width], or NULL: absent gradients are NULL. */
INLINE const float *arriving_at(int64_t t, int64_t steps, int64_t size, const float *grad_h, const float *grad_last) {
    return grad_h ? grad_h + t * size : t == steps - 1 ? grad_last : NULL;
}

#endif
