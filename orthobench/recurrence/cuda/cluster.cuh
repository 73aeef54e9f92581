/* Shared by the cluster kernels: CLUSTER blocks run all steps of ROWS x PASSES batch rows, in float32.

   W stays in the registers of the cluster. A warp has GROUPS groups of lanes, which share the inputs of a product; a
   thread holds a few columns (outputs) with its group's inputs. Shuffles fold the groups' partial sums, so that a lane
   owns one column of one row. Its owner pushes a result into the shared memory of every block.

   A push announces its bytes to the receiver's barrier in shared memory, so no step waits for a barrier of the cluster
   or a memory fence. Two buffers suffice: a block has all bytes of an exchange only after every warp of the cluster has
   pushed its own, which it does after its last read of the other buffer. Warps without a column leave before the first
   step: a warp that pushes nothing could fall behind.

   nvrtc_cluster.py gives the macros CLUSTER, GROUPS, ROWS, PASSES. Tests emulate the functions of the first section. */
#pragma once
#include "fold.cuh"

#ifndef EMULATED
#define SHARED_MEMORY(type, name) __shared__ type name

static __device__ __forceinline__ int cluster_rank() { return (int)__clusterRelativeBlockRank(); }

static __device__ __forceinline__ void cluster_sync()
{
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
}

/* A barrier that a number of bytes completes: one phase an exchange. */
struct arrival {
    unsigned long long state;

    __device__ __forceinline__ unsigned address() { return (unsigned)__cvta_generic_to_shared(this); }

    __device__ __forceinline__ void start()
    {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address()) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }

    /* One thread, once for each phase. */
    __device__ __forceinline__ void expect(int bytes)
    {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes) : "memory");
    }

    /* Wait for the end of a phase, the first of which has parity 0. A kernel that waits in vain ends with an error. */
    __device__ __forceinline__ void wait(int parity)
    {
#pragma unroll 1
        for (int tries = 0; tries < 1 << 26; ++tries) {
            int done;
            asm volatile("{ .reg .pred p;\n"
                         "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
                         "selp.b32 %0, 1, 0, p; }"
                         : "=r"(done)
                         : "r"(address()), "r"(parity)
                         : "memory");
            if (done)
                return;
        }
        __trap();
    }
};

static __device__ __forceinline__ unsigned in_block(unsigned address, int rank)
{
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

/* Store to the same place of a block's shared memory, and announce the bytes there. */
static __device__ __forceinline__ void push(float *place, arrival *signal, int rank, float value)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                     in_block((unsigned)__cvta_generic_to_shared(place), rank)),
                 "f"(value), "r"(in_block(signal->address(), rank))
                 : "memory");
}

static __device__ __forceinline__ void push(float *place, arrival *signal, int rank, float2 v)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
                     in_block((unsigned)__cvta_generic_to_shared(place), rank)),
                 "f"(v.x), "f"(v.y), "r"(in_block(signal->address(), rank))
                 : "memory");
}

static __device__ __forceinline__ void push(float *place, arrival *signal, int rank, float4 v)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                     in_block((unsigned)__cvta_generic_to_shared(place), rank)),
                 "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(in_block(signal->address(), rank))
                 : "memory");
}
#endif

#define WARPS 8
#define THREADS (32 * WARPS)
#define LANES (32 / GROUPS)
#define HELD (ROWS * PASSES)
/* The kernels' attributes: one block a multiprocessor, so that a thread may have all its registers. */
#define CLUSTER_KERNEL extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)

#define EACH_PASS _Pragma("unroll") for (int i = 0; i < PASSES; ++i)

/* The place of a thread: Columns columns belong to it, and it owns the results of `unit`, which has Width columns.
   Lanes that differ in `part` alone own the same results. */
template <int Columns, int Width>
struct place {
    static constexpr int VALUES = ROWS * Columns, UNITS = Columns / Width, PARTS = GROUPS / (ROWS * UNITS);
    static_assert(VALUES <= GROUPS, "a lane folds into one value");
    int lane, group, first, unit, part, local_row, row, run;
    long long batch_row;
    bool is_idle, has_unit;

    /* Rows of a cluster belong to one run, which has `batch` rows. */
    __device__ __forceinline__ place(int batch, int n)
    {
        const int thread = (int)threadIdx.x, warp = thread / 32, cluster = (int)blockIdx.x / CLUSTER;
        const int clusters = (batch + HELD - 1) / HELD;
        lane = thread % 32;
        group = lane / LANES;
        /* Neighbours in the order of units are warps of different blocks: all blocks have work. */
        const int before = (warp * CLUSTER + cluster_rank()) * LANES;
        first = (before + lane % LANES) * UNITS;
        is_idle = before * UNITS >= n;
        const int result = group / PARTS;
        part = group % PARTS;
        unit = first + result % UNITS;
        has_unit = unit < n;
        local_row = result / UNITS;
        run = cluster / clusters;
        row = cluster % clusters * HELD + local_row;
        batch_row = (long long)run * batch + row;
    }

