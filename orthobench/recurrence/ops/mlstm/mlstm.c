/* mLSTM through time, in float32: for each head and batch row a memory C [d values, d keys] and a normaliser n [d].
 *
 * Forward keeps the memories before each chunk, and n^T q. Backward recomputes the memories of a chunk, which stay in a
 * core's cache. Within a chunk, steps follow one another: each needs C_t q_t, for which C_t is in the cache anyway.
 *
 *     prepare          q, k, v, o from u (mlstm_read_inputs, a product for all steps of the chunk), k / sqrt(d)
 *                      m_t = max(log f_t + m_{t-1}, i_t)
 *                      keep = exp(log f_t + m_{t-1} - m_t),  write = exp(i_t - m_t),  bound = exp(-m_t)
 *     advance          C_t = keep C_{t-1} + write v_t k_t^T,  n_t = keep n_{t-1} + write k_t
 *                      read = C_t q_t and total = n_t^T q_t, in the same pass over the rows of C
 *     forward          y_t = sigmoid(o_t) o read / max(|total|, bound)
 *
 *     backward         C_{t-1}, n_{t-1} of every step of the chunk by `advance` without readings, in s.slots
 *     read_backward    dL/d(C q) = sigmoid(o) o dy / max(|total|, bound), dL/do, dL/d(total), dL/d(bound)
 *     step_backward    g += dL/d(C q) q^T, and for n's row g += dL/d(total) q: dL/d[C_t; n_t], `total` there
 *                      dv = write g k                    rows[r]
 *                      dk = write g^T v + write g_n      by_k
 *                      dq = C_t^T dL/d(C q) + dL/d(total) n_t, from the memory before the step: by_q and `both`
 *                      dL/d(log keep) = keep <g, [C_{t-1}; n_{t-1}]>,  dL/d(log write) = write k . by_k
 *                      g = keep g
 *     backward         dL/dm_t, of which log f_t + m_{t-1} has `share` and i_t the rest, as the larger of both
 *     mlstm_finish     dU += u^T dz, a product for all steps of the chunk; mlstm_multiply_back: du = dz U
 *
 * Without readings only the last memory counts, and mlstm_final.c needs no steps at all.
 *
 * A memory here is a block of rows of `length` floats, which is d rounded up to whole vectors. It has C's rows, zeros
 * up to `length` rows, then n, and then m, the stabiliser, as the first number of a row. */
#include "mlstm.h"

#define LARGEST_EXPONENT 80.0f

int64_t mlstm_chunk(void) { return MLSTM_STEPS; }
int64_t mlstm_memory(int64_t size) { return (padded(size) + 2) * padded(size); }

/* Lanes 0 to 3: the sums of four vectors. */
INLINE vf four_sums(vf a, vf b, vf c, vf d) {
    vf sums = neighbours(neighbours(a, b), neighbours(c, d));
    for (int count = VL / 8; count; count /= 2) sums = neighbours(sums, sums);
    return sums;
}

/* ---------------------------------------------------------------- a chunk's inputs and their gradients */

void mlstm_read_inputs(const struct mlstm *p, int64_t row, int64_t head, int64_t first, int64_t last, float *z) {
    const int64_t d = p->size, length = padded(d), width = p->heads * d, steps = last - first, m = p->inputs;
    const int64_t parts = p->parts;
    for (int64_t part = 0; part < parts; part++) {
        if (p->u) {
            const struct operand u = {.a = p->u + (first * p->batch + row) * m, .lda = p->batch * m, .depth = m,
                                      .packed = p->packed_inputs + (head * parts + part) * length * m};
            multiply_rows(&u, steps, length, z + part * length, parts * length);
            continue;
        }
        for (int64_t t = 0; t < steps; t++) {
            const float *const x = p->x + (((first + t) * p->batch + row) * parts + part) * width + head * d;
            for (int64_t j = 0; j < d; j += VL)
                *(vf *)(z + (t * parts + part) * length + j) = load(x + j, lanes(d - j));
        }
    }
}

