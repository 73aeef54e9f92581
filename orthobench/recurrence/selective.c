/* The selective scan h_t = a_t o h_{t-1} + Delta_t B_t x_t, y_t = C_t h_t, in float32: Mamba.
 *
 * Each of `width` features has `size` units, and lanes are features. The caller gives each thread a range of rows. A
 * step's weight is r [rank], B [size] and C [size]. Delta = softplus(W r + b), where `step` [rank, width] is W
 * transposed. a = exp(Delta A), or 2 exp(Delta A) - 1 if `negative`, where `rates` [size, width] is A. A row's state is
 * [size, width]. In a thread's memory it is packed: blocks of VL features, each with its units, so that all units of a
 * block lie together. `starts` [chunks, B, packed] has the states before each chunk of steps. The backward pass makes
 * the states of a chunk again, for one block at a time, so that they stay in the first cache. */
#include <stdlib.h>

#include "vectors.h"

#define CHUNK 16
#define LOG2E 1.44269504088896341f
#define LN2 0.693147180559945309f

int64_t selective_chunk(void) { return CHUNK; }

struct selective {
    int64_t steps, batch, width, size, rank, negative;
    const float *x, *weight, *rates, *step, *bias, *start;
    float *y, *end, *starts;
    const float *grad_y;
    float *dx, *dweight, *drates, *dstep, *dbias, *dstart, *norms;
};

int64_t selective_size(void) { return sizeof(struct selective); }

static int64_t blocks_of(const struct selective *p) { return (p->width + VL - 1) / VL; }

/* A row's numbers [size, width] as [blocks, size] vectors, times a factor; and back. */
static void pack_units(const struct selective *p, const float *from, vf *to, float factor) {
    for (int64_t block = 0; block < blocks_of(p); block++)
        for (int64_t n = 0; n < p->size; n++)
            to[block * p->size + n] = factor * load(from + n * p->width + block * VL, lanes(p->width - block * VL));
}

static void unpack_units(const struct selective *p, const vf *from, float *to) {
    for (int64_t block = 0; block < blocks_of(p); block++)
        for (int64_t n = 0; n < p->size; n++)
            store(to + n * p->width + block * VL, from[block * p->size + n], lanes(p->width - block * VL));
}

/* log(1 + e^x) = max(x, 0) + log(1 + u), u = e^-|x|; the logarithm is 2 artanh(u / (2 + u)), with an argument of at
 * most 1/3, whose series ends below the rounding. */
INLINE vf softplus(vf x) {
    const vf u = exponential(-magnitude(x)), z = u / (2.0f + u), square = z * z;
    vf series = splat(2.0f / 13.0f);
    series = series * square + 2.0f / 11.0f;
    series = series * square + 2.0f / 9.0f;
    series = series * square + 2.0f / 7.0f;
    series = series * square + 2.0f / 5.0f;
    series = series * square + 2.0f / 3.0f;
    series = series * square + 2.0f;
    return relu(x) + z * series;
}

/* W r + b of the features from `col`. */
INLINE vf raw_step(const struct selective *p, const float *r, int64_t col, int count) {
    vf raw = load(p->bias + col, count);
    for (int64_t k = 0; k < p->rank; k++) raw += r[k] * load(p->step + k * p->width + col, count);
    return raw;
}

/* a from e = exp(Delta A). */
INLINE vf factor(const int negative, vf e) { return negative ? 2.0f * e - 1.0f : e; }

/* `h` is the packed state, `rates` A / log 2. */
INLINE void forward(const int64_t size, const int negative, const struct selective *p, int64_t row, vf *h,
                    const vf *rates) {
    const int64_t width = p->width, units = blocks_of(p) * size;
    pack_units(p, p->start + row * size * width, h, 1.0f);
    for (int64_t t = 0; t < p->steps; t++) {
        if (p->starts && t % CHUNK == 0)
            memcpy(p->starts + (t / CHUNK * p->batch + row) * units * VL, h, (size_t)units * sizeof(vf));
        const int64_t at = t * p->batch + row;
        const float *const r = p->weight + at * (p->rank + 2 * size), *const b = r + p->rank, *const c = b + size;
        for (int64_t col = 0, unit = 0; col < width; col += VL, unit += size) {
            const int count = lanes(width - col);
            const vf delta = softplus(raw_step(p, r, col, count));
            const vf driven = delta * load(p->x + at * width + col, count);
            vf y = {0};
            for (int64_t n = 0; n < size; n++) {
                const vf a = factor(negative, power_of_two(delta * rates[unit + n]));
                h[unit + n] = a * h[unit + n] + b[n] * driven;
                y += c[n] * h[unit + n];
            }
            store(p->y + at * width + col, y, count);
        }
    }
    unpack_units(p, h, p->end + row * size * width);
}

