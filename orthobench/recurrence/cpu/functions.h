/* Functions of derived cells, besides those of vectors.h. */
#ifndef ORTHOBENCH_FUNCTIONS_H
#define ORTHOBENCH_FUNCTIONS_H

#include "vectors.h"

/* sin of r + quadrant pi/2, of r in [-pi/4, pi/4], by the series of Taylor up to a rounding. */
INLINE vf sine_from(vf r, vi quadrant) {
    const vf s = r * r;
    const vf odd = r - r * s * (1.0f / 6 - s * (1.0f / 120 - s * (1.0f / 5040 - s * (1.0f / 362880))));
    const vf even = 1.0f - s * (0.5f - s * (1.0f / 24 - s * (1.0f / 720 - s * (1.0f / 40320 - s * (1.0f / 3628800)))));
    const vf value = select_lanes((quadrant & 1) != 0, even, odd);
    return (vf)((vi)value ^ ((quadrant & 2) << 30));
}

/* sin(x + first pi/2). From 8192 on, where the reduction by three parts of pi/2 loses digits, by the C library. */
INLINE vf sine_after(const int first, vf x) {
    const vf shift = splat(12582912.0f); /* 1.5 2^23: adding it rounds to a whole number, which its last bits then hold */
    const vf shifted = x * 0.636619772f + shift, whole = shifted - shift;
    const vf r = ((x - whole * 1.5703125f) - whole * 4.837512969970703e-4f) - whole * 7.549789948768648e-8f;
    vf value = sine_from(r, (vi)shifted + first);
    const vi is_far = magnitude(x) > 8192.0f;
    int any = 0;
    for (int lane = 0; lane < VL; lane++) any |= is_far[lane];
    for (int lane = 0; lane < VL && any; lane++)
        if (is_far[lane]) value[lane] = first ? cosf(x[lane]) : sinf(x[lane]);
    return select_lanes(x == x, value, x);
}

INLINE vf sine(vf x) { return sine_after(0, x); }
INLINE vf cosine(vf x) { return sine_after(1, x); }

/* log x = e log 2 + 2 artanh((m - 1) / (m + 1)) of x = 2^e m, m in [sqrt(1/2), sqrt(2)). */
INLINE vf logarithm(vf x) {
    const vi exponent = ((vi)x - 0x3f3504f3) >> 23;
    const vf m = (vf)((vi)x - (exponent << 23));
    vf whole = {0};
    for (int lane = 0; lane < VL; lane++) whole[lane] = (float)exponent[lane];
    const vf q = (m - 1.0f) / (m + 1.0f), s = q * q;
    const vf value = whole * 0.693359375f +
                     (2.0f * q * (1.0f + s * (1.0f / 3 + s * (1.0f / 5 + s * (1.0f / 7 + s * (1.0f / 9))))) -
                      whole * 2.12194440e-4f);
    const vf edge = select_lanes(x < 0, splat(NAN), select_lanes(x == 0, splat(-INFINITY), x));
    return select_lanes((x > 0) & (x < INFINITY), value, edge);
}

INLINE vf root(vf x) {
#if defined(__AVX512F__)
    return (vf)_mm512_sqrt_ps((__m512)x);
#else
    return square_root(x);
#endif
}

INLINE vf softplus(vf x) { return relu(x) + log_one_plus(exponential(-magnitude(x))); }

INLINE vf sign_of(vf x) { return select_lanes(x > 0, splat(1.0f), select_lanes(x < 0, splat(-1.0f), x)); }

#endif
