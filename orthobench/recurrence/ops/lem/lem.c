/* LEM: h is y, c is z. With the step lengths a = dt sigmoid(x_t + W y_{t-1}) of each state, and o the elementwise
 * product:
 *
 *     z_t = (1 - a_z) o z_{t-1} + a_z o tanh(x_t + W y_{t-1})
 *     y_t = (1 - a_y) o y_{t-1} + a_y o tanh(x_t + W z_t)
 *
 * saved, four parts: z's gate and candidate, y's gate and candidate, after their functions. packed multiplies y,
 * packed_candidate z. */
#include "weight_sums.h"

/* The next state, as in the definition: the difference of candidate and state would turn infinity into NaN. */
INLINE vf lem_step(const struct problem *p, vf state, vf gate, vf candidate) {
    const vf length = p->step_size * gate;
    return (1.0f - length) * state + length * candidate;
}

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
        store(p->c + out, lem_step(p, z, parts[0], parts[1]), count);
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
            store(p->h + out, lem_step(p, y, gate, candidate), count);
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
    const vf gate = saved[0], candidate = saved[1], length = p->step_size * gate, by_length = length * g;
    prefetch(state_before, before);
    for (int i = 0; i < 2 && p->dx; i++) prefetch(p->dx + here + i * n, 4 * before);
    store_dz(s, row, here, at, by_length * (candidate - load(state_before, count)) * (1.0f - gate), count);
    store_dz(s, row, here + n, at + n, by_length * tangent_slope(candidate), count);
    return (1.0f - length) * g;
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
