/* sLSTM through time, in float32: exponential gates, a normaliser and a stabiliser, and recurrent weights within heads.
 *
 * The caller gives each thread a range of batch rows, and no thread waits. Tensors are contiguous and time major. A
 * head has d = features / heads units and its own matrix of weights [4 d, d], with the gates i, f, z, o one after
 * another. Here dL/dz of a row is therefore [heads, 4, d], but x and dx are [4, features] as the caller has them. */
#include <float.h>
#include <math.h>

#include "products.h"

#define LARGEST_EXPONENT 80.0f

/* What a pass does not need, and what it does not want, is NULL. */
struct slstm {
    int64_t steps, batch, features;   /* T, B and the units of all heads */
    int64_t heads;                    /* their number */
    int64_t inputs;                   /* columns of u, or 0 */
    int64_t differentiated;           /* columns of du: all except the bias's */
    int64_t groups;                   /* groups of batch rows, whose weight gradients are summed separately */
    int64_t exponential;              /* whether the forget gate is exp(f), not sigmoid(f) */
    int64_t stride;                   /* floats between the steps of c and n: a step's, or 0 if one step is kept */
    const float *x;                   /* [T, B, 4 features], or NULL if it is U u */
    const float *u;                   /* [T, B, inputs], or NULL */
    const float *packed;              /* the weights of each head, packed; backward transposed */
    const float *packed_inputs;       /* U of each head, packed */
    const float *packed_transposed;   /* U [heads * 4 d, differentiated], packed for dz U */
    const float *h0, *c0, *n0;        /* [B, features] */
    float *h;                         /* [T, B, features] */
    float *c, *n;                     /* the same, or of one step, see `stride` */
    float *m;                         /* [B, features]; at first m0 */
    float *saved;                     /* decay, closing, z and o of `advance` [T, B, heads, 4, d], or NULL */
    const float *grad_h;              /* dL/dh_t of all steps [T, B, features], or NULL */
    const float *grad_last;           /* dL/dh_T [B, features], where grad_h does not have it, or NULL */
    float *dx;                        /* as x */
    float *du;                        /* [T, B, differentiated] */
    float *dweights;                  /* [groups, heads, 4 d, padded(d + inputs)], zeroed */
    float *dh0;                       /* [B, features] */
    float *dc0, *dn0, *dm0;           /* [B, features]; at first the gradients of the final state */
    float *norms, *c_norms, *n_norms; /* of h, c and n [T, B], or NULL */
};

static int64_t units(const struct slstm *p) { return p->features / p->heads; }

/* Floats of a head's packed matrix. */
static int64_t packed_size(int64_t columns, int64_t gates, int64_t depth) {
    return padded(columns) * gates * depth;
}

/* The state before step t of the rows from `first`. */
INLINE const float *before(const struct slstm *p, const float *states, const float *start, int64_t stride, int64_t t,
                           int64_t first) {
    return (t ? states + (t - 1) * stride : start) + first * p->features;
}

/* Whether a lane is one of the first `count`. Those behind are NaN here, where n is 0. */
INLINE vi first_lanes(int count) {
    vi lane;
    for (int i = 0; i < VL; i++) lane[i] = i;
    return lane < count;
}

/* ---------------------------------------------------------------- forward */

/* 1 / n, and 0 of infinity. */
INLINE vf inverse_of(vf n) { return reciprocal(clamp(n, -FLT_MAX, FLT_MAX)); }

/* The gates of some units. Of the factors exp(log f' + m_{t-1} - m_t) and exp(i - m_t) one is 1. */
struct gates {
    vf decay;   /* the other factor, with the sign bit set where it is the second */
    vf closing; /* 1 - sigmoid(f) */
    vf z, o;    /* after their functions */
};

/* One step of some units from their pre-activations. */
INLINE struct gates advance(const int exponential_forget, const vf *raw, vf *c, vf *n, vf *m, vf *h) {
    struct gates gate = {.z = hyperbolic_tangent(raw[2]), .o = sigmoid(raw[3])};
    const vf log_forget = exponential_forget ? raw[1] : log_sigmoid(raw[1], &gate.closing);
    const vf faded = *m + log_forget, difference = faded - raw[0];
    const vi input_wins = (*n == 0) | (difference <= 0);
    const vf other = exponential(select_lanes(input_wins, at_most(difference, LARGEST_EXPONENT), -difference));
    *m = select_lanes(input_wins, raw[0], faded);
    const vf one = 1.0f + (*m - *m); /* exp(m - m), which is NaN of an infinite m */
    const vf keep = select_lanes(input_wins, other, one), write = select_lanes(input_wins, one, other);
    gate.decay = select_lanes(input_wins, other, -other);
    *c = mixture(keep, *c, write, gate.z);
    *n = keep * *n + write;
    *h = gate.o * *c * inverse_of(*n);
    return gate;
}

