/* Recurrences through time on the CPU, in float32.
 *
 * Every *_forward and *_backward is single threaded and runs all time steps on the batch rows [first, last). Rows are
 * independent, so the caller gives each thread a range, and no thread waits. A row's arithmetic is the same in every
 * range. Tensors are contiguous and time major, [T, B, n]. Matrices of the time loop are packed once (pack), in panels
 * of two vectors. */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "products.h"

enum kind { IDENTITY, TANH, RELU, LEAKY_RELU, MODRELU, COMPLEX_MODRELU, COMPLEX_MODRELU_SMOOTH };

struct problem {
    int64_t steps, batch, features;
    int64_t inputs;      /* columns of u */
    int64_t groups;      /* of batch rows, whose weight gradients are summed apart */
    int64_t kind;        /* enum kind; for the GRU its candidate's: TANH or MODRELU */
    int64_t euler;       /* h_t = h_{t-1} + step_size * act(...) */
    int64_t reset_after; /* GRU: whether r is applied after the product */
    int64_t outputs;     /* columns of y and grad_y */
    float slope, epsilon, step_size;
    float frequency, damping; /* of coRNN */
    const float *x;      /* [T, B, gates * n], or NULL: then it is U u */
    const float *u;      /* [T, B, inputs] or NULL */
    const float *packed_inputs; /* U, as `packed` */
    const float *packed; /* the forward matrix, or the backward one */
    const float *packed_candidate;
    const float *packed_candidate_inputs; /* U's rows for packed_candidate */
    const float *bias;   /* [n] or NULL: the activation's */
    const float *candidate_bias; /* GRU [n] or NULL: b in r (W_g h_{t-1} + b) */
    const float *h0, *c0;
    float *h, *c;        /* [T, B, n]; c is the second state: LSTM's c, coRNN's and LEM's z */
    float *saved;        /* [T, B, saved_row]: further input of the backward pass, see each op; may be NULL */
    float *y;            /* [T, B, outputs], or NULL: y_t = V h_t + c. Forward, packed_outputs is V for this product. */
    const float *output_bias; /* c */
    /* Backward only. Absent gradients are NULL: grad_h [T, B, n] of all steps, `last` [B, n] of the final state. */
    const float *grad_h, *grad_last, *grad_c_last;
    /* dL/dy [T, B, outputs] of y_t = V h_t + c, or NULL, and V, as `packed`: then dL/dh_t has the part dL/dy_t V
     * too. */
    const float *grad_y, *packed_outputs;
    float *dx;           /* [T, B, gates * n], or NULL where only dL/dW and dL/dU are needed */
    float *dweights;     /* [groups, width of dz, padded(n + inputs)], zeroed, or NULL: each group's dL/d[W, U]. With
                          * grad_y, the rows of dL/dV follow, `outputs` of them in each group. */
    int64_t *weight_time; /* [2] or NULL: nanoseconds of the threads, for dL/d[W, U] and in all */
    float *dmixed;       /* [T, B, n]: derivative by the product W h_{t-1}, if it differs from dx; see `aside` too */
    float *dbias, *dcandidate_bias; /* [B, padded(n)], zeroed: each row's sum over time */
    float *dh0, *dc0;    /* [B, n] */
    float *norms, *c_norms; /* [T, B] or NULL */
};

int64_t vector_length(void) { return VL; }
int64_t problem_size(void) { return (int64_t)sizeof(struct problem); }

/* Floats of a row of `saved`: parts of whole vectors. With one more, rows are no power of two apart, where they would
 * fall on the same few cache sets. */
INLINE int64_t kept_row(int64_t n, int64_t parts) { return parts * padded(n) + VL; }
int64_t saved_row(int64_t n, int64_t parts) { return kept_row(n, parts); }

/* A matrix of `gates` blocks of n output columns in panels. With one gate a panel is two vectors of columns (the last
 * may be one). With several gates a panel has two gates of VL units (the last panel of an odd number has one), so that
 * one block of sums holds all gates. */
void pack(float *to, const float *from, int64_t n, int64_t depth, int64_t sj, int64_t sk, int64_t gates) {
    if (gates == 1) {
        for (int64_t col = 0; col < n; col += 2 * VL) {
            const int vecs = n - col > VL ? 2 : 1;
            for (int v = 0; v < vecs; v++)
                pack_vector(to + col * depth + v * VL, vecs * VL, depth, from + (col + v * VL) * sj, sj, sk,
                            lanes(n - col - v * VL));
        }
        return;
    }
    for (int64_t col = 0; col < n; col += VL)
        for (int64_t gate = 0; gate < gates; gate++)
            pack_vector(to + (col * gates + gate / 2 * 2 * VL) * depth + gate % 2 * VL,
                        gate == gates - 1 && gate % 2 == 0 ? VL : 2 * VL, depth,
                        from + (gate * n + col) * sj, sj, sk, lanes(n - col));
}

/* ------------------------------------------------------------------ one time step */

struct step {
    const struct problem *p;
    int64_t t, first;
    const float *prev;      /* h_{t-1} of the batch rows from `first`, [rows, n] */
    const float *prev_cell; /* c_{t-1}, likewise */
    float *dz;              /* [rows, gates * n], rows dz_row floats apart: dL/dz of the present step */
    int64_t dz_row;
    float *aside;           /* GRU [rows, n]: r h_{t-1}; with r after the product r, backward dL/d(W_g h_{t-1} + b) */
    int64_t aside_row;      /* floats between its rows, backward */
    float *dx;              /* dL/dz of all steps, [T, B, gates * n], if it is kept beside dz, or NULL */
    float *direct;          /* [rows, n]: the part of dL/dh_t outside the product */
    float *cell;            /* [rows, n]: the part of dL/dc_t from c_{t+1} */
    float *gate;            /* [rows, n], forward: a gate of the present step, for the epilogue of a second product */
    int fetching;           /* whether a sweep asks for the next step's rows of `saved`, see `fetch_saved` */
    const float *fetch;     /* memory of `fetch_lines` cache lines that the next sweep asks for, or NULL */
    int64_t fetch_lines;
    float *squares, *cell_squares; /* [rows, VL]: partial sums of squares for the norms, or NULL */
};

/* The step `shared` as a copy of it and of its problem. No store seems to change the copy, so that the compiler makes
 * the addresses of a tile once. */
#define COPY_STEP(shared)                          \
    const struct problem problem = *(shared)->p;   \
    struct step copy = *(shared);                  \
    copy.p = &problem;                             \
    const struct step *const s = &copy

/* Takes the sums of `rows` batch rows from `row` (counted from s->first) for the units from `col`. */
typedef void epilogue(const struct step *s, int64_t row, int rows, int64_t col, int vecs, const float *block);

/* Sum of the operands' products over all rows and n units, block by block, each given to `finish` while in L1. */
static void sweep(const struct step *s, int64_t rows, const struct operand *operands, int count, int gates,
                  epilogue *finish) {
    _Alignas(64) float block[ROWS * 4 * VL];
    const int64_t n = s->p->features;
    const int64_t blocks = (rows + ROWS - 1) / ROWS;
    const int parts = gates > 2 ? 2 : 1;
    const int64_t step = gates == 1 ? 2 * VL : VL, tiles = blocks * ((n + step - 1) / step);
    int64_t done = 0;
    struct operand each[3];
    for (int i = 0; i < count; i++) each[i] = operands[i];
    if (!count) memset(block, 0, sizeof block);
    for (int64_t col = 0; col < n; col += step) {
        const int vecs = gates > 1 || n - col > VL ? 2 : 1;
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t row = rows * b / blocks;
            const int height = (int)(rows * (b + 1) / blocks - row);
            if (s->fetch && count) {
                const int64_t start = s->fetch_lines * done / tiles;
                each[0].fetch = s->fetch + start * 16;
                each[0].lines = s->fetch_lines * ++done / tiles - start;
            }
            for (int part = 0; part < parts && count; part++)
                multiply(height, gates == 3 && part ? 1 : vecs, each, count, row, col * gates + part * 2 * VL,
                         block + part * 2 * VL, parts * 2 * VL);
            finish(s, row, height, col, vecs, block);
        }
    }
}

