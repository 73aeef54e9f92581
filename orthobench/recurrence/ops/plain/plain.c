/* Dense recurrences with one product and one state: plain, gated and Lipschitz. */
#include "activations.h"
#include "weight_sums.h"

struct plain {
    struct dense dense;
    struct activation activation; /* of the plain recurrence */
    int64_t euler;                /* whether h_t = h_{t-1} + step_size act(...) */
    float step_size;              /* eps of the Euler form */
    const float *bias;            /* the activation's b, [n], or NULL */
    float *dbias;                 /* [B, padded(n)], zeroed, or NULL: each row's sum over time */
    float *dmixed;                /* [T, B, n]: what dense.packed multiplies backward, or NULL if it is dL/dz */
    const float *packed_inner;    /* Lipschitz, backward: the W inside tanh, packed, for dx; or NULL */
    int64_t outputs;              /* columns of y and grad_y */
    const float *packed_outputs;  /* V of y_t = V h_t + c, packed; backward for dL/dy V */
    const float *output_bias;     /* c [outputs] */
    float *y;                     /* [T, B, outputs], or NULL */
    const float *grad_y;          /* dL/dy [T, B, outputs], or NULL. Its sums dL/dV follow in dense.dweights, `outputs`
                                   * rows in each group. */
};

INLINE const struct plain *of_plain(const struct step *s) { return (const struct plain *)s->p; }

/* ------------------------------------------------------------------ the loops over time */

static int forward(const struct plain *own, int64_t first, int64_t last, int gates, epilogue *finish) {
    const uint64_t denormals = flush_denormals();
    const struct dense *const p = &own->dense;
    struct step s = {.p = p, .first = first};
    for (s.t = 0; s.t < p->steps; s.t++) {
        s.prev = state_before(p, p->h, p->h0, s.t, first);
        forward_sweep(&s, last - first, s.prev, p->packed, p->packed_inputs, gates, finish);
        const int64_t row = s.t * p->batch; /* its states are in the cache */
        if (own->y)
            linear(row + first, row + last, p->batch, p->features, own->outputs, p->h, own->packed_outputs,
                   own->output_bias, own->y);
    }
    return end_forward(denormals);
}

static int backward(const struct plain *own, int64_t first, int64_t last, int64_t width, epilogue *finish) {
    const struct dense *const p = &own->dense;
    const int64_t n = p->features, rows = last - first, outputs = p->dweights ? own->outputs : 0;
    const float *const dmixed = own->dmixed;
    struct step s;
    struct sums sums;
    if (!start_backward(&s, &sums, p, first, rows, 1, width + outputs, 0)) return 1;
    if (outputs) {
        sums.sources[0].last = width;
        sums.sources[1] = (struct source){width, width + outputs, 0, n, p->h, NULL};
        sums.count = 2;
    }
    const uint64_t denormals = flush_denormals();
    if (!own->euler) s.direct = NULL;
    for (s.t = p->steps - 1; s.t >= -1; s.t--) {
        const int64_t later = offset(&s, 0, n) + p->batch * n;
        struct operand carried[3];
        int count = 0;
        if (s.t < p->steps - 1) {
            const float *const next = dmixed ? dmixed + later : dz_at(&sums, p, s.t + 1, first);
            carried[count++] = (struct operand){next, dmixed ? n : sums.row, n, p->packed};
            if (own->packed_inner) carried[count++] = (struct operand){p->dx + later, n, n, own->packed_inner};
        }
        if (s.t >= 0) s.dz = dz_at(&sums, p, s.t, first);
        if (s.t >= 0 && own->grad_y) {
            const float *const arriving_y = own->grad_y + offset(&s, 0, own->outputs);
            carried[count++] = (struct operand){arriving_y, own->outputs, own->outputs, own->packed_outputs};
            for (int64_t row = 0; row < rows && outputs; row++)
                memcpy(s.dz + row * s.dz_row + width, arriving_y + row * outputs, (size_t)outputs * 4);
        }
        sweep(&s, rows, carried, count, 1, s.t < 0 ? initial_gradient : finish);
        if (s.t < 0) break;
        finish_norms(&s, rows, NULL);
        add_products(&sums, p, s.t, first);
    }
    return end_backward(&s, &sums, denormals);
}

/* ------------------------------------------------------------------ h_t = act(x_t + W h_{t-1}; b) */

