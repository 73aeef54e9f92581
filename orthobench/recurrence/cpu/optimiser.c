/* A step of an optimiser for the weights of a group, in float32, in two passes with torch's square root between them.
 *
 * Each operation is rounded as in torch's optimisers, so a run has the same numbers with these kernels as without them.
 * Torch's root is not always the nearest number, and therefore not computed here. */
#include <math.h>

#include "vectors.h"

/* The same value, which the compiler cannot join with a later sum to a fused multiply-add. */
INLINE vf rounded(vf x) {
#if defined(__AVX512F__)
    __asm__("" : "+v"(x));
#elif defined(__SSE__)
    __asm__("" : "+x"(x));
#elif defined(__aarch64__)
    __asm__("" : "+w"(x));
#endif
    return x;
}

/* torch.lerp: from the end that is closer. */
INLINE vf between(vf start, vf end, float weight) {
    const int from_start = weight < 0.5f;
    return fused(splat(from_start ? weight : weight - 1.0f), end - start, from_start ? start : end);
}

/* How a step of weights w with gradients g follows from the averages m of g and v of g^2:
 *
 *     m <- m + first (g - m), or kept m + g if `adds_first`
 *     v <- v + second (g^2 - v), or kept v + second g^2 if `adds_second`
 *     w <- keep w + scale m / r,   r = sqrt(v + inside) / divisor + outside
 *
 * Without m, g takes its place; without v, r is 1. A root r of 0 counts as infinite. */
struct rule {
    int64_t adds_first, adds_second;
    float first, second, kept, inside, divisor, outside, keep, scale;
};

/* A weight [size] with its gradient, m and v, or NULL. */
struct weight {
    int64_t size;
    float *w;
    const float *g;
    float *m, *v;
};

INLINE void average_vector(const struct weight *each, const struct rule *rule, int64_t at, int count, float *roots) {
    const vf g = load(each->g + at, count);
    if (each->m) {
        const vf m = load(each->m + at, count);
        store(each->m + at, rule->adds_first ? rounded(rule->kept * m) + g : between(m, g, rule->first), count);
    }
    if (each->v) {
        vf v = load(each->v + at, count);
        if (rule->adds_second) v = fused(rounded(rule->second * g), g, rounded(rule->kept * v));
        else v = between(v, rounded(g * g), rule->second);
        store(each->v + at, v, count);
        store(roots + at, v + rule->inside, count);
    }
}

INLINE void descend_vector(const struct weight *each, const struct rule *rule, int64_t at, int count,
                           const float *roots) {
    const vf top = load((each->m ? each->m : each->g) + at, count);
    vf w = load(each->w + at, count);
    if (rule->keep != 1) w = rounded(w * rule->keep);
    if (each->v) {
        vf root = load(roots + at, count);
        if (rule->divisor != 1) root = root / rule->divisor;
        root = root + rule->outside;
        w += rounded(rule->scale * top) / select_lanes(root == 0, splat(INFINITY), root);
    } else w = fused(splat(rule->scale), top, w);
    store(each->w + at, w, count);
}

/* Runs FUNCTION for each vector of the numbers [first, last) of all weights, and of their roots. */
#define EACH_VECTOR(FUNCTION)                                                                       \
    const uint64_t denormals = flush ? flush_denormals() : 0;                                       \
    const struct rule copy = *rule; /* which no store changes */                                    \
    for (; last > 0; last -= weights->size, first -= weights->size, roots += weights->size, weights++) { \
        const struct weight each = *weights;                                                        \
        const int64_t end = last < each.size ? last : each.size;                                    \
        int64_t at = first > 0 ? first : 0;                                                         \
        for (; at + VL <= end; at += VL) FUNCTION(&each, &copy, at, VL, roots);                     \
        if (at < end) FUNCTION(&each, &copy, at, lanes(end - at), roots);                           \
    }                                                                                               \
    if (flush) restore_denormals(denormals);

/* m, v, and the roots' arguments. With `flush`, denormal numbers count as 0; otherwise the thread's mode decides. */
void average_gradients(int64_t first, int64_t last, int64_t flush, const struct weight *weights,
                       const struct rule *rule, float *roots) {
    EACH_VECTOR(average_vector)
}

/* w, from the roots sqrt(v + inside). */
void descend(int64_t first, int64_t last, int64_t flush, const struct weight *weights, const struct rule *rule,
             const float *roots) {
    EACH_VECTOR(descend_vector)
}

/* Whether this thread takes denormal numbers as 0. */
int64_t flushes_denormals(void) {
    /* Volatile, because the compiler would otherwise compute the product, in its own mode. */
    volatile float small = 1e-38f;
    return small * 0.01f == 0;
}
