/* GRU, with r, z = sigmoid(x_t + W h_{t-1}) of their blocks and o the elementwise product:
 *
 *     g_t = act(x_t + W_g (r o h_{t-1})), or with r after the product act(x_t + r o (W_g h_{t-1} + b))
 *     h_t = z o h_{t-1} + (1 - z) o g_t
 *
 * saved, three parts: the gates r, z, g after their functions; with r after the product a fourth, W_g h_{t-1} + b. */
#include "activations.h"
#include "weight_sums.h"

/* dense.packed has the rows of the gates r and z. */
struct gru {
    struct dense dense;
    struct activation activation;         /* of the candidate: TANH or MODRELU */
    int64_t reset_after;                  /* whether r is applied after the product */
    const float *packed_candidate;        /* W_g, packed; backward transposed */
    const float *packed_candidate_inputs; /* U's rows for the candidate, packed, or NULL */
    const float *bias;                    /* the activation's b [n], or NULL */
    const float *candidate_bias;          /* b [n], or NULL */
    float *dmixed;                        /* [T, B, n], if no sums are computed: r h_{t-1}, the factor of dL/dW_g; with
                                           * r after the product dL/d(W_g h_{t-1} + b) */
    float *dbias, *dcandidate_bias;       /* [B, padded(n)], zeroed: each row's sum over time */
};

INLINE const struct gru *of_gru(const struct step *s) { return (const struct gru *)s->p; }

INLINE int64_t gru_parts(const struct gru *own) { return own->reset_after ? 4 : 3; }

static void gru_finish_gates(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                             const float *block) {
    COPY_STEP(shared, gru);
    const int64_t n = p->features, next = p->batch * 3 * n, parts = gru_parts(own);
    const int count = lanes(n - col);
    (void)vecs;
    for (int i = 0; i < rows; i++) {
        const int64_t here = offset(s, row + i, 3 * n) + col, local = (row + i) * n + col;
        const int64_t kept = saved_at(s, row + i, parts, col);
        const vf r = sigmoid(with_input(p, *(const vf *)(block + i * 2 * VL), here, count, next));
        const vf z = sigmoid(with_input(p, *(const vf *)(block + (i * 2 + 1) * VL), here + n, count, next));
        keep(s, parts, kept, r);
        keep(s, parts, kept + padded(n), z);
        store(s->gate + local, z, count);
        store(s->aside + local, own->reset_after ? r : r * load(s->prev + local, count), count);
    }
}

INLINE void gru_candidate(const int kind, const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                          const float *block) {
    COPY_STEP(shared, gru);
    const int64_t n = p->features, next = p->batch * n, parts = gru_parts(own);
    _Alignas(64) float inputs[ROWS * 2 * VL];
    if (own->reset_after && p->u) {
        const struct operand u = input_operand(s, own->packed_candidate_inputs);
        multiply(rows, vecs, &u, 1, row, col, inputs, 2 * VL);
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL, here = offset(s, row + i, 3 * n) + at, out = offset(s, row + i, n) + at;
            const int64_t local = (row + i) * n + at, kept = saved_at(s, row + i, parts, at);
            const int count = lanes(n - at);
            const vf bias = own->bias ? load(own->bias + at, count) : (vf){0};
            vf mixed = *(const vf *)(block + (i * 2 + v) * VL);
            if (own->reset_after) {
                if (own->candidate_bias) mixed += load(own->candidate_bias + at, count);
                keep(s, parts, kept + 3 * padded(n), mixed);
                mixed *= load(s->aside + local, count);
                if (p->u) mixed += *(const vf *)(inputs + (i * 2 + v) * VL);
            }
            prefetch(p->h + out, next);
            const vf g = activate(kind, with_input(p, mixed, here + 2 * n, count, 3 * next), bias, &own->activation);
            const vf z = load(s->gate + local, count);
            keep(s, parts, kept + 2 * padded(n), g);
            store(p->h + out, mixture(z, load(s->prev + local, count), 1.0f - z, g), count);
        }
}

static void gru_finish_candidate(const struct step *s, int64_t row, int rows, int64_t col, int vecs,
                                 const float *block) {
    if (of_gru(s)->activation.kind == MODRELU) gru_candidate(MODRELU, s, row, rows, col, vecs, block);
    else gru_candidate(TANH, s, row, rows, col, vecs, block);
}

int gru_forward(const struct gru *own, int64_t first, int64_t last) {
    const uint64_t denormals = flush_denormals();
    const struct dense *const p = &own->dense;
    const int64_t n = p->features, rows = last - first;
    const float *const packed = own->packed_candidate;
    struct step s = {.p = p, .first = first, .aside = zeros(2 * rows * n)};
    if (!s.aside) return 1;
    s.gate = s.aside + rows * n;
    for (s.t = 0; s.t < p->steps; s.t++) {
        s.prev = state_before(p, p->h, p->h0, s.t, first);
        forward_sweep(&s, rows, s.prev, p->packed, p->packed_inputs, 2, gru_finish_gates);
        if (own->reset_after) /* U u is added in the epilogue: r multiplies W h alone */
            sweep(&s, rows, &(struct operand){s.prev, n, n, packed}, 1, 1, gru_finish_candidate);
        else
            forward_sweep(&s, rows, s.aside, packed, own->packed_candidate_inputs, 1, gru_finish_candidate);
    }
    free(s.aside);
    return end_forward(denormals);
}

