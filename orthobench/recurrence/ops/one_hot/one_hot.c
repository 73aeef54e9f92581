/* PD-SSM's recurrence h_t = d o (P h_{t-1}) + x_t of complex units, in float32. Row j of P has a 1 at the largest entry
 * of row j of M = sum of s_k A_k, and the gradient of the softmax of that row.
 *
 * s and d of a step are a row of `transitions`. First the places of the ones are found for every row, then the steps
 * run. The steps of the backward pass need no M. After them, M and its gradient are computed for some transitions at a
 * time, of which only a few rows of each M are in the cache at once. A transition that many steps share has the sum of
 * e h^T over these steps, where e is the gradient of P h. `packed` has A in blocks of BLOCK rows, in each block the rows
 * of one matrix after those of another, and padded with zeros.
 *
 * The code in its order; u is a transition, j a row of M, and SOME transitions are a chunk.
 *
 *     choose            M_u[j] = sum of s_uk A_k[j], an entry at a time, and the place of its largest: p_u(j), `chosen`
 *     one_hot_forward   h_t[j] = d[j] h_{t-1}[p(j)] + x_t[j]              no matrix is read, only `chosen`
 *
 *     one_hot_backward  g_t = dL/dh_t = dL/dx_t:  g_{t-1}[p(j)] += conj(d[j]) g_t[j]
 *     gather            e = conj(d) o g_t,  dd += g_t o conj(P h_{t-1})   for each step of a transition
 *     sum_steps         E_u = sum over its steps of Re(e conj(h_{t-1})^T) two products, only with shared transitions
 *     some_backward     M of all SOME transitions, BLOCK rows at a time   1st product, m->rows
 *     row_gradient      dM[j] = soft o (E[j] - soft . E[j]), with soft = softmax(M[j]) and E[j] = E_u[j], or of a
 *                       single step Re(e[j]) Re(h) + Im(e[j]) Im(h)
 *     some_backward     dA_k[j] += sum over u of s_uk dM_u[j]             2nd product, into dpacked
 *     add_to_shares     ds_uk += dM_u[j] . A_k[j]
 *
 * Kept are h, g (which is dx) and the places. M is computed twice, N^2 numbers for each transition, and never kept. */
#include "memory.h"
#include "tiles.h"

enum { BLOCK = 4 };            /* rows of M at once */
enum { SOME = 32 };            /* transitions at once, and steps of one transition */
enum { AHEAD = 2 };            /* steps of a transition between the request of a step and its use */
enum { WIDE = 4, NARROW = 4 }; /* vectors of transitions, and entries of a row of M, at once */

struct one_hot {
    int64_t steps, batch, units;  /* T, B and N */
    int64_t matrices, padded;     /* the number of matrices A_k, also rounded up to a multiple of 4 */
    int64_t transitions, groups;  /* the numbers of transitions and of their groups */
    int64_t shared;               /* whether any transition has another number of steps than one */
    int64_t inputs;               /* the number of inputs from which x is computed, or 0 */
    int64_t row_groups;           /* groups of batch rows whose sums are separate */
    const float *x;               /* [T, B, 2N], or the inputs [T, B, inputs] */
    const float *input_map;       /* [inputs, 2N] */
    const float *place;           /* the transition of each step [T, B] */
    const float *transition;      /* s and d [transitions, matrices + 2N] */
    const float *packed;          /* A [N / BLOCK, padded matrices, BLOCK, padded N] */
    const float *start;           /* h before the first step [B, 2N] */
    float *h;                     /* [T, B, 2N] */
    float *chosen;                /* the places of the ones [transitions, padded N] */
    const float *grad_h;          /* as h, or NULL */
    const float *grad_last;       /* of the last h [B, 2N], or NULL */
    const int64_t *steps_of;      /* the numbers t B + b of each transition's steps, one transition after the other */
    const int64_t *first_of;      /* where those of each begin [transitions + 1] */
    float *dx;                    /* dL/dx_t, which is dL/dh_t [T, B, 2N] */
    float *dinput_map;            /* [row groups, inputs, 2N], zeroed */
    float *dtransition;           /* as transition, zeroed */
    float *dstart;                /* as start */
    float *dpacked;               /* [groups], each as packed, zeroed */
    float *norms;                 /* |dL/dh_t|^2 [T, B], or NULL */
};

