/* The problem of the delta rule, and its queries, keys and values, which are read or computed from a short convolution.
 *
 * A unit is a head of a batch row. Its queries, keys and values of some steps are copied to rows of whole vectors. With
 * `taps` they are silu(convolution of x), and with `inputs` x itself is also computed, from a few inputs of each step,
 * so that neither passes through memory. Backward keeps the slopes of silu in the meantime. */
#ifndef ORTHOBENCH_DELTA_H
#define ORTHOBENCH_DELTA_H

#include "convolution.h"
#include "tiles.h"


/* x_t of a row is the query [heads, keys] if the
 * memory is read, then `factors` keys [factors, heads, keys] and values [factors, heads, values]; `width` is the number
 * of these features. NULL: decay without a gate, y without queries, errors and starts without a backward pass, norms
 * without a trace, gradients that are absent. */
struct delta {
    int64_t steps, batch, heads, keys, values, factors, reads, group, normalized, taps, inputs;
    float epsilon;
    const float *x;            /* [T, B, width], or with `inputs` u [T, B, inputs] */
    const float *input_weight; /* U^T [inputs, width] */
    const float *convolution, *before; /* [taps, width], the oldest input's first; x before the first step */
    const float *beta, *decay; /* [T, B, factors, heads], [T, B, heads] */
    const float *start;        /* [B, heads, keys, values] */
    float *y;                  /* [T, B, heads, values] */
    float *errors, *starts;    /* [B, heads, T, factors, values]; S before each group of steps, in rows of vectors */
    float *end;                /* S_T, as start */
    const float *grad_y, *grad_end;
    float *dx, *dbeta, *dlog_decay, *dstart, *norms;    /* norms: |dL/dS_t|^2 [T, B, heads] */
    float *dinput_weight, *dconvolution, *dbefore;      /* the first two of each batch row, and zeroed */
};

/* Rows of some steps: queries [steps], keys and values [steps, factors], each a row of whole vectors. */
struct rows {
    float *q, *k, *v;
};

/* The features of a unit that are a query, or one of its keys or values, from column `col` of x on. Step t has its row
 * at `at` + t stride; `place` is their place among the unit's features. */
struct part {
    int64_t col, size, stride, place;
    float *at;
};

INLINE int64_t features(const struct delta *p) {
    return p->heads * ((p->reads + p->factors) * p->keys + p->factors * p->values);
}

INLINE int64_t parts(const struct delta *p) { return p->reads + 2 * p->factors; }

INLINE struct part part_of(const struct delta *p, int64_t head, int64_t index, struct rows rows) {
    const int64_t kp = padded(p->keys), vp = padded(p->values);
    const int64_t queries = p->reads * p->heads * p->keys, place = index * kp;
    if (index < p->reads) return (struct part){head * p->keys, p->keys, kp, place, rows.q};
    const int64_t key = index - p->reads, value = key - p->factors;
    if (value < 0)
        return (struct part){queries + (key * p->heads + head) * p->keys, p->keys, p->factors * kp, place,
                             rows.k + key * kp};
    return (struct part){queries + p->factors * p->heads * p->keys + (value * p->heads + head) * p->values, p->values,
                         p->factors * vp, (p->reads + p->factors) * kp + value * vp, rows.v + value * vp};
}

INLINE struct source source_of(const struct delta *p) {
    return (struct source){p->x, p->input_weight, p->convolution, p->before, p->batch, features(p), p->taps, p->inputs};
}

/* The rows of the steps [first, stop), and for a backward pass silu's slopes. The lines of x are a page or more apart:
 * those of the steps `next` behind are fetched. */
INLINE void fill_part(const int taps, const int inputs, const struct delta *p, int64_t row, int64_t first,
                      int64_t stop, int64_t next, struct part to, float *slopes) {
    const struct source source = source_of(p);
    for (int64_t c = 0; c < to.size; c += VL) {
        const int64_t col = to.col + c;
        const int count = lanes(to.size - c);
        vf w[MOST_TAPS], window[MOST_TAPS], u[MOST_INPUTS];
        load_weights(taps, inputs, &source, col, count, w, u);
        for (int i = 1; i < taps; i++) window[i] = source_at(inputs, &source, u, first - taps + i, row, col, count);
        for (int64_t t = first; t < stop; t++) {
            const int64_t place = (t - first) * to.stride + c;
            const vf x = source_at(inputs, &source, u, t, row, col, count);
            if (!inputs && t + next >= 0 && t + next < p->steps)
                __builtin_prefetch(p->x + ((t + next) * p->batch + row) * source.width + col, 0, 2);
            if (!taps) {
                *(vf *)(to.at + place) = x;
                continue;
            }
            for (int i = 1; i < taps; i++) window[i - 1] = window[i];
            window[taps - 1] = x;
            vf z = w[0] * window[0];
            for (int i = 1; i < taps; i++) z += w[i] * window[i];
            const vf s = short_sigmoid(z);
            *(vf *)(to.at + place) = z * s;
            if (slopes) *(vf *)(slopes + place) = s + z * s * (1.0f - s);
        }
    }
}

#define WRITTEN 8 /* how many steps before they are written the lines of dx are fetched */

/* Computes the gradients of x or of the weights from the rows' gradients, steps [first, stop). `later` [taps - 1, ld]
 * has dL/d(sum of the convolution) of the steps behind, the next one first. */
