/* PD-SSM's recurrence h_t = d_t o (P_t h_{t-1}) + x_t of complex units, in float32. Row j of P_t has a 1 at the largest
 * entry of row j of M_t = sum of s_k A_k, and the gradient of the softmax of that row.
 *
 * Rows of the batch are independent. They are divided into groups by their number alone, and each group has its own sum
 * of dL/dA. A few rows share each load of A. No M_t is kept: backward computes its rows again, one at a time. */
#include "memory.h"
#include "vectors.h"

enum { TILE = 4 }; /* rows of the batch at once */

struct one_hot {
    int64_t steps, batch, units; /* T, B and N */
    int64_t matrices, groups;    /* the number of matrices A_k, and of groups of rows */
    const float *x;              /* [T, B, 2N] */
    const float *weight;         /* s and d [T, B, matrices + 2N] */
    const float *dictionary;     /* A [matrices, N, N] */
    const float *start;          /* h before the first step [B, 2N] */
    float *h;                    /* [T, B, 2N] */
    float *chosen;               /* the places of the ones [T, B, N] */
    const float *grad_h;         /* as h, or NULL */
    const float *grad_last;      /* of the last h [B, 2N], or NULL */
    float *dx;                   /* as x */
    float *dweight;              /* as weight */
    float *dstart;               /* as start */
    float *ddictionary;          /* [groups, matrices, N, N], zeroed */
    float *norms;                /* |dL/dh_t|^2 [T, B], or NULL */
};

/* Rows of the batch. Those behind the last are the first row again, and their gradients are 0. */
struct tile {
    int64_t row[TILE];
    int count;
};

struct scratch {
    float *soft;    /* softmax of a row of M, and later its gradient [TILE, N] */
    float *re, *im; /* h_{t-1} [TILE, N] */
    float *g;       /* dL/dh_t [TILE, 2N] */
    float *next;    /* dL/dh_{t-1} [TILE, 2N] */
    vf *by_share;   /* dL/ds [TILE, matrices] */
};

INLINE int64_t weights_of(const struct one_hot *p) { return p->matrices + 2 * p->units; }

INLINE vf lane_numbers(void) {
    vf numbers;
    for (int lane = 0; lane < VL; lane++) numbers[lane] = (float)lane;
    return numbers;
}

/* Entries [c, c + VL) of row j of each M_t of a tile. */
INLINE void entries_at(const struct one_hot *p, const float *const *shares, int64_t j, int64_t c, vf *entries) {
    const int count = lanes(p->units - c);
    for (int r = 0; r < TILE; r++) entries[r] = (vf){0};
    for (int64_t k = 0; k < p->matrices; k++) {
        const vf a = load(p->dictionary + (k * p->units + j) * p->units + c, count);
        for (int r = 0; r < TILE; r++) entries[r] += a * shares[r][k];
    }
}

INLINE struct tile tile_at(int64_t first, int64_t stop) {
    struct tile tile = {.count = stop - first < TILE ? (int)(stop - first) : TILE};
    for (int r = 0; r < TILE; r++) tile.row[r] = r < tile.count ? first + r : first;
    return tile;
}

/* The first place of the largest of a row's entries, from the largest of each lane and their places. */
INLINE int64_t place_of_largest(vf largest, vf places) {
    int best = 0;
    for (int lane = 1; lane < VL; lane++)
        if (largest[lane] > largest[best] || (largest[lane] == largest[best] && places[lane] < places[best]))
            best = lane;
    return (int64_t)places[best];
}

static void forward_step(const struct one_hot *p, int64_t t, struct tile tile) {
    const int64_t n = p->units, place = t * p->batch;
    const float *const before = t ? p->h + (place - p->batch) * 2 * n : p->start, *shares[TILE];
    for (int r = 0; r < TILE; r++) shares[r] = p->weight + (place + tile.row[r]) * weights_of(p);
    const vf numbers = lane_numbers();
    for (int64_t j = 0; j < n; j++) {
        vf largest[TILE], places[TILE];
        for (int64_t c = 0; c < n; c += VL) {
            vf entries[TILE];
            entries_at(p, shares, j, c, entries);
            const vi inside = numbers < (float)(n - c);
            for (int r = 0; r < TILE; r++) {
                const vf value = select_lanes(inside, entries[r], splat(-__builtin_inff()));
                const vi greater = c ? value > largest[r] : inside | ~inside;
                largest[r] = select_lanes(greater, value, c ? largest[r] : value);
                places[r] = select_lanes(greater, numbers + (float)c, c ? places[r] : numbers);
            }
        }
        for (int r = 0; r < tile.count; r++) {
            const int64_t at = place + tile.row[r], from = place_of_largest(largest[r], places[r]);
            const float *const d = shares[r] + p->matrices + 2 * j, *const h = before + tile.row[r] * 2 * n + 2 * from;
            const float *const x = p->x + at * 2 * n + 2 * j;
            float *const to = p->h + at * 2 * n + 2 * j;
            to[0] = d[0] * h[0] - d[1] * h[1] + x[0];
            to[1] = d[0] * h[1] + d[1] * h[0] + x[1];
            p->chosen[at * n + j] = (float)from;
        }
    }
}

