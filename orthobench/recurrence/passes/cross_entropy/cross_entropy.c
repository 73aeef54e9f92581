/* The cross-entropy of classes and its gradient in one pass over the logits [rows, classes], in float32.
 *
 * A vector has one class of VL rows, so maximum and sum need no exchange between lanes. */
#include <math.h>
#include <stdlib.h>

#include "vectors.h"

/* Returns the sum over the rows [first, last) of -log softmax(logits)[target], or -1 without memory, or -2 for a target
 * outside of the classes. `gradient`, unless it is NULL, becomes `scale` times the sum's gradient by the logits. */
double cross_entropy(int64_t first, int64_t last, int64_t classes, float scale, const float *logits,
                     const int64_t *targets, float *gradient) {
    /* All are checked first, because a wrong one would write outside of its row below. */
    for (int64_t row = first; row < last; row++)
        if (targets[row] < 0 || targets[row] >= classes) return -2;
    vf *const columns = aligned_alloc(sizeof(vf), (size_t)classes * sizeof(vf));
    if (!columns) return -1;
    const uint64_t denormals = flush_denormals();
    double total = 0;
    for (int64_t row = first; row < last; row += VL) {
        const int count = lanes(last - row);
        for (int lane = 0; lane < VL; lane++) { /* the last row again behind the end */
            const float *const from = logits + (row + (lane < count ? lane : count - 1)) * classes;
            for (int64_t k = 0; k < classes; k++) columns[k][lane] = from[k];
        }
        vf top = columns[0], sum = {0};
        for (int64_t k = 1; k < classes; k++) top = select_lanes(columns[k] > top, columns[k], top);
        for (int64_t k = 0; k < classes; k++) {
            /* Less the largest, because exp would otherwise overflow. */
            columns[k] = exponential(columns[k] - top);
            sum += columns[k];
        }
        for (int lane = 0; lane < count; lane++)
            total += log(sum[lane]) + (top[lane] - logits[(row + lane) * classes + targets[row + lane]]);
        if (!gradient) continue;
        const vf factor = scale * reciprocal(sum);
        for (int64_t k = 0; k < classes; k++) columns[k] *= factor;
        for (int lane = 0; lane < count; lane++) {
            float *const to = gradient + (row + lane) * classes;
            for (int64_t k = 0; k < classes; k++) to[k] = columns[k][lane];
            to[targets[row + lane]] -= scale;
        }
    }
    free(columns);
    restore_denormals(denormals);
    return total;
}
