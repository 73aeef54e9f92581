/* The driver of the dense cells: it loads, stores, asks for memory ahead of its use, and sums; a cell computes.
 *
 * A cell is one phase or two. A phase multiplies states with rows of W and ends in a function of one vector of units,
 * which the driver inlines into its loops; going backward, the phases' functions run in reverse order. A phase that needs
 * means over all units of a row, as layer norm does, has such a function for each of its parts. `lem/lem.c` is a short
 * example. Which rows of dL/dz multiply which state follows from the phases. Python reads the phases, too. */
#ifndef ORTHOBENCH_CELL_H
#define ORTHOBENCH_CELL_H

#include "weight_sums.h"

/* What the products of a phase multiply. */
enum reads {
    BEFORE,      /* h_{t-1} */
    BOTH_BEFORE, /* h_{t-1} with the first n columns of W, and c_{t-1} with the others, added up */
    SECOND_NOW,  /* c_t, of the phase before */
    VALUE,       /* `unit.value` of the phase before */
};

/* States, vectors and blocks are bits: of the states, 1 is h and 2 is c. */
struct phase {
    int reads;    /* enum reads */
    int products; /* blocks of n rows of W, or 0 */
    int inputs;   /* blocks of n columns of x_t: one is added to each product that is not its own, and the cell itself
                   * uses those that are left, `alone_of` */
    int own;      /* of the products, the first ones, to which the driver adds no input */
    int saved;    /* numbers that it saves for the backward pass */
    int kept;     /* numbers that it hands to the phase which runs next: forward the second, backward the first */
    int means;    /* means over the units that it computes, in both directions */
    int parts_forward, parts_backward; /* parts after the first one */
    int states;   /* which states it computes; backward, whose gradients are complete before it */
    int late;     /* which of them a second function computes, from the other state and `unit.kept` */
    int outputs;  /* of two phases, which blocks of dL/dx_t it computes backward, numbered through the phases */
    int sums;     /* the gradients of which vectors it computes */
    int adds;     /* backward, to the gradients of which states of the second phase it adds */
    int before;   /* which states of the step before it reads backward */
    int after;    /* which states of its step, likewise */
};

struct cell {
    int phases;
    int carried; /* states whose gradient reaches the step before in other ways than through products */
    int apart;   /* whether the state's gradient is completed in a loop of its own: the cell needs the registers */
    int held;    /* numbers that parts of a phase hand to later ones */
    struct phase phase[2];
};

/* A part of a phase: what it computes from one vector of units, up to where it needs a mean over all units of its row. It
 * stores what later parts need of it. The first part has the phase's products and inputs, or gradients, and the last one
 * has its results. */
struct part {
    int number, is_last;
    int kept, keeps; /* the numbers in `unit.kept` before it and after it, without those for the other phase */
    int means, adds; /* the means of this row before it and after it */
};

/* One vector of units at a step, with the names of the CUDA kernels (`cuda/cell.cuh`). */
struct unit {
    struct constants constants;
    vf vector[20]; /* the cell's vectors */
    vf product[4]; /* forward: the phase's products, with their inputs; backward: dL/d(value) of a phase before VALUE */
    vf input[4];   /* forward: the inputs that no product takes */
    vf state[2];   /* forward: the states before the step, to replace by those of the step. Backward: their gradients,
                    * to replace by what reaches the step before in other ways than through the products */
    vf before[2];  /* backward: the states of the step before */
    vf after[2];   /* backward: the states of this step */
    vf saved[8];   /* the cell's numbers for the backward pass, numbered through its phases */
    vf kept[24];   /* numbers for the phase that runs next, and then for later parts of this one */
    vf mean[32];   /* the row's means over its units, the same in all lanes: first those of the forward pass, then those
                    * of the backward pass. A part that computes one gives what each unit adds to it. */
    vf value;      /* what the products of the next phase multiply, if it reads VALUE; again backward */
    vf own[4];     /* backward: the gradients of the phase's own products */
    vf output[8];  /* backward: dL/dx_t, numbered through the phases */
    vf trace[2];   /* backward: the gradients of the states, if `state` did not have all of them */
    vf sum[20];    /* backward: the vectors' gradients */
};

typedef void rule(struct unit *u);

/* All steps of a cell on the batch rows [first, last), with the epilogues of its phases. Returns nonzero without
 * memory. */
