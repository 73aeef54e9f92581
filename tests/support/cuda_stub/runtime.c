/* A CUDA runtime without a GPU: torch finds one device; launches do nothing and are counted, waits are counted and
 * reported. Symbols that need no meaning are generated next to this file and return 0. */
#define _GNU_SOURCE
#define __CUDA_RUNTIME_API_H__
#include "driver_types.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct {
    unsigned x, y, z;
} Size;

enum { LAUNCHES, WAITS, LIBRARY, FROM_HOST, ALLOCATIONS, GRAPH_LAUNCHES, CAPTURES, FORBIDDEN, COUNTS };
static long counts[COUNTS];
static int capturing;
static void (*on_wait)(const char *);

void stub_reset(void) { memset(counts, 0, sizeof counts); }
long stub_count(int which) { return counts[which]; }
void stub_on_wait(void (*function)(const char *)) { on_wait = function; }
void stub_library(void) { counts[LIBRARY]++; }

static int wait_for_device(const char *name) {
    counts[WAITS]++;
    if (capturing) counts[FORBIDDEN]++;
    if (on_wait) on_wait(name);
    return capturing ? cudaErrorStreamCaptureUnsupported : 0;
}

/* Device memory: one reserved range, of which pages exist when they are touched. */
#define RANGE ((size_t)1 << 38)
static char *memory;
static size_t used;

static int is_device(const void *p) { return memory && (char *)p >= memory && (char *)p < memory + RANGE; }

static int allocate(void **p, size_t size) {
    if (!memory) memory = mmap(0, RANGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *p = memory + used;
    used += (size + 4095) / 4096 * 4096;
    counts[ALLOCATIONS]++;
    return 0;
}

int cudaMalloc(void **p, size_t size) { return allocate(p, size); }
int cudaMallocAsync(void **p, size_t size, void *stream) { return allocate(p, size); }
int cudaFree(void *p) { return 0; }
int cudaHostAlloc(void **p, size_t size, unsigned flags) { return posix_memalign(p, 4096, size); }
int cudaFreeHost(void *p) { free(p); return 0; }

static int copy(void *to, const void *from, size_t size) {
    if (is_device(to) && !is_device(from)) counts[FROM_HOST]++;
    memmove(to, from, size);
    return 0;
}

int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) { return copy(to, from, size); }
int cudaMemcpyPeerAsync(void *to, int d, const void *from, int s, size_t size, void *stream) { return copy(to, from, size); }
int cudaMemcpy(void *to, const void *from, size_t size, int kind) {
    copy(to, from, size);
    return wait_for_device("cudaMemcpy");
}
int cudaMemcpyToSymbol(const void *symbol, const void *from, size_t size, size_t offset, int kind) {
    return wait_for_device("cudaMemcpyToSymbol");
}
int cudaMemset(void *p, int value, size_t size) {
    memset(p, value, size);
    return wait_for_device("cudaMemset");
}
int cudaMemsetAsync(void *p, int value, size_t size, void *stream) {
    counts[LAUNCHES]++;
    memset(p, value, size);
    return 0;
}
int cudaMemGetInfo(size_t *left, size_t *total) {
    *left = (size_t)70 << 30;
    *total = (size_t)80 << 30;
    return 0;
}
int cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
    memset(a, 0, sizeof *a);
    a->type = is_device(p) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    a->device = is_device(p) ? 0 : -1;
    a->devicePointer = is_device(p) ? (void *)p : 0;
    return 0;
}

/* The device, as an H100. */
int cudaGetDeviceCount(int *n) { *n = 1; return 0; }
int cudaGetDevice(int *n) { *n = 0; return 0; }
int cudaDriverGetVersion(int *v) { *v = 13000; return 0; }
int cudaRuntimeGetVersion(int *v) { *v = 13000; return 0; }
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return 0; }
int cudaDeviceCanAccessPeer(int *can, int a, int b) { *can = 0; return 0; }
int cudaDeviceGetPCIBusId(char *text, int size, int device) { snprintf(text, size, "0000:00:00.0"); return 0; }
int cudaDeviceGetAttribute(int *v, int attribute, int device) {
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *v = 1024; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *v = 49152; break;
    case cudaDevAttrWarpSize: *v = 32; break;
    case cudaDevAttrMaxRegistersPerBlock: *v = 65536; break;
    case cudaDevAttrMultiProcessorCount: *v = 132; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *v = 2048; break;
    case cudaDevAttrComputeCapabilityMajor: *v = 9; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *v = 232448; break;
    default: *v = 0;
    }
    return 0;
}
int cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    memset(p, 0, sizeof *p);
    strcpy(p->name, "stub of an H100");
    p->totalGlobalMem = (size_t)80 << 30;
    p->major = 9;
    p->warpSize = 32;
    p->multiProcessorCount = 132;
    p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->maxThreadsPerMultiProcessor = 2048;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->sharedMemPerBlock = 49152;
    p->sharedMemPerBlockOptin = 232448;
    p->sharedMemPerMultiprocessor = 233472;
    p->l2CacheSize = 50 << 20;
    return 0;
}
int cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned v, unsigned long long flags, int *status) {
    *f = 0;
    if (status) *status = 1;
    return 0;
}
const char *cudaGetErrorString(int e) {
    return e == cudaErrorStreamCaptureUnsupported ? "operation not permitted when stream is capturing" : "no error";
}
const char *cudaGetErrorName(int e) { return "cudaError"; }

