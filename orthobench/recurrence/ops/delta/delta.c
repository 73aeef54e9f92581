/* The delta rule, in float32. Each head and batch row has a memory S [keys, values]. Each step scales it by a decay and
 * corrects it `factors` times, S += beta k (v - S^T k)^T. A query reads it, y = S^T q.
 *
 * Heads and rows are independent units, so the caller gives each thread a range of units, and no thread waits. A chunk
 * of corrections is done at once (Yang et al., NeurIPS 2024). S' is the memory before it, a(t, i) the decay from
 * correction i to t, a(t) that from the chunk's start. The errors e_t and the additions u_t = beta_t e_t then solve
 *
 *     e_t = v_t - a(t) S'^T k_t - sum over i < t of a(t, i) (k_i . k_t) u_i,    S = a(n) S' + sum of a(n, i) k_i u_i^T
 *
 * so the work consists of products of small matrices. Only decays of later steps are computed, never quotients.
 * Backward recomputes the memories before the chunks of a group of steps from the errors, and solves the transposed
 * system for d_t = dL/du_t, with D' = dL/dS behind the chunk:
 *
 *     d_t = a(n, t) D'^T k_t - sum over i > t of a(i, t) (k_i . k_t) beta_i d_i,
 *     D = a(n) D' - sum of a(t) beta_t k_t d_t^T
 *
 * The code in its order: K, V, E, U and D_u have the rows k_t, v_t, e_t, u_t and d_t of a chunk, Q and Y' the rows q_t and
 * dL/dy_t of its steps. o multiplies a row or an entry by a number, and A has a(t, i).
 *
 *     forward_sized
 *         G = A o (K K^T) below the diagonal       fill_products, m->gram, which is -G o beta_i
 *         F = A o (Q K^T) up to the query's step   fill_products, m->read
 *         V - a(t) o (K S')                        1st product, into v
 *         E = (I + G beta)^-1 of that, U = beta E  solve, block after block of TRIANGLE rows
 *         Y = a(t) o (Q S') + F U                  2nd product and add_readings, m->y
 *         S = a(n) S' + K^T (a(n, t) o U)          last product, m->s
 *
 *     next_slot
 *         S^T = a(n) S'^T + (a(n, t) o U)^T K      from the errors that are kept: nothing is solved again
 *
 *     backward_sized, with D' in m->s
 *         a(n, t) o (K D') + F^T Y'                1st and 2nd product, m->du
 *         D_u = (I + G^T beta)^-1 of that          solve_transposed, which also gives dL/de = dL/dv = beta D_u
 *         M = D_u E^T                              3rd product, m->w: its diagonal is dL/dbeta
 *         dK = (a(n, t) beta) o (E D'^T)           what was written, through S behind the chunk
 *            - (a(t) beta) o (D_u S'^T)            what was found in S'
 *            - (W + W^T) K                         what keys found of each other; W = beta_t beta_i A o M below
 *            + N^T Q                               what queries read; N = A o (Y' E^T) beta_i, m->f
 *         dQ = a(t) o (Y' S'^T) + N K              only with readings
 *         D = a(n) D' - K^T (a(t) o beta D_u) + Q^T (a(t) o Y')   the last two products, m->s
 *
 * From the forward pass, `errors` has every e_t, and `starts` S before each group of CHUNKS_OF_GROUP chunks. Backward
 * computes the rows of x, the products of keys and the memories before the chunks of a group again (`m->slots`). The
 * gradient of a log decay is <dL/dS_t, S_t>, which `gradients_of_decays` follows backwards through the chunk: it needs
 * no product of its own. */
#include "delta.h"
#include "memory.h"

enum {
    CORRECTIONS = TRIANGLE, /* of a chunk, unless one step has more */
    CHUNKS_OF_GROUP = 8, /* between two stored memories */
};

/* Corrections in whole blocks of those that are solved for at once. */
INLINE int64_t whole_blocks(int64_t count) { return (count + TRIANGLE - 1) / TRIANGLE * TRIANGLE; }

INLINE int64_t steps_of_corrections(int64_t factors) { return factors > CORRECTIONS ? 1 : CORRECTIONS / factors; }

INLINE int64_t steps_of_chunk(const struct delta *p) { return p->norms ? 1 : steps_of_corrections(p->factors); }

/* The number of steps of a group: whole chunks, unless each step is a chunk. */
int64_t delta_group(int64_t factors) { return CHUNKS_OF_GROUP * steps_of_corrections(factors); }

/* Floats of S with its rows in whole vectors. */
int64_t delta_memory(int64_t keys, int64_t values) { return keys * padded(values); }

/* The scratch memory of a thread. c is the number of corrections in a chunk. Rows are rounded up to whole vectors.
 * `carve_scratch` shows which fields only the backward pass has. */
