/* The recurrence h_t = act(x_t + W h_{t-1}; b) of one batch row in one block, all steps in one launch, in float32.
   A launch may have several runs, each with its own W and b: block r * batch + i has row i of run r.

   W stays in registers: a thread holds COLUMNS units with a quarter of their inputs (DEPTH). A warp has four groups of
   eight lanes, and the groups' partial sums are folded by three shuffles. Group c then finishes the units of column c.
   The state passes from step to step through shared memory in two buffers, so a step has one barrier.

   nvrtc_row.py compiles this file for each form. COLUMNS and DEPTH fit n <= 64 COLUMNS and n <= 4 DEPTH. KIND is the
   activation's, RESIDUAL the Euler form. Tests compile the same text with g++ and a thread for each lane. */

#include "activations.cuh"
#include "fold.cuh"

#define GROUPS 4
#define LANES 8
#define WARPS 8
#define THREADS (32 * WARPS)
/* An odd number of quadruples apart, the groups read different banks. */
#define STRIDE (DEPTH / 4 % 2 ? DEPTH : DEPTH + 4)

/* The place of a thread: its group, its first unit, and the unit that it finishes. */
struct place {
    int group, first, unit, slot;
    bool owns;
};

static __device__ __forceinline__ place place_of(int thread, int n)
{
    place p;
    const int warp = thread / 32, lane = thread % 32;
    p.group = lane / LANES;
    p.first = warp * LANES * COLUMNS + lane % LANES;
    p.unit = p.first + LANES * p.group;
    p.owns = p.group < COLUMNS && p.unit < n;
    p.slot = p.unit / DEPTH * STRIDE + p.unit % DEPTH;
    return p;
}

/* The sum over all inputs for the unit that the thread finishes; `vector` starts at the group's inputs. */
static __device__ __forceinline__ float product(const float (&w)[COLUMNS][DEPTH], const float *vector, int group)
{
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const float4 *quadruples = (const float4 *)vector;
#pragma unroll
    for (int q = 0; q < DEPTH / 4; ++q) {
        const float4 v = quadruples[q];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            sum[c] = fmaf(w[c][4 * q], v.x, sum[c]);
            sum[c] = fmaf(w[c][4 * q + 1], v.y, sum[c]);
            sum[c] = fmaf(w[c][4 * q + 2], v.z, sum[c]);
            sum[c] = fmaf(w[c][4 * q + 3], v.w, sum[c]);
        }
    }
    const bool upper = group & 2, odd = group & 1;
    return fold(odd, fold(upper, sum[0], sum[2], 16), fold(upper, sum[1], sum[3], 16), 8);
}

/* W[unit, input] of the thread's units: `unit_stride` and `input_stride` turn W for the backward pass. */
static __device__ __forceinline__ void load_matrix(
    float (&w)[COLUMNS][DEPTH], const float *weight, const place &p, int n, int unit_stride, int input_stride)
{
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c)
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            const int unit = p.first + LANES * c, input = p.group * DEPTH + k;
            w[c][k] = unit < n && input < n ? weight[unit * unit_stride + input * input_stride] : 0.0f;
        }
}

/* Of each run, x, states and kept are [steps, batch, n], h0 [batch, n], bias [n]. `kept` receives act(...) in the Euler
   form. */
