/* The fields of the delta rule, and its queries, keys and values, which are read or computed from a short convolution.
 *
 * A unit is a head of a batch row. Its queries, keys and values of some steps are copied to rows of whole vectors. With
 * `taps` they are silu(convolution of x), and with `inputs` x itself is also computed, from a few inputs of each step,
 * so that neither passes through memory. Backward keeps the slopes of silu in the meantime. */
#ifndef ORTHOBENCH_DELTA_H
#define ORTHOBENCH_DELTA_H

#include "convolution.h"
#include "tiles.h"

/* x_t of a row is the query [heads, keys] if the memory is read, then `factors` keys [factors, heads, keys] and values
 * [factors, heads, values]; `width` is the number of these features. What a pass does not need is NULL. */
struct delta {
    int64_t steps, batch, heads; /* T, B and the number of heads */
    int64_t keys, values;        /* the sizes of a key and of a value */
    int64_t factors;             /* corrections in a step */
    int64_t reads;               /* whether queries read the memory */
    int64_t group;               /* steps between two stored memories */
    int64_t gated;               /* whether memories decay, by e^g */
    int64_t normalized;          /* whether queries and keys are brought to unit length */
    int64_t taps;                /* of the convolution, or 0 */
    int64_t inputs;              /* of the projection that gives x, or 0 */
    float epsilon;               /* added to the squares of a length */
    const float *x;              /* [T, B, width], or with `inputs` u [T, B, inputs] */
    const float *input_weight;   /* U transposed [inputs, width] */
    const float *convolution;    /* [taps, width], the oldest input's first */
    const float *before;         /* x before the first step [taps - 1, B, width] */
    const float *weight;         /* beta [factors, heads], and if it is gated g [heads]: [T, B, (factors + gated) * heads] */
    const float *start;          /* S before the first step [B, heads, keys, values] */
    float *y;                    /* [T, B, heads, values] */
    float *errors;               /* [B, heads, T, factors, values] */
    float *starts;               /* S before each group of steps [B, heads, groups, keys, padded(values)] */
    float *end;                  /* S after the last step, as start */
    const float *grad_y;         /* as y, or NULL */
    const float *grad_end;       /* as end, or NULL */
    float *dx;                   /* as x; NULL with `inputs` */
    float *dweight;              /* as weight */
    float *dstart;               /* as start */
    float *norms;                /* |dL/dS_t|^2 [T, B, heads], or NULL */
    float *dinput_weight;        /* [B, inputs, width], zeroed */
    float *dconvolution;         /* [B, taps, width], zeroed */
    float *dbefore;              /* as before */
};

/* Rows of some steps, each of whole vectors. */
struct rows {
    float *q; /* queries [steps] */
    float *k; /* keys [steps, factors] */
    float *v; /* values [steps, factors] */
};

/* The features of a unit that are a query, or one of its keys or values. */
struct part {
    int64_t col;    /* their first column of x */
    int64_t size;   /* their number */
    int64_t stride; /* floats between their rows */
    int64_t place;  /* their place among the unit's features */
    float *at;      /* the first step's row */
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

enum { WRITTEN = 8 }; /* how many steps before they are written the lines of dx are fetched */

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

#endif
