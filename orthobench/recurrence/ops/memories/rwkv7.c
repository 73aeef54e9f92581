/* RWKV-7's memories in float32: S_t = (diag(w_t) - b_t u_t^T) S_{t-1} + k_t v_t^T, y_t = S_t^T q_t, b = a o u.
 *
 * A chunk of steps is a few products of matrices. With P_t = w_1 o ... o w_t, the memory S_t / P_t changes only by what
 * is written, so that it is S_0 + H^T Z: the rows of H are k_s / P_s and -b_s / P_s, and those of Z are v_s and what was
 * found, f_s = u_s^T S_{s-1}. Two rows X read the memory: u_t o P_{t-1} finds f_t, and q_t o P_t reads y_t. Both are
 * X S_0 + A Z, where A is X H^T below its diagonal, and f follows by substitution. As w is above 0.545, P stays above
 * 6e-5 in 16 steps, and 1 / P is harmless.
 *
 * A unit is a head of a batch row, and the caller gives each thread a range of units. Backward computes the chunk again
 * from the memory stored before it. */
#include "memory.h"
#include "tiles.h"

enum { CHUNK = 16 }; /* steps, a multiple of a vector's lanes */

/* x_t of a row is the query [heads, keys] if the memory is read, the key [heads, keys] and the value [heads, values].
 * What a pass does not need is NULL. */
struct rwkv7 {
    int64_t steps, batch, heads; /* T, B and the number of heads */
    int64_t keys, values;        /* the sizes of a key and of a value */
    int64_t reads;               /* whether queries read the memory */
    float epsilon;               /* added to the squares of the length of u */
    const float *x;              /* [T, B, width] */
    const float *weight;         /* z and p [T, B, 2, heads, keys] */
    const float *key_scale;      /* [heads, keys] */
    const float *key_rate;       /* [heads, keys] */
    const float *start;          /* S before the first step [B, heads, keys, values] */
    float *y;                    /* [T, B, heads, values] */
    float *starts;               /* S before each chunk [B, heads, chunks, keys, padded(values)] */
    float *end;                  /* S after the last step, as start */
    const float *grad_y;         /* as y, or NULL */
    const float *grad_end;       /* as end, or NULL */
    float *dx;                   /* as x */
    float *dweight;              /* as weight */
    float *dstart;               /* as start */
    float *norms;                /* |dL/dS_t|^2 [T, B, heads], or NULL */
    float *dkey_scale;           /* [B, heads, keys], zeroed */
    float *dkey_rate;            /* [B, heads, keys], zeroed */
};

/* What the rows of a chunk are computed from, or their gradients; all rows are whole vectors. */
struct scratch {
    float *x;            /* u o P of the step before, and if the memory is read q o P [2, CHUNK, keys] */
    float *h;            /* k / P and -b / P [2, CHUNK, keys] */
    float *z;            /* v and f [2, CHUNK, values] */
    float *y;            /* [CHUNK, values] */
    float *p, *inverse;  /* P before each step and behind the last one [CHUNK + 1, keys], and 1 / P [CHUNK, keys] */
    float *u;            /* [CHUNK, keys] */
    float *decay, *rate; /* s(z) and s(p) [CHUNK, keys] */
    float *length;       /* 1 / |k o key_scale| [CHUNK] */
    float *a;            /* (X H^T)^T [2, CHUNK, readers] */
    float *columns;      /* X^T, or backward that of what it reads [keys or values, readers] */
    float *memories;     /* S of each unit [units, keys, values], or backward dL/dS^T [units, values, keys] */
    float *along;        /* the sums over values of S o dL/dS of each unit [units, keys] */
    float *st, *g;       /* S^T before the chunk [values, keys] and dL/d(S / P) behind it [keys, values] */
    float *dx, *dh;      /* as x and h */
    float *dz;           /* gradients of v, f and y [3, CHUNK, values] */
    float *dlog;         /* gradient of log w [CHUNK, keys] */
};

INLINE int64_t width_of(const struct rwkv7 *p) { return p->heads * ((p->reads + 1) * p->keys + p->values); }

/* The number of rows that read the memory. */
INLINE int64_t readers(const struct rwkv7 *p) { return (p->reads + 1) * CHUNK; }

