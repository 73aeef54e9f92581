/* The loops over time of the dense cells. */
#include "cell.h"

INLINE const float *packed_of(const struct dense *p, int operand) {
    const float *const packed[] = {p->packed, p->packed_2, p->packed_3, p->packed_4};
    return packed[operand];
}

/* Runs the parts of a phase after the first one. */
static void run_parts(const struct step *s, int64_t rows, int count, epilogue *const *finish) {
    for (int k = 0; k < count; k++) sweep(s, rows, NULL, 0, 1, finish[k]);
}

int run_forward(const struct cell *cell, const struct dense *p, int64_t first, int64_t last, epilogue *const *finish) {
    const uint64_t denormals = flush_denormals();
    const int64_t n = p->features, rows = last - first;
    struct step s = {.p = p, .first = first, .kept_size = rows * n};
    const int kept = cell->phase[0].kept + cell->held;
    if (cell->phases > 1 || kept) {
        s.kept = zeros((kept + 1) * s.kept_size);
        if (!s.kept) return 1;
        s.value = s.kept + kept * s.kept_size;
    }
    for (s.t = 0; s.t < p->steps; s.t++) {
        s.before[0] = state_before(p, p->h, p->h0, s.t, first);
        if (p->h_2) s.before[1] = state_before(p, p->h_2, p->h0_2, s.t, first);
        int multiplied = 0;
        for (int i = 0; i < cell->phases; i++) {
            const struct phase *const phase = &cell->phase[i];
            const float *const second = p->h_2 ? p->h_2 + offset(&s, 0, n) : NULL;
            const float *const states[] = {s.before[0], s.before[0], second, s.value};
            struct operand operands[3];
            int count = 0;
            if (phase->products)
                operands[count++] = (struct operand){states[phase->reads], n, n, packed_of(p, multiplied++)};
            if (phase->products && phase->reads == BOTH_BEFORE)
                operands[count++] = (struct operand){s.before[1], n, n, packed_of(p, multiplied++)};
            if (p->u && phase->own < phase->products)
                operands[count++] = input_operand(&s, i ? p->packed_inputs_2 : p->packed_inputs);
            epilogue *const *const own = finish + i * (1 + cell->phase[0].parts_forward);
            sweep(&s, rows, operands, count, phase->products ? phase->products : 1, own[0]);
            run_parts(&s, rows, phase->parts_forward, own + 1);
        }
        const int64_t row = s.t * p->batch; /* its states are in the cache */
        if (p->y)
            linear(row + first, row + last, p->batch, n, p->outputs, p->h, p->packed_outputs, p->output_bias, p->y);
    }
    free(s.kept);
    end_streams();
    restore_denormals(denormals);
    return 0;
}

/* Which rows of dL/d[W, U] are products of which columns of the gradients, and with what. The columns are dL/dx_t, then
 * the gradients of the phases' own products, then those of an output map, which no cell with VALUE has. */
static void find_sources(const struct cell *cell, const struct dense *p, struct sums *sums, int64_t outputs) {
    const int64_t n = p->features, m = p->inputs;
    int64_t from = 0, own = inputs_of(cell) * n;
    sums->count = 0;
    for (int i = 0; i < cell->phases; i++) {
        const struct phase *const phase = &cell->phase[i];
        const int64_t alone = from + (phase->inputs - alone_of(phase)) * n, to = from + phase->inputs * n;
        const int64_t next_own = own + phase->own * n;
        const float *const states = phase->reads == BEFORE ? p->h : phase->reads == SECOND_NOW ? p->h_2 : NULL;
        const float *const initial = phase->reads == BEFORE ? p->h0 : NULL;
        if (own < next_own) sums->sources[sums->count++] = (struct source){own, next_own, 0, n, states, initial};
        if (from < alone) sums->sources[sums->count++] = (struct source){from, alone, 0, n + m, states, initial};
        if (m && alone < to) sums->sources[sums->count++] = (struct source){alone, to, n / VL * VL, n + m, states, initial};
        from = to;
        own = next_own;
    }
    if (outputs)
        sums->sources[sums->count++] = (struct source){sums->width - outputs, sums->width, 0, n, p->h, NULL};
}

/* The operands of the products backward, from the gradients of a step: of the phases that read the states before it, which
 * give dL/dh_{t-1}, or with both states [dL/dh_{t-1}, dL/dc_{t-1}]; or of the second phase, if it reads what the first one
 * has computed. */