/* What dL/dh_t gives without another product: all but r's gate when r comes before the product. */
INLINE void gru_gradients(const int kind, const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                          const float *block) {
    COPY_STEP(shared, gru);
    const int64_t n = p->features, before = -p->batch * n;
    const float *const arriving_here = arriving(p->grad_h, p->grad_last, s, row, col);
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL, here = offset(s, row + i, 3 * n) + at, local = (row + i) * n + at;
            const int count = lanes(n - at);
            vf dh = *(const vf *)(block + (i * 2 + v) * VL) + load(s->direct + local, count);
            if (arriving_here) dh += load(arriving_here + i * n + v * VL, count);
            if (s->squares) *(vf *)(s->squares + (row + i) * VL) += dh * dh;
            vf gates[4];
            load_saved(s, row + i, own->reset_after ? 4 : 3, gru_parts(own), at, gates);
            for (int gate = 0; gate < 3 && p->dx; gate++) prefetch(p->dx + here + gate * n, 3 * before);
            const vf r = gates[0], z = gates[1], g = gates[2];
            prefetch(s->prev + local, before);
            /* Neither kind's derivative needs the bias. */
            const struct derivative d = differentiate(kind, dh * (1.0f - z), g, (vf){0}, &own->activation);
            const vf dcandidate = d.z;
            if (own->dbias) add_to_row(s, own->dbias, row + i, at, d.bias);
            const vf dupdate = dh * (load(s->prev + local, count) - g) * z * (1.0f - z);
            store_dz(s, row + i, here + n, at + n, dupdate, count);
            store_dz(s, row + i, here + 2 * n, at + 2 * n, dcandidate, count);
            store(s->direct + local, dh * z, count);
            if (!own->reset_after) continue;
            const vf drecurrent = dcandidate * r, dreset = drecurrent * gates[3] * (1.0f - r);
            store_dz(s, row + i, here, at, dreset, count);
            store(s->aside + (row + i) * s->aside_row + at, drecurrent, count);
            if (own->dcandidate_bias) add_to_row(s, own->dcandidate_bias, row + i, at, drecurrent);
        }
}

static void gru_finish_backward(const struct step *s, int64_t row, int rows, int64_t col, int vecs,
                                const float *block) {
    if (of_gru(s)->activation.kind == MODRELU) gru_gradients(MODRELU, s, row, rows, col, vecs, block);
    else gru_gradients(TANH, s, row, rows, col, vecs, block);
}

/* block: dL/d(r h_{t-1}). */
static void gru_finish_reset(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                             const float *block) {
    COPY_STEP(shared, gru);
    const int64_t n = p->features;
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL, here = offset(s, row + i, 3 * n) + at, local = (row + i) * n + at;
            const int count = lanes(n - at);
            const vf d = *(const vf *)(block + (i * 2 + v) * VL), r = load(p->saved + saved_at(s, row + i, 3, at), VL);
            const vf product = r * load(s->prev + local, count);
            store(s->aside + (row + i) * s->aside_row + at, product, count);
            store_dz(s, row + i, here, at, d * product * (1.0f - r), count);
            store(s->direct + local, load(s->direct + local, count) + d * r, count);
        }
}

/* dz is r, z, g, and the ring has `aside` behind it. With r before the product it is g's factor. With r after it, it is
 * a part of dz, whose product with h gives dL/dW_g, and g's only dL/dU_g. */
static int gru_start_backward(struct step *s, struct sums *sums, const struct gru *own, int64_t first, int64_t rows) {
    const struct dense *const p = &own->dense;
    const int64_t n = p->features, m = p->inputs, width = p->dweights && own->reset_after ? 4 * n : 3 * n;
    if (!start_backward(s, sums, p, first, rows, 1, width, 4 * n - width)) return 0;
    s->aside_row = sums->ring ? sums->row : n;
    sums->sources[0].last = 2 * n;
    if (own->reset_after) {
        sums->sources[1] = (struct source){3 * n, 4 * n, 0, n, p->h, p->h0};
        sums->sources[2] = (struct source){2 * n, 3 * n, n / VL * VL, n + m, p->h, p->h0};
        sums->count = m ? 3 : 2;
    } else {
        sums->sources[1] = (struct source){2 * n, 3 * n, 0, n + m, NULL, NULL};
        sums->count = 2;
    }
    return 1;
}

int gru_backward(const struct gru *own, int64_t first, int64_t last) {
    const struct dense *const p = &own->dense;
    const int64_t n = p->features, rows = last - first;
    struct step s;
    struct sums sums;
    if (!gru_start_backward(&s, &sums, own, first, rows)) return 1;
    const uint64_t denormals = flush_denormals();
    s.fetching = 2 * n < FAR;
    for (s.t = p->steps - 1; s.t >= -1; s.t--) {
        const struct operand carried[] = {
            {dz_at(&sums, p, s.t + 1, first), sums.row, 2 * n, p->packed},
            {s.aside, s.aside_row, n, own->packed_candidate},
        };
        const int count = s.t == p->steps - 1 ? 0 : own->reset_after ? 2 : 1;
        if (s.t >= 0) {
            s.prev = state_before(p, p->h, p->h0, s.t, first);
            s.dz = dz_at(&sums, p, s.t, first);
            s.aside = sums.ring ? s.dz + 3 * n : own->dmixed + offset(&s, 0, n);
        }
        fetch_saved(&s, rows, gru_parts(own));
        sweep(&s, rows, carried, count, 1, s.t < 0 ? initial_gradient : gru_finish_backward);
        s.fetch = NULL;
        if (s.t < 0) break;
        finish_norms(&s, rows, NULL);
        const struct operand candidate = {s.dz + 2 * n, sums.row, n, own->packed_candidate};
        if (!own->reset_after) sweep(&s, rows, &candidate, 1, 1, gru_finish_reset);
        add_products(&sums, p, s.t, first);
    }
    return end_backward(&s, &sums, denormals);
}
