/* GRU with the reset gate before the product, in a cluster of blocks, all steps in one launch: see `operations.gru`.

   Macros beside those of cluster.cuh: FORWARD chooses the pass, DEPTH fits n inputs. A step has two products, one after
   the other: forward those of the gates r and z and of r h_{t-1}, backward those of the candidate's gradient and of the
   gates'. A thread holds two units. */

#include "cluster.cuh"

#if FORWARD

/* x and gates (r, z, g) [steps, rows, 3n], h0 [rows, n], states and reset (r h_{t-1}) [steps, rows, n]; weight [runs,
   3n, n]. */
CLUSTER_KERNEL reset_forward(
    const float *x, const float *weight, const float *h0, float *states, float *reset, float *gates,
    int steps, int batch, int runs, int n)
{
    struct memory {
        exchange<DEPTH> of_h, of_reset;
    };
    SHARED_MEMORY(memory, shared);
    const place<4, 2> p(batch, n); /* r and z of two units */
    constexpr int SAME = p.PARTS / 2; /* lanes that own the same gate */
    const int gate = p.part / SAME, bytes = HELD * n * (int)sizeof(float), pass = ROWS * n;
    const long long slab = (long long)runs * batch * n, start = p.batch_row * n + p.unit;
    const long long wide = start + 2 * p.batch_row * n;
    float w[4][DEPTH], candidate[2][DEPTH];
    weight += (long long)p.run * 3 * n * n;
    load_matrix(w, 2 * p.first, p.group, [&](int column, int input) {
        const int unit = column / 2;
        return unit < n && input < n ? weight[(column % 2 * n + unit) * n + input] : 0.0f;
    });
    load_matrix(candidate, p.first, p.group, [&](int unit, int input) {
        return unit < n && input < n ? weight[(2 * n + unit) * n + input] : 0.0f;
    });
    shared.of_h.start(bytes);
    shared.of_reset.start(bytes);
    shared.of_h.fill(h0, batch, n);
    float h[PASSES], z[PASSES], next_x[PASSES], next_candidate[PASSES];
    const auto fetch = [&](int i, int t) {
        const bool exists = p.has_unit && p.has_row(i, batch) && t < steps;
        const long long at = wide + 3 * (t * slab + i * pass);
        next_x[i] = exists ? x[at + gate * n] : 0.0f;
        next_candidate[i] = exists ? x[at + 2 * n] : 0.0f;
    };
    EACH_PASS
    {
        h[i] = p.has_unit && p.has_row(i, batch) ? h0[start + i * pass] : 0.0f;
        fetch(i, 0);
    }
    cluster_sync();
    if (p.is_idle)
        return;
    for (int t = 0; t < steps; ++t) {
        const long long now = t * slab;
        EACH_PASS
        {
            const float a = sigmoid(product(w, shared.of_h.vectors[t & 1] + i * ROWS, p.lane) + next_x[i]);
            const float other = __shfl_xor_sync(0xffffffffu, a, SAME * LANES);
            const float resetting = (gate ? other : a) * h[i];
            z[i] = gate ? a : other;
            if (p.has_unit)
                shared.of_reset.send(t & 1, p.local_row + i * ROWS, p.unit, resetting, p.part, p.PARTS);
            if (p.has_unit && p.has_row(i, batch) && p.part % SAME == 0) {
                gates[wide + 3 * (now + i * pass) + gate * n] = a;
                if (gate == 0)
                    reset[start + now + i * pass] = resetting;
            }
        }
        shared.of_reset.receive(t & 1, t / 2, bytes);
        EACH_PASS
        {
            const float mixed = product(candidate, shared.of_reset.vectors[t & 1] + i * ROWS, p.lane);
            const float g = tanhf(mixed + next_candidate[i]);
            h[i] = fmaf(z[i], h[i], (1.0f - z[i]) * g);
            if (p.has_unit && t + 1 < steps)
                shared.of_h.send((t + 1) & 1, p.local_row + i * ROWS, p.unit, h[i], p.part, p.PARTS);
            if (p.stores(i, batch)) {
                gates[wide + 3 * (now + i * pass) + 2 * n] = g;
                states[start + now + i * pass] = h[i];
            }
            fetch(i, t + 1);
        }
        if (t + 1 < steps)
            shared.of_h.receive((t + 1) & 1, t / 2, bytes);
    }
}

