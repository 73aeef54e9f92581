/* RWKV-7's memories in float32: S_t = (diag(w_t) - b_t u_t^T) S_{t-1} + k_t v_t^T, y_t = S_t^T q_t, b = a o u.
 *
 * A chunk of steps is a few products of matrices. With P_t = w_1 o ... o w_t, the memory S_t / P_t changes only by what
 * is written. It is S_0 + H^T Z: the rows of H are k_s / P_s and -b_s / P_s. Those of Z are v_s and what was found, f_s =
 * u_s^T S_{s-1}. Two kinds of rows X read the memory: u_t o P_{t-1} finds f_t, and q_t o P_t reads y_t. Both are
 * X S_0 + A Z, where A is the part of X H^T below its diagonal, and f follows by substitution. As w is above 0.545, P
 * stays above 6e-5 in 16 steps, and 1 / P is harmless.
 *
 * x may be computed from a few inputs, and its last features give decays and rates. The caller gives each thread a range
 * of batch rows, and a row walks through time with the memories of all its heads. Backward computes each chunk again
 * from the memories stored before it. Groups of rows have sums of their own, so that no sum depends on the number of
 * threads.
 *
 * The code in its order. X = [X_u; X_q] has the rows u_t o P_{t-1} and q_t o P_t, H = [H_k; H_b] the rows k_s / P_s and
 * -b_s / P_s, and Z = [V; F]. A is X H^T, of which a row of X_u takes part below the diagonal, and one of X_q also on it.
 * P is that behind the chunk, and a prime marks what is behind it. Gradients have the name with a d.
 *
 *     fill_rows     X, H and V from x, the decays and the rates of one head
 *     find          A^T = H X^T                              1st product, m->a
 *                   F = X_u S + A_uk V + A_ub F              2nd product, add_below, and substitute for F itself
 *     read          Y = X_q S + A_qk V + A_qb F              product, and add_below for both halves of Z
 *     advance       S' = P o (S + H^T Z)                     product into s, and a factor for each row
 *
 *     retreat       G = P o dS'                              m->g, and transposed in `gt`
 *                   dZ = H G                                 1st product, m->dz
 *                   dF += A_qb^T dY + A_ub^T dF              add_below and substitute, the last step first
 *                   dV += A_qk^T dY + A_uk^T dF              add_below twice
 *                   dA^T = Z [dF; dY]^T                      2nd product, in the place of A
 *                   dX = [dF; dY] S^T + dA H                 3rd product, and add_below for both halves of H
 *                   dH = Z G^T + dA^T X                      4th product, and add_below for the rows of X
 *                   dS = G + X^T [dF; dY]                    last product, transposed in `gt`
 *     gradients_of_rows
 *                   d log w_t from the sum over values of S_t o dS_t, which loses H o dH and gains X o dX on its way
 *                   back; then the chain rule from X and H to q, k, u, decays, rates and their maps
 *
 * The forward pass keeps S before each chunk (`starts`), and nothing of its steps. Backward repeats fill_rows and find. */
#include "memory.h"
#include "tiles.h"

enum { CHUNK = TRIANGLE }; /* steps */

/* x_t of a row is the query [heads, keys] if the memory is read, the key [heads, keys], the value [heads, values], and d and
 * e [low]. With n = heads * keys, one matrix [n, low] maps tanh(d) to pre-activations of decays, and one e to those of
 * rates. What a pass does not need is NULL. */
struct rwkv7 {
    int64_t steps, batch, heads; /* T, B and the number of heads */
    int64_t keys, values;        /* the sizes of a key and of a value */
    int64_t low;                 /* the number of features from which decays, and likewise rates, are computed */
    int64_t reads;               /* whether queries read the memory */
    int64_t inputs;              /* the number of inputs from which x is computed, or 0 */
    int64_t groups;              /* groups of rows whose sums are separate */
    float epsilon;               /* the least length by which u is divided */
    const float *x;              /* [T, B, width], or the inputs [T, B, inputs] */
    const float *input_weight;   /* [width, inputs] */
    const float *input_first;    /* what is added to x_1 [B, width] */
    const float *weight;         /* of decays [n, low] */
    const float *decay_bias;     /* [n] */
    const float *rate_weight;    /* [n, low] */
    const float *rate_bias;      /* [n] */
    const float *key_scale;      /* [n] */
    const float *key_rate;       /* [n] */
    const float *start;          /* S before the first step [B, heads, keys, values] */
    float *y;                    /* [T, B, heads, values] */
    float *starts;               /* S before each chunk [B, chunks, heads, keys, padded(values)] */
    float *end;                  /* S after the last step, as start */
    const float *grad_y;         /* as y, or NULL */
    const float *grad_end;       /* as end, or NULL */
    float *dx;                   /* as x, which has then not been computed from inputs */
    float *dinput_weight;        /* [groups, width, inputs], zeroed */
    float *dinput_first;         /* as input_first */
    float *dweight;              /* [groups, n, padded(low)], zeroed */
    float *ddecay_bias;          /* [groups, n], zeroed */
    float *drate_weight;         /* [groups, n, padded(low)], zeroed */
    float *drate_bias;           /* [groups, n], zeroed */
    float *dkey_scale;           /* [groups, n], zeroed */
    float *dkey_rate;            /* [groups, n], zeroed */
    float *dstart;               /* as start */
    float *norms;                /* |dL/dS_t|^2 [T, B, heads], or NULL */
};