INTERNAL int run_forward(const struct cell *cell, const struct dense *p, int64_t first, int64_t last,
                         epilogue *const *finish);
INTERNAL int run_backward(const struct cell *cell, const struct dense *p, int64_t first, int64_t last,
                          epilogue *const *finish);

/* The functions that cells outside of the library call, see `compiled.h`. */
struct driver {
    int (*run_forward)(const struct cell *, const struct dense *, int64_t, int64_t, epilogue *const *);
    int (*run_backward)(const struct cell *, const struct dense *, int64_t, int64_t, epilogue *const *);
    void (*multiply)(int, int, const struct operand *, int, int64_t, int64_t, float *, int64_t);
};

INLINE int inputs_of(const struct cell *cell) { return cell->phase[0].inputs + cell->phase[1].inputs; }
INLINE int means_of(const struct cell *cell) { return cell->phase[0].means + cell->phase[1].means; }
INLINE int saved_of(const struct cell *cell) { return cell->phase[0].saved + cell->phase[1].saved; }
INLINE int states_of(const struct cell *cell) { return cell->phase[0].states | cell->phase[1].states; }
INLINE int has(int states, int state) { return states >> state & 1; }
INLINE int owned_by(const struct cell *cell) { return cell->phase[0].own + cell->phase[1].own; }

/* How many of a phase's inputs no product takes: the last ones. */
INLINE int alone_of(const struct phase *phase) { return phase->inputs - (phase->products - phase->own); }

INLINE void load_vectors(const struct dense *p, struct unit *u, int64_t at, int count) {
#pragma GCC unroll 20
    for (int k = 0; k < 20; k++)
        u->vector[k] = p->vectors >> k & 1 ? load(p->vector + k * p->features + at, count) : (vf){0};
}

INLINE float *means_at(const struct step *s, const struct cell *cell, int64_t row) {
    return s->p->means + offset(s, row, means_of(cell));
}

INLINE void load_means(const struct step *s, const struct cell *cell, const struct part *part, int64_t row, struct unit *u) {
#pragma GCC unroll 32
    for (int k = 0; k < part->means; k++) u->mean[k] = splat(means_at(s, cell, row)[k]);
}

/* Ends a part that is not the last one, for the row's units from `at`; a row's columns come in ascending order. */
INLINE void end_part(const struct step *s, const struct cell *cell, const struct part *part, int first_kept, int64_t row,
                     int64_t at, int count, const struct unit *u) {
    const int64_t n = s->p->features;
    vi lane;
    for (int k = 0; k < VL; k++) lane[k] = k;
#pragma GCC unroll 24
    for (int k = first_kept + part->kept; k < first_kept + part->keeps; k++)
        store(s->kept + k * s->kept_size + row * n + at, u->kept[k], count);
#pragma GCC unroll 32
    for (int k = part->means; k < part->adds; k++) {
        float *const mean = means_at(s, cell, row) + k;
        const float share = sum_of(mask(lane < count, u->mean[k])) / (float)n;
        *mean = at ? *mean + share : share;
    }
}

/* Whether the projected inputs that no product takes are packed as a single product is. Otherwise a panel has two of them,
 * for one vector of units, because the panels of several products have. */
INLINE int is_single(const struct phase *phase) { return alone_of(phase) == 1 && phase->products < 2; }

/* Where `project_alone` puts input k of a row's vector of units v. */
INLINE int64_t alone_at(const struct phase *phase, int row, int v, int k) {
    const int pairs = (alone_of(phase) + 1) / 2;
    return (is_single(phase) ? row * 2 + v : ((v * pairs + k / 2) * ROWS + row) * 2 + k % 2) * VL;
}

/* The projected inputs that no product takes, for `across` vectors of units from `col`. */
INLINE void project_alone(const struct step *s, const struct phase *phase, const float *packed, int64_t row, int rows,
                          int64_t col, int across, float *out) {
    const struct operand u = input_operand(s, packed);
    const int count = alone_of(phase), wide = (count + 1) / 2 * 2;
    if (is_single(phase)) multiply(rows, across, &u, 1, row, col, out, 2 * VL);
    else
        for (int v = 0; v < across; v++)
            for (int k = 0; k < count; k += 2)
                multiply(rows, 2, &u, 1, row, (col + v * VL) * wide + k * VL, out + alone_at(phase, 0, v, k), 2 * VL);
}

