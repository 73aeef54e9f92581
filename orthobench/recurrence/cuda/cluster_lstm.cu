/* LSTM of a few batch rows in a cluster of blocks, all steps in one launch: see `operations.lstm` for its equations.

   Macros beside those of cluster.cuh: FORWARD chooses the pass, DEPTH fits the inputs of a product. Forward, a thread
   holds the four gates of a unit, and the product has n inputs. Backward, the inputs are the gates' gradients, unit by
   unit: four numbers for each, which a thread pushes at once. */

#include "cluster.cuh"

#if FORWARD

/* x and gates [steps, rows, 4n], h0 and c0 [rows, n], states and cells [steps, rows, n]; weight [runs, 4n, n]. */
CLUSTER_KERNEL lstm_forward(
    const float *x, const float *weight, const float *h0, const float *c0, float *states, float *cells, float *gates,
    int steps, int batch, int runs, int n)
{
    SHARED_MEMORY(exchange<DEPTH>, shared);
    const place<4, 4> p(batch, n);
    constexpr int SAME = p.PARTS / 4; /* lanes that own the same gate */
    const int gate = p.part / SAME, bytes = HELD * n * (int)sizeof(float), pass = ROWS * n;
    const long long slab = (long long)runs * batch * n, start = p.batch_row * n + p.unit;
    float w[4][DEPTH];
    weight += (long long)p.run * 4 * n * n;
    load_matrix(w, 4 * p.first, p.group, [&](int column, int input) {
        const int unit = column / 4;
        return unit < n && input < n ? weight[(column % 4 * n + unit) * n + input] : 0.0f;
    });
    shared.start(bytes);
    shared.fill(h0, batch, n);
    const long long wide = p.batch_row * 4 * n + gate * n + p.unit;
    float c[PASSES], x0[PASSES], x1[PASSES]; /* inputs are fetched two steps ahead */
    x += wide;
    gates += wide;
    float *const results = (gate ? cells : states) + start;
    EACH_PASS
    {
        const bool exists = p.has_unit && p.has_row(i, batch);
        c[i] = exists ? c0[start + i * pass] : 0.0f;
        x0[i] = exists ? x[4 * i * pass] : 0.0f;
        x1[i] = exists && steps > 1 ? x[4 * (slab + i * pass)] : 0.0f;
    }
    cluster_sync();
    if (p.is_idle)
        return;
    for (int t = 0; t < steps; ++t) {
        const long long now = t * slab;
        EACH_PASS
        {
            const bool exists = p.has_unit && p.has_row(i, batch);
            const float x2 = exists && t + 2 < steps ? x[4 * (now + 2 * slab + i * pass)] : 0.0f;
            const float z = product(w, shared.vectors[t & 1] + i * ROWS, p.lane) + x0[i];
            const float a = gate == 2 ? tanhf(z) : sigmoid(z);
            float all[4];
#pragma unroll
            for (int q = 0; q < 4; ++q)
                all[q] = __shfl_sync(0xffffffffu, a, p.lane + (q - gate) * SAME * LANES);
            c[i] = fmaf(all[1], c[i], all[0] * all[2]);
            const float h = all[3] * tanhf(c[i]);
            if (p.has_unit && t + 1 < steps)
                shared.send((t + 1) & 1, p.local_row + i * ROWS, p.unit, h, p.part, p.PARTS);
            if (exists && p.part % SAME == 0) {
                gates[4 * (now + i * pass)] = a;
                if (gate < 2)
                    results[now + i * pass] = gate ? c[i] : h;
            }
            x0[i] = x1[i];
            x1[i] = x2;
        }
        if (t + 1 < steps)
            shared.receive((t + 1) & 1, t / 2, bytes);
    }
}

#else

/* grad_h is dL/d(states) [steps, rows, n], or with FINAL that of the last [rows, n]; grad_c [rows, n] is that of the
   last cells. dx [steps, rows, 4n], total_h and total_c (with TRACE) [steps, rows, n], dh0 and dc0 [rows, n]. */