/* What a chunk is computed from, and its gradients; all rows are whole vectors, and so are the parts of x. */
struct scratch {
    float *input_map;    /* [inputs, wide] */
    float *low_maps[2];  /* of decays and rates, transposed [low, heads, keys] */
    float *low_rows[2];  /* as they are [heads, keys, low] */
    float *all_x;        /* x with tanh(d) instead of d [CHUNK, wide] */
    float *inputs;       /* [CHUNK, inputs] */
    float *x;            /* u o P of the step before, and if the memory is read q o P [2, CHUNK, keys] */
    float *h;            /* k / P and -b / P [2, CHUNK, keys] */
    float *z;            /* v and f [2, CHUNK, values] */
    float *y;            /* [CHUNK, values] */
    float *p, *inverse;  /* P before each step and behind the last one [CHUNK + 1, keys], and 1 / P [CHUNK, keys] */
    float *u;            /* [CHUNK, keys] */
    float *decay, *rate; /* s(z) and a = s(p) [CHUNK, keys] */
    float *squares;      /* |k o key_scale|^2 [CHUNK] */
    float *length;       /* 1 / max(|k o key_scale|, epsilon) [CHUNK] */
    float *a;            /* (X H^T)^T [2, CHUNK, readers] */
    float *columns;      /* X^T, or backward that of the gradients of what it reads [keys or values, readers] */
    float *memories;     /* S of each head [heads, keys, values], or backward dL/dS^T [heads, values, keys] */
    float *along;        /* the sums over values of S o dL/dS of each head [heads, keys] */
    float *st, *g;       /* S^T before the chunk [values, keys] and dL/d(S / P) behind it [keys, values] */
    float *dx, *dh;      /* as x and h */
    float *dz;           /* gradients of v, f and y [3, CHUNK, values] */
    float *dlog, *drate; /* gradients of log w, and then of z, and of p [CHUNK, keys] */
    float *dall_x;       /* as all_x */
    float *dinput_map;   /* as input_map */
    struct ahead ahead;  /* the memory that backward reads next */
};

INLINE int64_t width_of(const struct rwkv7 *p) { return p->heads * ((p->reads + 1) * p->keys + p->values) + 2 * p->low; }

/* Where keys, values and d begin in x with its parts in whole vectors, and its floats. */
INLINE int64_t keys_at(const struct rwkv7 *p) { return p->reads * p->heads * padded(p->keys); }
INLINE int64_t values_at(const struct rwkv7 *p) { return (p->reads + 1) * p->heads * padded(p->keys); }
INLINE int64_t low_at(const struct rwkv7 *p) { return values_at(p) + p->heads * padded(p->values); }
INLINE int64_t wide_of(const struct rwkv7 *p) { return low_at(p) + 2 * padded(p->low); }

/* The number of rows that read the memory. */
INLINE int64_t readers(const struct rwkv7 *p) { return (p->reads + 1) * CHUNK; }

INLINE int reading(const struct rwkv7 *p) { return p->reads && p->grad_y; }

/* The floats of S with its rows in whole vectors. */
int64_t rwkv7_size(int64_t keys, int64_t values) { return keys * padded(values); }

/* The number of chunks. */
int64_t rwkv7_groups(int64_t steps) { return (steps + CHUNK - 1) / CHUNK; }