INLINE void store_state(const struct step *s, int number, int64_t at, vf value, int count) {
    float *const to = (number ? s->p->h_2 : s->p->h) + at;
    prefetch(to, s->p->batch * s->p->features);
    store(to, value, count);
}

/* Whether the second function of a phase runs after the first one has run for all rows. A row's chain of operations is
 * then shorter, so that the processor computes more rows at once. With AVX-512 this makes no difference. */
enum { RUN_LATE = VL < 16 };

/* Whether an epilogue need not ask how many lanes of a vector are units, which takes a twentieth of a backward loop with
 * AVX2. With AVX-512 a mask costs nothing. */
INLINE int is_full(const struct step *s, int64_t col, int vecs) {
    return VL < 16 && (s->p->features % VL == 0 || col + vecs * VL <= s->p->features);
}

/* The forward epilogue of a phase's part, for a constant cell, phase, part and its functions; the second may be NULL. */
INLINE void finish_forward(const int full, const struct cell *cell, const int number, const struct part part,
                           rule *compute, rule *complete, const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                           const float *block) {
    COPY_STEP(shared);
    const struct phase *const phase = &cell->phase[number];
    const int64_t n = p->features, width = inputs_of(cell) * n, next = p->batch * width;
    const int64_t first_input = number ? cell->phase[0].inputs * n : 0;
    const int across = part.number || phase->products < 2 ? vecs : 1, wide = phase->products > 2 ? 4 : 2, parts = saved_of(cell);
    const int first_saved = number ? cell->phase[0].saved : 0, handed = cell->phase[0].kept;
    const int products = part.number ? 0 : phase->products, alone = part.number ? 0 : alone_of(phase);
    const int first_alone = phase->inputs - alone, late = RUN_LATE ? phase->late : 0;
    vf waiting_states[2][ROWS], waiting_kept[2][ROWS];
    _Alignas(64) float inputs[4 * ROWS * 2 * VL];
    if (alone && !p->x)
        project_alone(s, phase, number ? p->packed_alone_2 : p->packed_alone, row, rows, col, across, inputs);
    for (int v = 0; v < across; v++) {
        const int64_t at = col + v * VL;
        const int count = full ? VL : lanes(n - at);
        struct unit u = {.constants = p->constants};
        load_vectors(p, &u, at, count);
        for (int i = 0; i < rows; i++) {
            const int64_t here = offset(s, row + i, width) + first_input + at, out = offset(s, row + i, n) + at;
            const int64_t local = (row + i) * n + at, kept = saved_at(s, row + i, parts, at);
            const float *const sums = block + (i * wide + v) * VL;
#pragma GCC unroll 4
            for (int k = 0; k < products; k++) {
                u.product[k] = *(const vf *)(sums + k * VL);
                if (k >= phase->own)
                    u.product[k] = with_input(p, u.product[k], here + (k - phase->own) * n, count, next);
            }
#pragma GCC unroll 4
            for (int k = 0; k < alone; k++) {
                if (!p->x) {
                    u.input[k] = *(const vf *)(inputs + alone_at(phase, i, v, k));
                    continue;
                }
                u.input[k] = load(p->x + here + (first_alone + k) * n, count);
                prefetch(p->x + here + (first_alone + k) * n, next);
            }
#pragma GCC unroll 2
            for (int k = 0; k < 2; k++)
                if (has(states_of(cell), k)) u.state[k] = load(s->before[k] + local, count);
#pragma GCC unroll 24
            for (int k = 0; k < handed + part.kept; k++)
                if (number || part.number) u.kept[k] = load(s->kept + k * s->kept_size + local, count);
            load_means(s, cell, &part, row + i, &u);
            compute(&u);
            if (complete && !late) complete(&u);
            if (!part.is_last) {
                end_part(s, cell, &part, handed, row + i, at, count, &u);
                continue;
            }
#pragma GCC unroll 8
            for (int k = first_saved; k < first_saved + phase->saved; k++)
                keep(s, parts, kept + k * padded(n), u.saved[k]);
            if (!number && cell->phase[1].reads == VALUE) store(s->value + local, u.value, count);
#pragma GCC unroll 24
            for (int k = 0; k < phase->kept && !number; k++) store(s->kept + k * s->kept_size + local, u.kept[k], count);
#pragma GCC unroll 2
            for (int k = 0; k < 2; k++) {
                if (has(phase->states & ~late, k)) store_state(s, k, out, u.state[k], count);
                if (late) waiting_states[k][i] = u.state[k], waiting_kept[k][i] = u.kept[k];
            }
        }
        for (int i = 0; i < rows && late; i++) {
#pragma GCC unroll 2
            for (int k = 0; k < 2; k++) u.state[k] = waiting_states[k][i], u.kept[k] = waiting_kept[k][i];
            complete(&u);
#pragma GCC unroll 2
            for (int k = 0; k < 2; k++)
                if (has(late, k)) store_state(s, k, offset(s, row + i, n) + at, u.state[k], count);
        }
    }
}

