/* A chunk of the selective scan's steps: its place, its step lengths, its weights from x, and x as a convolution. */
#ifndef ORTHOBENCH_SELECTIVE_H
#define ORTHOBENCH_SELECTIVE_H

#include <stdlib.h>

#include "products.h"
#include "vectors.h"

#define CHUNK 16
#define GROUP (VL == 16 ? 8 : 4)
#define LOG2E 1.44269504088896341f
#define LN2 0.693147180559945309f

struct selective {
    int64_t steps, batch, width, size, rank, negative, groups, taps, inputs;
    const float *x, *map, *rates, *step, *bias, *start, *input_weight, *convolution, *convolution_bias, *before;
    float *weight, *y, *end, *starts;
    const float *grad_y;
    float *dx, *dweight, *dmap, *drates, *dstep, *dbias, *dstart, *norms;
    float *dinput_weight, *dconvolution, *dconvolution_bias, *dbefore;
};

int64_t selective_size(void) { return sizeof(struct selective); }

static int64_t in_groups(int64_t count) { return (count + GROUP - 1) / GROUP * GROUP; }

static int64_t blocks_of(int64_t width) { return (width + VL - 1) / VL; }

/* Floats of `starts`. */
int64_t selective_starts(int64_t steps, int64_t batch, int64_t width, int64_t size) {
    return (steps + CHUNK - 1) / CHUNK * batch * blocks_of(width) * in_groups(size) * VL;
}

/* Rows [count, width] as [blocks, in_groups(count)] vectors, times a factor, and zeros behind the last; and back. */
static void pack_rows(int64_t count, int64_t width, const float *from, vf *to, float factor) {
    for (int64_t col = 0; col < width; col += VL, to += in_groups(count))
        for (int64_t n = 0; n < in_groups(count); n++)
            to[n] = n < count ? factor * load(from + n * width + col, lanes(width - col)) : (vf){0};
}

static void unpack_rows(int64_t count, int64_t width, const vf *from, float *to) {
    for (int64_t col = 0; col < width; col += VL, from += in_groups(count))
        for (int64_t n = 0; n < count; n++) store(to + n * width + col, from[n], lanes(width - col));
}

/* 2^(x y) of x y <= 0, relative error below 3e-7. */
INLINE vf power_of_product(vf x, vf y) {
#if defined(__AVX512F__)
    /* x y = whole / 32 + rest. The fraction of the first selects 2^(i / 32) from a table, which a polynomial of the rest
     * corrects. The instruction that multiplies by 2^floor gives 0 below the range. */
    static const float table[32] = {
        1.0f, 1.02189715f, 1.04427378f, 1.06714040f, 1.09050773f, 1.11438674f, 1.13878863f, 1.16372486f,
        1.18920712f, 1.21524736f, 1.24185781f, 1.26905096f, 1.29683955f, 1.32523666f, 1.35425555f, 1.38390988f,
        1.41421356f, 1.44518081f, 1.47682615f, 1.50916443f, 1.54221083f, 1.57598085f, 1.61049033f, 1.64575548f,
        1.68179283f, 1.71861930f, 1.75625216f, 1.79470907f, 1.83400809f, 1.87416763f, 1.91520656f, 1.95714412f};
    const vf magic = splat(393216.0f); /* 1.5 * 2^18: adding it rounds to a multiple of 1 / 32 */
    const vf shifted = x * y + magic, whole = shifted - magic, rest = x * y - whole;
    const vf entry = (vf)_mm512_permutex2var_ps(_mm512_loadu_ps(table), (__m512i)shifted, _mm512_loadu_ps(table + 16));
    const vf series = rest * 0.24022651f + 0.69314718f;
    return (vf)_mm512_scalef_ps((__m512)(entry * rest * series + entry), (__m512)whole);
#else
    return power_of_two(x * y);
#endif
}

/* a from e = exp(Delta A). */
INLINE vf factor(const int negative, vf e) { return negative ? 2.0f * e - 1.0f : e; }

/* Rows [first, last) of a group. */
struct range {
    int64_t first, last;
};

static struct range rows_of(const struct selective *p, int64_t group) {
    return (struct range){p->batch * group / p->groups, p->batch * (group + 1) / p->groups};
}