INLINE void finish_forward(const int exponential_forget, const struct slstm *p, int64_t t, int64_t first, int64_t row,
                           int rows, int64_t head, int64_t col, const float *block) {
    const int64_t width = p->features, d = units(p), at = head * d + col, next = p->batch * width;
    const int count = lanes(d - col);
    for (int i = 0; i < rows; i++) {
        const int64_t place = (first + row + i) * width + at, here = t * next + place;
        const int64_t gate = (t * p->batch + first + row + i) * 4 * width;
        float *const saved = p->saved ? p->saved + gate + head * 4 * d + col : NULL;
        vf raw[4];
        for (int k = 0; k < 4; k++) {
            raw[k] = *(const vf *)(block + (i * 4 + k) * VL);
            if (p->x) raw[k] += load(p->x + gate + k * width + at, count);
            if (p->x) __builtin_prefetch(p->x + gate + k * width + at + 4 * next);
            if (saved) __builtin_prefetch(saved + k * d + 4 * next, 1);
        }
        vf c = load(before(p, p->c, p->c0, p->stride, t, 0) + place, count);
        vf n = load(before(p, p->n, p->n0, p->stride, t, 0) + place, count), m = load(p->m + place, count), h;
        const struct gates gates = advance(exponential_forget, raw, &c, &n, &m, &h);
        store(p->h + here, h, count);
        store(p->c + t * p->stride + place, c, count);
        store(p->n + t * p->stride + place, n, count);
        store(p->m + place, m, count);
        __builtin_prefetch(p->h + here + next, 1);
        if (!saved) continue;
        __builtin_prefetch(p->c + here + next, 1);
        __builtin_prefetch(p->n + here + next, 1);
        store(saved, gates.decay, count);
        if (!exponential_forget) store(saved + d, gates.closing, count);
        store(saved + 2 * d, gates.z, count);
        store(saved + 3 * d, gates.o, count);
    }
}

INLINE void forward(const int exponential_forget, const struct slstm *p, int64_t first, int64_t last) {
    _Alignas(64) float block[ROWS * 4 * VL];
    const int64_t width = p->features, d = units(p), inputs = p->inputs, rows = last - first;
    const int64_t size = packed_size(d, 4, d), input_size = packed_size(d, 4, inputs);
    const int64_t blocks = (rows + ROWS - 1) / ROWS;
    for (int64_t t = 0; t < p->steps; t++) {
        const float *const h = before(p, p->h, p->h0, p->batch * width, t, first);
        for (int64_t head = 0; head < p->heads; head++) {
            const struct operand operands[] = {
                {h + head * d, width, d, p->packed + head * size},
                {p->u + (t * p->batch + first) * inputs, inputs, inputs, p->packed_inputs + head * input_size},
            };
            for (int64_t col = 0; col < d; col += VL)
                for (int64_t b = 0; b < blocks; b++) {
                    const int64_t row = rows * b / blocks;
                    const int height = (int)(rows * (b + 1) / blocks - row);
                    for (int part = 0; part < 2; part++)
                        multiply(height, 2, operands, p->u ? 2 : 1, row, col * 4 + part * 2 * VL, block + part * 2 * VL,
                                 4 * VL);
                    finish_forward(exponential_forget, p, t, first, row, height, head, col, block);
                }
        }
    }
}

/* h, c, n, m, and saved if it is wanted, of the rows in [first, last). */
int slstm_forward(const struct slstm *p, int64_t first, int64_t last) {
    const uint64_t denormals = flush_denormals();
    if (p->exponential) forward(1, p, first, last);
    else forward(0, p, first, last);
    restore_denormals(denormals);
    return 0;
}

/* ---------------------------------------------------------------- backward */

/* dL/dz of some steps, which are added to the sums together. */
struct ring {
    float *dz;      /* [rows, chunk, ld] */
    int64_t chunk;  /* steps */
    int64_t ld;     /* floats between a row's steps: whole cache lines, an odd number of them */
    float *squares; /* [3, rows, VL]: partial sums for the norms, or NULL */
};