struct scratch {
    struct rows x;      /* a group's rows [group] */
    struct rows slopes; /* the slopes of silu at these */
    struct rows dx;     /* the gradients of the rows */
    float *k_factors;   /* factors that bring keys to unit length [group, factors] */
    float *q_factors;   /* the same for queries [group] */
    float *errors;      /* e of a group [group * factors, values], if rows are not whole vectors */
    float *betas;       /* [group, factors] */
    float *decays;      /* e^g [group] */
    float *dbetas;      /* dL/d(betas) [group, factors] */
    float *ddecays;     /* dL/dg [group] */
    float *beta;        /* [c] */
    float *since;       /* a(t) [c] */
    float *factors;     /* a(t) beta, and later the products v . de [c] */
    float *until;       /* a(n, t), and later a(n, t) beta [c] */
    float *between;     /* a(t, i) [c, c], 1 on the diagonal, 0 above */
    float *kt;          /* the keys, transposed [keys, c] */
    float *gram;        /* products of keys, see `fill_products` [c, c] with whole blocks of rows */
    float *read;        /* a(t, i) (k_i . q) [steps, c] */
    float *u;           /* the additions beta e [c, values] */
    float *y;           /* [steps, values] */
    float *s;           /* S, and backward D [keys, values] */
    float *du;          /* d [c, values] */
    float *dy;          /* [steps, values] */
    float *dt;          /* D transposed [values, keys] */
    float *et;          /* the errors, transposed [values, c] */
    float *w;           /* products of du with errors [c, c] */
    float *wt;          /* w, transposed [c, c] */
    float *f;           /* products of dy with errors [steps, c] */
    float *later;       /* gradients of the convolution from the steps behind [taps - 1, features] */
    float *slots;       /* S^T before each chunk of the group and behind the last [values, keys] each */
    struct ahead ahead; /* errors of the next chunk, or backward of the group before */
    struct ahead start; /* the memory at the start of the group before */
};

static struct rows carve_rows(struct carver *from, const struct delta *p, int64_t steps) {
    const int64_t kp = padded(p->keys), vp = padded(p->values);
    float *const q = carve(from, p->reads * steps * kp), *const k = carve(from, steps * p->factors * kp);
    return (struct rows){q, k, carve(from, steps * p->factors * vp)};
}

static struct scratch carve_scratch(struct carver *from, const struct delta *p, int backward) {
    const int64_t kp = padded(p->keys), vp = padded(p->values), steps = steps_of_chunk(p);
    const int64_t group = p->group, count = steps * p->factors, cp = whole_blocks(count);
    struct scratch m = {.x = carve_rows(from, p, group)};
    m.k_factors = carve(from, group * p->factors);
    m.q_factors = carve(from, group);
    m.betas = carve(from, group * p->factors);
    m.decays = carve(from, padded(group));
    m.beta = carve(from, cp);
    m.since = carve(from, cp);
    m.between = carve(from, count * cp);
    m.kt = carve(from, kp * cp);
    m.gram = carve(from, cp * cp);
    m.read = carve(from, steps * cp);
    m.u = carve(from, count * vp);
    m.y = carve(from, steps * vp);
    m.s = carve(from, p->keys * vp);
    if (!backward) return m;
    m.slopes = carve_rows(from, p, p->taps ? group : 0);
    m.dx = carve_rows(from, p, group);
    m.dbetas = carve(from, group * p->factors);
    m.ddecays = carve(from, group);
    m.errors = carve(from, p->values == vp ? 0 : group * p->factors * vp);
    m.factors = carve(from, cp);
    m.until = carve(from, cp);
    m.du = carve(from, count * vp);
    m.dy = carve(from, steps * vp);
    m.dt = carve(from, vp * kp);
    m.et = carve(from, vp * cp);
    m.w = carve(from, count * cp);
    m.wt = carve(from, cp * cp);
    m.f = carve(from, steps * cp);
    m.later = carve(from, p->taps ? (p->taps - 1) * ((p->reads + p->factors) * kp + p->factors * vp) : 0);
    m.slots = carve(from, ((group + steps - 1) / steps + 1) * p->values * kp);
    return m;
}

/* ---------------------------------------------------------------- the rows of a group of steps */

static void fill_rows(const struct delta *p, int64_t row, int64_t head, int64_t first, int64_t stop, int64_t next,
                      struct rows to, const struct rows *slopes) {
    for (int64_t index = 0; index < parts(p); index++) {
        const struct part part = part_of(p, head, index, to);
        float *const slope = slopes ? part_of(p, head, index, *slopes).at : NULL;
#define FILL(TAPS, INPUTS) fill_part(TAPS, INPUTS, p, row, first, stop, next, part, slope)
        EACH_FORM(p, FILL)
#undef FILL
    }
}

static void gradients_of_rows(const struct delta *p, int64_t row, int64_t head, int64_t first, int64_t stop,
                              struct rows gradients, struct rows slopes, float *later, int64_t ld) {
    for (int64_t index = 0; index < parts(p); index++) {
        const struct part part = part_of(p, head, index, gradients);
        const float *const slope = part_of(p, head, index, slopes).at;
#define GRADIENT(TAPS, INPUTS) gradient_part(TAPS, INPUTS, p, row, first, stop, part, slope, later, ld)
        EACH_FORM(p, GRADIENT)
#undef GRADIENT
    }
}

