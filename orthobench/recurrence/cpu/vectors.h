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
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#include <math.h>

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
#define INTERNAL __attribute__((visibility("hidden"))) /* a function of the library that only the library calls */

typedef float vf __attribute__((vector_size(4 * VL)));
typedef int32_t vi __attribute__((vector_size(4 * VL)));
typedef float vf_unaligned __attribute__((vector_size(4 * VL), aligned(4), may_alias));

INLINE vf splat(float value) { return value - (vf){0}; }

/* x, held in a register: where a loop stores nothing, gcc reads a loaded vector again at each use. */
INLINE vf held(vf x) {
#if defined(__AVX512F__)
    __asm__("" : "+v"(x));
#endif
    return x;
}

INLINE int lanes(int64_t left) { return left < VL ? (int)left : VL; }

/* The columns of a matrix rounded up to whole vectors. */
INLINE int64_t padded(int64_t columns) { return (columns + VL - 1) / VL * VL; }

/* The first `count` lanes from memory, the others 0. Nothing behind them is touched. Unless it is unrolled, gcc makes a
 * loop over lanes a call of memcpy, around which it keeps no vector in a register. */
INLINE vf load(const float *from, int count) {
#if defined(__AVX512F__)
    return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
#else
    if (count == VL) return *(const vf_unaligned *)from;
#if VL == 8 && !defined(__SANITIZE_ADDRESS__) /* which does not watch masked loads */
    return (vf)_mm256_maskload_ps(from, (__m256i)((vi){0} + count > (vi){0, 1, 2, 3, 4, 5, 6, 7}));
#else
    vf value = {0};
#pragma GCC unroll 8
    for (int lane = 0; lane < VL; lane++)
        if (lane < count) value[lane] = from[lane];
    return value;
#endif
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
#if VL == 8 /* in pieces, because AMD's processors take a dozen cycles for a masked store */
    __m128 left = _mm256_castps256_ps128((__m256)value);
    if (count & 4) {
        _mm_storeu_ps(to, left);
        left = _mm256_extractf128_ps((__m256)value, 1);
        to += 4;
    }
    if (count & 2) {
        _mm_storel_pi((__m64 *)to, left);
        left = _mm_movehl_ps(left, left);
        to += 2;
    }
    if (count & 1) _mm_store_ss(to, left);
#else
#pragma GCC unroll 4
    for (int lane = 0; lane < VL; lane++)
        if (lane < count) to[lane] = value[lane];
#endif
#endif
}

/* Copies a matrix [rows, columns] between rows that are `ldf` and `ldt` floats apart. */
INLINE void copy_rows(int64_t rows, int64_t columns, const float *from, int64_t ldf, float *to, int64_t ldt) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < columns; c += VL)
            store(to + i * ldt + c, load(from + i * ldf + c, lanes(columns - c)), lanes(columns - c));
}

/* Copies a matrix [rows, columns] to rows of whole vectors, with zeros behind. */
INLINE void pad_rows(int64_t rows, int64_t columns, const float *from, float *to) {
    const int64_t length = padded(columns);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < length; c += VL)
            *(vf *)(to + i * length + c) = load(from + i * columns + c, lanes(columns - c));
}

/* Requests the line at a time step's distance, one step before its use, because no hardware prefetcher follows that
 * walk. Lines to be written are requested in the same way, because a request to own a line would wait for it. */
INLINE void prefetch(const float *at, int64_t distance) { __builtin_prefetch(at + distance, 0, 2); }

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

/* Whether rows of results are written around the caches: whole vectors, and more of them than the caches hold. */
INLINE int passes_caches(int64_t rows, int64_t width) { return width % VL == 0 && rows * width > CACHED; }

INLINE void store_result(int around, float *to, vf value, int count) {
    if (around) stream(to, value);
    else store(to, value, count);
}

/* `yes` in the lanes where the condition holds, else `no`. */
INLINE vf select_lanes(vi condition, vf yes, vf no) {
#if VL == 8
    return (vf)_mm256_blendv_ps((__m256)no, (__m256)yes, (__m256)condition);
#else
    return (vf)((condition & (vi)yes) | (~condition & (vi)no));
#endif
}

/* `value` where the condition holds, else 0. */
INLINE vf mask(vi condition, vf value) { return (vf)(condition & (vi)value); }

/* Lane i: lane `from[i]` of a, and of b from VL on. Clang's builtin takes constant lanes alone. */
INLINE vf shuffle(vf a, vf b, vi from) {
#if defined(__clang__)
    vf result;
    for (int lane = 0; lane < VL; lane++) result[lane] = from[lane] < VL ? a[from[lane]] : b[from[lane] - VL];
    return result;
#else
    return __builtin_shuffle(a, b, from);
#endif
}