/* Steps are in the rows of re, im and e while their sums are computed, and else the transitions that a step each has. */
struct scratch {
    float *shares;  /* s [SOME, padded matrices] */
    float *re, *im; /* h_{t-1} [SOME, N] */
    float *e[2];    /* the gradient of P h_{t-1} [SOME, N] */
    float *g[2];    /* that of h_t of a step [N], both parts */
    float *d[2];    /* d of a transition [N] */
    float *dd[2];   /* dL/dd [N] */
    float *rows;    /* BLOCK rows of M, of their softmax and of its gradient [SOME, BLOCK, N], with a vector between */
    float *sums;    /* of e h_{t-1}^T over the steps of a transition [SOME, N, N] */
    vf *dshares;    /* dL/ds [SOME, padded matrices] */
};

INLINE int64_t width_of(const struct one_hot *p) { return p->matrices + 2 * p->units; }

INLINE vf lane_numbers(void) {
    vf numbers;
    for (int lane = 0; lane < VL; lane++) numbers[lane] = (float)lane;
    return numbers;
}

/* Compares entries [c, c + count) of a row of M of WIDE vectors of transitions with the largest ones before them. */
INLINE void choose_among(const struct one_hot *p, const int count, const float *a, int64_t c, const float *shares,
                         vf *largest, vf *places) {
    const int64_t by_matrix = BLOCK * padded(p->units);
    vf entries[NARROW][WIDE] = {{{0}}};
    for (int64_t k = 0; k < p->matrices; k++)
        for (int i = 0; i < count; i++)
            for (int v = 0; v < WIDE; v++)
                entries[i][v] += *(const vf *)(shares + (k * WIDE + v) * VL) * a[k * by_matrix + c + i];
    for (int i = 0; i < count; i++)
        for (int v = 0; v < WIDE; v++) {
            const vi greater = entries[i][v] > largest[v];
            largest[v] = select_lanes(greater, entries[i][v], largest[v]);
            places[v] = select_lanes(greater, splat((float)(c + i)), places[v]);
        }
}

/* The places of the ones of `count` transitions from `first` on, at most WIDE vectors of them. */
static void choose(const struct one_hot *p, int64_t first, int64_t count, float *shares, float *chosen) {
    const int64_t n = p->units, ld = padded(n), wide = WIDE * VL;
    for (int64_t k = 0; k < p->matrices; k++)
        for (int64_t i = 0; i < wide; i++)
            shares[k * wide + i] = i < count ? p->transition[(first + i) * width_of(p) + k] : 0.0f;
    for (int64_t j = 0; j < n; j++) {
        const float *const a = p->packed + (j / BLOCK * p->padded * BLOCK + j % BLOCK) * ld;
        vf largest[WIDE], places[WIDE];
        for (int v = 0; v < WIDE; v++) largest[v] = splat(-__builtin_inff()), places[v] = (vf){0};
        int64_t c = 0;
        for (; c + NARROW <= n; c += NARROW) choose_among(p, NARROW, a, c, shares, largest, places);
        for (; c < n; c++) choose_among(p, 1, a, c, shares, largest, places);
        for (int v = 0; v < WIDE; v++) *(vf *)(chosen + j * wide + v * VL) = places[v];
    }
    transpose(n, count, chosen, wide, p->chosen + first * ld, ld);
}

/* The places of the ones of the transitions in [first, last). Returns nonzero without memory. */
int one_hot_places_forward(const struct one_hot *p, int64_t first, int64_t last) {
    const int64_t wide = WIDE * VL;
    float *const shares = zeros((p->matrices + padded(p->units)) * wide);
    if (!shares) return 1;
    for (int64_t u = first; u < last; u += wide)
        choose(p, u, last - u < wide ? last - u : wide, shares, shares + p->matrices * wide);
    free(shares);
    return 0;
}

/* x of a step [size] from its inputs. */
INLINE void project(int64_t size, int64_t inputs, const float *restrict u, const float *restrict map,
                    float *restrict x) {
    for (int64_t c = 0; c < size; c++) x[c] = map[c] * u[0];
    for (int64_t i = 1; i < inputs; i++)
        for (int64_t c = 0; c < size; c++) x[c] += map[i * size + c] * u[i];
}

/* All steps of the rows of the batch in [first, last). */
int one_hot_forward(const struct one_hot *p, int64_t first, int64_t last) {
    const int64_t n = p->units;
    const uint64_t denormals = flush_denormals();
    for (int64_t t = 0; t < p->steps; t++)
        for (int64_t row = first; row < last; row++) {
            const int64_t at = t * p->batch + row, u = (int64_t)p->place[at];
            const float *const before = t ? p->h + (at - p->batch) * 2 * n : p->start + row * 2 * n;
            const float *const d = p->transition + u * width_of(p) + p->matrices;
            const float *const chosen = p->chosen + u * padded(n);
            float *const to = p->h + at * 2 * n;
            const float *const x = p->inputs ? to : p->x + at * 2 * n;
            if (p->inputs) project(2 * n, p->inputs, p->x + at * p->inputs, p->input_map, to);
            for (int64_t j = 0; j < n; j++) {
                const float *const h = before + 2 * (int64_t)chosen[j];
                to[2 * j] = d[2 * j] * h[0] - d[2 * j + 1] * h[1] + x[2 * j];
                to[2 * j + 1] = d[2 * j] * h[1] + d[2 * j + 1] * h[0] + x[2 * j + 1];
            }
        }
    restore_denormals(denormals);
    return 0;
}

