#include "weight_sums.h"

#include <time.h>

INLINE int64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

int start_backward(struct step *s, struct sums *sums, const struct dense *p, int64_t first, int64_t rows, int states,
                   int64_t width, int64_t extra) {
    const int64_t n = p->features;
    *sums = (struct sums){
        .sources = {{0, width, 0, n + p->inputs, p->h, p->h0}},
        .count = 1,
        .rows = rows,
        .width = width,
        .chunk = steps_of_sum(p->batch, p->groups, p->steps),
        .row = width,
        .started = p->weight_time ? nanoseconds() : 0,
    };
    *s = (struct step){.p = p, .first = first, .memory = zeros(states * rows * (n + VL))};
    if (!s->memory) return 0;
    s->carried[0] = s->memory + states * rows * VL;
    if (states > 1) s->carried[1] = s->carried[0] + rows * n;
    if (p->norms) s->squares[0] = s->memory;
    if (p->norms_2) s->squares[1] = s->memory + rows * VL;
    if (p->dweights) {
        sums->ld = odd_lines(width + extra);
        sums->row = sums->chunk * sums->ld;
        sums->ring = zeros(rows * sums->row);
        if (!sums->ring) {
            free(s->memory);
            return 0;
        }
        s->dx = p->dx;
    }
    s->dz_row = sums->row;
    return 1;
}

int end_backward(const struct step *s, const struct sums *sums, uint64_t denormals) {
    free(sums->ring);
    free(s->memory);
    restore_denormals(denormals);
    int64_t *const times = s->p->weight_time;
    if (!times) return 0;
    __atomic_fetch_add(times, sums->spent, __ATOMIC_RELAXED);
    __atomic_fetch_add(times + 1, nanoseconds() - sums->started, __ATOMIC_RELAXED);
    return 0;
}

/* Adds the products of the rows [first, last) and the steps [t, t + chunk), whose dz starts at `dz`, to `out`. */
static void add_source(const struct sums *sums, const struct source *source, const struct dense *p, int64_t t,
                       int64_t first, int64_t last, const float *dz, float *out) {
    const int64_t n = p->features, m = p->inputs, chunk = sums->chunk;
    const int64_t real = p->steps - t < chunk ? p->steps - t : chunk;
    struct factor factors[DEPTH];
    int64_t depth = 0, passed = 0;
    for (int64_t row = first; row < last; row++)
        for (int64_t i = 0; i < chunk; i++) {
            const int64_t step = t + i;
            if (i < real) {
                const float *const state =
                    source->initial ? state_before(p, source->states, source->initial, step, row)
                    : source->states ? source->states + (step * p->batch + row) * n : dz + passed * sums->ld + sums->width;
                factors[depth++] = (struct factor){state, p->u + (step * p->batch + row) * m};
            }
            if (++passed < DEPTH && (i < chunk - 1 || row < last - 1)) continue;
            /* Without a gap the rows are one run, because each end of a run interrupts the processor's pipeline. */
            const struct rows rows = {dz + source->first, depth, sums->ld, real < chunk ? real : 0,
                                      (chunk - real) * sums->ld};
            accumulate_outer(&rows, factors, 0, source->last - source->first, source->from, source->to, n, m,
                             out + source->first * padded(n + m), NULL);
            dz += passed * sums->ld;
            depth = passed = 0;
        }
}

void add_products(struct sums *sums, const struct dense *p, int64_t t, int64_t first) {
    if (!p->dweights || t % sums->chunk) return;
    const int64_t start_time = p->weight_time ? nanoseconds() : 0;
    const int64_t last = first + sums->rows;
    for (int64_t group = 0; group < p->groups; group++) {
        const int64_t start_row = p->batch * group / p->groups, end_row = p->batch * (group + 1) / p->groups;
        if (start_row < first || end_row > last) continue;
        const float *const dz = sums->ring + (start_row - first) * sums->row;
        float *const out = p->dweights + group * sums->width * padded(p->features + p->inputs);
        for (const struct source *source = sums->sources; source < sums->sources + sums->count; source++)
            add_source(sums, source, p, t, start_row, end_row, dz, out);
    }
    if (p->weight_time) sums->spent += nanoseconds() - start_time;
}

/* ------------------------------------------------------------------ dL/dW over all time steps */

/* out [width, padded(n + m)] = sum over k in [first, last) of dz[k]^T [state[k - batch], input[k]], k counting rows of
 * [T * B]; the states before the first step's are in `initial`. */
int weight_gradient(int64_t first, int64_t last, int64_t batch, int64_t width, int64_t n, int64_t m, const float *dz,
                    int64_t ldz, const float *states, const float *initial, const float *inputs, float *out) {
    float *const copy = zeros(copy_size(width));
    if (!copy) return 1;
    const uint64_t denormals = flush_denormals();
    memset(out, 0, (size_t)(width * padded(n + m)) * 4);
    struct factor factors[2 * DEPTH];
    for (int64_t start = first; start < last; start += DEPTH) {
        const int64_t left = last - start, depth = left < DEPTH ? left : DEPTH;
        const int64_t ahead = left - depth < DEPTH ? left - depth : DEPTH;
        for (int64_t r = 0; r < depth + ahead; r++) {
            const int64_t k = start + r;
            const float *const state = k < batch ? initial + k * n : states + (k - batch) * n;
            factors[r] = (struct factor){state, inputs + k * m};
        }
        const struct rows rows = {dz + start * ldz, depth, ldz};
        accumulate_outer(&rows, factors, ahead, width, 0, n + m, n, m, out, copy);
    }
    free(copy);
    restore_denormals(denormals);
    return 0;
}

/* out [rows, count] = the first `count` columns of sums[0] + sums[1] + ..., in this order; each is [rows, columns]. */
void add_partial_sums(int64_t sums, int64_t rows, int64_t columns, int64_t count, const float *from, float *out) {
    for (int64_t row = 0; row < rows; row++, from += columns, out += count) {
        memcpy(out, from, (size_t)count * 4);
        for (int64_t k = 1; k < sums; k++)
            for (int64_t i = 0; i < count; i++) out[i] += from[k * rows * columns + i];
    }
}