INLINE int64_t offset(const struct step *s, int64_t row, int64_t width) {
    return (s->t * s->p->batch + s->first + row) * width;
}

/* The next time step's rows, asked for one step ahead: no hardware prefetcher follows this walk. Rows to be written are
 * asked for likewise, since a request to own a line would wait for it. */
INLINE void prefetch(const float *at, int64_t distance) { __builtin_prefetch(at + distance, 0, 2); }

/* A sum of products with x at `at`, where x is given; the next step's is `next` floats further. */
INLINE vf with_input(const struct problem *p, vf sum, int64_t at, int count, int64_t next) {
    if (!p->x) return sum;
    prefetch(p->x + at, next);
    return sum + load(p->x + at, count);
}

/* The columns from `col` of the first of the `parts` in a row of `saved`. */
INLINE int64_t saved_at(const struct step *s, int64_t row, int64_t parts, int64_t col) {
    return offset(s, row, kept_row(s->p->features, parts)) + col;
}

/* Keeps a vector in `saved`: around the caches if they do not hold it until the backward pass. Then its line need not
 * be read first. */
INLINE void keep(const struct step *s, int64_t parts, int64_t at, vf value) {
    const struct problem *p = s->p;
    if (!p->saved) return;
    if (p->steps * p->batch * parts * p->features > CACHED) stream(p->saved + at, value);
    else *(vf *)(p->saved + at) = value;
}

/* The sweep to come asks for the rows of `saved` of the step before: evenly over its products, because one tile's rows
 * at once would fill the core's queue of misses. */
INLINE void fetch_saved(struct step *s, int64_t rows, int64_t parts) {
    const int64_t length = kept_row(s->p->features, parts);
    s->fetch = s->fetching && s->t > 0 ? s->p->saved + ((s->t - 1) * s->p->batch + s->first) * length : NULL;
    s->fetch_lines = rows * length / 16;
}

/* The first `count` of all parts, and a request for those of the step before unless the sweep makes it. */
INLINE void load_saved(const struct step *s, int64_t row, int count, int64_t parts, int64_t col, vf *out) {
    const int64_t width = padded(s->p->features), at = saved_at(s, row, parts, col);
    for (int part = 0; part < count; part++) {
        out[part] = load(s->p->saved + at + part * width, VL);
        if (!s->fetching) prefetch(s->p->saved + at + part * width, -s->p->batch * kept_row(s->p->features, parts));
    }
}

/* dL/dz in column `at` of a row, which is dx[here] too. */
INLINE void store_dz(const struct step *s, int64_t row, int64_t here, int64_t at, vf value, int count) {
    store(s->dz + row * s->dz_row + at, value, count);
    if (s->dx) store(s->dx + here, value, count);
}

/* Adds to a batch row's sums over time. */
INLINE void add_to_row(const struct step *s, float *sums, int64_t row, int64_t at, vf value) {
    *(vf *)(sums + (s->first + row) * padded(s->p->features) + at) += value;
}

static void finish_norms(const struct step *s, int64_t rows, float *squares, float *norms) {
    for (int64_t row = 0; row < rows; row++) {
        norms[s->t * s->p->batch + s->first + row] = sqrtf(sum_of(*(vf *)(squares + row * VL)));
        *(vf *)(squares + row * VL) = (vf){0};
    }
}

/* The gradient that arrives at the outputs of step t, [B, n] from batch row `first`, or NULL. */
INLINE const float *arriving(const float *all_steps, const float *last, const struct step *s, int64_t row,
                             int64_t col) {
    const int64_t n = s->p->features;
    if (all_steps) return all_steps + offset(s, row, n) + col;
    if (last && s->t == s->p->steps - 1) return last + (s->first + row) * n + col;
    return NULL;
}

/* dL/dh_0, or any [B, n] sum that has only a product and a direct part. */
static void initial_gradient(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                             const float *block) {
    COPY_STEP(shared);
    const int64_t n = s->p->features;
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = (row + i) * n + col + v * VL;
            const int count = lanes(n - col - v * VL);
            vf g = *(const vf *)(block + (i * 2 + v) * VL);
            if (s->direct) g += load(s->direct + at, count);
            store(s->p->dh0 + s->first * n + at, g, count);
        }
}

/* ------------------------------------------------------------------ h_t = act(x_t + W h_{t-1}; b) */

struct modulus { vf squared, inverse_radius, inverse, shifted; };

/* Of every pair's complex unit, in both its lanes: |z|^2, the modulus' derivative over z, and with the modulus q as the
 * kind defines it the inverse of h's denominator and max(q + b, 0). All but |z|^2 are undefined where a square root of
 * 0 is taken. */
INLINE struct modulus complex_modulus(int kind, vf z, vf bias, float epsilon) {
    const vf squares = z * z;
    struct modulus m;
    m.squared = squares + swap_pairs(squares);
    vf radius;
    square_roots(kind == COMPLEX_MODRELU ? m.squared : m.squared + epsilon, &radius, &m.inverse_radius);
    m.shifted = relu((kind == COMPLEX_MODRELU ? radius + epsilon : radius) + bias);
    m.inverse = reciprocal(radius + epsilon);
    return m;
}

INLINE vf activate(const int kind, vf z, vf bias, const struct problem *p) {
    switch (kind) {
        case IDENTITY: return z + bias;
        case TANH: return hyperbolic_tangent(z + bias);
        case RELU: return relu(z + bias);
        case LEAKY_RELU: {
            /* + 0 turns -0 into 0: the backward pass reads the branch taken from the sign bit. */
            const vf shifted = z + bias;
            return select_lanes(shifted < 0, shifted * p->slope, shifted + 0.0f);
        }
        case MODRELU: {
            const vf size = relu(magnitude(z) + p->epsilon + bias);
            return mask(z != 0, (vf)((vi)size | ((vi)z & (int32_t)0x80000000)));
        }
        case COMPLEX_MODRELU: {
            const struct modulus m = complex_modulus(kind, z, bias, p->epsilon);
            return mask(m.squared != 0, z * (m.shifted * m.inverse));
        }
        default: {
            const struct modulus m = complex_modulus(kind, z, bias, p->epsilon);
            return z * (m.shifted * m.inverse);
        }
    }
}

struct derivative { vf z, bias; };

/* dL/dz and this element's addend of dL/db, from g = dL/da. `a` is the activation's output; of the complex kinds,
 * whose output does not give the input back, it is the input z. */
INLINE struct derivative differentiate(const int kind, vf g, vf a, vf bias, const struct problem *p) {
    switch (kind) {
        case IDENTITY: return (struct derivative){g, g};
        case TANH: {
            const vf d = g * (1.0f - a * a);
            return (struct derivative){d, d};
        }
        case RELU: {
            const vf d = mask(~(a <= 0), g);
            return (struct derivative){d, d};
        }
        case LEAKY_RELU: {
            const vf d = select_lanes((vi)a < 0, g * p->slope, g);
            return (struct derivative){d, d};
        }
        case MODRELU: {
            const vf d = mask(a != 0, g);
            return (struct derivative){d, (vf)((vi)d ^ ((vi)a & (int32_t)0x80000000))};
        }
        default: {
            const struct modulus m = complex_modulus(kind, a, bias, p->epsilon);
            const vf product = g * a, along = product + swap_pairs(product);
            const vf scale = m.shifted * m.inverse, active = mask(~(m.shifted <= 0), splat(1.0f));
            struct derivative d;
            d.z = g * scale + a * (along * (active - scale) * (m.inverse * m.inverse_radius));
            d.bias = along * active * m.inverse;
            if (kind == COMPLEX_MODRELU) {
                d.z = mask(m.squared != 0, d.z);
                d.bias = mask(m.squared != 0, d.bias);
            }
            return d;
        }
    }
}