void mlstm_multiply_back(const struct mlstm *p, int64_t row, int64_t first, int64_t last, const float *dz) {
    _Alignas(64) float block[ROWS * 2 * VL];
    const int64_t width = p->parts * padded(p->size), m = p->differentiated, steps = last - first;
    const int64_t blocks = (steps + ROWS - 1) / ROWS;
    struct operand operands[p->heads];
    for (int64_t head = 0; head < p->heads; head++)
        operands[head] = (struct operand){.a = dz + head * MLSTM_STEPS * width, .lda = width, .depth = width,
                                          .packed = p->packed_transposed + head * width * padded(m)};
    for (int64_t col = 0; col < m; col += 2 * VL)
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t t = steps * b / blocks, vecs = m - col > VL ? 2 : 1;
            const int rows = (int)(steps * (b + 1) / blocks - t);
            multiply(rows, (int)vecs, operands, (int)p->heads, t, col, block, 2 * VL);
            for (int i = 0; i < rows; i++)
                for (int64_t v = 0; v < vecs; v++)
                    store(p->du + ((first + t + i) * p->batch + row) * m + col + v * VL,
                          *(const vf *)(block + (i * 2 + v) * VL), lanes(m - col - v * VL));
        }
}

void mlstm_finish(const struct mlstm *p, int64_t row, int64_t head, int64_t group, int64_t first, int64_t last,
                  const float *dz) {
    const int64_t d = p->size, length = padded(d), m = p->inputs, steps = last - first, parts = p->parts;
    if (p->dx)
        for (int64_t t = 0; t < steps; t++)
            for (int64_t part = 0; part < parts; part++) {
                float *const dx = p->dx + ((((first + t) * p->batch + row) * parts + part) * p->heads + head) * d;
                for (int64_t j = 0; j < d; j += VL)
                    store(dx + j, *(const vf *)(dz + (t * parts + part) * length + j), lanes(d - j));
            }
    if (!p->dweights) return;
    struct factor factors[MLSTM_STEPS];
    for (int64_t t = 0; t < steps; t++) factors[t] = (struct factor){dz + t * parts * length, NULL};
    const struct rows rows = {p->u + (first * p->batch + row) * m, steps, p->batch * m};
    accumulate_outer(&rows, factors, 0, m, 0, parts * length, parts * length, 0,
                     p->dweights + (group * p->heads + head) * m * parts * length, NULL);
}

/* Of one head's steps. */
struct chunk {
    float *z; /* q, k / sqrt(d), v, o [MLSTM_STEPS, 4, length], before o's function */
    _Alignas(64) float keep[MLSTM_STEPS]; /* the memory's factor */
    float write[MLSTM_STEPS];             /* the factor of what is added */
    float m[MLSTM_STEPS];                 /* the stabiliser */
    float bound[MLSTM_STEPS];             /* exp(-m) */
    float closing[MLSTM_STEPS];           /* 1 - sigmoid(f), or 1 */
    float share[MLSTM_STEPS];             /* the derivative of m by the exponent of `keep` */
};

/* The inputs and gates of the steps [first, last), from the stabiliser m before them. */
static void prepare(const struct mlstm *p, int64_t row, int64_t head, int64_t first, int64_t last, float m,
                    struct chunk *c) {
    _Alignas(64) float raw[2][MLSTM_STEPS] = {0};
    const int64_t heads = p->heads, steps = last - first, length = padded(p->size);
    const float scale = 1.0f / sqrtf((float)p->size);
    mlstm_read_inputs(p, row, head, first, last, c->z);
    for (int64_t t = 0; t < steps; t++)
        for (int64_t j = 0; j < length; j += VL) *(vf *)(c->z + (t * 4 + 1) * length + j) *= scale;
    for (int64_t t = 0; t < steps; t++)
        for (int gate = 0; gate < 2; gate++)
            raw[gate][t] = p->gates[((first + t) * p->batch + row) * 2 * heads + gate * heads + head];
    for (int64_t t = 0; t < MLSTM_STEPS; t += VL) {
        vf *const f = (vf *)(raw[1] + t), *const closing = (vf *)(c->closing + t);
        *closing = splat(1.0f);
        if (!p->exponential) *f = log_sigmoid(*f, closing);
    }
    for (int64_t t = 0; t < steps; t++) {
        const float faded = m + raw[1][t], i = raw[0][t];
        m = i > faded ? i : faded;
        c->share[t] = faded > i ? 1.0f : faded == i ? 0.5f : 0.0f;
        c->keep[t] = faded - m;
        c->write[t] = i - m;
        c->m[t] = m;
    }
    for (int64_t t = 0; t < steps; t += VL) {
        *(vf *)(c->keep + t) = exponential(*(vf *)(c->keep + t));
        *(vf *)(c->write + t) = exponential(*(vf *)(c->write + t));
        *(vf *)(c->bound + t) = exponential(at_most(-*(vf *)(c->m + t), LARGEST_EXPONENT));
    }
}

/* ---------------------------------------------------------------- forward */