INLINE void add_multiple(int64_t size, float factor, const float *restrict from, float *restrict to) {
    for (int64_t c = 0; c < size; c++) to[c] += factor * from[c];
}

/* dL/dh_t of all steps, the norms, and the gradient of the map of the inputs, of the rows of the batch in [first, last),
 * which are whole groups. */
int one_hot_backward(const struct one_hot *p, int64_t first, int64_t last) {
    const int64_t n = p->units;
    const uint64_t denormals = flush_denormals();
    const size_t size = (size_t)(4 * (last - first) * 2 * n);
    if (p->grad_last) memcpy(p->dstart + first * 2 * n, p->grad_last + first * 2 * n, size);
    else memset(p->dstart + first * 2 * n, 0, size);
    for (int64_t t = p->steps - 1; t >= 0; t--)
        for (int64_t row = first, group = 0; row < last; row++) {
            const int64_t at = t * p->batch + row, u = (int64_t)p->place[at];
            const float *const d = p->transition + u * width_of(p) + p->matrices;
            const float *const chosen = p->chosen + u * padded(n);
            float *const g = p->dx + at * 2 * n, *const next = p->dstart + row * 2 * n;
            float squares = 0;
            for (int64_t i = 0; i < 2 * n; i++) {
                g[i] = p->grad_h ? next[i] + p->grad_h[at * 2 * n + i] : next[i];
                next[i] = 0;
            }
            if (p->inputs) {
                while (row >= p->batch * (group + 1) / p->row_groups) group++;
                for (int64_t i = 0; i < p->inputs; i++)
                    add_multiple(2 * n, p->x[at * p->inputs + i], g, p->dinput_map + (group * p->inputs + i) * 2 * n);
            }
            if (p->norms) {
                for (int64_t i = 0; i < 2 * n; i++) squares += g[i] * g[i];
                p->norms[at] = squares;
            }
            for (int64_t j = 0; j < n; j++) {
                float *const to = next + 2 * (int64_t)chosen[j];
                to[0] += d[2 * j] * g[2 * j] + d[2 * j + 1] * g[2 * j + 1];
                to[1] += d[2 * j] * g[2 * j + 1] - d[2 * j + 1] * g[2 * j];
            }
        }
    restore_denormals(denormals);
    return 0;
}

INLINE const float *before_of(const struct one_hot *p, int64_t at) {
    return at < p->batch ? p->start + at * 2 * p->units : p->h + (at - p->batch) * 2 * p->units;
}

/* The real and imaginary parts of complex units, of which `left` are left. */
INLINE void load_pairs(const float *from, int64_t left, vf *real, vf *imaginary) {
    const vf low = load(from, lanes(2 * left)), high = load(from + VL, left > VL / 2 ? lanes(2 * left - VL) : 0);
    vi even;
    for (int lane = 0; lane < VL; lane++) even[lane] = 2 * lane;
    *real = shuffle(low, high, even);
    *imaginary = shuffle(low, high, even + 1);
}

/* Adds g conj(P h) to dL/dd. */
static void add_products(int64_t n, const float *restrict chosen, const float *restrict re, const float *restrict im,
                         const float *restrict g_re, const float *restrict g_im, float *restrict d_re,
                         float *restrict d_im) {
    for (int64_t j = 0; j < n; j++) {
        const int from = (int)chosen[j];
        d_re[j] += g_re[j] * re[from] + g_im[j] * im[from];
        d_im[j] += g_im[j] * re[from] - g_re[j] * im[from];
    }
}

/* d of a transition, and zeros in the place of its gradient. */
static void begin_transition(const struct one_hot *p, int64_t u, struct scratch *m) {
    const float *const d = p->transition + u * width_of(p) + p->matrices;
    for (int64_t c = 0; c < p->units; c += VL) {
        load_pairs(d + 2 * c, p->units - c, (vf *)(m->d[0] + c), (vf *)(m->d[1] + c));
        *(vf *)(m->dd[0] + c) = *(vf *)(m->dd[1] + c) = (vf){0};
    }
}