/* dL/dh_t: the product with dL/dz_{t+1}, and what arrives in addition. A cell that is set `apart`, whose registers these
 * addends would take, needs it only if there are any. */
INLINE void whole_gradient(const int is_carried, const struct step *s, const float *arriving_here, int64_t row, int rows,
                           int64_t col, int vecs, const float *block, float *out) {
    const int64_t n = s->p->features;
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t local = (row + i) * n + col + v * VL;
            const int count = lanes(n - col - v * VL);
            vf g = *(const vf *)(block + (i * 2 + v) * VL);
            if (arriving_here) {
                g += load(arriving_here + i * n + v * VL, count);
                prefetch(arriving_here + i * n + v * VL, -s->p->batch * n);
            }
            if (is_carried) {
                g += load(s->carried[0] + local, count);
                store(s->carried[0] + local, g, count);
            }
            if (s->squares[0]) *(vf *)(s->squares[0] + (row + i) * VL) += g * g;
            *(vf *)(out + (i * 2 + v) * VL) = g;
        }
}

/* The backward epilogue of a phase's part, for a constant cell, phase, part and function. */
INLINE void finish_backward(const int full, const struct cell *cell, const int number, const struct part part,
                            rule *compute, const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                            const float *block) {
    COPY_STEP(shared);
    const struct phase *const phase = &cell->phase[number];
    const int is_last = number == cell->phases - 1, both = cell->phase[0].reads == BOTH_BEFORE;
    const int of_value = !is_last && cell->phase[1].reads == VALUE;
    const int whole = cell->apart ? 0 : phase->states, carried = whole & cell->carried;
    const int64_t n = p->features, before = -p->batch * n, width = inputs_of(cell) * n;
    const int across = both && !part.number ? 1 : vecs, parts = saved_of(cell);
    const int outputs = cell->phases > 1 ? phase->outputs : (1 << inputs_of(cell)) - 1;
    const int first_own = number ? cell->phase[0].own : 0, handed = cell->phase[1].kept;
    const float *const arriving_at[2] = {
        arriving(p->grad_h, p->grad_last, s, row, col),
        arriving(NULL, p->grad_last_2, s, row, col),
    };
    _Alignas(64) float completed[ROWS * 2 * VL];
    if (cell->apart && (cell->carried || arriving_at[0] || s->squares[0])) {
        whole_gradient(cell->carried, s, arriving_at[0], row, rows, col, vecs, block, completed);
        block = completed;
    }
    for (int v = 0; v < across; v++) {
        const int64_t at = col + v * VL;
        const int count = full ? VL : lanes(n - at);
        struct unit u = {.constants = p->constants};
        load_vectors(p, &u, at, count);
        for (int i = 0; i < rows; i++) {
            const int64_t here = offset(s, row + i, width) + at, local = (row + i) * n + at;
            const int64_t kept = saved_at(s, row + i, parts, at);
            const float *const sums = block + (i * 2 + v) * VL;
            if (of_value && !part.number) u.product[0] = *(const vf *)sums;
            if (cell->apart) u.state[0] = *(const vf *)sums;
#pragma GCC unroll 2
            for (int k = 0; k < 2; k++) {
                const int through_product = is_last ? k == 0 || both : !of_value && k == 1;
                if (has(phase->adds, k)) u.state[k] = load(s->carried[k] + local, count);
                if (part.number || !has(whole, k)) continue;
                if (!through_product) u.state[k] = load(s->carried[k] + local, count);
                else if (has(carried, k))
                    u.state[k] = *(const vf *)(sums + k * both * VL) + load(s->carried[k] + local, count);
                else u.state[k] = *(const vf *)(sums + k * both * VL);
                if (arriving_at[k]) u.state[k] += load(arriving_at[k] + i * n + v * VL, count);
                u.trace[k] = u.state[k];
            }
#pragma GCC unroll 24
            for (int k = 0; k < handed + part.kept; k++)
                if (!is_last || part.number) u.kept[k] = load(s->kept + k * s->kept_size + local, count);
            load_means(s, cell, &part, row + i, &u);
#pragma GCC unroll 8
            for (int k = 0; k < parts; k++) {
                u.saved[k] = load(p->saved + kept + k * padded(n), VL);
                if (is_last && !part.number && !s->fetching) prefetch(p->saved + kept + k * padded(n), -p->batch * kept_row(n, parts));
            }
#pragma GCC unroll 2
            for (int k = 0; k < 2; k++) {
                if (has(phase->before, k)) {
                    u.before[k] = load(s->before[k] + local, count);
                    if (has(phase->states, k)) prefetch(s->before[k] + local, before);
                }
                if (has(phase->after, k)) {
                    const float *const after = (k ? p->h_2 : p->h) + offset(s, row + i, n) + at;
                    u.after[k] = load(after, count);
                    if (!has(phase->before, k)) prefetch(after, before);
                }
            }
#pragma GCC unroll 8
            for (int k = 0; k < inputs_of(cell); k++)
                if (has(outputs, k) && p->dx) prefetch(p->dx + here + k * n, inputs_of(cell) * before);
            compute(&u);
            if (!part.is_last) {
                end_part(s, cell, &part, handed, row + i, at, count, &u);
                continue;
            }
#pragma GCC unroll 2
            for (int k = 0; k < 2; k++)
                if (has(whole, k) && s->squares[k]) *(vf *)(s->squares[k] + (row + i) * VL) += u.trace[k] * u.trace[k];
#pragma GCC unroll 8
            for (int k = 0; k < inputs_of(cell); k++)
                if (has(outputs, k)) store_dz(s, row + i, here + k * n, at + k * n, u.output[k], count);
            const int64_t value = (row + i) * s->value_row + at;
#pragma GCC unroll 4
            for (int k = 0; k < phase->own; k++) store(s->value + value + (first_own + k) * n, u.own[k], count);
            if (of_value) store(s->value + value + owned_by(cell) * n, u.value, count);
#pragma GCC unroll 24
            for (int k = 0; k < handed && is_last && number; k++)
                store(s->kept + k * s->kept_size + local, u.kept[k], count);
#pragma GCC unroll 2
            for (int k = 0; k < 2; k++)
                if (has(carried | phase->adds, k)) store(s->carried[k] + local, u.state[k], count);
#pragma GCC unroll 20
            for (int k = 0; k < 20; k++)
                if (has(phase->sums, k) && p->vectors >> k & 1)
                    add_to_row(s, p->sum + k * p->batch * padded(n), row + i, at, u.sum[k]);
        }
    }
}