static int gradient_operands(const struct cell *cell, const struct dense *p, const struct step *s, int of_states,
                             struct operand *operands) {
    const int64_t n = p->features;
    int64_t from = 0, own = 0;
    int count = 0, multiplied = 0;
    for (int i = 0; i < cell->phases; i++) {
        const struct phase *const phase = &cell->phase[i];
        const int64_t shared = (phase->products - phase->own) * n;
        const struct operand parts[] = {{s->value + own, s->value_row, phase->own * n}, {s->dz + from, s->dz_row, shared}};
        for (int k = 0; k < 2; k++) {
            if (!parts[k].depth) continue;
            const float *const packed = packed_of(p, multiplied++);
            if ((phase->reads == BEFORE || phase->reads == BOTH_BEFORE) != of_states) continue;
            operands[count] = parts[k];
            operands[count++].packed = packed;
        }
        own += phase->own * n;
        from += phase->inputs * n;
    }
    return count;
}

int run_backward(const struct cell *cell, const struct dense *p, int64_t first, int64_t last,
                 epilogue *const *finish) {
    const int64_t n = p->features, rows = last - first, outputs = p->dweights ? p->outputs : 0;
    const int64_t inputs = inputs_of(cell) * n;
    const int is_value = cell->phase[1].reads == VALUE, both = cell->phase[0].reads == BOTH_BEFORE;
    const int own = p->dweights ? owned_by(cell) : 0;
    struct step s;
    struct sums sums;
    if (!start_backward(&s, &sums, p, first, rows, p->h_2 ? 2 : 1, inputs + own * n + outputs, is_value * n)) return 1;
    find_sources(cell, p, &sums, outputs);
    s.kept_size = rows * n;
    const int kept = cell->phase[1].kept + cell->held;
    if (kept) s.kept = zeros(kept * s.kept_size);
    if (kept && !s.kept) {
        free(sums.ring);
        free(s.memory);
        return 1;
    }
    const uint64_t denormals = flush_denormals();
    const int last_phase = cell->phases - 1;
    epilogue *const *const of_last = finish + last_phase * (1 + cell->phase[0].parts_backward);
    for (int k = 0; k < 2; k++)
        if (!has(cell->carried, k)) s.carried[k] = NULL;
    const int64_t values = (owned_by(cell) + is_value) * n;
    s.value_row = sums.ring ? sums.row : values;
    s.fetching = saved_of(cell) > 2 && cell->phase[0].products * n < FAR;
    for (s.t = p->steps - 1; s.t >= -1; s.t--) {
        struct operand operands[5];
        int count = s.t < p->steps - 1 ? gradient_operands(cell, p, &s, 1, operands) : 0;
        if (s.t >= 0) {
            s.before[0] = state_before(p, p->h, p->h0, s.t, first);
            if (p->h_2) s.before[1] = state_before(p, p->h_2, p->h0_2, s.t, first);
            s.dz = dz_at(&sums, p, s.t, first);
            s.value = sums.ring ? s.dz + inputs : p->values ? p->values + offset(&s, 0, values) : NULL;
        }
        if (s.t >= 0 && p->grad_y) {
            const float *const arriving_y = p->grad_y + offset(&s, 0, p->outputs);
            operands[count++] = (struct operand){arriving_y, p->outputs, p->outputs, p->packed_outputs};
            for (int64_t row = 0; row < rows && outputs; row++)
                memcpy(s.dz + row * s.dz_row + inputs, arriving_y + row * outputs, (size_t)outputs * 4);
        }
        fetch_saved(&s, rows, saved_of(cell));
        epilogue *const initial = both ? initial_gradients : initial_gradient;
        sweep(&s, rows, operands, count, both ? 2 : 1, s.t < 0 ? initial : of_last[0]);
        s.fetch = NULL;
        if (s.t < 0) break;
        run_parts(&s, rows, cell->phase[last_phase].parts_backward, of_last + 1);
        if (last_phase && cell->phase[1].reads != BEFORE) {
            sweep(&s, rows, operands, gradient_operands(cell, p, &s, 0, operands), 1, finish[0]);
            run_parts(&s, rows, cell->phase[0].parts_backward, finish + 1);
        }
        finish_norms(&s, rows);
        add_products(&sums, p, s.t, first);
    }
    if (p->dh0_2 && !both) memcpy(p->dh0_2 + first * n, s.carried[1], (size_t)(rows * n) * 4);
    free(s.kept);
    return end_backward(&s, &sums, denormals);
}

static const struct driver driver = {run_forward, run_backward, multiply};

int64_t driver_address(void) { return (int64_t)(intptr_t)&driver; }
