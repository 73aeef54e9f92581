/* LEM: h is y, c is z. With the step lengths a = dt sigmoid(x_t + W y_{t-1}) of each state, and o the elementwise
 * product:
 *
 *     z_t = (1 - a_z) o z_{t-1} + a_z o tanh(x_t + W y_{t-1})
 *     y_t = (1 - a_y) o y_{t-1} + a_y o tanh(x_t + W z_t)
 *
 * saved, four parts: z's gate and candidate, y's gate and candidate, after their functions. */
#include "weight_sums.h"

/* dense.packed multiplies y. */
struct lem {
    struct dense dense;
    struct second second;
    float step_size;                      /* dt */
    const float *packed_candidate;        /* the rows of W that multiply z_t, packed; backward transposed */
    const float *packed_candidate_inputs; /* U's rows for these, packed, or NULL */
};

/* The next state, as in the definition: the difference of candidate and state would turn infinity into NaN. */
INLINE vf lem_step(float step_size, vf state, vf gate, vf candidate) {
    const vf length = step_size * gate;
    return mixture(1.0f - length, state, length, candidate);
}

static void lem_finish_z(const struct step *shared, int64_t row, int rows, int64_t col, int vecs, const float *block) {
    COPY_STEP(shared, lem);
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
        prefetch(own->second.c + out, p->batch * n);
        store(own->second.c + out, lem_step(own->step_size, z, parts[0], parts[1]), count);
    }
}

static void lem_finish_y(const struct step *shared, int64_t row, int rows, int64_t col, int vecs, const float *block) {
    COPY_STEP(shared, lem);
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
            store(p->h + out, lem_step(own->step_size, y, gate, candidate), count);
        }
}

int lem_forward(const struct lem *own, int64_t first, int64_t last) {
    const uint64_t denormals = flush_denormals();
    const struct dense *const p = &own->dense;
    const int64_t n = p->features, rows = last - first;
    struct step s = {.p = p, .first = first, .gate = zeros(rows * n)};
    if (!s.gate) return 1;
    for (s.t = 0; s.t < p->steps; s.t++) {
        s.prev = state_before(p, p->h, p->h0, s.t, first);
        s.prev_cell = state_before(p, own->second.c, own->second.c0, s.t, first);
        forward_sweep(&s, rows, s.prev, p->packed, p->packed_inputs, 3, lem_finish_z);
        const float *const z = own->second.c + offset(&s, 0, n);
        forward_sweep(&s, rows, z, own->packed_candidate, own->packed_candidate_inputs, 1, lem_finish_y);
    }
    free(s.gate);
    return end_forward(denormals);
}

/* The derivatives by the gate and the candidate of a state, parts `part` and `part` + 1, before their functions, from
 * g = dL/d(state). What of g goes on to the state before is returned. */
INLINE vf lem_differentiate(const struct step *s, float step_size, int64_t row, int64_t part, int64_t col, vf g,
                            const float *state_before, int count) {
    const struct dense *p = s->p;
    const int64_t n = p->features, before = -p->batch * n, at = part * n + col, here = offset(s, row, 4 * n) + at;
    vf saved[2];
    load_saved(s, row, 2, 4, part * padded(n) + col, saved);
    const vf gate = saved[0], candidate = saved[1], length = step_size * gate, by_length = length * g;
    prefetch(state_before, before);
    for (int i = 0; i < 2 && p->dx; i++) prefetch(p->dx + here + i * n, 4 * before);
    store_dz(s, row, here, at, by_length * (candidate - load(state_before, count)) * (1.0f - gate), count);
    store_dz(s, row, here + n, at + n, by_length * tangent_slope(candidate), count);
    return (1.0f - length) * g;
}

static void lem_finish_backward_y(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                  const float *block) {
    COPY_STEP(shared, lem);
    const int64_t n = p->features;
    const float *const arriving_y = arriving(p->grad_h, p->grad_last, s, row, col);
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL, local = (row + i) * n + at;
            const int count = lanes(n - at);
            vf dy = *(const vf *)(block + (i * 2 + v) * VL) + load(s->direct + local, count);
            if (arriving_y) dy += load(arriving_y + i * n + v * VL, count);
            if (s->squares) *(vf *)(s->squares + (row + i) * VL) += dy * dy;
            dy = lem_differentiate(s, own->step_size, row + i, 2, at, dy, s->prev + local, count);
            store(s->direct + local, dy, count);
        }
}

/* block: dL/dz_t that came through y_t. */
static void lem_finish_backward_z(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                  const float *block) {
    COPY_STEP(shared, lem);
    const int64_t n = p->features;
    const float *const arriving_z = arriving(NULL, own->second.grad_c_last, s, row, col);
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL, local = (row + i) * n + at;
            const int count = lanes(n - at);
            vf dz = *(const vf *)(block + (i * 2 + v) * VL) + load(s->cell + local, count);
            if (arriving_z) dz += load(arriving_z + i * n + v * VL, count);
            if (s->squares) *(vf *)(s->cell_squares + (row + i) * VL) += dz * dz;
            dz = lem_differentiate(s, own->step_size, row + i, 0, at, dz, s->prev_cell + local, count);
            store(s->cell + local, dz, count);
        }
}

int lem_backward(const struct lem *own, int64_t first, int64_t last) {
    const struct dense *const p = &own->dense;
    const int64_t n = p->features, rows = last - first;
    struct step s;
    struct sums sums;
    if (!start_backward(&s, &sums, p, first, rows, 2, 4 * n, 0)) return 1;
    sums.sources[0].last = 3 * n;
    sums.sources[1] = (struct source){3 * n, 4 * n, 0, n + p->inputs, own->second.c, NULL};
    sums.count = 2;
    const uint64_t denormals = flush_denormals();
    s.fetching = 3 * n < FAR;
    for (s.t = p->steps - 1; s.t >= -1; s.t--) {
        const int more = s.t < p->steps - 1;
        const struct operand carried = {dz_at(&sums, p, s.t + 1, first), sums.row, 3 * n, p->packed};
        if (s.t >= 0) {
            s.prev = state_before(p, p->h, p->h0, s.t, first);
            s.prev_cell = state_before(p, own->second.c, own->second.c0, s.t, first);
            s.dz = dz_at(&sums, p, s.t, first);
        }
        fetch_saved(&s, rows, 4);
        sweep(&s, rows, &carried, more, 1, s.t < 0 ? initial_gradient : lem_finish_backward_y);
        s.fetch = NULL;
        if (s.t < 0) break;
        const struct operand by_z = {s.dz + 3 * n, sums.row, n, own->packed_candidate};
        sweep(&s, rows, &by_z, 1, 1, lem_finish_backward_z);
        finish_norms(&s, rows, own->second.c_norms);
        add_products(&sums, p, s.t, first);
    }
    memcpy(own->second.dc0 + first * n, s.cell, (size_t)(rows * n) * 4);
    return end_backward(&s, &sums, denormals);
}
