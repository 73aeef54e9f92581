#include <math.h>

#include "dense.h"

int64_t vector_length(void) { return VL; }
int64_t saved_row(int64_t n, int64_t parts) { return kept_row(n, parts); }

/* A matrix of `gates` blocks of n output columns in panels. With one gate a panel is two vectors of columns (the last
 * may be one). With several gates a panel has two gates of VL units (the last panel of an odd number has one), so that
 * one block of sums holds all gates. */
void pack(float *to, const float *from, int64_t n, int64_t depth, int64_t sj, int64_t sk, int64_t gates) {
    if (gates == 1) {
        for (int64_t col = 0; col < n; col += 2 * VL) {
            const int vecs = n - col > VL ? 2 : 1;
            for (int v = 0; v < vecs; v++)
                pack_vector(to + col * depth + v * VL, vecs * VL, depth, from + (col + v * VL) * sj, sj, sk,
                            lanes(n - col - v * VL));
        }
        return;
    }
    for (int64_t col = 0; col < n; col += VL)
        for (int64_t gate = 0; gate < gates; gate++)
            pack_vector(to + (col * gates + gate / 2 * 2 * VL) * depth + gate % 2 * VL,
                        gate == gates - 1 && gate % 2 == 0 ? VL : 2 * VL, depth,
                        from + (gate * n + col) * sj, sj, sk, lanes(n - col));
}

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

void initial_gradient(const struct step *shared, int64_t row, int rows, int64_t col, int vecs, const float *block) {
    COPY_STEP(shared);
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

void finish_norms(const struct step *s, int64_t rows, float *squares, float *norms) {
    for (int64_t row = 0; row < rows; row++) {
        norms[s->t * s->p->batch + s->first + row] = sqrtf(sum_of(*(vf *)(squares + row * VL)));
        *(vf *)(squares + row * VL) = (vf){0};
    }
}

int two_states(const struct problem *p, int64_t first, int64_t rows, struct step *s, float **memory) {
    const int64_t n = p->features;
    *memory = zeros(rows * (2 * n + 2 * VL));
    if (!*memory) return 0;
    *s = (struct step){.p = p, .first = first, .direct = *memory + rows * 2 * VL};
    s->cell = s->direct + rows * n;
    s->squares = p->norms ? *memory : NULL;
    s->cell_squares = p->norms ? *memory + rows * VL : NULL;
    return 1;
}

void finish_both_norms(const struct step *s, int64_t rows) {
    if (!s->squares) return;
    finish_norms(s, rows, s->squares, s->p->norms);
    finish_norms(s, rows, s->cell_squares, s->p->c_norms);
}

int end_forward(uint64_t denormals) {
    end_streams();
    restore_denormals(denormals);
    return 0;
}
