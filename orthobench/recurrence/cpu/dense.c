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

void forward_sweep(const struct step *s, int64_t rows, const float *state, const float *packed,
                   const float *packed_inputs, int gates, epilogue *finish) {
    const int64_t n = s->p->features;
    const struct operand operands[] = {{state, n, n, packed}, input_operand(s, packed_inputs)};
    sweep(s, rows, operands, s->p->u ? 2 : 1, gates, finish);
}

void initial_gradient(const struct step *s, int64_t row, int rows, int64_t col, int vecs, const float *block) {
    const int64_t n = s->p->features;
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            const int64_t at = (row + i) * n + col + v * VL;
            const int count = lanes(n - col - v * VL);
            vf g = *(const vf *)(block + (i * 2 + v) * VL);
            if (s->direct) g += load(s->direct + at, count);
            store(s->p->dh0 + s->first * n + at, g, count);
        }
}

static void write_norms(const struct step *s, int64_t rows, float *squares, float *norms) {
    for (int64_t row = 0; row < rows; row++) {
        norms[s->t * s->p->batch + s->first + row] = sqrtf(sum_of(*(vf *)(squares + row * VL)));
        *(vf *)(squares + row * VL) = (vf){0};
    }
}

void finish_norms(const struct step *s, int64_t rows, float *c_norms) {
    if (s->squares) write_norms(s, rows, s->squares, s->p->norms);
    if (s->cell_squares) write_norms(s, rows, s->cell_squares, c_norms);
}

int end_forward(uint64_t denormals) {
    end_streams();
    restore_denormals(denormals);
    return 0;
}