/* saved, one part: of the complex kinds z, else in the Euler form the activation's output, else NULL: h is enough. */
INLINE void activation_forward(const int kind, const int euler, const struct step *shared, int64_t row, int rows,
                               int64_t col, int vecs, const float *block) {
    COPY_STEP(shared);
    const struct problem *p = s->p;
    const int64_t n = p->features, next = p->batch * n;
    for (int v = 0; v < vecs; v++) {
        const int64_t at = col + v * VL;
        const int count = lanes(n - at);
        const vf bias = p->bias ? load(p->bias + at, count) : (vf){0};
        for (int i = 0; i < rows; i++) {
            const int64_t here = offset(s, row + i, n) + at;
            const vf z = with_input(p, *(const vf *)(block + (i * 2 + v) * VL), here, count, next);
            prefetch(p->h + here, next);
            vf a = activate(kind, z, bias, p);
            keep(s, 1, saved_at(s, row + i, 1, at), kind >= COMPLEX_MODRELU ? z : a);
            if (euler) a = load(s->prev + (row + i) * n + at, count) + p->step_size * a;
            store(p->h + here, a, count);
        }
    }
}

INLINE void activation_backward(const int kind, const int euler, const struct step *shared, int64_t row, int rows,
                                int64_t col, int vecs, const float *block) {
    COPY_STEP(shared);
    const struct problem *p = s->p;
    const int64_t n = p->features, before = -p->batch * n;
    const float *const output = p->saved ? p->saved : p->h;
    const int64_t width = p->saved ? kept_row(n, 1) : n;
    const float *const arriving_here = arriving(p->grad_h, p->grad_last, s, row, col);
    for (int v = 0; v < vecs; v++) {
        const int64_t at = col + v * VL;
        const int count = lanes(n - at);
        const vf bias = p->bias ? load(p->bias + at, count) : (vf){0};
        for (int i = 0; i < rows; i++) {
            const int64_t here = offset(s, row + i, n) + at, local = (row + i) * n + at;
            vf g = *(const vf *)(block + (i * 2 + v) * VL);
            if (arriving_here) {
                g += load(arriving_here + i * n + v * VL, count);
                prefetch(arriving_here + i * n + v * VL, before);
            }
            const int64_t kept = offset(s, row + i, width) + at;
            const vf a = load(output + kept, count);
            prefetch(output + kept, -p->batch * width);
            if (p->dx) prefetch(p->dx + here, before);
            if (euler) {
                g += load(s->direct + local, count);
                store(s->direct + local, g, count);
            }
            if (s->squares) *(vf *)(s->squares + (row + i) * VL) += g * g;
            const struct derivative d = differentiate(kind, euler ? g * p->step_size : g, a, bias, p);
            store_dz(s, row + i, here, at, d.z, count);
            if (p->dbias) add_to_row(s, p->dbias, row + i, at, d.bias);
        }
    }
}

#define EACH_KIND(CASE)                                                                       \
    CASE(IDENTITY) CASE(TANH) CASE(RELU) CASE(LEAKY_RELU) CASE(MODRELU) CASE(COMPLEX_MODRELU) \
    CASE(COMPLEX_MODRELU_SMOOTH)

#define CASE(KIND)                                                                                           \
    case KIND:                                                                                               \
        if (s->p->euler) activation_forward(KIND, 1, s, row, rows, col, vecs, block);                        \
        else activation_forward(KIND, 0, s, row, rows, col, vecs, block);                                    \
        return;
static void finish_forward(const struct step *s, int64_t row, int rows, int64_t col, int vecs, const float *block) {
    switch (s->p->kind) { EACH_KIND(CASE) }
}
#undef CASE
#define CASE(KIND)                                                                                           \
    case KIND:                                                                                               \
        if (s->p->euler) activation_backward(KIND, 1, s, row, rows, col, vecs, block);                       \
        else activation_backward(KIND, 0, s, row, rows, col, vecs, block);                                   \
        return;
static void finish_backward(const struct step *s, int64_t row, int rows, int64_t col, int vecs, const float *block) {
    switch (s->p->kind) { EACH_KIND(CASE) }
}
#undef CASE

/* The state that step t starts from, [rows, n] from batch row `first`. */
INLINE const float *state_before(const struct problem *p, const float *states, const float *initial, int64_t t,
                                 int64_t first) {
    return (t ? states + (t - 1) * p->batch * p->features : initial) + first * p->features;
}

INLINE struct operand input_operand(const struct step *s, const float *packed) {
    const int64_t m = s->p->inputs;
    return (struct operand){s->p->u + offset(s, 0, m), m, m, packed};
}

/* The products of step t with a state [rows, n] and, where x is not given, with u_t. */
static void forward_sweep(const struct step *s, int64_t rows, const float *state, const float *packed,
                          const float *packed_inputs, int gates, epilogue *finish) {
    const int64_t n = s->p->features;
    const struct operand operands[] = {{state, n, n, packed}, input_operand(s, packed_inputs)};
    sweep(s, rows, operands, s->p->u ? 2 : 1, gates, finish);
}

static int end_forward(uint64_t denormals) {
    end_streams();
    restore_denormals(denormals);
    return 0;
}

static int forward(const struct problem *p, int64_t first, int64_t last, int gates, epilogue *finish) {
    const uint64_t denormals = flush_denormals();
    const int64_t n = p->features;
    struct step s = {.p = p, .first = first};
    for (s.t = 0; s.t < p->steps; s.t++) {
        s.prev = state_before(p, p->h, p->h0, s.t, first);
        forward_sweep(&s, last - first, s.prev, p->packed, p->packed_inputs, gates, finish);
        const int64_t row = s.t * p->batch; /* its states are in the cache */
        if (p->y)
            linear(row + first, row + last, p->batch, n, p->outputs, p->h, p->packed_outputs, p->output_bias, p->y);
    }
    return end_forward(denormals);
}

/* ------------------------------------------------------------------ dL/d[W, U] beside the backward loop
 * After a few steps, while their dz and h are in the cache, their products are added to the sums. Groups of batch rows
 * have sums of their own, and a thread has whole groups, so no sum depends on the number of threads. */

/* Columns [first, last) of dz, whose products with the columns [from, to) of [state, u_t] are added up. The state is
 * that before step t, or without an initial one that of step t. Without states it is in the ring's columns behind
 * dz. */
struct source {
    int64_t first, last, from, to;
    const float *states, *initial;
};

struct sums {
    struct source sources[3];
    int64_t count;
    int64_t rows, width; /* batch rows of this thread; columns of dz */
    int64_t chunk;       /* steps between additions */
    int64_t ld;          /* floats between dz of a row's steps: whole cache lines, an odd number of them */
    float *ring;         /* [rows, chunk, ld], a group's steps and rows equally far apart: dz, then the columns
                          * beside it; NULL if no sums are made */
    int64_t row;         /* floats between dz of a step's rows */
    int64_t started, spent; /* nanoseconds */
};

INLINE int64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

/* `beside`: the columns that the ring has behind dz. */
static int start_sums(struct sums *sums, const struct problem *p, int64_t rows, int64_t width, int64_t beside) {
    const int64_t group = p->groups ? (p->batch + p->groups - 1) / p->groups : p->batch;
    *sums = (struct sums){
        .sources = {{0, width, 0, p->features + p->inputs, p->h, p->h0}},
        .count = 1,
        .rows = rows,
        .width = width,
        .chunk = DEPTH / group > 2 ? DEPTH / group : 2,
    };
    if (sums->chunk > p->steps) sums->chunk = p->steps > 2 ? p->steps : 2;
    if (p->weight_time) sums->started = nanoseconds();
    sums->row = width;
    if (!p->dweights) return 1;
    sums->ld = (width + beside + 15) / 16 * 16;
    if (sums->ld % 32 == 0) sums->ld += 16;
    sums->row = sums->chunk * sums->ld;
    sums->ring = zeros(rows * sums->row);
    return sums->ring != NULL;
}

static void end_sums(struct sums *sums, const struct problem *p) {
    free(sums->ring);
    if (!p->weight_time) return;
    __atomic_fetch_add(p->weight_time, sums->spent, __ATOMIC_RELAXED);
    __atomic_fetch_add(p->weight_time + 1, nanoseconds() - sums->started, __ATOMIC_RELAXED);
}