static struct scratch carve_scratch(struct carver *from, const struct rwkv7 *p, int backward) {
    const int64_t kp = padded(p->keys), vp = padded(p->values), most = kp > vp ? kp : vp, lp = padded(p->low);
    const int64_t wide = wide_of(p), n = p->heads * kp;
    struct scratch m = {.input_map = carve(from, p->inputs * wide)};
    for (int i = 0; i < 2; i++) {
        m.low_maps[i] = carve(from, p->low * n);
        m.low_rows[i] = carve(from, n * lp);
    }
    m.all_x = carve(from, CHUNK * wide);
    m.inputs = carve(from, CHUNK * p->inputs);
    m.x = carve(from, 2 * CHUNK * kp);
    m.h = carve(from, 2 * CHUNK * kp);
    m.z = carve(from, 2 * CHUNK * vp);
    m.y = carve(from, CHUNK * vp);
    m.p = carve(from, (CHUNK + 1) * kp);
    m.inverse = carve(from, CHUNK * kp);
    m.u = carve(from, CHUNK * kp);
    m.decay = carve(from, CHUNK * kp);
    m.rate = carve(from, CHUNK * kp);
    m.squares = carve(from, CHUNK);
    m.length = carve(from, CHUNK);
    m.a = carve(from, 4 * CHUNK * CHUNK);
    m.columns = carve(from, 2 * CHUNK * most);
    m.memories = carve(from, p->heads * kp * vp);
    if (!backward) return m;
    m.along = carve(from, n);
    m.st = carve(from, kp * vp);
    m.g = carve(from, kp * vp);
    m.dx = carve(from, 2 * CHUNK * kp);
    m.dh = carve(from, 2 * CHUNK * kp);
    m.dz = carve(from, 3 * CHUNK * vp);
    m.dlog = carve(from, CHUNK * kp);
    m.drate = carve(from, CHUNK * kp);
    m.dall_x = carve(from, CHUNK * wide);
    m.dinput_map = carve(from, p->inputs * wide);
    return m;
}

static void clear_rows(int64_t first, int64_t width, float *rows) {
    memset(rows + first * width, 0, (size_t)(4 * (CHUNK - first) * width));
}

/* Runs its argument for each part of x: the heads' queries, keys and values, d and e. `at` is its place in a row of x, and
 * `at_wide` that in a row of whole vectors. */
#define EACH_PART(...)                                                                                      \
    for (int64_t at = 0, at_wide = 0; at < width_of(p);) {                                                  \
        const int64_t size = at_wide < values_at(p) ? p->keys : at_wide < low_at(p) ? p->values : p->low; \
        __VA_ARGS__                                                                                         \
        at += size, at_wide += padded(size);                                                                \
    }

/* The maps in the layouts of the products. */
static void fill_maps(const struct rwkv7 *p, struct scratch *m) {
    const int64_t kp = padded(p->keys), n = p->heads * kp, lp = padded(p->low), wide = wide_of(p);
    const float *const maps[] = {p->weight, p->rate_weight};
    for (int i = 0; i < 2; i++)
        for (int64_t head = 0; head < p->heads; head++) {
            float *const rows = m->low_rows[i] + head * kp * lp;
            copy_rows(p->keys, p->low, maps[i] + head * p->keys * p->low, p->low, rows, lp);
            transpose(kp, p->low, rows, lp, m->low_maps[i] + head * kp, n);
        }
    EACH_PART({
        for (int64_t i = 0; i < p->inputs; i++)
            for (int64_t j = 0; j < size; j++)
                m->input_map[i * wide + at_wide + j] = p->input_weight[(at + j) * p->inputs + i];
    })
}

INLINE void project_some(const int inputs, int64_t wide, const float *map, const float *u, float *x) {
    for (int64_t c = 0; c < wide; c += VL) {
        vf sum = *(const vf *)(map + c) * u[0];
        for (int i = 1; i < inputs; i++) sum += *(const vf *)(map + i * wide + c) * u[i];
        *(vf *)(x + c) = sum;
    }
}

/* x of a step [wide] from its inputs, which are usually one value and the one before it. */
static void project(int64_t inputs, int64_t wide, const float *map, const float *u, float *x) {
    if (inputs == 2) project_some(2, wide, map, u, x);
    else project_some((int)inputs, wide, map, u, x);
}

/* x of the steps [first, first + count), and 0 behind them. That of a chunk `ahead` steps further is fetched. */
static void fill_x(const struct rwkv7 *p, int64_t row, int64_t first, int64_t count, int64_t ahead, struct scratch *m) {
    const int64_t wide = wide_of(p), width = width_of(p), inputs = p->inputs;
    for (int64_t t = 0; t < count; t++) {
        const int64_t place = (first + t) * p->batch + row;
        float *const to = m->all_x + t * wide;
        if (inputs) {
            memcpy(m->inputs + t * inputs, p->x + place * inputs, (size_t)(4 * inputs));
            project(inputs, wide, m->input_map, m->inputs + t * inputs, to);
        } else {
            for (int64_t c = 0; c < width; c += 16) prefetch(p->x + place * width + c, ahead * p->batch * width);
            EACH_PART({ copy_rows(1, size, p->x + place * width + at, 0, to + at_wide, 0); })
        }
        if (first + t == 0 && p->input_first)
            EACH_PART({
                for (int64_t c = 0; c < size; c += VL)
                    *(vf *)(to + at_wide + c) += load(p->input_first + row * width + at + c, lanes(size - c));
            })
        for (int64_t c = low_at(p); c < low_at(p) + p->low; c += VL)
            *(vf *)(to + c) = hyperbolic_tangent(*(const vf *)(to + c));
    }
    clear_rows(count, wide, m->all_x);
}

