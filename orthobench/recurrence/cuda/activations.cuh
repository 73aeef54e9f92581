/* The activations of the kernels in CUDA C++; KIND is one of the enum. */
#pragma once

enum { IDENTITY, TANH, RELU, LEAKY_RELU, MODRELU };

static __device__ __forceinline__ float activate(float z, float b, float slope, float epsilon)
{
    if (KIND == MODRELU) {
        const float shifted = fabsf(z) + epsilon + b;
        const float modulus = shifted <= 0.0f ? 0.0f : shifted; /* NaN stays */
        return z == 0.0f ? 0.0f : z < 0.0f ? -modulus : modulus;
    }
    const float shifted = z + b;
    if (KIND == TANH)
        return tanhf(shifted);
    if (KIND == RELU)
        return shifted <= 0.0f ? 0.0f : shifted;
    if (KIND == LEAKY_RELU)
        return shifted >= 0.0f ? shifted : slope * shifted;
    return shifted;
}

/* dL/dz from dL/du and the activation's output u; *db is its term of dL/db. */
static __device__ __forceinline__ float activate_backward(float g, float u, float slope, float *db)
{
    float dz = g;
    if (KIND == TANH)
        dz = g * (1.0f - u * u);
    else if (KIND == RELU)
        dz = u <= 0.0f ? 0.0f : g;
    else if (KIND == LEAKY_RELU)
        dz = u >= 0.0f ? g : slope * g;
    else if (KIND == MODRELU)
        dz = u == 0.0f ? 0.0f : g;
    *db = KIND == MODRELU && u < 0.0f ? -dz : dz;
    return dz;
}
