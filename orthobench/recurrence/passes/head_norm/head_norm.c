/* The root mean square normalisation of the features of each head, times a gate silu(g), and its gradients, in float32.
 *
 * A row has the features of all heads of a step and batch row; each range of rows belongs to one thread. The gate is
 * absent, or read, or computed from a few inputs of the row, so that it does not pass through memory. */
#include "convolution.h"
#include "row_sums.h"
#include "tiles.h"

/* What is absent is NULL. */
struct head_norm {
    int64_t heads, size;      /* the number of heads, and the features of each */
    int64_t inputs;           /* numbers of a row that give the gate, or 0 */
    float epsilon;            /* added to the mean of the squares */
    const float *y;           /* [rows, heads, size] */
    const float *weight;      /* w [size] */
    const float *gate;        /* g [rows, heads, size], or with `inputs` u [rows, inputs] */
    const float *gate_weight; /* G transposed [inputs, heads, size] */
    float *h;                 /* [rows, heads, size] */
    const float *dh;          /* as h */
    float *dy;                /* as y */
    float *dgate;             /* as gate; NULL with `inputs` */
    float *dweight;           /* as weight: sums of this range (row_sums.h); NULL forward */
    float *dgate_weight;      /* as gate_weight, likewise; NULL without `inputs` */
};

enum { WITHOUT, READ, MADE };

/* g of the features from `col` on of a row. */
INLINE vf gate_at(const int gate, const struct head_norm *p, int64_t row, int64_t col, int count) {
    const int64_t n = p->heads * p->size;
    if (gate == READ) return load(p->gate + row * n + col, count);
    vf total = {0};
    for (int64_t i = 0; i < p->inputs; i++)
        total += load(p->gate_weight + i * n + col, count) * p->gate[row * p->inputs + i];
    return total;
}

INLINE void forward(const int gate, const struct head_norm *p, int64_t row, int64_t col) {
    const int64_t at = row * p->heads * p->size + col;
    const vf scale = unit_scale(p->y + at, p->size, p->epsilon);
    for (int64_t c = 0; c < p->size; c += VL) {
        const int count = lanes(p->size - c);
        vf h = load(p->y + at + c, count) * scale * load(p->weight + c, count);
        if (gate != WITHOUT) {
            const vf g = gate_at(gate, p, row, col + c, count);
            h *= g * short_sigmoid(g);
        }
        store(p->h + at + c, h, count);
    }
}

/* Adds the contribution of dg to the gradient of the weights that compute g. */
INLINE void add_gate_weights(const struct head_norm *p, int64_t row, int64_t col, vf dgate, int count) {
    const int64_t n = p->heads * p->size;
    for (int64_t i = 0; i < p->inputs; i++)
        add_to_sums(p->dgate_weight, p->inputs * n, i * n + col, dgate * p->gate[row * p->inputs + i], count);
}

/* With the unit vector n = y scale, the gradient by n is d = dh o silu(g) o w, and by y scale (d - n mean(d n)). */
INLINE void backward(const int gate, const struct head_norm *p, int64_t row, int64_t col) {
    const int64_t at = row * p->heads * p->size + col;
    const vf scale = unit_scale(p->y + at, p->size, p->epsilon);
    vf along = {0};
    for (int64_t c = 0; c < p->size; c += VL) {
        const int count = lanes(p->size - c);
        const vf normal = load(p->y + at + c, count) * scale, w = load(p->weight + c, count);
        vf dh = load(p->dh + at + c, count);
        if (gate != WITHOUT) {
            const vf g = gate_at(gate, p, row, col + c, count), s = short_sigmoid(g);
            const vf dgate = dh * normal * w * (s + g * s * (1.0f - s));
            if (gate == READ) store(p->dgate + at + c, dgate, count);
            else add_gate_weights(p, row, col + c, dgate, count);
            dh *= g * s;
        }
        add_to_sums(p->dweight, p->size, c, dh * normal, count);
        store(p->dy + at + c, dh * w, count);
        along += dh * w * normal;
    }
    const float mean = sum_of(along) / (float)p->size;
    for (int64_t c = 0; c < p->size; c += VL) {
        const int count = lanes(p->size - c);
        const vf normal = load(p->y + at + c, count) * scale;
        store(p->dy + at + c, scale * (load(p->dy + at + c, count) - normal * mean), count);
    }
}

INLINE void end_row_of_heads(const struct head_norm *p, int64_t row, int64_t last) {
    if (p->dweight) end_row(p->dweight, p->size, row, last);
    if (p->dgate_weight) end_row(p->dgate_weight, p->inputs * p->heads * p->size, row, last);
}

#define EACH_HEAD(PASS, GATE)                                                            \
    for (int64_t row = first; row < last; end_row_of_heads(p, row, last), row++)         \
        for (int64_t head = 0; head < p->heads; head++) PASS(GATE, p, row, head * p->size)

#define RUN(PASS)                                      \
    const uint64_t denormals = flush_denormals();      \
    if (!p->gate) EACH_HEAD(PASS, WITHOUT);            \
    else if (!p->inputs) EACH_HEAD(PASS, READ);        \
    else EACH_HEAD(PASS, MADE);                        \
    restore_denormals(denormals);                      \
    return 0;

/* h of the rows in [first, last). */
int head_norm_forward(const struct head_norm *p, int64_t first, int64_t last) { RUN(forward) }

/* dy and dg, or this range's part of the gradients of the weights. */
int head_norm_backward(const struct head_norm *p, int64_t first, int64_t last) { RUN(backward) }
