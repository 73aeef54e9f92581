/* The activations of `orthobench.recurrence.call.Activation`, for one real column of a unit and b, its entry of the bias. */
#pragma once
#include "cell.cuh"

enum Activation { IDENTITY, TANH, RELU, LEAKY_RELU, MODRELU, COMPLEX_MODRELU, COMPLEX_MODRELU_SMOOTH };

constexpr bool is_complex(int kind) { return kind == COMPLEX_MODRELU || kind == COMPLEX_MODRELU_SMOOTH; }

/* act(z; b) of a real activation; `parameter` is the slope of leaky ReLU or modReLU's epsilon. */
template <int KIND> DEVICE float activated(float z, float b, float parameter) {
    if (KIND == MODRELU) return z == 0.0f ? 0.0f : copysignf(fmaxf(fabsf(z) + parameter + b, 0.0f), z);
    const float shifted = z + b;
    if (KIND == TANH) return hyperbolic_tangent(shifted);
    if (KIND == RELU) return fmaxf(shifted, 0.0f);
    if (KIND == LEAKY_RELU) return shifted >= 0.0f ? shifted : parameter * shifted;
    return shifted;
}

/* dy/dz from y = act(z; b). */
template <int KIND> DEVICE float activated_slope(float y, float parameter) {
    if (KIND == TANH) return tangent_slope(y);
    if (KIND == RELU) return y > 0.0f ? 1.0f : 0.0f;
    if (KIND == LEAKY_RELU) return y >= 0.0f ? 1.0f : parameter;
    if (KIND == MODRELU) return y != 0.0f ? 1.0f : 0.0f;
    return 1.0f;
}

/* dL/db from dL/dz and y. */
template <int KIND> DEVICE float bias_gradient(float dz, float y) { return KIND == MODRELU && y < 0.0f ? -dz : dz; }

/* The factor s of act(z; b) = s z of a complex activation, and ds/dz = slope z, ds/db. */
struct Scale {
    float s, slope, by_bias;
};
template <int KIND> DEVICE Scale complex_scale(float squared, float b, float epsilon) {
    if (KIND == COMPLEX_MODRELU && squared == 0.0f) return {0.0f, 0.0f, 0.0f};
    const bool smooth = KIND == COMPLEX_MODRELU_SMOOTH;
    const float modulus = sqrtf(smooth ? squared + epsilon : squared), divisor = 1.0f / (modulus + epsilon);
    const float active = (smooth ? modulus : modulus + epsilon) + b;
    if (!(active > 0.0f)) return {0.0f, 0.0f, 0.0f};
    return {active * divisor, (smooth ? epsilon - b : -b) * divisor * divisor / modulus, divisor};
}