/* Replaces the row j of M_t of each row of a tile, in `soft`, by its softmax. */
INLINE void softmax_rows(const struct one_hot *p, const float *const *shares, int64_t j, float *soft) {
    const int64_t n = p->units, ld = padded(n);
    const vf numbers = lane_numbers();
    vf largest[TILE], totals[TILE];
    for (int64_t c = 0; c < n; c += VL) {
        vf entries[TILE];
        entries_at(p, shares, j, c, entries);
        for (int r = 0; r < TILE; r++) {
            const vf value = select_lanes(numbers < (float)(n - c), entries[r], splat(-__builtin_inff()));
            largest[r] = c ? select_lanes(value > largest[r], value, largest[r]) : value;
            *(vf *)(soft + r * ld + c) = value;
        }
    }
    for (int r = 0; r < TILE; r++) {
        float top = largest[r][0];
        for (int lane = 1; lane < VL; lane++) top = largest[r][lane] > top ? largest[r][lane] : top;
        totals[r] = (vf){0};
        for (int64_t c = 0; c < n; c += VL) {
            vf *const at = (vf *)(soft + r * ld + c);
            *at = mask(numbers < (float)(n - c), exponential(at_least(*at, -1e30f) - top));
            totals[r] += *at;
        }
        const float inverse = 1.0f / sum_of(totals[r]);
        for (int64_t c = 0; c < n; c += VL) *(vf *)(soft + r * ld + c) *= inverse;
    }
}

static void backward_step(const struct one_hot *p, int64_t t, struct tile tile, float *ddictionary,
                          struct scratch *m) {
    const int64_t n = p->units, ld = padded(n), place = t * p->batch;
    const float *const before = t ? p->h + (place - p->batch) * 2 * n : p->start, *shares[TILE];
    memset(m->next, 0, (size_t)(4 * TILE * 2 * n));
    memset(m->by_share, 0, (size_t)(TILE * p->matrices) * sizeof(vf));
    for (int r = 0; r < TILE; r++) {
        const int64_t at = place + tile.row[r];
        const float *const h = before + tile.row[r] * 2 * n;
        float *const g = m->g + r * 2 * n;
        float squares = 0;
        shares[r] = p->weight + at * weights_of(p);
        if (r >= tile.count) {
            memset(g, 0, (size_t)(8 * n));
            memset(m->re + r * ld, 0, (size_t)(4 * ld));
            memset(m->im + r * ld, 0, (size_t)(4 * ld));
            continue;
        }
        for (int64_t i = 0; i < 2 * n; i++) {
            if (p->grad_h) g[i] += p->grad_h[at * 2 * n + i];
            p->dx[at * 2 * n + i] = g[i];
            squares += g[i] * g[i];
        }
        if (p->norms) p->norms[at] = squares;
        for (int64_t i = 0; i < n; i++) m->re[r * ld + i] = h[2 * i], m->im[r * ld + i] = h[2 * i + 1];
    }
    for (int64_t j = 0; j < n; j++) {
        float e[TILE][2] = {{0}}, inner[TILE];
        for (int r = 0; r < tile.count; r++) {
            const int64_t at = place + tile.row[r], from = (int64_t)p->chosen[at * n + j];
            const float *const d = shares[r] + p->matrices + 2 * j, *const g = m->g + r * 2 * n + 2 * j;
            const float re = m->re[r * ld + from], im = m->im[r * ld + from];
            float *const dd = p->dweight + at * weights_of(p) + p->matrices + 2 * j;
            dd[0] = g[0] * re + g[1] * im;
            dd[1] = g[1] * re - g[0] * im;
            e[r][0] = d[0] * g[0] + d[1] * g[1];
            e[r][1] = d[0] * g[1] - d[1] * g[0];
            m->next[r * 2 * n + 2 * from] += e[r][0];
            m->next[r * 2 * n + 2 * from + 1] += e[r][1];
        }
        softmax_rows(p, shares, j, m->soft);
        for (int r = 0; r < TILE; r++) {
            vf total = {0};
            for (int64_t c = 0; c < n; c += VL)
                total += *(const vf *)(m->soft + r * ld + c) * (*(const vf *)(m->re + r * ld + c) * e[r][0] +
                                                                *(const vf *)(m->im + r * ld + c) * e[r][1]);
            inner[r] = sum_of(total);
            for (int64_t c = 0; c < n; c += VL)
                *(vf *)(m->soft + r * ld + c) *= *(const vf *)(m->re + r * ld + c) * e[r][0] +
                                                 *(const vf *)(m->im + r * ld + c) * e[r][1] - inner[r];
        }
        for (int64_t k = 0; k < p->matrices; k++) {
            const float *const a = p->dictionary + (k * n + j) * n;
            float *const da = ddictionary + (k * n + j) * n;
            vf by_share[TILE];
            for (int r = 0; r < TILE; r++) by_share[r] = m->by_share[r * p->matrices + k];
            for (int64_t c = 0; c < n; c += VL) {
                const int count = lanes(n - c);
                const vf entries = load(a + c, count);
                vf sum = load(da + c, count);
                for (int r = 0; r < TILE; r++) {
                    const vf gradient = *(const vf *)(m->soft + r * ld + c);
                    by_share[r] += entries * gradient;
                    sum += gradient * shares[r][k];
                }
                store(da + c, sum, count);
            }
            for (int r = 0; r < TILE; r++) m->by_share[r * p->matrices + k] = by_share[r];
        }
    }
    for (int r = 0; r < tile.count; r++)
        for (int64_t k = 0; k < p->matrices; k++)
            p->dweight[(place + tile.row[r]) * weights_of(p) + k] = sum_of(m->by_share[r * p->matrices + k]);
    memcpy(m->g, m->next, (size_t)(4 * TILE * 2 * n));
}