/* saved, one part: of the complex kinds z, else in the Euler form the activation's output, else NULL: h is enough. */
INLINE void activation_forward(const int kind, const int euler, const struct step *shared, int64_t row, int rows,
                               int64_t col, int vecs, const float *block) {
    COPY_STEP(shared, plain);
    const int64_t n = p->features, next = p->batch * n;
    for (int v = 0; v < vecs; v++) {
        const int64_t at = col + v * VL;
        const int count = lanes(n - at);
        const vf bias = own->bias ? load(own->bias + at, count) : (vf){0};
        for (int i = 0; i < rows; i++) {
            const int64_t here = offset(s, row + i, n) + at;
            const vf z = with_input(p, *(const vf *)(block + (i * 2 + v) * VL), here, count, next);
            prefetch(p->h + here, next);
            vf a = activate(kind, z, bias, &own->activation);
            keep(s, 1, saved_at(s, row + i, 1, at), kind >= COMPLEX_MODRELU ? z : a);
            if (euler) a = load(s->prev + (row + i) * n + at, count) + own->step_size * a;
            store(p->h + here, a, count);
        }
    }
}

/* dL/dh_t: the product with dL/dz_{t+1}, and what arrives in addition. The loop over the activation, whose registers
 * these addends would take, needs it only if there are any. */
INLINE void whole_gradient(const int euler, const struct step *s, const float *arriving_here, int64_t row, int rows,
                           int64_t col, int vecs, const float *block, float *out) {
    const int64_t n = s->p->features;
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t local = (row + i) * n + col + v * VL;
            const int count = lanes(n - col - v * VL);
            vf g = *(const vf *)(block + (i * 2 + v) * VL);
            if (arriving_here) {
                g += load(arriving_here + i * n + v * VL, count);
                prefetch(arriving_here + i * n + v * VL, -s->p->batch * n);
            }
            if (euler) {
                g += load(s->direct + local, count);
                store(s->direct + local, g, count);
            }
            if (s->squares) *(vf *)(s->squares + (row + i) * VL) += g * g;
            *(vf *)(out + (i * 2 + v) * VL) = g;
        }
}

INLINE void activation_backward(const int kind, const int euler, const struct step *shared, int64_t row, int rows,
                                int64_t col, int vecs, const float *block) {
    COPY_STEP(shared, plain);
    _Alignas(64) float whole[ROWS * 2 * VL];
    const int64_t n = p->features, before = -p->batch * n;
    const float *const output = p->saved ? p->saved : p->h;
    const int64_t width = p->saved ? kept_row(n, 1) : n;
    const float *const arriving_here = arriving(p->grad_h, p->grad_last, s, row, col);
    if (euler || arriving_here || s->squares) {
        whole_gradient(euler, s, arriving_here, row, rows, col, vecs, block, whole);
        block = whole;
    }
    for (int v = 0; v < vecs; v++) {
        const int64_t at = col + v * VL;
        const int count = lanes(n - at);
        const vf bias = own->bias ? load(own->bias + at, count) : (vf){0};
        for (int i = 0; i < rows; i++) {
            const int64_t here = offset(s, row + i, n) + at, kept = offset(s, row + i, width) + at;
            const vf g = *(const vf *)(block + (i * 2 + v) * VL), a = load(output + kept, count);
            prefetch(output + kept, -p->batch * width);
            if (p->dx) prefetch(p->dx + here, before);
            const struct derivative d = differentiate(kind, euler ? g * own->step_size : g, a, bias, &own->activation);
            store_dz(s, row + i, here, at, d.z, count);
            if (own->dbias) add_to_row(s, own->dbias, row + i, at, d.bias);
        }
    }
}

#define EACH_KIND(CASE)                                                                       \
    CASE(IDENTITY) CASE(TANH) CASE(RELU) CASE(LEAKY_RELU) CASE(MODRELU) CASE(COMPLEX_MODRELU) \
    CASE(COMPLEX_MODRELU_SMOOTH)

#define CASE(KIND)                                                                                           \
    case KIND:                                                                                               \
        if (of_plain(s)->euler) activation_forward(KIND, 1, s, row, rows, col, vecs, block);                        \
        else activation_forward(KIND, 0, s, row, rows, col, vecs, block);                                    \
        return;
static void finish_forward(const struct step *s, int64_t row, int rows, int64_t col, int vecs, const float *block) {
    switch (of_plain(s)->activation.kind) { EACH_KIND(CASE) }
}
#undef CASE
#define CASE(KIND)                                                                                           \
    case KIND:                                                                                               \
        if (of_plain(s)->euler) activation_backward(KIND, 1, s, row, rows, col, vecs, block);                       \
        else activation_backward(KIND, 0, s, row, rows, col, vecs, block);                                   \
        return;
static void finish_backward(const struct step *s, int64_t row, int rows, int64_t col, int vecs, const float *block) {
    switch (of_plain(s)->activation.kind) { EACH_KIND(CASE) }
}
#undef CASE

int recurrence_forward(const struct plain *own, int64_t first, int64_t last) {
    return forward(own, first, last, 1, finish_forward);
}

int recurrence_backward(const struct plain *own, int64_t first, int64_t last) {
    return backward(own, first, last, own->dense.features, finish_backward);
}

/* ------------------------------------------------------------------ gated: h_t = h_{t-1} + eps sigmoid tanh
 * saved, two parts: tanh's output, then the sigmoid's. */