/* One step of a memory, from `before` to `after`, which may be the same. With `reading` also C q and n^T q. */
INLINE float advance(const int nv, const int reading, const vf *before, vf *after, float keep, float write,
                     const float *z, float *read) {
    const int64_t length = nv * VL;
    const vf *const q = (const vf *)z, *const k = (const vf *)(z + length);
    const float *const v = z + 2 * length;
    for (int64_t j = 0; j < length; j += VL) {
        vf rows[VL];
#pragma GCC unroll 16
        for (int r = 0; r < VL; r++) {
            const vf share = splat(write * v[j + r]);
            if (reading) rows[r] = (vf){0};
            for (int i = 0; i < nv; i++) {
                const vf next = keep * before[(j + r) * nv + i] + share * k[i];
                after[(j + r) * nv + i] = next;
                if (reading) rows[r] += next * q[i];
            }
        }
        if (reading) *(vf *)(read + j) = sums_of_rows(rows);
    }
    vf total = {0};
    for (int i = 0; i < nv; i++) {
        const vf next = keep * before[length * nv + i] + write * k[i];
        after[length * nv + i] = next;
        if (reading) total += next * q[i];
    }
    return reading ? four_sums(total, total, total, total)[0] : 0;
}

INLINE void forward(const int nv, const struct mlstm *p, int64_t row, int64_t head, int64_t first, int64_t last,
                    float *s, struct chunk *c, float *read) {
    const int64_t d = p->size, length = nv * VL;
    float *const m = s + (length + 1) * length;
    prepare(p, row, head, first, last, *m, c);
    for (int64_t t = 0; t < last - first; t++) {
        const int64_t at = ((first + t) * p->batch + row) * p->heads + head;
        const float *const z = c->z + t * 4 * length;
        const float total = advance(nv, 1, (vf *)s, (vf *)s, c->keep[t], c->write[t], z, read);
        const vf inverse = 1.0f / splat(fmaxf(fabsf(total), c->bound[t]));
        if (p->totals) p->totals[at] = total;
        for (int64_t j = 0; j < d; j += VL) {
            const vf h = sigmoid(*(const vf *)(z + 3 * length + j)) * *(const vf *)(read + j) * inverse;
            store(p->y + at * d + j, h, lanes(d - j));
        }
    }
    *m = c->m[last - first - 1];
}

/* Copies a row's state to the memories of its heads, or with `out` back. The padding of a memory is reset to 0, because
 * a NaN or an infinity of the row before would otherwise stay there. */
static void copy_state(const int out, const struct mlstm *p, float *state, float *memories) {
    const int64_t d = p->size, length = padded(d), heads = p->heads;
    if (!out) memset(memories, 0, (size_t)(heads * mlstm_memory(d)) * 4);
    for (int64_t head = 0; head < heads; head++, memories += mlstm_memory(d)) {
        for (int64_t j = 0; j <= d; j++) {
            float *const from = state + (head * (d + 1) + j) * d, *const to = memories + (j < d ? j : length) * length;
            if (out) memcpy(from, to, (size_t)d * 4);
            else memcpy(to, from, (size_t)d * 4);
        }
        float *const m = state + heads * (d + 1) * d + head, *const stored = memories + (length + 1) * length;
        if (out) *m = *stored;
        else *stored = *m;
    }
}

/* y, end, and what a backward pass needs, of the rows in [first, last). Returns nonzero without memory. */
int mlstm_forward(const struct mlstm *p, int64_t first, int64_t last) {
    const int64_t length = padded(p->size), memory = mlstm_memory(p->size), inputs = MLSTM_STEPS * 4 * length;
    float *const s = zeros(p->heads * memory + inputs + length);
    if (!s) return 1;
    struct chunk c = {.z = s + p->heads * memory};
    float *const read = c.z + inputs;
    const uint64_t denormals = flush_denormals();
    for (int64_t row = first; row < last; row++) {
        copy_state(0, p, (float *)p->start + row * state_size(p), s);
        for (int64_t t = 0; t < p->steps; t += MLSTM_STEPS) {
            const int64_t stop = chunk_end(p, t);
            const int64_t at = (t / MLSTM_STEPS * p->batch + row) * p->heads * memory;
            if (p->starts) memcpy(p->starts + at, s, (size_t)(p->heads * memory) * 4);
            for (int64_t head = 0; head < p->heads; head++) {
                float *const own = s + head * memory;
                switch (length / VL) {
                    case 1: forward(1, p, row, head, t, stop, own, &c, read); break;
                    case 2: forward(2, p, row, head, t, stop, own, &c, read); break;
                    case 4: forward(4, p, row, head, t, stop, own, &c, read); break;
                    default: forward((int)(length / VL), p, row, head, t, stop, own, &c, read);
                }
            }
        }
        copy_state(1, p, p->end + row * state_size(p), s);
    }
    restore_denormals(denormals);
    free(s);
    return 0;
}

