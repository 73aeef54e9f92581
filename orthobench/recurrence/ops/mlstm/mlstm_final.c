/* The final state of the mLSTM without readings, in float32.
 *
 * Unrolled, the state after all steps is one sum over them. With R_t = log f'_{t+1} + ... + log f'_T and s over steps,
 *     m_T = max(m_0 + R_0, max over s of i_s + R_s),   a_t = exp(i_t + R_t - m_T),   f = exp(m_0 + R_0 - m_T)
 *     C_T = f C_0 + sum over t of a_t v_t k_t^T,       n_T = f n_0 + sum over t of a_t k_t
 * The gradients of k_t and v_t are products with G = dL/d[C_T; n_T]. Both passes are therefore products of matrices,
 * and backward needs no memory C_t except the first.
 *
 * R is summed from the end, because a difference of two long sums would lose the small terms. */
#include "mlstm.h"

/* Numbers of each step of one head. */
struct series {
    float *exponent; /* i_t + R_t */
    float *closing;  /* 1 - sigmoid(f), or 1 */
    float *largest;  /* m_T if only the steps up to t counted */
    float *weight;   /* a_t */
    float *by_write; /* dL/d(i_t) with m_T held */
    float first;     /* m_0 + R_0 */
    float m;         /* m_T */
    float kept;      /* f, the weight of the first state */
};
enum { SERIES = 5 };

static struct series series_of(float *memory, int64_t head, int64_t length) {
    float *const own = memory + head * SERIES * length;
    return (struct series){.exponent = own, .closing = own + length, .largest = own + 2 * length,
                           .weight = own + 3 * length, .by_write = own + 4 * length};
}

/* i and f of a row's steps: f in the place of `weight` until `weigh`. */
static void read_gates(const struct mlstm *p, int64_t row, float *memory, int64_t length) {
    const int64_t heads = p->heads;
    for (int64_t t = 0; t < p->steps; t++) {
        const float *const gates = p->gates + (t * p->batch + row) * 2 * heads;
        for (int64_t head = 0; head < heads; head++) {
            const struct series s = series_of(memory, head, length);
            s.exponent[t] = gates[head];
            s.weight[t] = gates[heads + head];
        }
    }
}

/* The weights of all steps, from the stabiliser m_0. */
static void weigh(const struct mlstm *p, float m, struct series *s) {
    for (int64_t t = 0; t < p->steps; t += VL) {
        vf *const f = (vf *)(s->weight + t), *const closing = (vf *)(s->closing + t);
        *closing = splat(1.0f);
        if (!p->exponential) *f = log_sigmoid(*f, closing);
    }
    float later = 0;
    for (int64_t t = p->steps - 1; t >= 0; t--) {
        s->exponent[t] += later;
        later += s->weight[t];
    }
    s->first = s->m = m + later;
    for (int64_t t = 0; t < p->steps; t++) {
        if (s->exponent[t] > s->m) s->m = s->exponent[t];
        s->largest[t] = s->m;
    }
    for (int64_t t = 0; t < p->steps; t += VL)
        *(vf *)(s->weight + t) = exponential(*(const vf *)(s->exponent + t) - s->m);
    s->kept = exponential(splat(s->first - s->m))[0];
}

/* ---------------------------------------------------------------- forward */

/* Adds a chunk's a_t [v_t; 1] k_t^T / sqrt(d) to a memory [length + 1, length]; z has k and v, [MLSTM_STEPS, 2,
 * length]. */
static void add_steps(const struct mlstm *p, int64_t steps, const float *weight, float *z, float *memory) {
    const int64_t d = p->size, length = padded(d);
    const float scale = 1.0f / sqrtf((float)d);
    struct factor factors[MLSTM_STEPS];
    float *const n = memory + length * length;
    for (int64_t t = 0; t < steps; t++) {
        float *const k = z + t * 2 * length;
        const float share = scale * weight[t];
        for (int64_t j = 0; j < length; j += VL) {
            const vf written = share * *(const vf *)(k + j);
            *(vf *)(k + j) = written;
            *(vf *)(n + j) += written;
        }
        factors[t] = (struct factor){k, NULL};
    }
    const struct rows values = {z + length, steps, 2 * length};
    accumulate_outer(&values, factors, 0, d, 0, length, length, 0, memory, NULL);
}