static int64_t rows_of_group(const struct selective *p) { return (p->batch + p->groups - 1) / p->groups; }

static int64_t numbers_of(const struct selective *p) { return p->rank + 2 * p->size; }

/* Delta and Delta x of a block at a step. */
struct drive {
    vf delta, driven;
};

/* A chunk of steps of a row: its place in tensors [T, B, ...], the distance to that of the next row or chunk in turn,
 * the same in `starts`, and its length; x, whose steps are ldx floats apart; its weights in groups, and drives
 * [blocks, CHUNK]. */
struct chunk {
    int64_t at, ahead, starts_ahead, count;
    const struct selective *p;
    const float *x;
    int64_t ldx;
    float *r, *b, *c;
    struct drive *drives;
};

/* The place of step t of the chunk in a tensor [T, B, features]. */
INLINE int64_t step_at(const struct chunk *chunk, int64_t t) { return chunk->at + t * chunk->p->batch; }

/* Fetch what the next turn needs of a tensor [T, B, features]: the vector of step t from `col`. */
INLINE void fetch(const struct chunk *chunk, int64_t t, int64_t col, int64_t features, const float *tensor) {
    __builtin_prefetch((const char *)tensor + 4 * ((step_at(chunk, t) + chunk->ahead) * features + col), 0, 2);
}

static void copy_floats(float *to, const float *from, int64_t count) {
    for (int64_t n = 0; n < count; n++) to[n] = from[n];
}

/* `direction` is 1 if the next chunk is the later one, and -1 if it is the earlier one. */
static void place_chunk(struct chunk *chunk, struct range rows, int64_t row, int64_t first, int direction) {
    const struct selective *const p = chunk->p;
    chunk->at = first * p->batch + row, chunk->count = p->steps - first < CHUNK ? p->steps - first : CHUNK;
    const int64_t turn = row + 1 < rows.last ? 0 : direction * p->batch, next = turn ? rows.first - row : 1;
    chunk->ahead = turn * CHUNK + next;
    chunk->starts_ahead = (turn + next) * blocks_of(p->width) * in_groups(p->size) * VL;
}

static void read_weights(const struct chunk *chunk) {
    const struct selective *const p = chunk->p;
    const int64_t ranks = in_groups(p->rank), units = in_groups(p->size), numbers = numbers_of(p);
    for (int64_t t = 0; t < chunk->count; t++) {
        const float *const weight = p->weight + step_at(chunk, t) * numbers;
        for (int64_t n = 0; n < numbers; n += 16) fetch(chunk, t, n, numbers, p->weight);
        copy_floats(chunk->r + t * ranks, weight, p->rank);
        copy_floats(chunk->b + t * units, weight + p->rank, p->size);
        copy_floats(chunk->c + t * units, weight + p->rank + p->size, p->size);
    }
}

/* Delta, Delta x and, unless `slopes` is NULL, the derivative of softplus, of all blocks and steps of a chunk. `step` is
 * W, and `slopes` is as the drives.
 *
 * softplus(z) = log(1 + e^z) = max(z, 0) + log(1 + u), u = e^-|z|. */
INLINE void step_lengths(const struct chunk *chunk, const vf *step, vf *slopes) {
    const struct selective *const p = chunk->p;
    const int64_t rank = p->rank, ranks = in_groups(rank), width = p->width;
    for (int64_t t = 0; t < chunk->count; t++) {
        const float *const r = chunk->r + t * ranks, *const x = chunk->x + t * chunk->ldx;
        for (int64_t block = 0, col = 0; col < width; block++, col += VL) {
            const int count = lanes(width - col);
            const vf *const columns = step + block * ranks;
            struct drive *const drive = chunk->drives + block * CHUNK + t;
            if (!p->inputs) fetch(chunk, t, col, width, p->x);
            vf raw = load(p->bias + col, count);
            for (int64_t j = 0; j < rank; j++) raw += r[j] * columns[j];
            const vf u = power_of_product(magnitude(raw), splat(-LOG2E));
            drive->delta = relu(raw) + log_one_plus(u);
            drive->driven = drive->delta * load(x + col, count);
            if (slopes) slopes[block * CHUNK + t] = select_lanes(raw < 0, u, splat(1.0f)) * reciprocal(1.0f + u);
        }
    }
}