/* w = exp(-e^(-1/2) s) of s in [0, 1]: a fit of least relative error, 1e-9, and with the rounding 1e-7; 1 at 0. */
INLINE vf decay_of(vf s) {
    vf series = splat(5.112139479e-05f);
    series = series * s + -6.604535156e-04f;
    series = series * s + 5.623290315e-03f;
    series = series * s + -3.718299791e-02f;
    series = series * s + 1.839388609e-01f;
    series = series * s + -6.065306067e-01f;
    return series * s + 1.0f;
}

/* X, H, v and P of a chunk. */
static void fill_rows(const struct rwkv7 *p, int64_t head, int64_t count, struct scratch *m) {
    const int64_t keys = p->keys, kp = padded(keys), vp = padded(p->values), n = p->heads * kp, lp = padded(p->low);
    const int64_t wide = wide_of(p), at = head * keys;
    const float *const query = m->all_x + head * kp, *const key = query + keys_at(p), *const low = m->all_x + low_at(p);
    product(CHUNK, kp, p->low, BY_ROWS(low, wide), m->low_maps[0] + head * kp, n, INTO(0, 1), m->decay, kp);
    product(CHUNK, kp, p->low, BY_ROWS(low + lp, wide), m->low_maps[1] + head * kp, n, INTO(0, 1), m->rate, kp);
    for (int64_t t = 0; t < CHUNK; t++) {
        vf squares = {0};
        for (int64_t c = 0; c < kp; c += VL) {
            const vf u = *(const vf *)(key + t * wide + c) * load(p->key_scale + at + c, lanes(keys - c));
            squares += u * u;
        }
        m->squares[t] = sum_of(squares);
    }
    for (int64_t t = 0; t < CHUNK; t += VL) {
        vf root;
        square_roots(at_least(*(const vf *)(m->squares + t), p->epsilon * p->epsilon), &root, (vf *)(m->length + t));
    }
    for (int64_t c = 0; c < kp; c += VL) {
        const int used = lanes(keys - c);
        const vf key_scale = load(p->key_scale + at + c, used), key_rate = load(p->key_rate + at + c, used);
        const vf decay_bias = load(p->decay_bias + at + c, used), rate_bias = load(p->rate_bias + at + c, used);
        vf before = splat(1.0f);
        for (int64_t t = 0; t < count; t++) {
            const int64_t i = t * kp + c;
            const vf k = *(const vf *)(key + t * wide + c), u = k * key_scale * m->length[t];
            const vf decay = short_sigmoid(*(const vf *)(m->decay + i) + decay_bias);
            const vf rate = short_sigmoid(*(const vf *)(m->rate + i) + rate_bias);
            const vf after = before * decay_of(decay), inverse = reciprocal(after);
            *(vf *)(m->u + i) = u;
            *(vf *)(m->decay + i) = decay;
            *(vf *)(m->rate + i) = rate;
            *(vf *)(m->p + i) = before;
            *(vf *)(m->inverse + i) = inverse;
            *(vf *)(m->x + i) = u * before;
            *(vf *)(m->h + i) = (k + k * (rate - 1.0f) * key_rate) * inverse;
            *(vf *)(m->h + CHUNK * kp + i) = -u * rate * inverse;
            if (p->reads) *(vf *)(m->x + CHUNK * kp + i) = *(const vf *)(query + t * wide + c) * after;
            before = after;
        }
        *(vf *)(m->p + count * kp + c) = before;
    }
    copy_rows(CHUNK, vp, m->all_x + values_at(p) + head * vp, wide, m->z, vp);
    if (count == CHUNK) return;
    float *const rows[] = {m->x, m->x + CHUNK * kp, m->h, m->h + CHUNK * kp};
    for (int i = 0; i < 4; i++) clear_rows(count, kp, rows[i]);
    memcpy(m->p + CHUNK * kp, m->p + count * kp, (size_t)(4 * kp));
}

/* A, and what the rows find in the memory `s` [keys, values] before the chunk. */
INLINE void find(const struct rwkv7 *p, const float *s, struct scratch *m) {
    const int64_t keys = p->keys, kp = padded(keys), vp = padded(p->values), rows = readers(p);
    float *const f = m->z + CHUNK * vp;
    transpose(rows, keys, m->x, kp, m->columns, rows);
    product(2 * CHUNK, rows, keys, BY_ROWS(m->h, kp), m->columns, rows, INTO(0, 1), m->a, rows);
    product(CHUNK, vp, keys, BY_ROWS(m->x, kp), s, vp, INTO(0, 1), f, vp);
    for (int64_t c = 0; c < vp; c += VL) {
        vf sums[CHUNK];
        load_rows(f + c, vp, sums);
        add_below(0, *BY_COLUMNS(m->a, rows), m->z + c, vp, sums);
        substitute(*BY_COLUMNS(m->a + CHUNK * rows, rows), sums);
        store_rows(sums, f + c, vp);
    }
}

