/* The diagonal recurrence h_t = a_t o h_{t-1} + x_t of independent units, in float32.
 *
 * Units are independent; blocks.h divides them. Tensors are contiguous and time major, [T, B, width], and begin at a
 * cache line. Complex units are pairs of features, real part first. The coefficients are [width], the same at every
 * step and row, or [T, B, width]. `latest`, a vector for each block, has the last step's result, so that results may be
 * written around the caches. */
#include "blocks.h"

/* Lane 2j in lanes 2j and 2j+1. */
INLINE vf real_parts(vf x) {
    typedef uint64_t pairs __attribute__((vector_size(4 * VL)));
    const pairs low = (pairs)x & 0xffffffffu;
    return (vf)(low | low << 32);
}

/* -lane 2j+1 in lane 2j, and lane 2j+1 in itself. */
INLINE vf imaginary_parts(vf x) {
    typedef uint64_t pairs __attribute__((vector_size(4 * VL)));
    const pairs high = (pairs)x >> 32;
    return (vf)((high | high << 32) ^ 0x80000000u);
}

/* a h, of complex units if so. */
INLINE vf product(const int is_complex, vf a, vf h) {
    return is_complex ? real_parts(a) * h + imaginary_parts(a) * swap_pairs(h) : a * h;
}

/* conj(a) h. */
INLINE vf conjugate_product(const int is_complex, vf a, vf h) {
    return is_complex ? real_parts(a) * h - imaginary_parts(a) * swap_pairs(h) : a * h;
}

INLINE void forward(const int is_complex, const int per_step, int64_t first, int64_t last, int64_t steps, int64_t batch,
                    int64_t width, const float *x, const float *a, const float *h0, vf *latest, float *h) {
    const int64_t blocks = (width + VL - 1) / VL, size = batch * width;
    const int around = passes_caches(steps * batch, width);
    EACH_BLOCK({ latest[block] = load(h0 + at, count); })
    for (int64_t t = 0; t < steps; t++) {
        const float *const x_t = x + t * size, *const a_t = per_step ? a + t * size : a;
        float *const h_t = h + t * size;
        EACH_BLOCK({
            const vf coefficient = load(a_t + (per_step ? at : col), count);
            __builtin_prefetch(x_t + size + at, 0, 2);
            latest[block] = product(is_complex, coefficient, latest[block]) + load(x_t + at, count);
            store_result(around, h_t + at, latest[block], count);
        })
    }
    end_streams();
}

/* h [T, B, width] from x, the coefficients a and h0 [B, width]. */
void scan_forward(int64_t first, int64_t last, int64_t steps, int64_t batch, int64_t width, int64_t is_complex,
                  int64_t per_step, const float *x, const float *a, const float *h0, float *latest, float *h) {
    const uint64_t denormals = flush_denormals();
    switch (is_complex * 2 + per_step) {
        case 0: forward(0, 0, first, last, steps, batch, width, x, a, h0, (vf *)latest, h); break;
        case 1: forward(0, 1, first, last, steps, batch, width, x, a, h0, (vf *)latest, h); break;
        case 2: forward(1, 0, first, last, steps, batch, width, x, a, h0, (vf *)latest, h); break;
        default: forward(1, 1, first, last, steps, batch, width, x, a, h0, (vf *)latest, h);
    }
    restore_denormals(denormals);
}

INLINE void backward(const int is_complex, const int per_step, int64_t first, int64_t last, int64_t steps,
                     int64_t batch, int64_t width, const float *a, const float *h0, const float *h,
                     const float *grad_h, const float *grad_last, vf *latest, float *dx, float *da, float *dh0) {
    const int64_t blocks = (width + VL - 1) / VL, size = batch * width;
    const int around = passes_caches(steps * batch, width);
    for (int64_t t = steps - 1; t >= 0; t--) {
        const float *const before = t ? h + (t - 1) * size : h0;
        const float *const arriving = arriving_at(t, steps, size, grad_h, grad_last);
        const float *const later_a = per_step ? a + (t + 1) * size : a;
        float *const dx_t = dx + t * size, *const da_t = per_step && da ? da + t * size : da;
        EACH_BLOCK({
            vf g = arriving ? load(arriving + at, count) : (vf){0};
            if (t < steps - 1)
                g += conjugate_product(is_complex, load(later_a + (per_step ? at : col), count), latest[block]);
            latest[block] = g;
            store_result(around, dx_t + at, g, count);
            if (da) {
                vf by_a = conjugate_product(is_complex, load(before + at, count), g);
                if (t > 1) __builtin_prefetch(before - size + at, 0, 2);
                if (!per_step) by_a += load(da_t + at, count);
                store(da_t + at, by_a, count);
            }
        })
    }
    EACH_BLOCK({
        const vf coefficient = load(a + (per_step ? at : col), count);
        store(dh0 + at, conjugate_product(is_complex, coefficient, latest[block]), count);
    })
    end_streams();
}

/* dx [T, B, width] and dh0 [B, width]. da is [T, B, width] with coefficients per step, else [B, width], zeroed: each
 * row's sum over time; it is NULL if it is not needed. grad_h [T, B, width] of all states and grad_last [B, width] of
 * the final one are NULL if the loss does not use them. */
void scan_backward(int64_t first, int64_t last, int64_t steps, int64_t batch, int64_t width, int64_t is_complex,
                   int64_t per_step, const float *a, const float *h0, const float *h, const float *grad_h,
                   const float *grad_last, float *latest, float *dx, float *da, float *dh0) {
    const uint64_t denormals = flush_denormals();
    switch (is_complex * 2 + per_step) {
#define CASE(COMPLEX, PER_STEP)                                                                                      \
    backward(COMPLEX, PER_STEP, first, last, steps, batch, width, a, h0, h, grad_h, grad_last, (vf *)latest, dx, da, \
             dh0);                                                                                                   \
    break;
        case 0: CASE(0, 0)
        case 1: CASE(0, 1)
        case 2: CASE(1, 0)
        default: CASE(1, 1)
#undef CASE
    }
    restore_denormals(denormals);
}