/* dL/dz of step t, [rows, width] from batch row `first`, its rows sums->row floats apart. */
INLINE float *dz_at(const struct sums *sums, const struct problem *p, int64_t t, int64_t first) {
    if (sums->ring) return sums->ring + t % sums->chunk * sums->ld;
    return p->dx + (t * p->batch + first) * sums->width;
}

/* Adds the products of the rows [first, last) and the steps [t, t + chunk), whose dz starts at `dz`, to `out`. */
static void add_source(const struct sums *sums, const struct source *source, const struct problem *p, int64_t t,
                       int64_t first, int64_t last, const float *dz, float *out) {
    const int64_t n = p->features, m = p->inputs, chunk = sums->chunk;
    struct factor factors[DEPTH];
    int64_t depth = 0;
    for (int64_t row = first; row < last; row++)
        for (int64_t i = 0; i < chunk; i++) {
            const int64_t step = t + i < p->steps ? t + i : p->steps - 1;
            const float *const state = source->initial ? state_before(p, source->states, source->initial, step, row)
                                       : source->states ? source->states + (step * p->batch + row) * n
                                                        : dz + depth * sums->ld + sums->width;
            factors[depth++] = (struct factor){state, p->u + (step * p->batch + row) * m};
            if (depth < DEPTH && (i < chunk - 1 || row < last - 1)) continue;
            const struct rows rows = {dz + source->first, depth, sums->ld};
            accumulate_outer(&rows, factors, 0, source->last - source->first, source->from, source->to, n, m,
                             out + source->first * padded(n + m), NULL);
            dz += depth * sums->ld;
            depth = 0;
        }
}

/* Adds the products of the steps [t, t + chunk), if t starts a chunk. Of the steps behind the last, dz is still 0. */
static void add_products(struct sums *sums, const struct problem *p, int64_t t, int64_t first) {
    if (!p->dweights || t % sums->chunk) return;
    const int64_t start_time = p->weight_time ? nanoseconds() : 0;
    const int64_t last = first + sums->rows;
    for (int64_t group = 0; group < p->groups; group++) {
        const int64_t start_row = p->batch * group / p->groups, end_row = p->batch * (group + 1) / p->groups;
        if (start_row < first || end_row > last) continue;
        const float *const dz = sums->ring + (start_row - first) * sums->row;
        float *const out = p->dweights + group * sums->width * padded(p->features + p->inputs);
        for (const struct source *source = sums->sources; source < sums->sources + sums->count; source++)
            add_source(sums, source, p, t, start_row, end_row, dz, out);
    }
    if (p->weight_time) sums->spent += nanoseconds() - start_time;
}

/* `dmixed` [T, B, n] is what the packed matrix multiplies, or NULL: then dL/dz is. A second matrix multiplies dx. */
static int backward(const struct problem *p, int64_t first, int64_t last, int64_t width, epilogue *finish,
                    const float *dmixed) {
    const int64_t n = p->features, rows = last - first;
    struct sums sums;
    float *const memory = zeros(rows * (n + VL));
    if (!memory) return 1;
    const int64_t outputs = p->dweights ? p->outputs : 0;
    if (!start_sums(&sums, p, rows, width + outputs, 0)) {
        free(memory);
        return 1;
    }
    if (outputs) {
        sums.sources[0].last = width;
        sums.sources[1] = (struct source){width, width + outputs, 0, n, p->h, NULL};
        sums.count = 2;
    }
    const uint64_t denormals = flush_denormals();
    struct step s = {.p = p, .first = first};
    s.direct = p->euler ? memory + rows * VL : NULL;
    s.squares = p->norms ? memory : NULL;
    s.dz_row = sums.row;
    s.dx = sums.ring ? p->dx : NULL;
    for (s.t = p->steps - 1; s.t >= -1; s.t--) {
        const int64_t later = offset(&s, 0, n) + p->batch * n;
        struct operand carried[3];
        int count = 0;
        if (s.t < p->steps - 1) {
            const float *const next = dmixed ? dmixed + later : dz_at(&sums, p, s.t + 1, first);
            carried[count++] = (struct operand){next, dmixed ? n : sums.row, n, p->packed};
            if (p->packed_candidate) carried[count++] = (struct operand){p->dx + later, n, n, p->packed_candidate};
        }
        if (s.t >= 0) s.dz = dz_at(&sums, p, s.t, first);
        if (s.t >= 0 && p->grad_y) {
            const float *const arriving_y = p->grad_y + offset(&s, 0, p->outputs);
            carried[count++] = (struct operand){arriving_y, p->outputs, p->outputs, p->packed_outputs};
            for (int64_t row = 0; row < rows && outputs; row++)
                memcpy(s.dz + row * s.dz_row + width, arriving_y + row * outputs, (size_t)outputs * 4);
        }
        sweep(&s, rows, carried, count, 1, s.t < 0 ? initial_gradient : finish);
        if (s.t < 0) break;
        if (s.squares) finish_norms(&s, rows, s.squares, p->norms);
        add_products(&sums, p, s.t, first);
    }
    end_sums(&sums, p);
    free(memory);
    restore_denormals(denormals);
    return 0;
}

int recurrence_forward(const struct problem *p, int64_t first, int64_t last) {
    return forward(p, first, last, 1, finish_forward);
}

int recurrence_backward(const struct problem *p, int64_t first, int64_t last) {
    return backward(p, first, last, p->features, finish_backward, NULL);
}

/* ------------------------------------------------------------------ gated: h_t = h_{t-1} + eps sigmoid tanh
 * saved, two parts: tanh's output, then the sigmoid's. */

static void gated_finish_forward(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                 const float *block) {
    COPY_STEP(shared);
    const struct problem *p = s->p;
    const int64_t n = p->features, next = p->batch * 2 * n;
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL, here = offset(s, row + i, 2 * n) + at;
            const int count = lanes(n - at);
            const vf mixed = *(const vf *)(block + (i * 2 + v) * VL);
            const vf a = hyperbolic_tangent(mixed + load(p->x + here, count));
            const vf gate = sigmoid(mixed + load(p->x + here + n, count));
            prefetch(p->x + here, next);
            prefetch(p->x + here + n, next);
            const int64_t kept = saved_at(s, row + i, 2, at);
            keep(s, 2, kept, a);
            keep(s, 2, kept + padded(n), gate);
            const vf h = load(s->prev + (row + i) * n + at, count) + p->step_size * gate * a;
            const int64_t out = offset(s, row + i, n) + at;
            prefetch(p->h + out, p->batch * n);
            store(p->h + out, h, count);
        }
}

static void gated_finish_backward(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                  const float *block) {
    COPY_STEP(shared);
    const struct problem *p = s->p;
    const int64_t n = p->features;
    const float *const arriving_here = arriving(p->grad_h, p->grad_last, s, row, col);
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL, here = offset(s, row + i, 2 * n) + at, local = (row + i) * n + at;
            const int count = lanes(n - at);
            vf g = *(const vf *)(block + (i * 2 + v) * VL) + load(s->direct + local, count);
            if (arriving_here) g += load(arriving_here + i * n + v * VL, count);
            store(s->direct + local, g, count);
            if (s->squares) *(vf *)(s->squares + (row + i) * VL) += g * g;
            vf parts[2];
            load_saved(s, row + i, 2, 2, at, parts);
            const vf a = parts[0], gate = parts[1];
            g *= p->step_size;
            const vf dcandidate = g * gate * (1.0f - a * a), dgate = g * a * gate * (1.0f - gate);
            store(p->dx + here, dcandidate, count);
            store(p->dx + here + n, dgate, count);
            store(p->dmixed + offset(s, row + i, n) + at, dcandidate + dgate, count);
        }
}

int gated_forward(const struct problem *p, int64_t first, int64_t last) {
    return forward(p, first, last, 1, gated_finish_forward);
}

int gated_backward(const struct problem *p, int64_t first, int64_t last) {
    return backward(p, first, last, 2 * p->features, gated_finish_backward, p->dmixed);
}