/* y of a chunk. */
INLINE void read(const struct rwkv7 *p, const float *s, struct scratch *m) {
    const int64_t kp = padded(p->keys), vp = padded(p->values), rows = readers(p);
    product(CHUNK, vp, p->keys, BY_ROWS(m->x + CHUNK * kp, kp), s, vp, INTO(0, 1), m->y, vp);
    for (int64_t c = 0; c < vp; c += VL) {
        vf sums[CHUNK];
        load_rows(m->y + c, vp, sums);
        for (int half = 0; half < 2 * CHUNK; half += CHUNK)
            add_below(1, *BY_COLUMNS(m->a + half * rows + CHUNK, rows), m->z + half * vp + c, vp, sums);
        store_rows(sums, m->y + c, vp);
    }
}

INLINE void advance(const struct rwkv7 *p, float *s, struct scratch *m) {
    const int64_t kp = padded(p->keys), vp = padded(p->values);
    find(p, s, m);
    if (p->reads) read(p, s, m);
    product(p->keys, vp, 2 * CHUNK, BY_COLUMNS(m->h, kp), m->z, vp, INTO(1, 1), s, vp);
    for (int64_t i = 0; i < p->keys; i++)
        for (int64_t c = 0; c < vp; c += VL) *(vf *)(s + i * vp + c) *= m->p[CHUNK * kp + i];
}

/* Calls BODY with p, or with constants for the usual sizes. */
#define EACH_SIZE(BODY)                                                                                     \
    if (p->keys == 32 && p->values == 32 && !p->reads) BODY((&(const struct rwkv7){.keys = 32, .values = 32})); \
    else BODY(p)

static void forward(const struct rwkv7 *p, int64_t row, struct scratch *m) {
    const int64_t keys = p->keys, values = p->values, vp = padded(values), size = keys * vp, all = p->heads * values;
    copy_rows(p->heads * keys, values, p->start + row * keys * all, values, m->memories, vp);
    for (int64_t first = 0; first < p->steps; first += CHUNK) {
        const int64_t count = first + CHUNK < p->steps ? CHUNK : p->steps - first;
        if (p->starts) {
            float *const to = p->starts + (row * rwkv7_groups(p->steps) + first / CHUNK) * p->heads * size;
            for (int64_t i = 0; i < p->heads * size; i += VL) stream(to + i, *(const vf *)(m->memories + i));
        }
        fill_x(p, row, first, count, CHUNK, m);
        for (int64_t head = 0; head < p->heads; head++) {
            fill_rows(p, head, count, m);
#define ADVANCE(P) advance(P, m->memories + head * size, m)
            EACH_SIZE(ADVANCE);
#undef ADVANCE
            if (p->reads)
                copy_rows(count, values, m->y, vp, p->y + (first * p->batch + row) * all + head * values, p->batch * all);
        }
    }
    copy_rows(p->heads * keys, values, m->memories, vp, p->end + row * keys * all, values);
}