#else

/* grad is dL/d(states) [steps, rows, n], or with FINAL that of the last [rows, n]. dx [steps, rows, 3n], total (with
   TRACE) [steps, rows, n], dh0 [rows, n]. */
CLUSTER_KERNEL reset_backward(
    const float *grad, const float *weight, const float *gates, const float *states, const float *h0, float *dx,
    float *total, float *dh0, int steps, int batch, int runs, int n)
{
    struct memory {
        exchange<DEPTH> of_candidate;
        exchange<2 * DEPTH> of_gates; /* r and z, unit by unit */
    };
    SHARED_MEMORY(memory, shared);
    const place<2, 1> p(batch, n);
    const int bytes = HELD * n * (int)sizeof(float), pass = ROWS * n;
    const long long slab = (long long)runs * batch * n, row = p.batch_row * n + p.unit;
    const long long wide = row + 2 * p.batch_row * n;
    float w[2][2 * DEPTH], candidate[2][DEPTH];
    weight += (long long)p.run * 3 * n * n;
    load_matrix(w, p.first, p.group, [&](int unit, int input) {
        return unit < n && input / 2 < n ? weight[(input % 2 * n + input / 2) * n + unit] : 0.0f;
    });
    load_matrix(candidate, p.first, p.group, [&](int unit, int input) {
        return unit < n && input < n ? weight[(2 * n + input) * n + unit] : 0.0f;
    });
    shared.of_candidate.start(bytes);
    shared.of_gates.start(2 * bytes);
    float next_grad[PASSES], next_h[PASSES], next_gates[PASSES][3], gh[PASSES];
    /* Fetch what a step needs: its gates and gradient, and the state before it. */
    const auto fetch = [&](int i, int t) {
        const bool exists = p.has_unit && p.has_row(i, batch) && t >= 0;
        const long long at = t * slab + i * pass;
        next_grad[i] = exists && (!FINAL || t == steps - 1) ? grad[row + (FINAL ? i * pass : at)] : 0.0f;
        next_h[i] = !exists ? 0.0f : t ? states[row + at - slab] : h0[row + i * pass];
#pragma unroll
        for (int q = 0; q < 3; ++q)
            next_gates[i][q] = exists ? gates[wide + 3 * at + q * n] : 0.0f;
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
        float dz[PASSES];
        EACH_PASS
        {
            const float z = next_gates[i][1], g = next_gates[i][2];
            gh[i] += next_grad[i];
            const float dg = gh[i] * (1.0f - z) * (1.0f - g * g);
            dz[i] = gh[i] * (next_h[i] - g) * z * (1.0f - z);
            if (p.has_unit)
                shared.of_candidate.send(s & 1, p.local_row + i * ROWS, p.unit, dg, p.part, p.PARTS);
            if (p.stores(i, batch)) {
                const long long at = t * slab + i * pass;
                dx[wide + 3 * at + n] = dz[i];
                dx[wide + 3 * at + 2 * n] = dg;
                if (TRACE)
                    total[row + at] = gh[i];
            }
            gh[i] *= z;
        }
        shared.of_candidate.receive(s & 1, s / 2, bytes);
        EACH_PASS
        {
            const float r = next_gates[i][0];
            const float d_reset = product(candidate, shared.of_candidate.vectors[s & 1] + i * ROWS, p.lane);
            const float dr = d_reset * next_h[i] * r * (1.0f - r);
            if (p.has_unit)
                shared.of_gates.send(
                    s & 1, p.local_row + i * ROWS, 2 * p.unit, make_float2(dr, dz[i]), p.part, p.PARTS);
            if (p.stores(i, batch))
                dx[wide + 3 * (t * slab + i * pass)] = dr;
            gh[i] = fmaf(d_reset, r, gh[i]);
            fetch(i, t - 1);
        }
        shared.of_gates.receive(s & 1, s / 2, 2 * bytes);
        EACH_PASS gh[i] += product(w, shared.of_gates.vectors[s & 1] + i * ROWS, p.lane);
    }
    EACH_PASS
    {
        if (p.stores(i, batch))
            dh0[row + i * pass] = gh[i];
    }
}

#endif
