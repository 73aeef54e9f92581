/* NVRTC, with which torch compiles some of its own kernels: it compiles nothing. */
#include <stddef.h>

int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 0; return 0; }
int nvrtcCreateProgram(void **p, const char *source, const char *name, int n, void *h, void *i) { *p = (void *)0x1000; return 0; }
int nvrtcCompileProgram(void *p, int n, const char **options) { return 0; }
int nvrtcDestroyProgram(void **p) { return 0; }
int nvrtcAddNameExpression(void *p, const char *name) { return 0; }
int nvrtcGetLoweredName(void *p, const char *name, const char **lowered) { *lowered = "stub"; return 0; }
int nvrtcGetCUBINSize(void *p, size_t *size) { *size = 1; return 0; }
int nvrtcGetPTXSize(void *p, size_t *size) { *size = 1; return 0; }
int nvrtcGetCUBIN(void *p, char *code) { return 0; }
int nvrtcGetPTX(void *p, char *code) { return 0; }
int nvrtcGetProgramLogSize(void *p, size_t *size) { *size = 1; return 0; }
int nvrtcGetProgramLog(void *p, char *log) { *log = 0; return 0; }
const char *nvrtcGetErrorString(int e) { return "stub"; }
