/* All steps of a cell in one launch: every block of a cluster has the values of all units.
 *
 * A cluster of CLUSTER blocks runs ROWS * GROUPS rows of the batch, and one head. A block owns SPAN of the head's units, whose
 * weights stay in the registers of its threads for all steps. In a phase, a block multiplies the values of all units by its
 * weights, its units' states change, and it sends their next values to every block of the cluster. The groups of rows follow
 * one another, so that the messages of one travel while the next is computed. Blocks that work alone synchronise instead.
 *
 * LANES lanes share a sum; each has the weights of EACH units, interleaved so that four neighbouring units are in four lanes,
 * whose values form a message of 16 bytes. A message completes on a barrier of the receiver. There are two buffers of values:
 * a block can write the values of the next step only after every warp of the receiver has read the previous ones, because it
 * has received their results. */
#pragma once
#include "cell.cuh"

template <class Cell, class Plan, bool BACKWARD> struct Gather {
    static constexpr int N = Plan::UNITS, ALL = Plan::UNITS * Plan::HEADS, PADDED = Plan::PADDED, CLUSTER = Plan::CLUSTER,
                         ROWS = Plan::ROWS, GROUPS = Plan::GROUPS, LANES = Plan::LANES, EACH = Plan::EACH,
                         THREADS = Plan::THREADS, DEPTH = Plan::DEPTH;
    static constexpr int COLUMNS = 32 / LANES, SPAN = PADDED / CLUSTER, OF_WARP = COLUMNS * EACH, QUADS = PADDED / (4 * LANES);
    static constexpr int PHASES = Cell::PHASES, READ = Cell::INPUTS + Cell::SECOND, STATES = Cell::STATES + Cell::KEPT;
    static constexpr int MOST = PHASES == 2 && Cell::VALUES_2 > Cell::VALUES ? Cell::VALUES_2 : Cell::VALUES;
    static constexpr int SOURCES = BACKWARD ? Cell::PRODUCTS : Cell::VALUES;
    static constexpr bool MESSAGES = CLUSTER > 1;
    typedef Share<LANES, ROWS, EACH> Mine;
    static constexpr int LEFT = Mine::LEFT, COPIES = Mine::COPIES, STRIDE = OF_WARP / LEFT;
    static constexpr int SENDS = (CLUSTER + 4 * COPIES - 1) / (4 * COPIES);
    static_assert(PADDED % CLUSTER == 0 && SPAN % OF_WARP == 0 && PADDED % (4 * LANES) == 0, "the units do not divide");
    static_assert(STRIDE % 4 == 0 && ROWS <= LANES && THREADS == 32 * SPAN / OF_WARP, "the plan does not fit");

    struct Shared {
        float values[2][GROUPS][MOST][ROWS][PADDED];
        Barrier arrived[2][GROUPS];
        float inputs[DEPTH][GROUPS][LEFT][at_least_one(READ)][THREADS]; /* of the next steps; a thread reads its own */
    };
    static constexpr unsigned BUFFER = GROUPS * MOST * ROWS * PADDED * 4, GROUP = MOST * ROWS * PADDED * 4,
                              VALUE = ROWS * PADDED * 4;

    /* The lane whose bit holds this bit of a unit's place among its STRIDE neighbours. */
    static constexpr int place_bit(int bit) {
        return bit < logarithm(COLUMNS)
                   ? LANES << bit
                   : 1 << (Mine::ROW_BITS + logarithm(EACH) - 1 - (bit - logarithm(COLUMNS) + logarithm(LEFT)));
    }
    static constexpr int FIRST = place_bit(0), OTHER = place_bit(1);

    template <int VALUES, int PRODUCTS> struct Weights {
        float w[EACH][PRODUCTS][VALUES][4 * QUADS];

        MEMBER void load(const float *weight, int block, int first, int column, int lane, int mine, int offset) {
            UNROLL for (int u = 0; u < EACH; u++) {
                const int slot = u ^ mine, unit = first + slot % LEFT * STRIDE + slot / LEFT * COLUMNS + column;
                UNROLL for (int k = 0; k < 4 * QUADS; k++) {
                    const int other = ((k >> 2) * LANES + lane) * 4 + (k & 3);
                    const bool inside = unit < N && other < N;
                    UNROLL for (int p = 0; p < PRODUCTS; p++)
                        UNROLL for (int v = 0; v < VALUES; v++) {
                            const int row = BACKWARD ? (block + v) * ALL + offset + other : (block + p) * ALL + offset + unit;
                            const int source = BACKWARD ? p * N + unit : v * N + other;
                            w[u][p][v][k] = inside ? weight[(size_t)row * (SOURCES * N) + source] : 0.0f;
                        }
                }
            }
        }

        /* Add the products [ROWS, EACH, PRODUCTS] of the values [VALUES, ROWS, PADDED] at an offset from each row's place. */
        MEMBER void multiply(const Local *place, Local offset, float *products) const {
            UNROLL for (int v = 0; v < VALUES; v++)
                UNROLL for (int quad = 0; quad < QUADS; quad++)
                    UNROLL for (int r = 0; r < ROWS; r++) {
                        const Four four = load_four(place[r] + offset + (v * VALUE + quad * 16 * LANES));
                        UNROLL for (int u = 0; u < EACH; u++)
                            UNROLL for (int p = 0; p < PRODUCTS; p++) {
                                float &sum = products[(r * EACH + u) * PRODUCTS + p];
                                const float *k = &w[u][p][v][4 * quad];
                                sum = fmaf(k[0], four.x, sum);
                                sum = fmaf(k[1], four.y, sum);
                                sum = fmaf(k[2], four.z, sum);
                                sum = fmaf(k[3], four.w, sum);
                            }
                    }
        }
    };

    static MEMBER void run(const Arguments &arguments) {
        Shared &shared = *(Shared *)shared_memory();
        const int thread = thread_index(), warp = thread >> 5, lane = thread & 31, column = lane / LANES;
        const int rank = MESSAGES ? block_rank() : 0, cluster = block_index() / CLUSTER;
        const int offset = cluster % Plan::HEADS * N, first = cluster / Plan::HEADS * (ROWS * GROUPS);
        const int first_unit = rank * SPAN + warp * OF_WARP, steps = arguments.steps, batch = arguments.batch;
        const Mine mine(lane & (LANES - 1));
        const int place_in_stride = mine.unit / LEFT * COLUMNS + column;
        const Constants constants = arguments.constants;

        Weights<Cell::VALUES, Cell::PRODUCTS> weights;
        Weights<Cell::VALUES_2, Cell::PRODUCTS_2> weights_2;
        weights.load(arguments.weight, 0, first_unit, column, lane & (LANES - 1), mine.unit, offset);
        if constexpr (PHASES == 2)
            weights_2.load(arguments.weight, Cell::ROW_2, first_unit, column, lane & (LANES - 1), mine.unit, offset);

        for (int i = thread; i < (int)(2 * BUFFER / 4); i += THREADS) (&shared.values[0][0][0][0][0])[i] = 0.0f;
        if (MESSAGES && thread == 0)
            for (int buffer = 0; buffer < 2; buffer++)
                for (int group = 0; group < GROUPS; group++) {
                    Barrier *const barrier = &shared.arrived[buffer][group];
                    barrier_start(barrier);
                    barrier_expect(local(barrier), (PHASES == 2 && buffer ? Cell::VALUES_2 : Cell::VALUES) * VALUE);
                }
        synchronize_block();
        if (!BACKWARD)
            UNROLL for (int v = 0; v < Cell::VALUES; v++)
                if (arguments.start[v])
                    for (int i = thread; i < ROWS * GROUPS * N; i += THREADS) {
                        const int row = i / N, unit = i % N;
                        if (first + row < batch)
                            shared.values[0][row / ROWS][v][row % ROWS][unit] =
                                arguments.start[v][(size_t)(first + row) * ALL + offset + unit];
                    }

        /* Of the lanes that have four neighbouring units, and their copies, each sends to other blocks. */
        Remote to[SENDS], barriers[SENDS];
        float *const own = &shared.values[0][0][0][mine.row][first_unit + (place_in_stride & ~3)];
        UNROLL for (int send_ = 0; send_ < SENDS; send_++) {
            const int peer = (place_in_stride & 3) + 4 * mine.copy + send_ * 4 * COPIES;
            to[send_] = MESSAGES && peer < CLUSTER ? remote(own, peer) : 0;
            barriers[send_] = MESSAGES && peer < CLUSTER ? remote(&shared.arrived[0][0], peer) : 0;
        }
        const int quad_lane = lane & ~(FIRST | OTHER);

        float state[GROUPS][LEFT][STATES], vector[LEFT][at_least_one(Cell::VECTORS)],
            sum[GROUPS][LEFT][at_least_one(Cell::SUMS)];
        bool valid[GROUPS][LEFT];
        const ptrdiff_t slab = (ptrdiff_t)batch * ALL, stride = BACKWARD ? -slab : slab, begin = BACKWARD ? (steps - 1) * slab : 0;
        const float *input = arguments.input + begin * Cell::INPUTS, *second = arguments.second ? arguments.second + begin : 0;
        float *output = arguments.output + begin * Cell::OUTPUTS, *saved = arguments.saved ? arguments.saved + begin * Cell::SAVED : 0;
        float *trace[at_least_one(Cell::TRACED)];
        UNROLL for (int k = 0; k < Cell::TRACED; k++) trace[k] = arguments.trace[k] ? arguments.trace[k] + begin : 0;
        UNROLL for (int left = 0; left < LEFT; left++) {
            const int unit = first_unit + left * STRIDE + place_in_stride;
            UNROLL for (int k = 0; k < Cell::VECTORS; k++)
                vector[left][k] = arguments.vectors[k] && unit < N ? arguments.vectors[k][offset + unit] : 0.0f;
        }
        UNROLL for (int group = 0; group < GROUPS; group++)
            UNROLL for (int left = 0; left < LEFT; left++) {
                const int row = first + group * ROWS + mine.row, unit = first_unit + left * STRIDE + place_in_stride;
                const bool inside = row < batch && unit < N;
                valid[group][left] = inside;
                UNROLL for (int k = 0; k < STATES; k++)
                    state[group][left][k] = k < Cell::STATES && inside && arguments.start[k < 4 ? k : 0]
                                                ? arguments.start[k < 4 ? k : 0][(size_t)row * ALL + offset + unit]
                                                : 0.0f;
                UNROLL for (int k = 0; k < Cell::SUMS; k++) sum[group][left][k] = 0.0f;
                UNROLL for (int slot = 0; slot < DEPTH; slot++) /* what is never fetched */
                    UNROLL for (int k = 0; k < READ; k++)
                        if (!inside || (k >= Cell::INPUTS && !second)) shared.inputs[slot][group][left][k][thread] = 0.0f;
            }
        auto fetch = [&](int group, int left, int slot) { /* the inputs of the step that the pointers have reached */
            if (!valid[group][left]) return;
            const int row = first + group * ROWS + mine.row, unit = offset + first_unit + left * STRIDE + place_in_stride;
            auto &ring = shared.inputs[slot][group][left];
            UNROLL for (int k = 0; k < Cell::INPUTS; k++)
                copy(&ring[k][thread], input + (size_t)(row * Cell::INPUTS + k) * ALL + unit);
            if (Cell::SECOND && second) copy(&ring[READ - 1][thread], second + (size_t)row * ALL + unit);
        };
        auto advance_inputs = [&]() {
            copies_end();
            input += stride * Cell::INPUTS;
            if (Cell::SECOND && second) second += stride;
        };
        for (int slot = 0; slot + 1 < DEPTH; slot++) {
            if (slot < steps)
                UNROLL for (int group = 0; group < GROUPS; group++)
                    UNROLL for (int left = 0; left < LEFT; left++) fetch(group, left, slot);
            advance_inputs();
        }
        Local place[ROWS];
        UNROLL for (int r = 0; r < ROWS; r++) place[r] = local(&shared.values[0][0][0][r ^ mine.row][(lane & (LANES - 1)) * 4]);
        const Local arrived = local(&shared.arrived[0][0]);
        if (MESSAGES) synchronize_cluster();
        else synchronize_block();

        int step = 0;
        auto run_phase = [&](auto which) {
            constexpr int PHASE = decltype(which)::value, PRODUCTS = PHASE ? Cell::PRODUCTS_2 : Cell::PRODUCTS;
            constexpr int VALUES = PHASE ? Cell::VALUES_2 : Cell::VALUES;
            constexpr int NEXT = PHASES == 2 && PHASE == 0 ? Cell::VALUES_2 : Cell::VALUES;
            const int buffer = PHASES == 2 ? PHASE : step & 1, other = buffer ^ 1;
            const unsigned parity = PHASES == 2 ? (step - 1 + PHASE) & 1 : (step - 1) >> 1 & 1;
            const bool starts = step == 0 && PHASE == 0;
            if (!MESSAGES && !starts) synchronize_block();
            UNROLL for (int group = 0; group < GROUPS; group++) {
                float in[LEFT][at_least_one(READ)], factor[LEFT][at_least_one(Cell::FACTORS)], products[ROWS * EACH * PRODUCTS];
                UNROLL for (int left = 0; left < LEFT; left++) {
                    UNROLL for (int k = 0; k < READ; k++) in[left][k] = shared.inputs[step % DEPTH][group][left][k][thread];
                    Cell::prepare(in[left], vector[left], constants, factor[left]);
                }
                UNROLL for (int i = 0; i < ROWS * EACH * PRODUCTS; i++) products[i] = 0.0f;
                if (MESSAGES && !starts) {
                    const Local barrier = arrived + (buffer * GROUPS + group) * (unsigned)sizeof(Barrier);
                    barrier_wait(barrier, parity);
                    if (thread == 0) barrier_expect(barrier, VALUES * VALUE);
                }
                const Local values = buffer * BUFFER + group * GROUP;
                if constexpr (PHASE == 0) weights.multiply(place, values, products);
                else weights_2.multiply(place, values, products);
                reduce<LANES, ROWS, EACH, PRODUCTS>(products);
                if (BACKWARD && step == steps) { /* what the products add to the gradient of the initial state */
                    UNROLL for (int left = 0; left < LEFT; left++)
                        UNROLL for (int p = 0; p < PRODUCTS; p++) state[group][left][p] += products[left * PRODUCTS + p];
                    continue;
                }
                float out[LEFT][Cell::OUTPUTS + Cell::SAVED], value[LEFT][NEXT], total[LEFT][at_least_one(Cell::TRACED)];
                UNROLL for (int left = 0; left < LEFT; left++) {
                    const Unit unit = {products + left * PRODUCTS, in[left], factor[left], vector[left], state[group][left],
                                       out[left], value[left], sum[group][left], total[left], constants, FIRST};
                    Cell::template step<PHASE>(unit);
                }
                if (BACKWARD || PHASE + 1 < PHASES || step + 1 < steps)
                    UNROLL for (int left = 0; left < LEFT; left++)
                        UNROLL for (int v = 0; v < NEXT; v++) {
                            /* 0 in place of a padded unit's, which may be NaN, because 0 * NaN is NaN. */
                            const float sent = valid[group][left] ? value[left][v] : 0.0f;
                            const Four four = {shuffle(sent, quad_lane), shuffle(sent, quad_lane | FIRST),
                                               shuffle(sent, quad_lane | OTHER), shuffle(sent, quad_lane | FIRST | OTHER)};
                            const unsigned at = other * BUFFER + group * GROUP + v * VALUE + left * STRIDE * 4;
                            if (MESSAGES) {
                                UNROLL for (int send_ = 0; send_ < SENDS; send_++)
                                    if ((place_in_stride & 3) + 4 * mine.copy + send_ * 4 * COPIES < CLUSTER)
                                        send(to[send_] + at, four,
                                             barriers[send_] + (other * GROUPS + group) * (unsigned)sizeof(Barrier));
                            } else if ((place_in_stride & 3) + 4 * mine.copy == 0) {
                                store_four(own + at / 4, four);
                            }
                        }
                if (PHASE + 1 == PHASES)
                    UNROLL for (int left = 0; left < LEFT; left++) {
                        const int row = first + group * ROWS + mine.row;
                        const int unit = offset + first_unit + left * STRIDE + place_in_stride;
                        if (valid[group][left] && mine.copy == 0) {
                            UNROLL for (int k = 0; k < Cell::OUTPUTS; k++)
                                output[(size_t)(row * Cell::OUTPUTS + k) * ALL + unit] = out[left][k];
                            if (Cell::SAVED && saved)
                                UNROLL for (int k = 0; k < Cell::SAVED; k++)
                                    saved[(size_t)(row * Cell::SAVED + k) * ALL + unit] = out[left][Cell::OUTPUTS + k];
                            UNROLL for (int k = 0; k < Cell::TRACED; k++)
                                if (trace[k]) trace[k][(size_t)row * ALL + unit] = total[left][k];
                        }
                        if (step + DEPTH - 1 < steps) fetch(group, left, (step + DEPTH - 1) % DEPTH);
                    }
            }
        };
        _Pragma("unroll 1") for (; step < steps + (BACKWARD ? 1 : 0); step++) {
            copies_wait<DEPTH - 2>();
            run_phase(Integer<0>());
            if constexpr (PHASES == 2)
                if (step < steps) run_phase(Integer<1>());
            advance_inputs();
            output += stride * Cell::OUTPUTS;
            if (Cell::SAVED && saved) saved += stride * Cell::SAVED;
            UNROLL for (int k = 0; k < Cell::TRACED; k++)
                if (trace[k]) trace[k] += stride;
        }
        UNROLL for (int group = 0; group < GROUPS; group++)
            UNROLL for (int left = 0; left < LEFT; left++)
                if (valid[group][left] && mine.copy == 0) {
                    const int row = first + group * ROWS + mine.row, unit = first_unit + left * STRIDE + place_in_stride;
                    const size_t at = (size_t)row * ALL + offset + unit;
                    UNROLL for (int k = 0; k < Cell::STATES; k++)
                        if (arguments.end[k]) arguments.end[k][at] = state[group][left][k];
                    UNROLL for (int k = 0; k < Cell::SUMS; k++)
                        if (arguments.sums[k]) arguments.sums[k][at] = sum[group][left][k];
                }
        if (MESSAGES) synchronize_cluster(); /* because a block may still send to this one */
    }
};