/* [C; n] of a head between a state [d + 1, d] and a memory of rows of `length`, n behind `length` rows. */
static void unfold(const float *state, int64_t d, float factor, float *memory) {
    const int64_t length = padded(d);
    for (int64_t r = 0; r <= d; r++)
        for (int64_t j = 0; j < d; j += VL)
            *(vf *)(memory + (r < d ? r : length) * length + j) = factor * load(state + r * d + j, lanes(d - j));
}

static void fold(const float *memory, int64_t d, float *state) {
    const int64_t length = padded(d);
    for (int64_t r = 0; r <= d; r++) memcpy(state + r * d, memory + (r < d ? r : length) * length, (size_t)d * 4);
}

/* The final states of the rows in [first, last). Returns nonzero without memory. */
int mlstm_final_forward(const struct mlstm *p, int64_t first, int64_t last) {
    const int64_t d = p->size, length = padded(d), own = d * (d + 1), steps = padded(p->steps);
    float *const z = zeros(MLSTM_STEPS * 2 * length + (length + 1) * length + p->heads * SERIES * steps);
    if (!z) return 1;
    float *const memory = z + MLSTM_STEPS * 2 * length, *const numbers = memory + (length + 1) * length;
    const uint64_t denormals = flush_denormals();
    for (int64_t row = first; row < last; row++) {
        const float *const start = p->start + row * state_size(p);
        float *const end = p->end + row * state_size(p);
        read_gates(p, row, numbers, steps);
        for (int64_t head = 0; head < p->heads; head++) {
            struct series s = series_of(numbers, head, steps);
            weigh(p, start[p->heads * own + head], &s);
            unfold(start + head * own, d, s.kept, memory);
            for (int64_t t = 0; t < p->steps; t += MLSTM_STEPS) {
                const int64_t stop = chunk_end(p, t);
                mlstm_read_inputs(p, row, head, t, stop, z);
                add_steps(p, stop - t, s.weight + t, z, memory);
            }
            fold(memory, d, end + head * own);
            end[p->heads * own + head] = s.m;
        }
    }
    restore_denormals(denormals);
    free(z);
    return 0;
}

/* ---------------------------------------------------------------- backward */

/* The gradient of a head's final state. */
struct end {
    float *by_v;   /* dL/dC, packed for its products with v */
    float *by_k;   /* dL/dC, packed for its products with k */
    float *n;      /* dL/dn [d] */
    float by_kept; /* its product with the first state */
    float squares; /* the sum of its squares */
};

static void read_end(const float *g, const float *start, int64_t d, struct end *end) {
    const int64_t length = padded(d);
    vf products = {0}, squares = {0};
    for (int64_t col = 0; col < length; col += VL) {
        const int64_t panel = col / (2 * VL) * 2 * VL, stride = length - panel > VL ? 2 * VL : VL;
        const int64_t at = panel * d + col - panel;
        pack_vector(end->by_v + at, stride, d, g + col, 1, d, lanes(d - col));
        pack_vector(end->by_k + at, stride, d, g + col * d, d, 1, lanes(d - col));
    }
    memcpy(end->n, g + d * d, (size_t)d * 4);
    for (int64_t j = 0; j < d * (d + 1); j += VL) {
        const int count = lanes(d * (d + 1) - j);
        const vf by = load(g + j, count);
        products += by * load(start + j, count);
        squares += by * by;
    }
    end->by_kept = sum_of(products);
    end->squares = sum_of(squares);
}

/* dL/dz [MLSTM_STEPS, 2, length] of a chunk's k and v, and dL/d(i_t) by what is written. */
static void differentiate(const struct mlstm *p, int64_t steps, const struct end *end, const float *weight,
                          const float *z, float *dz, float *by_write) {
    const int64_t d = p->size, length = padded(d);
    const float scale = 1.0f / sqrtf((float)d);
    const struct operand keys = {.a = z, .lda = 2 * length, .depth = d, .packed = end->by_k};
    const struct operand values = {.a = z + length, .lda = 2 * length, .depth = d, .packed = end->by_v};
    multiply_rows(&values, steps, length, dz, 2 * length);
    multiply_rows(&keys, steps, length, dz + length, 2 * length);
    for (int64_t t = 0; t < steps; t += VL) {
        vf sums[VL];
        for (int r = 0; r < VL; r++) sums[r] = (vf){0};
        for (int r = 0; r < lanes(steps - t); r++) {
            const float *const k = z + (t + r) * 2 * length;
            float *const dk = dz + (t + r) * 2 * length, *const dv = dk + length;
            const float share = scale * weight[t + r];
            for (int64_t j = 0; j < length; j += VL) {
                const vf by_k = share * (*(const vf *)(dk + j) + *(const vf *)(end->n + j));
                sums[r] += by_k * *(const vf *)(k + j);
                *(vf *)(dk + j) = by_k;
                *(vf *)(dv + j) *= share;
            }
        }
        *(vf *)(by_write + t) = sums_of_rows(sums);
    }
}

