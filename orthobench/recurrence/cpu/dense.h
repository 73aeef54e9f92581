/* Code that the dense recurrences share: the problem, the step of a loop over time, and its sweeps of products.
 *
 * Every *_forward and *_backward is single threaded and runs all time steps on the batch rows [first, last). Rows are
 * independent, so the caller gives each thread a range, and no thread waits. A row's arithmetic is the same in every
 * range. Tensors are contiguous and time major, [T, B, n]. Matrices of the time loop are packed once (pack), in panels
 * of two vectors. */
#ifndef ORTHOBENCH_DENSE_H
#define ORTHOBENCH_DENSE_H

#include "products.h"

enum kind { IDENTITY, TANH, RELU, LEAKY_RELU, MODRELU, COMPLEX_MODRELU, COMPLEX_MODRELU_SMOOTH };

struct problem {
    int64_t steps, batch, features;
    int64_t inputs;      /* columns of u */
    int64_t groups;      /* number of groups of batch rows, whose weight gradients are summed separately */
    int64_t kind;        /* enum kind; for the GRU the candidate's kind, TANH or MODRELU */
    int64_t euler;       /* h_t = h_{t-1} + step_size * act(...) */
    int64_t reset_after; /* GRU: whether r is applied after the product */
    int64_t outputs;     /* columns of y and grad_y */
    float slope, epsilon, step_size;
    float frequency, damping; /* of coRNN */
    const float *x;      /* [T, B, gates * n], or NULL if it is U u */
    const float *u;      /* [T, B, inputs] or NULL */
    const float *packed_inputs; /* U, as `packed` */
    const float *packed; /* the forward matrix, or the backward one */
    const float *packed_candidate;
    const float *packed_candidate_inputs; /* U's rows for packed_candidate */
    const float *bias;   /* the activation's b, [n], or NULL */
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

/* Floats of a row of `saved`: parts of whole vectors, and one vector more, because rows a power of two apart would fall
 * on the same few cache sets. */
INLINE int64_t kept_row(int64_t n, int64_t parts) { return parts * padded(n) + VL; }

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
    float *dx;              /* dL/dz of all steps, [T, B, gates * n], if it is kept in addition to dz, or NULL */
    float *direct;          /* [rows, n]: the part of dL/dh_t outside the product */
    float *cell;            /* [rows, n]: the part of dL/dc_t from c_{t+1} */
    float *gate;            /* [rows, n], forward: a gate of the present step, for the epilogue of a second product */
    int fetching;           /* whether a sweep asks for the next step's rows of `saved`, see `fetch_saved` */
    const float *fetch;     /* memory of `fetch_lines` cache lines that the next sweep asks for, or NULL */
    int64_t fetch_lines;
    float *squares, *cell_squares; /* [rows, VL]: partial sums of squares for the norms, or NULL */
};

/* The step `shared` as a local copy of it and of its problem. The stores below cannot alias the copy, so the compiler
 * computes the addresses of a tile only once. */
#define COPY_STEP(shared)                          \
    const struct problem problem = *(shared)->p;   \
    struct step copy = *(shared);                  \
    copy.p = &problem;                             \
    const struct step *const s = &copy

/* Takes the sums of `rows` batch rows from `row` (counted from s->first) for the units from `col`. */
typedef void epilogue(const struct step *s, int64_t row, int rows, int64_t col, int vecs, const float *block);

/* Sum of the operands' products over all rows and n units, block by block, each given to `finish` while in L1. */
INTERNAL void sweep(const struct step *s, int64_t rows, const struct operand *operands, int count, int gates,
                    epilogue *finish);

/* The products of step t with a state [rows, n] and, where x is not given, with u_t. */
INTERNAL void forward_sweep(const struct step *s, int64_t rows, const float *state, const float *packed,
                            const float *packed_inputs, int gates, epilogue *finish);

/* The epilogue before the first step: dL/dh_0, or any [B, n] sum that has only a product and a direct part. */
INTERNAL epilogue initial_gradient;

/* Writes the norms of step t from the rows' sums of squares, and clears these. */
INTERNAL void finish_norms(const struct step *s, int64_t rows, float *squares, float *norms);
INTERNAL void finish_both_norms(const struct step *s, int64_t rows);

/* Starts the step of a backward loop over two states, with `memory` for its own; 0 if there is none. */
INTERNAL int two_states(const struct problem *p, int64_t first, int64_t rows, struct step *s, float **memory);

/* Ends a forward loop; its result is 0. */
INTERNAL int end_forward(uint64_t denormals);

INLINE int64_t offset(const struct step *s, int64_t row, int64_t width) {
    return (s->t * s->p->batch + s->first + row) * width;
}

/* A sum of products with x at `at`, if x is given; the next step's x is `next` floats further. */
INLINE vf with_input(const struct problem *p, vf sum, int64_t at, int count, int64_t next) {
    if (!p->x) return sum;
    prefetch(p->x + at, next);
    return sum + load(p->x + at, count);
}

/* The columns from `col` of the first of the `parts` in a row of `saved`. */
INLINE int64_t saved_at(const struct step *s, int64_t row, int64_t parts, int64_t col) {
    return offset(s, row, kept_row(s->p->features, parts)) + col;
}

/* Stores a vector in `saved`, around the caches if they cannot hold it until the backward pass, because its line then
 * need not be read first. */
INLINE void keep(const struct step *s, int64_t parts, int64_t at, vf value) {
    const struct problem *p = s->p;
    if (!p->saved) return;
    if (p->steps * p->batch * parts * p->features > CACHED) stream(p->saved + at, value);
    else *(vf *)(p->saved + at) = value;
}

/* Lets the next sweep request the rows of `saved` of the step before, evenly over its products, because all rows of a
 * tile at once would fill the core's queue of misses. */
INLINE void fetch_saved(struct step *s, int64_t rows, int64_t parts) {
    const int64_t length = kept_row(s->p->features, parts);
    s->fetch = s->fetching && s->t > 0 ? s->p->saved + ((s->t - 1) * s->p->batch + s->first) * length : NULL;
    s->fetch_lines = rows * length / 16;
}

/* The first `count` floats of all parts; also requests those of the step before, unless the sweep does so. */
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

/* The gradient that arrives at the outputs of step t, [B, n] from batch row `first`, or NULL. */
INLINE const float *arriving(const float *all_steps, const float *last, const struct step *s, int64_t row,
                             int64_t col) {
    const int64_t n = s->p->features;
    if (all_steps) return all_steps + offset(s, row, n) + col;
    if (last && s->t == s->p->steps - 1) return last + (s->first + row) * n + col;
    return NULL;
}

/* The state that step t starts from, [rows, n] from batch row `first`. */
INLINE const float *state_before(const struct problem *p, const float *states, const float *initial, int64_t t,
                                 int64_t first) {
    return (t ? states + (t - 1) * p->batch * p->features : initial) + first * p->features;
}

INLINE struct operand input_operand(const struct step *s, const float *packed) {
    const int64_t m = s->p->inputs;
    return (struct operand){s->p->u + offset(s, 0, m), m, m, packed};
}

#endif
