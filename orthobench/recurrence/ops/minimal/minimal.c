/* The minimal recurrences h_t = a_t o h_{t-1} + (1 - a_t) o g(c_t), in float32: minGRU and minLSTM.
 *
 * Units are independent; blocks.h divides them. Gates are computed from x [T, B, gates * width] and the bias
 * [gates * width]. The backward pass recomputes them, which costs less than reading them. Two gates are z, c with
 * a = sigmoid(-z), three are f, i, c with a = sigmoid(f) / (sigmoid(f) + sigmoid(i)). */
#include "blocks.h"

typedef struct {
    vf keep, value;          /* a, g */
    vf by_first, by_second;  /* da by the first two gates, as factors of a (1 - a) */
    vf slope;                /* dg/dc */
} unit;

INLINE unit gates_of(const int gates, const int positive, const float *x, const float *bias, int64_t width, int count) {
    unit u;
    const vf first = load(x, count) + load(bias, count);
    if (gates == 2) {
        u.keep = sigmoid(-first);
        u.by_first = splat(-1.0f), u.by_second = (vf){0};
    } else {
        /* 1 / sigmoid of f and i. `exponential` holds them at e^88, so below -40, where sigmoid(x) is e^x, both are
         * multiplied by the larger sigmoid. Of two negative infinities NaN comes out, as in the definition. */
        const vf second = load(x + width, count) + load(bias + width, count);
        const vf larger = select_lanes(first > second, first, second);
        const vf shift = select_lanes(larger < -40.0f, larger, splat(0.0f));
        const vf one = select_lanes(larger < -40.0f, splat(0.0f), splat(1.0f));
        const vf f = one + exponential(shift - first), i = one + exponential(shift - second);
        u.keep = 1.0f / (1.0f + f / i);
        u.by_first = 1.0f - one / f, u.by_second = one / i - 1.0f;
    }
    const int64_t at = (gates - 1) * width;
    const vf c = load(x + at, count) + load(bias + at, count);
    if (positive) {
        const vf s = sigmoid(c);
        u.value = select_lanes(c >= 0, c + 0.5f, s);
        u.slope = select_lanes(c >= 0, splat(1.0f), s * (1.0f - s));
    } else {
        u.value = c, u.slope = splat(1.0f);
    }
    return u;
}

INLINE void forward(const int gates, const int positive, int64_t first, int64_t last, int64_t steps, int64_t batch,
                    int64_t width, const float *x, const float *bias, const float *h0, float *h) {
    const int64_t blocks = (width + VL - 1) / VL, size = batch * width;
    for (int64_t t = 0; t < steps; t++) {
        const float *const before = t ? h + (t - 1) * size : h0, *const x_t = x + t * size * gates;
        float *const h_t = h + t * size;
        EACH_BLOCK({
            const int64_t wide = gates * row * width + col;
            for (int gate = 0; gate < gates; gate++) prefetch(x_t + wide + gate * width, gates * size);
            const unit u = gates_of(gates, positive, x_t + wide, bias + col, width, count);
            /* The difference of the two would turn infinity into NaN. */
            store(h_t + at, mixture(u.keep, load(before + at, count), 1.0f - u.keep, u.value), count);
        })
    }
}

/* h [T, B, width]. */
void minimal_forward(int64_t first, int64_t last, int64_t steps, int64_t batch, int64_t width, int64_t gates,
                     int64_t positive, const float *x, const float *bias, const float *h0, float *h) {
    const uint64_t denormals = flush_denormals();
    switch (gates * 2 + positive) {
        case 4: forward(2, 0, first, last, steps, batch, width, x, bias, h0, h); break;
        case 5: forward(2, 1, first, last, steps, batch, width, x, bias, h0, h); break;
        case 6: forward(3, 0, first, last, steps, batch, width, x, bias, h0, h); break;
        default: forward(3, 1, first, last, steps, batch, width, x, bias, h0, h);
    }
    restore_denormals(denormals);
}

INLINE void backward(const int gates, const int positive, int64_t first, int64_t last, int64_t steps, int64_t batch,
                     int64_t width, const float *x, const float *bias, const float *h0, const float *h,
                     const float *grad_h, const float *grad_last, float *dx, float *dbias, float *dh0, float *dh) {
    const int64_t blocks = (width + VL - 1) / VL, size = batch * width;
    for (int64_t t = steps - 1; t >= 0; t--) {
        const float *const before = t ? h + (t - 1) * size : h0, *const x_t = x + t * size * gates;
        const float *const arriving = arriving_at(t, steps, size, grad_h, grad_last);
        float *const dx_t = dx + t * size * gates;
        EACH_BLOCK({
            const int64_t wide = gates * row * width + col;
            const unit u = gates_of(gates, positive, x_t + wide, bias + col, width, count);
            vf g = load(dh0 + at, count);
            if (arriving) {
                prefetch(arriving + at, -size);
                g += load(arriving + at, count);
            }
            prefetch(before + at, -size);
            if (dh) store(dh + t * size + at, g, count);
            store(dh0 + at, u.keep * g, count);
            const vf rest = 1.0f - u.keep, by_keep = g * (load(before + at, count) - u.value) * (u.keep * rest);
            vf by_gate[3] = {by_keep * u.by_first, by_keep * u.by_second};
            by_gate[gates - 1] = g * rest * u.slope;
            for (int gate = 0; gate < gates; gate++) {
                prefetch(x_t + wide + gate * width, -gates * size);
                prefetch(dx_t + wide + gate * width, -gates * size);
                store(dx_t + wide + gate * width, by_gate[gate], count);
                float *const sum = dbias + wide + gate * width;
                store(sum, load(sum, count) + by_gate[gate], count);
            }
        })
    }
}

/* dx [T, B, gates * width]; dbias [B, gates * width], zeroed, each row's sum over time; dh0 [B, width], zeroed; dh
 * [T, B, width], the gradient by each state, or NULL. Absent gradients are NULL: grad_h [T, B, width] of all states,
 * grad_last [B, width] of the final one. */
void minimal_backward(int64_t first, int64_t last, int64_t steps, int64_t batch, int64_t width, int64_t gates,
                      int64_t positive, const float *x, const float *bias, const float *h0, const float *h,
                      const float *grad_h, const float *grad_last, float *dx, float *dbias, float *dh0, float *dh) {
    const uint64_t denormals = flush_denormals();
    switch (gates * 2 + positive) {
#define CASE(GATES, POSITIVE)                                                                                   \
    backward(GATES, POSITIVE, first, last, steps, batch, width, x, bias, h0, h, grad_h, grad_last, dx, dbias,   \
             dh0, dh);                                                                                          \
    break;
        case 4: CASE(2, 0)
        case 5: CASE(2, 1)
        case 6: CASE(3, 0)
        default: CASE(3, 1)
#undef CASE
    }
    restore_denormals(denormals);
}
