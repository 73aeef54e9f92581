/* CUDA C++ on the CPU: a thread for each CUDA thread of a block, one block after another.
   A sanitizer then sees the races that a missing __syncthreads() leaves. */
#pragma once
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <math.h>
#include <memory>
#include <thread>
#include <vector>

struct index3 {
    unsigned x;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

static thread_local index3 threadIdx, blockIdx;
static std::unique_ptr<std::barrier<>> block_barrier;
static std::vector<std::unique_ptr<std::barrier<>>> warp_barriers;
static std::vector<float> exchanged;

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

#ifndef WITHOUT_BARRIERS
static void __syncthreads() { block_barrier->arrive_and_wait(); }
#else
static void __syncthreads() {}
#endif

static float __shfl_xor_sync(unsigned, float value, int distance)
{
    std::barrier<> &warp = *warp_barriers[threadIdx.x / 32];
    exchanged[threadIdx.x] = value;
    warp.arrive_and_wait();
    const float received = exchanged[threadIdx.x ^ distance];
    warp.arrive_and_wait();
    return received;
}

static void launch(int blocks, int threads, const std::function<void()> &kernel)
{
    for (int block = 0; block < blocks; ++block) {
        block_barrier = std::make_unique<std::barrier<>>(threads);
        warp_barriers.clear();
        for (int warp = 0; warp < threads / 32; ++warp)
            warp_barriers.push_back(std::make_unique<std::barrier<>>(32));
        exchanged.assign(threads, 0.0f);
        std::vector<std::thread> running;
        for (int thread = 0; thread < threads; ++thread)
            running.emplace_back([&, thread] {
                threadIdx = {(unsigned)thread};
                blockIdx = {(unsigned)block};
                kernel();
            });
        for (std::thread &each : running)
            each.join();
    }
}