INLINE void finish_backward(const int exponential_forget, const struct slstm *p, const struct ring *ring, int64_t t,
                            int64_t first, int64_t rows, int64_t row, int height, int64_t head, int64_t col,
                            const int vecs, const float *block) {
    const int64_t width = p->features, d = units(p), step = p->batch * width;
    const float *const arriving = p->grad_h ? p->grad_h + t * step : t == p->steps - 1 ? p->grad_last : NULL;
    const vf one = splat(1.0f);
    for (int i = 0; i < height; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t unit = col + v * VL, place = (first + row + i) * width + head * d + unit;
            const int64_t here = t * step + place, gate = (t * p->batch + first + row + i) * 4 * width;
            const int count = lanes(d - unit);
            const float *const saved = p->saved + gate + head * 4 * d + unit;
            float *const dz = ring->dz + ((row + i) * ring->chunk + t % ring->chunk) * ring->ld + head * 4 * d + unit;
            const float *const c_at = before(p, p->c, p->c0, step, t, 0) + place;
            const float *const n_at = before(p, p->n, p->n0, step, t, 0) + place;
            for (int k = 0; k < 4; k++) __builtin_prefetch(saved + k * d - 4 * step);
            __builtin_prefetch(c_at - step);
            __builtin_prefetch(n_at - step);
            __builtin_prefetch(p->h + here - step);
            vf dh = *(const vf *)(block + (i * 2 + v) * VL);
            if (arriving) dh += load(arriving + place, count);
            if (p->grad_h) __builtin_prefetch(arriving + place - step);
            const vf c = load(c_at, count), n = load(n_at, count), h = load(p->h + here, count);
            const vf coded = load(saved, count), z = load(saved + 2 * d, count), o = load(saved + 3 * d, count);
            const vf scaled = dh * inverse_of(load(p->n + here, count));
            const vf dc = load(p->dc0 + place, count) + scaled * o, dn = load(p->dn0 + place, count) - scaled * h;
            if (ring->squares) {
                const vf parts[] = {dh, dc, dn};
                for (int k = 0; k < 3; k++)
                    *(vf *)(ring->squares + (k * rows + row + i) * VL) += mask(first_lanes(count), parts[k] * parts[k]);
            }
            const vf other = magnitude(coded);
            const vi faded_wins = (vi)coded < 0, starts = n == 0;
            const vf keep = select_lanes(faded_wins, one, other), write = select_lanes(faded_wins, other, one);
            vf by_keep = keep * (dc * c + dn * n), by_write = write * (dc * z + dn);
            by_keep = mask(~(starts & (other > 5.5e34f)), by_keep); /* the largest exponent has no derivative */
            /* If the exponents are equal, each has half of the larger's derivative, as torch.maximum defines it. */
            const vf share = select_lanes((other == 1) & ~starts, splat(0.5f), mask(faded_wins, one));
            const vf rest = load(p->dm0 + place, count) - by_keep - by_write, faded = by_keep + share * rest;
            const vf parts[] = {
                by_write + (one - share) * rest,
                exponential_forget ? faded : faded * load(saved + d, count),
                write * dc * tangent_slope(z),
                dh * h * (one - o),
            };
            for (int k = 0; k < 4; k++) {
                store(dz + k * d, parts[k], count);
                if (p->dx) store(p->dx + gate + k * width + head * d + unit, parts[k], count);
            }
            store(p->dc0 + place, keep * dc, count);
            store(p->dn0 + place, keep * dn, count);
            store(p->dm0 + place, faded, count);
        }
}

/* The product of dL/dz after step t, and the terms that a step adds; with t = -1 the product is dL/dh_0. */
INLINE void step_backward(const int exponential_forget, const struct slstm *p, const struct ring *ring, int64_t t,
                          int64_t first, int64_t rows) {
    _Alignas(64) float block[ROWS * 2 * VL] = {0};
    const int64_t d = units(p), size = packed_size(d, 1, 4 * d), blocks = (rows + ROWS - 1) / ROWS;
    const float *const later = ring->dz + (t + 1) % ring->chunk * ring->ld;
    for (int64_t head = 0; head < p->heads; head++) {
        const struct operand carried = {later + head * 4 * d, ring->chunk * ring->ld, 4 * d, p->packed + head * size};
        for (int64_t col = 0; col < d; col += 2 * VL) {
            const int vecs = d - col > VL ? 2 : 1;
            for (int64_t b = 0; b < blocks; b++) {
                const int64_t row = rows * b / blocks;
                const int height = (int)(rows * (b + 1) / blocks - row);
                if (t < p->steps - 1) multiply(height, vecs, &carried, 1, row, col, block, 2 * VL);
                if (t >= 0) {
                    finish_backward(exponential_forget, p, ring, t, first, rows, row, height, head, col, vecs, block);
                    continue;
                }
                for (int i = 0; i < height; i++)
                    for (int v = 0; v < vecs; v++) {
                        const int64_t unit = col + v * VL, place = (first + row + i) * p->features + head * d + unit;
                        store(p->dh0 + place, *(const vf *)(block + (i * 2 + v) * VL), lanes(d - unit));
                    }
            }
        }
    }
}