/* ------------------------------------------------------------------ Lipschitz: h_t = h_{t-1} + eps (A h + tanh(W h +
 * x)) saved, one part: tanh's output. dmixed: dL/d(A h_{t-1}); dx is dL/d(W h_{t-1}) too. */

static void lipschitz_finish_forward(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                     const float *block) {
    COPY_STEP(shared);
    const struct problem *p = s->p;
    const int64_t n = p->features, next = p->batch * n;
    const int count = lanes(n - col);
    (void)vecs;
    for (int i = 0; i < rows; i++) {
        const int64_t here = offset(s, row + i, n) + col;
        const vf linear = *(const vf *)(block + i * 2 * VL), mixed = *(const vf *)(block + (i * 2 + 1) * VL);
        const vf a = hyperbolic_tangent(mixed + load(p->x + here, count));
        prefetch(p->x + here, next);
        prefetch(p->h + here, next);
        keep(s, 1, saved_at(s, row + i, 1, col), a);
        store(p->h + here, load(s->prev + (row + i) * n + col, count) + p->step_size * (linear + a), count);
    }
}

static void lipschitz_finish_backward(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                      const float *block) {
    COPY_STEP(shared);
    const struct problem *p = s->p;
    const int64_t n = p->features, before = -p->batch * n;
    const float *const arriving_here = arriving(p->grad_h, p->grad_last, s, row, col);
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL, here = offset(s, row + i, n) + at, local = (row + i) * n + at;
            const int count = lanes(n - at);
            vf g = *(const vf *)(block + (i * 2 + v) * VL) + load(s->direct + local, count);
            if (arriving_here) g += load(arriving_here + i * n + v * VL, count);
            store(s->direct + local, g, count);
            if (s->squares) *(vf *)(s->squares + (row + i) * VL) += g * g;
            vf a;
            load_saved(s, row + i, 1, 1, at, &a);
            prefetch(p->dx + here, before);
            prefetch(p->dmixed + here, before);
            g *= p->step_size;
            store(p->dmixed + here, g, count);
            store(p->dx + here, g * (1.0f - a * a), count);
        }
}

int lipschitz_forward(const struct problem *p, int64_t first, int64_t last) {
    return forward(p, first, last, 2, lipschitz_finish_forward);
}

int lipschitz_backward(const struct problem *p, int64_t first, int64_t last) {
    return backward(p, first, last, p->features, lipschitz_finish_backward, p->dmixed);
}

/* ------------------------------------------------------------------ LSTM
 * saved, four parts: the gates i, f, g, o after their functions. */

static void lstm_finish_forward(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                const float *block) {
    COPY_STEP(shared);
    const struct problem *p = s->p;
    const int64_t n = p->features, next = p->batch * 4 * n;
    const int count = lanes(n - col);
    (void)vecs;
    for (int i = 0; i < rows; i++) {
        const int64_t here = offset(s, row + i, 4 * n) + col;
        vf gates[4];
        for (int gate = 0; gate < 4; gate++) {
            gates[gate] = with_input(p, *(const vf *)(block + (i * 4 + gate) * VL), here + gate * n, count, next);
            gates[gate] = gate == 2 ? hyperbolic_tangent(gates[gate]) : sigmoid(gates[gate]);
            keep(s, 4, saved_at(s, row + i, 4, col) + gate * padded(n), gates[gate]);
        }
        const int64_t out = offset(s, row + i, n) + col;
        const vf c = gates[1] * load(s->prev_cell + (row + i) * n + col, count) + gates[0] * gates[2];
        prefetch(p->c + out, p->batch * n);
        prefetch(p->h + out, p->batch * n);
        store(p->c + out, c, count);
        store(p->h + out, gates[3] * hyperbolic_tangent(c), count);
    }
}

static void lstm_finish_backward(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                 const float *block) {
    COPY_STEP(shared);
    const struct problem *p = s->p;
    const int64_t n = p->features, before = -p->batch * n;
    const float *const arriving_h = arriving(p->grad_h, p->grad_last, s, row, col);
    const float *const arriving_c = arriving(NULL, p->grad_c_last, s, row, col);
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL, here = offset(s, row + i, 4 * n) + at, local = (row + i) * n + at;
            const int count = lanes(n - at);
            vf dh = *(const vf *)(block + (i * 2 + v) * VL), dc = load(s->cell + local, count);
            if (arriving_h) dh += load(arriving_h + i * n + v * VL, count);
            if (arriving_c) dc += load(arriving_c + i * n + v * VL, count);
            vf gates[4];
            load_saved(s, row + i, 4, 4, at, gates);
            prefetch(s->prev_cell + local, before);
            for (int gate = 0; gate < 4 && p->dx; gate++) prefetch(p->dx + here + gate * n, 4 * before);
            const vf input = gates[0], forget = gates[1], g = gates[2], output = gates[3];
            const vf squashed = hyperbolic_tangent(load(p->c + offset(s, row + i, n) + at, count));
            dc += dh * output * (1.0f - squashed * squashed);
            if (s->squares) {
                *(vf *)(s->squares + (row + i) * VL) += dh * dh;
                *(vf *)(s->cell_squares + (row + i) * VL) += dc * dc;
            }
            const vf dz[] = {
                dc * g * input * (1.0f - input),
                dc * load(s->prev_cell + local, count) * forget * (1.0f - forget),
                dc * input * (1.0f - g * g),
                dh * squashed * output * (1.0f - output),
            };
            for (int gate = 0; gate < 4; gate++) store_dz(s, row + i, here + gate * n, at + gate * n, dz[gate], count);
            store(s->cell + local, dc * forget, count);
        }
}

int lstm_forward(const struct problem *p, int64_t first, int64_t last) {
    const uint64_t denormals = flush_denormals();
    struct step s = {.p = p, .first = first};
    for (s.t = 0; s.t < p->steps; s.t++) {
        s.prev = state_before(p, p->h, p->h0, s.t, first);
        s.prev_cell = state_before(p, p->c, p->c0, s.t, first);
        forward_sweep(&s, last - first, s.prev, p->packed, p->packed_inputs, 4, lstm_finish_forward);
    }
    return end_forward(denormals);
}

/* The step of a backward loop over two states, with `memory` for its own; 0 if there is none. */
static int two_states(const struct problem *p, int64_t first, int64_t rows, struct step *s, float **memory) {
    const int64_t n = p->features;
    *memory = zeros(rows * (2 * n + 2 * VL));
    if (!*memory) return 0;
    *s = (struct step){.p = p, .first = first, .direct = *memory + rows * 2 * VL};
    s->cell = s->direct + rows * n;
    s->squares = p->norms ? *memory : NULL;
    s->cell_squares = p->norms ? *memory + rows * VL : NULL;
    return 1;
}

static void finish_both_norms(const struct step *s, int64_t rows) {
    if (!s->squares) return;
    finish_norms(s, rows, s->squares, s->p->norms);
    finish_norms(s, rows, s->cell_squares, s->p->c_norms);
}

int lstm_backward(const struct problem *p, int64_t first, int64_t last) {
    const int64_t n = p->features, rows = last - first;
    float *memory;
    struct step s;
    struct sums sums;
    if (!two_states(p, first, rows, &s, &memory)) return 1;
    if (!start_sums(&sums, p, rows, 4 * n, 0)) {
        free(memory);
        return 1;
    }
    const uint64_t denormals = flush_denormals();
    s.fetching = 4 * n < FAR;
    s.dz_row = sums.row;
    s.dx = sums.ring ? p->dx : NULL;
    for (s.t = p->steps - 1; s.t >= -1; s.t--) {
        const int more = s.t < p->steps - 1;
        const struct operand carried = {dz_at(&sums, p, s.t + 1, first), sums.row, 4 * n, p->packed};
        if (s.t >= 0) {
            s.prev_cell = state_before(p, p->c, p->c0, s.t, first);
            s.dz = dz_at(&sums, p, s.t, first);
        }
        fetch_saved(&s, rows, 4);
        sweep(&s, rows, &carried, more, 1, s.t < 0 ? initial_gradient : lstm_finish_backward);
        if (s.t < 0) break;
        finish_both_norms(&s, rows);
        add_products(&sums, p, s.t, first);
    }
    memcpy(p->dc0 + first * n, s.cell, (size_t)(rows * n) * 4);
    end_sums(&sums, p);
    free(memory);
    restore_denormals(denormals);
    return 0;
}

