/* What the text of a cell that is compiled for its first use needs besides `cell.h` and `functions.h`: the library.
 *
 * The text is a library of its own. It links to none, because the kernels export no names, so the program gives it the
 * addresses of the driver's functions (`take_driver`). */
#ifndef ORTHOBENCH_COMPILED_H
#define ORTHOBENCH_COMPILED_H

#include "cell.h"
#include "functions.h"

static struct driver library;

void take_driver(const struct driver *driver) { library = *driver; }

int run_forward(const struct cell *cell, const struct dense *p, int64_t first, int64_t last, epilogue *const *finish) {
    return library.run_forward(cell, p, first, last, finish);
}

int run_backward(const struct cell *cell, const struct dense *p, int64_t first, int64_t last, epilogue *const *finish) {
    return library.run_backward(cell, p, first, last, finish);
}

void multiply(int rows, int vecs, const struct operand *operands, int count, int64_t row, int64_t column, float *out,
              int64_t ldo) {
    library.multiply(rows, vecs, operands, count, row, column, out, ldo);
}

#endif
