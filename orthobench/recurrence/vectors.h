/* Float vectors of the machine's width: loads and stores of part of one, and the functions the recurrences need.
 *
 * Built with GCC's vector extensions, so that AVX-512, AVX2 and everything else share one text; the few intrinsics
 * are for what the extensions lack. Comparisons are written so that NaN comes out as NaN. */
#ifndef ORTHOBENCH_VECTORS_H
#define ORTHOBENCH_VECTORS_H

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#else
#include <math.h>
#endif

/* VL floats in a vector; ROWS x 2 vectors of accumulators fill the register file. */
#if defined(__AVX512F__)
#define VL 16
#define ROWS 14
#elif defined(__AVX2__) && defined(__FMA__)
#define VL 8
#define ROWS 6
#else
#define VL 4
#define ROWS 4
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(4 * VL)));
typedef int32_t vi __attribute__((vector_size(4 * VL)));
typedef float vf_unaligned __attribute__((vector_size(4 * VL), aligned(4), may_alias));

INLINE vf splat(float value) { return value - (vf){0}; }

INLINE int lanes(int64_t left) { return left < VL ? (int)left : VL; }

/* The first `count` lanes from memory, the others 0. Nothing behind them is touched. */
INLINE vf load(const float *from, int count) {
#if defined(__AVX512F__)
    return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
#else
    if (count == VL) return *(const vf_unaligned *)from;
    vf value = {0};
    for (int lane = 0; lane < count; lane++) value[lane] = from[lane];
    return value;
#endif
}

INLINE void store(float *to, vf value, int count) {
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), (__m512)value);
#else
    if (count == VL) {
        *(vf_unaligned *)to = value;
        return;
    }
    for (int lane = 0; lane < count; lane++) to[lane] = value[lane];
#endif
}

#ifndef CACHED
#define CACHED (1 << 20) /* floats that a cache may hold until they are read again */
#endif

/* A whole vector to an aligned place, around the caches. `end_streams` comes before another thread's reads. */
INLINE void stream(float *to, vf value) {
#if defined(__AVX512F__)
    _mm512_stream_ps(to, (__m512)value);
#elif VL == 8
    _mm256_stream_ps(to, (__m256)value);
#elif defined(__SSE__)
    _mm_stream_ps(to, (__m128)value);
#else
    *(vf *)to = value;
#endif
}

INLINE void end_streams(void) {
#if defined(__SSE__)
    _mm_sfence();
#endif
}

INLINE vf select_lanes(vi condition, vf yes, vf no) { return (vf)((condition & (vi)yes) | (~condition & (vi)no)); }

/* `value` where the condition holds, else 0. */
INLINE vf mask(vi condition, vf value) { return (vf)(condition & (vi)value); }

INLINE vf magnitude(vf x) { return (vf)((vi)x & 0x7fffffff); }

INLINE vf relu(vf x) { return select_lanes(x < 0, (vf){0}, x); }

#if !defined(__AVX512F__)
INLINE vf square_root(vf x) {
#if VL == 8
    return (vf)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE__)
    return (vf)_mm_sqrt_ps((__m128)x);
#else
    for (int lane = 0; lane < VL; lane++) x[lane] = sqrtf(x[lane]);
    return x;
#endif
}
#endif

/* 1 / x to the rounding, of x from 2^-126 to 2^126; 0 above. An estimate and a step of Newton's method take a third of
 * a division's time. */
INLINE vf reciprocal(vf x) {
#if defined(__AVX512F__)
    const vf estimate = (vf)_mm512_rcp14_ps((__m512)x);
    return estimate + estimate * (1.0f - x * estimate);
#else
    return 1.0f / x;
#endif
}

/* sqrt(x) and 1 / sqrt(x) of x > 0, likewise. Of 0 they are undefined. */
INLINE void square_roots(vf x, vf *root, vf *inverse) {
#if defined(__AVX512F__)
    const vf estimate = (vf)_mm512_rsqrt14_ps((__m512)x);
    const vf product = x * estimate, error = 0.5f - product * (0.5f * estimate);
    *root = product + product * error;
    *inverse = estimate + estimate * error;
#else
    *root = square_root(x);
    *inverse = 1.0f / *root;
#endif
}

/* Lanes 2j and 2j+1 exchanged. */
INLINE vf swap_pairs(vf x) {
    typedef int64_t pairs __attribute__((vector_size(4 * VL)));
    typedef uint64_t upairs __attribute__((vector_size(4 * VL)));
    upairs bits = (upairs)(pairs)x;
    return (vf)((bits << 32) | (bits >> 32));
}

INLINE float sum_of(vf x) {
    float total = 0;
    for (int lane = 0; lane < VL; lane++) total += x[lane];
    return total;
}

