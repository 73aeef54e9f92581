/* The selective scan h_t = a_t o h_{t-1} + Delta_t B_t x_t, y_t = C_t h_t, in float32: Mamba.
 *
 * Each of `width` features has `size` units, and lanes are features. The caller gives each thread a range of groups of
 * rows, whose gradients of parameters are summed. A step's weight is r [rank], B [size] and C [size]. Delta =
 * softplus(W r + b), where `step` [rank, width] is W transposed. a = exp(Delta A), or 2 exp(Delta A) - 1 if `negative`,
 * where `rates` [size, width] is A. A row's state is [size, width]. In a thread's memory it is packed: blocks of VL
 * features, each with its units, rounded up to groups.
 *
 * The sequence is cut into chunks of steps. A group of units of one block runs through all steps of a chunk in
 * registers. `starts` [chunks, B, packed] has the states before each chunk. The backward pass recomputes the states of
 * a chunk, for one group of one block at a time, so that they stay in the L1 cache. `inputs.h` computes the
 * input x, and `outputs.h` the outputs that follow from y.
 *
 * A chunk of one row, in the order of the code. X has x_t of the chunk's steps as rows, P is the map and N = [r, B, C].
 *
 *     forward_row
 *         X from its projection and convolution    make_inputs
 *         N = X P^T, or the weight that was given  compute_weights: the only product of matrices
 *         Delta_t = softplus(W r_t + b)            step_lengths, drives[t].delta; .driven is Delta_t x_t
 *         e = exp(Delta_t A), a = e or 2 e - 1     forward_group: a state's factor, never kept
 *         h_t = a h_{t-1} + B_t Delta_t x_t        forward_group, state
 *         y_t = C_t h_t                            forward_group, sum, added up over the groups of units
 *
 *     backward_row, with g = dL/dh_t, which `sweep` carries from step to step in `by_state`
 *         e and h_t of the chunk from its start    states_again, m->e and m->h, for one group of one block
 *         g += C_t dy_t,  dC_t = dy_t h_t          sweep, if something is read
 *         dB_t = g Delta_t x_t                     sweep, by_b; write_sums adds up the lanes, which are features
 *         dL/d(Delta_t x_t) = sum of g B_t         sweep, sum.driven
 *         dL/d(Delta_t A / log 2) = g h_{t-1} e    sweep, by_e, whose factors log 2, and 2 if negative, come later
 *         dA = sum of by_e Delta_t                 sweep, by_rate
 *         dDelta_t = sum of by_e A + x_t sum.driven    sweep, by_delta, behind the last group
 *         g = a g                                  sweep, by_state
 *         dr_t = W^T (dDelta_t softplus')          through_step_map, which also gives dW
 *         dX = Delta_t sum.driven + dN P           write_dx, and from there back through the convolution
 *     add_map_gradient
 *         dP = dN^T X                              for the rows of a group together
 *
 * The forward pass keeps h before each chunk, and N if it comes from the map. All else is computed again, because
 * the states of all steps are `size` times as large as the inputs and would pass through memory. */
#include "products.h"
#include "outputs.h"
#include "inputs.h"

#define LN2 0.693147180559945309f

enum { GROUP = VL == 16 ? 8 : 4 }; /* units of a feature that run through a chunk in registers */

/* ------------------------------------------------------------------ groups of units, blocks of features and rows */

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

static void copy_floats(float *to, const float *from, int64_t count) {
    for (int64_t n = 0; n < count; n += VL) store(to + n, load(from + n, lanes(count - n)), lanes(count - n));
}

/* ------------------------------------------------------------------ a chunk's place, weights and step lengths */

