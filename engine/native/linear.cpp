#include "linear.h"

#include <algorithm>
#include <cstdint>

#include "buffer.h"

namespace smoe {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr int kTokenGrain = 8;  // of work that a token needs little of

void add_bias(const std::vector<float>& bias, int begin, int end, int tokens, float* out, std::size_t stride) {
  if (bias.empty()) return;
  for (int token = 0; token < tokens; ++token)
    for (int row = begin; row < end; ++row)
      out[static_cast<std::size_t>(token) * stride + static_cast<std::size_t>(row)] += bias[static_cast<std::size_t>(row)];
}

}  // namespace

std::size_t Input::Prepared::start() const {
  return (kAlignment - reinterpret_cast<std::uintptr_t>(memory.data()) % kAlignment) % kAlignment;
}

std::uint64_t Input::most_bytes(const Runtime& runtime, int cols) {
  std::size_t most = 0;
  for (const Storage storage : {Storage::f32, Storage::f16, Storage::bf16, Storage::q8, Storage::q4, Storage::q2})
    most = std::max(most, runtime.kernels.prepared_bytes(storage, runtime.numerics, cols));
  return most;
}

void Input::fit(int tokens) {
  most_tokens_ = tokens;
  prepared_ = {};
}

void Input::set(const float* x, std::size_t stride, int tokens, int cols) {
  x_ = x;
  stride_ = stride;
  tokens_ = tokens;
  cols_ = cols;
  for (Prepared& prepared : prepared_) prepared.valid = false;
}

void Input::prepare(Storage storage) {
  Prepared& prepared = of(storage);
  if (prepared.valid) return;
  prepared.row_bytes = runtime_.kernels.prepared_bytes(storage, runtime_.numerics, cols_);
  if (prepared.row_bytes == 0) return;  // such weights meet the floats themselves
  const std::size_t bytes = static_cast<std::size_t>(std::max(tokens_, most_tokens_)) * prepared.row_bytes + kAlignment;
  if (prepared.memory.size() < bytes) reallocate(prepared.memory, bytes);
  runtime_.pool.for_range(tokens_, kTokenGrain, [&](int begin, int end) {
    const auto first = static_cast<std::size_t>(begin);
    runtime_.kernels.prepare(storage, runtime_.numerics, x_ + first * stride_, stride_, end - begin, cols_,
                             &prepared.memory[prepared.start() + first * prepared.row_bytes]);
  });
  prepared.valid = true;
}

Activations Input::rows(Storage storage, int first, int count) const {
  const auto skipped = static_cast<std::size_t>(first);
  const Prepared& prepared = of(storage);
  const void* codes = prepared.valid ? &prepared.memory[prepared.start() + skipped * prepared.row_bytes] : nullptr;
  return {count, cols_, x_ + skipped * stride_, stride_, codes, runtime_.numerics};
}

void multiply(const Runtime& runtime, Input& input, std::initializer_list<Product> products) {
  int blocks = 0;
  const std::size_t work = kRowBlock * static_cast<std::size_t>(input.tokens()) * static_cast<std::size_t>(input.cols());
  for (const Product& product : products) {
    input.prepare(product.linear->weight.storage);
    blocks += row_blocks(product.linear->weight.rows);
  }
  runtime.pool.for_range(blocks, worthwhile(work), [&](int begin, int end) {
    int first = 0;  // block of the product
    for (const Product& product : products) {
      const Matrix& weight = product.linear->weight;
      const int row0 = std::max(0, begin - first) * kRowBlock;
      const int row1 = std::min(weight.rows, (end - first) * kRowBlock);
      first += row_blocks(weight.rows);
      if (row0 >= row1) continue;
      runtime.kernels.matmul(weight, row0, row1, input.rows(weight.storage), product.out, product.stride);
      add_bias(product.linear->bias, row0, row1, input.tokens(), product.out, product.stride);
    }
  });
}

}  // namespace smoe