static void end_transition(const struct one_hot *p, int64_t u, const struct scratch *m) {
    float *const dd = p->dtransition + u * width_of(p) + p->matrices;
    for (int64_t j = 0; j < p->units; j++) dd[2 * j] = m->dd[0][j], dd[2 * j + 1] = m->dd[1][j];
}

/* Requests what a later step of the same transition reads, which is anywhere in time. */
static void fetch(const struct one_hot *p, int64_t at) {
    const float *const h = before_of(p, at), *const g = p->dx + at * 2 * p->units;
    for (int64_t c = 0; c < 2 * p->units; c += 16) prefetch(h + c, 0), prefetch(g + c, 0);
}

/* Puts a step of a transition into row i of the scratch, and adds its part of dL/dd. */
static void gather(const struct one_hot *p, int64_t u, int64_t at, int64_t i, struct scratch *m) {
    const int64_t n = p->units, ld = padded(n);
    const float *const h = before_of(p, at), *const g = p->dx + at * 2 * n, *const chosen = p->chosen + u * ld;
    float *const re = m->re + i * ld, *const im = m->im + i * ld;
    for (int64_t c = 0; c < n; c += VL) {
        vf g_re, g_im;
        load_pairs(h + 2 * c, n - c, (vf *)(re + c), (vf *)(im + c));
        load_pairs(g + 2 * c, n - c, &g_re, &g_im);
        const vf d_re = *(const vf *)(m->d[0] + c), d_im = *(const vf *)(m->d[1] + c);
        *(vf *)(m->g[0] + c) = g_re;
        *(vf *)(m->g[1] + c) = g_im;
        *(vf *)(m->e[0] + i * ld + c) = d_re * g_re + d_im * g_im;
        *(vf *)(m->e[1] + i * ld + c) = d_re * g_im - d_im * g_re;
    }
    add_products(n, chosen, re, im, m->g[0], m->g[1], m->dd[0], m->dd[1]);
}

/* The sum of e h_{t-1}^T over the steps of a transition. */
static void sum_steps(const struct one_hot *p, int64_t u, float *sums, struct scratch *m) {
    const int64_t n = p->units, ld = padded(n), last = p->first_of[u + 1];
    memset(sums, 0, (size_t)(4 * n * ld));
    for (int64_t at = p->first_of[u]; at < last; at += SOME) {
        const int64_t count = last - at < SOME ? last - at : SOME;
        for (int64_t i = 0; i < count; i++) {
            if (at + i + AHEAD < p->steps * p->batch) fetch(p, p->steps_of[at + i + AHEAD]);
            gather(p, u, p->steps_of[at + i], i, m);
        }
        product(n, ld, count, BY_COLUMNS(m->e[0], ld), m->re, ld, INTO(1, 1), sums, ld);
        product(n, ld, count, BY_COLUMNS(m->e[1], ld), m->im, ld, INTO(1, 1), sums, ld);
    }
}

/* Replaces a row of M by its gradient, given its largest entry, and the sums of e h_{t-1}^T or e of one step. */
INLINE void row_gradient(const int shared, int64_t n, float *row, float largest, const float *sums, const float *re,
                         const float *im, float e, float f) {
    const vf numbers = lane_numbers();
    vf total = {0}, along = {0};
#define BY_SOFT(C) (shared ? *(const vf *)(sums + (C)) : *(const vf *)(re + (C)) * e + *(const vf *)(im + (C)) * f)
    for (int64_t c = 0; c < n; c += VL) {
        const vf value = power_of_product(*(const vf *)(row + c) - largest, splat(LOG2E));
        const vf inside = mask(numbers < (float)(n - c), value);
        *(vf *)(row + c) = inside;
        total += inside;
        along += inside * BY_SOFT(c);
    }
    const float inverse = 1.0f / sum_of(total), mean = sum_of(along) * inverse;
    for (int64_t c = 0; c < n; c += VL) *(vf *)(row + c) *= (BY_SOFT(c) - mean) * inverse;
#undef BY_SOFT
}

/* Adds to dL/ds the products of rows of the gradient of M with the rows of the matrices, `size` entries each. */
static void add_to_shares(const struct one_hot *p, int64_t count, int64_t size, const float *rows, int64_t ld,
                          const float *a, vf *dshares) {
    for (int64_t i = 0; i < count; i += 4)
        for (int64_t k = 0; k < p->padded; k += 4) {
            vf sums[4][4];
            for (int r = 0; r < 4; r++)
                for (int s = 0; s < 4; s++) sums[r][s] = dshares[(i + r) * p->padded + k + s];
            for (int64_t c = 0; c < size; c += VL) {
                vf right[4];
                for (int s = 0; s < 4; s++) right[s] = held(*(const vf *)(a + (k + s) * size + c));
#pragma GCC unroll 4
                for (int r = 0; r < 4; r++) {
                    const vf left = held(*(const vf *)(rows + (i + r) * ld + c));
                    for (int s = 0; s < 4; s++) sums[r][s] += left * right[s];
                }
            }
            for (int r = 0; r < 4; r++)
                for (int s = 0; s < 4; s++) dshares[(i + r) * p->padded + k + s] = sums[r][s];
        }
}

