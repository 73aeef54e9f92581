/* The final memories of heads that decay and are written to, without readings, in float32.
 *
 * Unrolled, the memory after all steps is one sum over them. With R_t = g_{t+1} + ... + g_T, where g = log w,
 *     S_T = f S_0 + sum over t of a_t k_t v_t^T,   a_t = exp(R_t),   f = exp(g_1 + R_1).
 * If the values are a projection v_t = W u_t, the sum is M W^T with M = sum over t of a_t k_t u_t^T, and no value is
 * computed. With G = dL/dS_T, and s over the steps,
 *     dL/dk_t = a_t G v_t,   dL/dv_t = a_t G^T k_t,   dL/dg_t = f <G, S_0> + sum over s < t of k_s^T dL/dk_s.
 * Backward therefore needs no memory except the first.
 *
 * R is summed from the end, because a difference of two long sums would lose the small terms. The caller gives each
 * thread a range of batch rows. */
#include "memory.h"
#include "tiles.h"

enum { CHUNK = 32 }; /* steps of a product */

/* x_t of a row is the value [heads, values], or the inputs from which W computes it. The weight has g [heads] and the key
 * [heads, keys]. What a pass does not need is NULL. */
struct final_memories {
    int64_t steps, batch, heads; /* T, B and the number of heads */
    int64_t keys, values;        /* the sizes of a key and of a value */
    int64_t inputs;              /* the number of inputs, or 0 */
    int64_t groups;              /* groups of rows whose sums are separate */
    const float *x;              /* [T, B, heads * values], or the inputs [T, B, inputs] */
    const float *input_weight;   /* W [heads, values, inputs] */
    const float *weight;         /* [T, B, heads * (1 + keys)] */
    const float *start;          /* S before the first step [B, heads, keys, values] */
    float *end;                  /* S after the last step, as start */
    float *sums;                 /* M^T [B, heads, inputs, padded(keys)], for a backward pass */
    const float *grad_end;       /* as end, or NULL */
    float *dx;                   /* as x, which then has the values */
    float *dweight;              /* as weight */
    float *dinput_weight;        /* [groups, heads, inputs, padded(values)], zeroed */
    float *dstart;               /* as start */
    float *norms;                /* |dL/dS_t|^2 [T, B, heads], or NULL */
};

/* Numbers of a batch row's head; all rows of matrices are whole vectors. */
struct scratch {
    float *map;        /* W^T of all heads [heads, inputs, values] */
    float *weight;     /* a [steps] */
    float *k, *x;      /* the keys [CHUNK, keys], and the values or inputs [CHUNK, columns] */
    float *dk, *dv;    /* the gradients of keys and values */
    float *start;      /* S_0 [keys, values] */
    float *s;          /* S, and backward G [keys, values] */
    float *transposed; /* likewise [values, keys] */
    float *m;          /* M^T, and backward (G W)^T [inputs, keys] */
};

INLINE int64_t width_of(const struct final_memories *p) { return p->heads * p->values; }
INLINE int64_t weights_of(const struct final_memories *p) { return p->heads * (1 + p->keys); }

/* The columns of x that belong to a head. */
INLINE int64_t columns_of(const struct final_memories *p) { return p->inputs ? p->inputs : p->values; }

static struct scratch carve_scratch(struct carver *from, const struct final_memories *p) {
    const int64_t kp = padded(p->keys), vp = padded(p->values), cp = padded(columns_of(p));
    struct scratch m = {.map = carve(from, p->heads * p->inputs * vp)};
    m.weight = carve(from, padded(p->steps));
    m.k = carve(from, CHUNK * kp);
    m.x = carve(from, CHUNK * cp);
    m.dk = carve(from, CHUNK * kp);
    m.dv = carve(from, CHUNK * vp);
    m.start = carve(from, kp * vp);
    m.s = carve(from, kp * vp);
    m.transposed = carve(from, kp * vp);
    m.m = carve(from, p->inputs * kp);
    return m;
}

