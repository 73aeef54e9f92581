/* Linear oscillators z_t = a z_{t-1} + b y_{t-1} + c x_t, y_t = y_{t-1} + d z_t, in float32.
 *
 * Units are independent; blocks.h divides them. The weight has a, b, c, d one after another, [4 * width], the same at
 * every step and row. */
#include "blocks.h"

/* y and z [T, B, width] from x, the weight, y0 and z0 [B, width]. */
void oscillators_forward(int64_t first, int64_t last, int64_t steps, int64_t batch, int64_t width, const float *x,
                         const float *weight, const float *y0, const float *z0, float *y, float *z) {
    const int64_t blocks = (width + VL - 1) / VL, size = batch * width;
    const uint64_t denormals = flush_denormals();
    for (int64_t t = 0; t < steps; t++) {
        const float *const y_before = t ? y + (t - 1) * size : y0, *const z_before = t ? z + (t - 1) * size : z0;
        const float *const x_t = x + t * size;
        float *const y_t = y + t * size, *const z_t = z + t * size;
        EACH_BLOCK({
            const float *const w = weight + col;
            const vf before = load(y_before + at, count), other = load(z_before + at, count), u = load(x_t + at, count);
            __builtin_prefetch(x_t + size + at, 0, 2);
            const vf after = load(w, count) * other + load(w + width, count) * before + load(w + 2 * width, count) * u;
            store(z_t + at, after, count);
            store(y_t + at, before + load(w + 3 * width, count) * after, count);
        })
    }
    restore_denormals(denormals);
}

/* dx [T, B, width]; dweight [B, 4 * width], zeroed, each row's sum over time; dy0 and dz0 [B, width], zeroed; dy and dz
 * [T, B, width], the gradients by each state, or NULL. Absent gradients are NULL: grad_y [T, B, width] of all y, and
 * y_last and z_last [B, width] of the final states. */
void oscillators_backward(int64_t first, int64_t last, int64_t steps, int64_t batch, int64_t width, const float *x,
                          const float *weight, const float *y0, const float *z0, const float *y, const float *z,
                          const float *grad_y, const float *y_last, const float *z_last, float *dx, float *dweight,
                          float *dy0, float *dz0, float *dy, float *dz) {
    const int64_t blocks = (width + VL - 1) / VL, size = batch * width;
    const uint64_t denormals = flush_denormals();
    for (int64_t t = steps - 1; t >= 0; t--) {
        const float *const y_before = t ? y + (t - 1) * size : y0, *const z_before = t ? z + (t - 1) * size : z0;
        const float *const by_y = arriving_at(t, steps, size, grad_y, y_last);
        const float *const by_z = arriving_at(t, steps, size, NULL, z_last);
        EACH_BLOCK({
            const float *const w = weight + col;
            float *const sums = dweight + 4 * row * width + col;
            vf p = load(dy0 + at, count), q = load(dz0 + at, count);
            if (by_y) p += load(by_y + at, count);
            if (by_z) q += load(by_z + at, count);
            q += load(w + 3 * width, count) * p; /* through y_t */
            if (dy) store(dy + t * size + at, p, count);
            if (dz) store(dz + t * size + at, q, count);
            store(dy0 + at, p + load(w + width, count) * q, count);
            store(dz0 + at, load(w, count) * q, count);
            store(dx + t * size + at, load(w + 2 * width, count) * q, count);
            const vf before = load(y_before + at, count), other = load(z_before + at, count);
            const vf products[4] = {q * other, q * before, q * load(x + t * size + at, count),
                                    p * load(z + t * size + at, count)};
            for (int k = 0; k < 4; k++) store(sums + k * width, load(sums + k * width, count) + products[k], count);
        })
    }
    restore_denormals(denormals);
}