/* `direction` is 1 if the next chunk is the later one, and -1 if it is the earlier one. */
static void place_chunk(struct chunk *chunk, struct range rows, int64_t row, int64_t first, int direction) {
    const struct selective *const p = chunk->p;
    chunk->row = row, chunk->first = first, chunk->at = first * p->batch + row;
    chunk->count = p->steps - first < SCAN_STEPS ? p->steps - first : SCAN_STEPS;
    const int64_t turn = row + 1 < rows.last ? 0 : direction * p->batch, next = turn ? rows.first - row : 1;
    chunk->ahead = turn * SCAN_STEPS + next;
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

enum { TURN = 8 }; /* steps whose functions are computed together, because a single one mostly waits for its results */

/* Delta, Delta x and, unless `slopes` is NULL, the derivative of softplus, of a block at all steps of a chunk. `step`
 * is the block's part of W. A turn beyond the last step repeats the last one.
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

/* The weights of a chunk's steps, kept and in groups. `out` is memory for [SCAN_STEPS, padded(numbers_used)]. */
static void compute_weights(const struct chunk *chunk, const float *packed, float *out) {
    const struct selective *const p = chunk->p;
    const int reads = p->y != NULL;
    const int64_t numbers = numbers_of(p), used = numbers_used(p, reads);
    multiply_rows(&(struct operand){chunk->x, chunk->ldx, p->width, packed}, chunk->count, used, out, padded(used));
    read_weights(chunk, reads, out, padded(used));
    for (int64_t t = 0; t < chunk->count; t++)
        copy_floats(p->weight + step_at(chunk, t) * numbers, out + t * padded(used), used);
}

/* dmap [numbers, padded(width)] += the sum over a chunk of a group's rows of dweight^T x. `by_weight` is
 * [rows, SCAN_STEPS, numbers], and zero behind the last step. `x` has each row's x as `chunk` has the first one's,
 * `row_size` floats apart. `factors` is memory for all steps of the rows. */
static void add_map_gradient(const struct chunk *chunk, const float *x, int64_t row_size, int64_t rows,
                             const float *by_weight, struct factor *factors, float *dmap) {
    const struct selective *const p = chunk->p;
    const int64_t numbers = numbers_of(p), used = numbers_used(p, p->grad_y != NULL), total = rows * SCAN_STEPS;
    for (int64_t k = 0; k < total; k++) {
        const int64_t t = k % SCAN_STEPS < chunk->count ? k % SCAN_STEPS : 0;
        factors[k].state = x + k / SCAN_STEPS * row_size + t * chunk->ldx;
    }
    for (int64_t k = 0; k < total; k += DEPTH) {
        const struct rows piece = {by_weight + k * numbers, total - k < DEPTH ? total - k : DEPTH, numbers};
        accumulate_outer(&piece, factors + k, 0, used, 0, p->width, p->width, 0, dmap, NULL);
    }
}

/* Floats of `starts`. */
int64_t selective_starts(int64_t steps, int64_t batch, int64_t width, int64_t size) {
    return (steps + SCAN_STEPS - 1) / SCAN_STEPS * batch * blocks_of(width) * in_groups(size) * VL;
}

/* ------------------------------------------------------------------ the forward pass */

/* The steps of a chunk for a group of units of a block. The states before them are kept at `start`, unless it is NULL.
 * `y` sums up C h of the groups, and the last one writes the outputs, if the pass `reads`. */
INLINE void forward_group(const int negative, const int reads, const struct chunk *chunk, int64_t block, int64_t group,
                          const vf *rates, vf *h, float *start, vf *y) {
    const struct selective *const p = chunk->p;
    const int64_t units = in_groups(p->size), col = block * VL;
    const int is_first = group == 0, is_last = group + GROUP >= units;
    const float *b = chunk->b + group, *c = chunk->c + group;
    const struct drive *const drives = chunk->drives + block * SCAN_STEPS;
    vf state[GROUP];
    vf rate[GROUP];
    for (int i = 0; i < GROUP; i++) state[i] = h[i], rate[i] = rates[i];
    for (int i = 0; start && i < GROUP; i++) stream(start + i * VL, state[i]);
    for (int64_t t = 0; t < chunk->count; t++, b += units, c += units) {
        const struct drive drive = drives[t];
#pragma GCC unroll 8
        for (int i = 0; i < GROUP; i++)
            state[i] = b[i] * drive.driven + factor(negative, power_of_product(drive.delta, rate[i])) * state[i];
        if (!reads) continue;
        vf sum = is_first ? (vf){0} : y[t];
#pragma GCC unroll 8
        for (int i = 0; i < GROUP; i++) sum += c[i] * state[i];
        y[t] = sum;
    }
    if (reads && is_last && is_gated(p)) write_outputs(1, chunk, col, y);
    else if (reads && is_last) write_outputs(0, chunk, col, y);
    for (int i = 0; i < GROUP; i++) h[i] = state[i];
}

/* Memory of a thread. */
struct forward_memory {
    vf *rates;  /* A / log 2, packed */
    vf *step;   /* W, packed */
    vf *h;      /* the states of a group of rows, packed */
    vf *y;      /* y of a block [SCAN_STEPS] */
    float *mapped; /* the weights of a chunk that the map computes [SCAN_STEPS, padded(numbers_used)] */
    float *map; /* the map, packed */
    struct inputs inputs;
    struct chunk chunk;
};

/* `h` is the row's packed state, which is kept at `starts`, unless it is NULL. */
INLINE void forward_row(const int negative, const struct chunk *chunk, vf *h, float *starts,
                        const struct forward_memory *m) {
    const struct selective *const p = chunk->p;
    const int64_t width = p->width, units = in_groups(p->size), blocks = blocks_of(width);
    for (int64_t col = 0; col < width; col += VL) make_inputs(chunk, col, &m->inputs);
    if (p->map) compute_weights(chunk, m->map, m->mapped);
    else read_kept_weights(chunk, p->y != NULL);
    for (int64_t block = 0; block < blocks; block++) {
        step_lengths(chunk, block * VL, m->step + block * in_groups(p->rank), chunk->drives + block * SCAN_STEPS, NULL);
        for (int64_t group = 0; group < units; group += GROUP) {
            const int64_t unit = block * units + group;
            float *const start = starts ? starts + unit * VL : NULL;
            if (p->y) forward_group(negative, 1, chunk, block, group, m->rates + unit, h + unit, start, m->y);
            else forward_group(negative, 0, chunk, block, group, m->rates + unit, h + unit, start, m->y);
        }
    }
}

INLINE void forward(const int negative, struct chunk *chunk, struct range rows, const struct forward_memory *m) {
    const struct selective *const p = chunk->p;
    const int64_t state = p->size * p->width, packed = blocks_of(p->width) * in_groups(p->size);
    for (int64_t row = rows.first; row < rows.last; row++)
        pack_rows(p->size, p->width, p->start + row * state, m->h + (row - rows.first) * packed, 1.0f);
    for (int64_t first = 0; first < p->steps; first += SCAN_STEPS) {
        for (int64_t row = rows.first; row < rows.last; row++) {
            float *const starts = p->starts ? p->starts + (first / SCAN_STEPS * p->batch + row) * packed * VL : NULL;
            place_chunk(chunk, rows, row, first, 1);
            place_inputs(chunk, &m->inputs);
            forward_row(negative, chunk, m->h + (row - rows.first) * packed, starts, m);
        }
    }
    for (int64_t row = rows.first; row < rows.last; row++)
        unpack_rows(p->size, p->width, m->h + (row - rows.first) * packed, p->end + row * state);
}

static struct chunk carve_chunk(struct carver *from, const struct selective *p) {
    const int64_t units = in_groups(p->size);
    struct chunk chunk = {.p = p};
    chunk.r = carve(from, SCAN_STEPS * in_groups(p->rank));
    chunk.b = carve(from, SCAN_STEPS * units);
    chunk.c = carve(from, SCAN_STEPS * units);
    chunk.drives = carve(from, 2 * blocks_of(p->width) * SCAN_STEPS * VL);
    return chunk;
}

static struct forward_memory carve_forward(struct carver *from, const struct selective *p) {
    const int64_t ld = padded(p->width), state = in_groups(p->size) * ld, used = padded(numbers_used(p, p->y != NULL));
    struct forward_memory m = {.rates = carve(from, state)};
    m.step = carve(from, in_groups(p->rank) * ld);
    m.h = carve(from, rows_of_group(p) * state);
    m.y = carve(from, SCAN_STEPS * VL);
    m.mapped = carve(from, p->map ? SCAN_STEPS * used : 0);
    m.map = carve(from, p->map ? p->width * used : 0);
    m.inputs.x = carve(from, p->taps ? SCAN_STEPS * ld : 0);
    m.chunk = carve_chunk(from, p);
    return m;
}

/* end, the weight if there is a map, and y and starts if they are wanted, of the groups of rows in [first, last).
 * Returns nonzero without memory. */
int selective_forward(const struct selective *p, int64_t first, int64_t last) {
    struct carver size = {NULL, 0};
    carve_forward(&size, p);
    struct carver from = {zeros(size.used), 0};
    if (!from.base) return 1;
    struct forward_memory m = carve_forward(&from, p);
    const uint64_t denormals = flush_denormals();
    pack_rows(p->size, p->width, p->rates, m.rates, LOG2E);
    pack_rows(p->rank, p->width, p->step, m.step, 1.0f);
    if (p->map) pack(m.map, p->map, numbers_used(p, p->y != NULL), p->width, p->width, 1, 1);
    for (int64_t group = first; group < last; group++)
        if (p->negative) forward(1, &m.chunk, rows_of(p, group), &m);
        else forward(0, &m.chunk, rows_of(p, group), &m);
    end_streams();
    restore_denormals(denormals);
    free(from.base);
    return 0;
}

/* ------------------------------------------------------------------ sums over the lanes of many vectors */

enum { LEVELS = VL == 16 ? 4 : VL == 8 ? 3 : 2 };

/* Lanes of two vectors for each level of a tree, which turns two vectors of 2^l sums into one of 2^(l + 1) sums. */
struct halves {
    vi low[LEVELS], high[LEVELS];
};

static struct halves make_halves(void) {
    struct halves halves;
    for (int level = 0; level < LEVELS; level++)
        for (int lane = 0; lane < VL; lane++) {
            const int half = VL >> (level + 1), segment = lane / half; /* of the two vectors, lane by lane */
            halves.low[level][lane] = segment * 2 * half + lane % half;
            halves.high[level][lane] = halves.low[level][lane] + half;
        }
    return halves;
}

/* to[i] = the sum of the lanes of from[i], i < count, a multiple of VL. */
static void lane_sums(const struct halves *halves, const vf *from, int64_t count, float *to) {
    for (int64_t i = 0; i < count; i += VL) {
        vf v[VL];
        for (int j = 0; j < VL; j++) v[j] = from[i + j];
#pragma GCC unroll 4
        for (int level = 0; level < LEVELS; level++)
#pragma GCC unroll 8
            for (int j = 0; j < VL >> (level + 1); j++)
                v[j] = shuffle(v[2 * j], v[2 * j + 1], halves->low[level])
                       + shuffle(v[2 * j], v[2 * j + 1], halves->high[level]);
        memcpy(to + i, v, sizeof(vf));
    }
}

/* ------------------------------------------------------------------ the backward pass */

/* The gradients of a block at a step. */
struct sums {
    vf driven;   /* by Delta x; later dx without the map */
    vf exponent; /* by Delta A / log 2; later by W r + b */
};

/* Memory of a thread. `ld` is padded(width). */
struct scratch {
    vf *rates;              /* A / log 2, packed */
    vf *step;               /* W, packed */
    vf *by_state;           /* dL/d(state) of each row of the group, packed */
    vf *by_rates;           /* dL/dA, packed: a sum over the group of rows */
    vf *by_step;            /* dL/dW, packed: a sum over the group of rows */
    vf *by_bias;            /* dL/db [blocks]: a sum over the group of rows */
    vf *slopes;             /* derivatives of softplus [blocks, SCAN_STEPS] */
    struct sums *gradients; /* [blocks, SCAN_STEPS] */
    vf *h;                  /* states of one group of units [SCAN_STEPS + 1, GROUP] */
    vf *e;                  /* their e = exp(Delta A) [SCAN_STEPS, GROUP] */
    vf *by_b;               /* dL/dB before the sums over lanes [SCAN_STEPS, GROUP] */
    vf *by_c;               /* dL/dC before the sums over lanes [SCAN_STEPS, GROUP] */
    vf *squares;            /* partial sums of squares for the norms [SCAN_STEPS] */
    float *lane_sums;       /* [SCAN_STEPS, GROUP] */
    float *by_weight;       /* dL/d(weight) [rows, SCAN_STEPS, numbers] */
    float *map;             /* the map, packed */
    float *mapped;          /* what the map adds to dx [SCAN_STEPS, ld], or NULL without a map */
    struct factor *factors; /* rows of x for the gradient of the map [rows, SCAN_STEPS] */
    float *x;               /* a convolution's x [rows, SCAN_STEPS, ld] */
    float *inputs_slopes;   /* its derivatives of silu [SCAN_STEPS, ld] */
    float *later;           /* [rows, taps, ld], see `inputs_gradients` */
    float *convolution;     /* sums for the convolution's weight [taps, ld] */
    float *bias;            /* sums for its bias [ld] */
    float *projection;      /* sums for U transposed [inputs, ld] */
    vf *by_y, *y, *by_z;    /* [blocks, SCAN_STEPS] each, see `gate` */
    float *skip;            /* sums for D [ld] */
    float *gate_weight;     /* sums for the gate's weight [inputs, ld] */
    struct chunk chunk;
    struct halves halves;
};

static struct scratch carve_scratch(struct carver *from, const struct selective *p) {
    const int64_t ld = padded(p->width), state = in_groups(p->size) * ld, rows = rows_of_group(p);
    const int64_t group = SCAN_STEPS * GROUP * VL, source = p->taps ? ld : 0;
    struct scratch m = {.rates = carve(from, state)};
    m.step = carve(from, in_groups(p->rank) * ld);
    m.by_state = carve(from, rows * state);
    m.by_rates = carve(from, state);
    m.by_step = carve(from, in_groups(p->rank) * ld);
    m.by_bias = carve(from, ld);
    m.slopes = carve(from, SCAN_STEPS * ld);
    m.gradients = carve(from, 2 * SCAN_STEPS * ld);
    m.h = carve(from, group + GROUP * VL);
    m.e = carve(from, group);
    m.by_b = carve(from, group);
    m.by_c = carve(from, group);
    m.squares = carve(from, SCAN_STEPS * VL);
    m.lane_sums = carve(from, SCAN_STEPS * GROUP);
    m.by_weight = carve(from, rows * SCAN_STEPS * numbers_of(p));
    m.map = carve(from, p->map ? numbers_used(p, p->grad_y != NULL) * ld : 0);
    m.mapped = p->map ? carve(from, SCAN_STEPS * ld) : NULL;
    m.factors = carve(from, rows * SCAN_STEPS * (int64_t)(sizeof(struct factor) / sizeof(float)));
    m.x = carve(from, rows * SCAN_STEPS * source);
    m.inputs_slopes = carve(from, SCAN_STEPS * source);
    m.later = carve(from, rows * p->taps * source);
    m.convolution = carve(from, p->taps * source);
    m.bias = carve(from, source);
    m.projection = carve(from, p->inputs * source);
    m.by_y = carve(from, SCAN_STEPS * ld);
    m.y = carve(from, SCAN_STEPS * ld);
    m.by_z = carve(from, SCAN_STEPS * ld);
    m.skip = carve(from, ld);
    m.gate_weight = carve(from, p->inputs * ld);
    m.chunk = carve_chunk(from, p);
    m.halves = make_halves();
    return m;
}

INLINE struct sums *sums_of_block(const struct scratch *m, int64_t block) {
    return m->gradients + block * SCAN_STEPS;
}

INLINE struct gate gate_of_block(const struct scratch *m, int64_t block) {
    const int64_t at = block * SCAN_STEPS;
    return (struct gate){m->by_y + at, m->y + at, m->by_z + at, m->skip, m->gate_weight};
}

/* The states of a chunk for a group of units, from those before it, `start`. If `y` is not NULL, C h is added to it. */
INLINE void states_again(const int negative, const struct chunk *chunk, int64_t group, const vf *rates,
                         const struct drive *drives, const float *start, vf *y, const struct scratch *m) {
    const int64_t units = in_groups(chunk->p->size);
    const float *b = chunk->b + group, *c = chunk->c + group;
    vf state[GROUP];
    vf rate[GROUP];
    vf *h = m->h, *e = m->e;
    for (int i = 0; i < GROUP; i++) {
        __builtin_prefetch((const char *)start + 4 * (chunk->starts_ahead + i * VL), 0, 2);
        state[i] = h[i] = load(start + i * VL, VL), rate[i] = rates[i];
    }
    for (int64_t t = 0; t < chunk->count; t++, b += units, c += units, e += GROUP) {
        const struct drive drive = drives[t];
        h += GROUP;
#pragma GCC unroll 8
        for (int i = 0; i < GROUP; i++) {
            e[i] = power_of_product(drive.delta, rate[i]);
            h[i] = state[i] = b[i] * drive.driven + factor(negative, e[i]) * state[i];
        }
        if (!y) continue;
        vf sum = y[t];
#pragma GCC unroll 8
        for (int i = 0; i < GROUP; i++) sum += c[i] * state[i];
        y[t] = sum;
    }
}

/* The steps of a chunk backwards, for a group of units of a block: with the gradient by y if it `reads`, and the
 * squares of the norms if it is `traced`. The groups' sums add up to the gradients by Delta x and Delta A / log 2, from
 * which the last group computes those by x without the map and by W r + b. */
INLINE void sweep(const int negative, const int reads, const int traced, const struct chunk *chunk, int64_t block,
                  int64_t group, vf *state_gradient, const struct scratch *m) {
    const struct selective *const p = chunk->p;
    const int64_t units = in_groups(p->size), col = block * VL, unit = block * units + group;
    const int count = lanes(p->width - col);
    const float *const b = chunk->b + group, *const c = chunk->c + group;
    vf rate[GROUP];
    const int is_first = group == 0, is_last = group + GROUP >= units;
    struct sums *const sums = sums_of_block(m, block);
    vf by_bias = {0};
    vf by_state[GROUP];
    vf by_rate[GROUP];
    for (int i = 0; i < GROUP; i++) {
        by_state[i] = state_gradient[unit + i], by_rate[i] = m->by_rates[unit + i];
        rate[i] = m->rates[unit + i];
    }
    for (int64_t t = chunk->count - 1; t >= 0; t--) {
        const vf *const h = m->h + t * GROUP, *const e = m->e + t * GROUP;
        vf *const by_b = m->by_b + t * GROUP;
        if (reads) {
            const vf dy = m->by_y[block * SCAN_STEPS + t];
            vf *const by_c = m->by_c + t * GROUP;
#pragma GCC unroll 8
            for (int i = 0; i < GROUP; i++) {
                by_state[i] += c[t * units + i] * dy;
                by_c[i] += dy * h[GROUP + i];
            }
        }
        if (traced)
#pragma GCC unroll 8
            for (int i = 0; i < GROUP; i++) m->squares[t] += by_state[i] * by_state[i];
        const struct drive drive = chunk->drives[block * SCAN_STEPS + t];
        struct sums sum = is_first ? (struct sums){{0}, {0}} : sums[t];
#pragma GCC unroll 8
        for (int i = 0; i < GROUP; i++) {
            by_b[i] += by_state[i] * drive.driven;
            sum.driven += by_state[i] * b[t * units + i];
            const vf scaled = e[i] * by_state[i], by_e = scaled * h[i];
            sum.exponent += by_e * rate[i];
            by_rate[i] += by_e * drive.delta;
            by_state[i] = negative ? 2.0f * scaled - by_state[i] : scaled;
        }
        if (is_last) {
            const vf x = load(chunk->x + t * chunk->ldx + col, count);
            const vf by_delta = (negative ? 2 * LN2 : LN2) * sum.exponent + sum.driven * x;
            sum.driven *= drive.delta;
            sum.exponent = by_delta * m->slopes[block * SCAN_STEPS + t];
            by_bias += sum.exponent;
        }
        sums[t] = sum;
    }
    m->by_bias[block] += by_bias;
    for (int i = 0; i < GROUP; i++) state_gradient[unit + i] = by_state[i], m->by_rates[unit + i] = by_rate[i];
}

/* Write GROUP sums of each step of a chunk, of which the first `count` are wanted, to rows of dL/d(weight). */
static void write_sums(const struct chunk *chunk, const struct scratch *m, const vf *from, float *to, int64_t count) {
    lane_sums(&m->halves, from, SCAN_STEPS * GROUP, m->lane_sums);
    for (int64_t t = 0; t < chunk->count; t++)
        copy_floats(to + t * numbers_of(chunk->p), m->lane_sums + t * GROUP, count < GROUP ? count : GROUP);
}

/* The gradients by GROUP columns of W, and by these numbers r. */
static void through_step_map(const struct chunk *chunk, int64_t group, const struct scratch *m) {
    const struct selective *const p = chunk->p;
    const int64_t ranks = in_groups(p->rank), blocks = blocks_of(p->width);
    for (int64_t block = 0; block < blocks; block++) {
        const struct sums *const sums = sums_of_block(m, block);
        vf *const by_step = m->by_step + block * ranks + group;
        vf total[GROUP];
        for (int j = 0; j < GROUP; j++) total[j] = by_step[j];
        for (int64_t t = 0; t < chunk->count; t++)
#pragma GCC unroll 8
            for (int j = 0; j < GROUP; j++) total[j] += chunk->r[t * ranks + group + j] * sums[t].exponent;
        for (int j = 0; j < GROUP; j++) by_step[j] = total[j];
    }
    for (int64_t t = 0; t < chunk->count; t++) {
        vf total[GROUP] = {{0}};
        for (int64_t block = 0; block < blocks; block++)
#pragma GCC unroll 8
            for (int j = 0; j < GROUP; j++)
                total[j] += sums_of_block(m, block)[t].exponent * m->step[block * ranks + group + j];
        for (int j = 0; j < GROUP; j++) m->by_b[t * GROUP + j] = total[j];
    }
}

/* dx with the share of the map if there is one, or the gradients of the convolution that computes x. */
static void write_dx(const struct chunk *chunk, const float *by_weight, const struct inputs_gradients *g,
                     const struct scratch *m) {
    const struct selective *const p = chunk->p;
    const int64_t width = p->width, ld = padded(width);
    const int64_t used = numbers_used(p, p->grad_y != NULL);
    const struct operand operand = {by_weight, numbers_of(p), used, m->map};
    if (p->map) multiply_rows(&operand, chunk->count, width, m->mapped, ld);
    for (int64_t block = 0, col = 0; col < width; block++, col += VL) {
        const vf *const dx = &sums_of_block(m, block)->driven;
        const int64_t stride = sizeof(struct sums) / sizeof(vf);
        for (int64_t t = 0; t < chunk->count; t++) {
            if (p->grad_y) fetch(chunk, t, col, width, p->grad_y);
            if (!p->inputs) fetch(chunk, t, col, width, p->dx);
            if (p->dgate) fetch(chunk, t, col, width, p->dgate);
        }
#define BACKWARD(TAPS, INPUTS) convolve_backward(TAPS, INPUTS, chunk, col, dx, stride, m->mapped, m->inputs_slopes, g)
        if (p->taps) {
            EACH_FORM(p, BACKWARD)
        }
#undef BACKWARD
        for (int64_t t = 0; !p->taps && t < chunk->count; t++) {
            const vf more = m->mapped ? load(m->mapped + t * ld + col, VL) : (vf){0};
            store(p->dx + step_at(chunk, t) * width + col, dx[t * stride] + more, lanes(width - col));
        }
    }
}

/* `by_state` is the gradient by the state after the chunk, then by that before it, `starts`. */
INLINE void backward_row(const int negative, const struct chunk *chunk, const float *starts, vf *by_state,
                         float *by_weight, const struct inputs *inputs, const struct inputs_gradients *g,
                         const struct scratch *m) {
    const struct selective *const p = chunk->p;
    const int64_t blocks = blocks_of(p->width), units = in_groups(p->size);
    const size_t vectors_of_group = SCAN_STEPS * GROUP * sizeof(vf);
    const int gated = p->grad_y && is_gated(p);
    read_kept_weights(chunk, p->grad_y != NULL);
    if (p->norms) memset(m->squares, 0, SCAN_STEPS * sizeof(vf));
    for (int64_t group = 0; group < units; group += GROUP) {
        float *const by_b = by_weight + p->rank + group, *const by_c = by_b + p->size;
        memset(m->by_b, 0, vectors_of_group);
        if (p->grad_y) memset(m->by_c, 0, vectors_of_group);
        for (int64_t block = 0; block < blocks; block++) {
            const int64_t unit = block * units + group, col = block * VL;
            struct drive *const drives = chunk->drives + block * SCAN_STEPS;
            const struct gate gate = gate_of_block(m, block);
            if (group == 0) {
                make_inputs(chunk, col, inputs);
                step_lengths(chunk, col, m->step + block * in_groups(p->rank), drives, m->slopes + block * SCAN_STEPS);
                if (gated) open_outputs(1, chunk, col, gate);
                else if (p->grad_y) open_outputs(0, chunk, col, gate);
            }
            states_again(negative, chunk, group, m->rates + unit, drives, starts + unit * VL, gated ? gate.y : NULL, m);
            if (p->norms) sweep(negative, p->grad_y != NULL, 1, chunk, block, group, by_state, m);
            else if (p->grad_y) sweep(negative, 1, 0, chunk, block, group, by_state, m);
            else sweep(negative, 0, 0, chunk, block, group, by_state, m);
            if (group + GROUP < units || !p->grad_y || !p->skip) continue;
            const int64_t stride = sizeof(struct sums) / sizeof(vf);
            if (gated) close_outputs(1, chunk, col, gate, &sums_of_block(m, block)->driven, stride);
            else close_outputs(0, chunk, col, gate, &sums_of_block(m, block)->driven, stride);
        }
        write_sums(chunk, m, m->by_b, by_b, p->size - group);
        if (p->grad_y) write_sums(chunk, m, m->by_c, by_c, p->size - group);
    }
    for (int64_t group = 0; group < p->rank; group += GROUP) {
        through_step_map(chunk, group, m);
        write_sums(chunk, m, m->by_b, by_weight + group, p->rank - group);
    }
    write_dx(chunk, by_weight, g, m);
    for (int64_t t = 0; t < chunk->count; t++) {
        if (p->norms) p->norms[step_at(chunk, t)] = sum_of(m->squares[t]);
        if (p->dweight)
            copy_floats(p->dweight + step_at(chunk, t) * numbers_of(p), by_weight + t * numbers_of(p), numbers_of(p));
    }
}

/* Rows of padded(width) floats without the padding. */
static void unpad(float *to, const float *from, int64_t rows, int64_t width) {
    for (int64_t row = 0; row < rows; row++)
        memcpy(to + row * width, from + row * padded(width), (size_t)width * sizeof(float));
}

INLINE void backward(const int negative, struct chunk *chunk, int64_t group, const struct scratch *m) {
    const struct selective *const p = chunk->p;
    const struct range rows = rows_of(p, group);
    const int64_t blocks = blocks_of(p->width), packed = blocks * in_groups(p->size), width = p->width;
    const int64_t numbers = numbers_of(p), state = p->size * width, ld = padded(width);
    float *const by_weight = m->by_weight;
    memset(m->by_rates, 0, (size_t)packed * sizeof(vf));
    memset(m->by_step, 0, (size_t)(blocks * in_groups(p->rank)) * sizeof(vf));
    memset(m->by_bias, 0, (size_t)blocks * sizeof(vf));
    memset(by_weight, 0, (size_t)(rows_of_group(p) * SCAN_STEPS * numbers) * sizeof(float));
    memset(m->skip, 0, (size_t)ld * sizeof(float));
    memset(m->gate_weight, 0, (size_t)(p->inputs * ld) * sizeof(float));
    if (p->taps) {
        memset(m->later, 0, (size_t)(rows_of_group(p) * (p->taps - 1) * ld) * sizeof(float));
        memset(m->convolution, 0, (size_t)(p->taps * ld) * sizeof(float));
        memset(m->bias, 0, (size_t)ld * sizeof(float));
        memset(m->projection, 0, (size_t)(p->inputs * ld) * sizeof(float));
    }
    for (int64_t row = rows.first; row < rows.last; row++)
        pack_rows(p->size, width, p->dstart + row * state, m->by_state + (row - rows.first) * packed, 1.0f);
    for (int64_t first = (p->steps - 1) / SCAN_STEPS * SCAN_STEPS; first >= 0; first -= SCAN_STEPS) {
        for (int64_t row = rows.first; row < rows.last; row++) {
            const float *const starts = p->starts + (first / SCAN_STEPS * p->batch + row) * packed * VL;
            const int64_t i = row - rows.first;
            const struct inputs inputs = {m->x + i * SCAN_STEPS * ld, m->inputs_slopes};
            float *const later = m->later + i * (p->taps - 1) * ld;
            const struct inputs_gradients gradients = {later, m->convolution, m->bias, m->projection};
            place_chunk(chunk, rows, row, first, -1);
            place_inputs(chunk, &inputs);
            backward_row(negative, chunk, starts, m->by_state + i * packed, by_weight + i * SCAN_STEPS * numbers,
                         &inputs, &gradients, m);
        }
        if (p->map)
            add_map_gradient(chunk, p->taps ? m->x : p->x + (first * p->batch + rows.first) * width,
                             p->taps ? SCAN_STEPS * ld : width, rows.last - rows.first, by_weight,
                             m->factors, p->dmap + group * numbers * ld);
    }
    for (int64_t row = rows.first; row < rows.last; row++)
        unpack_rows(p->size, width, m->by_state + (row - rows.first) * packed, p->dstart + row * state);
    for (int64_t unit = 0; negative && unit < packed; unit++) m->by_rates[unit] *= 2.0f;
    unpack_rows(p->size, width, m->by_rates, p->drates + group * state);
    unpack_rows(p->rank, width, m->by_step, p->dstep + group * p->rank * width);
    unpad(p->dbias + group * width, (const float *)m->by_bias, 1, width);
    if (p->dskip) unpad(p->dskip + group * width, m->skip, 1, width);
    if (p->dgate_weight)
        unpad(p->dgate_weight + group * p->inputs * width, m->gate_weight, p->inputs, width);
    if (!p->taps) return;
    unpad(p->dconvolution + group * p->taps * width, m->convolution, p->taps, width);
    if (p->convolution_bias) unpad(p->dconvolution_bias + group * width, m->bias, 1, width);
    if (p->inputs)
        unpad(p->dinput_weight + group * p->inputs * width, m->projection, p->inputs, width);
}

/* The gradients of the groups of rows in [first, last). Without grad_y there are none of the skip and the gate. Returns
 * nonzero without memory. */
int selective_backward(const struct selective *p, int64_t first, int64_t last) {
    struct carver size = {NULL, 0};
    carve_scratch(&size, p);
    struct carver from = {zeros(size.used), 0};
    if (!from.base) return 1;
    struct scratch m = carve_scratch(&from, p);
    const uint64_t denormals = flush_denormals();
    pack_rows(p->size, p->width, p->rates, m.rates, LOG2E);
    pack_rows(p->rank, p->width, p->step, m.step, 1.0f);
    if (p->map) pack(m.map, p->map, p->width, numbers_used(p, p->grad_y != NULL), 1, p->width, 1);
    for (int64_t group = first; group < last; group++)
        if (p->negative) backward(1, &m.chunk, group, &m);
        else backward(0, &m.chunk, group, &m);
    restore_denormals(denormals);
    free(from.base);
    return 0;
}