extern "C" __global__ void __launch_bounds__(THREADS, 1) row_forward(
    const float *x, const float *weight, const float *h0, const float *bias, float *states, float *kept,
    int steps, int batch, int n, float step_size, float slope, float epsilon)
{
    __shared__ __align__(16) float vectors[2][GROUPS * STRIDE];
    const int thread = (int)threadIdx.x;
    const place p = place_of(thread, n);
    const int run = (int)blockIdx.x / batch;
    const long long slab = (long long)batch * n;
    const long long row = (long long)blockIdx.x * n + p.unit, start = row + run * (steps - 1) * slab;
    float w[COLUMNS][DEPTH];
    load_matrix(w, weight + (long long)run * n * n, p, n, n, 1);
    for (int i = thread; i < 2 * GROUPS * STRIDE; i += THREADS)
        (&vectors[0][0])[i] = 0.0f;
    __syncthreads();
    float h = 0.0f, b = 0.0f, x0 = 0.0f, x1 = 0.0f; /* inputs are fetched two steps ahead */
    if (p.owns) {
        h = h0[row];
        b = bias[(long long)run * n + p.unit];
        x0 = x[start];
        x1 = steps > 1 ? x[start + slab] : 0.0f;
        vectors[0][p.slot] = h;
    }
    const float *ahead = x + start + 2 * slab;
    states += start;
    kept += start;
    __syncthreads();
    for (int t = 0; t < steps; ++t) {
        const float x2 = p.owns && t + 2 < steps ? *ahead : 0.0f;
        ahead += slab;
        const float z = product(w, vectors[t & 1] + p.group * STRIDE, p.group) + x0;
        const float u = activate(z, b, slope, epsilon);
        h = RESIDUAL ? fmaf(step_size, u, h) : u;
        if (p.owns) {
            vectors[(t + 1) & 1][p.slot] = h;
            *states = h;
            if (RESIDUAL)
                *kept = u;
        }
        states += slab;
        kept += slab;
        x0 = x1;
        x1 = x2;
        __syncthreads();
    }
}

/* Of each run, grad is dL/d(states) [steps, batch, n], or with FINAL dL/d(last state) [batch, n]. saved is act(...) at
   every step. dx is dL/dx, total (with TRACE) dL/dh_t at every step; dh0 and dbias [batch, n]. */
extern "C" __global__ void __launch_bounds__(THREADS, 1) row_backward(
    const float *grad, const float *weight, const float *saved, float *dx, float *total, float *dh0, float *dbias,
    int steps, int batch, int n, float step_size, float slope)
{
    __shared__ __align__(16) float vectors[2][GROUPS * STRIDE];
    const int thread = (int)threadIdx.x;
    const place p = place_of(thread, n);
    const int run = (int)blockIdx.x / batch;
    const long long slab = (long long)batch * n;
    const long long row = (long long)blockIdx.x * n + p.unit, last = row + (run + 1) * (steps - 1) * slab;
    float w[COLUMNS][DEPTH];
    load_matrix(w, weight + (long long)run * n * n, p, n, 1, n);
    for (int i = thread; i < 2 * GROUPS * STRIDE; i += THREADS)
        (&vectors[0][0])[i] = 0.0f;
    float g0 = 0.0f, g1 = 0.0f, u0 = 0.0f, u1 = 0.0f, carry = 0.0f, sum = 0.0f;
    if (p.owns) {
        g0 = grad[FINAL ? row : last];
        g1 = !FINAL && steps > 1 ? grad[last - slab] : 0.0f;
        u0 = saved[last];
        u1 = steps > 1 ? saved[last - slab] : 0.0f;
    }
    const float *next_grad = grad + last - 2 * slab, *next_saved = saved + last - 2 * slab;
    dx += last;
    total += last;
    __syncthreads();
    for (int t = 0; t < steps; ++t) {
        const bool loads = p.owns && t + 2 < steps;
        const float g2 = !FINAL && loads ? *next_grad : 0.0f, u2 = loads ? *next_saved : 0.0f;
        next_grad -= slab;
        next_saved -= slab;
        const float g = g0 + carry;
        float db;
        const float dz = activate_backward(RESIDUAL ? step_size * g : g, u0, slope, &db);
        if (p.owns) {
            vectors[t & 1][p.slot] = dz;
            *dx = dz;
            if (TRACE)
                *total = g;
        }
        dx -= slab;
        total -= slab;
        sum += db;
        __syncthreads();
        carry = product(w, vectors[t & 1] + p.group * STRIDE, p.group);
        if (RESIDUAL)
            carry += g;
        g0 = g1;
        g1 = g2;
        u0 = u1;
        u1 = u2;
    }
    if (p.owns) {
        dh0[row] = carry;
        dbias[row] = sum;
    }
}
