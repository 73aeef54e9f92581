/* Memories that decay, are written to and read, in float32: S_t = w S_{t-1} + k v^T, y_t = S_t^T q_t.
 *
 * A unit is a head of a batch row, and the caller gives each thread a range of units. The columns of S only meet in sums
 * over the keys, so a few vectors of columns are carried through each step at once. Backward recomputes the memories of a
 * group of steps, from the one stored before it. */
#include "memory.h"
#include "vectors.h"

enum { GROUP = 16, MOST = 4 }; /* steps between stored memories; vectors of columns at once */

/* x_t of a row is the value [heads, values]. The weight has log w [heads], the query and the key [heads, keys]. What a pass
 * does not need is NULL. */
struct memories {
    int64_t steps, batch, heads; /* T, B and the number of heads */
    int64_t keys, values;        /* the sizes of a key and of a value */
    const float *x;              /* [T, B, width] */
    const float *weight;         /* [T, B, heads * (1 + 2 * keys)] */
    const float *start;          /* S before the first step [B, heads, keys, values] */
    float *y;                    /* [T, B, heads, values] */
    float *starts;               /* S before each group of steps [B, heads, groups, keys, padded(values)] */
    float *end;                  /* S after the last step, as start */
    const float *grad_y;         /* as y, or NULL */
    const float *grad_end;       /* as end, or NULL */
    float *dx;                   /* as x */
    float *dweight;              /* as weight */
    float *dstart;               /* as start */
    float *norms;                /* |dL/dS_t|^2 [T, B, heads], or NULL */
};

/* The rows of a group of steps [GROUP], each of whole vectors, or their gradients. */
struct rows {
    float *q, *k, *w; /* [keys] */
    float *v;         /* [values] */
};

struct scratch {
    struct rows x, dx;
    float *s;     /* S, and backward dL/dS, of each unit [units, keys, values] */
    float *slots; /* S before each step of a group and behind it [GROUP + 1, keys, values] */
    float *dy;    /* y of a step, and backward its gradient [values] */
};

/* The floats of a row of x and of the weight. */
INLINE int64_t width_of(const struct memories *p) { return p->heads * p->values; }
INLINE int64_t weights_of(const struct memories *p) { return p->heads * (1 + 2 * p->keys); }

/* The floats of S with its rows in whole vectors. */
int64_t memories_size(int64_t keys, int64_t values) { return keys * padded(values); }

/* The number of groups. */
int64_t memories_groups(int64_t steps) { return (steps + GROUP - 1) / GROUP; }

static struct rows carve_rows(struct carver *from, int64_t keys, int64_t values) {
    float *const q = carve(from, GROUP * keys), *const k = carve(from, GROUP * keys), *const w = carve(from, GROUP * keys);
    return (struct rows){q, k, w, carve(from, GROUP * values)};
}

static struct scratch carve_scratch(struct carver *from, const struct memories *p, int64_t units, int backward) {
    const int64_t kp = padded(p->keys), vp = padded(p->values), size = p->keys * vp;
    struct scratch m = {.x = carve_rows(from, kp, vp)};
    m.s = carve(from, units * size);
    m.dy = carve(from, vp);
    if (!backward) return m;
    m.dx = carve_rows(from, kp, vp);
    m.slots = carve(from, (GROUP + 1) * size);
    return m;
}

static void copy_row(const float *from, float *to, int64_t size) {
    for (int64_t c = 0; c < size; c += VL) *(vf *)(to + c) = load(from + c, lanes(size - c));
}

/* The rows of the steps [first, stop). */
static void fill_rows(const struct memories *p, int64_t row, int64_t head, int64_t first, int64_t stop,
                      struct scratch *m) {
    const int64_t keys = p->keys, kp = padded(keys), vp = padded(p->values), all = p->heads * keys, at_head = head * keys;
    for (int64_t t = first; t < stop; t++) {
        const int64_t i = (t - first) * kp, place = t * p->batch + row;
        const float *const x = p->x + place * width_of(p), *const weight = p->weight + place * weights_of(p);
        const float *const query = weight + p->heads + at_head;
        copy_row(query, m->x.q + i, keys);
        copy_row(x + head * p->values, m->x.v + (t - first) * vp, p->values);
        const vf decay = exponential(splat(weight[head]));
        copy_row(query + all, m->x.k + i, keys);
        for (int64_t c = 0; c < kp; c += VL) *(vf *)(m->x.w + i + c) = decay;
    }
}