/* ---------------------------------------------------------------- backward */

/* The scratch memory of a thread. */
struct scratch {
    float *by_memory; /* dL/d(memory) of each head of a row */
    float *slots;     /* a head's memories before each step of a chunk [MLSTM_STEPS, memory] */
    float *dz;        /* dL/dz of a head's chunk [MLSTM_STEPS, 4, length] */
    float *by_read;   /* dL/d(C q) [length] */
};

/* The derivatives by the exponents of keep and write. */
struct exponents { float keep, write; };

/* One step: `g` is dL/d(memory) after the step, and becomes that before it. `by_read` is dL/d(C q), and by_total
 * dL/d(n^T q). */
INLINE struct exponents step_backward(const int nv, const vf *before, vf *g, float keep, float write, const float *z,
                                      const float *by_read, float by_total, float scale, float *dz) {
    const int64_t length = nv * VL;
    const vf *const q = (const vf *)z, *const k = (const vf *)(z + length);
    const float *const v = z + 2 * length;
    vf *const dq = (vf *)dz, *const dk = (vf *)(dz + length);
    vf by_q[nv];
    vf by_k[nv];
    vf by_keep = {0};
    vf both = {0};
    for (int i = 0; i < nv; i++) {
        const vf total = g[length * nv + i] + by_total * q[i], old = before[length * nv + i];
        by_q[i] = by_total * old;
        by_k[i] = total;
        by_keep += total * old;
        g[length * nv + i] = keep * total;
    }
    for (int64_t j = 0; j < length; j += VL) {
        vf rows[VL];
        both += *(const vf *)(by_read + j) * *(const vf *)(v + j);
#pragma GCC unroll 16
        for (int r = 0; r < VL; r++) {
            const vf reading = splat(by_read[j + r]), value = splat(v[j + r]);
            rows[r] = (vf){0};
            for (int i = 0; i < nv; i++) {
                vf *const at = g + (j + r) * nv + i;
                const vf total = *at + reading * q[i], old = before[(j + r) * nv + i];
                by_q[i] += reading * old;
                by_k[i] += value * total;
                by_keep += total * old;
                rows[r] += total * k[i];
                *at = keep * total;
            }
        }
        *(vf *)(dz + 2 * length + j) = write * sums_of_rows(rows);
    }
    vf by_write = {0};
    for (int i = 0; i < nv; i++) by_write += by_k[i] * k[i];
    const vf sums = four_sums(by_keep, by_write, both, both);
    for (int i = 0; i < nv; i++) {
        dq[i] = keep * by_q[i] + (write * (sums[2] + by_total)) * k[i];
        dk[i] = (write * scale) * by_k[i];
    }
    return (struct exponents){keep * sums[0], write * sums[1]};
}

/* |dL/d(memory)|^2 after a step, with what the reading adds to it. */
static float squares(int64_t length, const float *g, const float *by_read, float by_total, const float *q) {
    vf sum = {0};
    for (int64_t j = 0; j <= length; j++) {
        const float factor = j < length ? by_read[j] : by_total;
        for (int64_t i = 0; i < length; i += VL) {
            const vf total = *(const vf *)(g + j * length + i) + factor * *(const vf *)(q + i);
            sum += total * total;
        }
    }
    return sum_of(sum);
}

/* The derivatives by n^T q and by exp(-m). */
struct reading { float by_total, by_bound; };

/* dL/d(C q) of a step, and dL/do. */
INLINE struct reading read_backward(const struct mlstm *p, int64_t at, const float *o, float bound, float *by_read,
                                    float *by_o) {
    const int64_t d = p->size;
    const float total = p->totals[at], size = fabsf(total), inverse = 1.0f / fmaxf(size, bound);
    vf products = {0};
    for (int64_t j = 0; j < d; j += VL) {
        const int count = lanes(d - j);
        const vf dh = load(p->grad_y + at * d + j, count), h = load(p->y + at * d + j, count);
        const vf open = sigmoid(*(const vf *)(o + j));
        products += dh * h;
        *(vf *)(by_read + j) = dh * open * inverse;
        *(vf *)(by_o + j) = dh * h * (1.0f - open);
    }
    const float by_denominator = -four_sums(products, products, products, products)[0] * inverse;
    const float share = size > bound ? 1.0f : size == bound ? 0.5f : 0.0f;
    const float sign = total > 0 ? 1.0f : total < 0 ? -1.0f : 0.0f;
    return (struct reading){share * sign * by_denominator, (1.0f - share) * by_denominator};
}

