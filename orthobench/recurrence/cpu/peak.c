/* The rate of fused multiply-adds on registers, which bounds every float32 kernel. */
#include "vectors.h"

/* Independent chains, more than the latency of an addition times the number of units, which fit the register file. */
enum { CHAINS = 2 * ROWS > 24 ? 24 : 2 * ROWS };

/* Floating-point operations of one repetition. */
int64_t multiply_add_flops(void) { return (int64_t)CHAINS * VL * 2; }

/* Repeats x <- x a + b on every chain; `out` [VL] gets their sum, so that no compiler leaves the work out. The chains
 * converge to b / (1 - a), so no number overflows or becomes denormal. */
void multiply_add(int64_t repeats, float a, float b, float *out) {
    vf chains[CHAINS];
    const vf factor = splat(a), addend = splat(b);
#pragma GCC unroll 32
    for (int i = 0; i < CHAINS; i++) chains[i] = splat((float)i);
    for (int64_t repeat = 0; repeat < repeats; repeat++)
#pragma GCC unroll 32
        for (int i = 0; i < CHAINS; i++) chains[i] = chains[i] * factor + addend;
    vf sum = chains[0];
#pragma GCC unroll 32
    for (int i = 1; i < CHAINS; i++) sum += chains[i];
    store(out, sum, VL);
}
