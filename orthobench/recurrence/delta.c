/* The delta rule, in float32: for each head and batch row a memory S [keys, values] that each step scales by a decay
 * and corrects `factors` times, S += beta k (v - S^T k)^T, and that a query reads, y = S^T q.
 *
 * Heads and rows are independent units, so the caller gives each thread a range of units, and no thread waits. Forward
 * runs some columns of S at once through all steps, since columns are independent. It keeps the errors v - S^T k, and S
 * at the start of each chunk of steps. Backward makes the states of a chunk again from the errors. It holds S^T, whose
 * rows are the columns of S, so that nearly all its sums add up vectors. Tensors are contiguous and time major. */
#include <stdlib.h>

#include "vectors.h"

/* The fields have the names and the order of `_Problem` in delta.py. x_t of a row is the query [heads, keys], then
 * `factors` keys [factors, heads, keys] and values [factors, heads, values]. NULL: decay without a gate, errors and
 * starts without a backward pass, norms without a trace, gradients that are absent. */
struct delta {
    int64_t steps, batch, heads, keys, values, factors, chunk, normalized;
    float epsilon;
    const float *x, *beta, *decay; /* [T, B, width], [T, B, factors, heads], [T, B, heads] */
    const float *start;            /* [B, heads, keys, values] */
    float *y, *errors, *starts;    /* [T, B, heads, values], [T, B, factors, heads, values], [chunks, B, heads, ...] */
    float *end;                    /* S_T, as start */
    const float *grad_y, *grad_end;
    float *dx, *dbeta, *dlog_decay, *dstart, *norms; /* norms: |dL/dS_t|^2 [T, B, heads] */
};

int64_t delta_size(void) { return sizeof(struct delta); }

#define PAIR 2 /* vectors of columns that forward runs at once */

INLINE float sum_lanes(vf x) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)x);
#elif VL == 8
    __m128 half = _mm_add_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
#else
    return (x[0] + x[2]) + (x[1] + x[3]);
#endif
}

INLINE float dot(const float *a, const float *b, int64_t size) {
    vf total = {0};
    for (int64_t i = 0; i < size; i += VL) {
        const int count = lanes(size - i);
        total += load(a + i, count) * load(b + i, count);
    }
    return sum_lanes(total);
}

/* 1 / sqrt(|x|^2 + epsilon), or 1. */
INLINE float length_factor(const struct delta *p, const float *x) {
    if (!p->normalized) return 1.0f;
    vf root, inverse;
    square_roots(splat(dot(x, x, p->keys) + p->epsilon), &root, &inverse);
    return inverse[0];
}

/* ---------------------------------------------------------------- forward */

/* One step's products with the memory: S^T k, and with `reading` S^T q. S has PAIR vectors a row. */
INLINE void products(const int reading, const float *s, const float *k, const float *q, int64_t keys, vf *by_key,
                     vf *by_query) {
    vf a[4] = {0}, b[4] = {0};
    int64_t i = 0;
    for (; i + 1 < keys; i += 2) {
        for (int v = 0; v < 4; v++) {
            const vf row = *(const vf *)(s + (PAIR * i + v) * VL);
            a[v] += splat(k[i + v / PAIR]) * row;
            if (reading) b[v] += splat(q[i + v / PAIR]) * row;
        }
    }
    for (int v = 0; v < PAIR; v++) {
        if (i < keys) {
            const vf row = *(const vf *)(s + (PAIR * i + v) * VL);
            a[v] += splat(k[i]) * row;
            if (reading) b[v] += splat(q[i]) * row;
        }
        by_key[v] = a[v] + a[v + PAIR];
        if (reading) by_query[v] = b[v] + b[v + PAIR];
    }
}

INLINE void update(const int gated, float *s, float decay, const float *k, const vf *u, int64_t keys) {
    for (int64_t i = 0; i < keys; i++)
        for (int v = 0; v < PAIR; v++) {
            vf *const row = (vf *)(s + (PAIR * i + v) * VL);
            *row = (gated ? splat(decay) * *row : *row) + splat(k[i]) * u[v];
        }
}