/* a b + c, rounded once. The compiler joins a product and a sum too, but of two products the one that it likes, and none
 * where it needs the product again. */
INLINE vf fused(vf a, vf b, vf c) {
#if defined(__AVX512F__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif VL == 8
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    for (int lane = 0; lane < VL; lane++) c[lane] = fmaf(a[lane], b[lane], c[lane]);
    return c;
#endif
}

/* kept state + written input: what a step leaves of a state, and adds to it. The product with the state is not rounded.
 * Else an input that stays the same would be rounded to the same side in every step, because it is added to numbers of
 * one size, and a slow state would drift. */
INLINE vf mixture(vf kept, vf state, vf written, vf input) { return fused(kept, state, written * input); }

INLINE vf magnitude(vf x) { return (vf)((vi)x & 0x7fffffff); }

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
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)x);
#elif VL == 8
    __m128 half = _mm_add_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
#else
    return (x[0] + x[2]) + (x[1] + x[3]);
#endif
}

/* Lane j of the first vector: the sum of neighbours 2j and 2j + 1 of both, one after the other. */
INLINE vf neighbours(vf a, vf b) {
    vi even;
    for (int lane = 0; lane < VL; lane++) even[lane] = 2 * lane;
    return shuffle(a, b, even) + shuffle(a, b, even + 1);
}

/* Lane j: the sum of row j's lanes. */
INLINE vf sums_of_rows(vf *rows) {
#pragma GCC unroll 4
    for (int count = VL / 2; count; count /= 2)
#pragma GCC unroll 8
        for (int j = 0; j < count; j++) rows[j] = neighbours(rows[2 * j], rows[2 * j + 1]);
    return rows[0];
}

/* 1 / sqrt(mean of the squares + epsilon) of `size` numbers, in every lane. */
INLINE vf unit_scale(const float *x, int64_t size, float epsilon) {
    vf squares = {0}, root, inverse;
    for (int64_t c = 0; c < size; c += VL) {
        const vf value = load(x + c, lanes(size - c));
        squares += value * value;
    }
    square_roots(splat(sum_of(squares) / (float)size + epsilon), &root, &inverse);
    return inverse;
}

/* x or `high`, whichever is less; NaN stays. */
INLINE vf at_most(vf x, float high) {
#if defined(__AVX512F__)
    /* x comes second, because the instruction returns the second number if one is NaN. */
    return (vf)_mm512_min_ps((__m512)splat(high), (__m512)x);
#elif VL == 8
    return (vf)_mm256_min_ps((__m256)splat(high), (__m256)x); /* likewise */
#else
    return select_lanes(x > high, splat(high), x);
#endif
}

/* x or `low`, whichever is more; NaN stays. */
INLINE vf at_least(vf x, float low) {
#if defined(__AVX512F__)
    /* x comes second, because the instruction returns the second number if one is NaN. */
    return (vf)_mm512_max_ps((__m512)splat(low), (__m512)x);
#elif VL == 8
    return (vf)_mm256_max_ps((__m256)splat(low), (__m256)x); /* likewise */
#else
    return select_lanes(x < low, splat(low), x);
#endif
}

/* x held in [low, high]; NaN stays. */
INLINE vf clamp(vf x, float low, float high) { return at_least(at_most(x, high), low); }

INLINE vf relu(vf x) { return at_least(x, 0.0f); }

/* e^x as scale (1 + rest), of x in [-87, 88]: the rest keeps its digits where e^x is close to 1. */
struct power { vf scale, rest; };

INLINE struct power split_exponential(vf x) {
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
    return (struct power){(vf)(((vi)shifted << 23) + (127 << 23)), series * (rest * rest) + rest};
}

/* e^x, relative error below 2e-7; the argument is held in [-87, 88], outside of which float32 has nothing to say. */
INLINE vf exponential(vf x) {
    const struct power power = split_exponential(clamp(x, -87.0f, 88.0f));
    return (power.rest + 1.0f) * power.scale;
}

#define LOG2E 1.44269504088896341f