/* Brings rows to unit length; `factors` gets 1 / (|x|^2 + epsilon)^(1/2) of each. */
static void normalize(const struct delta *p, int64_t count, float *rows, float *factors) {
    const int64_t length = padded(p->keys);
    if (!p->normalized) return;
    for (int64_t i = 0; i < count; i += VL) {
        vf root;
        float *const some = rows + i * length;
        square_roots(dots(lanes(count - i), length, some, some) + p->epsilon, &root, (vf *)(factors + i));
        for (int r = 0; r < lanes(count - i); r++)
            for (int64_t c = 0; c < length; c += VL) *(vf *)(some + r * length + c) *= factors[i + r];
    }
}

/* Turns the gradients of unit vectors into the gradients of their rows. */
static void gradients_of_units(const struct delta *p, int64_t count, float *gradients, const float *units,
                               const float *factors) {
    const int64_t length = padded(p->keys);
    if (!p->normalized) return;
    for (int64_t i = 0; i < count; i += VL) {
        float along[VL];
        *(vf_unaligned *)along = dots(lanes(count - i), length, gradients + i * length, units + i * length);
        for (int r = 0; r < lanes(count - i); r++)
            for (int64_t c = (i + r) * length; c < (i + r + 1) * length; c += VL)
                *(vf *)(gradients + c) = (*(const vf *)(gradients + c) - *(const vf *)(units + c) * along[r]) * factors[i + r];
    }
}

/* ---------------------------------------------------------------- a chunk of corrections */

INLINE vi lane_numbers(void) {
    vi lane;
    for (int i = 0; i < VL; i++) lane[i] = i;
    return lane;
}

/* The lanes of a vector from column `base` on that are below `end`. */
INLINE vi lanes_below(int64_t base, int64_t end) { return lane_numbers() < (int32_t)(end - base); }

/* A chunk of a unit. */
struct chunk {
    int64_t row, head;    /* the unit */
    int64_t first, steps; /* the steps [first, first + steps) */
    int64_t since;        /* steps of the group before these */
    int64_t factors;      /* corrections in a step */
    int64_t count;        /* corrections */
    int64_t keys, values; /* the sizes of a key and of a value */
    int64_t kp, vp, cp;   /* keys and values in whole vectors, and count in whole blocks */
};

INLINE struct chunk of_sizes(struct chunk at, int64_t count, int64_t keys, int64_t values) {
    at.count = count;
    at.keys = keys;
    at.values = values;
    at.cp = whole_blocks(count);
    at.kp = padded(keys);
    at.vp = padded(values);
    return at;
}

/* The chunk from step t on of the group [first, stop). */
INLINE struct chunk chunk_at(const struct delta *p, int64_t row, int64_t head, int64_t first, int64_t t, int64_t stop) {
    const int64_t length = steps_of_chunk(p), steps = t + length < stop ? length : stop - t;
    const struct chunk at = {.row = row, .head = head, .first = t, .steps = steps, .since = t - first,
                             .factors = p->factors};
    return of_sizes(at, steps * p->factors, p->keys, p->values);
}

/* CALL(chunk) with constant sizes in the usual case, so that products need not choose among blocks. */
#define EACH_SIZE(at, CALL)                                                                                    \
    if (at->count == CORRECTIONS && at->keys == 32 && at->values == 32) CALL(of_sizes(*at, CORRECTIONS, 32, 32)); \
    else CALL(*at)

/* Where the betas of a step begin, one for each factor and then the log decay, `heads` apart. */
INLINE int64_t weight_of(const struct delta *p, int64_t row, int64_t head, int64_t t) {
    return (t * p->batch + row) * (p->factors + p->gated) * p->heads + head;
}

/* The betas and decays of a group, whose lines are far apart. Those of a group of `ahead` steps from `next` on are
 * fetched. */
static void load_coefficients(const struct delta *p, int64_t row, int64_t head, int64_t first, int64_t stop,
                              int64_t next, int64_t ahead, struct scratch *m) {
    const int64_t heads = p->heads, factors = p->factors, apart = weight_of(p, 0, 0, 1);
    const float *weight = p->weight + weight_of(p, row, head, first);
    float *betas = m->betas, *const decays = m->decays;
    for (int64_t i = 0; i < stop - first; i++, weight += apart) {
        for (int64_t j = 0; j < factors; j++) *betas++ = weight[j * heads];
        if (p->gated) decays[i] = weight[factors * heads];
    }
    for (int64_t i = 0; p->gated && i < stop - first; i += VL)
        *(vf *)(decays + i) = exponential(*(const vf *)(decays + i));
    weight = p->weight + weight_of(p, row, head, next);
    for (int64_t i = 0; i < ahead; i++, weight += apart) {
        __builtin_prefetch(weight);
        __builtin_prefetch(weight + factors * heads);
    }
}

static void store_coefficients(const struct delta *p, int64_t row, int64_t head, int64_t first, int64_t stop,
                               const struct scratch *m) {
    const int64_t heads = p->heads, factors = p->factors, apart = weight_of(p, 0, 0, 1);
    float *dweight = p->dweight + weight_of(p, row, head, first);
    const float *dbetas = m->dbetas;
    for (int64_t i = 0; i < stop - first; i++, dweight += apart) {
        for (int64_t j = 0; j < factors; j++) dweight[j * heads] = *dbetas++;
        if (p->gated) dweight[factors * heads] = m->ddecays[i];
    }
}

