/* The recurrence h_t = act(x_t + L_K ... L_1 h_{t-1}; b) of sparse layers, in float32. A layer maps each unit to a sum of
 * a few units, its taps.
 *
 * The caller gives each thread a range of blocks of VL batch rows, and a block walks through time. The layers see its rows
 * as the lanes of vectors [features][VL], so that a unit anywhere is one load. x, h and their gradients have a row for each
 * sequence, so squares of VL features and rows are transposed on their way. Backward computes the inner layers again. It
 * keeps what the layers read and the gradients of what they wrote for a few steps, over which it then sums dL/dw. Blocks
 * have sums of their own, so that no sum depends on the number of threads. */
#include "activations.h"
#include "memory.h"
#include "tiles.h"

enum { MOST_KEPT = 8, KEPT_FLOATS = 1 << 18 }; /* steps between two additions to dL/dw, and the floats kept for them */

/* K is the sum of the layers' taps, and complex units have two parts. What a pass does not need is NULL. */
struct sparse {
    int64_t steps, batch, features;  /* T, B and n */
    int64_t layers, parts;           /* the number of layers, and of features of a unit */
    int64_t kind;                    /* the activation's */
    float parameter;                 /* the activation's number */
    const int64_t *taps;             /* of each layer */
    const int64_t *targets;          /* the units that a layer writes, one after the other [layers, units] */
    const int64_t *sources;          /* the units that it reads for each of them, layer by layer [units, taps] */
    const int64_t *targets_back;     /* the same of the transposed layers */
    const int64_t *sources_back;
    const float *weight;             /* their numbers, as sources [K units, parts] */
    const float *weight_back;        /* the conjugate numbers of the transposed layers, as sources_back */
    const float *bias;               /* [features], or NULL */
    const float *x;                  /* [T, B, n] */
    const float *h0;                 /* [B, n] */
    float *h;                        /* [T, B, n] */
    float *z;                        /* the activation's arguments [T, B, n] of complex kinds, or NULL */
    const float *grad_h;             /* [T, B, n], or NULL */
    const float *grad_last;          /* dL/dh_T [B, n], or NULL */
    float *dx;                       /* [T, B, n] */
    float *dh0;                      /* [B, n] */
    float *dweight;                  /* as weight, for each block of rows, zeroed; or NULL */
    float *dbias;                    /* of each row [B, padded(n)], zeroed, or NULL */
    float *norms;                    /* |dL/dh_t| [T, B], or NULL */
};

/* A layer, or a transposed one. */
struct layer {
    int64_t taps;
    const int64_t *targets, *sources;
    const float *weight;
};

INLINE struct layer layer_at(const struct sparse *p, int64_t index, int is_back) {
    const int64_t units = p->features / p->parts;
    int64_t before = 0;
    for (int64_t l = 0; l < index; l++) before += p->taps[l];
    before *= units;
    return (struct layer){
        p->taps[index],
        (is_back ? p->targets_back : p->targets) + index * units,
        (is_back ? p->sources_back : p->sources) + before,
        (is_back ? p->weight_back : p->weight) + before * p->parts,
    };
}

INLINE void apply_taps(const int parts, const int64_t taps, int64_t units, const struct layer *layer, const float *in,
                       float *out) {
    const int64_t *source = layer->sources;
    const float *w = layer->weight;
    for (int64_t u = 0; u < units; u++, source += taps, w += taps * parts) {
        vf re = {0}, im = {0};
#pragma GCC unroll 8
        for (int64_t j = 0; j < taps; j++) {
            const vf *const h = (const vf *)(in + source[j] * parts * VL);
            const float *const v = w + j * parts;
            re += v[0] * h[0];
            if (parts == 2) {
                im += v[0] * h[1];
                re -= v[1] * h[1];
                im += v[1] * h[0];
            }
        }
        vf *const y = (vf *)(out + layer->targets[u] * parts * VL);
        y[0] = re;
        if (parts == 2) y[1] = im;
    }
}

/* The layer's sums, from lanes [features][VL] to others. */
static void apply(const struct sparse *p, const struct layer *layer, const float *in, float *out) {
    const int64_t units = p->features / p->parts;
    switch (layer->taps * 2 + p->parts - 1) {
#define CASE(TAPS)                                                              \
    case TAPS * 2: apply_taps(1, TAPS, units, layer, in, out); break;           \
    case TAPS * 2 + 1: apply_taps(2, TAPS, units, layer, in, out); break;
        CASE(2) CASE(3) CASE(4) CASE(8)
#undef CASE
        default:
            if (p->parts == 1) apply_taps(1, layer->taps, units, layer, in, out);
            else apply_taps(2, layer->taps, units, layer, in, out);
    }
}