/* ------------------------------------------------------------------ GRU
 * saved, three parts: the gates r, z, g after their functions; with r after the product a fourth, W_g h_{t-1} + b. */

INLINE int64_t gru_parts(const struct problem *p) { return p->reset_after ? 4 : 3; }

static void gru_finish_gates(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                             const float *block) {
    COPY_STEP(shared);
    const struct problem *p = s->p;
    const int64_t n = p->features, next = p->batch * 3 * n, parts = gru_parts(p);
    const int count = lanes(n - col);
    (void)vecs;
    for (int i = 0; i < rows; i++) {
        const int64_t here = offset(s, row + i, 3 * n) + col, local = (row + i) * n + col;
        const int64_t kept = saved_at(s, row + i, parts, col);
        const vf r = sigmoid(with_input(p, *(const vf *)(block + i * 2 * VL), here, count, next));
        const vf z = sigmoid(with_input(p, *(const vf *)(block + (i * 2 + 1) * VL), here + n, count, next));
        keep(s, parts, kept, r);
        keep(s, parts, kept + padded(n), z);
        store(s->gate + local, z, count);
        store(s->aside + local, p->reset_after ? r : r * load(s->prev + local, count), count);
    }
}

INLINE void gru_candidate(const int kind, const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                          const float *block) {
    COPY_STEP(shared);
    const struct problem *p = s->p;
    const int64_t n = p->features, next = p->batch * n, parts = gru_parts(p);
    _Alignas(64) float inputs[ROWS * 2 * VL];
    if (p->reset_after && p->u) {
        const struct operand u = input_operand(s, p->packed_candidate_inputs);
        multiply(rows, vecs, &u, 1, row, col, inputs, 2 * VL);
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL, here = offset(s, row + i, 3 * n) + at, out = offset(s, row + i, n) + at;
            const int64_t local = (row + i) * n + at, kept = saved_at(s, row + i, parts, at);
            const int count = lanes(n - at);
            const vf bias = p->bias ? load(p->bias + at, count) : (vf){0};
            vf mixed = *(const vf *)(block + (i * 2 + v) * VL);
            if (p->reset_after) {
                if (p->candidate_bias) mixed += load(p->candidate_bias + at, count);
                keep(s, parts, kept + 3 * padded(n), mixed);
                mixed *= load(s->aside + local, count);
                if (p->u) mixed += *(const vf *)(inputs + (i * 2 + v) * VL);
            }
            prefetch(p->h + out, next);
            const vf g = activate(kind, with_input(p, mixed, here + 2 * n, count, 3 * next), bias, p);
            const vf z = load(s->gate + local, count);
            keep(s, parts, kept + 2 * padded(n), g);
            store(p->h + out, z * load(s->prev + local, count) + (1.0f - z) * g, count);
        }
}

static void gru_finish_candidate(const struct step *s, int64_t row, int rows, int64_t col, int vecs,
                                 const float *block) {
    if (s->p->kind == MODRELU) gru_candidate(MODRELU, s, row, rows, col, vecs, block);
    else gru_candidate(TANH, s, row, rows, col, vecs, block);
}

int gru_forward(const struct problem *p, int64_t first, int64_t last) {
    const uint64_t denormals = flush_denormals();
    const int64_t n = p->features, rows = last - first;
    struct step s = {.p = p, .first = first, .aside = zeros(2 * rows * n)};
    if (!s.aside) return 1;
    s.gate = s.aside + rows * n;
    for (s.t = 0; s.t < p->steps; s.t++) {
        s.prev = state_before(p, p->h, p->h0, s.t, first);
        forward_sweep(&s, rows, s.prev, p->packed, p->packed_inputs, 2, gru_finish_gates);
        if (p->reset_after) /* U u is added in the epilogue: r multiplies W h alone */
            sweep(&s, rows, &(struct operand){s.prev, n, n, p->packed_candidate}, 1, 1, gru_finish_candidate);
        else
            forward_sweep(&s, rows, s.aside, p->packed_candidate, p->packed_candidate_inputs, 1, gru_finish_candidate);
    }
    free(s.aside);
    return end_forward(denormals);
}

/* What dL/dh_t gives without another product: all but r's gate when r comes before the product. */
INLINE void gru_gradients(const int kind, const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                          const float *block) {
    COPY_STEP(shared);
    const struct problem *p = s->p;
    const int64_t n = p->features, before = -p->batch * n;
    const float *const arriving_here = arriving(p->grad_h, p->grad_last, s, row, col);
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL, here = offset(s, row + i, 3 * n) + at, local = (row + i) * n + at;
            const int count = lanes(n - at);
            vf dh = *(const vf *)(block + (i * 2 + v) * VL) + load(s->direct + local, count);
            if (arriving_here) dh += load(arriving_here + i * n + v * VL, count);
            if (s->squares) *(vf *)(s->squares + (row + i) * VL) += dh * dh;
            vf gates[4];
            load_saved(s, row + i, p->reset_after ? 4 : 3, gru_parts(p), at, gates);
            for (int gate = 0; gate < 3 && p->dx; gate++) prefetch(p->dx + here + gate * n, 3 * before);
            const vf r = gates[0], z = gates[1], g = gates[2];
            prefetch(s->prev + local, before);
            /* Neither kind's derivative needs the bias. */
            const struct derivative d = differentiate(kind, dh * (1.0f - z), g, (vf){0}, p);
            const vf dcandidate = d.z;
            if (p->dbias) add_to_row(s, p->dbias, row + i, at, d.bias);
            const vf dupdate = dh * (load(s->prev + local, count) - g) * z * (1.0f - z);
            store_dz(s, row + i, here + n, at + n, dupdate, count);
            store_dz(s, row + i, here + 2 * n, at + 2 * n, dcandidate, count);
            store(s->direct + local, dh * z, count);
            if (!p->reset_after) continue;
            const vf drecurrent = dcandidate * r, dreset = drecurrent * gates[3] * (1.0f - r);
            store_dz(s, row + i, here, at, dreset, count);
            store(s->aside + (row + i) * s->aside_row + at, drecurrent, count);
            if (p->dcandidate_bias) add_to_row(s, p->dcandidate_bias, row + i, at, drecurrent);
        }
}

static void gru_finish_backward(const struct step *s, int64_t row, int rows, int64_t col, int vecs,
                                const float *block) {
    if (s->p->kind == MODRELU) gru_gradients(MODRELU, s, row, rows, col, vecs, block);
    else gru_gradients(TANH, s, row, rows, col, vecs, block);
}

/* block: dL/d(r h_{t-1}). */
static void gru_finish_reset(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                             const float *block) {
    COPY_STEP(shared);
    const struct problem *p = s->p;
    const int64_t n = p->features;
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL, here = offset(s, row + i, 3 * n) + at, local = (row + i) * n + at;
            const int count = lanes(n - at);
            const vf d = *(const vf *)(block + (i * 2 + v) * VL), r = load(p->saved + saved_at(s, row + i, 3, at), VL);
            const vf product = r * load(s->prev + local, count);
            store(s->aside + (row + i) * s->aside_row + at, product, count);
            store_dz(s, row + i, here, at, d * product * (1.0f - r), count);
            store(s->direct + local, load(s->direct + local, count) + d * r, count);
        }
}

/* dz is r, z, g, and the ring has `aside` behind it. With r before the product it is g's factor. With r after it, it is
 * a part of dz, whose product with h gives dL/dW_g, and g's only dL/dU_g. */
static int gru_sums(struct sums *sums, const struct problem *p, int64_t rows) {
    const int64_t n = p->features, m = p->inputs, width = p->dweights && p->reset_after ? 4 * n : 3 * n;
    if (!start_sums(sums, p, rows, width, 4 * n - width)) return 0;
    sums->sources[0].last = 2 * n;
    if (p->reset_after) {
        sums->sources[1] = (struct source){3 * n, 4 * n, 0, n, p->h, p->h0};
        sums->sources[2] = (struct source){2 * n, 3 * n, n / VL * VL, n + m, p->h, p->h0};
        sums->count = m ? 3 : 2;
    } else {
        sums->sources[1] = (struct source){2 * n, 3 * n, 0, n + m, NULL, NULL};
        sums->count = 2;
    }
    return 1;
}