/* Copies columns from `col` of a matrix [keys, values] to S, or with `out` back. */
INLINE void copy_columns(const int out, float *s, float *matrix, int64_t keys, int64_t values, int64_t col) {
    for (int64_t i = 0; i < keys; i++)
        for (int v = 0; v < PAIR; v++) {
            const int64_t left = values - col - v * VL;
            const int count = left > 0 ? lanes(left) : 0;
            vf *const row = (vf *)(s + (PAIR * i + v) * VL);
            if (!out) *row = count ? load(matrix + i * values + col + v * VL, count) : (vf){0};
            else if (count) store(matrix + i * values + col + v * VL, *row, count);
        }
}

INLINE void forward(const int gated, const int single, const struct delta *p, int64_t row, int64_t head, int64_t col,
                    float *s) {
    const int64_t keys = p->keys, values = p->values, heads = p->heads, factors = single ? 1 : p->factors;
    const int64_t width = heads * (keys + factors * (keys + values)), unit = row * heads + head;
    const int64_t size = keys * values, units = p->batch * heads;
    int count[PAIR];
    for (int v = 0; v < PAIR; v++) count[v] = values - col - v * VL > 0 ? lanes(values - col - v * VL) : 0;
    copy_columns(0, s, (float *)p->start + unit * size, keys, values, col);
    for (int64_t t = 0; t < p->steps; t++) {
        const int64_t at = t * p->batch + row;
        const float *const x = p->x + at * width, *const q = x + head * keys;
        if (p->starts && t % p->chunk == 0)
            copy_columns(1, s, p->starts + (t / p->chunk * units + unit) * size, keys, values, col);
        const float decay = gated ? p->decay[at * heads + head] : 1.0f, q_factor = length_factor(p, q);
        const float *const ahead = x + 6 * p->batch * width; /* a row of each step is on another page */
        for (int64_t j = 0; j < factors; j++) {
            const int64_t part = j * heads + head;
            const float *const k = x + heads * keys + part * keys;
            const float *const v_t = x + heads * keys * (1 + factors) + part * values + col;
            __builtin_prefetch(ahead + (k - x));
            __builtin_prefetch(ahead + (v_t - x));
            const int reading = j == factors - 1;
            vf by_key[PAIR], by_query[PAIR], u[PAIR];
            if (reading) products(1, s, k, q, keys, by_key, by_query);
            else products(0, s, k, q, keys, by_key, by_query);
            const float first = gated && j == 0 ? decay : 1.0f, k_factor = length_factor(p, k);
            const float beta = p->beta[at * factors * heads + part];
            for (int v = 0; v < PAIR; v++) {
                const vf error = (count[v] ? load(v_t + v * VL, count[v]) : (vf){0}) - by_key[v] * (first * k_factor);
                if (p->errors && count[v])
                    store(p->errors + (at * factors * heads + part) * values + col + v * VL, error, count[v]);
                u[v] = error * (beta * k_factor);
            }
            if (reading) {
                const float both = dot(k, q, keys) * q_factor; /* u has k's factor */
                for (int v = 0; v < PAIR; v++)
                    if (count[v])
                        store(p->y + (at * heads + head) * values + col + v * VL,
                              by_query[v] * (first * q_factor) + u[v] * both, count[v]);
            }
            update(gated, s, first, k, u, keys);
        }
        __builtin_prefetch(ahead + (q - x));
    }
    copy_columns(1, s, p->end + unit * size, keys, values, col);
}

/* y, S_T, and for a backward pass errors and starts. Returns nonzero without memory. */
int delta_forward(const struct delta *p, int64_t first, int64_t last) {
    float *const s = aligned_alloc(64, (size_t)(PAIR * VL * 4 * p->keys + 63) / 64 * 64);
    if (!s) return 1;
    const uint64_t denormals = flush_denormals();
    for (int64_t unit = first; unit < last; unit++)
        for (int64_t col = 0; col < p->values; col += PAIR * VL) {
            const int64_t row = unit / p->heads, head = unit % p->heads;
            switch ((p->decay != NULL) * 2 + (p->factors == 1)) {
                case 0: forward(0, 0, p, row, head, col, s); break;
                case 1: forward(0, 1, p, row, head, col, s); break;
                case 2: forward(1, 0, p, row, head, col, s); break;
                default: forward(1, 1, p, row, head, col, s);
            }
        }
    restore_denormals(denormals);
    free(s);
    return 0;
}