/* x held in [low, high]; NaN stays. */
INLINE vf clamp(vf x, float low, float high) {
#if defined(__AVX512F__)
    return (vf)_mm512_max_ps((__m512)splat(low), _mm512_min_ps((__m512)splat(high), (__m512)x));
#else
    x = select_lanes(x > high, splat(high), x);
    return select_lanes(x < low, splat(low), x);
#endif
}

/* x or `high`, whichever is less; NaN stays. */
INLINE vf at_most(vf x, float high) {
#if defined(__AVX512F__)
    return (vf)_mm512_min_ps((__m512)splat(high), (__m512)x);
#else
    return select_lanes(x > high, splat(high), x);
#endif
}

/* e^x, relative error below 2e-7; the argument is held in [-87, 88], outside of which float32 has nothing to say. */
INLINE vf exponential(vf x) {
    x = clamp(x, -87.0f, 88.0f);
    const vf magic = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer, held in the low bits */
    const vf shifted = x * 1.44269504088896341f + magic;
    const vf whole = shifted - magic;
    const vf rest = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;
    vf series = splat(1.9875691500e-4f);
    series = series * rest + 1.3981999507e-3f;
    series = series * rest + 8.3334519073e-3f;
    series = series * rest + 4.1665795894e-2f;
    series = series * rest + 1.6666665459e-1f;
    series = series * rest + 5.0000001201e-1f;
    const vf mantissa = series * (rest * rest) + rest + 1.0f;
    const vf scale = (vf)(((vi)shifted << 23) + (127 << 23));
    return mantissa * scale;
}

/* 2^x of x <= 126, relative error below 3e-7; the argument is held above -126. */
INLINE vf power_of_two(vf x) {
#if defined(__AVX512F__)
    x = (vf)_mm512_max_ps((__m512)splat(-126.0f), (__m512)x);
#else
    x = select_lanes(x < -126.0f, splat(-126.0f), x);
#endif
    const vf magic = splat(12582912.0f); /* as in `exponential` */
    const vf shifted = x + magic, rest = x - (shifted - magic);
    vf series = splat(1.32647264e-3f); /* a fit of least relative error, exact at 0 */
    series = series * rest + 9.671512697e-3f;
    series = series * rest + 5.550733746e-2f;
    series = series * rest + 2.402224208e-1f;
    series = series * rest + 6.931469776e-1f;
    series = series * rest + 1.0f;
    return series * (vf)(((vi)shifted << 23) + (127 << 23));
}

INLINE vf sigmoid(vf x) { return reciprocal(1.0f + exponential(-x)); }

/* log(1 + u) of u in [0, 1]: 2 artanh(u / (2 + u)), whose argument is at most 1/3, so that the series ends below the
 * rounding. */
INLINE vf log_one_plus(vf u) {
    const vf z = u * reciprocal(2.0f + u), square = z * z;
    vf series = splat(2.0f / 13.0f);
    series = series * square + 2.0f / 11.0f;
    series = series * square + 2.0f / 9.0f;
    series = series * square + 2.0f / 7.0f;
    series = series * square + 2.0f / 5.0f;
    series = series * square + 2.0f / 3.0f;
    series = series * square + 2.0f;
    return z * series;
}

/* log sigmoid(x), and sigmoid(-x), its derivative. */
INLINE vf log_sigmoid(vf x, vf *derivative) {
    const vf e = exponential(-magnitude(x)), inverse = reciprocal(1.0f + e);
    *derivative = select_lanes(x > 0, e * inverse, inverse);
    return select_lanes(x > 0, (vf){0}, x) - log_one_plus(e);
}

/* x P(x^2) / Q(x^2) on [-9, 9], outside of which tanh is 1 to the rounding. The polynomials are a least squares fit of
 * relative error 1.3e-9, weighted anew until the error is level; with the rounding it stays below 3.5e-7. */
INLINE vf hyperbolic_tangent(vf x) {
    const vf held = clamp(x, -9.0f, 9.0f), square = held * held;
    vf p = splat(-1.224506156e-11f), q = splat(1.288988911e-6f);
    p = p * square + 3.064093106e-8f;
    q = q * square + 3.940656388e-4f;
    p = p * square + 2.803065414e-5f;
    q = q * square + 2.725003951e-2f;
    p = p * square + 3.869475863e-3f;
    q = q * square + 4.701416305e-1f;
    p = p * square + 1.368083096e-1f;
    q = q * square + 1.0f;
    p = p * square + 1.0f;
    return clamp(held * p * reciprocal(q), -1.0f, 1.0f);
}

/* Denormal numbers cost a hundred cycles each and appear in every vanishing gradient: off while a kernel runs. */
INLINE uint64_t flush_denormals(void) {
#if defined(__SSE__)
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
    return before;
#elif defined(__aarch64__)
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | (1u << 24)));
    return before;
#else
    return 0;
#endif
}

INLINE void restore_denormals(uint64_t before) {
#if defined(__SSE__)
    _mm_setcsr((unsigned)before);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(before));
#else
    (void)before;
#endif
}

#endif
