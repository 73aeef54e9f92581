/* Code that the dense recurrences share: their fields, the step of a loop over time, and its sweeps of products.
 *
 * Every *_forward and *_backward is single threaded and runs all time steps on the batch rows [first, last). Rows are
 * independent, so the caller gives each thread a range, and no thread waits. A row's arithmetic is the same in every
 * range. Tensors are contiguous and time major, [T, B, n]. Matrices of the time loop are packed once (pack), in panels
 * of two vectors. */
#ifndef ORTHOBENCH_DENSE_H
#define ORTHOBENCH_DENSE_H

#include "products.h"

/* Numbers that a cell defines, such as its step size. */
struct constants {
    float a, b, c;
};

/* What a dense recurrence reads and writes: h has its first state h_t, and h_2 the second, c_t. Parts that a pass does not need are
 * NULL, and so are the gradients that the loss does not have. */
struct dense {
    int64_t steps, batch, features; /* T, B, n */
    int64_t inputs;              /* columns of u, or 0 */
    int64_t groups;              /* groups of batch rows that sum weight gradients separately, or 0 without sums */
    int64_t variant;             /* which of the cell's variants: its activation, for example */
    struct constants constants;
    const float *x;              /* [T, B, inputs of the cell * n], or NULL if it is U u */
    const float *u;              /* [T, B, inputs], or NULL */
    const float *packed, *packed_2, *packed_3, *packed_4; /* W of each operand, see `pack`; backward their transposes */
    const float *packed_inputs, *packed_inputs_2; /* U of the first phase's products and of the second's, or NULL */
    const float *packed_alone, *packed_alone_2; /* U of the inputs that no product takes, see `pack_alone`, or NULL */
    int64_t vectors;             /* which parameters of the units the cell has, as bits */
    const float *vector;         /* [vectors, n]: these, and in the other rows anything; or NULL */
    const float *h0, *h0_2;      /* [B, n] */
    float *h, *h_2;              /* [T, B, n] */
    float *saved;                /* [T, B, kept_row]: what else a backward pass needs, see each cell; may be NULL */
    float *means;                /* [T, B, means]: a row's means over its units, see `unit.mean`, or NULL */
    const float *grad_h;         /* dL/dh_t of all steps [T, B, n] */
    const float *grad_last, *grad_last_2; /* dL/dh_T [B, n], where grad_h does not have it, and dL/dc_T */
    float *dx;                   /* as x, or NULL if only dL/dW and dL/dU are needed */
    float *values;               /* [T, B, blocks * n], if no sums are computed: backward the blocks of `unit.own`, then
                                  * `unit.value` */
    float *dweights;             /* [groups, columns of gradients, padded(n + inputs)], zeroed: each group's dL/d[W, U] */
    int64_t *weight_time;        /* [2]: nanoseconds of the threads, for dL/d[W, U] and in all */
    float *sum;                  /* [vectors, B, padded(n)], zeroed, or NULL: each row's gradients of the vectors over time */
    float *dh0, *dh0_2;          /* dL/dh_0, dL/dc_0 [B, n] */
    float *norms, *norms_2;      /* |dL/dh_t|, |dL/dc_t| [T, B] */
    int64_t outputs;             /* columns of y and grad_y */
    const float *packed_outputs; /* V of an output map y_t = V h_t + v, packed; backward for dL/dy V */
    const float *output_bias;    /* v [outputs] */
    float *y;                    /* [T, B, outputs], or NULL */
    const float *grad_y;         /* dL/dy [T, B, outputs], or NULL. Its sums dL/dV follow in dweights, `outputs` rows in
                                  * each group. */
};

/* Floats of a row of `saved`: parts of whole vectors, and one vector more, because rows a power of two apart would fall
 * on the same few cache sets. */
INLINE int64_t kept_row(int64_t n, int64_t parts) { return parts * padded(n) + VL; }

/* ------------------------------------------------------------------ one time step */

