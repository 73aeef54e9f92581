/* The words of derived cells, which are those of the vectors of their texts for the CPU; here a vector is one number. */
#pragma once
#include "cell.cuh"

#ifndef INFINITY /* NVRTC has none */
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#endif

typedef float vf;

DEVICE vf splat(float x) { return x; }
DEVICE vf held(vf x) { return x; }
DEVICE vf select_lanes(bool condition, vf yes, vf no) { return condition ? yes : no; }
DEVICE vf mixture(vf kept, vf state, vf written, vf input) { return fmaf(kept, state, written * input); }
DEVICE vf relu(vf x) { return x < 0.0f ? 0.0f : x; } /* NaN stays NaN */
DEVICE vf magnitude(vf x) { return fabsf(x); }
DEVICE vf sign_of(vf x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }
DEVICE vf root(vf x) { return sqrtf(x); }
DEVICE vf sine(vf x) { return sinf(x); }
DEVICE vf cosine(vf x) { return cosf(x); }
DEVICE vf logarithm(vf x) { return logf(x); }
DEVICE vf softplus(vf x) { return relu(x) + log1pf(expf(-fabsf(x))); }
