/* The recurrence h_t = act(a_t o h_{t-1} + x_t) of independent units, in float32.
 *
 * blocks.h divides the units. Tensors are contiguous and time major, [T, B, width]. The coefficients are [width], the
 * same at every step and row, or [T, B, width]. The slope of the activation follows from h_t. */
#include "blocks.h"

enum { LINEAR, RECTIFIED, TANGENT };

INLINE vf activated(const int kind, vf z) {
    return kind == RECTIFIED ? relu(z) : kind == TANGENT ? hyperbolic_tangent(z) : z;
}

/* g times the activation's slope where its value is h. */
INLINE vf through(const int kind, vf h, vf g) {
    return kind == RECTIFIED ? select_lanes(h <= 0, (vf){0}, g) : kind == TANGENT ? g * tangent_slope(h) : g;
}

INLINE void forward(const int kind, const int per_step, int64_t first, int64_t last, int64_t steps, int64_t batch,
                    int64_t width, const float *x, const float *a, const float *h0, float *h) {
    const int64_t blocks = (width + VL - 1) / VL, size = batch * width;
    for (int64_t t = 0; t < steps; t++) {
        const float *const before = t ? h + (t - 1) * size : h0, *const x_t = x + t * size;
        const float *const a_t = per_step ? a + t * size : a;
        float *const h_t = h + t * size;
        EACH_BLOCK({
            __builtin_prefetch(x_t + size + at, 0, 2);
            const vf kept = load(a_t + (per_step ? at : col), count) * load(before + at, count);
            store(h_t + at, activated(kind, kept + load(x_t + at, count)), count);
        })
    }
}

INLINE void backward(const int kind, const int per_step, int64_t first, int64_t last, int64_t steps, int64_t batch,
                     int64_t width, const float *a, const float *h0, const float *h, const float *grad_h,
                     const float *grad_last, float *dx, float *da, float *dh0, float *dh) {
    const int64_t blocks = (width + VL - 1) / VL, size = batch * width;
    for (int64_t t = steps - 1; t >= 0; t--) {
        const float *const before = t ? h + (t - 1) * size : h0, *const a_t = per_step ? a + t * size : a;
        const float *const arriving = arriving_at(t, steps, size, grad_h, grad_last);
        float *const da_t = per_step && da ? da + t * size : da;
        EACH_BLOCK({
            vf g = load(dh0 + at, count);
            if (arriving) g += load(arriving + at, count);
            if (dh) store(dh + t * size + at, g, count);
            g = through(kind, load(h + t * size + at, count), g);
            store(dx + t * size + at, g, count);
            store(dh0 + at, load(a_t + (per_step ? at : col), count) * g, count);
            if (da) {
                vf by_a = load(before + at, count) * g;
                if (t > 1) __builtin_prefetch(before - size + at, 0, 2);
                if (!per_step) by_a += load(da_t + at, count);
                store(da_t + at, by_a, count);
            }
        })
    }
}

#define EACH_FORM(CASE)            \
    switch (kind * 2 + per_step) { \
        case 0: CASE(LINEAR, 0)    \
        case 1: CASE(LINEAR, 1)    \
        case 2: CASE(RECTIFIED, 0) \
        case 3: CASE(RECTIFIED, 1) \
        case 4: CASE(TANGENT, 0)   \
        default: CASE(TANGENT, 1)  \
    }

/* h [T, B, width] from x, the coefficients a and h0 [B, width]. */
void independent_forward(int64_t first, int64_t last, int64_t steps, int64_t batch, int64_t width, int64_t kind,
                         int64_t per_step, const float *x, const float *a, const float *h0, float *h) {
    const uint64_t denormals = flush_denormals();
#define CASE(KIND, PER_STEP) forward(KIND, PER_STEP, first, last, steps, batch, width, x, a, h0, h); break;
    EACH_FORM(CASE)
#undef CASE
    restore_denormals(denormals);
}

/* dx [T, B, width], and dh0 [B, width], zeroed. da is [T, B, width] with coefficients per step, else [B, width],
 * zeroed: each row's sum over time. dh [T, B, width] is the gradient by each state. Both are NULL if they are not
 * needed. grad_h [T, B, width] of all states and grad_last [B, width] of the final one are NULL if the loss does not
 * use them. */
void independent_backward(int64_t first, int64_t last, int64_t steps, int64_t batch, int64_t width, int64_t kind,
                          int64_t per_step, const float *a, const float *h0, const float *h, const float *grad_h,
                          const float *grad_last, float *dx, float *da, float *dh0, float *dh) {
    const uint64_t denormals = flush_denormals();
#define CASE(KIND, PER_STEP)                                                                                  \
    backward(KIND, PER_STEP, first, last, steps, batch, width, a, h0, h, grad_h, grad_last, dx, da, dh0, dh); \
    break;
    EACH_FORM(CASE)
#undef CASE
    restore_denormals(denormals);
}