/* Adds the products of the steps [t, t + chunk) with [h, u], if t starts a chunk, of the batch groups of these rows. Of
 * the steps behind the last, dz is still 0. */
static void add_products(const struct slstm *p, const struct ring *ring, int64_t t, int64_t first, int64_t last) {
    if (!p->dweights || t % ring->chunk) return;
    const int64_t d = units(p), m = p->inputs, head_size = 4 * d * padded(d + m);
    struct factor factors[DEPTH];
    for (int64_t group = 0; group < p->groups; group++) {
        const int64_t start = p->batch * group / p->groups, stop = p->batch * (group + 1) / p->groups;
        if (start < first || stop > last) continue;
        for (int64_t head = 0; head < p->heads; head++) {
            const float *dz = ring->dz + (start - first) * ring->chunk * ring->ld + head * 4 * d;
            float *const out = p->dweights + (group * p->heads + head) * head_size;
            int64_t depth = 0;
            for (int64_t row = start; row < stop; row++)
                for (int64_t k = 0; k < ring->chunk; k++) {
                    const int64_t step = t + k < p->steps ? t + k : p->steps - 1;
                    factors[depth++] = (struct factor){
                        before(p, p->h, p->h0, p->batch * p->features, step, row) + head * d,
                        p->u + (step * p->batch + row) * m,
                    };
                    if (depth < DEPTH && (k < ring->chunk - 1 || row < stop - 1)) continue;
                    const struct rows rows = {dz, depth, ring->ld};
                    accumulate_outer(&rows, factors, 0, 4 * d, 0, d + m, d, m, out, NULL);
                    dz += depth * ring->ld;
                    depth = 0;
                }
        }
    }
}

/* du of the same steps. */
static void multiply_back(const struct slstm *p, const struct ring *ring, int64_t t, int64_t first, int64_t last) {
    if (!p->du || t % ring->chunk) return;
    _Alignas(64) float block[ROWS * 2 * VL];
    const int64_t m = p->differentiated, count = (last - first) * ring->chunk, blocks = (count + ROWS - 1) / ROWS;
    const struct operand dz = {ring->dz, ring->ld, 4 * p->features, p->packed_transposed};
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t col = 0; col < m; col += 2 * VL) {
            const int64_t at = count * b / blocks, rows = count * (b + 1) / blocks - at;
            const int vecs = m - col > VL ? 2 : 1;
            multiply((int)rows, vecs, &dz, 1, at, col, block, 2 * VL);
            for (int64_t i = 0; i < rows; i++) {
                const int64_t row = first + (at + i) / ring->chunk, step = t + (at + i) % ring->chunk;
                for (int v = 0; v < vecs && step < p->steps; v++)
                    store(p->du + (step * p->batch + row) * m + col + v * VL,
                          *(const vf *)(block + (i * 2 + v) * VL), lanes(m - col - v * VL));
            }
        }
}

INLINE void backward(const int exponential_forget, const struct slstm *p, const struct ring *ring, int64_t first,
                     int64_t last) {
    const int64_t rows = last - first;
    float *const norms[] = {p->norms, p->c_norms, p->n_norms};
    for (int64_t t = p->steps - 1; t >= -1; t--) {
        step_backward(exponential_forget, p, ring, t, first, rows);
        if (t < 0) break;
        for (int64_t i = 0; i < 3 * rows && ring->squares; i++) {
            vf *const squares = (vf *)(ring->squares + i * VL);
            norms[i / rows][t * p->batch + first + i % rows] = sqrtf(sum_of(*squares));
            *squares = (vf){0};
        }
        add_products(p, ring, t, first, last);
        multiply_back(p, ring, t, first, last);
    }
}

/* The gradients of the rows in [first, last), which are whole groups. Returns nonzero without memory. */
int slstm_backward(const struct slstm *p, int64_t first, int64_t last) {
    const int64_t rows = last - first;
    struct ring ring = {.chunk = steps_of_sum(p->batch, p->groups, p->steps), .ld = odd_lines(4 * p->features)};
    const int64_t size = rows * (ring.chunk * ring.ld + (p->norms ? 3 * VL : 0));
    ring.dz = zeros(size);
    if (!ring.dz) return 1;
    if (p->norms) ring.squares = ring.dz + rows * ring.chunk * ring.ld;
    const uint64_t denormals = flush_denormals();
    if (p->exponential) backward(1, p, &ring, first, last);
    else backward(0, p, &ring, first, last);
    restore_denormals(denormals);
    free(ring.dz);
    return 0;
}
