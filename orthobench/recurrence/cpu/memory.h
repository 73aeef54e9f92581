/* Zeroed memory for a pass over some rows, divided into parts that begin at cache lines. */
#ifndef ORTHOBENCH_MEMORY_H
#define ORTHOBENCH_MEMORY_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Zeroed memory from a cache line on, or NULL; the caller frees it. */
static inline float *zeros(int64_t floats) {
    /* Not calloc, because its memory begins anywhere, and streaming stores need whole lines. */
    float *const memory = aligned_alloc(64, (size_t)(4 * floats + 127) / 64 * 64);
    if (memory) memset(memory, 0, (size_t)(4 * floats));
    return memory;
}

/* Divides a buffer, or counts the floats of all parts if it is NULL. */
struct carver {
    float *base;
    int64_t used;
};

static inline void *carve(struct carver *from, int64_t floats) {
    float *const part = from->base ? from->base + from->used : NULL;
    from->used += (floats + 15) / 16 * 16;
    return part;
}

#endif