/* The gradients of `count` transitions from `first` on, and their part of that of A. */
INLINE void some_backward(const int shared, const struct one_hot *p, int64_t first, int64_t count, float *dpacked,
                          struct scratch *m) {
    const int64_t n = p->units, ld = padded(n), size = BLOCK * ld, matrices = p->padded, width = width_of(p);
    const int64_t apart = size + VL; /* else the rows of all transitions would compete for a few lines of the cache */
    memset(m->dshares, 0, (size_t)(SOME * matrices) * sizeof(vf));
    for (int64_t i = 0; i < count; i++) {
        const int64_t u = first + i;
        memcpy(m->shares + i * matrices, p->transition + u * width, (size_t)(4 * p->matrices));
        begin_transition(p, u, m);
        if (shared) sum_steps(p, u, m->sums + i * n * ld, m);
        else gather(p, u, p->steps_of[p->first_of[u]], i, m);
        end_transition(p, u, m);
    }
    for (int64_t block = 0; block * BLOCK < n; block++) {
        const float *const a = p->packed + block * matrices * size;
        product(count, size, matrices, BY_ROWS(m->shares, matrices), a, size, INTO(0, 1), m->rows, apart);
        for (int64_t i = 0; i < count; i++)
            for (int64_t j = block * BLOCK, stop = j + BLOCK; j < stop; j++) {
                float *const row = m->rows + i * apart + j % BLOCK * ld;
                if (j < n)
                    row_gradient(shared, n, row, row[(int64_t)p->chosen[(first + i) * ld + j]],
                                 m->sums + (i * n + j) * ld, m->re + i * ld, m->im + i * ld, m->e[0][i * ld + j],
                                 m->e[1][i * ld + j]);
                else memset(row, 0, (size_t)(4 * ld));
            }
        product(matrices, size, count, BY_COLUMNS(m->shares, matrices), m->rows, apart, INTO(1, 1),
                dpacked + block * matrices * size, size);
        add_to_shares(p, count, size, m->rows, apart, a, m->dshares);
    }
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < p->matrices; k++)
            p->dtransition[(first + i) * width + k] = sum_of(m->dshares[i * matrices + k]);
}

static struct scratch carve_scratch(struct carver *from, const struct one_hot *p) {
    const int64_t ld = padded(p->units), rows = SOME * ld;
    struct scratch m = {.shares = carve(from, SOME * p->padded)};
    m.re = carve(from, rows);
    m.im = carve(from, rows);
    for (int i = 0; i < 2; i++) {
        m.e[i] = carve(from, rows);
        m.g[i] = carve(from, ld);
        m.d[i] = carve(from, ld);
        m.dd[i] = carve(from, ld);
    }
    m.rows = carve(from, BLOCK * rows + SOME * VL);
    m.dshares = carve(from, SOME * p->padded * VL);
    m.sums = carve(from, p->shared ? p->units * rows : 0);
    return m;
}

/* After `one_hot_backward`, the gradients of the transitions of the groups in [first, last), and of A by group. Returns
 * nonzero without memory. */
int one_hot_transitions_backward(const struct one_hot *p, int64_t first, int64_t last) {
    struct carver counted = {NULL, 0};
    carve_scratch(&counted, p);
    struct carver from = {zeros(counted.used), 0};
    if (!from.base) return 1;
    struct scratch m = carve_scratch(&from, p);
    const int64_t blocks = (p->units + BLOCK - 1) / BLOCK, size = blocks * p->padded * BLOCK * padded(p->units);
    const uint64_t denormals = flush_denormals();
    for (int64_t group = first; group < last; group++) {
        const int64_t stop = p->transitions * (group + 1) / p->groups;
        for (int64_t u = p->transitions * group / p->groups; u < stop; u += SOME) {
            const int64_t count = stop - u < SOME ? stop - u : SOME;
            if (p->shared) some_backward(1, p, u, count, p->dpacked + group * size, &m);
            else some_backward(0, p, u, count, p->dpacked + group * size, &m);
        }
    }
    restore_denormals(denormals);
    free(from.base);
    return 0;
}