static void fill_map(const struct final_memories *p, struct scratch *m) {
    const int64_t vp = padded(p->values);
    for (int64_t head = 0; head < p->heads; head++)
        for (int64_t i = 0; i < p->inputs; i++)
            for (int64_t j = 0; j < p->values; j++)
                m->map[(head * p->inputs + i) * vp + j] = p->input_weight[(head * p->values + j) * p->inputs + i];
}

/* a of all steps; returns f. The first head also requests the row's keys, whose lines are far apart. */
static float weigh(const struct final_memories *p, int64_t row, int64_t head, struct scratch *m) {
    const int64_t width = weights_of(p);
    float later = 0;
    for (int64_t t = p->steps - 1; t >= 0; t--) {
        const float *const weight = p->weight + (t * p->batch + row) * width;
        m->weight[t] = later;
        later += weight[head];
        if (!head)
            for (int64_t c = 16; c < width; c += 16) prefetch(weight + c, 0);
    }
    for (int64_t t = 0; t < p->steps; t += VL) *(vf *)(m->weight + t) = exponential(*(const vf *)(m->weight + t));
    return exponential(splat(later))[0];
}

/* The keys, and the values or inputs, of the steps [first, first + count). */
static void load_chunk(const struct final_memories *p, int64_t row, int64_t head, int64_t first, int64_t count,
                       struct scratch *m) {
    const int64_t kp = padded(p->keys), columns = columns_of(p), width = p->inputs ? p->inputs : width_of(p);
    const float *const keys = p->weight + (first * p->batch + row) * weights_of(p) + p->heads + head * p->keys;
    const float *const x = p->x + (first * p->batch + row) * width + (p->inputs ? 0 : head * p->values);
    for (int64_t c = 0; c < kp; c += VL)
        for (int64_t t = 0; t < count; t++)
            *(vf *)(m->k + t * kp + c) = load(keys + t * p->batch * weights_of(p) + c, lanes(p->keys - c));
    for (int64_t c = 0; c < columns; c += VL)
        for (int64_t t = 0; t < count; t++)
            *(vf *)(m->x + t * padded(columns) + c) = load(x + t * p->batch * width + c, lanes(columns - c));
}

/* Runs its argument for each chunk of `count` steps from `first` on. */
#define EACH_CHUNK(...)                                                                 \
    for (int64_t first = 0; first < p->steps; first += CHUNK) {                         \
        const int64_t count = p->steps - first < CHUNK ? p->steps - first : CHUNK;      \
        load_chunk(p, row, head, first, count, m);                                      \
        __VA_ARGS__                                                                     \
    }

static void forward(const struct final_memories *p, int64_t row, int64_t head, struct scratch *m) {
    const int64_t keys = p->keys, kp = padded(keys), values = p->values, vp = padded(values), columns = columns_of(p);
    const int64_t unit = row * p->heads + head, size = keys * values, inputs = p->inputs;
    const float kept = weigh(p, row, head, m);
    float *const sums = inputs ? m->m : m->transposed;
    pad_rows(keys, values, p->start + unit * size, m->s);
    for (int64_t i = 0; i < keys * vp; i += VL) *(vf *)(m->s + i) *= kept;
    if (inputs) memset(sums, 0, (size_t)(4 * inputs * kp));
    else transpose(keys, vp, m->s, vp, sums, kp);
    EACH_CHUNK({
        for (int64_t t = 0; t < count; t++)
            for (int64_t c = 0; c < kp; c += VL) *(vf *)(m->k + t * kp + c) *= m->weight[first + t];
        product(columns, kp, count, BY_COLUMNS(m->x, padded(columns)), m->k, kp, INTO(1, 1), sums, kp);
    })
    if (inputs) {
        if (p->sums) memcpy(p->sums + unit * inputs * kp, sums, (size_t)(4 * inputs * kp));
        product(keys, vp, inputs, BY_COLUMNS(sums, kp), m->map + head * inputs * vp, vp, INTO(1, 1), m->s, vp);
    } else transpose(values, kp, sums, kp, m->s, vp);
    copy_rows(keys, values, m->s, vp, p->end + unit * size, values);
}