/* dx and dweight of the steps [first, stop), from the gradients of their rows. */
static void gradients_of_rows(const struct memories *p, int64_t row, int64_t head, int64_t first, int64_t stop,
                              struct scratch *m) {
    const int64_t keys = p->keys, kp = padded(keys), vp = padded(p->values), all = p->heads * keys, at_head = head * keys;
    for (int64_t t = first; t < stop; t++) {
        const int64_t i = (t - first) * kp, place = t * p->batch + row, at = place * width_of(p);
        float *const dweight = p->dweight + place * weights_of(p), *const dquery = dweight + p->heads + at_head;
        float *const dkey = dquery + all, *const dvalue = p->dx + at + head * p->values;
        for (int64_t c = 0; c < p->values; c += VL)
            store(dvalue + c, *(const vf *)(m->dx.v + (t - first) * vp + c), lanes(p->values - c));
        for (int64_t c = 0; c < keys; c += VL) store(dquery + c, *(const vf *)(m->dx.q + i + c), lanes(keys - c));
        float total = 0;
        for (int64_t c = 0; c < keys; c++) total += m->dx.w[i + c] * m->x.w[i + c];
        dweight[head] = total;
        for (int64_t c = 0; c < keys; c += VL) store(dkey + c, *(const vf *)(m->dx.k + i + c), lanes(keys - c));
    }
}

/* S_t of `count` vectors of columns from S_{t-1}, and with q also y_t. */
INLINE void advance_columns(const int count, int64_t keys, int64_t ld, const float *q, const float *k, const float *w,
                            const float *v, const float *before, float *after, float *y) {
    vf sum[MOST] = {{0}}, value[MOST];
    for (int j = 0; j < count; j++) value[j] = *(const vf *)(v + j * VL);
    for (int64_t i = 0; i < keys; i++)
        for (int j = 0; j < count; j++) {
            const vf s = *(const vf *)(before + i * ld + j * VL) * w[i] + value[j] * k[i];
            *(vf *)(after + i * ld + j * VL) = s;
            if (y) sum[j] += s * q[i];
        }
    if (y)
        for (int j = 0; j < count; j++) *(vf *)(y + j * VL) = sum[j];
}

/* Adds to the gradients of a step's rows what `count` vectors of columns contribute, and replaces dL/dS_t `d` by
 * dL/dS_{t-1}. Returns the sum of the squares of dL/dS_t. */
INLINE float retreat_columns(const int count, int64_t keys, int64_t ld, const float *q, const float *k, const float *w,
                             const float *v, const float *before, const float *after, const float *dy, float *d,
                             float *dq, float *dk, float *dw, float *dv) {
    vf value[MOST], arriving[MOST], dvalue[MOST] = {{0}}, squares = {0};
    for (int j = 0; j < count; j++) {
        value[j] = *(const vf *)(v + j * VL);
        if (dy) arriving[j] = *(const vf *)(dy + j * VL);
    }
    for (int64_t first = 0; first < keys; first += VL) {
        const int rows = lanes(keys - first);
        vf sums_q[VL], sums_k[VL], sums_w[VL];
        for (int r = rows; r < VL; r++) sums_q[r] = sums_k[r] = sums_w[r] = (vf){0};
        for (int r = 0; r < rows; r++) {
            const int64_t i = first + r;
            vf by_q = {0}, by_k = {0}, by_w = {0};
            for (int j = 0; j < count; j++) {
                const int64_t at = i * ld + j * VL;
                vf g = *(const vf *)(d + at);
                if (dy) {
                    g += arriving[j] * q[i];
                    by_q += *(const vf *)(after + at) * arriving[j];
                }
                squares += g * g;
                by_k += g * value[j];
                by_w += g * *(const vf *)(before + at);
                dvalue[j] += g * k[i];
                *(vf *)(d + at) = g * w[i];
            }
            sums_q[r] = by_q, sums_k[r] = by_k, sums_w[r] = by_w;
        }
        if (dy) *(vf *)(dq + first) += sums_of_rows(sums_q);
        *(vf *)(dk + first) += sums_of_rows(sums_k);
        *(vf *)(dw + first) += sums_of_rows(sums_w);
    }
    for (int j = 0; j < count; j++) *(vf *)(dv + j * VL) = dvalue[j];
    return sum_of(squares);
}

/* Calls BODY(COUNT) with a constant. */
#define EACH_COUNT(COUNT, BODY) \
    switch (COUNT) {            \
        case 1: BODY(1); break; \
        case 2: BODY(2); break; \
        case 3: BODY(3); break; \
        default: BODY(4);       \
    }

static int vectors_at(int64_t c, int64_t width) {
    const int64_t left = (width - c) / VL;
    return left < MOST ? (int)left : MOST;
}

static void advance(const struct memories *p, int64_t step, const float *before, float *after, float *y,
                    struct scratch *m) {
    const int64_t kp = padded(p->keys), vp = padded(p->values), i = step * kp;
    const struct rows *const x = &m->x;
    for (int64_t c = 0; c < vp; c += MOST * VL) {
        const float *const v = x->v + step * vp + c;
#define ADVANCE(COUNT)                                                                                        \
    advance_columns(COUNT, p->keys, vp, x->q + i, x->k + i, x->w + i, v, before + c, after + c, y ? y + c : NULL)
        EACH_COUNT(vectors_at(c, vp), ADVANCE)
#undef ADVANCE
    }
}