/* The gradients of a head's gates and of m_0, and what they add to the squares of the norms.
 *
 * With m held, dL/d(log f'_t) is the sum of a_s dL/da_s over what was written before t and of the first state. What the
 * sum over all leaves of dL/dm_T goes to the exponents that are the largest. */
static void differentiate_gates(const struct mlstm *p, int64_t row, int64_t head, const struct end *end,
                                struct series *s, float *dm) {
    const int64_t heads = p->heads;
    double total = (double)s->kept * end->by_kept;
    for (int64_t t = 0; t < p->steps; t++) total += s->by_write[t];
    float rest = *dm - (float)total;
    for (int64_t t = p->steps - 1; t >= 0; t--) {
        const int64_t step = t * p->batch + row;
        const float before = t ? s->largest[t - 1] : s->first, e = s->exponent[t];
        const float share = before > e ? 1.0f : before == e ? 0.5f : 0.0f;
        if (p->norms) {
            const float decay = exponential(splat(s->largest[t] - s->m))[0], by_m = (float)total + rest;
            p->norms[step] += decay * decay * end->squares + by_m * by_m;
        }
        total -= s->by_write[t];
        p->dgates[step * 2 * heads + head] = s->by_write[t] + (1.0f - share) * rest;
        rest *= share;
        p->dgates[step * 2 * heads + heads + head] = ((float)total + rest) * s->closing[t];
    }
    *dm = (float)total + rest;
}

/* The gradients of the rows in [first, last), which are whole groups. Returns nonzero without memory. */
int mlstm_final_backward(const struct mlstm *p, int64_t first, int64_t last) {
    const int64_t d = p->size, length = padded(d), own = d * (d + 1), steps = padded(p->steps), heads = p->heads;
    const int64_t inputs = MLSTM_STEPS * 2 * length, packed = d * length;
    float *const z = zeros((1 + heads) * inputs + heads * (2 * packed + length + SERIES * steps));
    if (!z) return 1;
    float *const dz = z + inputs, *const ends = dz + heads * inputs;
    float *const numbers = ends + heads * (2 * packed + length);
    const uint64_t denormals = flush_denormals();
    int64_t group = 0;
    for (int64_t row = first; row < last; row++) {
        const float *const start = p->start + row * state_size(p);
        float *const dstart = p->dstart + row * state_size(p);
        struct series series[heads];
        struct end end[heads];
        while (row >= p->batch * (group + 1) / p->groups) group++;
        read_gates(p, row, numbers, steps);
        for (int64_t head = 0; head < heads; head++) {
            float *const memory = ends + head * (2 * packed + length);
            end[head] = (struct end){.by_v = memory, .by_k = memory + packed, .n = memory + 2 * packed};
            series[head] = series_of(numbers, head, steps);
            weigh(p, start[heads * own + head], &series[head]);
            read_end(dstart + head * own, start + head * own, d, &end[head]);
        }
        for (int64_t t = 0; t < p->steps; t += MLSTM_STEPS) {
            const int64_t stop = chunk_end(p, t);
            for (int64_t head = 0; head < heads; head++) {
                const struct series *const s = &series[head];
                float *const by_inputs = dz + head * inputs;
                mlstm_read_inputs(p, row, head, t, stop, z);
                differentiate(p, stop - t, &end[head], s->weight + t, z, by_inputs, s->by_write + t);
                mlstm_finish(p, row, head, group, t, stop, by_inputs);
            }
            if (p->du) mlstm_multiply_back(p, row, t, stop, dz);
        }
        for (int64_t head = 0; head < heads; head++) {
            differentiate_gates(p, row, head, &end[head], &series[head], dstart + heads * own + head);
            for (int64_t j = 0; j < own; j++) dstart[head * own + j] *= series[head].kept;
        }
    }
    restore_denormals(denormals);
    free(z);
    return 0;
}