/* ------------------------------------------------------------------ the map from x to a step's weight */

/* P [numbers, width], packed for x P^T and for its transpose: panels of two vectors of columns. */
struct map {
    float *forward, *backward;
};

static void pack_map(float *to, int64_t columns, int64_t depth, const float *from, int64_t sj, int64_t sk) {
    for (int64_t col = 0; col < padded(columns); col += 2 * VL) {
        const int vecs = padded(columns) - col > VL ? 2 : 1;
        for (int v = 0; v < vecs; v++)
            pack_vector(to + col * depth + v * VL, vecs * VL, depth, from + (col + v * VL) * sj, sj, sk,
                        lanes(columns - col - v * VL));
    }
}

/* out [rows, padded(columns)] = a [rows, depth] times a packed map. */
static void apply_map(int64_t rows, int64_t columns, struct operand operand, float *out) {
    const int64_t pieces = (rows + ROWS - 1) / ROWS, ldo = padded(columns);
    for (int64_t col = 0; col < ldo; col += 2 * VL)
        for (int64_t piece = 0; piece < pieces; piece++) {
            const int64_t row = rows * piece / pieces, count = rows * (piece + 1) / pieces - row;
            multiply((int)count, ldo - col > VL ? 2 : 1, &operand, 1, row, col, out + row * ldo + col, ldo);
        }
}

/* The weights of a chunk's steps. `out` is memory for [CHUNK, padded(numbers)]. */
static void make_weights(const struct chunk *chunk, const float *packed, float *out) {
    const struct selective *const p = chunk->p;
    const int64_t numbers = numbers_of(p);
    const struct operand x = {chunk->x, chunk->ldx, p->width, packed};
    apply_map(chunk->count, numbers, x, out);
    for (int64_t t = 0; t < chunk->count; t++)
        copy_floats(p->weight + step_at(chunk, t) * numbers, out + t * padded(numbers), numbers);
}

/* dmap [numbers, padded(width)] += the sum over a chunk of a group's rows of dweight^T x. `by_weight` is [rows, CHUNK,
 * numbers], and zero behind the last step. `x` has each row's x as `chunk` has the first one's, `row_size` floats apart.
 * `factors` is memory for all steps of the rows. */
static void add_map_gradient(const struct chunk *chunk, const float *x, int64_t row_size, int64_t rows,
                             const float *by_weight, struct factor *factors, float *dmap) {
    const struct selective *const p = chunk->p;
    const int64_t numbers = numbers_of(p), total = rows * CHUNK;
    for (int64_t k = 0; k < total; k++) {
        const int64_t t = k % CHUNK < chunk->count ? k % CHUNK : 0;
        factors[k].state = x + k / CHUNK * row_size + t * chunk->ldx;
    }
    for (int64_t k = 0; k < total; k += DEPTH) {
        const struct rows piece = {by_weight + k * numbers, total - k < DEPTH ? total - k : DEPTH, numbers};
        accumulate_outer(&piece, factors + k, 0, numbers, 0, p->width, p->width, 0, dmap, NULL);
    }
}

/* ------------------------------------------------------------------ x as a convolution */

/* x_t = silu(z_t), z_t = sum_i w_i o s_{t - taps + 1 + i} + b, of a source s, or of its projection s_t = U u_t of
 * `inputs` numbers u; `input_weight` [inputs, width] is U transposed. `before` [taps - 1, B, width] has s before the
 * first step. Rows of a thread's memory have ld = padded(width) floats: the source [CHUNK + taps - 1, ld] from taps - 1
 * steps before the chunk, x and sigmoid(z) [CHUNK, ld], zeros behind the last feature. */
struct inputs {
    float *source, *x, *sigmoids;
};

