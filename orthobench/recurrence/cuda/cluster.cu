/* The recurrence h_t = act(x_t + W h_{t-1}; b) of a few batch rows in a cluster of blocks, all steps in one launch.

   Macros beside those of cluster.cuh: COLUMNS and DEPTH fit n <= 8 CLUSTER LANES COLUMNS and n <= GROUPS DEPTH. KIND is
   the activation's, RESIDUAL the Euler form. Each of `runs` runs has `batch` rows, its own W [n, n] and bias [n].
   Rows of tensors through time are those of run 0, then run 1, and so on. */

#include "activations.cuh"
#include "cluster.cuh"

/* x, states and kept are [steps, rows, n], h0 [rows, n]; `kept` receives act(...) in the Euler form. */
CLUSTER_KERNEL cluster_forward(
    const float *x, const float *weight, const float *h0, const float *bias, float *states, float *kept,
    int steps, int batch, int runs, int n, float step_size, float slope, float epsilon)
{
    SHARED_MEMORY(exchange<DEPTH>, shared);
    const place<COLUMNS, 1> p(batch, n);
    const long long slab = (long long)runs * batch * n, start = p.batch_row * n + p.unit;
    const int bytes = HELD * n * (int)sizeof(float), pass = ROWS * n;
    float w[COLUMNS][DEPTH];
    weight += (long long)p.run * n * n;
    load_matrix(w, p.first, p.group, [&](int unit, int input) {
        return unit < n && input < n ? weight[unit * n + input] : 0.0f;
    });
    shared.start(bytes);
    shared.fill(h0, batch, n);
    const float b = p.has_unit ? bias[p.run * n + p.unit] : 0.0f;
    float h[PASSES], x0[PASSES], x1[PASSES]; /* inputs are fetched two steps ahead */
    x += start;
    states += start;
    kept += start;
    EACH_PASS
    {
        const bool exists = p.has_unit && p.has_row(i, batch);
        h[i] = exists ? h0[start + i * pass] : 0.0f;
        x0[i] = exists ? x[i * pass] : 0.0f;
        x1[i] = exists && steps > 1 ? x[slab + i * pass] : 0.0f;
    }
    cluster_sync();
    if (p.is_idle)
        return;
    for (int t = 0; t < steps; ++t) {
        x += slab;
        EACH_PASS
        {
            const bool loads = p.has_unit && p.has_row(i, batch) && t + 2 < steps;
            const float x2 = loads ? x[slab + i * pass] : 0.0f;
            const float z = product(w, shared.vectors[t & 1] + i * ROWS, p.lane) + x0[i];
            const float u = activate(z, b, slope, epsilon);
            h[i] = RESIDUAL ? fmaf(step_size, u, h[i]) : u;
            if (p.has_unit && t + 1 < steps)
                shared.send((t + 1) & 1, p.local_row + i * ROWS, p.unit, h[i], p.part, p.PARTS);
            if (p.stores(i, batch)) {
                states[i * pass] = h[i];
                if (RESIDUAL)
                    kept[i * pass] = u;
            }
            x0[i] = x1[i];
            x1[i] = x2;
        }
        states += slab;
        kept += slab;
        if (t + 1 < steps)
            shared.receive((t + 1) & 1, t / 2, bytes);
    }
}

/* grad is dL/d(states) [steps, rows, n], or with FINAL dL/d(last state) [rows, n]. saved is act(...) at every step.
   dx is dL/dx, total (with TRACE) dL/dh_t at every step; dh0 and dbias [rows, n]. */
CLUSTER_KERNEL cluster_backward(
    const float *grad, const float *weight, const float *saved, float *dx, float *total, float *dh0, float *dbias,
    int steps, int batch, int runs, int n, float step_size, float slope)
{
    SHARED_MEMORY(exchange<DEPTH>, shared);
    const place<COLUMNS, 1> p(batch, n);
    const long long slab = (long long)runs * batch * n, row = p.batch_row * n + p.unit;
    const long long last = (steps - 1) * slab + row;
    const int bytes = HELD * n * (int)sizeof(float), pass = ROWS * n;
    float w[COLUMNS][DEPTH];
    weight += (long long)p.run * n * n;
    load_matrix(w, p.first, p.group, [&](int unit, int input) {
        return unit < n && input < n ? weight[input * n + unit] : 0.0f;
    });
    shared.start(bytes);
    float g0[PASSES], g1[PASSES], u0[PASSES], u1[PASSES], carry[PASSES], sum[PASSES];
    grad += FINAL ? row : last;
    saved += last;
    dx += last;
    total += last;
    EACH_PASS
    {
        const bool exists = p.has_unit && p.has_row(i, batch), has_second = exists && steps > 1;
        g0[i] = exists ? grad[i * pass] : 0.0f;
        g1[i] = !FINAL && has_second ? grad[i * pass - slab] : 0.0f;
        u0[i] = exists ? saved[i * pass] : 0.0f;
        u1[i] = has_second ? saved[i * pass - slab] : 0.0f;
        carry[i] = sum[i] = 0.0f;
    }
    cluster_sync();
    if (p.is_idle)
        return;
    for (int t = 0; t < steps; ++t) {
        float g[PASSES];
        grad -= slab;
        saved -= slab;
        EACH_PASS
        {
            g[i] = g0[i] + carry[i];
            float db;
            const float dz = activate_backward(RESIDUAL ? step_size * g[i] : g[i], u0[i], slope, &db);
            if (p.has_unit)
                shared.send(t & 1, p.local_row + i * ROWS, p.unit, dz, p.part, p.PARTS);
            if (p.stores(i, batch)) {
                dx[i * pass] = dz;
                if (TRACE)
                    total[i * pass] = g[i];
            }
            sum[i] += db;
            const bool loads = p.has_unit && p.has_row(i, batch) && t + 2 < steps;
            g0[i] = g1[i];
            g1[i] = !FINAL && loads ? grad[i * pass - slab] : 0.0f;
            u0[i] = u1[i];
            u1[i] = loads ? saved[i * pass - slab] : 0.0f;
        }
        dx -= slab;
        total -= slab;
        shared.receive(t & 1, t / 2, bytes);
        EACH_PASS
        {
            carry[i] = product(w, shared.vectors[t & 1] + i * ROWS, p.lane);
            if (RESIDUAL)
                carry[i] += g[i];
        }
    }
    EACH_PASS
    {
        if (p.stores(i, batch)) {
            dh0[row + i * pass] = carry[i];
            dbias[row + i * pass] = sum[i];
        }
    }
}