/* Defines an epilogue from a function of a unit, which is all of a phase. */
#define EPILOGUE(name, direction, cell, phase, compute) PART(name, direction, cell, phase, compute, .is_last = 1)

/* Defines the epilogue of a part, whose fields follow its function. */
#define PART(name, direction, cell, phase, compute, ...)                                                               \
    static void name(const struct step *s, int64_t row, int rows, int64_t col, int vecs, const float *block) {         \
        FINISH(finish_##direction, &cell, phase, ((struct part){__VA_ARGS__}), FUNCTIONS_##direction(compute));        \
    }
#define FUNCTIONS_forward(compute) compute, NULL
#define FUNCTIONS_backward(compute) compute

/* Defines a forward epilogue from two functions. */
#define LATE_EPILOGUE(name, cell, phase, compute, complete)                                                            \
    static void name(const struct step *s, int64_t row, int rows, int64_t col, int vecs, const float *block) {         \
        FINISH(finish_forward, &cell, phase, ((struct part){.is_last = 1}), compute, complete);                                                       \
    }

#define FINISH(function, ...)                                                                                          \
    if (is_full(s, col, vecs)) function(1, __VA_ARGS__, s, row, rows, col, vecs, block);                               \
    else function(0, __VA_ARGS__, s, row, rows, col, vecs, block)

#endif