/* The betas and decays of a chunk. */
INLINE void fill_coefficients(const struct delta *p, struct chunk at, struct scratch *m) {
    const float *const betas = m->betas + at.since * at.factors;
    for (int64_t c = 0; c < at.cp; c += VL) *(vf *)(m->beta + c) = load(betas + c, lanes(at.count - c));
    if (!p->gated) return;
    for (int64_t c = 0; c < at.cp; c += VL) {
        vf row = {0}, total = splat(1.0f);
        for (int64_t step = 0, i = 0; step < at.steps; step++)
            for (int64_t j = 0; j < at.factors; j++, i++) {
                if (!j) {
                    const vf decay = splat(m->decays[at.since + step]);
                    row *= decay, total *= decay;
                }
                row = select_lanes(lane_numbers() == (int32_t)(i - c), splat(1.0f), row);
                *(vf *)(m->between + i * at.cp + c) = row;
                m->since[i] = total[0];
            }
    }
}

INLINE float whole_decay(const struct delta *p, struct chunk at, const struct scratch *m) {
    return p->gated ? m->since[at.count - 1] : 1.0f;
}

/* a(n, i), or 1. */
INLINE float decay_until_end(const struct delta *p, struct chunk at, const struct scratch *m, int64_t i) {
    return p->gated ? m->between[(at.count - 1) * at.cp + i] : 1.0f;
}

/* Multiplies row t of products with corrections by a(t, i), and those from `end` on by 0. */
INLINE void weigh(const struct delta *p, const struct scratch *m, int64_t t, int64_t end, int64_t cp, float *row) {
    for (int64_t c = 0; c < cp; c += VL) {
        vf value = *(const vf *)(row + c);
        if (p->gated) value *= *(const vf *)(m->between + t * cp + c);
        *(vf *)(row + c) = mask(lanes_below(c, end), value);
    }
}

/* gram: -a(t, i) (k_i . k_t) for i < t, else 0, times beta_i, or backward beta_t, so that no row of the system waits for
 * a product with beta. read: a(t, i) (k_i . q) up to the end t of the query's step. */
INLINE void fill_products(const int backward, const struct delta *p, struct chunk at, const float *q, const float *k, struct scratch *m) {
    const int64_t kp = at.kp, cp = at.cp;
    transpose(at.count, kp, k, kp, m->kt, cp);
    product(at.count, cp, at.keys, BY_ROWS(k, kp), m->kt, cp, INTO(0, 1), m->gram, cp);
    for (int64_t t = 0; t < at.count; t++) {
        weigh(p, m, t, t, cp, m->gram + t * cp);
        for (int64_t c = 0; c < cp; c += VL)
            *(vf *)(m->gram + t * cp + c) *= backward ? splat(-m->beta[t]) : -*(const vf *)(m->beta + c);
    }
    memset(m->gram + at.count * cp, 0, (size_t)(4 * (cp - at.count) * cp));
    if (!q) return;
    product(at.steps, cp, at.keys, BY_ROWS(q, kp), m->kt, cp, INTO(0, 1), m->read, cp);
    for (int64_t step = 0; step < at.steps; step++) {
        const int64_t t = (step + 1) * at.factors - 1;
        weigh(p, m, t, t + 1, cp, m->read + step * cp);
    }
}

/* ---------------------------------------------------------------- forward */

/* A vector of columns of a block's rows from `from` on, of which `count` exist. */
INLINE void load_block(const float *from, int64_t ld, int64_t count, vf *rows) {
#pragma GCC unroll 16
    for (int i = 0; i < TRIANGLE; i++) rows[i] = i < count ? *(const vf *)(from + i * ld) : (vf){0};
}

/* e <- (I - gram)^-1 e and u = beta e, rows [vp]. */
INLINE void solve(struct chunk at, const struct scratch *m, float *e) {
    const int64_t vp = at.vp, cp = at.cp;
    for (int64_t first = 0; first < at.count; first += TRIANGLE) {
        const int64_t count = at.count - first < TRIANGLE ? at.count - first : TRIANGLE;
        const float *const gram = m->gram + first * cp;
        if (first) product(count, vp, first, BY_ROWS(gram, cp), e, vp, INTO(1, 1), e + first * vp, vp);
        for (int64_t c = 0; c < vp; c += VL) {
            vf rows[TRIANGLE];
            float *const to = e + first * vp + c;
            load_block(to, vp, count, rows);
            substitute(*BY_ROWS(gram + first, cp), rows);
#pragma GCC unroll 16
            for (int i = 0; i < TRIANGLE; i++) {
                if (i >= count) break;
                *(vf *)(to + i * vp) = rows[i];
                *(vf *)(m->u + (first + i) * vp + c) = rows[i] * m->beta[first + i];
            }
        }
    }
}

enum { BLOCK = 4 }; /* steps whose readings are added together */