INLINE void gradient_part(const int taps, const int inputs, const struct delta *p, int64_t row, int64_t first,
                          int64_t stop, struct part from, const float *slopes, float *later, int64_t ld) {
    const struct source source = source_of(p);
    const int64_t width = source.width;
    for (int64_t c = 0; c < from.size; c += VL) {
        const int64_t col = from.col + c;
        const int count = lanes(from.size - c);
        vf w[MOST_TAPS], dw[MOST_TAPS], window[MOST_TAPS], dz[MOST_TAPS], u[MOST_INPUTS], du[MOST_INPUTS];
        load_weights(taps, inputs, &source, col, count, w, u);
        for (int i = 0; i < taps; i++) dw[i] = (vf){0};
        for (int i = 0; i < inputs; i++) du[i] = (vf){0};
        for (int i = 0; i < taps - 1; i++) {
            window[i] = source_at(inputs, &source, u, stop - taps + 1 + i, row, col, count);
            dz[i] = *(const vf *)(later + i * ld + from.place + c);
        }
        for (int64_t t = stop - 1; t >= first; t--) {
            const int64_t place = (t - first) * from.stride + c, at = t * p->batch + row;
            vf dx = *(const vf *)(from.at + place);
            if (taps) {
                for (int i = taps - 1; i > 0; i--) window[i] = window[i - 1];
                window[0] = source_at(inputs, &source, u, t - taps + 1, row, col, count);
                for (int i = taps - 1; i > 0; i--) dz[i] = dz[i - 1];
                dz[0] = dx * *(const vf *)(slopes + place);
                dx = (vf){0};
                for (int i = 0; i < taps; i++) {
                    dw[i] += dz[0] * window[i];
                    dx += w[taps - 1 - i] * dz[i]; /* x_t is input taps - 1 - i of step t + i */
                }
            }
            if (!inputs) {
                if (t >= WRITTEN) __builtin_prefetch(p->dx + ((t - WRITTEN) * p->batch + row) * width + col, 1, 3);
                store(p->dx + at * width + col, dx, count);
            }
            for (int i = 0; i < inputs; i++) du[i] += dx * p->x[at * inputs + i];
        }
        for (int i = 0; i < taps; i++) {
            float *const to = p->dconvolution + (row * taps + i) * width + col;
            store(to, load(to, count) + dw[i], count);
        }
        for (int i = 0; i < inputs; i++) {
            float *const to = p->dinput_weight + (row * inputs + i) * width + col;
            store(to, load(to, count) + du[i], count);
        }
        for (int i = 0; i < taps - 1; i++) *(vf *)(later + i * ld + from.place + c) = dz[i];
        if (first == 0)
            for (int j = 0; j < taps - 1; j++) { /* the input of step j - taps + 1 */
                vf total = {0};
                for (int i = 0; i <= j; i++) total += w[j - i] * dz[i];
                store(p->dbefore + (j * p->batch + row) * width + col, total, count);
            }
    }
}

static void fill_rows(const struct delta *p, int64_t row, int64_t head, int64_t first, int64_t stop, int64_t next,
                      struct rows to, const struct rows *slopes) {
    for (int64_t index = 0; index < parts(p); index++) {
        const struct part part = part_of(p, head, index, to);
        float *const slope = slopes ? part_of(p, head, index, *slopes).at : NULL;
#define FILL(TAPS, INPUTS) fill_part(TAPS, INPUTS, p, row, first, stop, next, part, slope)
        EACH_FORM(p, FILL)
#undef FILL
    }
}

static void gradients_of_rows(const struct delta *p, int64_t row, int64_t head, int64_t first, int64_t stop,
                              struct rows gradients, struct rows slopes, float *later, int64_t ld) {
    for (int64_t index = 0; index < parts(p); index++) {
        const struct part part = part_of(p, head, index, gradients);
        const float *const slope = part_of(p, head, index, slopes).at;
#define GRADIENT(TAPS, INPUTS) gradient_part(TAPS, INPUTS, p, row, first, stop, part, slope, later, ld)
        EACH_FORM(p, GRADIENT)
#undef GRADIENT
    }
}

/* Brings rows to unit length; `factors` gets 1 / (|x|^2 + epsilon)^(1/2) of each. */
static void normalize(const struct delta *p, int64_t count, float *rows, float *factors) {
    const int64_t length = padded(p->keys);
    if (!p->normalized) return;
    for (int64_t i = 0; i < count; i++, rows += length) {
        vf root, inverse;
        square_roots(splat(dot(rows, rows, length) + p->epsilon), &root, &inverse);
        for (int64_t c = 0; c < length; c += VL) *(vf *)(rows + c) *= inverse;
        factors[i] = inverse[0];
    }
}

/* Turns the gradients of unit vectors into the gradients of their rows. */
static void gradients_of_units(const struct delta *p, int64_t count, float *gradients, const float *units,
                               const float *factors) {
    const int64_t length = padded(p->keys);
    if (!p->normalized) return;
    for (int64_t i = 0; i < count; i++, gradients += length, units += length) {
        const float along = dot(gradients, units, length);
        for (int64_t c = 0; c < length; c += VL)
            *(vf *)(gradients + c) = (*(const vf *)(gradients + c) - *(const vf *)(units + c) * along) * factors[i];
    }
}

#endif
