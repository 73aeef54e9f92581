/* Functions of each feature between two products, in float32: GELU of a sum with a skip, and a gated sum.
 *
 * Each pass reads and writes every number once. The caller gives each thread a range of rows. */
#include "row_sums.h"

/* P(X <= x) of a normal X, and its density. Below 0 the first is e^(-x^2 / 2) P(1 / (1 + c |x|)), of relative error
 * 5e-8, and with the rounding below 1e-6. */
INLINE vf normal_distribution(vf x, vf *density) {
    const vf size = magnitude(x), power = exponential(-0.5f * x * x), t = reciprocal(1.0f + 0.23f * size);
    vf series = splat(-7.84642912e-2f);
    series = series * t + 2.90398982e-1f;
    series = series * t - 2.78095967e-1f;
    series = series * t + 3.01437426e-1f;
    series = series * t - 3.28956285e-2f;
    series = series * t + 1.19503438e-1f;
    series = series * t + 8.57657008e-2f;
    series = series * t + 9.23780532e-2f;
    series = series * t - 2.77377275e-5f;
    *density = 0.398942280f * power;
    return select_lanes(x < 0, series * power, 1.0f - series * power);
}

/* Runs its argument for each vector of the rows [first, last) of `total`, of `width` numbers each: `count` numbers of
 * column `col`. Results are written around the caches if `around`. */
#define EACH_VECTOR(...)                                    \
    const uint64_t denormals = flush_denormals();           \
    const int around = passes_caches(total, width);         \
    for (int64_t row = first; row < last; row++)            \
        for (int64_t col = 0; col < width; col += VL) {     \
            const int count = lanes(width - col);           \
            __VA_ARGS__                                     \
        }                                                   \
    end_streams();                                          \
    restore_denormals(denormals);

/* out = gelu(x + skip o v); skip is [width]. */
void skip_gelu_forward(int64_t first, int64_t last, int64_t total, int64_t width, const float *x, const float *skip,
                       const float *v, float *out) {
    EACH_VECTOR({
        const int64_t at = row * width + col;
        vf density;
        const vf z = load(x + at, count) + load(skip + col, count) * load(v + at, count);
        store_result(around, out + at, z * normal_distribution(z, &density), count);
    })
}

/* dx, dv, and dskip, the sums of `width` columns (row_sums.h). */
void skip_gelu_backward(int64_t first, int64_t last, int64_t total, int64_t width, const float *x, const float *skip,
                        const float *v, const float *dout, float *dx, float *dv, float *dskip) {
    EACH_VECTOR({
        const int64_t at = row * width + col;
        const vf factor = load(skip + col, count), added = load(v + at, count);
        const vf z = load(x + at, count) + factor * added;
        vf density;
        const vf below = normal_distribution(z, &density), dz = load(dout + at, count) * (below + z * density);
        store_result(around, dx + at, dz, count);
        store_result(around, dv + at, dz * factor, count);
        add_to_sums(dskip, width, col, dz * added, count);
        if (col + VL >= width) end_row(dskip, width, row, last);
    })
}

/* out = base + a o sigmoid(g); `values` [rows, 2 width] has a, then g. */
void gated_sum_forward(int64_t first, int64_t last, int64_t total, int64_t width, const float *values,
                       const float *base, float *out) {
    EACH_VECTOR({
        const float *const from = values + 2 * row * width + col;
        const vf term = load(from, count) * sigmoid(load(from + width, count));
        store_result(around, out + row * width + col, load(base + row * width + col, count) + term, count);
    })
}

void gated_sum_backward(int64_t first, int64_t last, int64_t total, int64_t width, const float *values,
                        const float *dout, float *dvalues) {
    EACH_VECTOR({
        const int64_t at = 2 * row * width + col;
        const vf open = sigmoid(load(values + at + width, count));
        const vf by_a = load(dout + row * width + col, count) * open;
        store_result(around, dvalues + at, by_a, count);
        store_result(around, dvalues + at + width, by_a * load(values + at, count) * (1.0f - open), count);
    })
}
