/* coRNN: h is y, c is z.
 *
 *     z_t = z_{t-1} + dt (tanh(x_t + W [y_{t-1}; z_{t-1}]) - gamma y_{t-1} - eps z_{t-1})
 *     y_t = y_{t-1} + dt z_t
 *
 * saved, one part: tanh's output. */
#include "weight_sums.h"

/* dense.packed multiplies y; backward it gives both dL/dy and dL/dz. */
struct cornn {
    struct dense dense;
    struct second second;
    float step_size, frequency, damping; /* dt, gamma, eps */
    const float *packed_z;               /* the columns of W that multiply z_{t-1}, packed; forward only */
};

static void cornn_finish_forward(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                 const float *block) {
    COPY_STEP(shared, cornn);
    const int64_t n = p->features, next = p->batch * n;
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = col + v * VL, here = offset(s, row + i, n) + at, local = (row + i) * n + at;
            const int count = lanes(n - at);
            const vf a = hyperbolic_tangent(*(const vf *)(block + (i * 2 + v) * VL) + load(p->x + here, count));
            prefetch(p->x + here, next);
            prefetch(p->h + here, next);
            prefetch(own->second.c + here, next);
            keep(s, 1, saved_at(s, row + i, 1, at), a);
            const vf y = load(s->prev + local, count);
            vf z = load(s->prev_cell + local, count);
            z += own->step_size * (a - own->frequency * y - own->damping * z);
            store(own->second.c + here, z, count);
            store(p->h + here, y + own->step_size * z, count);
        }
}

static void cornn_finish_backward(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                  const float *block) {
    COPY_STEP(shared, cornn);
    const int64_t n = p->features, before = -p->batch * n;
    const float *const arriving_y = arriving(p->grad_h, p->grad_last, s, row, col);
    const float *const arriving_z = arriving(NULL, own->second.grad_c_last, s, row, col);
    const int count = lanes(n - col);
    (void)vecs;
    for (int i = 0; i < rows; i++) {
        const int64_t here = offset(s, row + i, n) + col, local = (row + i) * n + col;
        vf dy = *(const vf *)(block + i * 2 * VL) + load(s->direct + local, count);
        vf dz = *(const vf *)(block + (i * 2 + 1) * VL) + load(s->cell + local, count);
        if (arriving_y) dy += load(arriving_y + i * n, count);
        if (arriving_z) dz += load(arriving_z + i * n, count);
        dz += own->step_size * dy;
        if (s->squares) {
            *(vf *)(s->squares + (row + i) * VL) += dy * dy;
            *(vf *)(s->cell_squares + (row + i) * VL) += dz * dz;
        }
        vf a;
        load_saved(s, row + i, 1, 1, col, &a);
        const vf force = own->step_size * dz;
        prefetch(p->dx + here, before);
        store(p->dx + here, force * tangent_slope(a), count);
        store(s->direct + local, dy - own->frequency * force, count);
        store(s->cell + local, dz - own->damping * force, count);
    }
}

static void cornn_initial_gradient(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                   const float *block) {
    COPY_STEP(shared, cornn);
    const int64_t n = p->features;
    const int count = lanes(n - col);
    (void)vecs;
    for (int i = 0; i < rows; i++) {
        const int64_t local = (row + i) * n + col, at = s->first * n + local;
        store(p->dh0 + at, *(const vf *)(block + i * 2 * VL) + load(s->direct + local, count), count);
        store(own->second.dc0 + at, *(const vf *)(block + (i * 2 + 1) * VL) + load(s->cell + local, count), count);
    }
}

int cornn_forward(const struct cornn *own, int64_t first, int64_t last) {
    const uint64_t denormals = flush_denormals();
    const struct dense *const p = &own->dense;
    const int64_t n = p->features;
    struct step s = {.p = p, .first = first};
    for (s.t = 0; s.t < p->steps; s.t++) {
        s.prev = state_before(p, p->h, p->h0, s.t, first);
        s.prev_cell = state_before(p, own->second.c, own->second.c0, s.t, first);
        const struct operand both[] = {{s.prev, n, n, p->packed}, {s.prev_cell, n, n, own->packed_z}};
        sweep(&s, last - first, both, 2, 1, cornn_finish_forward);
    }
    return end_forward(denormals);
}

int cornn_backward(const struct cornn *own, int64_t first, int64_t last) {
    const struct dense *const p = &own->dense;
    const int64_t n = p->features, rows = last - first;
    struct step s;
    struct sums sums;
    if (!start_backward(&s, &sums, p, first, rows, 2, n, 0)) return 1;
    const uint64_t denormals = flush_denormals();
    for (s.t = p->steps - 1; s.t >= -1; s.t--) {
        const int more = s.t < p->steps - 1;
        const struct operand carried = {dz_at(&sums, p, s.t + 1, first), n, n, p->packed};
        sweep(&s, rows, &carried, more, 2, s.t < 0 ? cornn_initial_gradient : cornn_finish_backward);
        if (s.t >= 0) finish_norms(&s, rows, own->second.c_norms);
    }
    return end_backward(&s, &sums, denormals);
}