/* y += read u. A query uses no later correction, not even with a factor 0, so a NaN cannot affect earlier steps. */
INLINE void add_readings(struct chunk at, const struct scratch *m) {
    const int64_t vp = at.vp, cp = at.cp;
    for (int64_t first = 0; first < at.steps; first += BLOCK) {
        const int64_t stop = first + BLOCK < at.steps ? first + BLOCK : at.steps, done = first * at.factors;
        if (done) product(stop - first, vp, done, BY_ROWS(m->read + first * cp, cp), m->u, vp, INTO(1, 1),
                          m->y + first * vp, vp);
        for (int64_t step = first; step < stop; step++)
            for (int64_t c = 0; c < vp; c += VL) {
                vf *const y = (vf *)(m->y + step * vp + c);
                for (int64_t i = done; i < (step + 1) * at.factors; i++)
                    *y += *(const vf *)(m->u + i * vp + c) * m->read[step * cp + i];
            }
    }
}

/* The decays since the chunk's start at the ends of its steps, or NULL. */
INLINE const float *decays_of_queries(const struct delta *p, struct chunk at, const struct scratch *m, float *to) {
    if (!p->gated) return NULL;
    for (int64_t step = 0; step < at.steps; step++) to[step] = m->since[(step + 1) * at.factors - 1];
    return to;
}

INLINE float *errors_of(const struct delta *p, int64_t row, int64_t head, int64_t t) {
    return p->errors + ((row * p->heads + head) * p->steps + t) * p->factors * p->values;
}

INLINE void forward_sized(const struct delta *p, struct chunk at, const float *q, const float *k, float *v,
                          struct scratch *m) {
    const int64_t kp = at.kp, vp = at.vp;
    if (p->errors) {
        const float *const next = errors_of(p, at.row, at.head, at.first + at.steps);
        m->ahead = (struct ahead){next, next + at.count * at.values};
    }
    fill_coefficients(p, at, m);
    request_some(&m->ahead, 1);
    fill_products(0, p, at, q, k, m);
    request_some(&m->ahead, 1);
    product(at.count, vp, at.keys, BY_ROWS(k, kp), m->s, vp, INTO(1, -1, p->gated ? m->since : NULL), v, vp);
    request_some(&m->ahead, 1);
    solve(at, m, v);
    request_some(&m->ahead, 1);
    if (p->errors) {
        float *const to = errors_of(p, at.row, at.head, at.first);
        for (int64_t i = 0; i < at.count; i++)
            for (int64_t c = 0; c < at.values; c += VL)
                store(to + i * at.values + c, *(const vf *)(v + i * vp + c), lanes(at.values - c));
    }
    if (q) {
        const float *const decays = decays_of_queries(p, at, m, m->gram); /* the system is solved */
        product(at.steps, vp, at.keys, BY_ROWS(q, kp), m->s, vp, INTO(0, 1, decays), m->y, vp);
        add_readings(at, m);
        for (int64_t step = 0; step < at.steps; step++) {
            const int64_t place = (at.first + step) * p->batch + at.row;
            for (int64_t c = 0; c < at.values; c += VL)
                store(p->y + (place * p->heads + at.head) * at.values + c, *(const vf *)(m->y + step * vp + c),
                      lanes(at.values - c));
        }
    }
    if (p->gated)
        for (int64_t i = 0; i < at.count; i++)
            for (int64_t c = 0; c < vp; c += VL) *(vf *)(m->u + i * vp + c) *= decay_until_end(p, at, m, i);
    product(at.keys, vp, at.count, BY_COLUMNS(k, kp), m->u, vp, INTO(whole_decay(p, at, m), 1), m->s, vp);
}

static void forward_chunk(const struct delta *p, const struct chunk *at, const float *q, const float *k, float *v,
                          struct scratch *m) {
#define FORWARD(AT) forward_sized(p, AT, q, k, v, m)
    EACH_SIZE(at, FORWARD);
#undef FORWARD
}

static void forward_unit(const struct delta *p, int64_t row, int64_t head, struct scratch *m) {
    const int64_t kp = padded(p->keys), vp = padded(p->values), length = steps_of_chunk(p);
    const int64_t size = p->keys * p->values, unit = row * p->heads + head;
    const int64_t groups = (p->steps + p->group - 1) / p->group;
    pad_rows(p->keys, p->values, p->start + unit * size, m->s);
    for (int64_t first = 0; first < p->steps; first += p->group) {
        const int64_t stop = first + p->group < p->steps ? first + p->group : p->steps;
        float *const start = p->starts ? p->starts + (unit * groups + first / p->group) * p->keys * vp : NULL;
        for (int64_t i = 0; start && i < p->keys * vp; i += VL) stream(start + i, *(const vf *)(m->s + i));
        load_coefficients(p, row, head, first, stop, stop, p->steps - stop < p->group ? p->steps - stop : p->group, m);
        fill_rows(p, row, head, first, stop, p->group, m->x, NULL);
        normalize(p, (stop - first) * p->factors, m->x.k, m->k_factors);
        if (p->reads) normalize(p, stop - first, m->x.q, m->q_factors);
        for (int64_t t = first; t < stop; t += length) {
            const struct chunk at = chunk_at(p, row, head, first, t, stop);
            forward_chunk(p, &at, p->reads ? m->x.q + at.since * kp : NULL, m->x.k + at.since * p->factors * kp,
                          m->x.v + at.since * p->factors * vp, m);
        }
    }
    copy_rows(p->keys, p->values, m->s, padded(p->values), p->end + unit * size, p->values);
}