/* Runs BODY with the numbers of units and the range of a in constants for the usual size. */
#define EACH_FORM(BODY)                                          \
    if (p->size == 16 && p->negative) { BODY(16, 1) }            \
    else if (p->size == 16) { BODY(16, 0) }                      \
    else { BODY(p->size, (int)p->negative) }

static vf *vectors(int64_t count) { return aligned_alloc(64, ((size_t)count * sizeof(vf) + 63) / 64 * 64); }

/* y, end, and starts if they are wanted, of the rows in [first, last). Returns nonzero without memory. */
int selective_forward(const struct selective *p, int64_t first, int64_t last) {
    const int64_t units = blocks_of(p) * p->size;
    vf *const h = vectors(2 * units), *const rates = h + units;
    if (!h) return 1;
    const uint64_t denormals = flush_denormals();
    pack_units(p, p->rates, rates, LOG2E);
#define ROWS_OF(SIZE, NEGATIVE) \
    for (int64_t row = first; row < last; row++) forward(SIZE, NEGATIVE, p, row, h, rates);
    EACH_FORM(ROWS_OF)
#undef ROWS_OF
    restore_denormals(denormals);
    free(h);
    return 0;
}

/* Memory of a thread. Packed: A / log 2, and of a row the gradients by the state and by A. For one block: the states of
 * a chunk [CHUNK + 1, size] and their e [CHUNK, size]. Of a row: the sums over the features of what becomes dweight
 * [CHUNK, rank + 2 size] and the norms [CHUNK]. */
struct scratch {
    vf *rates, *by_state, *by_rates, *h, *e, *sums, *squares;
};

INLINE void backward_block(const int64_t size, const int negative, const struct selective *p, int64_t row,
                           int64_t first, int64_t last, int64_t block, struct scratch m) {
    const int64_t width = p->width, rank = p->rank, numbers = rank + 2 * size, col = block * VL;
    const int count = lanes(width - col);
    const float *const start = p->starts + ((first / CHUNK * p->batch + row) * blocks_of(p) + block) * size * VL;
    const vf *const rates = m.rates + block * size;
    vf *const by_state = m.by_state + block * size, *const by_rates = m.by_rates + block * size;
    vf deltas[CHUNK];
    vf slopes[CHUNK];
    for (int64_t n = 0; n < size; n++) m.h[n] = load(start + n * VL, VL);
    for (int64_t t = first; t < last; t++) {
        const int64_t at = t * p->batch + row, k = t - first;
        const float *const r = p->weight + at * numbers, *const b = r + rank;
        const vf raw = raw_step(p, r, col, count), delta = softplus(raw);
        deltas[k] = delta, slopes[k] = sigmoid(raw);
        const vf driven = delta * load(p->x + at * width + col, count);
        for (int64_t n = 0; n < size; n++) {
            const vf e = power_of_two(delta * rates[n]);
            m.e[k * size + n] = e;
            m.h[(k + 1) * size + n] = factor(negative, e) * m.h[k * size + n] + b[n] * driven;
        }
    }
    vf bias_sum = {0};
    for (int64_t t = last - 1; t >= first; t--) {
        const int64_t at = t * p->batch + row, k = t - first;
        const float *const r = p->weight + at * numbers, *const b = r + rank, *const c = b + size;
        vf *const sums = m.sums + k * numbers, *const by_b = sums + rank, *const by_c = by_b + size;
        const vf delta = deltas[k], x = load(p->x + at * width + col, count), driven = delta * x;
        vf by_driven = {0};
        vf by_exponent = {0};
        if (p->grad_y) {
            const vf dy = load(p->grad_y + at * width + col, count);
            for (int64_t n = 0; n < size; n++) {
                by_state[n] += c[n] * dy;
                by_c[n] += dy * m.h[(k + 1) * size + n];
            }
        }
        if (p->norms)
            for (int64_t n = 0; n < size; n++) m.squares[k] += by_state[n] * by_state[n];
        for (int64_t n = 0; n < size; n++) {
            const vf e = m.e[k * size + n], g = by_state[n];
            by_b[n] += g * driven;
            by_driven += g * b[n];
            const vf by_e = g * m.h[k * size + n] * (negative ? 2.0f * e : e);
            by_exponent += by_e * rates[n];
            by_rates[n] += by_e * delta;
            by_state[n] = factor(negative, e) * g;
        }
        store(p->dx + at * width + col, by_driven * delta, count);
        const vf by_raw = (LN2 * by_exponent + by_driven * x) * slopes[k];
        bias_sum += by_raw;
        for (int64_t j = 0; j < rank; j++) {
            float *const sum = p->dstep + (row * rank + j) * width + col;
            store(sum, load(sum, count) + by_raw * r[j], count);
            sums[j] += by_raw * load(p->step + j * width + col, count);
        }
    }
    float *const dbias = p->dbias + row * width + col;
    store(dbias, load(dbias, count) + bias_sum, count);
}

