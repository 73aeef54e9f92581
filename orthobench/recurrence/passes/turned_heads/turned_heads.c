/* The normalisation of features that heads share, then for each head a bias and a rotation of the first pairs of
 * features. In float32, with the gradients.
 *
 * A row is a step of a row of the batch; each range of rows belongs to one thread. A vector has whole pairs. */
#include "row_sums.h"

struct turned_heads {
    int64_t heads, size, pairs; /* the heads, the features, and the pairs of them that turn */
    float epsilon;              /* added to the mean of the squares */
    const float *features;      /* [rows, size] */
    const float *weight;        /* of the normalisation [size] */
    const float *bias;          /* [heads, size] */
    const float *cosine, *sine; /* of the angles [rows, heads, pairs] */
    float *out;                 /* [rows, heads, size] */
    const float *dout;          /* as out */
    float *dfeatures;           /* as features */
    float *dcosine, *dsine;     /* as cosine */
    float *dweight;             /* as weight: sums of this range (row_sums.h) */
    float *dbias;               /* as bias, likewise */
};

/* The numbers of pairs that a vector of features from `col` on has. */
INLINE int pairs_at(const struct turned_heads *p, int64_t col) {
    const int64_t left = p->pairs - col / 2;
    return left < 0 ? 0 : left < VL / 2 ? (int)left : VL / 2;
}

/* Both features of each pair get its number, and those that do not turn get `rest`. */
INLINE vf spread(const float *pairs, int count, float rest) {
    vi half, lane;
    for (int i = 0; i < VL; i++) half[i] = i / 2, lane[i] = i;
    const vf value = count ? load(pairs, count) : (vf){0};
    return select_lanes(lane < 2 * count, shuffle(value, value, half), splat(rest));
}

/* The sum of both features of each pair. */
INLINE vf joined(vf x) {
    vi twice;
    for (int i = 0; i < VL; i++) twice[i] = 2 * i % VL;
    const vf sums = x + swap_pairs(x);
    return shuffle(sums, sums, twice);
}

/* -1 and 1: with x (cos) + swapped x (sin o signs), (first, second) becomes (cos first - sin second, sin first + cos
 * second). */
INLINE vf signs(void) {
    vf result;
    for (int i = 0; i < VL; i++) result[i] = i % 2 ? 1.0f : -1.0f;
    return result;
}

/* The turned features of the rows in [first, last). */
int turned_heads_forward(const struct turned_heads *p, int64_t first, int64_t last) {
    const uint64_t denormals = flush_denormals();
    for (int64_t row = first; row < last; row++) {
        const float *const features = p->features + row * p->size;
        const vf unit = unit_scale(features, p->size, p->epsilon);
        for (int64_t head = 0; head < p->heads; head++)
            for (int64_t c = 0; c < p->size; c += VL) {
                const int count = lanes(p->size - c), pairs = pairs_at(p, c);
                const int64_t at = row * p->heads + head, angle = at * p->pairs + c / 2;
                const vf normal = load(features + c, count) * unit;
                const vf x = normal * load(p->weight + c, count) + load(p->bias + head * p->size + c, count);
                const vf cosine = spread(p->cosine + angle, pairs, 1), sine = spread(p->sine + angle, pairs, 0);
                store(p->out + at * p->size + c, x * cosine + swap_pairs(x) * (sine * signs()), count);
            }
    }
    restore_denormals(denormals);
    return 0;
}

/* With the unit vector n = features o unit and its gradient d, that of the features is unit (d - n mean(d n)). */
int turned_heads_backward(const struct turned_heads *p, int64_t first, int64_t last) {
    const uint64_t denormals = flush_denormals();
    for (int64_t row = first; row < last; row++) {
        const float *const features = p->features + row * p->size;
        float *const to = p->dfeatures + row * p->size;
        const vf unit = unit_scale(features, p->size, p->epsilon);
        vf along = {0};
        for (int64_t c = 0; c < p->size; c += VL) {
            const int count = lanes(p->size - c), pairs = pairs_at(p, c);
            const vf normal = load(features + c, count) * unit, weight = load(p->weight + c, count);
            vf total = {0};
            for (int64_t head = 0; head < p->heads; head++) {
                const int64_t at = row * p->heads + head, angle = at * p->pairs + c / 2;
                const vf x = normal * weight + load(p->bias + head * p->size + c, count);
                const vf cosine = spread(p->cosine + angle, pairs, 1), sine = spread(p->sine + angle, pairs, 0);
                const vf d = load(p->dout + at * p->size + c, count);
                const vf dx = d * cosine + swap_pairs(d * (sine * signs()));
                if (pairs) {
                    store(p->dcosine + angle, joined(d * x), pairs);
                    store(p->dsine + angle, joined(d * swap_pairs(x) * signs()), pairs);
                }
                add_to_sums(p->dbias, p->heads * p->size, head * p->size + c, dx, count);
                total += dx;
            }
            add_to_sums(p->dweight, p->size, c, total * normal, count);
            store(to + c, total * weight, count);
            along += total * weight * normal;
        }
        const float mean = sum_of(along) / (float)p->size;
        for (int64_t c = 0; c < p->size; c += VL) {
            const int count = lanes(p->size - c);
            store(to + c, unit * (load(to + c, count) - load(features + c, count) * unit * mean), count);
        }
        end_row(p->dweight, p->size, row, last);
        end_row(p->dbias, p->heads * p->size, row, last);
    }
    restore_denormals(denormals);
    return 0;
}