static void backward(const struct final_memories *p, int64_t row, int64_t head, int64_t group, struct scratch *m) {
    const int64_t keys = p->keys, kp = padded(keys), values = p->values, vp = padded(values), columns = columns_of(p);
    const int64_t unit = row * p->heads + head, size = keys * values, inputs = p->inputs;
    const float kept = weigh(p, row, head, m);
    pad_rows(keys, values, p->start + unit * size, m->start);
    if (p->grad_end) pad_rows(keys, values, p->grad_end + unit * size, m->s);
    else memset(m->s, 0, (size_t)(4 * keys * vp));
    transpose(keys, vp, m->s, vp, m->transposed, kp);
    const float squares = dot(m->s, m->s, keys * vp);
    double written = (double)kept * dot(m->s, m->start, keys * vp);
    if (inputs) {
        const float *const map = m->map + head * inputs * vp;
        product(inputs, kp, values, BY_ROWS(map, vp), m->transposed, kp, INTO(0, 1), m->m, kp);
        product(inputs, vp, keys, BY_ROWS(p->sums + unit * inputs * kp, kp), m->s, vp, INTO(1, 1),
                p->dinput_weight + (group * p->heads + head) * inputs * vp, vp);
    }
    EACH_CHUNK({
        const float *const weight = m->weight + first;
        product(count, kp, columns, BY_ROWS(m->x, padded(columns)), inputs ? m->m : m->transposed, kp,
                INTO(0, 1, weight), m->dk, kp);
        if (!inputs) product(count, vp, keys, BY_ROWS(m->k, kp), m->s, vp, INTO(0, 1, weight), m->dv, vp);
        for (int64_t t = 0; t < count; t++) {
            const int64_t place = (first + t) * p->batch + row;
            float *const dweight = p->dweight + place * weights_of(p);
            dweight[head] = (float)written;
            written += dot(m->k + t * kp, m->dk + t * kp, kp);
            copy_rows(1, keys, m->dk + t * kp, kp, dweight + p->heads + head * keys, keys);
            if (!inputs)
                copy_rows(1, values, m->dv + t * vp, vp, p->dx + place * width_of(p) + head * values, values);
            if (p->norms) p->norms[place * p->heads + head] = weight[t] * weight[t] * squares;
        }
    })
    for (int64_t i = 0; i < keys * vp; i += VL) *(vf *)(m->s + i) *= kept;
    copy_rows(keys, values, m->s, vp, p->dstart + unit * size, values);
}

static int run(const struct final_memories *p, int64_t from, int64_t to, int is_backward) {
    struct carver size = {NULL, 0};
    carve_scratch(&size, p);
    struct carver memory = {zeros(size.used), 0};
    if (!memory.base) return 1;
    struct scratch m = carve_scratch(&memory, p);
    const uint64_t denormals = flush_denormals();
    fill_map(p, &m);
    for (int64_t row = from, group = 0; row < to; row++) {
        while (row >= p->batch * (group + 1) / p->groups) group++;
        for (int64_t head = 0; head < p->heads; head++) {
            if (is_backward) backward(p, row, head, group, &m);
            else forward(p, row, head, &m);
        }
    }
    restore_denormals(denormals);
    free(memory.base);
    return 0;
}

/* S_T of the rows in [first, last), and for a backward pass the sums. Returns nonzero without memory. */
int final_memories_forward(const struct final_memories *p, int64_t first, int64_t last) { return run(p, first, last, 0); }

/* The gradients of the rows in [first, last), which are whole groups, and the norms if they are needed. Returns nonzero
 * without memory. */
int final_memories_backward(const struct final_memories *p, int64_t first, int64_t last) { return run(p, first, last, 1); }