static float retreat(const struct memories *p, int64_t step, const float *dy, struct scratch *m) {
    const int64_t kp = padded(p->keys), vp = padded(p->values), i = step * kp, size = p->keys * vp;
    const struct rows *const x = &m->x, *const g = &m->dx;
    const float *const before = m->slots + step * size, *const after = before + size;
    float squares = 0;
    for (int64_t c = 0; c < vp; c += MOST * VL) {
        const int64_t r = step * vp + c;
#define RETREAT(COUNT)                                                                                      \
    squares += retreat_columns(COUNT, p->keys, vp, x->q + i, x->k + i, x->w + i, x->v + r, before + c, after + c, \
                               dy ? dy + c : NULL, m->s + c, g->q + i, g->k + i, g->w + i, g->v + r)
        EACH_COUNT(vectors_at(c, vp), RETREAT)
#undef RETREAT
    }
    return squares;
}

/* All units advance by a group of steps before any goes on, because the numbers of a step are next to each other. */
static void forward(const struct memories *p, int64_t from, int64_t to, struct scratch *m) {
    const int64_t vp = padded(p->values), size = p->keys * vp, groups = memories_groups(p->steps);
    float *const memories = m->s;
    for (int64_t unit = from; unit < to; unit++)
        pad_rows(p->keys, p->values, p->start + unit * p->keys * p->values, memories + (unit - from) * size);
    for (int64_t first = 0; first < p->steps; first += GROUP)
        for (int64_t unit = from; unit < to; unit++) {
            const int64_t row = unit / p->heads, head = unit % p->heads;
            const int64_t stop = first + GROUP < p->steps ? first + GROUP : p->steps;
            float *const s = memories + (unit - from) * size;
            if (p->starts) memcpy(p->starts + (unit * groups + first / GROUP) * size, s, (size_t)(4 * size));
            fill_rows(p, row, head, first, stop, m);
            for (int64_t t = first; t < stop; t++) {
                advance(p, t - first, s, s, m->dy, m);
                for (int64_t c = 0; c < p->values; c += VL)
                    store(p->y + ((t * p->batch + row) * p->heads + head) * p->values + c, *(const vf *)(m->dy + c),
                          lanes(p->values - c));
            }
        }
    for (int64_t unit = from; unit < to; unit++)
        copy_rows(p->keys, p->values, memories + (unit - from) * size, vp, p->end + unit * p->keys * p->values, p->values);
}

static void backward(const struct memories *p, int64_t from, int64_t to, struct scratch *m) {
    const int64_t kp = padded(p->keys), vp = padded(p->values), size = p->keys * vp, groups = memories_groups(p->steps);
    float *const gradients = m->s;
    for (int64_t unit = from; p->grad_end && unit < to; unit++)
        pad_rows(p->keys, p->values, p->grad_end + unit * p->keys * p->values, gradients + (unit - from) * size);
    for (int64_t first = (groups - 1) * GROUP; first >= 0; first -= GROUP)
        for (int64_t unit = from; unit < to; unit++) {
            const int64_t row = unit / p->heads, head = unit % p->heads;
            const int64_t stop = first + GROUP < p->steps ? first + GROUP : p->steps;
            float *const sums[] = {m->dx.q, m->dx.k, m->dx.w};
            for (int i = 0; i < 3; i++) memset(sums[i], 0, (size_t)(4 * GROUP * kp));
            m->s = gradients + (unit - from) * size;
            fill_rows(p, row, head, first, stop, m);
            memcpy(m->slots, p->starts + (unit * groups + first / GROUP) * size, (size_t)(4 * size));
            for (int64_t t = first; t < stop; t++)
                advance(p, t - first, m->slots + (t - first) * size, m->slots + (t - first + 1) * size, NULL, m);
            for (int64_t t = stop - 1; t >= first; t--) {
                const int64_t place = (t * p->batch + row) * p->heads + head;
                if (p->grad_y) copy_row(p->grad_y + place * p->values, m->dy, p->values);
                const float squares = retreat(p, t - first, p->grad_y ? m->dy : NULL, m);
                if (p->norms) p->norms[place] = squares;
            }
            gradients_of_rows(p, row, head, first, stop, m);
        }
    for (int64_t unit = from; unit < to; unit++)
        copy_rows(p->keys, p->values, gradients + (unit - from) * size, vp, p->dstart + unit * p->keys * p->values, p->values);
}

static int run(const struct memories *p, int64_t first, int64_t last, int is_backward) {
    struct carver size = {NULL, 0};
    carve_scratch(&size, p, last - first, is_backward);
    struct carver from = {zeros(size.used), 0};
    if (!from.base) return 1;
    struct scratch m = carve_scratch(&from, p, last - first, is_backward);
    const uint64_t denormals = flush_denormals();
    if (is_backward) backward(p, first, last, &m);
    else forward(p, first, last, &m);
    restore_denormals(denormals);
    free(from.base);
    return 0;
}

/* y, S_T, and for a backward pass starts. Returns nonzero without memory. */
int memories_forward(const struct memories *p, int64_t first, int64_t last) { return run(p, first, last, 0); }

/* The gradients, and the norms if they are needed. Returns nonzero without memory. */
int memories_backward(const struct memories *p, int64_t first, int64_t last) { return run(p, first, last, 1); }