/* The floats of S with its rows in whole vectors. */
int64_t rwkv7_size(int64_t keys, int64_t values) { return keys * padded(values); }

/* The number of chunks. */
int64_t rwkv7_groups(int64_t steps) { return (steps + CHUNK - 1) / CHUNK; }

static struct scratch carve_scratch(struct carver *from, const struct rwkv7 *p, int64_t units, int backward) {
    const int64_t kp = padded(p->keys), vp = padded(p->values), most = kp > vp ? kp : vp;
    struct scratch m = {.x = carve(from, 2 * CHUNK * kp)};
    m.h = carve(from, 2 * CHUNK * kp);
    m.z = carve(from, 2 * CHUNK * vp);
    m.y = carve(from, CHUNK * vp);
    m.p = carve(from, (CHUNK + 1) * kp);
    m.inverse = carve(from, CHUNK * kp);
    m.u = carve(from, CHUNK * kp);
    m.decay = carve(from, CHUNK * kp);
    m.rate = carve(from, CHUNK * kp);
    m.length = carve(from, CHUNK);
    m.a = carve(from, 4 * CHUNK * CHUNK);
    m.columns = carve(from, 2 * CHUNK * most);
    m.memories = carve(from, units * kp * vp);
    if (!backward) return m;
    m.along = carve(from, units * kp);
    m.st = carve(from, kp * vp);
    m.g = carve(from, kp * vp);
    m.dx = carve(from, 2 * CHUNK * kp);
    m.dh = carve(from, 2 * CHUNK * kp);
    m.dz = carve(from, 3 * CHUNK * vp);
    m.dlog = carve(from, CHUNK * kp);
    return m;
}

/* A vector of columns of a chunk's rows. */
INLINE void load_rows(const float *from, int64_t ld, vf *rows) {
#pragma GCC unroll 16
    for (int i = 0; i < CHUNK; i++) rows[i] = *(const vf *)(from + i * ld);
}

INLINE void store_rows(const vf *rows, float *to, int64_t ld) {
#pragma GCC unroll 16
    for (int i = 0; i < CHUNK; i++) *(vf *)(to + i * ld) = rows[i];
}

/* rows += the part of A below its diagonal, or also the diagonal, times `from` [CHUNK, columns]. */
INLINE void add_below(const int also_diagonal, struct left a, const float *from, int64_t ld, vf *rows) {
#pragma GCC unroll 16
    for (int s = 0; s < CHUNK; s++) {
        const vf row = *(const vf *)(from + s * ld);
#pragma GCC unroll 16
        for (int t = s + !also_diagonal; t < CHUNK; t++) rows[t] += row * a.at[t * a.by_row + s * a.by_depth];
    }
}

/* rows_t += the sum over s < t of A_ts rows_s, one row after the other. */
INLINE void substitute(struct left a, vf *rows) {
#pragma GCC unroll 16
    for (int s = 0; s < CHUNK; s++)
#pragma GCC unroll 16
        for (int t = s + 1; t < CHUNK; t++) rows[t] += rows[s] * a.at[t * a.by_row + s * a.by_depth];
}

/* The last row first: what is above the diagonal comes below it. */
INLINE struct left reversed(struct left a) {
    return (struct left){a.at + (CHUNK - 1) * (a.by_row + a.by_depth), -a.by_row, -a.by_depth};
}