int gru_backward(const struct problem *p, int64_t first, int64_t last) {
    const int64_t n = p->features, rows = last - first;
    struct sums sums;
    float *const memory = zeros(rows * (n + VL));
    if (!memory) return 1;
    if (!gru_sums(&sums, p, rows)) {
        free(memory);
        return 1;
    }
    const uint64_t denormals = flush_denormals();
    struct step s = {.p = p, .first = first, .dz_row = sums.row, .dx = sums.ring ? p->dx : NULL};
    s.squares = p->norms ? memory : NULL;
    s.direct = memory + rows * VL;
    s.aside_row = sums.ring ? sums.row : n;
    s.fetching = 2 * n < FAR;
    for (s.t = p->steps - 1; s.t >= -1; s.t--) {
        const struct operand carried[] = {
            {dz_at(&sums, p, s.t + 1, first), sums.row, 2 * n, p->packed},
            {s.aside, s.aside_row, n, p->packed_candidate},
        };
        const int count = s.t == p->steps - 1 ? 0 : p->reset_after ? 2 : 1;
        if (s.t >= 0) {
            s.prev = state_before(p, p->h, p->h0, s.t, first);
            s.dz = dz_at(&sums, p, s.t, first);
            s.aside = sums.ring ? s.dz + 3 * n : p->dmixed + offset(&s, 0, n);
        }
        fetch_saved(&s, rows, gru_parts(p));
        sweep(&s, rows, carried, count, 1, s.t < 0 ? initial_gradient : gru_finish_backward);
        s.fetch = NULL;
        if (s.t < 0) break;
        if (s.squares) finish_norms(&s, rows, s.squares, p->norms);
        const struct operand candidate = {s.dz + 2 * n, sums.row, n, p->packed_candidate};
        if (!p->reset_after) sweep(&s, rows, &candidate, 1, 1, gru_finish_reset);
        add_products(&sums, p, s.t, first);
    }
    end_sums(&sums, p);
    free(memory);
    restore_denormals(denormals);
    return 0;
}

/* ------------------------------------------------------------------ coRNN: h is y, c is z
 * saved, one part: tanh's output. packed multiplies y, packed_candidate z; backward, packed makes both parts. */

static void cornn_finish_forward(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                 const float *block) {
    COPY_STEP(shared);
    const struct problem *p = s->p;
    const int64_t n = p->features, next = p->batch * n;
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL, here = offset(s, row + i, n) + at, local = (row + i) * n + at;
            const int count = lanes(n - at);
            const vf a = hyperbolic_tangent(*(const vf *)(block + (i * 2 + v) * VL) + load(p->x + here, count));
            prefetch(p->x + here, next);
            prefetch(p->h + here, next);
            prefetch(p->c + here, next);
            keep(s, 1, saved_at(s, row + i, 1, at), a);
            const vf y = load(s->prev + local, count);
            vf z = load(s->prev_cell + local, count);
            z += p->step_size * (a - p->frequency * y - p->damping * z);
            store(p->c + here, z, count);
            store(p->h + here, y + p->step_size * z, count);
        }
}

static void cornn_finish_backward(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                  const float *block) {
    COPY_STEP(shared);
    const struct problem *p = s->p;
    const int64_t n = p->features, before = -p->batch * n;
    const float *const arriving_y = arriving(p->grad_h, p->grad_last, s, row, col);
    const float *const arriving_z = arriving(NULL, p->grad_c_last, s, row, col);
    const int count = lanes(n - col);
    (void)vecs;
    for (int i = 0; i < rows; i++) {
        const int64_t here = offset(s, row + i, n) + col, local = (row + i) * n + col;
        vf dy = *(const vf *)(block + i * 2 * VL) + load(s->direct + local, count);
        vf dz = *(const vf *)(block + (i * 2 + 1) * VL) + load(s->cell + local, count);
        if (arriving_y) dy += load(arriving_y + i * n, count);
        if (arriving_z) dz += load(arriving_z + i * n, count);
        dz += p->step_size * dy;
        if (s->squares) {
            *(vf *)(s->squares + (row + i) * VL) += dy * dy;
            *(vf *)(s->cell_squares + (row + i) * VL) += dz * dz;
        }
        vf a;
        load_saved(s, row + i, 1, 1, col, &a);
        const vf force = p->step_size * dz;
        prefetch(p->dx + here, before);
        store(p->dx + here, force * (1.0f - a * a), count);
        store(s->direct + local, dy - p->frequency * force, count);
        store(s->cell + local, dz - p->damping * force, count);
    }
}

static void cornn_initial_gradient(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                   const float *block) {
    COPY_STEP(shared);
    const int64_t n = s->p->features;
    const int count = lanes(n - col);
    (void)vecs;
    for (int i = 0; i < rows; i++) {
        const int64_t local = (row + i) * n + col, at = s->first * n + local;
        store(s->p->dh0 + at, *(const vf *)(block + i * 2 * VL) + load(s->direct + local, count), count);
        store(s->p->dc0 + at, *(const vf *)(block + (i * 2 + 1) * VL) + load(s->cell + local, count), count);
    }
}

int cornn_forward(const struct problem *p, int64_t first, int64_t last) {
    const uint64_t denormals = flush_denormals();
    const int64_t n = p->features;
    struct step s = {.p = p, .first = first};
    for (s.t = 0; s.t < p->steps; s.t++) {
        s.prev = state_before(p, p->h, p->h0, s.t, first);
        s.prev_cell = state_before(p, p->c, p->c0, s.t, first);
        const struct operand both[] = {{s.prev, n, n, p->packed}, {s.prev_cell, n, n, p->packed_candidate}};
        sweep(&s, last - first, both, 2, 1, cornn_finish_forward);
    }
    return end_forward(denormals);
}

int cornn_backward(const struct problem *p, int64_t first, int64_t last) {
    const int64_t n = p->features, rows = last - first;
    float *memory;
    struct step s;
    if (!two_states(p, first, rows, &s, &memory)) return 1;
    const uint64_t denormals = flush_denormals();
    for (s.t = p->steps - 1; s.t >= -1; s.t--) {
        const int more = s.t < p->steps - 1;
        const struct operand carried = {p->dx + offset(&s, 0, n) + p->batch * n, n, n, p->packed};
        sweep(&s, rows, &carried, more, 2, s.t < 0 ? cornn_initial_gradient : cornn_finish_backward);
        if (s.t >= 0) finish_both_norms(&s, rows);
    }
    free(memory);
    restore_denormals(denormals);
    return 0;
}

/* ------------------------------------------------------------------ LEM: h is y, c is z
 * saved, four parts: z's gate and candidate, y's gate and candidate, after their functions. packed multiplies y,
 * packed_candidate z. */

static void lem_finish_z(const struct step *shared, int64_t row, int rows, int64_t col, int vecs, const float *block) {
    COPY_STEP(shared);
    const struct problem *p = s->p;
    const int64_t n = p->features, next = p->batch * 4 * n;
    const int count = lanes(n - col);
    (void)vecs;
    for (int i = 0; i < rows; i++) {
        const int64_t here = offset(s, row + i, 4 * n) + col;
        vf parts[3];
        for (int part = 0; part < 3; part++) {
            parts[part] = with_input(p, *(const vf *)(block + (i * 4 + part) * VL), here + part * n, count, next);
            parts[part] = part == 1 ? hyperbolic_tangent(parts[part]) : sigmoid(parts[part]);
            keep(s, 4, saved_at(s, row + i, 4, col) + part * padded(n), parts[part]);
        }
        store(s->gate + (row + i) * n + col, parts[2], count);
        const vf z = load(s->prev_cell + (row + i) * n + col, count);
        const int64_t out = offset(s, row + i, n) + col;
        prefetch(p->c + out, p->batch * n);
        store(p->c + out, z + p->step_size * parts[0] * (parts[1] - z), count);
    }
}