/* The gradients of X, H and Z, given dL/dS^T `gt` behind the chunk, which becomes that before it. */
INLINE void retreat(const struct rwkv7 *p, const float *s, float *gt, struct scratch *m) {
    const int64_t keys = p->keys, values = p->values, kp = padded(keys), vp = padded(values);
    const int is_reading = reading(p);
    const int64_t ld = readers(p), rows = is_reading ? ld : CHUNK;
    float *const df = m->dz + CHUNK * vp, *const dy = df + CHUNK * vp;
    for (int64_t j = 0; j < values; j++)
        for (int64_t c = 0; c < kp; c += VL) *(vf *)(gt + j * kp + c) *= *(const vf *)(m->p + CHUNK * kp + c);
    transpose(values, kp, gt, kp, m->g, vp);
    request_some(&m->ahead, 0);
    product(2 * CHUNK, vp, keys, BY_ROWS(m->h, kp), m->g, vp, INTO(0, 1), m->dz, vp);
    request_some(&m->ahead, 0);
    for (int64_t c = 0; c < vp; c += VL) {
        const int64_t last = (CHUNK - 1) * vp + c;
        vf sums[CHUNK];
        load_rows(df + last, -vp, sums);
        if (is_reading) add_below(1, reversed(*BY_ROWS(m->a + CHUNK * ld + CHUNK, ld)), dy + last, -vp, sums);
        substitute(reversed(*BY_ROWS(m->a + CHUNK * ld, ld)), sums);
        store_rows(sums, df + last, -vp);
        load_rows(m->dz + last, -vp, sums);
        if (is_reading) add_below(1, reversed(*BY_ROWS(m->a + CHUNK, ld)), dy + last, -vp, sums);
        add_below(0, reversed(*BY_ROWS(m->a, ld)), df + last, -vp, sums);
        store_rows(sums, m->dz + last, -vp);
    }
    float *const da = m->a; /* A is not needed again */
    transpose(rows, vp, df, vp, m->columns, rows);
    request_some(&m->ahead, 0);
    product(2 * CHUNK, rows, values, BY_ROWS(m->z, vp), m->columns, rows, INTO(0, 1), da, rows);
    request_some(&m->ahead, 0);
    transpose(keys, vp, s, vp, m->st, kp);
    request_some(&m->ahead, 0);
    product(rows, kp, values, BY_ROWS(df, vp), m->st, kp, INTO(0, 1), m->dx, kp);
    request_some(&m->ahead, 0);
    product(2 * CHUNK, kp, values, BY_ROWS(m->z, vp), gt, kp, INTO(0, 1), m->dh, kp);
    request_some(&m->ahead, 0);
    for (int64_t c = 0; c < kp; c += VL) {
        const int64_t last = (CHUNK - 1) * kp + c;
        vf sums[CHUNK];
        load_rows(m->dx + c, kp, sums);
        for (int half = 0; half < 2 * CHUNK; half += CHUNK)
            add_below(0, *BY_COLUMNS(da + half * rows, rows), m->h + half * kp + c, kp, sums);
        store_rows(sums, m->dx + c, kp);
        for (int half = 0; half < 2 * CHUNK; half += CHUNK) {
            load_rows(m->dh + half * kp + last, -kp, sums);
            add_below(0, reversed(*BY_ROWS(da + half * rows, rows)), m->x + last, -kp, sums);
            if (is_reading)
                add_below(1, reversed(*BY_ROWS(da + half * rows + CHUNK, rows)), m->x + CHUNK * kp + last, -kp, sums);
            store_rows(sums, m->dh + half * kp + last, -kp);
        }
        if (!is_reading) continue;
        load_rows(m->dx + CHUNK * kp + c, kp, sums);
        for (int half = 0; half < 2 * CHUNK; half += CHUNK)
            add_below(1, *BY_COLUMNS(da + half * rows + CHUNK, rows), m->h + half * kp + c, kp, sums);
        store_rows(sums, m->dx + CHUNK * kp + c, kp);
    }
    product(values, kp, rows, BY_COLUMNS(df, vp), m->x, kp, INTO(1, 1), gt, kp);
    request_some(&m->ahead, 0);
}

/* |dL/dS_t|^2 of a chunk, from dL/d(S / P) behind it and the gradients of what was read, which `retreat` has computed. */
static void fill_norms(const struct rwkv7 *p, int64_t row, int64_t head, int64_t first, int64_t count,
                       const struct scratch *m) {
    const int64_t kp = padded(p->keys), vp = padded(p->values);
    float *const norms = p->norms + (first * p->batch + row) * p->heads + head;
    for (int64_t t = 0; t < count; t++) norms[t * p->batch * p->heads] = 0;
    for (int64_t i = 0; i < p->keys; i++)
        for (int64_t c = 0; c < vp; c += VL) {
            vf g = *(const vf *)(m->g + i * vp + c);
            for (int64_t t = count - 1; t >= 0; t--) {
                const float *const df = m->dz + (CHUNK + t) * vp + c, *const x = m->x + t * kp + i;
                if (reading(p)) g += *(const vf *)(df + CHUNK * vp) * x[CHUNK * kp];
                const vf by_s = g * m->inverse[t * kp + i];
                norms[t * p->batch * p->heads] += sum_of(by_s * by_s);
                g += *(const vf *)df * *x;
            }
        }
}