/* X, H, v and P of the steps [first, first + count). Rows behind them are 0. */
INLINE void fill_rows(const struct rwkv7 *p, int64_t row, int64_t head, int64_t first, int64_t count, struct scratch *m) {
    const int64_t keys = p->keys, kp = padded(keys), vp = padded(p->values), all = p->heads * keys, at_head = head * keys;
    const float least = -0.60653065971263342f; /* -e^(-1/2) */
    for (int64_t t = 0; t < count; t++) {
        const int64_t place = (first + t) * p->batch + row, i = t * kp;
        const float *const x = p->x + place * width_of(p), *const key = x + p->reads * all + at_head;
        const float *const value = x + (p->reads + 1) * all + head * p->values, *const z = p->weight + place * 2 * all + at_head;
        vf squares = {0};
        for (int64_t c = 0; c < keys; c += VL) {
            const int n = lanes(keys - c);
            const vf k = load(key + c, n), u = k * load(p->key_scale + at_head + c, n);
            const vf decay = sigmoid(load(z + c, n)), rate = sigmoid(load(z + all + c, n));
            const vf before = *(const vf *)(m->p + i + c), after = before * exponential(decay * least);
            const vf inverse = reciprocal(after);
            squares += u * u;
            *(vf *)(m->u + i + c) = u;
            *(vf *)(m->decay + i + c) = decay;
            *(vf *)(m->rate + i + c) = rate;
            *(vf *)(m->p + i + kp + c) = after;
            *(vf *)(m->inverse + i + c) = inverse;
            *(vf *)(m->h + i + c) = (k + k * (rate - 1.0f) * load(p->key_rate + at_head + c, n)) * inverse;
            if (p->reads) *(vf *)(m->x + CHUNK * kp + i + c) = load(x + at_head + c, n) * after;
        }
        m->length[t] = sum_of(squares) + p->epsilon;
        for (int64_t c = 0; c < p->values; c += VL) *(vf *)(m->z + t * vp + c) = load(value + c, lanes(p->values - c));
    }
    for (int64_t t = 0; t < CHUNK; t += VL) {
        vf root;
        square_roots(*(const vf *)(m->length + t), &root, (vf *)(m->length + t));
    }
    for (int64_t t = 0; t < count; t++)
        for (int64_t i = t * kp; i < (t + 1) * kp; i += VL) {
            const vf u = *(vf *)(m->u + i) *= m->length[t];
            *(vf *)(m->x + i) = u * *(const vf *)(m->p + i);
            *(vf *)(m->h + CHUNK * kp + i) = -u * *(const vf *)(m->rate + i) * *(const vf *)(m->inverse + i);
        }
    for (int64_t t = count; t < CHUNK; t++) {
        float *const rows[] = {m->x, m->x + CHUNK * kp, m->h, m->h + CHUNK * kp};
        for (int i = 0; i < 4; i++) memset(rows[i] + t * kp, 0, (size_t)(4 * kp));
        memset(m->z + t * vp, 0, (size_t)(4 * vp));
        memcpy(m->p + (t + 1) * kp, m->p + t * kp, (size_t)(4 * kp));
    }
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

static void copy_rows(int64_t rows, int64_t size, const float *from, int64_t ldf, float *to, int64_t ldt) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < size; c += VL) store(to + i * ldt + c, load(from + i * ldf + c, lanes(size - c)), lanes(size - c));
}

/* All units advance by a chunk before any goes on, because the numbers of a step are next to each other. */
INLINE void forward(const struct rwkv7 *p, int64_t from, int64_t to, struct scratch *m) {
    const int64_t keys = p->keys, values = p->values, kp = padded(keys), vp = padded(values), size = keys * vp;
    const int64_t chunks = rwkv7_groups(p->steps);
    for (int64_t unit = from; unit < to; unit++)
        copy_rows(keys, values, p->start + unit * keys * values, values, m->memories + (unit - from) * size, vp);
    for (int64_t first = 0; first < p->steps; first += CHUNK)
        for (int64_t unit = from; unit < to; unit++) {
            const int64_t row = unit / p->heads, head = unit % p->heads;
            const int64_t count = first + CHUNK < p->steps ? CHUNK : p->steps - first;
            float *const s = m->memories + (unit - from) * size;
            if (p->starts) memcpy(p->starts + (unit * chunks + first / CHUNK) * size, s, (size_t)(4 * size));
            fill_rows(p, row, head, first, count, m);
            find(p, s, m);
            if (p->reads) {
                read(p, s, m);
                copy_rows(count, values, m->y, vp, p->y + ((first * p->batch + row) * p->heads + head) * values,
                          p->batch * p->heads * values);
            }
            product(keys, vp, 2 * CHUNK, BY_COLUMNS(m->h, kp), m->z, vp, INTO(1, 1), s, vp);
            for (int64_t i = 0; i < keys; i++)
                for (int64_t c = 0; c < vp; c += VL) *(vf *)(s + i * vp + c) *= m->p[CHUNK * kp + i];
        }
    for (int64_t unit = from; unit < to; unit++)
        copy_rows(keys, values, m->memories + (unit - from) * size, vp, p->end + unit * keys * values, values);
}