/* ---------------------------------------------------------------- backward */

/* x / (|x|^2 + epsilon)^(1/2) in whole vectors, with zeros behind; returns the factor. */
INLINE float normalized(const struct delta *p, const float *x, float *out) {
    const float factor = length_factor(p, x);
    for (int64_t i = 0; i < p->keys; i += VL) *(vf *)(out + i) = load(x + i, lanes(p->keys - i)) * factor;
    return factor;
}

/* The gradient of x from that of x / (|x|^2 + epsilon)^(1/2), which is `unit`. */
INLINE void store_gradient(const struct delta *p, float *to, const vf *gradient, const float *unit, float factor) {
    vf along = {0};
    for (int64_t i = 0, v = 0; i < p->keys; i += VL, v++) along += gradient[v] * *(const vf *)(unit + i);
    const float share = p->normalized ? sum_lanes(along) : 0.0f;
    for (int64_t i = 0, v = 0; i < p->keys; i += VL, v++)
        store(to + i, (gradient[v] - *(const vf *)(unit + i) * share) * factor, lanes(p->keys - i));
}

/* D^T k of all rows of D [values, nv vectors]. */
INLINE void products_of_rows(const int nv, const float *d, const float *k, int64_t values, float *out) {
    for (int64_t j = 0; j < values; j++) {
        vf total = {0};
        for (int v = 0; v < nv; v++) total += *(const vf *)(d + (j * nv + v) * VL) * *(const vf *)(k + v * VL);
        out[j] = sum_lanes(total);
    }
}

/* The scratch memory of a thread. Rows have nv vectors: `slots` are S^T [values] before the chunk and after each
 * correction of it, D is dL/dS^T [values]. */
struct scratch {
    float *slots, *d, *query, *key, *by_query, *by_key, *du;
};