struct step {
    const struct dense *p;
    int64_t t, first;       /* the step; the first batch row of this thread, which has `rows` of them */
    const float *before[2]; /* h_{t-1} and c_{t-1} of these rows, [rows, n] */
    float *dz;              /* [rows, inputs of the cell * n], rows dz_row floats apart: dL/dx_t */
    int64_t dz_row;
    float *value;           /* [rows, n], rows value_row floats apart: `unit.value`; backward the blocks of `unit.own`
                             * come before it */
    int64_t value_row;
    float *kept;            /* [numbers, rows, n]: `unit.kept` */
    int64_t kept_size;      /* rows * n */
    float *dx;              /* dL/dx of all steps, as in `dense`, if it is kept in addition to dz, or NULL */
    int fetching;           /* whether a sweep asks for the next step's rows of `saved`, see `fetch_saved` */
    const float *fetch;     /* memory of `fetch_lines` cache lines that the next sweep asks for, or NULL */
    int64_t fetch_lines;
    float *memory;          /* of a backward loop: has the following */
    float *carried[2];      /* [rows, n]: the parts of dL/dh_t and dL/dc_t outside the products, or NULL */
    float *squares[2];      /* [rows, VL]: partial sums of squares for the norms, or NULL */
};

/* Declares s and p: local copies of the step `shared` and of its problem. The stores below cannot alias a copy, so the
 * compiler computes the addresses of a tile only once. */
#define COPY_STEP(shared)                        \
    const struct dense copied = *(shared)->p;   \
    struct step copy = *(shared);               \
    copy.p = &copied;                           \
    const struct step *const s = &copy;         \
    const struct dense *const p = &copied

/* Takes the sums of `rows` batch rows from `row` (counted from s->first) for the units from `col`. */
typedef void epilogue(const struct step *s, int64_t row, int rows, int64_t col, int vecs, const float *block);

/* Sum of the operands' products over all rows and n units, block by block, each given to `finish` while in L1. */
INTERNAL void sweep(const struct step *s, int64_t rows, const struct operand *operands, int count, int gates,
                    epilogue *finish);

/* The epilogues before the first step: dL/dh_0, and with products of both states dL/dc_0. */
INTERNAL epilogue initial_gradient, initial_gradients;

/* Writes the norms of step t, if there are any, from the rows' sums of squares, and clears these. */
INTERNAL void finish_norms(const struct step *s, int64_t rows);

INLINE int64_t offset(const struct step *s, int64_t row, int64_t width) {
    return (s->t * s->p->batch + s->first + row) * width;
}

/* A sum of products with x at `at`, if x is given; the next step's x is `next` floats further. */
INLINE vf with_input(const struct dense *p, vf sum, int64_t at, int count, int64_t next) {
    if (!p->x) return sum;
    prefetch(p->x + at, next);
    return sum + load(p->x + at, count);
}

/* The columns from `col` of the first of the `parts` in a row of `saved`. */
INLINE int64_t saved_at(const struct step *s, int64_t row, int64_t parts, int64_t col) {
    return offset(s, row, kept_row(s->p->features, parts)) + col;
}

/* Stores a vector in `saved`, around the caches if they cannot hold it until the backward pass, because its line then
 * need not be read first. A vector must be a whole line for that, since memory takes half a line slowly. */
INLINE void keep(const struct step *s, int64_t parts, int64_t at, vf value) {
    const struct dense *p = s->p;
    if (!p->saved) return;
    if (VL == 16 && p->steps * p->batch * parts * p->features > CACHED) stream(p->saved + at, value);
    else *(vf *)(p->saved + at) = value;
}

/* Lets the next sweep request the rows of `saved` of the step before, evenly over its products, because all rows of a
 * tile at once would fill the core's queue of misses. */
INLINE void fetch_saved(struct step *s, int64_t rows, int64_t parts) {
    const int64_t length = kept_row(s->p->features, parts);
    s->fetch = s->fetching && s->t > 0 ? s->p->saved + ((s->t - 1) * s->p->batch + s->first) * length : NULL;
    s->fetch_lines = rows * length / 16;
}

/* dL/dx_t in column `at` of a row, which is dx[here] too. */
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
INLINE const float *state_before(const struct dense *p, const float *states, const float *initial, int64_t t,
                                 int64_t first) {
    return (t ? states + (t - 1) * p->batch * p->features : initial) + first * p->features;
}

INLINE struct operand input_operand(const struct step *s, const float *packed) {
    const int64_t m = s->p->inputs;
    return (struct operand){s->p->u + offset(s, 0, m), m, m, packed};
}

#endif
