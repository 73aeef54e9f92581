/* The short causal convolution through time with SiLU, y_t = silu(sum_i w_i o x_{t - taps + 1 + i} + b), in float32.
 *
 * Features are independent, so the caller gives each thread a range of blocks: a block is one vector of features of one
 * batch row. The sequence is cut into tiles, whose steps of one block run with all inputs in registers. Tensors are
 * contiguous and time major, [T, B, width]; `before` [taps - 1, B, width] has the inputs before the first step, and the
 * weight is [taps, width], the oldest input's first. The bias [width] and its gradient are NULL if it is absent. */
#include "convolution.h"
#include "vectors.h"

enum { TILE = 16 }; /* steps */

int64_t convolution_taps(void) { return MOST_TAPS; }
int64_t convolution_inputs(void) { return MOST_INPUTS; }

/* x_t, or one of the inputs before the first step. */
INLINE vf input(const float *x, const float *before, int64_t taps, int64_t size, int64_t at, int64_t t, int count) {
    return t >= 0 ? load(x + t * size + at, count) : load(before + (t + taps - 1) * size + at, count);
}

/* Runs BODY for the tiles, in the order of TILE_OF, and the blocks in [first, last). A block begins at column `col`, at
 * the place `at` of a tensor [B, width], and has `count` features. The tile has the steps [begin, end). */
#define EACH_TILE(TILE_OF, BODY)                                                                    \
    const int64_t blocks = (width + VL - 1) / VL, size = batch * width, tiles = (steps + TILE - 1) / TILE; \
    for (int64_t tile = 0; tile < tiles; tile++) {                                                  \
        const int64_t begin = (TILE_OF) * TILE, end = begin + TILE < steps ? begin + TILE : steps;  \
        for (int64_t block = first; block < last; block++) {                                        \
            const int64_t row = block / blocks, col = (block - row * blocks) * VL, at = row * width + col; \
            const int count = lanes(width - col);                                                   \
            BODY                                                                                    \
        }                                                                                           \
    }

INLINE void forward(const int taps, int64_t first, int64_t last, int64_t steps, int64_t batch, int64_t width,
                    const float *x, const float *before, const float *weight, const float *bias, float *y) {
    EACH_TILE(tile, {
        vf w[MOST_TAPS];
        vf window[MOST_TAPS];
        const vf constant = bias ? load(bias + col, count) : (vf){0};
        for (int i = 0; i < taps; i++) w[i] = load(weight + i * width + col, count);
        for (int i = 1; i < taps; i++) window[i] = input(x, before, taps, size, at, begin - taps + i, count);
        for (int64_t t = begin; t < end; t++) {
            for (int i = 1; i < taps; i++) window[i - 1] = window[i];
            window[taps - 1] = load(x + t * size + at, count);
            vf z = constant + w[0] * window[0];
            for (int i = 1; i < taps; i++) z += w[i] * window[i];
            store(y + t * size + at, z * sigmoid(z), count);
        }
    })
}

/* y [T, B, width]. */
void convolution_forward(int64_t first, int64_t last, int64_t steps, int64_t batch, int64_t width, int64_t taps,
                         const float *x, const float *before, const float *weight, const float *bias, float *y) {
    const uint64_t denormals = flush_denormals();
    if (taps == 4) forward(4, first, last, steps, batch, width, x, before, weight, bias, y);
    else forward((int)taps, first, last, steps, batch, width, x, before, weight, bias, y);
    restore_denormals(denormals);
}

/* `later` [taps - 1, B, width] holds dL/dz of the steps after a tile, the next one first; zeros at the start. */
INLINE void backward(const int taps, int64_t first, int64_t last, int64_t steps, int64_t batch, int64_t width,
                     const float *x, const float *before, const float *weight, const float *bias, const float *dy,
                     float *dx, float *dbefore, float *dweight, float *dbias, float *later) {
    EACH_TILE(tiles - 1 - tile, {
        vf w[MOST_TAPS];
        vf dw[MOST_TAPS];
        vf window[MOST_TAPS];
        vf dz[MOST_TAPS]; /* dz[i]: of step t + i */
        vf by_bias = {0};
        const vf constant = bias ? load(bias + col, count) : (vf){0};
        for (int i = 0; i < taps; i++) {
            w[i] = load(weight + i * width + col, count);
            dw[i] = load(dweight + i * size + at, count);
        }
        for (int i = 0; i < taps - 1; i++) {
            window[i] = input(x, before, taps, size, at, end - taps + 1 + i, count);
            dz[i] = load(later + i * size + at, count);
        }
        for (int64_t t = end - 1; t >= begin; t--) {
            for (int i = taps - 1; i > 0; i--) window[i] = window[i - 1];
            window[0] = input(x, before, taps, size, at, t - taps + 1, count);
            vf z = constant + w[0] * window[0];
            for (int i = 1; i < taps; i++) z += w[i] * window[i];
            const vf s = sigmoid(z);
            for (int i = taps - 1; i > 0; i--) dz[i] = dz[i - 1];
            dz[0] = load(dy + t * size + at, count) * (s + z * s * (1.0f - s));
            by_bias += dz[0];
            vf total = {0};
            for (int i = 0; i < taps; i++) {
                dw[i] += dz[0] * window[i];
                total += w[taps - 1 - i] * dz[i]; /* x_t is input taps - 1 - i of step t + i */
            }
            store(dx + t * size + at, total, count);
        }
        for (int i = 0; i < taps; i++) store(dweight + i * size + at, dw[i], count);
        if (dbias) store(dbias + at, load(dbias + at, count) + by_bias, count);
        for (int i = 0; i < taps - 1; i++) store(later + i * size + at, dz[i], count);
        if (begin == 0)
            for (int j = 0; j < taps - 1; j++) { /* the input of step j - taps + 1 */
                vf total = {0};
                for (int i = 0; i <= j; i++) total += w[j - i] * dz[i];
                store(dbefore + j * size + at, total, count);
            }
    })
}

/* dx, dbefore as before, dweight [taps, B, width] and dbias [B, width]: each row's sum over time. They and `later` are
 * zeroed. */
void convolution_backward(int64_t first, int64_t last, int64_t steps, int64_t batch, int64_t width, int64_t taps,
                          const float *x, const float *before, const float *weight, const float *bias,
                          const float *dy, float *dx, float *dbefore, float *dweight, float *dbias, float *later) {
    const uint64_t denormals = flush_denormals();
#define RUN(TAPS)                                                                                                   \
    backward(TAPS, first, last, steps, batch, width, x, before, weight, bias, dy, dx, dbefore, dweight, dbias, later)
    if (taps == 4) RUN(4);
    else RUN((int)taps);
#undef RUN
    restore_denormals(denormals);
}