INLINE void backward(const int nv, const struct delta *p, int64_t row, int64_t head, struct scratch m) {
    const int64_t keys = p->keys, values = p->values, heads = p->heads, factors = p->factors, length = nv * VL;
    const int64_t width = heads * (keys + factors * (keys + values)), unit = row * heads + head;
    const int64_t size = keys * values, units = p->batch * heads, slot = values * length;
    vf *const by_query = (vf *)m.by_query, *const by_key = (vf *)m.by_key;
    for (int64_t j = 0; j < values; j++)
        for (int64_t i = 0; i < length; i++)
            m.d[j * length + i] = p->grad_end && i < keys ? p->grad_end[unit * size + i * values + j] : 0.0f;
    for (int64_t chunk = (p->steps - 1) / p->chunk; chunk >= 0; chunk--) {
        const int64_t first = chunk * p->chunk;
        const int64_t stop = first + p->chunk < p->steps ? first + p->chunk : p->steps;
        const float *const start = p->starts + (chunk * units + unit) * size;
        for (int64_t j = 0; j < values; j++)
            for (int64_t i = 0; i < length; i++) m.slots[j * length + i] = i < keys ? start[i * values + j] : 0.0f;
        for (int64_t t = first; t < stop; t++) { /* the states again */
            const int64_t at = t * p->batch + row;
            const float *const x = p->x + at * width, *const ahead = x + 6 * p->batch * width;
            for (int64_t f = 0; f < factors; f++) {
                const int64_t part = f * heads + head;
                const float *const s = m.slots + ((t - first) * factors + f) * slot;
                const float *const errors = p->errors + (at * factors * heads + part) * values;
                __builtin_prefetch(ahead + heads * keys + part * keys);
                __builtin_prefetch(errors + 6 * p->batch * factors * heads * values);
                normalized(p, x + heads * keys + part * keys, m.key);
                const float decay = p->decay && f == 0 ? p->decay[at * heads + head] : 1.0f;
                const float beta = p->beta[at * factors * heads + part];
                for (int64_t j = 0; j < values; j++)
                    for (int v = 0; v < nv; v++) {
                        const int64_t place = (j * nv + v) * VL;
                        *(vf *)(s + slot + place) =
                            *(const vf *)(s + place) * decay + *(const vf *)(m.key + v * VL) * (beta * errors[j]);
                    }
            }
        }
        for (int64_t t = stop - 1; t >= first; t--) {
            const int64_t at = t * p->batch + row;
            const float *const x = p->x + at * width;
            float *const dx = p->dx + at * width;
            const float *const after = m.slots + (t - first + 1) * factors * slot;
            const float *const dy = p->grad_y ? p->grad_y + (at * heads + head) * values : NULL;
            if (dy) __builtin_prefetch(dy - 6 * p->batch * heads * values);
            const float q_factor = normalized(p, x + head * keys, m.query);
            for (int v = 0; v < nv; v++) by_query[v] = (vf){0};
            if (dy) {
                for (int64_t j = 0; j < values; j++)
                    for (int v = 0; v < nv; v++) {
                        const int64_t place = (j * nv + v) * VL;
                        by_query[v] += *(const vf *)(after + place) * dy[j];
                        *(vf *)(m.d + place) += *(const vf *)(m.query + v * VL) * dy[j];
                    }
            }
            store_gradient(p, dx + head * keys, by_query, m.query, q_factor);
            if (p->norms) p->norms[at * heads + head] = dot(m.d, m.d, slot);
            for (int64_t f = factors - 1; f >= 0; f--) {
                const int64_t part = f * heads + head;
                const float *const s = m.slots + ((t - first) * factors + f) * slot;
                const float *const errors = p->errors + (at * factors * heads + part) * values;
                float *const dv = dx + heads * keys * (1 + factors) + part * values;
                const int gated = p->decay != NULL && f == 0;
                const float decay = gated ? p->decay[at * heads + head] : 1.0f;
                const float beta = p->beta[at * factors * heads + part];
                const float k_factor = normalized(p, x + heads * keys + part * keys, m.key);
                products_of_rows(nv, m.d, m.key, values, m.du);
                p->dbeta[at * factors * heads + part] = dot(m.du, errors, values);
                for (int64_t j = 0; j < values; j += VL) {
                    const int count = lanes(values - j);
                    store(dv + j, *(const vf *)(m.du + j) * beta, count);
                }
                vf by_decay = {0};
                for (int v = 0; v < nv; v++) by_key[v] = (vf){0};
                for (int64_t j = 0; j < values; j++) {
                    const float u = beta * errors[j], de = beta * m.du[j];
                    for (int v = 0; v < nv; v++) {
                        const int64_t place = (j * nv + v) * VL;
                        vf *const d = (vf *)(m.d + place);
                        const vf before = *(const vf *)(s + place) * decay;
                        by_key[v] += *d * u - before * de;
                        const vf earlier = *d - *(const vf *)(m.key + v * VL) * de;
                        if (gated) by_decay += earlier * before;
                        *d = earlier * decay;
                    }
                }
                if (gated) p->dlog_decay[at * heads + head] = sum_lanes(by_decay);
                store_gradient(p, dx + heads * keys + part * keys, by_key, m.key, k_factor);
            }
        }
    }
    for (int64_t i = 0; i < keys; i++)
        for (int64_t j = 0; j < values; j++) p->dstart[unit * size + i * values + j] = m.d[j * length + i];
}

/* dx, dbeta, dlog_decay with a decay, dstart, and norms if they are wanted. Returns nonzero without memory. */
int delta_backward(const struct delta *p, int64_t first, int64_t last) {
    const int64_t nv = (p->keys + VL - 1) / VL, length = nv * VL, slot = p->values * length;
    const int64_t padded = (p->values + VL - 1) / VL * VL, slots = (p->chunk * p->factors + 1) * slot;
    const int64_t total = slots + (slot + 4 * length + padded + VL - 1) / VL * VL;
    float *const memory = aligned_alloc(64, (size_t)(4 * total + 63) / 64 * 64);
    if (!memory) return 1;
    float *const d = memory + slots;
    float *const vectors = d + slot;
    const struct scratch m = {
        memory, d, vectors, vectors + length, vectors + 2 * length, vectors + 3 * length, vectors + 4 * length,
    };
    const uint64_t denormals = flush_denormals();
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t row = unit / p->heads, head = unit % p->heads;
        switch (nv) {
            case 1: backward(1, p, row, head, m); break;
            case 2: backward(2, p, row, head, m); break;
            case 4: backward(4, p, row, head, m); break;
            default: backward((int)nv, p, row, head, m);
        }
    }
    restore_denormals(denormals);
    free(memory);
    return 0;
}