/* The gradients of X, H and Z, given dL/dS^T `gt` behind the chunk, which becomes that before it. */
INLINE void retreat(const struct rwkv7 *p, const float *s, float *gt, struct scratch *m) {
    const int64_t keys = p->keys, values = p->values, kp = padded(keys), vp = padded(values);
    const int reading = p->reads && p->grad_y;
    const int64_t ld = readers(p), rows = reading ? ld : CHUNK;
    float *const df = m->dz + CHUNK * vp, *const dy = df + CHUNK * vp;
    for (int64_t j = 0; j < values; j++)
        for (int64_t c = 0; c < kp; c += VL) *(vf *)(gt + j * kp + c) *= *(const vf *)(m->p + CHUNK * kp + c);
    transpose(values, kp, gt, kp, m->g, vp);
    product(2 * CHUNK, vp, keys, BY_ROWS(m->h, kp), m->g, vp, INTO(0, 1), m->dz, vp);
    for (int64_t c = 0; c < vp; c += VL) {
        const int64_t last = (CHUNK - 1) * vp + c;
        vf sums[CHUNK];
        load_rows(df + last, -vp, sums);
        if (reading) add_below(1, reversed(*BY_ROWS(m->a + CHUNK * ld + CHUNK, ld)), dy + last, -vp, sums);
        substitute(reversed(*BY_ROWS(m->a + CHUNK * ld, ld)), sums);
        store_rows(sums, df + last, -vp);
        load_rows(m->dz + last, -vp, sums);
        if (reading) add_below(1, reversed(*BY_ROWS(m->a + CHUNK, ld)), dy + last, -vp, sums);
        add_below(0, reversed(*BY_ROWS(m->a, ld)), df + last, -vp, sums);
        store_rows(sums, m->dz + last, -vp);
    }
    float *const da = m->a; /* A is not needed again */
    transpose(rows, vp, df, vp, m->columns, rows);
    product(2 * CHUNK, rows, values, BY_ROWS(m->z, vp), m->columns, rows, INTO(0, 1), da, rows);
    transpose(keys, vp, s, vp, m->st, kp);
    product(rows, kp, values, BY_ROWS(df, vp), m->st, kp, INTO(0, 1), m->dx, kp);
    product(2 * CHUNK, kp, values, BY_ROWS(m->z, vp), gt, kp, INTO(0, 1), m->dh, kp);
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
            if (reading)
                add_below(1, reversed(*BY_ROWS(da + half * rows + CHUNK, rows)), m->x + CHUNK * kp + last, -kp, sums);
            store_rows(sums, m->dh + half * kp + last, -kp);
        }
        if (!reading) continue;
        load_rows(m->dx + CHUNK * kp + c, kp, sums);
        for (int half = 0; half < 2 * CHUNK; half += CHUNK)
            add_below(1, *BY_COLUMNS(da + half * rows + CHUNK, rows), m->h + half * kp + c, kp, sums);
        store_rows(sums, m->dx + CHUNK * kp + c, kp);
    }
    product(values, kp, rows, BY_COLUMNS(df, vp), m->x, kp, INTO(1, 1), gt, kp);
}

/* |dL/dS_t|^2 of a chunk, from dL/d(S / P) behind it and the gradients of what was read, which `retreat` has computed. */
INLINE void fill_norms(const struct rwkv7 *p, int64_t row, int64_t head, int64_t first, int64_t count,
                       const struct scratch *m) {
    const int64_t kp = padded(p->keys), vp = padded(p->values);
    float *const norms = p->norms + (first * p->batch + row) * p->heads + head;
    for (int64_t t = 0; t < count; t++) norms[t * p->batch * p->heads] = 0;
    for (int64_t i = 0; i < p->keys; i++)
        for (int64_t c = 0; c < vp; c += VL) {
            vf g = *(const vf *)(m->g + i * vp + c);
            for (int64_t t = count - 1; t >= 0; t--) {
                const float *const df = m->dz + (CHUNK + t) * vp + c, *const x = m->x + t * kp + i;
                if (p->reads && p->grad_y) g += *(const vf *)(df + CHUNK * vp) * x[CHUNK * kp];
                const vf by_s = g * m->inverse[t * kp + i];
                norms[t * p->batch * p->heads] += sum_of(by_s * by_s);
                g += *(const vf *)df * *x;
            }
        }
}

