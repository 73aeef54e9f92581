/* Memories through which a matrix and tanh pass, in float32: S_t = f S_{t-1} + (1 - f) C_t, y_t = S_t^T q_t, with the
 * candidate C_t = tanh(S_{t-1} W + k v^T).
 *
 * The caller gives each thread a range of batch rows, and a row walks through time with the memories of all its heads.
 * Backward computes a group of steps again from the memory stored before it, and goes through it from its last step.
 * Groups of rows have sums of their own, so that no sum depends on the number of threads. */
#include "memory.h"
#include "tiles.h"

enum { GROUP = 16 }; /* steps between stored memories */

/* x_t of a row is the value [heads, values]. The weight has f [heads], the query [heads, keys] if the memory is read,
 * and the key [heads, keys]. What a pass does not need is NULL. */
struct nonlinear_memories {
    int64_t steps, batch, heads; /* T, B and the number of heads */
    int64_t keys, values;        /* the sizes of a key and of a value */
    int64_t reads;               /* whether queries read the memory */
    int64_t groups;              /* groups of rows whose sums are separate */
    const float *x;              /* [T, B, width] */
    const float *weight;         /* [T, B, heads * (1 + (1 + reads) * keys)] */
    const float *transition;     /* W [heads, values, values] */
    const float *start;          /* S before the first step [B, heads, keys, values] */
    float *y;                    /* [T, B, heads, values] */
    float *starts;               /* S before each group of steps [B, heads, groups of steps, keys, padded(values)] */
    float *end;                  /* S after the last step, as start */
    const float *grad_y;         /* as y, or NULL */
    const float *grad_end;       /* as end, or NULL */
    float *dx;                   /* as x */
    float *dweight;              /* as weight */
    float *dtransition;          /* [groups, heads, values, padded(values)], zeroed */
    float *dstart;               /* as start */
    float *norms;                /* |dL/dS_t|^2 [T, B, heads], or NULL */
};

/* All rows are whole vectors. */
struct scratch {
    float *w, *wt; /* W of each head and its transpose [heads, values, values] */
    float *s;      /* S, and backward dL/dS, of each head [heads, keys, values] */
    float *v, *dy; /* of a step [values] */
    float *c;      /* C of a step, and backward of each step of a group [GROUP, keys, values] */
    float *slots;  /* S before each step of a group and behind it [GROUP + 1, keys, values] */
    float *dz;     /* the gradients of tanh's arguments, as c */
};

/* The floats of S with its rows in whole vectors. */
int64_t nonlinear_memories_size(int64_t keys, int64_t values) { return keys * padded(values); }

/* The number of groups of steps. */
int64_t nonlinear_memories_groups(int64_t steps) { return (steps + GROUP - 1) / GROUP; }

/* What a head reads at a step. */
struct at_step {
    const float *f, *query, *key, *value; /* the query is NULL if the memory is not read */
    int64_t values;                       /* where the value begins in x */
};

INLINE struct at_step at_step(const struct nonlinear_memories *p, int64_t t, int64_t row, int64_t head) {
    const int64_t keys = p->heads * p->keys, place = t * p->batch + row;
    const int64_t weights = place * (p->heads + (1 + p->reads) * keys), values = (place * p->heads + head) * p->values;
    const float *const first = p->weight + weights + p->heads + head * p->keys;
    return (struct at_step){
        p->weight + weights + head, p->reads ? first : NULL, first + p->reads * keys, p->x + values, values,
    };
}

static struct scratch carve_scratch(struct carver *from, const struct nonlinear_memories *p, int backward) {
    const int64_t vp = padded(p->values), size = p->keys * vp, steps = backward ? GROUP : 1;
    struct scratch m = {.w = carve(from, p->heads * p->values * vp)};
    m.wt = carve(from, p->heads * p->values * vp);
    m.s = carve(from, p->heads * size);
    m.v = carve(from, vp);
    m.dy = carve(from, vp);
    m.c = carve(from, steps * size);
    if (!backward) return m;
    m.slots = carve(from, (GROUP + 1) * size);
    m.dz = carve(from, GROUP * size);
    return m;
}

