#include "expert_bias.h"

#include <algorithm>

namespace smoe {
namespace {

constexpr int kAtOnce = 64;  // elements that become floats, on the stack

// Elements [begin, begin + count) of a row, as a matrix of one row.
Matrix stretch(const Matrix& m, int row, int begin, int count) {
  const std::size_t bytes = m.storage == Storage::f32 ? 4 : 2;
  const std::size_t at = static_cast<std::size_t>(row) * static_cast<std::size_t>(m.cols) + static_cast<std::size_t>(begin);
  return {m.storage, 1, count, static_cast<const unsigned char*>(m.data) + at * bytes, nullptr};
}

void add(const float* bias, int step, int begin, int count, const TokenRows& rows) {
  for (int token = 0; token < rows.tokens; ++token) {
    float* const to = rows.first + static_cast<std::size_t>(token) * rows.stride + begin;
    for (int i = 0; i < count; ++i) to[i] += bias[i * step];
  }
}

}  // namespace

void ExpertBiases::add_inner(int expert, int begin, int end, const TokenRows& gate, const TokenRows& up) const {
  float bias[2 * kAtOnce];
  for (int count; kernels_ && begin < end; begin += count) {
    count = std::min(kAtOnce, end - begin);
    kernels_->dequantize_row(stretch(gate_up_, expert, 2 * begin, 2 * count), 0, bias);
    add(bias, 2, begin, count, gate);
    add(bias + 1, 2, begin, count, up);
  }
}

void ExpertBiases::add_outer(int expert, int begin, int end, const TokenRows& out) const {
  float bias[kAtOnce];
  for (int count; kernels_ && begin < end; begin += count) {
    count = std::min(kAtOnce, end - begin);
    kernels_->dequantize_row(stretch(down_, expert, begin, count), 0, bias);
    add(bias, 1, begin, count, out);
  }
}

}  // namespace smoe
