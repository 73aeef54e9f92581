/* GRU with the reset gate after the product, in a cluster of blocks, all steps in one launch: see `operations.gru`.

   Macros beside those of cluster.cuh: FORWARD chooses the pass, DEPTH fits the inputs of a product. A unit has four
   columns as in cluster_lstm.cu: those of r, z and the candidate, and a column of zeros. */

#include "cluster.cuh"

#if FORWARD

/* x [steps, rows, 3n], h0 [rows, n], bias [runs, n], states [steps, rows, n]; weight [runs, 3n, n]. gates [steps, rows,
   4n] receives r, z, the candidate g and its recurrent part q. */
CLUSTER_KERNEL gru_forward(
    const float *x, const float *weight, const float *h0, const float *bias, float *states, float *gates,
    int steps, int batch, int runs, int n)
{
    SHARED_MEMORY(exchange<DEPTH>, shared);
    const place<4, 4> p(batch, n);
    constexpr int SAME = p.PARTS / 4; /* lanes that own the same column */
    const int gate = p.part / SAME, bytes = HELD * n * (int)sizeof(float), pass = ROWS * n;
    const long long slab = (long long)runs * batch * n, start = p.batch_row * n + p.unit;
    float w[4][DEPTH];
    weight += (long long)p.run * 3 * n * n;
    load_matrix(w, 4 * p.first, p.group, [&](int column, int input) {
        const int unit = column / 4;
        return column % 4 < 3 && unit < n && input < n ? weight[(column % 4 * n + unit) * n + input] : 0.0f;
    });
    shared.start(bytes);
    shared.fill(h0, batch, n);
    /* The lane of the recurrent part adds the bias; the candidate's input is that of the column of zeros. */
    const bool has_input = p.has_unit && gate != 2;
    const float b = p.has_unit && gate == 2 ? bias[p.run * n + p.unit] : 0.0f;
    float h[PASSES], x0[PASSES], x1[PASSES]; /* inputs are fetched two steps ahead */
    x += p.batch_row * 3 * n + (gate < 2 ? gate : 2) * n + p.unit;
    gates += p.batch_row * 4 * n + gate * n + p.unit;
    EACH_PASS
    {
        const bool exists = p.has_row(i, batch);
        h[i] = exists && p.has_unit ? h0[start + i * pass] : 0.0f;
        x0[i] = exists && has_input ? x[3 * i * pass] : b;
        x1[i] = exists && has_input && steps > 1 ? x[3 * (slab + i * pass)] : b;
    }
    cluster_sync();
    if (p.is_idle)
        return;
    for (int t = 0; t < steps; ++t) {
        const long long now = t * slab;
        EACH_PASS
        {
            const bool exists = p.has_row(i, batch);
            const float x2 = exists && has_input && t + 2 < steps ? x[3 * (now + 2 * slab + i * pass)] : b;
            const float sum = product(w, shared.vectors[t & 1] + i * ROWS, p.lane) + x0[i];
            const float a = gate < 2 ? sigmoid(sum) : sum;
            float all[4];
#pragma unroll
            for (int q = 0; q < 4; ++q)
                all[q] = __shfl_sync(0xffffffffu, a, p.lane + (q - gate) * SAME * LANES);
            const float g = tanhf(fmaf(all[0], all[2], all[3]));
            h[i] = fmaf(all[1], h[i], (1.0f - all[1]) * g);
            if (p.has_unit && t + 1 < steps)
                shared.send((t + 1) & 1, p.local_row + i * ROWS, p.unit, h[i], p.part, p.PARTS);
            if (exists && p.has_unit && p.part % SAME == 0) {
                gates[4 * (now + i * pass)] = gate == 2 ? g : gate == 3 ? all[2] : a;
                if (gate == 0)
                    states[start + now + i * pass] = h[i];
            }
            x0[i] = x1[i];
            x1[i] = x2;
        }
        if (t + 1 < steps)
            shared.receive((t + 1) & 1, t / 2, bytes);
    }
}

#else

/* grad is dL/d(states) [steps, rows, n], or with FINAL that of the last [rows, n]. dx is dL/dx and mixed is
   dL/d(W h_{t-1}), both [steps, rows, 3n]; total (with TRACE) [steps, rows, n], dh0 [rows, n]. */
CLUSTER_KERNEL gru_backward(
    const float *grad, const float *weight, const float *gates, const float *states, const float *h0, float *dx,
    float *mixed, float *total, float *dh0, int steps, int batch, int runs, int n)
{
    SHARED_MEMORY(exchange<DEPTH>, shared);
    const place<4, 1> p(batch, n);
    const int bytes = 4 * HELD * n * (int)sizeof(float), pass = ROWS * n;
    const long long slab = (long long)runs * batch * n, row = p.batch_row * n + p.unit, more = p.batch_row * n;
    float w[4][DEPTH];
    weight += (long long)p.run * 3 * n * n;
    load_matrix(w, p.first, p.group, [&](int unit, int input) {
        const bool exists = unit < n && input / 4 < n && input % 4 < 3;
        return exists ? weight[(input % 4 * n + input / 4) * n + unit] : 0.0f;
    });
    shared.start(bytes);
    float next_grad[PASSES], next_h[PASSES], next_gates[PASSES][4], gh[PASSES];
    /* Fetch what a step needs: its gates and gradient, and the state before it. */
    const auto fetch = [&](int i, int t) {
        const bool exists = p.has_unit && p.has_row(i, batch) && t >= 0;
        const long long at = t * slab + i * pass;
        next_grad[i] = exists && (!FINAL || t == steps - 1) ? grad[row + (FINAL ? i * pass : at)] : 0.0f;
        next_h[i] = !exists ? 0.0f : t ? states[row + at - slab] : h0[row + i * pass];
#pragma unroll
        for (int q = 0; q < 4; ++q)
            next_gates[i][q] = exists ? gates[row + 3 * more + 4 * at + q * n] : 0.0f;
    };
    EACH_PASS
    {
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
            const float r = gate[0], z = gate[1], g = gate[2], q = gate[3];
            gh[i] += next_grad[i];
            const float dg = gh[i] * (1.0f - z) * (1.0f - g * g), dr = dg * q * r * (1.0f - r);
            const float dz = gh[i] * (next_h[i] - g) * z * (1.0f - z);
            if (p.has_unit) {
                const float4 d = make_float4(dr, dz, dg * r, 0.0f);
                shared.send(s & 1, p.local_row + i * ROWS, 4 * p.unit, d, p.part, p.PARTS);
            }
            if (p.stores(i, batch)) {
                const long long at = t * slab + i * pass, wide = row + 2 * more + 3 * at;
                dx[wide] = mixed[wide] = dr;
                dx[wide + n] = mixed[wide + n] = dz;
                dx[wide + 2 * n] = dg;
                mixed[wide + 2 * n] = dg * r;
                if (TRACE)
                    total[row + at] = gh[i];
            }
            gh[i] *= z;
            fetch(i, t - 1);
        }
        shared.receive(s & 1, s / 2, bytes);
        EACH_PASS gh[i] += product(w, shared.vectors[s & 1] + i * ROWS, p.lane);
    }
    EACH_PASS
    {
        if (p.stores(i, batch))
            dh0[row + i * pass] = gh[i];
    }
}

#endif