/* The sums over rows and kept steps for `count` neighbouring taps of a unit. */
INLINE void tap_sums(const int parts, const int count, int64_t steps, int64_t stride, const float *g, const float *in,
                     const int64_t *source, vf *sums) {
    vf re[4], im[4];
#pragma GCC unroll 4
    for (int j = 0; j < count; j++) re[j] = im[j] = (vf){0};
    for (int64_t s = 0; s < steps; s++, g += stride, in += stride) {
        const vf *const d = (const vf *)g;
#pragma GCC unroll 4
        for (int j = 0; j < count; j++) {
            const vf *const h = (const vf *)(in + source[j] * parts * VL);
            re[j] += d[0] * h[0];
            if (parts == 2) {
                im[j] += d[1] * h[0];
                re[j] += d[1] * h[1];
                im[j] -= d[0] * h[1];
            }
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < count; j++) {
        sums[j * parts] = re[j];
        if (parts == 2) sums[j * parts + 1] = im[j];
    }
}

/* Adds dL/dw of a layer over the kept steps, which are `stride` floats apart. */
INLINE void add_weight_gradient(const int parts, int64_t units, const struct layer *layer, int64_t steps, int64_t stride,
                                const float *g, const float *in, float *to) {
    vf sums[VL + 8]; /* up to a vector of sums, and those of four more taps */
    int64_t full = 0;
    const int64_t *source = layer->sources;
    for (int64_t u = 0; u < units; u++) {
        const float *const d = g + layer->targets[u] * parts * VL;
        for (int64_t j = 0; j < layer->taps; j += 4) {
            const int count = layer->taps - j < 4 ? (int)(layer->taps - j) : 4;
            switch (count) {
#define CASE(N) case N: tap_sums(parts, N, steps, stride, d, in, source, sums + full); break;
                CASE(1) CASE(2) CASE(3) CASE(4)
#undef CASE
            }
            source += count;
            full += count * parts;
            for (; full >= VL; full -= VL, to += VL) {
                store(to, load(to, VL) + sums_of_rows(sums), VL);
                for (int64_t i = VL; i < full; i++) sums[i - VL] = sums[i];
            }
        }
    }
    if (!full) return;
    for (int64_t i = full; i < VL; i++) sums[i] = (vf){0};
    store(to, load(to, (int)full) + sums_of_rows(sums), (int)full);
}

/* A square [VL][VL] of features and rows. */
struct square { float at[VL][VL] __attribute__((aligned(64))); };

INLINE void turn(const float *from, float *to) { transpose(VL, VL, from, VL, to, VL); }

/* The lanes [padded(features)][VL] of `count` rows [count, features]. */
static void lanes_of_rows(int64_t features, int count, const float *rows, float *to) {
    struct square square = {{{0}}};
    for (int64_t c = 0; c < features; c += VL) {
        for (int i = 0; i < count; i++) *(vf *)square.at[i] = load(rows + i * features + c, lanes(features - c));
        turn(square.at[0], to + c * VL);
    }
}

static void rows_of_lanes(int64_t features, int count, const float *from, float *rows) {
    struct square square;
    for (int64_t c = 0; c < features; c += VL) {
        turn(from + c * VL, square.at[0]);
        for (int i = 0; i < count; i++) store(rows + i * features + c, *(vf *)square.at[i], lanes(features - c));
    }
}

/* h_t in rows and lanes from W h_{t-1} in lanes, of the rows that begin at `place` in x. */
INLINE void activate_rows(const int kind, const struct sparse *p, int64_t place, int count, const float *product,
                          float *h) {
    const int64_t n = p->features;
    struct square square;
    for (int64_t c = 0; c < n; c += VL) {
        const int width = lanes(n - c);
        const vf bias = p->bias ? load(p->bias + c, width) : (vf){0};
        turn(product + c * VL, square.at[0]);
        for (int i = 0; i < count; i++) {
            const int64_t at = (place + i) * n + c;
            const vf z = *(vf *)square.at[i] + load(p->x + at, width);
            if (p->z) store(p->z + at, z, width);
            const vf value = activate(kind, z, bias, p->parameter);
            store(p->h + at, value, width);
            *(vf *)square.at[i] = value;
        }
        turn(square.at[0], h + c * VL);
    }
}

/* dL/dz_t in rows (dx) and lanes, from the part of dL/dh_t that comes from later steps, in lanes. */
INLINE void differentiate_rows(const int kind, const struct sparse *p, int64_t t, int64_t row, int count,
                               const float *later, float *dz) {
    const int64_t n = p->features, place = t * p->batch + row;
    const float *const values = p->z ? p->z : p->h;
    struct square square;
    vf squares[VL];
    for (int i = 0; i < VL; i++) squares[i] = (vf){0};
    for (int64_t c = 0; c < n; c += VL) {
        const int width = lanes(n - c);
        const vf bias = p->bias ? load(p->bias + c, width) : (vf){0};
        turn(later + c * VL, square.at[0]);
        for (int i = 0; i < count; i++) {
            const int64_t at = (place + i) * n + c;
            vf g = *(vf *)square.at[i];
            if (p->grad_h) g += load(p->grad_h + at, width);
            if (p->grad_last && t == p->steps - 1) g += load(p->grad_last + (row + i) * n + c, width);
            squares[i] += g * g;
            const struct derivative d = differentiate(kind, g, load(values + at, width), bias, p->parameter);
            store(p->dx + at, d.z, width);
            if (p->dbias) *(vf_unaligned *)(p->dbias + (row + i) * padded(n) + c) += d.bias;
            *(vf *)square.at[i] = d.z;
        }
        turn(square.at[0], dz + c * VL);
    }
    for (int i = 0; p->norms && i < count; i++) p->norms[place + i] = sqrtf(sum_of(squares[i]));
}

#define EACH_KIND(CASE) \
    CASE(IDENTITY) CASE(TANH) CASE(RELU) CASE(LEAKY_RELU) CASE(MODRELU) CASE(COMPLEX_MODRELU) CASE(COMPLEX_MODRELU_SMOOTH)

static void forward(const struct sparse *p, int64_t row, int count, float *memory) {
    const int64_t size = padded(p->features) * VL;
    float *const h = memory, *const other[2] = {memory + size, memory + 2 * size};
    lanes_of_rows(p->features, count, p->h0 + row * p->features, h);
    for (int64_t t = 0; t < p->steps; t++) {
        const float *product = h;
        for (int64_t l = 0; l < p->layers; l++) {
            const struct layer layer = layer_at(p, l, 0);
            apply(p, &layer, product, other[l % 2]);
            product = other[l % 2];
        }
        const int64_t place = t * p->batch + row;
        switch (p->kind) {
#define CASE(KIND) case KIND: activate_rows(KIND, p, place, count, product, h); break;
            EACH_KIND(CASE)
#undef CASE
        }
    }
}

/* The steps that are kept until dL/dw is summed. */
static int64_t kept_steps(const struct sparse *p) {
    const int64_t fitting = KEPT_FLOATS / (2 * p->layers * padded(p->features) * VL);
    return fitting < 1 ? 1 : fitting > MOST_KEPT ? MOST_KEPT : fitting;
}

static void backward(const struct sparse *p, int64_t row, int count, float *memory) {
    const int64_t n = p->features, units = n / p->parts, size = padded(n) * VL;
    const int64_t most = kept_steps(p), stride = 2 * p->layers * size;
    float *const later = memory;                      /* the part of dL/dh_t from later steps */
    float *const read = later + size;                 /* what each layer reads [steps, layers, size] */
    float *const written = read + p->layers * size;   /* the gradients of what it writes, likewise */
    int64_t numbers = 0;
    for (int64_t l = 0; l < p->layers; l++) numbers += p->taps[l] * n;
    for (int64_t t = p->steps - 1, kept = 0; t >= 0; t--) {
        float *const inputs = read + kept * stride, *const gradients = written + kept * stride;
        float *const last = gradients + (p->layers - 1) * size;
        switch (p->kind) {
#define CASE(KIND) case KIND: differentiate_rows(KIND, p, t, row, count, later, last); break;
            EACH_KIND(CASE)
#undef CASE
        }
        if (p->dweight) {
            const float *const before = t ? p->h + ((t - 1) * p->batch + row) * n : p->h0 + row * n;
            lanes_of_rows(n, count, before, inputs);
            for (int64_t l = 0; l + 1 < p->layers; l++) {
                const struct layer layer = layer_at(p, l, 0);
                apply(p, &layer, inputs + l * size, inputs + (l + 1) * size);
            }
        }
        for (int64_t l = p->layers - 1; l >= 0; l--) {
            const struct layer layer = layer_at(p, l, 1);
            apply(p, &layer, gradients + l * size, l ? gradients + (l - 1) * size : later);
        }
        kept++;
        if (kept < most && t) continue;
        float *to = p->dweight ? p->dweight + row / VL * numbers : NULL;
        for (int64_t l = 0; to && l < p->layers; l++) {
            const struct layer layer = layer_at(p, l, 0);
            const float *const g = written + l * size, *const in = read + l * size;
            if (p->parts == 1) add_weight_gradient(1, units, &layer, kept, stride, g, in, to);
            else add_weight_gradient(2, units, &layer, kept, stride, g, in, to);
            to += layer.taps * n;
        }
        kept = 0;
    }
    rows_of_lanes(n, count, later, p->dh0 + row * n);
}

static int run(const struct sparse *p, int64_t first, int64_t last, int is_backward) {
    const int64_t size = padded(p->features) * VL;
    const int64_t floats = is_backward ? (1 + 2 * p->layers * kept_steps(p)) * size : 3 * size;
    for (int64_t block = first; block < last; block++) {
        float *const memory = zeros(floats); /* zero behind the rows and features, which is where nothing is written */
        if (!memory) return 1;
        const int count = lanes(p->batch - block * VL);
        const uint64_t denormals = flush_denormals();
        if (is_backward) backward(p, block * VL, count, memory);
        else forward(p, block * VL, count, memory);
        restore_denormals(denormals);
        free(memory);
    }
    return 0;
}

/* h, and z of complex kinds, of the blocks [first, last) of rows. Returns nonzero without memory. */
int sparse_forward(const struct sparse *p, int64_t first, int64_t last) {
    return run(p, first, last, 0);
}

/* The gradients, and the norms if they are needed. Returns nonzero without memory. */
int sparse_backward(const struct sparse *p, int64_t first, int64_t last) {
    return run(p, first, last, 1);
}
