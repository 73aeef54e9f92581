/* The persistent kernels on the CPU, in place of `device.cuh`: a fiber for each CUDA thread, or with THREADED a thread of the
 * operating system, so that ThreadSanitizer sees every access. Fibers run in random order, some warps late. Messages between
 * blocks arrive late and in random order. Shared memory starts as NaN. */
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <thread>
#include <vector>

#define DEVICE static inline
#define MEMBER inline
#define UNROLL
#define RESTRICT

struct Four {
    float x, y, z, w;
};
typedef uintptr_t Local;
typedef uintptr_t Remote;

namespace emulator {

/* A fiber that waits gives way to the others. */
void relax();

/* A barrier of some threads. */
struct Meeting {
    const int size;
    std::atomic<int> arrived{0}, turn{0};
    explicit Meeting(int threads) : size(threads) {}
    void wait() {
        const int now = turn.load();
        if (arrived.fetch_add(1) + 1 == size) {
            arrived.store(0);
            turn.fetch_add(1);
            return;
        }
        while (turn.load() == now) relax();
    }
};

struct Block {
    std::unique_ptr<unsigned char[]> storage;
    unsigned char *memory;
    Meeting everyone;
    std::vector<std::unique_ptr<Meeting>> warps;
    std::vector<float> exchanged; /* two numbers of each thread, used in turn */
    Block(int threads, size_t bytes) : storage(new unsigned char[bytes + 256]), everyone(threads), exchanged(2 * threads) {
        memory = (unsigned char *)(((uintptr_t)storage.get() + 127) & ~(uintptr_t)127);
        memset(memory, 0xff, bytes);
        for (int i = 0; i < threads / 32; i++) warps.emplace_back(new Meeting(32));
    }
};

struct Thread {
    int index, rank, block, shuffles = 0;
    bool done = false;
    ucontext_t context;
    std::unique_ptr<char[]> stack;
};

static std::vector<std::unique_ptr<Block>> blocks;
static std::unique_ptr<Meeting> cluster;
static std::mt19937 dice(getenv("SEED") ? atoi(getenv("SEED")) : 1);

#ifdef THREADED
static thread_local Thread *self;
void relax() { std::this_thread::yield(); }
#else
static Thread *self;
static ucontext_t scheduler;
void relax() { swapcontext(&self->context, &scheduler); }
#endif

[[noreturn]] static void fail(const char *reason) {
    fprintf(stderr, "emulation: %s\n", reason);
    abort();
}

} // namespace emulator

/* An mbarrier with one arrival a phase: a phase ends when the arrival and all expected bytes have come. */
struct Barrier {
    int bytes;
    short arrivals;
    unsigned short phase;
    void check() {
        if (arrivals == 0 && bytes == 0) arrivals = 1, phase++;
    }
};
static_assert(sizeof(Barrier) == 8, "it is as large as a GPU's");
static std::mutex barriers_lock; /* of all of them */

namespace emulator {

struct Message {
    float *to;
    Four value;
    Barrier *barrier;
};
static std::vector<Message> network;
static std::mutex network_lock;
static std::atomic<bool> is_open;

static void deliver(int most) {
    for (; most > 0; most--) {
        Message message;
        {
            std::lock_guard<std::mutex> guard(network_lock);
            if (network.empty()) return;
            std::swap(network[dice() % network.size()], network.back());
            message = network.back();
            network.pop_back();
        }
        std::lock_guard<std::mutex> guard(barriers_lock);
        memcpy(message.to, &message.value, sizeof(Four));
        message.barrier->bytes -= (int)sizeof(Four);
        message.barrier->check();
    }
}

/* Run all clusters one after another. */
static void run(int grid, int cluster_size, int threads, size_t bytes, const std::function<void()> &body) {
    for (int first = 0; first < grid; first += cluster_size) {
        blocks.clear();
        for (int i = 0; i < cluster_size; i++) blocks.emplace_back(new Block(threads, bytes));
        cluster.reset(new Meeting(cluster_size * threads));
        std::vector<Thread> all(cluster_size * threads);
        for (int i = 0; i < (int)all.size(); i++)
            all[i].index = i % threads, all[i].rank = i / threads, all[i].block = first + i / threads;
#ifdef THREADED
        is_open = true;
        std::thread carrier([] {
            while (is_open) {
                deliver(1);
                std::this_thread::yield();
            }
        });
        std::vector<std::thread> pool;
        for (Thread &thread : all)
            pool.emplace_back([&thread, &body] {
                self = &thread;
                body();
            });
        for (std::thread &thread : pool) thread.join();
        is_open = false;
        carrier.join();
#else
        static const std::function<void()> *job;
        job = &body;
        constexpr size_t STACK = 1 << 17;
        for (Thread &thread : all) {
            thread.stack.reset(new char[STACK]);
            getcontext(&thread.context);
            thread.context.uc_stack.ss_sp = thread.stack.get();
            thread.context.uc_stack.ss_size = STACK;
            thread.context.uc_link = &scheduler;
            makecontext(&thread.context, (void (*)()) + [] { (*job)(), self->done = true; }, 0);
        }
        std::vector<Thread *> left;
        for (Thread &thread : all) left.push_back(&thread);
        std::vector<int> late(all.size() / 32);
        long rounds = 0;
        while (!left.empty()) {
            if (++rounds > 20000000) fail("a wait does not end");
            std::shuffle(left.begin(), left.end(), dice);
            for (int &rest : late)
                if (rest > 0) rest--;
                else if (dice() % 50 == 0) rest = dice() % 150;
            size_t kept = 0;
            for (Thread *thread : left) {
                if (late[(thread - all.data()) / 32] == 0) {
                    self = thread;
                    swapcontext(&scheduler, &thread->context);
                    if (dice() % 4 == 0) deliver(1 + dice() % 8);
                }
                if (!thread->done) left[kept++] = thread;
            }
            left.resize(kept);
            deliver(dice() % 64);
        }
#endif
        if (!network.empty()) fail("messages arrive after the end");
    }
}

} // namespace emulator