INLINE int64_t first_row(const struct one_hot *p, int64_t group) { return p->batch * group / p->groups; }

/* h and the places of the ones, of the rows of the groups [first, last). */
int one_hot_forward(const struct one_hot *p, int64_t first, int64_t last) {
    const uint64_t denormals = flush_denormals();
    const int64_t stop = first_row(p, last);
    for (int64_t row = first_row(p, first); row < stop; row += TILE)
        for (int64_t t = 0; t < p->steps; t++) forward_step(p, t, tile_at(row, stop));
    restore_denormals(denormals);
    return 0;
}

static struct scratch carve_scratch(struct carver *from, const struct one_hot *p) {
    const int64_t ld = padded(p->units);
    float *const soft = carve(from, TILE * ld), *const re = carve(from, TILE * ld), *const im = carve(from, TILE * ld);
    float *const g = carve(from, TILE * 2 * p->units), *const next = carve(from, TILE * 2 * p->units);
    return (struct scratch){soft, re, im, g, next, carve(from, TILE * p->matrices * VL)};
}

/* The gradients, and the norms if they are needed. Returns nonzero without memory. */
int one_hot_backward(const struct one_hot *p, int64_t first, int64_t last) {
    const int64_t n = p->units, size = p->matrices * n * n;
    struct carver need = {NULL, 0};
    carve_scratch(&need, p);
    struct carver from = {zeros(need.used), 0};
    if (!from.base) return 1;
    struct scratch m = carve_scratch(&from, p);
    const uint64_t denormals = flush_denormals();
    for (int64_t group = first; group < last; group++) {
        const int64_t stop = first_row(p, group + 1);
        for (int64_t row = first_row(p, group); row < stop; row += TILE) {
            const struct tile tile = tile_at(row, stop);
            memset(m.g, 0, (size_t)(4 * TILE * 2 * n));
            if (p->grad_last) memcpy(m.g, p->grad_last + row * 2 * n, (size_t)(4 * tile.count * 2 * n));
            for (int64_t t = p->steps - 1; t >= 0; t--) backward_step(p, t, tile, p->ddictionary + group * size, &m);
            memcpy(p->dstart + row * 2 * n, m.g, (size_t)(4 * tile.count * 2 * n));
        }
    }
    restore_denormals(denormals);
    free(from.base);
    return 0;
}
