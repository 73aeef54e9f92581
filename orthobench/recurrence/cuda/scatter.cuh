/* All steps of a cell's backward pass in one launch: the blocks of a cluster exchange partial sums.
 *
 * A cluster of CLUSTER blocks runs ROWS * GROUPS rows of the batch, and one head. A block owns SPAN of the head's units. It
 * computes the gradients of their gates, multiplies them by its rows of the weight, which stay in registers, and sends to each
 * unit's owner this block's part of the gradient of its state. A cell with several gates thus sends one number where `gather.cuh`
 * would send one for each gate. The step's pointwise part is divided over the threads by unit and row.
 *
 * There are two buffers of parts: a block can write those of the next step only after the receiver has read the previous ones,
 * because it has received their results. */
#pragma once
#include "cell.cuh"

template <class Cell, class Plan, bool BACKWARD> struct Scatter {
    static constexpr int N = Plan::UNITS, ALL = Plan::UNITS * Plan::HEADS, PADDED = Plan::PADDED, CLUSTER = Plan::CLUSTER,
                         ROWS = Plan::ROWS, GROUPS = Plan::GROUPS, LANES = Plan::LANES, EACH = Plan::EACH,
                         THREADS = Plan::THREADS, DEPTH = Plan::DEPTH;
    static constexpr int COLUMNS = 32 / LANES, SPAN = PADDED / CLUSTER, OF_WARP = 4 * COLUMNS * EACH, GATES = Cell::VALUES;
    static constexpr int TERMS = (GATES * SPAN + 4 * LANES - 1) / (4 * LANES) * (4 * LANES), QUADS = TERMS / (4 * LANES);
    static constexpr int READ = Cell::INPUTS + Cell::SECOND, STATES = Cell::STATES + Cell::KEPT, ALL_ROWS = ROWS * GROUPS;
    static constexpr int ITEMS = (SPAN * ALL_ROWS + THREADS - 1) / THREADS;
    static constexpr bool MESSAGES = CLUSTER > 1;
    typedef Share<LANES, ROWS, EACH> Mine;
    static constexpr int LEFT = Mine::LEFT;
    static_assert(BACKWARD && Cell::PHASES == 1 && Cell::PRODUCTS == 1, "the parts are of one gradient");
    static_assert(PADDED % CLUSTER == 0 && SPAN % 4 == 0 && PADDED % OF_WARP == 0, "the units do not divide");
    static_assert(ROWS <= LANES && THREADS == 32 * PADDED / OF_WARP, "the plan does not fit");

    struct Shared {
        float parts[2][CLUSTER][ALL_ROWS][SPAN];
        float gates[2][ALL_ROWS][TERMS];
        Barrier arrived[2];
        float inputs[DEPTH][ITEMS][READ][THREADS]; /* of the next steps; a thread reads its own */
    };
    static constexpr unsigned BYTES = ALL_ROWS * PADDED * 4; /* that a block receives in a step */

    static MEMBER void run(const Arguments &arguments) {
        Shared &shared = *(Shared *)shared_memory();
        const int thread = thread_index(), warp = thread >> 5, lane = thread & 31, in_sum = lane & (LANES - 1);
        const int column = lane / LANES, rank = MESSAGES ? block_rank() : 0, cluster = block_index() / CLUSTER;
        const int offset = cluster % Plan::HEADS * N, first = cluster / Plan::HEADS * ALL_ROWS;
        const int steps = arguments.steps, batch = arguments.batch;
        const Mine mine(in_sum);
        const Constants constants = arguments.constants;

        float w[EACH][4][4 * QUADS];
        UNROLL for (int k = 0; k < 4 * QUADS; k++) {
            const int term = ((k >> 2) * LANES + in_sum) * 4 + (k & 3), gate = term / SPAN, unit = rank * SPAN + term % SPAN;
            UNROLL for (int e = 0; e < EACH; e++)
                UNROLL for (int i = 0; i < 4; i++) {
                    const int out = warp * OF_WARP + ((e ^ mine.unit) * COLUMNS + column) * 4 + i;
                    w[e][i][k] = gate < GATES && unit < N && out < N
                                     ? arguments.weight[(size_t)(gate * ALL + offset + unit) * N + out]
                                     : 0.0f;
                }
        }

        for (int i = thread; i < 2 * ALL_ROWS * TERMS; i += THREADS) (&shared.gates[0][0][0])[i] = 0.0f;
        if (MESSAGES && thread == 0)
            for (int buffer = 0; buffer < 2; buffer++) {
                barrier_start(&shared.arrived[buffer]);
                barrier_expect(local(&shared.arrived[buffer]), BYTES);
            }
        Remote to[LEFT], barriers[LEFT];
        float *own[LEFT];
        UNROLL for (int left = 0; left < LEFT; left++) {
            const int out = warp * OF_WARP + ((left ^ mine.unit) * COLUMNS + column) * 4;
            own[left] = &shared.parts[0][rank][mine.row][out % SPAN];
            to[left] = MESSAGES ? remote(own[left], out / SPAN) : 0;
            barriers[left] = MESSAGES ? remote(&shared.arrived[0], out / SPAN) : 0;
        }
        Local place[ROWS];
        UNROLL for (int r = 0; r < ROWS; r++) place[r] = local(&shared.gates[0][r ^ mine.row][in_sum * 4]);
        const Local arrived = local(&shared.arrived[0]);

        const ptrdiff_t slab = (ptrdiff_t)batch * ALL, begin = (steps - 1) * slab;
        const float *input = arguments.input + begin * Cell::INPUTS, *second = arguments.second ? arguments.second + begin : 0;
        float *output = arguments.output + begin * Cell::OUTPUTS, *saved = arguments.saved ? arguments.saved + begin * Cell::SAVED : 0;
        float *trace[at_least_one(Cell::TRACED)];
        UNROLL for (int k = 0; k < Cell::TRACED; k++) trace[k] = arguments.trace[k] ? arguments.trace[k] + begin : 0;
        float state[ITEMS][STATES], vector[ITEMS][at_least_one(Cell::VECTORS)], sum[ITEMS][at_least_one(Cell::SUMS)];
        bool active[ITEMS], valid[ITEMS];
        UNROLL for (int item = 0; item < ITEMS; item++) {
            const int at = thread + item * THREADS, unit = rank * SPAN + at % SPAN, row = first + at / SPAN;
            active[item] = at < SPAN * ALL_ROWS;
            valid[item] = active[item] && unit < N && row < batch;
            UNROLL for (int k = 0; k < STATES; k++)
                state[item][k] = k < Cell::STATES && valid[item] && arguments.start[k < 4 ? k : 0]
                                     ? arguments.start[k < 4 ? k : 0][(size_t)row * ALL + offset + unit]
                                     : 0.0f;
            UNROLL for (int k = 0; k < Cell::VECTORS; k++)
                vector[item][k] = valid[item] && arguments.vectors[k] ? arguments.vectors[k][offset + unit] : 0.0f;
            UNROLL for (int k = 0; k < Cell::SUMS; k++) sum[item][k] = 0.0f;
            UNROLL for (int slot = 0; slot < DEPTH; slot++) /* what is never fetched */
                UNROLL for (int k = 0; k < READ; k++)
                    if (!valid[item] || (k >= Cell::INPUTS && !second)) shared.inputs[slot][item][k][thread] = 0.0f;
        }
        auto fetch = [&](int slot) { /* the inputs of the step that the pointers have reached */
            UNROLL for (int item = 0; item < ITEMS; item++) {
                if (!valid[item]) continue;
                const int at = thread + item * THREADS, unit = offset + rank * SPAN + at % SPAN, row = first + at / SPAN;
                auto &ring = shared.inputs[slot][item];
                UNROLL for (int k = 0; k < Cell::INPUTS; k++)
                    copy(&ring[k][thread], input + (size_t)(row * Cell::INPUTS + k) * ALL + unit);
                if (second) copy(&ring[READ - 1][thread], second + (size_t)row * ALL + unit);
            }
        };
        auto advance_inputs = [&]() {
            copies_end();
            input -= slab * Cell::INPUTS;
            if (second) second -= slab;
        };
        for (int slot = 0; slot + 1 < DEPTH; slot++) {
            if (slot < steps) fetch(slot);
            advance_inputs();
        }
        if (MESSAGES) synchronize_cluster();
        else synchronize_block();

        auto received = [&](int buffer, int item) { /* the sum of the parts of this item's gradient */
            const int at = thread + item * THREADS;
            float total = 0.0f;
            UNROLL for (int part = 0; part < CLUSTER; part++) total += (&shared.parts[buffer][part][0][0])[at];
            return total;
        };
        _Pragma("unroll 1") for (int step = 0; step < steps; step++) {
            const int buffer = step & 1, other = buffer ^ 1;
            float in[ITEMS][READ], factor[ITEMS][at_least_one(Cell::FACTORS)];
            copies_wait<DEPTH - 2>();
            UNROLL for (int item = 0; item < ITEMS; item++) {
                UNROLL for (int k = 0; k < READ; k++) in[item][k] = shared.inputs[step % DEPTH][item][k][thread];
                Cell::prepare(in[item], vector[item], constants, factor[item]);
            }
            if (MESSAGES && step > 0) {
                const Local barrier = arrived + buffer * (unsigned)sizeof(Barrier);
                if (active[0]) barrier_wait(barrier, (step - 1) >> 1 & 1);
                if (thread == 0) barrier_expect(barrier, BYTES);
            }
            float out[ITEMS][Cell::OUTPUTS + Cell::SAVED], total[ITEMS][at_least_one(Cell::TRACED)];
            UNROLL for (int item = 0; item < ITEMS; item++)
                if (active[item]) {
                    float value[GATES];
                    const float product = step > 0 ? received(buffer, item) : 0.0f;
                    const Unit unit = {&product, in[item], factor[item], vector[item], state[item],
                                       out[item], value, sum[item], total[item], constants, 0};
                    Cell::template step<0>(unit);
                    const int at = thread + item * THREADS;
                    UNROLL for (int gate = 0; gate < GATES; gate++)
                        shared.gates[buffer][at / SPAN][gate * SPAN + at % SPAN] = valid[item] ? value[gate] : 0.0f;
                }
            synchronize_block();
            UNROLL for (int group = 0; group < GROUPS; group++) {
                float products[ROWS * EACH * 4];
                UNROLL for (int i = 0; i < ROWS * EACH * 4; i++) products[i] = 0.0f;
                UNROLL for (int quad = 0; quad < QUADS; quad++)
                    UNROLL for (int r = 0; r < ROWS; r++) {
                        const Four four =
                            load_four(place[r] + ((buffer * ALL_ROWS + group * ROWS) * TERMS + quad * 4 * LANES) * 4);
                        UNROLL for (int e = 0; e < EACH; e++)
                            UNROLL for (int i = 0; i < 4; i++) {
                                float &product = products[(r * EACH + e) * 4 + i];
                                const float *k = &w[e][i][4 * quad];
                                product = fmaf(k[0], four.x, product);
                                product = fmaf(k[1], four.y, product);
                                product = fmaf(k[2], four.z, product);
                                product = fmaf(k[3], four.w, product);
                            }
                    }
                reduce<LANES, ROWS, EACH, 4>(products);
                if (mine.copy == 0)
                    UNROLL for (int left = 0; left < LEFT; left++) {
                        const float *const p = products + left * 4;
                        const Four four = {p[0], p[1], p[2], p[3]};
                        const unsigned at = (other * CLUSTER * ALL_ROWS + group * ROWS) * SPAN;
                        if (MESSAGES) send(to[left] + at * 4, four, barriers[left] + other * (unsigned)sizeof(Barrier));
                        else store_four(own[left] + at, four);
                    }
            }
            UNROLL for (int item = 0; item < ITEMS; item++)
                if (valid[item]) {
                    const int at = thread + item * THREADS, unit = offset + rank * SPAN + at % SPAN, row = first + at / SPAN;
                    UNROLL for (int k = 0; k < Cell::OUTPUTS; k++)
                        output[(size_t)(row * Cell::OUTPUTS + k) * ALL + unit] = out[item][k];
                    if (Cell::SAVED && saved)
                        UNROLL for (int k = 0; k < Cell::SAVED; k++)
                            saved[(size_t)(row * Cell::SAVED + k) * ALL + unit] = out[item][Cell::OUTPUTS + k];
                    UNROLL for (int k = 0; k < Cell::TRACED; k++)
                        if (trace[k]) trace[k][(size_t)row * ALL + unit] = total[item][k];
                }
            if (step + DEPTH - 1 < steps) fetch((step + DEPTH - 1) % DEPTH);
            advance_inputs();
            output -= slab * Cell::OUTPUTS;
            if (Cell::SAVED && saved) saved -= slab * Cell::SAVED;
            UNROLL for (int k = 0; k < Cell::TRACED; k++)
                if (trace[k]) trace[k] -= slab;
            if (!MESSAGES) synchronize_block();
        }
        if (MESSAGES) barrier_wait(arrived + (steps & 1) * (unsigned)sizeof(Barrier), (steps - 1) >> 1 & 1);
        UNROLL for (int item = 0; item < ITEMS; item++)
            if (valid[item]) {
                const int at = thread + item * THREADS, unit = rank * SPAN + at % SPAN, row = first + at / SPAN;
                const size_t place_ = (size_t)row * ALL + offset + unit;
                state[item][0] += received(steps & 1, item);
                UNROLL for (int k = 0; k < Cell::STATES; k++)
                    if (arguments.end[k]) arguments.end[k][place_] = state[item][k];
                UNROLL for (int k = 0; k < Cell::SUMS; k++)
                    if (arguments.sums[k]) arguments.sums[k][place_] = sum[item][k];
            }
        if (MESSAGES) synchronize_cluster(); /* because a block may still send to this one */
    }
};
