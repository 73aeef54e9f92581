/* The activations of the dense recurrences and their derivatives, vector by vector. */
#ifndef ORTHOBENCH_ACTIVATIONS_H
#define ORTHOBENCH_ACTIVATIONS_H

#include "vectors.h"

enum kind { IDENTITY, TANH, RELU, LEAKY_RELU, MODRELU, COMPLEX_MODRELU, COMPLEX_MODRELU_SMOOTH };

struct modulus { vf squared, inverse_radius, inverse, shifted; };

/* Of every pair's complex unit, in both its lanes: |z|^2, the modulus' derivative over z, and with the modulus q as the
 * kind defines it the inverse of h's denominator and max(q + b, 0). All but |z|^2 are undefined where a square root of
 * 0 is taken. */
INLINE struct modulus complex_modulus(int kind, vf z, vf bias, float epsilon) {
    const vf squares = z * z;
    struct modulus m;
    m.squared = squares + swap_pairs(squares);
    vf radius;
    square_roots(kind == COMPLEX_MODRELU ? m.squared : m.squared + epsilon, &radius, &m.inverse_radius);
    m.shifted = relu((kind == COMPLEX_MODRELU ? radius + epsilon : radius) + bias);
    m.inverse = reciprocal(radius + epsilon);
    return m;
}

/* `parameter` is leaky ReLU's slope below 0, or the epsilon of the kinds with a modulus. */
INLINE vf activate(const int kind, vf z, vf bias, float parameter) {
    switch (kind) {
        case IDENTITY: return z + bias;
        case TANH: return hyperbolic_tangent(z + bias);
        case RELU: return relu(z + bias);
        case LEAKY_RELU: {
            /* + 0 turns -0 into 0: the backward pass reads the branch taken from the sign bit. */
            const vf shifted = z + bias;
            return select_lanes(shifted < 0, shifted * parameter, shifted + 0.0f);
        }
        case MODRELU: {
            const vf size = relu(magnitude(z) + parameter + bias);
            return mask(z != 0, (vf)((vi)size | ((vi)z & (int32_t)0x80000000)));
        }
        case COMPLEX_MODRELU: {
            const struct modulus m = complex_modulus(kind, z, bias, parameter);
            return mask(m.squared != 0, z * (m.shifted * m.inverse));
        }
        default: {
            const struct modulus m = complex_modulus(kind, z, bias, parameter);
            return z * (m.shifted * m.inverse);
        }
    }
}

struct derivative { vf z, bias; };

/* dL/dz and this element's addend of dL/db, from g = dL/da. `a` is the activation's output; of the complex kinds,
 * whose output does not give the input back, it is the input z. */
INLINE struct derivative differentiate(const int kind, vf g, vf a, vf bias, float parameter) {
    switch (kind) {
        case IDENTITY: return (struct derivative){g, g};
        case TANH: {
            const vf d = g * tangent_slope(a);
            return (struct derivative){d, d};
        }
        case RELU: {
            const vf d = mask(~(a <= 0), g);
            return (struct derivative){d, d};
        }
        case LEAKY_RELU: {
            const vf d = select_lanes((vi)a < 0, g * parameter, g);
            return (struct derivative){d, d};
        }
        case MODRELU: {
            const vf d = mask(a != 0, g);
            return (struct derivative){d, (vf)((vi)d ^ ((vi)a & (int32_t)0x80000000))};
        }
        default: {
            const struct modulus m = complex_modulus(kind, a, bias, parameter);
            const vf product = g * a, along = product + swap_pairs(product);
            const vf scale = m.shifted * m.inverse, active = mask(~(m.shifted <= 0), splat(1.0f));
            struct derivative d;
            d.z = g * scale + a * (along * (active - scale) * (m.inverse * m.inverse_radius));
            d.bias = along * active * m.inverse;
            if (kind == COMPLEX_MODRELU) {
                d.z = mask(m.squared != 0, d.z);
                d.bias = mask(m.squared != 0, d.bias);
            }
            return d;
        }
    }
}

#endif