/* The sums over values of S^T o dL/dS^T. */
static void sum_along(const struct rwkv7 *p, const float *gt, const struct scratch *m, float *along) {
    const int64_t kp = padded(p->keys);
    for (int64_t c = 0; c < kp; c += VL) {
        vf sums[4] = {{0}}; /* because each waits for the one before it */
        for (int64_t j = 0; j < p->values; j++)
            sums[j % 4] += *(const vf *)(m->st + j * kp + c) * *(const vf *)(gt + j * kp + c);
        *(vf *)(along + c) = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
}

/* The gradients of the chunk's x, decays and rates. `along` is the sum over values of S o dL/dS behind the chunk. Walking
 * back, it gains what queries read of it and loses what was written, and is then the gradient of log w. */
static void gradients_of_rows(const struct rwkv7 *p, int64_t group, int64_t head, int64_t count, const float *along,
                              struct scratch *m) {
    const int64_t keys = p->keys, kp = padded(keys), vp = padded(p->values), wide = wide_of(p), at = head * keys;
    const int64_t lp = padded(p->low), at_group = group * p->heads * keys + at;
    const float least = -0.60653065971263342f;
    const float *const key = m->all_x + keys_at(p) + head * kp, *const low = m->all_x + low_at(p);
    float *const dquery = m->dall_x + head * kp, *const dkey = dquery + keys_at(p);
    float projected[CHUNK];
    for (int64_t c = 0; c < kp; c += VL) {
        vf sum = *(const vf *)(along + c);
        for (int64_t t = count - 1; t >= 0; t--) {
            const int64_t i = t * kp + c, b = CHUNK * kp + i;
            sum -= *(const vf *)(m->h + i) * *(const vf *)(m->dh + i) + *(const vf *)(m->h + b) * *(const vf *)(m->dh + b);
            if (reading(p)) sum += *(const vf *)(m->x + b) * *(const vf *)(m->dx + b);
            *(vf *)(m->dlog + i) = sum;
            sum += *(const vf *)(m->x + i) * *(const vf *)(m->dx + i);
        }
    }
    for (int64_t t = 0; t < count; t++) {
        vf sum = {0};
        for (int64_t i = t * kp; i < (t + 1) * kp; i += VL) { /* b = a o u */
            const vf inverse = *(const vf *)(m->inverse + i);
            const vf db = *(vf *)(m->dh + CHUNK * kp + i) *= -inverse;
            *(vf *)(m->dx + i) = *(const vf *)(m->dx + i) * *(const vf *)(m->p + i) + db * *(const vf *)(m->rate + i);
            *(vf *)(m->dh + i) *= inverse;
            sum += *(const vf *)(m->u + i) * *(const vf *)(m->dx + i);
        }
        projected[t] = m->squares[t] > p->epsilon * p->epsilon ? sum_of(sum) : 0.0f; /* else u is k times a constant */
    }
    for (int64_t c = 0; c < kp; c += VL) {
        const int used = lanes(keys - c);
        const vf scale = load(p->key_scale + at + c, used), key_rate = load(p->key_rate + at + c, used);
        vf dscale = {0}, dkey_rate = {0}, ddecay_bias = {0}, drate_bias = {0};
        for (int64_t t = 0; t < count; t++) {
            const int64_t i = t * kp + c, b = CHUNK * kp + i;
            const vf u = *(const vf *)(m->u + i), rate = *(const vf *)(m->rate + i), decay = *(const vf *)(m->decay + i);
            const vf k = *(const vf *)(key + t * wide + c), written = *(const vf *)(m->dh + i);
            const vf scaled = (*(const vf *)(m->dx + i) - u * projected[t]) * m->length[t];
            const vf dz = *(const vf *)(m->dlog + i) * least * decay * (1.0f - decay);
            const vf drate = (*(const vf *)(m->dh + b) * u + written * k * key_rate) * rate * (1.0f - rate);
            *(vf *)(m->dlog + i) = dz;
            *(vf *)(m->drate + i) = drate;
            *(vf *)(dkey + t * wide + c) = scaled * scale + written * (1.0f + (rate - 1.0f) * key_rate);
            if (reading(p)) *(vf *)(dquery + t * wide + c) = *(const vf *)(m->dx + b) * *(const vf *)(m->p + kp + i);
            dscale += scaled * k;
            dkey_rate += written * k * (rate - 1.0f);
            ddecay_bias += dz;
            drate_bias += drate;
        }
        float *const to[] = {p->dkey_scale, p->dkey_rate, p->ddecay_bias, p->drate_bias};
        const vf sums[] = {dscale, dkey_rate, ddecay_bias, drate_bias};
        for (int i = 0; i < 4; i++) store(to[i] + at_group + c, load(to[i] + at_group + c, used) + sums[i], used);
    }
    copy_rows(CHUNK, vp, m->dz, vp, m->dall_x + values_at(p) + head * vp, wide);
    const float *const gradients[] = {m->dlog, m->drate};
    float *const sums[] = {p->dweight, p->drate_weight};
    for (int i = 0; i < 2; i++) {
        product(keys, lp, count, BY_COLUMNS(gradients[i], kp), low + i * lp, wide, INTO(1, 1), sums[i] + at_group * lp, lp);
        product(count, lp, keys, BY_ROWS(gradients[i], kp), m->low_rows[i] + head * kp * lp, lp, INTO(head ? 1 : 0, 1),
                m->dall_x + low_at(p) + i * lp, wide);
    }
}

/* The gradients of what `fill_x` has read. */
static void gradients_of_x(const struct rwkv7 *p, int64_t row, int64_t first, int64_t count, struct scratch *m) {
    const int64_t wide = wide_of(p), width = width_of(p);
    for (int64_t t = 0; t < count; t++) {
        float *const from = m->dall_x + t * wide;
        for (int64_t c = low_at(p); c < low_at(p) + p->low; c += VL)
            *(vf *)(from + c) *= tangent_slope(*(const vf *)(m->all_x + t * wide + c));
        float *const dx = p->inputs ? NULL : p->dx + ((first + t) * p->batch + row) * width;
        if (dx) EACH_PART({ copy_rows(1, size, from + at_wide, 0, dx + at, 0); })
    }
    product(p->inputs, wide, count, BY_COLUMNS(m->inputs, p->inputs), m->dall_x, wide, INTO(1, 1), m->dinput_map, wide);
    if (!first && p->dinput_first)
        EACH_PART({ copy_rows(1, size, m->dall_x + at_wide, 0, p->dinput_first + row * width + at, 0); })
}

static void backward(const struct rwkv7 *p, int64_t row, struct scratch *m) {
    const int64_t keys = p->keys, values = p->values, kp = padded(keys), vp = padded(values), size = keys * vp;
    const int64_t chunks = rwkv7_groups(p->steps), all = p->heads * values, wide = wide_of(p);
    const int64_t group = ((row + 1) * p->groups - 1) / p->batch;
    memset(m->memories, 0, (size_t)(4 * all * kp));
    memset(m->along, 0, (size_t)(4 * p->heads * kp));
    memset(m->dinput_map, 0, (size_t)(4 * p->inputs * wide));
    for (int64_t head = 0; p->grad_end && head < p->heads; head++) {
        const int64_t at = (row * p->heads + head) * keys * values;
        float *const gt = m->memories + head * values * kp;
        copy_rows(keys, values, p->end + at, values, m->g, vp);
        transpose(keys, vp, m->g, vp, m->st, kp);
        copy_rows(keys, values, p->grad_end + at, values, m->g, vp);
        transpose(keys, values, m->g, vp, gt, kp);
        sum_along(p, gt, m, m->along + head * kp);
    }
    for (int64_t first = (chunks - 1) * CHUNK; first >= 0; first -= CHUNK) {
        const int64_t count = first + CHUNK < p->steps ? CHUNK : p->steps - first;
        fill_x(p, row, first, count, -CHUNK, m);
        for (int64_t head = 0; head < p->heads; head++) {
            const float *const s = p->starts + ((row * chunks + first / CHUNK) * p->heads + head) * size;
            float *const gt = m->memories + head * values * kp, *const along = m->along + head * kp;
            const float *const next = head + 1 < p->heads ? s + size : s - (p->heads + head) * size;
            m->ahead = (struct ahead){next, first || head + 1 < p->heads ? next + size : next};
            fill_rows(p, head, count, m);
            if (reading(p)) {
                float *const dy = m->dz + 2 * CHUNK * vp;
                copy_rows(count, values, p->grad_y + (first * p->batch + row) * all + head * values, p->batch * all, dy, vp);
                clear_rows(count, vp, dy);
            }
#define RETREAT(P) find(P, s, m), retreat(P, s, gt, m)
            EACH_SIZE(RETREAT);
#undef RETREAT
            if (p->norms) fill_norms(p, row, head, first, count, m);
            gradients_of_rows(p, group, head, count, along, m);
            sum_along(p, gt, m, along);
        }
        gradients_of_x(p, row, first, count, m);
    }
    for (int64_t head = 0; head < p->heads; head++) {
        transpose(values, kp, m->memories + head * values * kp, kp, m->g, vp);
        copy_rows(keys, values, m->g, vp, p->dstart + (row * p->heads + head) * keys * values, values);
    }
    float *const dinput_weight = p->dinput_weight + group * width_of(p) * p->inputs;
    EACH_PART({
        for (int64_t i = 0; i < p->inputs; i++)
            for (int64_t j = 0; j < size; j++)
                dinput_weight[(at + j) * p->inputs + i] += m->dinput_map[i * wide + at_wide + j];
    })
}

static int run(const struct rwkv7 *p, int64_t first, int64_t last, int is_backward) {
    struct carver size = {NULL, 0};
    carve_scratch(&size, p, is_backward);
    struct carver from = {zeros(size.used), 0};
    if (!from.base) return 1;
    struct scratch m = carve_scratch(&from, p, is_backward);
    const uint64_t denormals = flush_denormals();
    fill_maps(p, &m);
    for (int64_t row = first; row < last; row++)
        if (is_backward) backward(p, row, &m);
        else forward(p, row, &m);
    end_streams();
    restore_denormals(denormals);
    free(from.base);
    return 0;
}

/* y, S_T, and for a backward pass starts. Returns nonzero without memory. */
int rwkv7_forward(const struct rwkv7 *p, int64_t first, int64_t last) { return run(p, first, last, 0); }

/* The gradients, and the norms if they are needed. Returns nonzero without memory. */
int rwkv7_backward(const struct rwkv7 *p, int64_t first, int64_t last) { return run(p, first, last, 1); }
