/* Both passes of row.cu on the CPU: numbers from standard input, results to standard output, as float32. */
#include "cuda_emulation.h"
#include ROW_SOURCE

static std::vector<float> read(size_t count)
{
    std::vector<float> values(count);
    if (fread(values.data(), sizeof(float), count, stdin) != count)
        abort();
    return values;
}

static void write(const std::vector<float> &values) { fwrite(values.data(), sizeof(float), values.size(), stdout); }

int main(int count, char **words)
{
    if (count != 8)
        return 2;
    const int T = atoi(words[1]), B = atoi(words[2]), n = atoi(words[3]), runs = atoi(words[7]);
    const float step_size = atof(words[4]), slope = atof(words[5]), epsilon = atof(words[6]);
    const size_t rows = (size_t)runs * B * n, all = T * rows;
    const auto x = read(all), weight = read((size_t)runs * n * n), h0 = read(rows), bias = read((size_t)runs * n);
    const auto grad = read(FINAL ? rows : all);
    std::vector<float> states(all, NAN), kept(all, NAN), dx(all, NAN), total(all, NAN), dh0(rows, NAN), dbias(rows, NAN);
    launch(runs * B, THREADS, [&] {
        row_forward(x.data(), weight.data(), h0.data(), bias.data(), states.data(), kept.data(), T, B, n, step_size,
                    slope, epsilon);
    });
    const auto &saved = RESIDUAL ? kept : states;
    launch(runs * B, THREADS, [&] {
        row_backward(grad.data(), weight.data(), saved.data(), dx.data(), total.data(), dh0.data(), dbias.data(), T, B,
                     n, step_size, slope);
    });
    for (const auto *each : {&states, &dx, &dh0, &dbias, &total})
        write(*each);
}