/* ---------------------------------------------------------------- backward */

/* S^T behind a chunk from S^T before it. */
INLINE void slot_sized(const struct delta *p, struct chunk at, const float *k, const float *errors, const float *before,
                       float *after, struct scratch *m) {
    const int64_t kp = at.kp, vp = at.vp;
    float until = 1.0f;
    for (int64_t step = at.steps - 1, i = at.count - 1; step >= 0; step--) {
        for (int64_t j = 0; j < at.factors; j++, i--) {
            const float factor = m->betas[at.since * at.factors + i] * until;
            for (int64_t c = 0; c < vp; c += VL) *(vf *)(m->u + i * vp + c) = *(const vf *)(errors + i * vp + c) * factor;
        }
        if (p->gated) until *= m->decays[at.since + step];
    }
    product(at.values, kp, at.count, BY_COLUMNS(m->u, vp), k, kp, INTO(until, 1, NULL, before), after, kp);
}

static void next_slot(const struct delta *p, const struct chunk *at, const float *k, const float *errors, const float *before,
                      float *after, struct scratch *m) {
#define SLOT(AT) slot_sized(p, AT, k, errors, before, after, m)
    EACH_SIZE(at, SLOT);
#undef SLOT
}

/* du <- (I - gram^T)^-1 du and de = beta du. */
INLINE void solve_transposed(struct chunk at, const struct scratch *m, float *de) {
    const int64_t vp = at.vp, cp = at.cp;
    for (int64_t first = (at.count - 1) / TRIANGLE * TRIANGLE; first >= 0; first -= TRIANGLE) {
        const int64_t stop = first + TRIANGLE, count = at.count < stop ? at.count - first : TRIANGLE;
        if (stop < at.count)
            product(TRIANGLE, vp, at.count - stop, BY_COLUMNS(m->gram + stop * cp + first, cp), m->du + stop * vp, vp,
                    INTO(1, 1), m->du + first * vp, vp);
        for (int64_t c = 0; c < vp; c += VL) {
            vf rows[TRIANGLE], last_first[TRIANGLE];
            float *const to = m->du + first * vp + c;
            load_block(to, vp, count, rows);
#pragma GCC unroll 16
            for (int i = 0; i < TRIANGLE; i++) last_first[i] = rows[TRIANGLE - 1 - i];
            substitute(reversed(*BY_COLUMNS(m->gram + first * cp + first, cp)), last_first);
#pragma GCC unroll 16
            for (int i = 0; i < TRIANGLE; i++) {
                if (i >= count) break;
                const vf row = last_first[TRIANGLE - 1 - i];
                *(vf *)(to + i * vp) = row;
                *(vf *)(de + (first + i) * vp + c) = row * m->beta[first + i];
            }
        }
    }
}

/* Rows of dL/dy of the chunk's steps. */
INLINE void load_reading_gradients(const struct delta *p, struct chunk at, struct scratch *m) {
    const int64_t vp = at.vp;
    for (int64_t step = 0; step < at.steps; step++) {
        const int64_t place = (at.first + step) * p->batch + at.row;
        for (int64_t c = 0; c < vp; c += VL)
            *(vf *)(m->dy + step * vp + c) =
                load(p->grad_y + (place * p->heads + at.head) * at.values + c, lanes(at.values - c));
    }
}

/* The rows of a chunk, their gradients, and the memory around it. */
struct view {
    const float *q;      /* [steps, keys] */
    const float *k;      /* [c, keys] */
    const float *v;      /* [c, values] */
    const float *errors; /* [c, values] */
    const float *before; /* S^T before the chunk [values, keys] */
    const float *after;  /* S^T behind the chunk [values, keys] */
    float *dq;           /* [steps, keys] */
    float *dk;           /* [c, keys] */
    float *dv;           /* [c, values] */
};

/* dL/d(log decay) of each step. <dL/dS_t, S_t> loses v . de at a correction and has gained q . dq at a reading. */
INLINE void gradients_of_decays(struct chunk at, int reading, struct view r, struct scratch *m) {
    const int64_t kp = at.kp, vp = at.vp;
    float product = dot(m->dt, r.after, at.values * kp);
    for (int64_t i = 0; i < at.count; i += VL)
        *(vf *)(m->factors + i) = dots(lanes(at.count - i), vp, r.v + i * vp, r.dv + i * vp);
    for (int64_t step = at.steps - 1; step >= 0; step--) {
        if (reading) product += dot(r.q + step * kp, r.dq + step * kp, kp);
        for (int64_t i = (step + 1) * at.factors - 1; i >= step * at.factors; i--) product -= m->factors[i];
        m->ddecays[at.since + step] = product;
    }
}