/* The sums over values of S^T o dL/dS^T. */
INLINE void sum_along(const struct rwkv7 *p, const float *gt, const struct scratch *m, float *along) {
    const int64_t kp = padded(p->keys);
    for (int64_t c = 0; c < kp; c += VL) {
        vf sum = {0};
        for (int64_t j = 0; j < p->values; j++) sum += *(const vf *)(m->st + j * kp + c) * *(const vf *)(gt + j * kp + c);
        *(vf *)(along + c) = sum;
    }
}

/* dx and dweight of the steps [first, first + count). `along` is the sum over values of S o dL/dS behind the chunk. Walking
 * back, it gains what queries read of it and loses what was written, and is then the gradient of log w. */
INLINE void gradients_of_rows(const struct rwkv7 *p, int64_t row, int64_t head, int64_t first, int64_t count,
                              const float *along, struct scratch *m) {
    const int64_t keys = p->keys, kp = padded(keys), vp = padded(p->values), all = p->heads * keys, at_head = head * keys;
    const float least = -0.60653065971263342f;
    const int reading = p->reads && p->grad_y;
    float projected[CHUNK];
    for (int64_t c = 0; c < kp; c += VL) {
        vf sum = *(const vf *)(along + c);
        for (int64_t t = count - 1; t >= 0; t--) {
            const int64_t i = t * kp + c, b = CHUNK * kp + i;
            sum -= *(const vf *)(m->h + i) * *(const vf *)(m->dh + i) + *(const vf *)(m->h + b) * *(const vf *)(m->dh + b);
            if (reading) sum += *(const vf *)(m->x + b) * *(const vf *)(m->dx + b);
            *(vf *)(m->dlog + i) = sum;
            sum += *(const vf *)(m->x + i) * *(const vf *)(m->dx + i);
        }
    }
    for (int64_t t = 0; t < count; t++) {
        vf sum = {0};
        for (int64_t i = t * kp; i < (t + 1) * kp; i += VL) { /* b = a o u */
            const vf inverse = *(const vf *)(m->inverse + i);
            const vf db = *(vf *)(m->dh + CHUNK * kp + i) *= -inverse;
            const vf du = *(vf *)(m->dx + i) = *(const vf *)(m->dx + i) * *(const vf *)(m->p + i) + db * *(const vf *)(m->rate + i);
            *(vf *)(m->dh + i) *= inverse;
            sum += *(const vf *)(m->u + i) * du;
        }
        projected[t] = sum_of(sum);
    }
    for (int64_t t = 0; t < count; t++) {
        const int64_t place = (first + t) * p->batch + row, at = place * width_of(p);
        const float *const key = p->x + at + p->reads * all + at_head;
        float *const dx = p->dx + at, *const dkey = dx + p->reads * all + at_head;
        float *const dvalue = dx + (p->reads + 1) * all + head * p->values, *const dz = p->dweight + place * 2 * all + at_head;
        for (int64_t c = 0; c < p->values; c += VL) store(dvalue + c, *(const vf *)(m->dz + t * vp + c), lanes(p->values - c));
        for (int64_t c = 0; c < keys; c += VL) {
            const int n = lanes(keys - c);
            const int64_t i = t * kp + c, b = CHUNK * kp + i;
            const vf u = *(const vf *)(m->u + i), rate = *(const vf *)(m->rate + i), decay = *(const vf *)(m->decay + i);
            const vf k = load(key + c, n), written = *(const vf *)(m->dh + i);
            const vf scale = load(p->key_scale + at_head + c, n), key_rate = load(p->key_rate + at_head + c, n);
            const vf scaled = (*(const vf *)(m->dx + i) - u * projected[t]) * m->length[t];
            const vf drate = *(const vf *)(m->dh + b) * u + written * k * key_rate;
            float *const dscale = p->dkey_scale + row * all + at_head + c;
            float *const dkey_rate = p->dkey_rate + row * all + at_head + c;
            if (p->reads)
                store(dx + at_head + c, reading ? *(const vf *)(m->dx + b) * *(const vf *)(m->p + i + kp) : (vf){0}, n);
            store(dkey + c, scaled * scale + written * (1.0f + (rate - 1.0f) * key_rate), n);
            store(dz + c, *(const vf *)(m->dlog + i) * least * decay * (1.0f - decay), n);
            store(dz + all + c, drate * rate * (1.0f - rate), n);
            store(dscale, load(dscale, n) + scaled * k, n);
            store(dkey_rate, load(dkey_rate, n) + written * k * (rate - 1.0f), n);
        }
    }
}

