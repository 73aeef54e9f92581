/* The sum over lanes of a warp. */
#pragma once

/* In the second of two lanes b of both, in the first a of both. */
static __device__ __forceinline__ float fold(bool is_second, float a, float b, int distance)
{
    const float received = __shfl_xor_sync(0xffffffffu, is_second ? a : b, distance);
    return (is_second ? b : a) + received;
}