/* C_t and S_t from S_{t-1}, and y_t if it is wanted. */
static void advance(const struct nonlinear_memories *p, const struct at_step *x, const float *w, const float *before,
                    float *c, float *after, float *y, struct scratch *m) {
    const int64_t vp = padded(p->values);
    const vf kept = splat(*x->f), written = 1.0f - kept;
    pad_rows(1, p->values, x->value, m->v);
    product(p->keys, vp, p->values, BY_ROWS(before, vp), w, vp, INTO(0, 1), c, vp);
    for (int64_t col = 0; col < vp; col += VL) {
        const vf value = *(const vf *)(m->v + col);
        vf sum = {0};
        for (int64_t i = 0; i < p->keys; i++) {
            const int64_t at = i * vp + col;
            const vf candidate = hyperbolic_tangent(*(const vf *)(c + at) + value * x->key[i]);
            const vf s = mixture(kept, *(const vf *)(before + at), written, candidate);
            *(vf *)(c + at) = candidate;
            *(vf *)(after + at) = s;
            if (y) sum += s * x->query[i];
        }
        if (y) store(y + col, sum, lanes(p->values - col));
    }
}

/* The gradients of what step t has read. Replaces dL/dS_t `d` by dL/dS_{t-1}. */
static void retreat(const struct nonlinear_memories *p, const struct at_step *x, int64_t norm, const float *wt,
                    const float *before, const float *after, const float *c, float *dz, float *d, struct scratch *m) {
    const int64_t vp = padded(p->values), keys = p->keys;
    const vf kept = splat(*x->f), written = 1.0f - kept;
    float *const df = p->dweight + (x->f - p->weight), *const dkey = p->dweight + (x->key - p->weight);
    float *const dquery = x->query ? p->dweight + (x->query - p->weight) : NULL, *const dvalue = p->dx + x->values;
    vf squares = {0}, by_f = {0};
    pad_rows(1, p->values, x->value, m->v);
    if (p->grad_y) pad_rows(1, p->values, p->grad_y + x->values, m->dy);
    for (int64_t first = 0; first < keys; first += VL) {
        const int rows = lanes(keys - first);
        vf by_query[VL], by_key[VL];
        for (int r = 0; r < VL; r++) by_query[r] = by_key[r] = (vf){0};
        for (int r = 0; r < rows; r++)
            for (int64_t col = 0; col < vp; col += VL) {
                const int64_t at = (first + r) * vp + col;
                const vf arriving = *(const vf *)(m->dy + col), candidate = *(const vf *)(c + at);
                vf g = *(const vf *)(d + at);
                if (x->query) {
                    g += arriving * x->query[first + r];
                    by_query[r] += *(const vf *)(after + at) * arriving;
                }
                const vf by_z = written * g * tangent_slope(candidate);
                squares += g * g;
                by_f += g * (*(const vf *)(before + at) - candidate);
                by_key[r] += by_z * *(const vf *)(m->v + col);
                *(vf *)(dz + at) = by_z;
                *(vf *)(d + at) = kept * g;
            }
        if (dquery) store(dquery + first, sums_of_rows(by_query), rows);
        store(dkey + first, sums_of_rows(by_key), rows);
    }
    *df = sum_of(by_f);
    if (p->norms) p->norms[norm] = sum_of(squares);
    for (int64_t col = 0; col < vp; col += VL) {
        vf sum = {0};
        for (int64_t i = 0; i < keys; i++) sum += *(const vf *)(dz + i * vp + col) * x->key[i];
        store(dvalue + col, sum, lanes(p->values - col));
    }
    product(keys, vp, p->values, BY_ROWS(dz, vp), wt, vp, INTO(1, 1), d, vp);
}