CLUSTER_KERNEL lstm_backward(
    const float *grad_h, const float *grad_c, const float *weight, const float *gates, const float *cells,
    const float *c0, float *dx, float *total_h, float *total_c, float *dh0, float *dc0,
    int steps, int batch, int runs, int n)
{
    SHARED_MEMORY(exchange<DEPTH>, shared);
    const place<4, 1> p(batch, n);
    const int bytes = 4 * HELD * n * (int)sizeof(float), pass = ROWS * n;
    const long long slab = (long long)runs * batch * n, row = p.batch_row * n + p.unit;
    const long long wide = row + 3 * p.batch_row * n, last = (steps - 1) * slab;
    float w[4][DEPTH];
    weight += (long long)p.run * 4 * n * n;
    load_matrix(w, p.first, p.group, [&](int unit, int input) {
        return unit < n && input / 4 < n ? weight[(input % 4 * n + input / 4) * n + unit] : 0.0f;
    });
    shared.start(bytes);
    float next_grad[PASSES], next_c[PASSES], next_gates[PASSES][4], c[PASSES], gh[PASSES], gc[PASSES];
    /* Fetch what a step needs: its gates and gradient, and the cell before it. */
    const auto fetch = [&](int i, int t) {
        const bool exists = p.has_unit && p.has_row(i, batch) && t >= 0;
        const long long at = t * slab + i * pass;
        next_grad[i] = exists && (!FINAL || t == steps - 1) ? grad_h[row + (FINAL ? i * pass : at)] : 0.0f;
        next_c[i] = !exists ? 0.0f : t ? cells[row + at - slab] : c0[row + i * pass];
#pragma unroll
        for (int q = 0; q < 4; ++q)
            next_gates[i][q] = exists ? gates[wide + 4 * at + q * n] : 0.0f;
    };
    EACH_PASS
    {
        const bool exists = p.has_unit && p.has_row(i, batch);
        c[i] = exists ? cells[row + last + i * pass] : 0.0f;
        gc[i] = exists ? grad_c[row + i * pass] : 0.0f;
        gh[i] = 0.0f;
        fetch(i, steps - 1);
    }
    cluster_sync();
    if (p.is_idle)
        return;
    for (int s = 0; s < steps; ++s) {
        const int t = steps - 1 - s;
        EACH_PASS
        {
            const float *gate = next_gates[i];
            const float input = gate[0], forget = gate[1], candidate = gate[2], output = gate[3];
            const float before = next_c[i], squashed = tanhf(c[i]);
            gh[i] += next_grad[i];
            gc[i] += gh[i] * output * (1.0f - squashed * squashed);
            const float4 d = make_float4(
                gc[i] * candidate * input * (1.0f - input), gc[i] * before * forget * (1.0f - forget),
                gc[i] * input * (1.0f - candidate * candidate), gh[i] * squashed * output * (1.0f - output));
            if (p.has_unit)
                shared.send(s & 1, p.local_row + i * ROWS, 4 * p.unit, d, p.part, p.PARTS);
            if (p.stores(i, batch)) {
                const long long at = t * slab + i * pass;
                float *const to = dx + wide + 4 * at;
                to[0] = d.x;
                to[n] = d.y;
                to[2 * n] = d.z;
                to[3 * n] = d.w;
                if (TRACE) {
                    total_h[row + at] = gh[i];
                    total_c[row + at] = gc[i];
                }
            }
            gc[i] *= forget;
            c[i] = before;
            fetch(i, t - 1);
        }
        shared.receive(s & 1, s / 2, bytes);
        EACH_PASS gh[i] = product(w, shared.vectors[s & 1] + i * ROWS, p.lane);
    }
    EACH_PASS
    {
        if (p.stores(i, batch)) {
            dh0[row + i * pass] = gh[i];
            dc0[row + i * pass] = gc[i];
        }
    }
}

#endif
