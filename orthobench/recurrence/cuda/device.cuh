/* What the persistent kernels use of a GPU: threads, shared memory, shuffles, and messages between the blocks of a
 * cluster. Tests define all of it for the CPU instead. */
#ifndef DEVICE

#define DEVICE static __device__ __forceinline__
#define MEMBER __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define RESTRICT __restrict__

typedef float4 Four;
typedef unsigned Local;  /* an address in the block's shared memory */
typedef unsigned Remote; /* an address in the shared memory of a block of the cluster */
typedef unsigned long long Barrier;

DEVICE unsigned char *shared_memory() {
    extern __shared__ __align__(128) unsigned char memory[];
    return memory;
}
DEVICE int thread_index() { return threadIdx.x; }
DEVICE int block_index() { return blockIdx.x; }
DEVICE float shuffle(float value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }
DEVICE float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
DEVICE void synchronize_block() { __syncthreads(); }

DEVICE float exponential2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
DEVICE float logarithm2(float x) {
    float result;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
DEVICE float reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

/* The assembler is empty, because the compiler otherwise computes the address again in every step. */
DEVICE Local local(const void *pointer) {
    unsigned address = (unsigned)__cvta_generic_to_shared(pointer);
    asm volatile("" : "+r"(address));
    return address;
}
DEVICE Four load_four(Local from) {
    Four value;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "r"(from));
    return value;
}

/* Copies into shared memory that complete in the background. `copies_end` closes a group of them. */
DEVICE void copy(float *to, const float *from) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
#else
    *to = *from;
#endif
}
DEVICE void copies_end() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int PENDING> DEVICE void copies_wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

#if __CUDA_ARCH__ >= 900
DEVICE int block_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return (int)rank;
}
DEVICE Remote remote(const void *pointer, int block) {
    unsigned address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(address)
        : "r"((unsigned)__cvta_generic_to_shared(pointer)), "r"(block));
    return address;
}
DEVICE void synchronize_cluster() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
DEVICE void send(Remote to, Four value, Remote barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
                 "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(barrier)
                 : "memory");
}
DEVICE void barrier_start(Barrier *barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"((unsigned)__cvta_generic_to_shared(barrier)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
DEVICE void barrier_expect(Local barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/* A message that never comes ends the kernel with an error, because a wait without an end would hang the GPU. */
DEVICE void barrier_wait(Local barrier, unsigned parity) {
    unsigned done;
    _Pragma("unroll 1") for (int tries = 0; tries < (1 << 16); tries++) {
        asm volatile("{\n\t.reg .pred complete;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, complete;\n\t}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
        if (done) return;
    }
    __trap();
}
#else /* blocks work alone, so that none of these is called */
DEVICE int block_rank() { return 0; }
DEVICE Remote remote(const void *, int) { return 0; }
DEVICE void synchronize_cluster() { __trap(); }
DEVICE void send(Remote, Four, Remote) { __trap(); }
DEVICE void barrier_start(Barrier *) { __trap(); }
DEVICE void barrier_expect(Local, unsigned) { __trap(); }
DEVICE void barrier_wait(Local, unsigned) { __trap(); }
#endif
DEVICE void store_four(float *to, Four value) { *(float4 *)to = value; }

/* A kernel with its bounds; its body takes the arguments. */
#define PERSISTENT_KERNEL(name, threads, blocks, cluster, type, body)                                                    \
    extern "C" __global__ void CLUSTER_OF_##cluster __launch_bounds__(threads, blocks) name(const type arguments) {       \
        body(arguments);                                                                                                 \
    }
#define CLUSTER_OF_1
#define CLUSTER_OF_2 __cluster_dims__(2, 1, 1)
#define CLUSTER_OF_4 __cluster_dims__(4, 1, 1)
#define CLUSTER_OF_8 __cluster_dims__(8, 1, 1)
#define CLUSTER_OF_16 __cluster_dims__(16, 1, 1)

#endif