static void gated_finish_forward(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                 const float *block) {
    COPY_STEP(shared, plain);
    const int64_t n = p->features, next = p->batch * 2 * n;
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL, here = offset(s, row + i, 2 * n) + at;
            const int count = lanes(n - at);
            const vf mixed = *(const vf *)(block + (i * 2 + v) * VL);
            const vf a = hyperbolic_tangent(mixed + load(p->x + here, count));
            const vf gate = sigmoid(mixed + load(p->x + here + n, count));
            prefetch(p->x + here, next);
            prefetch(p->x + here + n, next);
            const int64_t kept = saved_at(s, row + i, 2, at);
            keep(s, 2, kept, a);
            keep(s, 2, kept + padded(n), gate);
            const vf h = load(s->prev + (row + i) * n + at, count) + own->step_size * gate * a;
            const int64_t out = offset(s, row + i, n) + at;
            prefetch(p->h + out, p->batch * n);
            store(p->h + out, h, count);
        }
}

static void gated_finish_backward(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                  const float *block) {
    COPY_STEP(shared, plain);
    const int64_t n = p->features;
    const float *const arriving_here = arriving(p->grad_h, p->grad_last, s, row, col);
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL, here = offset(s, row + i, 2 * n) + at, local = (row + i) * n + at;
            const int count = lanes(n - at);
            vf g = *(const vf *)(block + (i * 2 + v) * VL) + load(s->direct + local, count);
            if (arriving_here) g += load(arriving_here + i * n + v * VL, count);
            store(s->direct + local, g, count);
            if (s->squares) *(vf *)(s->squares + (row + i) * VL) += g * g;
            vf parts[2];
            load_saved(s, row + i, 2, 2, at, parts);
            const vf a = parts[0], gate = parts[1];
            g *= own->step_size;
            const vf dcandidate = g * gate * tangent_slope(a), dgate = g * a * gate * (1.0f - gate);
            store(p->dx + here, dcandidate, count);
            store(p->dx + here + n, dgate, count);
            store(own->dmixed + offset(s, row + i, n) + at, dcandidate + dgate, count);
        }
}

int gated_forward(const struct plain *own, int64_t first, int64_t last) {
    return forward(own, first, last, 1, gated_finish_forward);
}

int gated_backward(const struct plain *own, int64_t first, int64_t last) {
    return backward(own, first, last, 2 * own->dense.features, gated_finish_backward);
}

/* ------------------------------------------------------------------ Lipschitz
 * h_t = h_{t-1} + eps (A h_{t-1} + tanh(W h_{t-1} + x_t))
 * saved, one part: tanh's output. dmixed: dL/d(A h_{t-1}); dx is dL/d(W h_{t-1}) too. */

static void lipschitz_finish_forward(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                     const float *block) {
    COPY_STEP(shared, plain);
    const int64_t n = p->features, next = p->batch * n;
    const int count = lanes(n - col);
    (void)vecs;
    for (int i = 0; i < rows; i++) {
        const int64_t here = offset(s, row + i, n) + col;
        const vf linear = *(const vf *)(block + i * 2 * VL), mixed = *(const vf *)(block + (i * 2 + 1) * VL);
        const vf a = hyperbolic_tangent(mixed + load(p->x + here, count));
        prefetch(p->x + here, next);
        prefetch(p->h + here, next);
        keep(s, 1, saved_at(s, row + i, 1, col), a);
        store(p->h + here, load(s->prev + (row + i) * n + col, count) + own->step_size * (linear + a), count);
    }
}

static void lipschitz_finish_backward(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                      const float *block) {
    COPY_STEP(shared, plain);
    const int64_t n = p->features, before = -p->batch * n;
    const float *const arriving_here = arriving(p->grad_h, p->grad_last, s, row, col);
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL, here = offset(s, row + i, n) + at, local = (row + i) * n + at;
            const int count = lanes(n - at);
            vf g = *(const vf *)(block + (i * 2 + v) * VL) + load(s->direct + local, count);
            if (arriving_here) g += load(arriving_here + i * n + v * VL, count);
            store(s->direct + local, g, count);
            if (s->squares) *(vf *)(s->squares + (row + i) * VL) += g * g;
            vf a;
            load_saved(s, row + i, 1, 1, at, &a);
            prefetch(p->dx + here, before);
            prefetch(own->dmixed + here, before);
            g *= own->step_size;
            store(own->dmixed + here, g, count);
            store(p->dx + here, g * tangent_slope(a), count);
        }
}

int lipschitz_forward(const struct plain *own, int64_t first, int64_t last) {
    return forward(own, first, last, 2, lipschitz_finish_forward);
}

int lipschitz_backward(const struct plain *own, int64_t first, int64_t last) {
    return backward(own, first, last, own->dense.features, lipschitz_finish_backward);
}