INLINE void backward(const struct rwkv7 *p, int64_t from, int64_t to, struct scratch *m) {
    const int64_t keys = p->keys, values = p->values, kp = padded(keys), vp = padded(values), size = keys * vp;
    const int64_t chunks = rwkv7_groups(p->steps);
    for (int64_t unit = from; p->grad_end && unit < to; unit++) {
        float *const gt = m->memories + (unit - from) * values * kp;
        copy_rows(keys, values, p->end + unit * keys * values, values, m->g, vp);
        transpose(keys, vp, m->g, vp, m->st, kp);
        copy_rows(keys, values, p->grad_end + unit * keys * values, values, m->g, vp);
        transpose(keys, values, m->g, vp, gt, kp);
        sum_along(p, gt, m, m->along + (unit - from) * kp);
    }
    for (int64_t first = (chunks - 1) * CHUNK; first >= 0; first -= CHUNK)
        for (int64_t unit = from; unit < to; unit++) {
            const int64_t row = unit / p->heads, head = unit % p->heads;
            const int64_t count = first + CHUNK < p->steps ? CHUNK : p->steps - first;
            const float *const s = p->starts + (unit * chunks + first / CHUNK) * size;
            float *const gt = m->memories + (unit - from) * values * kp, *const along = m->along + (unit - from) * kp;
            fill_rows(p, row, head, first, count, m);
            find(p, s, m);
            if (p->reads && p->grad_y) {
                float *const dy = m->dz + 2 * CHUNK * vp;
                copy_rows(count, values, p->grad_y + ((first * p->batch + row) * p->heads + head) * values,
                          p->batch * p->heads * values, dy, vp);
                memset(dy + count * vp, 0, (size_t)(4 * (CHUNK - count) * vp));
            }
            retreat(p, s, gt, m);
            if (p->norms) fill_norms(p, row, head, first, count, m);
            gradients_of_rows(p, row, head, first, count, along, m);
            sum_along(p, gt, m, along);
        }
    for (int64_t unit = from; unit < to; unit++) {
        transpose(values, kp, m->memories + (unit - from) * values * kp, kp, m->g, vp);
        copy_rows(keys, values, m->g, vp, p->dstart + unit * keys * values, values);
    }
}

static int run(const struct rwkv7 *p, int64_t first, int64_t last, int is_backward) {
    struct carver size = {NULL, 0};
    carve_scratch(&size, p, last - first, is_backward);
    struct carver from = {zeros(size.used), 0};
    if (!from.base) return 1;
    struct scratch m = carve_scratch(&from, p, last - first, is_backward);
    for (int64_t c = 0; c < padded(p->keys); c++) m.p[c] = 1.0f;
    const uint64_t denormals = flush_denormals();
    struct rwkv7 sized = *p;
    if (p->keys == 32 && p->values == 32 && !p->reads) { /* with constant sizes, products need not compute addresses */
        sized.keys = sized.values = 32, sized.reads = 0;
        if (is_backward) backward(&sized, first, last, &m);
        else forward(&sized, first, last, &m);
    } else if (is_backward) backward(p, first, last, &m);
    else forward(p, first, last, &m);
    restore_denormals(denormals);
    free(from.base);
    return 0;
}

/* y, S_T, and for a backward pass starts. Returns nonzero without memory. */
int rwkv7_forward(const struct rwkv7 *p, int64_t first, int64_t last) { return run(p, first, last, 0); }

/* The gradients, and the norms if they are needed. Returns nonzero without memory. */
int rwkv7_backward(const struct rwkv7 *p, int64_t first, int64_t last) { return run(p, first, last, 1); }