INLINE void backward(const int64_t size, const int negative, const struct selective *p, int64_t row, struct scratch m) {
    const int64_t numbers = p->rank + 2 * size, state = size * p->width;
    pack_units(p, p->dstart + row * state, m.by_state, 1.0f);
    memset(m.by_rates, 0, (size_t)(blocks_of(p) * size) * sizeof(vf));
    for (int64_t first = (p->steps - 1) / CHUNK * CHUNK; first >= 0; first -= CHUNK) {
        const int64_t last = first + CHUNK < p->steps ? first + CHUNK : p->steps;
        memset(m.sums, 0, (size_t)(CHUNK * numbers) * sizeof(vf));
        memset(m.squares, 0, CHUNK * sizeof(vf));
        for (int64_t block = 0; block < blocks_of(p); block++)
            backward_block(size, negative, p, row, first, last, block, m);
        for (int64_t t = first; t < last; t++) {
            const int64_t at = t * p->batch + row;
            for (int64_t j = 0; j < numbers; j++)
                p->dweight[at * numbers + j] = sum_of(m.sums[(t - first) * numbers + j]);
            if (p->norms) p->norms[at] = sum_of(m.squares[t - first]);
        }
    }
    unpack_units(p, m.by_state, p->dstart + row * state);
    unpack_units(p, m.by_rates, p->drates + row * state);
}

/* dx, dweight, and the squares of the norms if they are wanted; each row's sums over time drates [B, size, width],
 * dstep [B, rank, width] and dbias [B, width], the latter two zeroed; dstart [B, size, width], before it dL/d(end).
 * grad_y is NULL if it is absent. Returns nonzero without memory. */
int selective_backward(const struct selective *p, int64_t first, int64_t last) {
    const int64_t units = blocks_of(p) * p->size, block = CHUNK * p->size, sums = CHUNK * (p->rank + 2 * p->size);
    vf *const memory = vectors(3 * units + 2 * block + p->size + sums + CHUNK);
    if (!memory) return 1;
    struct scratch m = {.rates = memory, .by_state = memory + units, .by_rates = memory + 2 * units};
    m.h = memory + 3 * units, m.e = m.h + block + p->size, m.sums = m.e + block, m.squares = m.sums + sums;
    const uint64_t denormals = flush_denormals();
    pack_units(p, p->rates, m.rates, LOG2E);
#define ROWS_OF(SIZE, NEGATIVE) \
    for (int64_t row = first; row < last; row++) backward(SIZE, NEGATIVE, p, row, m);
    EACH_FORM(ROWS_OF)
#undef ROWS_OF
    restore_denormals(denormals);
    free(memory);
    return 0;
}
