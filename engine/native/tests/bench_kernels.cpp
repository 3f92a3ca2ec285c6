// Speed of the matrix products and of attention, for people: built with the tests, run by hand.
//   bench_kernels [kernel set] [threads] [storage]
// "decode" streams far more weights than the caches hold, as one token does; "prefill" multiplies one matrix with 512
// tokens. GB/s counts codes and scales, GOP/s two operations a weight and token.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "kernels.h"
#include "threads.h"

using namespace smoe;

namespace {

// Processor time of the process where it has one busy thread: what other programs take does not count.
bool count_processor_time = false;

double now() {
  if (count_processor_time) return double(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The tenth percentile of the time of one piece of work: what it takes when other programs leave it alone.
// `work(i)` is given 0 .. pieces in turn.
double undisturbed_seconds(int pieces, const std::function<void(int)>& work) {
  constexpr double enough_seconds = 0.4;
  constexpr std::size_t fewest_times = 10;
  std::vector<double> times;
  work(0);
  const double start = now();
  for (double begin = start; times.size() < fewest_times || begin - start < enough_seconds;) {
    work(int(times.size()) % pieces);
    const double end = now();
    times.push_back(end - begin);
    begin = end;
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 10, times.end());
  return times[times.size() / 10];
}

int bits_per_element(Storage storage) {
  switch (storage) {
    case Storage::f32: return 32;
    case Storage::f16:
    case Storage::bf16: return 16;
    case Storage::q8: return 8;
    case Storage::q4: return 4;
    case Storage::q2: return 2;
  }
  return 0;
}

double bytes_per_weight(Storage storage) {
  const int bits = bits_per_element(storage);
  return bits / 8.0 + (bits < 16 ? 2.0 / 64 : 0.0);
}

struct Bench {
  const Kernels& kernels;
  ThreadPool pool;
  std::mt19937 random{7};

  std::vector<float> floats(std::size_t n) {
    std::normal_distribution<float> distribution;
    std::vector<float> values(n);
    for (float& value : values) value = distribution(random);
    return values;
  }

  void product(const char* what, Storage storage, Numerics numerics, int rows, int cols, int tokens, int copies) {
    const std::size_t weights = std::size_t(rows) * cols;
    const std::size_t matrix_bytes = weights * bits_per_element(storage) / 8;
    std::vector<std::uint32_t> data(matrix_bytes * copies / 4);
    for (auto& word : data) word = (std::uint32_t(random()) & 0x3fff3fff) | 0x20002000;  // normal as f16, bf16 and f32 too
    std::vector<std::uint16_t> scales(weights / 64 * copies, 0x2000);
    const std::vector<float> x = floats(std::size_t(tokens) * cols);
    std::vector<char> prepared(kernels.prepared_bytes(storage, numerics, cols) * tokens + 64);
    char* aligned = prepared.data() + (64 - std::uintptr_t(prepared.data()) % 64) % 64;
    std::vector<float> y(std::size_t(tokens) * rows);

    const double time = undisturbed_seconds(copies, [&](int copy) {
      kernels.prepare(storage, numerics, x.data(), cols, tokens, cols, aligned);
      const Activations activations{tokens, cols, x.data(), std::size_t(cols), aligned, numerics};
      const Matrix w{storage, rows, cols, reinterpret_cast<const char*>(data.data()) + matrix_bytes * copy,
                     scales.data() + weights / 64 * copy};
      pool.for_range(rows, 16, [&](int begin, int end) { kernels.matmul(w, begin, end, activations, y.data(), rows); });
    });
    std::printf("%-5s %-3s %4d x %4d  tokens %3d  %6.1f us  %6.1f GB/s  %6.1f GOP/s\n", what,
                numerics == Numerics::f32 ? "f32" : numerics == Numerics::i16 ? "i16" : "i8", rows, cols, tokens, time * 1e6,
                double(weights) * bytes_per_weight(storage) / time / 1e9, 2.0 * double(weights) * tokens / time / 1e9);
  }

  // The newest `tokens` of `count` positions.
  void attention(bool half, int count, int tokens) {
    constexpr int heads = 8, kv_heads = 4, dim = 128, width = heads * kv_heads * dim;
    const std::size_t elements = std::size_t(count) * kv_heads * dim;
    const std::vector<float> q = floats(std::size_t(tokens) * width), keys = floats(elements);
    std::vector<std::uint16_t> halves(elements);
    kernels.to_half(keys.data(), int(elements), halves.data());
    const std::size_t scratch_size = AttendScratch::size(tokens * heads, dim, dim);
    std::vector<float> out(q.size()), scratch(scratch_size * kv_heads);
    const double time = undisturbed_seconds(1, [&](int) {
      pool.for_range(kv_heads, 1, [&](int begin, int end) {
        for (int head = begin; head < end; head++) {
          const void* from = half ? static_cast<const void*>(halves.data() + head * dim) : keys.data() + head * dim;
          const KeyValues kv{from, from, half, kv_heads * dim, kv_heads * dim, dim, dim, 0, count, count, 0, count};
          const std::size_t first = std::size_t(head) * heads * dim;
          const Queries queries{q.data() + first, out.data() + first, width, width, tokens, heads};
          kernels.attend(queries, kv, 0.1f, scratch.data() + scratch_size * head);
        }
      });
    });
    std::printf("attend   %s  %2d of %5d positions, 32 / 4 heads x 128  %8.1f us  %6.1f GFLOP/s\n", half ? "f16" : "f32", tokens,
                count, time * 1e6, 4.0 * tokens * count * width / time / 1e9);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const Kernels* kernels = select_kernels(argc > 1 ? argv[1] : nullptr);
  if (!kernels) return std::fprintf(stderr, "this machine cannot run that kernel set\n"), 1;
  Bench bench{*kernels, ThreadPool(argc > 2 ? std::atoi(argv[2]) : 0)};
  count_processor_time = bench.pool.size() == 1;
  std::printf("%s, %d threads\n", kernels->name, bench.pool.size());
  const std::pair<const char*, Storage> storages[] = {{"f32", Storage::f32}, {"bf16", Storage::bf16},
                                                      {"q8", Storage::q8},   {"q4", Storage::q4},
                                                      {"q2", Storage::q2}};
  for (const auto& [name, storage] : storages) {
    if (argc > 3 && std::strcmp(argv[3], name)) continue;
    const int copies = int(256e6 / (768.0 * 2048 * bytes_per_weight(storage)));
    for (Numerics numerics : {Numerics::f32, Numerics::i16, Numerics::i8}) {
      if (numerics != Numerics::f32 && !kernels->prepared_bytes(storage, numerics, 64)) continue;
      bench.product(name, storage, numerics, 768, 2048, 1, copies);
      bench.product(name, storage, numerics, 2048, 768, 1, copies);
      bench.product(name, storage, numerics, 768, 2048, 4, 8);
      bench.product(name, storage, numerics, 768, 2048, 32, 4);
      bench.product(name, storage, numerics, 768, 2048, 512, 1);
      bench.product(name, storage, numerics, 2048, 768, 512, 1);
    }
  }
  if (argc > 3 && std::strcmp(argv[3], "attend")) return 0;
  for (bool half : {false, true})
    for (int count : {512, 8192})
      for (int tokens : {1, 16}) bench.attention(half, count, tokens);
}
