/* One launch of the kernel KERNEL of SOURCE on the CPU.

   The words are the grid, the blocks of a cluster, the threads of a block, then an argument each: the length of an array,
   or a number. Standard input has all arrays; standard output gets those that the kernel may write, as float32. */
#include "cuda_emulation.h"
#include SOURCE
#include <tuple>
#include <type_traits>

static std::vector<std::vector<float>> arrays, results;
static std::vector<size_t> written;

template <class T>
static T parse(const char *word)
{
    if constexpr (std::is_pointer_v<T>) {
        std::vector<float> values(atoll(word));
        if (fread(values.data(), sizeof(float), values.size(), stdin) != values.size())
            abort();
        if (!std::is_const_v<std::remove_pointer_t<T>>)
            written.push_back(arrays.size());
        arrays.push_back(std::move(values));
        return arrays.back().data();
    } else if constexpr (std::is_same_v<T, int>)
        return atoi(word);
    else
        return strtof(word, nullptr);
}

template <class... T>
static int run(void (*kernel)(T...), int count, char **words)
{
    if (count != 4 + (int)sizeof...(T))
        return 2;
    arrays.reserve(sizeof...(T));
    char **word = words + 4;
    const std::tuple<T...> arguments{parse<T>(*word++)...};
    launch(atoi(words[1]), atoi(words[2]), atoi(words[3]), [&] { std::apply(kernel, arguments); });
    for (const size_t index : written)
        fwrite(arrays[index].data(), sizeof(float), arrays[index].size(), stdout);
    return 0;
}

int main(int count, char **words) { return run(KERNEL, count, words); }
