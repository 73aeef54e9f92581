/* The selective scan's outputs (y_t + D o x_t) o silu(z_t), a chunk of steps at a time.
 *
 * D is `skip` [width]; without it, NULL, the outputs are y. z is `gate` [T, B, width], or W u_t of the numbers u that x
 * is projected from, with `gate_weight` [inputs, width], W transposed. Without both there is no factor. z comes with
 * D. */
#ifndef ORTHOBENCH_OUTPUTS_H
#define ORTHOBENCH_OUTPUTS_H

#include "chunk.h"

INLINE int is_gated(const struct selective *p) { return p->gate || p->gate_weight; }

/* z of a block at a place of [T, B]. */
INLINE vf gate_at(const struct selective *p, int64_t at, int64_t col, int count) {
    if (p->gate) return load(p->gate + at * p->width + col, count);
    vf z = {0};
    for (int64_t j = 0; j < p->inputs; j++)
        z += p->x[at * p->inputs + j] * load(p->gate_weight + j * p->width + col, count);
    return z;
}

INLINE vf load_skip(const struct selective *p, int64_t col, int count) {
    return p->skip ? load(p->skip + col, count) : (vf){0};
}

/* The outputs of a block at the steps of a chunk, from its readings y. */
INLINE void write_outputs(const int gated, const struct chunk *chunk, int64_t col, const vf *y) {
    const struct selective *const p = chunk->p;
    const int count = lanes(p->width - col);
    const vf skip = load_skip(p, col, count);
    for (int64_t t = 0; t < chunk->count; t++) {
        const int64_t at = step_at(chunk, t);
        vf output = y[t];
        fetch(chunk, t, col, p->width, p->y);
        if (p->skip) output += skip * load(chunk->x + t * chunk->ldx + col, count);
        if (gated) {
            const vf z = gate_at(p, at, col, count);
            if (p->gate) fetch(chunk, t, col, p->width, p->gate);
            output *= z * short_sigmoid(z);
        }
        store(p->y + at * p->width + col, output, count);
    }
}

/* Sums and steps of a block in the backward pass. */
struct gate {
    vf *by_y;      /* dL/dy of the readings [SCAN_STEPS] */
    vf *y;         /* the readings [SCAN_STEPS] */
    vf *by_z;      /* the derivative of the outputs by z, without the factor y + D o x [SCAN_STEPS] */
    float *skip;   /* dskip of a group of rows [padded(width)] */
    float *weight; /* dgate_weight of a group of rows [inputs, padded(width)] */
};

/* What the backward pass over a block begins with. */
INLINE void open_outputs(const int gated, const struct chunk *chunk, int64_t col, struct gate gate) {
    const struct selective *const p = chunk->p;
    const int count = lanes(p->width - col);
    for (int64_t t = 0; t < chunk->count; t++) {
        const int64_t at = step_at(chunk, t);
        const vf arriving = load(p->grad_y + at * p->width + col, count);
        gate.by_y[t] = arriving;
        if (!gated) continue;
        const vf z = gate_at(p, at, col, count), s = short_sigmoid(z), factor = z * s;
        if (p->gate) fetch(chunk, t, col, p->width, p->gate);
        gate.by_y[t] = arriving * factor;
        gate.by_z[t] = arriving * (s + factor * (1.0f - s));
        gate.y[t] = (vf){0};
    }
}

/* The gradients by D and z, and D's part of that by x: `dx`, `stride` vectors apart. */
INLINE void close_outputs(const int gated, const struct chunk *chunk, int64_t col, struct gate gate, vf *dx,
                          int64_t stride) {
    const struct selective *const p = chunk->p;
    const int64_t width = p->width, inputs = p->inputs;
    const int count = lanes(width - col);
    const vf skip = load_skip(p, col, count);
    vf by_skip = {0};
    vf by_weight[MOST_INPUTS] = {{0}};
    for (int64_t t = 0; t < chunk->count; t++) {
        const int64_t at = step_at(chunk, t);
        const vf x = load(chunk->x + t * chunk->ldx + col, count);
        by_skip += gate.by_y[t] * x;
        dx[t * stride] += skip * gate.by_y[t];
        if (!gated) continue;
        const vf dz = gate.by_z[t] * (gate.y[t] + skip * x);
        if (p->gate) store(p->dgate + at * width + col, dz, count);
        else
            for (int64_t j = 0; j < inputs; j++) by_weight[j] += p->x[at * inputs + j] * dz;
    }
    *(vf *)(gate.skip + col) += by_skip;
    for (int64_t j = 0; p->gate_weight && j < inputs; j++)
        *(vf *)(gate.weight + j * padded(width) + col) += by_weight[j];
}

#endif