    /* Whether the row of a pass exists. */
    __device__ __forceinline__ bool has_row(int pass, int batch) const { return row + pass * ROWS < batch; }

    /* Whether the thread stores the results of a pass. */
    __device__ __forceinline__ bool stores(int pass, int batch) const
    {
        return part == 0 && has_unit && has_row(pass, batch);
    }
};

/* A vector for each row, in two buffers, in the shared memory of every block. A group reads Depth numbers. */
template <int Depth>
struct exchange {
    /* An odd number of quadruples apart, the groups read different banks. */
    static constexpr int STRIDE = Depth / 4 % 2 ? Depth : Depth + 4, LENGTH = GROUPS * STRIDE;
    alignas(16) float vectors[2][HELD][LENGTH];
    alignas(8) arrival arrived[2];

    static __device__ __forceinline__ int slot(int index) { return index / Depth * STRIDE + index % Depth; }

    /* All threads; the caller synchronises the cluster afterwards. */
    __device__ __forceinline__ void start(int bytes)
    {
        for (int i = (int)threadIdx.x; i < 2 * HELD * LENGTH; i += THREADS)
            (&vectors[0][0][0])[i] = 0.0f;
        if (threadIdx.x == 0)
            for (int b = 0; b < 2; ++b) {
                arrived[b].start();
                arrived[b].expect(bytes);
            }
        __syncthreads();
    }

    /* Fill the first buffer with the rows of a cluster from `rows` [runs * batch, n]. */
    __device__ __forceinline__ void fill(const float *rows, int batch, int n)
    {
        const int clusters = (batch + HELD - 1) / HELD, cluster = (int)blockIdx.x / CLUSTER;
        const int start = cluster % clusters * HELD;
        rows += ((long long)(cluster / clusters) * batch + start) * n;
        for (int i = (int)threadIdx.x; i < HELD * n; i += THREADS)
            if (start + i / n < batch)
                vectors[0][i / n][slot(i % n)] = rows[i];
    }

    /* Send a value to the blocks `part`, `part + parts`, ... */
    template <class Value>
    __device__ __forceinline__ void send(int buffer, int row, int index, Value value, int part, int parts)
    {
#pragma unroll
        for (int target = 0; target < CLUSTER; target += parts)
            if (target + part < CLUSTER)
                push(&vectors[buffer][row][slot(index)], &arrived[buffer], target + part, value);
    }

    /* Wait for the vectors of a buffer; `use` counts its exchanges from 0. */
    __device__ __forceinline__ void receive(int buffer, int use, int bytes)
    {
        arrived[buffer].wait(use & 1);
        if (threadIdx.x == 0)
            arrived[buffer].expect(bytes); /* of the next use */
    }
};

/* W[column, input] for the thread's columns: `at` returns it for numbers that exist or not. */
template <int Columns, int Depth, class At>
static __device__ __forceinline__ void load_matrix(float (&w)[Columns][Depth], int first, int group, At at)
{
#pragma unroll
    for (int c = 0; c < Columns; ++c)
#pragma unroll
        for (int k = 0; k < Depth; ++k)
            w[c][k] = at(first + c, group * Depth + k);
}

/* The product that a lane owns, of ROWS vectors from `vectors` on: row and column are those of its group. */
template <int Columns, int Depth>
static __device__ __forceinline__ float product(
    const float (&w)[Columns][Depth], const float (*vectors)[exchange<Depth>::LENGTH], int lane)
{
    constexpr int VALUES = ROWS * Columns;
    float sum[VALUES];
#pragma unroll
    for (int i = 0; i < VALUES; ++i)
        sum[i] = 0.0f;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const float4 *quadruples = (const float4 *)&vectors[r][lane / LANES * exchange<Depth>::STRIDE];
#pragma unroll
        for (int q = 0; q < Depth / 4; ++q) {
            const float4 v = quadruples[q];
#pragma unroll
            for (int c = 0; c < Columns; ++c) {
                float s = sum[r * Columns + c];
                s = fmaf(w[c][4 * q], v.x, s);
                s = fmaf(w[c][4 * q + 1], v.y, s);
                s = fmaf(w[c][4 * q + 2], v.z, s);
                sum[r * Columns + c] = fmaf(w[c][4 * q + 3], v.w, s);
            }
        }
    }
    int half = VALUES / 2;
#pragma unroll
    for (int distance = 16; distance >= LANES; distance /= 2, half /= 2) {
        if (half == 0) {
            sum[0] += __shfl_xor_sync(0xffffffffu, sum[0], distance);
            continue;
        }
#pragma unroll
        for (int i = 0; i < VALUES / 2; ++i)
            if (i < half)
                sum[i] = fold(lane & distance, sum[i], sum[i + half], distance);
    }
    return sum[0];
}

static __device__ __forceinline__ float sigmoid(float x) { return fmaf(0.5f, tanhf(0.5f * x), 0.5f); }