/* |dL/dS_t|^2 of a chunk of one step. */
static void fill_norm(const struct delta *p, struct chunk at, const float *q, const struct scratch *m) {
    float total = 0;
    for (int64_t i = 0; i < at.keys; i++)
        for (int64_t c = 0; c < at.vp; c += VL) {
            vf value = *(const vf *)(m->s + i * at.vp + c);
            if (q) value += *(const vf *)(m->dy + c) * q[i];
            total += sum_of(value * value);
        }
    p->norms[(at.first * p->batch + at.row) * p->heads + at.head] = total;
}

INLINE void backward_sized(const struct delta *p, struct chunk at, struct view r, struct scratch *m) {
    const int64_t kp = at.kp, vp = at.vp, cp = at.cp, keys = at.keys, values = at.values;
    const int reading = p->reads && p->grad_y;
    float *const d = m->s, *const de = r.dv; /* v is the first part of the error */
    fill_coefficients(p, at, m);
    fill_products(1, p, at, reading ? r.q : NULL, r.k, m);
    if (reading) load_reading_gradients(p, at, m);
    if (p->norms) fill_norm(p, at, reading ? r.q : NULL, m);
    transpose(keys, vp, d, vp, m->dt, kp);
    for (int64_t i = 0; i < at.count; i++) {
        m->until[i] = decay_until_end(p, at, m, i);
        m->factors[i] = (p->gated ? m->since[i] : 1.0f) * m->beta[i];
    }
    product(at.count, vp, keys, BY_ROWS(r.k, kp), d, vp, INTO(0, 1, p->gated ? m->until : NULL), m->du, vp);
    if (reading) product(at.count, vp, at.steps, BY_COLUMNS(m->read, cp), m->dy, vp, INTO(1, 1), m->du, vp);
    request_some(&m->ahead, 0);
    solve_transposed(at, m, de);
    request_some(&m->ahead, 0);
    /* du_t . e_i; the diagonal is dL/dbeta, and below are the parts of dL/dk by other keys of the chunk. */
    transpose(at.count, vp, r.errors, vp, m->et, cp);
    product(at.count, cp, values, BY_ROWS(m->du, vp), m->et, cp, INTO(0, 1), m->w, cp);
    for (int64_t t = 0; t < at.count; t++) {
        float *const row = m->w + t * cp;
        m->dbetas[at.since * at.factors + t] = row[t];
        for (int64_t c = 0; c < cp; c += VL) *(vf *)(row + c) *= *(const vf *)(m->beta + c) * m->beta[t];
        weigh(p, m, t, t, cp, row);
    }
    request_some(&m->ahead, 0);
    transpose(at.count, cp, m->w, cp, m->wt, cp);
    for (int64_t i = 0; i < at.count * cp; i += VL) *(vf *)(m->w + i) += *(const vf *)(m->wt + i);
    for (int64_t i = 0; i < at.count; i++) m->until[i] *= m->beta[i];
    product(at.count, kp, values, BY_ROWS(r.errors, vp), m->dt, kp, INTO(0, 1, m->until), r.dk, kp);
    request_some(&m->ahead, 0);
    product(at.count, kp, values, BY_ROWS(m->du, vp), r.before, kp, INTO(1, -1, m->factors), r.dk, kp);
    product(at.count, kp, at.count, BY_ROWS(m->w, cp), r.k, kp, INTO(1, -1), r.dk, kp);
    if (reading) { /* dy . e_i */
        product(at.steps, cp, values, BY_ROWS(m->dy, vp), m->et, cp, INTO(0, 1), m->f, cp);
        for (int64_t step = 0; step < at.steps; step++) {
            const int64_t t = (step + 1) * at.factors - 1;
            float *const row = m->f + step * cp;
            for (int64_t c = 0; c < cp; c += VL) *(vf *)(row + c) *= *(const vf *)(m->beta + c);
            weigh(p, m, t, t + 1, cp, row);
        }
        product(at.count, kp, at.steps, BY_COLUMNS(m->f, cp), r.q, kp, INTO(1, 1), r.dk, kp);
        const float *const decays = decays_of_queries(p, at, m, m->gram);
        product(at.steps, kp, values, BY_ROWS(m->dy, vp), r.before, kp, INTO(0, 1, decays), r.dq, kp);
        product(at.steps, kp, at.count, BY_ROWS(m->f, cp), r.k, kp, INTO(1, 1), r.dq, kp);
    }
    if (p->gated) {
        gradients_of_decays(at, reading, r, m);
        for (int64_t i = 0; i < at.count; i++)
            for (int64_t c = 0; c < vp; c += VL) *(vf *)(m->u + i * vp + c) = *(vf *)(de + i * vp + c) * m->since[i];
        if (reading)
            for (int64_t step = 0; step < at.steps; step++)
                for (int64_t c = 0; c < vp; c += VL)
                    *(vf *)(m->dy + step * vp + c) *= m->since[(step + 1) * at.factors - 1];
    }
    request_some(&m->ahead, 0);
    product(keys, vp, at.count, BY_COLUMNS(r.k, kp), p->gated ? m->u : de, vp, INTO(whole_decay(p, at, m), -1), d, vp);
    if (reading) product(keys, vp, at.steps, BY_COLUMNS(r.q, kp), m->dy, vp, INTO(1, 1), d, vp);
}

