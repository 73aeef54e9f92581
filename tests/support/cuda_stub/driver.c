/* libcuda.so.1 as far as Triton's driver and torch's NVRTC ask for it: modules load, launches are counted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

static long launches;
long stub_triton_launches(void) { return launches; }
void stub_triton_reset(void) { launches = 0; }

static int give(void **h) { *h = (void *)0x1000; return 0; }
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGet(int *d, int ordinal) { *d = 0; return 0; }
int cuCtxGetCurrent(void **c) { return give(c); }
int cuCtxSetCurrent(void *c) { return 0; }
int cuCtxGetDevice(int *d) { *d = 0; return 0; }
int cuCtxGetLimit(size_t *v, int limit) { *v = 0; return 0; }
int cuCtxSetLimit(int limit, size_t v) { return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { return give(c); }
int cuDevicePrimaryCtxGetState(int d, unsigned *flags, int *active) { *flags = 0; *active = 1; return 0; }
int cuDeviceGetAttribute(int *v, int attribute, int d) {
    static const int known[][2] = {{1, 1024}, {8, 49152}, {10, 32}, {12, 65536}, {13, 1980000}, {16, 132},
                                   {36, 2619000}, {37, 5120}, {39, 2048}, {75, 9}, {76, 0}, {81, 233472},
                                   {82, 65536}, {97, 232448}};
    *v = 1;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i][0] == attribute) *v = known[i][1];
    return 0;
}
int cuModuleLoadData(void **m, const void *image) { return give(m); }
int cuModuleLoadDataEx(void **m, const void *image, unsigned n, void *options, void *values) { return give(m); }
int cuModuleLoad(void **m, const char *path) { return give(m); }
int cuModuleUnload(void *m) { return 0; }
int cuModuleGetFunction(void **f, void *m, const char *name) { return give(f); }
int cuFuncGetAttribute(int *v, int attribute, void *f) { *v = attribute == 0 ? 1024 : 0; return 0; }
int cuFuncSetAttribute(void *f, int attribute, int v) { return 0; }
int cuFuncSetCacheConfig(void *f, int config) { return 0; }
int cuGetErrorString(int e, const char **text) { *text = "stub"; return 0; }
int cuLaunchKernelEx(const void *config, void *f, void **arguments, void **extra) { launches++; return 0; }
int cuLaunchKernel(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned s, void *stream,
                   void **arguments, void **extra) {
    launches++;
    return 0;
}
int cuOccupancyMaxActiveClusters(int *n, void *f, const void *config) { *n = 16; return 0; }
int cuPointerGetAttribute(void *data, int attribute, uintptr_t p) { *(uintptr_t *)data = p; return 0; }
int cuTensorMapEncodeTiled(void *map) { return 0; }
int cuTensorMapEncodeIm2col(void *map) { return 0; }
int cuLaunchCooperativeKernel(void *f) { launches++; return 0; }
int cuLinkCreate_v2(unsigned n, void *options, void *values, void **state) { return give(state); }
int cuLinkAddData_v2(void *state) { return 0; }
int cuLinkComplete(void *state, void **cubin, size_t *size) { *size = 0; return give(cubin); }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int block, size_t shared) { *n = 2; return 0; }
int cuCtxSynchronize(void) { return 0; }
/* NVIDIA's Python bindings ask for each function by its name without a version. */
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    *function = dlsym(RTLD_DEFAULT, name);
    Dl_info own;
    if (dladdr((void *)cuGetProcAddress_v2, &own)) {
        void *library = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if (library) *function = dlsym(library, name);
    }
    if (status) *status = *function ? 0 : 1;
    return *function ? 0 : 500;
}