DEVICE unsigned char *shared_memory() { return emulator::blocks[emulator::self->rank]->memory; }
DEVICE int thread_index() { return emulator::self->index; }
DEVICE int block_index() { return emulator::self->block; }
DEVICE int block_rank() { return emulator::self->rank; }
DEVICE float shuffle(float value, int lane) {
    emulator::Thread *const me = emulator::self;
    emulator::Block &block = *emulator::blocks[me->rank];
    float *const numbers = block.exchanged.data() + (me->shuffles++ & 1) * (block.exchanged.size() / 2);
    numbers[me->index] = value;
    block.warps[me->index / 32]->wait();
    return numbers[(me->index & ~31) | (lane & 31)];
}
DEVICE float shuffle_xor(float value, int mask) { return shuffle(value, (emulator::self->index & 31) ^ mask); }
DEVICE void synchronize_block() { emulator::blocks[emulator::self->rank]->everyone.wait(); }
DEVICE void synchronize_cluster() { emulator::cluster->wait(); }
DEVICE float exponential2(float x) { return exp2f(x); }
DEVICE float logarithm2(float x) { return log2f(x); }
DEVICE float reciprocal(float x) { return 1.0f / x; }
DEVICE Local local(const void *pointer) { return (uintptr_t)pointer; }
DEVICE Four load_four(Local from) {
    Four value;
    memcpy(&value, (const void *)from, sizeof value);
    return value;
}
DEVICE void store_four(float *to, Four value) { memcpy(to, &value, sizeof value); }
DEVICE void copy(float *to, const float *from) { *to = *from; }
DEVICE void copies_end() {}
template <int PENDING> DEVICE void copies_wait() {}
DEVICE Remote remote(const void *pointer, int block) {
    return (uintptr_t)pointer - (uintptr_t)shared_memory() + (uintptr_t)emulator::blocks[block]->memory;
}
DEVICE void send(Remote to, Four value, Remote barrier) {
    std::lock_guard<std::mutex> guard(emulator::network_lock);
    emulator::network.push_back({(float *)to, value, (Barrier *)barrier});
}
DEVICE void barrier_start(Barrier *barrier) {
    new (barrier) Barrier;
    barrier->arrivals = 1, barrier->bytes = 0, barrier->phase = 0;
}
DEVICE void barrier_expect(Local address, unsigned bytes) {
    Barrier *const barrier = (Barrier *)address;
    std::lock_guard<std::mutex> guard(barriers_lock);
    if (barrier->arrivals == 0) emulator::fail("a barrier expects twice in a phase");
    barrier->arrivals--, barrier->bytes += (int)bytes;
    barrier->check();
}
DEVICE void barrier_wait(Local address, unsigned parity) {
    Barrier *const barrier = (Barrier *)address;
    while (true) {
        {
            std::lock_guard<std::mutex> guard(barriers_lock);
            if ((barrier->phase & 1) != parity) return;
        }
        emulator::relax();
    }
}

#define PERSISTENT_KERNEL(name, threads, blocks, cluster, type, body)                                                    \
    extern "C" void name(int grid, size_t shared, const type *arguments) {                                               \
        emulator::run(grid, cluster, threads, shared, [arguments] { body(*arguments); });                                \
    }