/* Streams, events, graphs. */
static uintptr_t handle = 0x1000;
static int give(void **h) { *h = (void *)(handle += 16); return 0; }
int cudaStreamCreate(void **s) { return give(s); }
int cudaStreamCreateWithFlags(void **s, unsigned flags) { return give(s); }
int cudaStreamCreateWithPriority(void **s, unsigned flags, int priority) { return give(s); }
int cudaStreamGetPriority(void *s, int *priority) { *priority = 0; return 0; }
int cudaEventCreate(void **e) { return give(e); }
int cudaEventCreateWithFlags(void **e, unsigned flags) { return give(e); }
int cudaEventElapsedTime(float *ms, void *a, void *b) { *ms = 1; return 0; }
int cudaStreamSynchronize(void *s) { return wait_for_device("cudaStreamSynchronize"); }
int cudaDeviceSynchronize(void) { return wait_for_device("cudaDeviceSynchronize"); }
int cudaEventSynchronize(void *e) { return wait_for_device("cudaEventSynchronize"); }
/* Every capture has its own number, because torch forgets the capture of this number when an older graph is freed. */
static unsigned long long capture;
int cudaStreamIsCapturing(void *s, int *status) { *status = capturing; return 0; }
int cudaStreamGetCaptureInfo(void *s, int *status, unsigned long long *id, void **g, const void ***d, const void **e, size_t *n) {
    *status = capturing;
    if (id) *id = capture;
    if (g) *g = 0;
    if (d) *d = 0;
    if (e) *e = 0;
    if (n) *n = 0;
    return 0;
}
int cudaStreamBeginCapture(void *s, int mode) { capturing = 1; capture++; counts[CAPTURES]++; return 0; }
int cudaStreamEndCapture(void *s, void **graph) { capturing = 0; return give(graph); }
int cudaGraphInstantiateWithFlags(void **e, void *graph, unsigned long long flags) { return give(e); }
int cudaGraphGetNodes(void *graph, void **nodes, size_t *n) { *n = 1; return 0; }
int cudaGraphLaunch(void *e, void *stream) { counts[GRAPH_LAUNCHES]++; return 0; }

/* Kernels. */
void **__cudaRegisterFatBinary(void *binary) { return calloc(2, sizeof(void *)); }
char __cudaInitModule(void **binary) { return 1; }
static __thread struct {
    Size grid, block;
    size_t shared;
    void *stream;
} call;
unsigned __cudaPushCallConfiguration(Size grid, Size block, size_t shared, void *stream) {
    call.grid = grid, call.block = block, call.shared = shared, call.stream = stream;
    return 0;
}
int __cudaPopCallConfiguration(Size *grid, Size *block, size_t *shared, void **stream) {
    *grid = call.grid, *block = call.block, *shared = call.shared, *stream = call.stream;
    return 0;
}
static int launch(void) { counts[LAUNCHES]++; return 0; }
int __cudaGetKernel(const void **kernel, const void *f) { *kernel = f; return 0; }
int __cudaLaunchKernel(const void *k, Size g, Size b, void **a, size_t s, void *stream) { return launch(); }
int cudaLaunchKernel(const void *k, Size g, Size b, void **a, size_t s, void *stream) { return launch(); }
int cudaLaunchKernelExC(const void *config, const void *k, void **a) { return launch(); }
int cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f) {
    memset(a, 0, sizeof *a);
    a->maxThreadsPerBlock = 1024;
    a->numRegs = 32;
    a->ptxVersion = a->binaryVersion = 90;
    return 0;
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int b, size_t s, unsigned flags) {
    *n = 4;
    return 0;
}
int cudaGetSymbolAddress(void **p, const void *symbol) { *p = calloc(1, 4096); return 0; }

/* The libraries: handles, sizes of workspaces, and one algorithm. */
int cublasCreate_v2(void **h) { return give(h); }
int cublasGetMathMode(void *h, int *mode) { *mode = 0; return 0; }
int cublasGetPointerMode_v2(void *h, int *mode) { *mode = 0; return 0; }
size_t cublasLtGetVersion(void) { return 130100; }
int cublasLtMatmulDescCreate(void **d, int compute, int scale) { return give(d); }
int cublasLtMatrixLayoutCreate(void **d, int type, uint64_t rows, uint64_t columns, int64_t stride) { return give(d); }
int cublasLtMatmulPreferenceCreate(void **d) { return give(d); }
int cublasLtMatmulAlgoGetHeuristic(void *h, void *o, void *a, void *b, void *c, void *d, void *p, int wanted, void *results, int *found) {
    *found = 1;
    return 0;
}
int cusolverDnCreate(void **h) { return give(h); }
static int workspace(int *size) { *size = 4096; return 0; }
int cusolverDnSgetrf_bufferSize(void *h, int m, int n, void *a, int lda, int *size) { return workspace(size); }
int cusolverDnDgetrf_bufferSize(void *h, int m, int n, void *a, int lda, int *size) { return workspace(size); }
int cusolverDnCgetrf_bufferSize(void *h, int m, int n, void *a, int lda, int *size) { return workspace(size); }
int cusolverDnZgetrf_bufferSize(void *h, int m, int n, void *a, int lda, int *size) { return workspace(size); }
int cufftXtMakePlanMany(int plan, int rank, void *n, void *inner, long long is, long long id, int it, void *outer, long long os,
                        long long od, int ot, long long batch, size_t *size, int type) {
    *size = 0;
    return 0;
}
