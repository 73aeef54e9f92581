/* LSTM, with the gates i, f, g, o of z = x_t + W h_{t-1} and o the elementwise product:
 *
 *     c_t = sigmoid(z_f) o c_{t-1} + sigmoid(z_i) o tanh(z_g)
 *     h_t = sigmoid(z_o) o tanh(c_t)
 *
 * saved, four parts: the gates i, f, g, o after their functions. */
#include "weight_sums.h"

struct lstm {
    struct dense dense;
    struct second second;
};

static void lstm_finish_forward(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                const float *block) {
    COPY_STEP(shared, lstm);
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
        const vf c = mixture(gates[1], load(s->prev_cell + (row + i) * n + col, count), gates[0], gates[2]);
        prefetch(own->second.c + out, p->batch * n);
        prefetch(p->h + out, p->batch * n);
        store(own->second.c + out, c, count);
        store(p->h + out, gates[3] * hyperbolic_tangent(c), count);
    }
}

static void lstm_finish_backward(const struct step *shared, int64_t row, int rows, int64_t col, int vecs,
                                 const float *block) {
    COPY_STEP(shared, lstm);
    const int64_t n = p->features, before = -p->batch * n;
    const float *const arriving_h = arriving(p->grad_h, p->grad_last, s, row, col);
    const float *const arriving_c = arriving(NULL, own->second.grad_c_last, s, row, col);
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
            const vf squashed = hyperbolic_tangent(load(own->second.c + offset(s, row + i, n) + at, count));
            dc += dh * output * tangent_slope(squashed);
            if (s->squares) {
                *(vf *)(s->squares + (row + i) * VL) += dh * dh;
                *(vf *)(s->cell_squares + (row + i) * VL) += dc * dc;
            }
            const vf dz[] = {
                dc * g * input * (1.0f - input),
                dc * load(s->prev_cell + local, count) * forget * (1.0f - forget),
                dc * input * tangent_slope(g),
                dh * squashed * output * (1.0f - output),
            };
            for (int gate = 0; gate < 4; gate++) store_dz(s, row + i, here + gate * n, at + gate * n, dz[gate], count);
            store(s->cell + local, dc * forget, count);
        }
}

int lstm_forward(const struct lstm *own, int64_t first, int64_t last) {
    const uint64_t denormals = flush_denormals();
    const struct dense *const p = &own->dense;
    struct step s = {.p = p, .first = first};
    for (s.t = 0; s.t < p->steps; s.t++) {
        s.prev = state_before(p, p->h, p->h0, s.t, first);
        s.prev_cell = state_before(p, own->second.c, own->second.c0, s.t, first);
        forward_sweep(&s, last - first, s.prev, p->packed, p->packed_inputs, 4, lstm_finish_forward);
    }
    return end_forward(denormals);
}

int lstm_backward(const struct lstm *own, int64_t first, int64_t last) {
    const struct dense *const p = &own->dense;
    const int64_t n = p->features, rows = last - first;
    struct step s;
    struct sums sums;
    if (!start_backward(&s, &sums, p, first, rows, 2, 4 * n, 0)) return 1;
    const uint64_t denormals = flush_denormals();
    s.fetching = 4 * n < FAR;
    for (s.t = p->steps - 1; s.t >= -1; s.t--) {
        const int more = s.t < p->steps - 1;
        const struct operand carried = {dz_at(&sums, p, s.t + 1, first), sums.row, 4 * n, p->packed};
        if (s.t >= 0) {
            s.prev_cell = state_before(p, own->second.c, own->second.c0, s.t, first);
            s.dz = dz_at(&sums, p, s.t, first);
        }
        fetch_saved(&s, rows, 4);
        sweep(&s, rows, &carried, more, 1, s.t < 0 ? initial_gradient : lstm_finish_backward);
        if (s.t < 0) break;
        finish_norms(&s, rows, own->second.c_norms);
        add_products(&sums, p, s.t, first);
    }
    memcpy(own->second.dc0 + first * n, s.cell, (size_t)(rows * n) * 4);
    return end_backward(&s, &sums, denormals);
}