static void backward_chunk(const struct delta *p, const struct chunk *at, const struct view *r, struct scratch *m) {
#define BACKWARD(AT) backward_sized(p, AT, *r, m)
    EACH_SIZE(at, BACKWARD);
#undef BACKWARD
}

static void backward_group(const struct delta *p, int64_t row, int64_t head, int64_t first, int64_t stop,
                           struct scratch *m) {
    const int64_t kp = padded(p->keys), vp = padded(p->values), length = steps_of_chunk(p);
    const int64_t unit = row * p->heads + head, factors = p->factors, slot = p->values * kp;
    const int64_t groups = (p->steps + p->group - 1) / p->group, count = (stop - first) * factors;
    const int64_t earlier = first < p->group ? first : p->group;
    const float *errors = errors_of(p, row, head, first);
    load_coefficients(p, row, head, first, stop, first - earlier, earlier, m);
    fill_rows(p, row, head, first, stop, -p->group, m->x, &m->slopes);
    normalize(p, count, m->x.k, m->k_factors);
    if (p->reads) normalize(p, stop - first, m->x.q, m->q_factors);
    if (p->values != vp) {
        pad_rows(count, p->values, errors, m->errors);
        errors = m->errors;
    }
    const float *const next = errors_of(p, row, head, first - earlier);
    m->ahead = (struct ahead){next, next + earlier * factors * p->values};
    const float *const start = p->starts + (unit * groups + first / p->group) * p->keys * vp;
    m->start = (struct ahead){start - (first ? p->keys * vp : 0), start};
    transpose(p->keys, p->values, start, vp, m->slots, kp);
    int64_t chunks = 0;
    for (int64_t t = first; t < stop; t += length, chunks++) {
        if (t + length >= stop && !p->gated) continue;
        const struct chunk at = chunk_at(p, row, head, first, t, stop);
        next_slot(p, &at, m->x.k + at.since * factors * kp, errors + at.since * factors * vp, m->slots + chunks * slot,
                  m->slots + (chunks + 1) * slot, m);
    }
    for (int64_t t = first + (chunks - 1) * length; t >= first; t -= length) {
        const struct chunk at = chunk_at(p, row, head, first, t, stop);
        const int64_t k = at.since * factors * kp, v = at.since * factors * vp;
        const float *const before = m->slots + at.since / length * slot;
        const struct view rows = {m->x.q + at.since * kp, m->x.k + k, m->x.v + v, errors + v, before, before + slot,
                                  m->dx.q + at.since * kp, m->dx.k + k, m->dx.v + v};
        backward_chunk(p, &at, &rows, m);
        request_some(&m->start, 0);
    }
    store_coefficients(p, row, head, first, stop, m);
    gradients_of_units(p, count, m->dx.k, m->x.k, m->k_factors);
    if (p->reads && p->grad_y) gradients_of_units(p, stop - first, m->dx.q, m->x.q, m->q_factors);
    else if (p->reads) memset(m->dx.q, 0, (size_t)(4 * (stop - first) * kp));
    gradients_of_rows(p, row, head, first, stop, m->dx, m->slopes, m->later,
                      (p->reads + factors) * kp + factors * vp);
}

static void backward_unit(const struct delta *p, int64_t row, int64_t head, struct scratch *m) {
    const int64_t kp = padded(p->keys), vp = padded(p->values), size = p->keys * p->values;
    const int64_t unit = row * p->heads + head;
    if (p->grad_end) pad_rows(p->keys, p->values, p->grad_end + unit * size, m->s);
    else memset(m->s, 0, (size_t)(4 * p->keys * vp));
    if (p->taps)
        memset(m->later, 0, (size_t)(4 * (p->taps - 1) * ((p->reads + p->factors) * kp + p->factors * vp)));
    for (int64_t first = (p->steps - 1) / p->group * p->group; first >= 0; first -= p->group)
        backward_group(p, row, head, first, first + p->group < p->steps ? first + p->group : p->steps, m);
    copy_rows(p->keys, p->values, m->s, padded(p->values), p->dstart + unit * size, p->values);
}

/* ---------------------------------------------------------------- the passes */

static int run(const struct delta *p, int64_t first, int64_t last, int backward) {
    struct carver size = {NULL, 0};
    carve_scratch(&size, p, backward);
    struct carver from = {zeros(size.used), 0};
    if (!from.base) return 1;
    struct scratch m = carve_scratch(&from, p, backward);
    const uint64_t denormals = flush_denormals();
    for (int64_t unit = first; unit < last; unit++) {
        if (backward) backward_unit(p, unit / p->heads, unit % p->heads, &m);
        else forward_unit(p, unit / p->heads, unit % p->heads, &m);
    }
    end_streams();
    restore_denormals(denormals);
    free(from.base);
    return 0;
}

/* y, S_T, and for a backward pass errors and starts. Returns nonzero without memory. */
int delta_forward(const struct delta *p, int64_t first, int64_t last) { return run(p, first, last, 0); }

/* The gradients, and the norms if they are needed. Returns nonzero without memory. */
int delta_backward(const struct delta *p, int64_t first, int64_t last) { return run(p, first, last, 1); }
