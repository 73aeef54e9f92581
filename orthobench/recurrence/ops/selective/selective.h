/* A chunk of the selective scan's steps: its place, its step lengths and its weights from x. */
#ifndef ORTHOBENCH_SELECTIVE_H
#define ORTHOBENCH_SELECTIVE_H

#include "convolution.h"
#include "products.h"
#include "vectors.h"

#define CHUNK 16
#define GROUP (VL == 16 ? 8 : 4)
#define LN2 0.693147180559945309f

/* `width` features have `size` units each. NULL:
 * map if the weights are given, the convolution's fields without `taps`, input_weight without `inputs`, skip and gates
 * without them, y if nothing is read, starts without a backward pass, norms without a trace, absent gradients. */
struct selective {
    int64_t steps, batch, width, size, rank, negative;
    int64_t groups;       /* number of groups of batch rows, whose gradients of parameters are summed separately */
    int64_t taps, inputs; /* 0 if x is not a convolution, or not a projection */
    const float *x;       /* [T, B, width], or with `inputs` u [T, B, inputs] */
    const float *map;     /* P [rank + 2 size, width], which maps x to the weights */
    const float *rates;   /* A [size, width] */
    const float *step,    /* W transposed, [rank, width] */
        *bias;            /* b, [width] */
    const float *start;   /* [B, size, width] */
    const float *input_weight; /* U transposed [inputs, width] */
    const float *convolution, /* [taps, width] */
        *convolution_bias,    /* [width] */
        *before;              /* the convolution's source before the first step, [taps - 1, B, width] */
    const float *skip,    /* D, [width], see selective_gate.h */
        *gate,            /* z, [T, B, width], likewise */
        *gate_weight;     /* W transposed, [inputs, width], likewise */
    float *weight;        /* [T, B, rank + 2 size]: r, B and C of each step; an output if there is a map */
    float *y,             /* [T, B, width] */
        *end;             /* [B, size, width] */
    float *starts;        /* the states before each chunk, see selective.c */
    const float *grad_y;  /* [T, B, width] */
    /* Each group has its own sums over rows, [groups, ...]: dmap, drates, dstep, dbias, and the gradients of the
     * weights of the convolution, the projection, D and the gate. The others have the shape of what they are gradients
     * of. */
    float *dx, *dweight, *dmap, *drates, *dstep, *dbias, *dstart;
    float *norms;         /* [T, B]: squares */
    float *dinput_weight, *dconvolution, *dconvolution_bias, *dbefore, *dskip, *dgate, *dgate_weight;
};

static int64_t in_groups(int64_t count) { return (count + GROUP - 1) / GROUP * GROUP; }

static int64_t blocks_of(int64_t width) { return (width + VL - 1) / VL; }

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

/* A chunk of steps of a row: the row, the first step, its place in tensors [T, B, ...], the distance to that of the
 * next row or chunk in turn, the same in `starts`, and its length; x, whose steps are ldx floats apart; its weights in
 * groups, and drives [blocks, CHUNK]. */
struct chunk {
    int64_t row, first, at, ahead, starts_ahead, count;
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
    for (int64_t n = 0; n < count; n += VL) store(to + n, load(from + n, lanes(count - n)), lanes(count - n));
}

/* `direction` is 1 if the next chunk is the later one, and -1 if it is the earlier one. */
static void place_chunk(struct chunk *chunk, struct range rows, int64_t row, int64_t first, int direction) {
    const struct selective *const p = chunk->p;
    chunk->row = row, chunk->first = first, chunk->at = first * p->batch + row;
    chunk->count = p->steps - first < CHUNK ? p->steps - first : CHUNK;
    const int64_t turn = row + 1 < rows.last ? 0 : direction * p->batch, next = turn ? rows.first - row : 1;
    chunk->ahead = turn * CHUNK + next;
    chunk->starts_ahead = (turn + next) * blocks_of(p->width) * in_groups(p->size) * VL;
}

/* The numbers of a weight that are of use: C is not if nothing is read. */
static int64_t numbers_used(const struct selective *p, int reads) { return p->rank + (reads ? 2 : 1) * p->size; }

/* The weights of a chunk's steps in groups, from rows that are `ld` floats apart. */
static void read_weights(const struct chunk *chunk, int reads, const float *weight, int64_t ld) {
    const struct selective *const p = chunk->p;
    const int64_t ranks = in_groups(p->rank), units = in_groups(p->size);
    for (int64_t t = 0; t < chunk->count; t++, weight += ld) {
        copy_floats(chunk->r + t * ranks, weight, p->rank);
        copy_floats(chunk->b + t * units, weight + p->rank, p->size);
        if (reads) copy_floats(chunk->c + t * units, weight + p->rank + p->size, p->size);
    }
}

