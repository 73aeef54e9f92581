/* The sLSTM: faded = log f + m_{t-1}, m_t = max(faded, i), or i if n_{t-1} = 0; keep = exp(faded - m_t), write = exp(i - m_t),
 * c_t = keep c_{t-1} + write tanh(z), n_t = keep n_{t-1} + write, h_t = sigmoid(o) c_t / n_t. f is sigmoid or exp. */
#pragma once
#include "cuda/cell.cuh"

constexpr float LARGEST_EXPONENT = 80.0f;

template <bool EXPONENTIAL> struct SlstmForward : Cell {
    static constexpr int VALUES = 1, PRODUCTS = 4, INPUTS = 4, OUTPUTS = 1, SAVED = 9, STATES = 4;

    /* Saved are keep, write, tanh(z), o, d log f / df, c_{t-1}, n_{t-1}, the share of dL/dm that faded has, and whether keep has a
     * derivative. */
    template <int PHASE> static MEMBER void step(const Unit &u) {
        float &h = u.state[0], &c = u.state[1], &n = u.state[2], &m = u.state[3];
        const float i = u.product[0] + u.input[0], f = u.product[1] + u.input[1];
        const float z = hyperbolic_tangent(u.product[2] + u.input[2]), o = sigmoid(u.product[3] + u.input[3]);
        float faded = m + f, slope = 1.0f;
        if (!EXPONENTIAL) { /* log sigmoid(f) = min(f, 0) - log(1 + tail) */
            const float tail = exponential(-fabsf(f)), whole = 1.0f + tail;
            const float logarithm_ = tail < 1e-3f ? tail * fmaf(-0.5f, tail, 1.0f) : 0.693147181f * logarithm2(whole);
            faded = m + (fminf(f, 0.0f) - logarithm_);
            slope = (f > 0.0f ? tail : 1.0f) * reciprocal(whole);
        }
        const bool starts = n == 0.0f;
        m = starts ? i : fmaxf(faded, i);
        const float exponent = faded - m;
        const float keep = exponential(fminf(exponent, LARGEST_EXPONENT)), write = exponential(i - m);
        float *const saved = u.output + 1;
        saved[0] = keep, saved[1] = write, saved[2] = z, saved[3] = o, saved[4] = slope, saved[5] = c, saved[6] = n;
        saved[7] = starts || i > faded ? 0.0f : i == faded ? 0.5f : 1.0f;
        saved[8] = exponent <= LARGEST_EXPONENT ? 1.0f : 0.0f;
        c = fmaf(keep, c, write * z), n = fmaf(keep, n, write);
        u.output[0] = u.value[0] = h = o * c * (1.0f / n);
    }
};

struct SlstmBackward : Cell {
    static constexpr int VALUES = 4, PRODUCTS = 1, INPUTS = 9, SECOND = 1, OUTPUTS = 4, STATES = 4, FACTORS = 3, TRACED = 3;

    static MEMBER void prepare(const float *input, const float *, const Constants &, float *factor) {
        const float keep = input[0], write = input[1], z = input[2], o = input[3];
        const float c = fmaf(keep, input[5], write * z), n = fmaf(keep, input[6], write), inverse = n != 0.0f ? 1.0f / n : 0.0f;
        factor[0] = o * inverse;
        factor[1] = -factor[0] * c * inverse;
        factor[2] = c * inverse * sigmoid_slope(o);
    }

    template <int PHASE> static MEMBER void step(const Unit &u) {
        const float keep = u.input[0], write = u.input[1], z = u.input[2];
        const float dh = u.input[9] + u.state[0] + u.product[0];
        const float dc = fmaf(dh, u.factor[0], u.state[1]), dn = fmaf(dh, u.factor[1], u.state[2]);
        const float by_keep = u.input[8] * keep * fmaf(dc, u.input[5], dn * u.input[6]), by_write = write * fmaf(dc, z, dn);
        const float dm = u.state[3] - by_keep - by_write, faded = fmaf(u.input[7], dm, by_keep);
        u.output[0] = by_write + (1.0f - u.input[7]) * dm;
        u.output[1] = faded * u.input[4];
        u.output[2] = dc * write * tangent_slope(z);
        u.output[3] = dh * u.factor[2];
        UNROLL for (int gate = 0; gate < 4; gate++) u.value[gate] = u.output[gate];
        u.state[0] = 0.0f, u.state[1] = dc * keep, u.state[2] = dn * keep, u.state[3] = faded;
        u.trace[0] = dh, u.trace[1] = dc, u.trace[2] = dn;
    }
};