static void lem_finish_y(const struct step *shared, int64_t row, int rows, int64_t col, int vecs, const float *block) {
    COPY_STEP(shared);
    const struct problem *p = s->p;
    const int64_t n = p->features, next = p->batch * 4 * n;
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL, here = offset(s, row + i, 4 * n) + at;
            const int count = lanes(n - at);
            const vf mixed = with_input(p, *(const vf *)(block + (i * 2 + v) * VL), here + 3 * n, count, next);
            const vf candidate = hyperbolic_tangent(mixed), gate = load(s->gate + (row + i) * n + at, count);
            keep(s, 4, saved_at(s, row + i, 4, at) + 3 * padded(n), candidate);
            const vf y = load(s->prev + (row + i) * n + at, count);
            const int64_t out = offset(s, row + i, n) + at;
            prefetch(p->h + out, p->batch * n);
            store(p->h + out, y + p->step_size * gate * (candidate - y), count);
        }
}

int lem_forward(const struct problem *p, int64_t first, int64_t last) {
    const uint64_t denormals = flush_denormals();
    const int64_t n = p->features, rows = last - first;
    struct step s = {.p = p, .first = first, .gate = zeros(rows * n)};
    if (!s.gate) return 1;
    for (s.t = 0; s.t < p->steps; s.t++) {
        s.prev = state_before(p, p->h, p->h0, s.t, first);
        s.prev_cell = state_before(p, p->c, p->c0, s.t, first);
        forward_sweep(&s, rows, s.prev, p->packed, p->packed_inputs, 3, lem_finish_z);
        forward_sweep(&s, rows, p->c + offset(&s, 0, n), p->packed_candidate, p->packed_candidate_inputs, 1,
                      lem_finish_y);
    }
    free(s.gate);
    return end_forward(denormals);
}

/* The derivatives by the gate and the candidate of a state, parts `part` and `part` + 1, before their functions, from
 * g = dL/d(state). What of g goes on to the state before is returned. */
INLINE vf lem_differentiate(const struct step *s, int64_t row, int64_t part, int64_t col, vf g,
                            const float *state_before, int count) {
    const struct problem *p = s->p;
    const int64_t n = p->features, before = -p->batch * n, at = part * n + col, here = offset(s, row, 4 * n) + at;
    vf saved[2];
    load_saved(s, row, 2, 4, part * padded(n) + col, saved);
    const vf gate = saved[0], candidate = saved[1], by_length = p->step_size * gate * g;
    prefetch(state_before, before);
    for (int i = 0; i < 2 && p->dx; i++) prefetch(p->dx + here + i * n, 4 * before);
    store_dz(s, row, here, at, by_length * (candidate - load(state_before, count)) * (1.0f - gate), count);
    store_dz(s, row, here + n, at + n, by_length * (1.0f - candidate * candidate), count);
    return g - by_length;
}

static void lem_finish_backward_y(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                  const float *block) {
    COPY_STEP(shared);
    const struct problem *p = s->p;
    const int64_t n = p->features;
    const float *const arriving_y = arriving(p->grad_h, p->grad_last, s, row, col);
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL, local = (row + i) * n + at;
            const int count = lanes(n - at);
            vf dy = *(const vf *)(block + (i * 2 + v) * VL) + load(s->direct + local, count);
            if (arriving_y) dy += load(arriving_y + i * n + v * VL, count);
            if (s->squares) *(vf *)(s->squares + (row + i) * VL) += dy * dy;
            store(s->direct + local, lem_differentiate(s, row + i, 2, at, dy, s->prev + local, count), count);
        }
}

/* block: dL/dz_t that came through y_t. */
static void lem_finish_backward_z(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                  const float *block) {
    COPY_STEP(shared);
    const struct problem *p = s->p;
    const int64_t n = p->features;
    const float *const arriving_z = arriving(NULL, p->grad_c_last, s, row, col);
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL, local = (row + i) * n + at;
            const int count = lanes(n - at);
            vf dz = *(const vf *)(block + (i * 2 + v) * VL) + load(s->cell + local, count);
            if (arriving_z) dz += load(arriving_z + i * n + v * VL, count);
            if (s->squares) *(vf *)(s->cell_squares + (row + i) * VL) += dz * dz;
            store(s->cell + local, lem_differentiate(s, row + i, 0, at, dz, s->prev_cell + local, count), count);
        }
}

int lem_backward(const struct problem *p, int64_t first, int64_t last) {
    const int64_t n = p->features, rows = last - first;
    float *memory;
    struct step s;
    struct sums sums;
    if (!two_states(p, first, rows, &s, &memory)) return 1;
    if (!start_sums(&sums, p, rows, 4 * n, 0)) {
        free(memory);
        return 1;
    }
    sums.sources[0].last = 3 * n;
    sums.sources[1] = (struct source){3 * n, 4 * n, 0, n + p->inputs, p->c, NULL};
    sums.count = 2;
    const uint64_t denormals = flush_denormals();
    s.fetching = 3 * n < FAR;
    s.dz_row = sums.row;
    s.dx = sums.ring ? p->dx : NULL;
    for (s.t = p->steps - 1; s.t >= -1; s.t--) {
        const int more = s.t < p->steps - 1;
        const struct operand carried = {dz_at(&sums, p, s.t + 1, first), sums.row, 3 * n, p->packed};
        if (s.t >= 0) {
            s.prev = state_before(p, p->h, p->h0, s.t, first);
            s.prev_cell = state_before(p, p->c, p->c0, s.t, first);
            s.dz = dz_at(&sums, p, s.t, first);
        }
        fetch_saved(&s, rows, 4);
        sweep(&s, rows, &carried, more, 1, s.t < 0 ? initial_gradient : lem_finish_backward_y);
        s.fetch = NULL;
        if (s.t < 0) break;
        sweep(&s, rows, &(struct operand){s.dz + 3 * n, sums.row, n, p->packed_candidate}, 1, 1, lem_finish_backward_z);
        finish_both_norms(&s, rows);
        add_products(&sums, p, s.t, first);
    }
    memcpy(p->dc0 + first * n, s.cell, (size_t)(rows * n) * 4);
    end_sums(&sums, p);
    free(memory);
    restore_denormals(denormals);
    return 0;
}

/* ------------------------------------------------------------------ dL/dW over all time steps */

/* out [width, padded(n + m)] = sum over k in [first, last) of dz[k]^T [state[k - batch], input[k]], k counting rows of
 * [T * B]; the states before the first step's are in `initial`. */
int weight_gradient(int64_t first, int64_t last, int64_t batch, int64_t width, int64_t n, int64_t m, const float *dz,
                    int64_t ldz, const float *states, const float *initial, const float *inputs, float *out) {
    float *const copy = zeros(copy_size(width));
    if (!copy) return 1;
    const uint64_t denormals = flush_denormals();
    memset(out, 0, (size_t)(width * padded(n + m)) * 4);
    struct factor factors[2 * DEPTH];
    for (int64_t start = first; start < last; start += DEPTH) {
        const int64_t left = last - start, depth = left < DEPTH ? left : DEPTH;
        const int64_t ahead = left - depth < DEPTH ? left - depth : DEPTH;
        for (int64_t r = 0; r < depth + ahead; r++) {
            const int64_t k = start + r;
            const float *const state = k < batch ? initial + k * n : states + (k - batch) * n;
            factors[r] = (struct factor){state, inputs + k * m};
        }
        const struct rows rows = {dz + start * ldz, depth, ldz};
        accumulate_outer(&rows, factors, ahead, width, 0, n + m, n, m, out, copy);
    }
    free(copy);
    restore_denormals(denormals);
    return 0;
}

/* out[i] = parts[0][i] + parts[1][i] + ..., in this order. */
void add_parts(int64_t parts, int64_t size, const float *from, float *out) {
    memcpy(out, from, (size_t)size * 4);
    for (int64_t part = 1; part < parts; part++)
        for (int64_t i = 0; i < size; i++) out[i] += from[part * size + i];
}