/* 2^(x y) of x y <= 126, relative error below 5e-7; 0 or 2^-126 below the range. */
INLINE vf power_of_product(vf x, vf y) {
#if defined(__AVX512F__)
    /* x y = n + i / 32 + r, |r| <= 1/64. 2^r is C ((r + 46/32)^2 + D): a square costs one operation less than a series.
     * `whole` is n + i / 32 - 46/32, whose floor is n - 2, or n - 1 from i = 14 on. The instruction that multiplies by
     * 2^floor gives 0 below the range. The table has the rest: 2^(i / 32) C times 4 or 2. 2^0 is 1. */
    static const float table[32] = {
        0.964392841f, 0.98551029f, 1.00709009f, 1.0291425f, 1.05167782f, 1.07470655f, 1.09823954f, 1.12228787f,
        1.14686286f, 1.17197585f, 1.19763875f, 1.2238636f, 1.2506628f, 1.27804875f, 0.653017163f, 0.667316377f,
        0.681928694f, 0.696861029f, 0.712120295f, 0.727713645f, 0.743648529f, 0.75993228f, 0.776572645f, 0.793577373f,
        0.810954452f, 0.828712046f, 0.846858501f, 0.865402281f, 0.884352148f, 0.903716922f, 0.923505723f, 0.943727851f};
    const vf shifted = x * y + 393216.0f; /* 1.5 * 2^18: adding it rounds to a multiple of 1 / 32 */
    const vf whole = shifted - 393217.4375f, root = x * y - whole;
    const vf entry = (vf)_mm512_permutex2var_ps(_mm512_loadu_ps(table), (__m512i)shifted, _mm512_loadu_ps(table + 16));
    return (vf)_mm512_scalef_ps((__m512)(entry * (root * root + 2.08128119f)), (__m512)whole);
#else
    const vf held = at_least(x * y, -126.0f);
    const vf magic = splat(12582912.0f); /* as in `exponential` */
    const vf shifted = held + magic, rest = held - (shifted - magic);
    vf series = splat(1.32647264e-3f); /* a fit of least relative error, exact at 0 */
    series = series * rest + 9.671512697e-3f;
    series = series * rest + 5.550733746e-2f;
    series = series * rest + 2.402224208e-1f;
    series = series * rest + 6.931469776e-1f;
    series = series * rest + 1.0f;
    return series * (vf)(((vi)shifted << 23) + (127 << 23));
#endif
}

INLINE vf sigmoid(vf x) { return reciprocal(1.0f + exponential(-x)); }

/* The same in fewer operations, relative error below 5e-7 (1 + |x|). */
INLINE vf short_sigmoid(vf x) { return reciprocal(1.0f + power_of_product(at_least(x, -87.0f), splat(-LOG2E))); }

/* log(1 + u) of u in [0, 1]: u times a fit of least relative error, 3e-8, and with the rounding below 2e-7. */
INLINE vf log_one_plus(vf u) {
    vf series = splat(5.232691299e-3f);
    series = series * u - 2.950522676e-2f;
    series = series * u + 7.822593302e-2f;
    series = series * u - 1.366324425e-1f;
    series = series * u + 1.910600662e-1f;
    series = series * u - 2.484298199e-1f;
    series = series * u + 3.331909776e-1f;
    series = series * u - 4.999949336e-1f;
    series = series * u + 9.999999404e-1f;
    return u * series;
}

/* log sigmoid(x), and sigmoid(-x), its derivative. */
INLINE vf log_sigmoid(vf x, vf *derivative) {
    const vf e = exponential(-magnitude(x)), inverse = reciprocal(1.0f + e);
    *derivative = select_lanes(x > 0, e * inverse, inverse);
    return select_lanes(x > 0, (vf){0}, x) - log_one_plus(e);
}

/* tanh, relative error below 2.2e-7. With u = e^2|x| - 1 it is u / (u + 2), or 1 - 2 / (u + 2) where that is closer to
 * 1. The second form is off by half a unit in the last place and has no bias. So is all that `tangent_slope` leaves of
 * it, and it cannot be better from a value in float32. */
INLINE vf hyperbolic_tangent(vf x) {
    const struct power power = split_exponential(at_most(2.0f * magnitude(x), 20.0f)); /* tanh(10) is 1 */
    const vf u = power.scale * power.rest + (power.scale - 1.0f), inverse = reciprocal(u + 2.0f);
    const vf size = select_lanes(u > 4.0f, 1.0f - 2.0f * inverse, u * inverse);
    return (vf)((vi)size | ((vi)x & (int32_t)0x80000000));
}

/* 1 - a^2, tanh's derivative where its value is a. The square alone would round all that is left to one side. */
INLINE vf tangent_slope(vf a) { return (1.0f - a) * (1.0f + a); }

/* Denormal numbers cost a hundred cycles each and appear in every vanishing gradient, so kernels run without them. */
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
