/* CUDA C++ on the CPU: a thread for each CUDA thread of a block or a cluster, one cluster after another.
   A sanitizer then sees the races that a missing barrier or wait leaves. */
#pragma once
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <math.h>
#include <memory>
#include <thread>
#include <vector>

#define EMULATED
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

struct index3 {
    unsigned x;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

/* What the threads of a block share. */
struct block_state {
    static constexpr size_t BYTES = 48 << 10; /* of shared memory */
    std::barrier<> barrier;
    std::vector<std::unique_ptr<std::barrier<>>> warps;
    std::vector<float> exchanged;
    std::unique_ptr<std::byte, decltype(&free)> memory{(std::byte *)aligned_alloc(128, BYTES), &free};

    explicit block_state(int threads) : barrier(threads), exchanged(threads)
    {
        for (int warp = 0; warp < threads / 32; ++warp)
            warps.push_back(std::make_unique<std::barrier<>>(32));
        memset(memory.get(), 0xff, BYTES); /* NaN until it is written */
    }
};

static thread_local index3 threadIdx, blockIdx;
static thread_local int own_rank;
static std::vector<std::unique_ptr<block_state>> blocks;
static std::unique_ptr<std::barrier<>> cluster_barrier;

static inline block_state &own_block() { return *blocks[own_rank]; }

#ifndef WITHOUT_BARRIERS
static inline void __syncthreads() { own_block().barrier.arrive_and_wait(); }
#else
static inline void __syncthreads() {}
#endif

static inline float __shfl_sync(unsigned, float value, int source)
{
    block_state &block = own_block();
    std::barrier<> &warp = *block.warps[threadIdx.x / 32];
    block.exchanged[threadIdx.x] = value;
    warp.arrive_and_wait();
    const float received = block.exchanged[threadIdx.x / 32 * 32 + source];
    warp.arrive_and_wait();
    return received;
}

static inline float __shfl_xor_sync(unsigned mask, float value, int distance)
{
    return __shfl_sync(mask, value, (threadIdx.x % 32) ^ distance);
}

/* The functions of a cluster, as cluster.cuh has them for the GPU. */
#define SHARED_MEMORY(type, name)                                                                                     \
    static_assert(sizeof(type) <= block_state::BYTES, "a block has 48 KiB of shared memory");                          \
    type &name = *(type *)own_block().memory.get()

static inline int cluster_rank() { return own_rank; }

static inline void cluster_sync() { cluster_barrier->arrive_and_wait(); }

/* A phase ends when its arrival and all bytes have come. A push releases; only a wait acquires. */
struct arrival {
    static constexpr long long PENDING = 1LL << 40;
    std::atomic<long long> open;
    std::atomic<int> phases;

    void start()
    {
        new (&open) std::atomic<long long>(PENDING);
        new (&phases) std::atomic<int>(0);
    }

    void count(long long change)
    {
        if (open.fetch_add(change, std::memory_order_release) + change == 0) {
            (void)open.load(std::memory_order_acquire);
            open.fetch_add(PENDING, std::memory_order_relaxed);
            phases.fetch_add(1, std::memory_order_release);
            phases.notify_all();
        }
    }

    void expect(int bytes) { count(bytes - PENDING); }

    void wait(int parity)
    {
#ifndef WITHOUT_WAITS
        for (int phase; ((phase = phases.load(std::memory_order_acquire)) & 1) == parity;)
            phases.wait(phase, std::memory_order_acquire);
#endif
    }
};

template <class T>
static T *in_block(T *place, int rank)
{
    return (T *)((std::byte *)place - own_block().memory.get() + blocks[rank]->memory.get());
}

template <class T>
static void push(float *place, arrival *signal, int rank, T value)
{
    *(T *)in_block(place, rank) = value;
    in_block(signal, rank)->count(-(long long)sizeof(T));
}

/* Run a grid of clusters of this many blocks. */
static inline void launch(int grid, int cluster, int threads, const std::function<void()> &kernel)
{
    for (int first = 0; first < grid; first += cluster) {
        blocks.clear();
        for (int rank = 0; rank < cluster; ++rank)
            blocks.push_back(std::make_unique<block_state>(threads));
        cluster_barrier = std::make_unique<std::barrier<>>(cluster * threads);
        std::vector<std::thread> running;
        for (int rank = 0; rank < cluster; ++rank)
            for (int thread = 0; thread < threads; ++thread)
                running.emplace_back([=, &kernel] {
                    threadIdx = {(unsigned)thread};
                    blockIdx = {(unsigned)(first + rank)};
                    own_rank = rank;
                    kernel();
                });
        for (std::thread &each : running)
            each.join();
    }
}