/* The same from the tensor of all steps. */
static void read_kept_weights(const struct chunk *chunk, int reads) {
    const struct selective *const p = chunk->p;
    const int64_t numbers = numbers_of(p);
    for (int64_t t = 0; t < chunk->count; t++)
        for (int64_t n = 0; n < numbers; n += 16) fetch(chunk, t, n, numbers, p->weight);
    read_weights(chunk, reads, p->weight + chunk->at * numbers, p->batch * numbers);
}

/* Steps whose functions are computed together, because a single one mostly waits for its own results. */
#define TURN 8

/* Delta, Delta x and, unless `slopes` is NULL, the derivative of softplus, of a block at all steps of a chunk. `step`
 * is the block's part of W. A turn behind the last step makes the last one again.
 *
 * softplus(z) = log(1 + e^z) = max(z, 0) + log(1 + u), u = e^-|z|. */
INLINE void step_lengths(const struct chunk *chunk, int64_t col, const vf *step, struct drive *drives, vf *slopes) {
    const struct selective *const p = chunk->p;
    const int64_t rank = p->rank, ranks = in_groups(rank), last = chunk->count - 1;
    const int count = lanes(p->width - col);
    const vf bias = load(p->bias + col, count);
    for (int64_t start = 0; start <= last; start += TURN) {
        vf raw[TURN];
#pragma GCC unroll 8
        for (int i = 0; i < TURN; i++) raw[i] = bias;
        for (int64_t j = 0; j < rank; j++)
#pragma GCC unroll 8
            for (int i = 0; i < TURN; i++) raw[i] += chunk->r[(start + i) * ranks + j] * step[j];
#pragma GCC unroll 8
        for (int i = 0; i < TURN; i++) {
            const int64_t t = start + i < last ? start + i : last;
            struct drive *const drive = drives + start + i;
            if (!p->inputs) fetch(chunk, t, col, p->width, p->x);
            const vf u = power_of_product(magnitude(raw[i]), splat(-LOG2E));
            drive->delta = relu(raw[i]) + log_one_plus(u);
            drive->driven = drive->delta * load(chunk->x + t * chunk->ldx + col, count);
            if (slopes) slopes[start + i] = select_lanes(raw[i] < 0, u, splat(1.0f)) * reciprocal(1.0f + u);
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

/* The weights of a chunk's steps, kept and in groups. `out` is memory for [CHUNK, padded(numbers_used)]. */
static void make_weights(const struct chunk *chunk, const float *packed, float *out) {
    const struct selective *const p = chunk->p;
    const int reads = p->y != NULL;
    const int64_t numbers = numbers_of(p), used = numbers_used(p, reads);
    const struct operand x = {chunk->x, chunk->ldx, p->width, packed};
    apply_map(chunk->count, used, x, out);
    read_weights(chunk, reads, out, padded(used));
    for (int64_t t = 0; t < chunk->count; t++)
        copy_floats(p->weight + step_at(chunk, t) * numbers, out + t * padded(used), used);
}

/* dmap [numbers, padded(width)] += the sum over a chunk of a group's rows of dweight^T x. `by_weight` is [rows, CHUNK,
 * numbers], and zero behind the last step. `x` has each row's x as `chunk` has the first one's, `row_size` floats
 * apart. `factors` is memory for all steps of the rows. */
static void add_map_gradient(const struct chunk *chunk, const float *x, int64_t row_size, int64_t rows,
                             const float *by_weight, struct factor *factors, float *dmap) {
    const struct selective *const p = chunk->p;
    const int64_t numbers = numbers_of(p), used = numbers_used(p, p->grad_y != NULL), total = rows * CHUNK;
    for (int64_t k = 0; k < total; k++) {
        const int64_t t = k % CHUNK < chunk->count ? k % CHUNK : 0;
        factors[k].state = x + k / CHUNK * row_size + t * chunk->ldx;
    }
    for (int64_t k = 0; k < total; k += DEPTH) {
        const struct rows piece = {by_weight + k * numbers, total - k < DEPTH ? total - k : DEPTH, numbers};
        accumulate_outer(&piece, factors + k, 0, used, 0, p->width, p->width, 0, dmap, NULL);
    }
}

#endif