static void forward(const struct nonlinear_memories *p, int64_t row, struct scratch *m) {
    const int64_t vp = padded(p->values), size = p->keys * vp, groups = nonlinear_memories_groups(p->steps);
    const int64_t unit = row * p->heads, numbers = p->keys * p->values;
    pad_rows(p->heads * p->keys, p->values, p->start + unit * numbers, m->s);
    for (int64_t first = 0; first < p->steps; first += GROUP)
        for (int64_t head = 0; head < p->heads; head++) {
            const int64_t stop = first + GROUP < p->steps ? first + GROUP : p->steps;
            float *const s = m->s + head * size;
            if (p->starts) memcpy(p->starts + ((unit + head) * groups + first / GROUP) * size, s, (size_t)(4 * size));
            for (int64_t t = first; t < stop; t++) {
                const struct at_step x = at_step(p, t, row, head);
                advance(p, &x, m->w + head * p->values * vp, s, m->c, s, p->reads ? p->y + x.values : NULL, m);
            }
        }
    copy_rows(p->heads * p->keys, p->values, m->s, vp, p->end + unit * numbers, p->values);
}

static void backward(const struct nonlinear_memories *p, int64_t row, struct scratch *m) {
    const int64_t vp = padded(p->values), size = p->keys * vp, groups = nonlinear_memories_groups(p->steps);
    const int64_t unit = row * p->heads, numbers = p->keys * p->values, matrix = p->values * vp;
    const int64_t group = ((row + 1) * p->groups - 1) / p->batch;
    memset(m->s, 0, (size_t)(4 * p->heads * size));
    if (p->grad_end) pad_rows(p->heads * p->keys, p->values, p->grad_end + unit * numbers, m->s);
    for (int64_t first = (groups - 1) * GROUP; first >= 0; first -= GROUP)
        for (int64_t head = 0; head < p->heads; head++) {
            const int64_t count = first + GROUP < p->steps ? GROUP : p->steps - first;
            struct at_step x[GROUP];
            memcpy(m->slots, p->starts + ((unit + head) * groups + first / GROUP) * size, (size_t)(4 * size));
            for (int64_t t = 0; t < count; t++) {
                float *const s = m->slots + t * size;
                x[t] = at_step(p, first + t, row, head);
                advance(p, x + t, m->w + head * matrix, s, m->c + t * size, s + size, NULL, m);
            }
            for (int64_t t = count - 1; t >= 0; t--) {
                const float *const s = m->slots + t * size;
                retreat(p, x + t, ((first + t) * p->batch + row) * p->heads + head, m->wt + head * matrix, s, s + size,
                        m->c + t * size, m->dz + t * size, m->s + head * size, m);
            }
            product(p->values, vp, count * p->keys, BY_COLUMNS(m->slots, vp), m->dz, vp, INTO(1, 1),
                    p->dtransition + (group * p->heads + head) * matrix, vp);
        }
    copy_rows(p->heads * p->keys, p->values, m->s, vp, p->dstart + unit * numbers, p->values);
}

static int run(const struct nonlinear_memories *p, int64_t first, int64_t last, int is_backward) {
    const int64_t values = p->values, vp = padded(values);
    struct carver size = {NULL, 0};
    carve_scratch(&size, p, is_backward);
    struct carver from = {zeros(size.used), 0};
    if (!from.base) return 1;
    struct scratch m = carve_scratch(&from, p, is_backward);
    const uint64_t denormals = flush_denormals();
    pad_rows(p->heads * values, values, p->transition, m.w);
    for (int64_t head = 0; head < p->heads; head++)
        transpose(values, values, p->transition + head * values * values, values, m.wt + head * values * vp, vp);
    for (int64_t row = first; row < last; row++)
        if (is_backward) backward(p, row, &m);
        else forward(p, row, &m);
    restore_denormals(denormals);
    free(from.base);
    return 0;
}

/* y if it is read, S_T, and for a backward pass starts. Returns nonzero without memory. */
int nonlinear_memories_forward(const struct nonlinear_memories *p, int64_t first, int64_t last) {
    return run(p, first, last, 0);
}

/* The gradients, and the norms if they are needed. Returns nonzero without memory. */
int nonlinear_memories_backward(const struct nonlinear_memories *p, int64_t first, int64_t last) {
    return run(p, first, last, 1);
}
