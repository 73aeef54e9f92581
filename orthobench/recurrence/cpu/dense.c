#include <math.h>

#include "dense.h"

int64_t vector_length(void) { return VL; }
int64_t saved_row(int64_t n, int64_t parts) { return kept_row(n, parts); }

void sweep(const struct step *s, int64_t rows, const struct operand *operands, int count, int gates, epilogue *finish) {
    _Alignas(64) float block[ROWS * 4 * VL];
    const int64_t n = s->p->features;
    const int64_t blocks = (rows + ROWS - 1) / ROWS;
    const int parts = gates > 2 ? 2 : 1;
    const int64_t step = gates == 1 ? 2 * VL : VL, tiles = blocks * ((n + step - 1) / step);
    int64_t done = 0;
    struct operand each[3];
    for (int i = 0; i < count; i++) each[i] = operands[i];
    if (!count) memset(block, 0, sizeof block);
    for (int64_t col = 0; col < n; col += step) {
        const int vecs = gates > 1 || n - col > VL ? 2 : 1;
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t row = rows * b / blocks;
            const int height = (int)(rows * (b + 1) / blocks - row);
            if (s->fetch && count) {
                const int64_t start = s->fetch_lines * done / tiles;
                each[0].fetch = s->fetch + start * 16;
                each[0].lines = s->fetch_lines * ++done / tiles - start;
            }
            for (int part = 0; part < parts && count; part++)
                multiply(height, gates == 3 && part ? 1 : vecs, each, count, row, col * gates + part * 2 * VL,
                         block + part * 2 * VL, parts * 2 * VL);
            finish(s, row, height, col, vecs, block);
        }
    }
}

INLINE void initial_sums(const int states, const struct step *s, int64_t row, int rows, int64_t col, int vecs,
                         const float *block) {
    const int64_t n = s->p->features;
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int state = states == 1 ? 0 : v;
            const int64_t here = col + (states == 1 ? v * VL : 0), at = (row + i) * n + here;
            const int count = lanes(n - here);
            vf g = *(const vf *)(block + (i * 2 + v) * VL);
            if (s->carried[state]) g += load(s->carried[state] + at, count);
            store((state ? s->p->dh0_2 : s->p->dh0) + s->first * n + at, g, count);
        }
}

void initial_gradient(const struct step *s, int64_t row, int rows, int64_t col, int vecs, const float *block) {
    initial_sums(1, s, row, rows, col, vecs, block);
}

void initial_gradients(const struct step *s, int64_t row, int rows, int64_t col, int vecs, const float *block) {
    initial_sums(2, s, row, rows, col, vecs, block);
}

static void write_norms(const struct step *s, int64_t rows, float *squares, float *norms) {
    for (int64_t row = 0; row < rows; row++) {
        norms[s->t * s->p->batch + s->first + row] = sqrtf(sum_of(*(vf *)(squares + row * VL)));
        *(vf *)(squares + row * VL) = (vf){0};
    }
}

void finish_norms(const struct step *s, int64_t rows) {
    if (s->squares[0]) write_norms(s, rows, s->squares[0], s->p->norms);
    if (s->squares[1]) write_norms(s, rows, s->squares[1], s->p->norms_2);
}
