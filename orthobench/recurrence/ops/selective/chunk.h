/* The fields of the selective scan, and a chunk of its steps. */
#ifndef ORTHOBENCH_CHUNK_H
#define ORTHOBENCH_CHUNK_H

#include "convolution.h"

enum { SCAN_STEPS = 16 }; /* steps of a chunk */

/* What a pass does not need, and what it does not want, is NULL. */
struct selective {
    int64_t steps, batch;           /* T, B */
    int64_t width, size, rank;      /* features, units of each feature, numbers r of a step */
    int64_t negative;               /* whether a = 2 exp(Delta A) - 1 */
    int64_t groups;                 /* groups of batch rows, whose gradients of parameters are summed separately */
    int64_t taps;                   /* of the convolution that gives x, or 0 */
    int64_t inputs;                 /* of the projection that gives the convolution's source, or 0 */
    const float *x;                 /* [T, B, width], or with `inputs` u [T, B, inputs] */
    const float *map;               /* P [rank + 2 size, width], which maps x to the weights, or NULL */
    const float *rates;             /* A [size, width] */
    const float *step;              /* W transposed [rank, width] */
    const float *bias;              /* b [width] */
    const float *start;             /* the state before the first step [B, size, width] */
    const float *input_weight;      /* U transposed [inputs, width] */
    const float *convolution;       /* [taps, width], the oldest input's first */
    const float *convolution_bias;  /* [width], or NULL */
    const float *before;            /* the convolution's source before the first step [taps - 1, B, width] */
    const float *skip;              /* D [width], or NULL, see outputs.h */
    const float *gate;              /* z [T, B, width], or NULL, likewise */
    const float *gate_weight;       /* W transposed [inputs, width], or NULL, likewise */
    float *weight;                  /* r, B and C of each step [T, B, rank + 2 size]; an output if there is a map */
    float *y;                       /* the outputs [T, B, width], or NULL if nothing is read */
    float *end;                     /* the state after the last step [B, size, width] */
    float *starts;                  /* the states before each chunk [chunks, B, packed], see selective.c */
    const float *grad_y;            /* [T, B, width], or NULL */
    float *dx;                      /* [T, B, width]; NULL with `inputs` */
    float *dweight;                 /* as weight */
    float *dmap;                    /* [groups, rank + 2 size, padded(width)], zeroed */
    float *drates;                  /* [groups, size, width] */
    float *dstep;                   /* [groups, rank, width] */
    float *dbias;                   /* [groups, width] */
    float *dstart;                  /* as start; at first it has the gradient of the end */
    float *norms;                   /* squares [T, B] */
    float *dinput_weight;           /* [groups, inputs, width] */
    float *dconvolution;            /* [groups, taps, width] */
    float *dconvolution_bias;       /* [groups, width] */
    float *dbefore;                 /* as before */
    float *dskip;                   /* [groups, width] */
    float *dgate;                   /* as gate */
    float *dgate_weight;            /* [groups, inputs, width] */
};

/* A block at a step. */
struct drive {
    vf delta;  /* Delta */
    vf driven; /* Delta x */
};

/* A chunk of steps of a row. */
struct chunk {
    int64_t row, first;   /* the batch row, and the first step */
    int64_t at;           /* the place of this step in tensors [T, B, ...] */
    int64_t ahead;        /* the distance to the place of the next row or chunk in turn */
    int64_t starts_ahead; /* the same in `starts`, in floats */
    int64_t count;        /* steps */
    const struct selective *p;
    const float *x;       /* of the first step */
    int64_t ldx;          /* floats between the steps of x */
    float *r;             /* [SCAN_STEPS, rank], rounded up to groups */
    float *b, *c;         /* [SCAN_STEPS, size], rounded up to groups */
    struct drive *drives; /* [blocks, SCAN_STEPS] */
};

/* The place of step t of the chunk in a tensor [T, B, features]. */
INLINE int64_t step_at(const struct chunk *chunk, int64_t t) { return chunk->at + t * chunk->p->batch; }

/* Fetch what the next turn needs of a tensor [T, B, features]: the vector of step t from `col`. */
INLINE void fetch(const struct chunk *chunk, int64_t t, int64_t col, int64_t features, const float *tensor) {
    __builtin_prefetch((const char *)tensor + 4 * ((step_at(chunk, t) + chunk->ahead) * features + col), 0, 2);
}

#endif