static void read_source(const struct chunk *chunk, int64_t first, float *source) {
    const struct selective *const p = chunk->p;
    const int64_t width = p->width, ld = padded(width);
    for (int64_t k = 0; k < chunk->count + p->taps - 1; k++, source += ld) {
        const int64_t step = first - p->taps + 1 + k, at = chunk->at + (step - first) * p->batch;
        const int is_projected = p->inputs && step >= 0;
        const float *from = p->x + at * (is_projected ? p->inputs : width);
        if (step < 0) from = p->before + (at + (p->taps - 1) * p->batch) * width;
        for (int64_t col = 0; col < width; col += VL) {
            const int count = lanes(width - col);
            vf value = is_projected ? (vf){0} : load(from + col, count);
            for (int64_t j = 0; is_projected && j < p->inputs; j++)
                value += from[j] * load(p->input_weight + j * width + col, count);
            *(vf *)(source + col) = value;
        }
    }
}

/* Make x of a chunk, whose first step is `first`, or point to it. */
INLINE void make_inputs(struct chunk *chunk, int64_t first, const struct inputs *m) {
    const struct selective *const p = chunk->p;
    const int64_t width = p->width, ld = padded(width);
    chunk->x = p->taps ? m->x : p->x + chunk->at * width, chunk->ldx = p->taps ? ld : p->batch * width;
    if (!p->taps) return;
    read_source(chunk, first, m->source);
    for (int64_t t = 0; t < chunk->count; t++)
        for (int64_t col = 0; col < width; col += VL) {
            const int count = lanes(width - col);
            vf z = p->convolution_bias ? load(p->convolution_bias + col, count) : (vf){0};
            for (int64_t i = 0; i < p->taps; i++)
                z += load(p->convolution + i * width + col, count) * *(const vf *)(m->source + (t + i) * ld + col);
            const vf s = sigmoid(z);
            *(vf *)(m->x + t * ld + col) = z * s;
            *(vf *)(m->sigmoids + t * ld + col) = s;
        }
}

/* Gradients of the convolution: dx [CHUNK, ld]; by the source [CHUNK + taps - 1, ld], of whose last rows `later` has
 * what the steps behind the chunk add; then of its first rows. Sums [taps, ld], [ld] and [inputs, ld]. */
struct inputs_gradients {
    float *dx, *by_source, *later, *convolution, *bias, *projection;
};

/* The gradients by the weights, and by the source or U; by `before` in the first chunk. */
static void inputs_backward(const struct chunk *chunk, int64_t first, const struct inputs *m,
                            const struct inputs_gradients *g) {
    const struct selective *const p = chunk->p;
    const int64_t width = p->width, ld = padded(width), earlier = p->taps - 1;
    const size_t kept = (size_t)(earlier * ld) * sizeof(float);
    memset(g->by_source, 0, (size_t)(chunk->count * ld) * sizeof(float));
    memcpy(g->by_source + chunk->count * ld, g->later, kept);
    for (int64_t t = 0; t < chunk->count; t++)
        for (int64_t col = 0; col < width; col += VL) {
            const int64_t at = t * ld + col;
            const vf s = *(const vf *)(m->sigmoids + at), x = *(const vf *)(m->x + at);
            const vf dz = *(const vf *)(g->dx + at) * (s + x * (1.0f - s));
            *(vf *)(g->bias + col) += dz;
            for (int64_t i = 0; i < p->taps; i++) {
                *(vf *)(g->by_source + at + i * ld) += load(p->convolution + i * width + col, lanes(width - col)) * dz;
                *(vf *)(g->convolution + i * ld + col) += dz * *(const vf *)(m->source + at + i * ld);
            }
        }
    memcpy(g->later, g->by_source, kept);
    for (int64_t k = first ? earlier : 0; k < chunk->count + earlier; k++) {
        const float *const row = g->by_source + k * ld;
        const int64_t step = first - earlier + k, at = chunk->at + (step - first) * p->batch;
        if (step < 0) memcpy(p->dbefore + (at + earlier * p->batch) * width, row, (size_t)width * sizeof(float));
        else if (!p->inputs) memcpy(p->dx + at * width, row, (size_t)width * sizeof(float));
        else
            for (int64_t j = 0; j < p->inputs; j++)
                for (int64_t col = 0; col < width; col += VL)
                    *(vf *)(g->projection + j * ld + col) += p->x[at * p->inputs + j] * *(const vf *)(row + col);
    }
}

#endif