INLINE void backward(const int nv, const struct mlstm *p, int64_t row, int64_t head, int64_t first, int64_t last,
                     const float *start, struct chunk *c, struct scratch s) {
    const int64_t d = p->size, length = nv * VL, memory = (length + 2) * length, heads = p->heads;
    const float scale = 1.0f / sqrtf((float)d);
    float *const g = s.by_memory + head * memory, *const dm = g + (length + 1) * length;
    prepare(p, row, head, first, last, start[(length + 1) * length], c);
    memcpy(s.slots, start, (size_t)memory * 4);
    for (int64_t t = 0; t < last - first - 1; t++)
        advance(nv, 0, (vf *)(s.slots + t * memory), (vf *)(s.slots + (t + 1) * memory), c->keep[t], c->write[t],
                c->z + t * 4 * length, NULL);
    for (int64_t t = last - first - 1; t >= 0; t--) {
        const int64_t step = (first + t) * p->batch + row;
        const float *const z = c->z + t * 4 * length;
        float *const dz = s.dz + t * 4 * length;
        struct reading reading = {0};
        if (p->grad_y)
            reading = read_backward(p, step * heads + head, z + 3 * length, c->bound[t], s.by_read, dz + 3 * length);
        if (-c->m[t] <= LARGEST_EXPONENT) *dm -= c->bound[t] * reading.by_bound;
        if (p->norms) p->norms[step] += squares(length, g, s.by_read, reading.by_total, z) + *dm * *dm;
        const struct exponents by = step_backward(nv, (vf *)(s.slots + t * memory), (vf *)g, c->keep[t], c->write[t], z,
                                                  s.by_read, reading.by_total, scale, dz);
        const float rest = *dm - by.keep - by.write;
        *dm = by.keep + c->share[t] * rest;
        p->dgates[step * 2 * heads + head] = by.write + (1.0f - c->share[t]) * rest;
        p->dgates[step * 2 * heads + heads + head] = *dm * c->closing[t];
    }
}

/* The gradients of the rows in [first, last), which are whole groups. Returns nonzero without memory. */
int mlstm_backward(const struct mlstm *p, int64_t first, int64_t last) {
    const int64_t length = padded(p->size), memory = mlstm_memory(p->size), inputs = MLSTM_STEPS * 4 * length;
    float *const all = zeros((p->heads + MLSTM_STEPS) * memory + (p->heads + 1) * inputs + length);
    if (!all) return 1;
    struct scratch s = {.by_memory = all, .slots = all + p->heads * memory};
    struct chunk c = {.z = s.slots + MLSTM_STEPS * memory};
    float *const dz = c.z + inputs;
    s.by_read = dz + p->heads * inputs;
    const uint64_t denormals = flush_denormals();
    int64_t group = 0;
    for (int64_t row = first; row < last; row++) {
        while (row >= p->batch * (group + 1) / p->groups) group++;
        copy_state(0, p, p->dstart + row * state_size(p), s.by_memory);
        for (int64_t t = (p->steps - 1) / MLSTM_STEPS * MLSTM_STEPS; t >= 0; t -= MLSTM_STEPS) {
            const int64_t stop = chunk_end(p, t);
            for (int64_t head = 0; head < p->heads; head++) {
                const float *const start = p->starts + ((t / MLSTM_STEPS * p->batch + row) * p->heads + head) * memory;
                s.dz = dz + head * inputs;
                switch (length / VL) {
                    case 1: backward(1, p, row, head, t, stop, start, &c, s); break;
                    case 2: backward(2, p, row, head, t, stop, start, &c, s); break;
                    case 4: backward(4, p, row, head, t, stop, start, &c, s); break;
                    default: backward((int)(length / VL), p, row, head, t, stop, start, &c, s);
                }
                mlstm_finish(p, row, head, group, t, stop, s.dz);
            }
            if (p->du) mlstm_multiply_back(p, row, t, stop, dz);
        }
        copy_state(1, p, p->dstart + row * state_size(p), s.by_memory);
    }
    restore_denormals(denormals);
    free(all);
    return 0;
}
