/* What a cell tells the persistent kernels, and what they give it.
 *
 * A direction of a cell is a struct that derives from Cell, with these constants. Python reads them from the source.
 *   PHASES      products of a step that follow one another: 1 or 2
 *   VALUES      numbers that a unit contributes to the product of the first phase, and VALUES_2 to the second
 *   PRODUCTS    products that a unit receives in the first phase, and PRODUCTS_2 in the second
 *   ROW_2       the first block of n rows of the second phase's weight
 *   INPUTS      numbers of a unit and step in Arguments.input
 *   SECOND      numbers in Arguments.second: 1 backward, the gradient of the outputs
 *   OUTPUTS     numbers in Arguments.output
 *   SAVED       numbers in Arguments.saved
 *   STATES      numbers that a unit carries from step to step, and KEPT those that only the kernel knows
 *   FACTORS     numbers that `prepare` computes from inputs and parameters while messages travel
 *   VECTORS     parameters of a unit, and SUMS sums over the steps, of gradients
 *   TRACED      states whose total gradient `trace` holds
 * Forward, the weight's blocks of rows are products and its blocks of columns are values. Backward it is transposed.
 * Backward, `state` is the gradient that comes from the later step, except through the products. */
#pragma once
#include "pointwise.cuh"

struct Constants {
    float a, b, c;
};

struct Arguments {
    const float *input, *second;     /* [T, B, INPUTS N], [T, B, N] or null */
    const float *weight;             /* [rows N, columns n] of heads with n units, N in all */
    const float *vectors[4];         /* [N] or null */
    const float *start[4];           /* [B, N] or null */
    float *output, *saved;           /* [T, B, OUTPUTS N], [T, B, SAVED N] or null */
    float *end[4];                   /* [B, N] or null */
    float *sums[4];                  /* [B, N] or null */
    float *trace[3];                 /* [T, B, N] or null */
    int steps, batch;
    Constants constants;
};

/* A unit at a step: what `Cell::step` reads and writes. `pair` is the mask of lanes between the two columns of a complex
 * unit, 0 if the unit is not in a lane of its own. */
struct Unit {
    const float *product, *input, *factor, *vector;
    float *state, *output, *value, *sum, *trace;
    Constants constants;
    int pair;
    MEMBER float partner(float x) const { return shuffle_xor(x, pair); }
};

struct Cell {
    static constexpr int PHASES = 1, VALUES_2 = 1, PRODUCTS_2 = 1, ROW_2 = 0, SECOND = 0, SAVED = 0, KEPT = 0, FACTORS = 0,
                         VECTORS = 0, SUMS = 0, TRACED = 0;
    static MEMBER void prepare(const float *input, const float *vector, const Constants &constants, float *factor) {}
};

constexpr int at_least_one(int count) { return count > 0 ? count : 1; }
constexpr int logarithm(int power) { return power <= 1 ? 0 : 1 + logarithm(power / 2); }
template <int VALUE> struct Integer {
    static constexpr int value = VALUE;
};

/* Which of ROWS rows and EACH units a lane ends with after LANES lanes have added their sums, and how many lanes end with the
 * same ones. At each stage a lane keeps the first half of its values. Their order differs from lane to lane so that no value has
 * to be selected. */
template <int LANES, int ROWS, int EACH> struct Share {
    static constexpr int ROW_BITS = logarithm(ROWS), REST = logarithm(LANES) - ROW_BITS,
                         UNIT_BITS = logarithm(EACH) < REST ? logarithm(EACH) : REST,
                         COPIES = LANES >> (ROW_BITS + UNIT_BITS), LEFT = EACH >> UNIT_BITS;
    int row = 0, unit = 0, copy = 0;
    MEMBER Share(int lane) {
        UNROLL for (int bit = 0; bit < ROW_BITS; bit++)
            if (lane >> bit & 1) row |= ROWS >> (bit + 1);
        UNROLL for (int bit = 0; bit < UNIT_BITS; bit++)
            if (lane >> (ROW_BITS + bit) & 1) unit |= EACH >> (bit + 1);
        copy = lane >> (ROW_BITS + UNIT_BITS);
    }
};

/* Add values [ROWS, EACH, WIDTH] over LANES lanes; the lane's share is at the start. */
template <int LANES, int ROWS, int EACH, int WIDTH, int BIT = 0> DEVICE void reduce(float *values) {
    if constexpr (1 << BIT < LANES) {
        constexpr bool halves = ROWS > 1 || EACH > 1;
        constexpr int kept = ROWS * EACH * WIDTH / (halves ? 2 : 1);
        UNROLL for (int i = 0; i < kept; i++) values[i] += shuffle_xor(values[halves ? i + kept : i], 1 << BIT);
        constexpr int rows = ROWS > 1 ? ROWS / 2 : 1, each = ROWS == 1 && EACH > 1 ? EACH / 2 : EACH;
        reduce<LANES, rows, each, WIDTH, BIT + 1>(values);
    }
}
