/* Layer normalisation of rows and its gradient, in float32. Each range of rows is one thread's. The results have
 * `total` rows and start at a cache line. */
#include <math.h>

#include "row_sums.h"

/* out[r] = (x[r] - mean) / sqrt(variance + epsilon) * weight + bias for the rows r in [first, last), of `width` floats.
 * `scales` gets each row's mean and 1 / sqrt(variance + epsilon), [rows, 2]. */
void layer_norm_forward(int64_t first, int64_t last, int64_t total, int64_t width, float epsilon, const float *x,
                       const float *weight, const float *bias, float *scales, float *out) {
    const uint64_t denormals = flush_denormals();
    const int around = passes_caches(total, width);
    for (int64_t row = first; row < last; row++) {
        const float *const from = x + row * width;
        vf sum = {0}, squares = {0};
        for (int64_t col = 0; col < width; col += VL) {
            __builtin_prefetch(from + 4 * width + col, 0, 2);
            sum += load(from + col, lanes(width - col));
        }
        const float mean = sum_of(sum) / (float)width;
        for (int64_t col = 0; col < width; col += VL) {
            const int count = lanes(width - col);
            vf centred = load(from + col, count) - mean;
            /* Zero again, because the zeros behind the last column have become minus the mean. */
            for (int lane = count; lane < VL; lane++) centred[lane] = 0;
            /* From the mean, because the difference of the mean square and the squared mean loses digits. */
            squares += centred * centred;
        }
        const float scale = 1.0f / sqrtf(sum_of(squares) / (float)width + epsilon);
        scales[2 * row] = mean;
        scales[2 * row + 1] = scale;
        for (int64_t col = 0; col < width; col += VL) {
            const int count = lanes(width - col);
            const vf centred = load(from + col, count) - mean;
            const vf scaled = centred * scale * load(weight + col, count);
            store_result(around, out + row * width + col, scaled + load(bias + col, count), count);
        }
    }
    end_streams();
    restore_denormals(denormals);
}

/* dL/dx from dout, and dL/dweight and dL/dbias of this range, each the sums of `width` columns (row_sums.h). */
void layer_norm_backward(int64_t first, int64_t last, int64_t total, int64_t width, const float *x, const float *weight,
                        const float *scales, const float *dout, float *dx, float *dweight, float *dbias) {
    const uint64_t denormals = flush_denormals();
    const int around = passes_caches(total, width);
    for (int64_t row = first; row < last; row++) {
        const float *const from = x + row * width, *const arriving = dout + row * width;
        const float mean = scales[2 * row], scale = scales[2 * row + 1];
        vf sum = {0}, along = {0};
        for (int64_t col = 0; col < width; col += VL) {
            const int count = lanes(width - col);
            __builtin_prefetch(from + 4 * width + col, 0, 2);
            __builtin_prefetch(arriving + 4 * width + col, 0, 2);
            const vf d = load(arriving + col, count), normal = (load(from + col, count) - mean) * scale;
            add_to_sums(dweight, width, col, d * normal, count);
            add_to_sums(dbias, width, col, d, count);
            const vf scaled = d * load(weight + col, count); /* 0 behind the last column */
            sum += scaled;
            along += scaled * normal;
        }
        const float level = sum_of(sum) / (float)width, slope = sum_of(along) / (float)width;
        for (int64_t col = 0; col < width; col += VL) {
            const int count = lanes(width - col);
            const vf normal = (load(from + col, count) - mean) * scale;
            const vf scaled = load(arriving + col, count) * load(weight + col, count);
            store_result(around, dx + row * width + col, (scaled - level - normal * slope) * scale, count);
        }
        end_row(dweight, width, row, last);
        end_row(dbias, width, row, last);
    }
    end_streams();
    restore_denormals(denormals);
}
