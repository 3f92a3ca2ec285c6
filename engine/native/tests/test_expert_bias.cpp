// Rows of biases, of any plain storage, on parts of rows of products.
#include <vector>

#include "check.h"
#include "expert_bias.h"
#include "random_matrix.h"

using namespace smoe;
using namespace testing;

namespace {

constexpr int kExperts = 3, kFfn = 200, kModel = 130, kTokens = 2;

// Exact in every storage.
float value(int row, int column) { return float((row * 31 + column * 7) % 64 - 32) / 8; }

struct Stored {
  std::vector<unsigned char> bytes;
  Matrix matrix;

  Stored(Storage storage, int rows, int cols) {
    const std::size_t size = storage == Storage::f32 ? 4 : 2;
    bytes.resize(std::size_t(rows) * std::size_t(cols) * size);
    for (int r = 0; r < rows; r++)
      for (int c = 0; c < cols; c++) {
        const float v = value(r, c);
        std::uint32_t bits;
        std::memcpy(&bits, &v, 4);
        if (storage == Storage::bf16) bits >>= 16;
        if (storage == Storage::f16) bits = float_to_half(v);
        std::memcpy(&bytes[(std::size_t(r) * std::size_t(cols) + std::size_t(c)) * size], &bits, size);
      }
    matrix = {storage, rows, cols, bytes.data(), nullptr};
  }
};

}  // namespace

TEST(biases_are_added_to_the_part_that_is_asked_for) {
  for (const Kernels* kernels : every_set())
    for (const Storage storage : {Storage::f32, Storage::f16, Storage::bf16}) {
      const Stored inner(storage, kExperts, 2 * kFfn), outer(storage, kExperts, kModel);
      const ExpertBiases biases(*kernels, inner.matrix, outer.matrix);
      for (const int begin : {0, 32, 97}) {
        const int end = begin == 0 ? kModel : begin + 33;
        std::vector<float> gate(kTokens * kFfn, 1.0f), up = gate, out(kTokens * kModel, 1.0f);
        biases.add_inner(2, begin, end, {gate.data(), kFfn, kTokens}, {up.data(), kFfn, kTokens});
        biases.add_outer(1, begin, end, {out.data(), kModel, kTokens});
        for (int token = 0; token < kTokens; token++) {
          for (int i = 0; i < kFfn; i++) {
            const bool asked = i >= begin && i < end;
            CHECK_EQ(gate[std::size_t(token * kFfn + i)], asked ? 1 + value(2, 2 * i) : 1.0f);
            CHECK_EQ(up[std::size_t(token * kFfn + i)], asked ? 1 + value(2, 2 * i + 1) : 1.0f);
          }
          for (int i = 0; i < kModel; i++)
            CHECK_EQ(out[std::size_t(token * kModel + i)], i >= begin && i < end ? 1 + value(1, i) : 1.0f);
        }
      }
    }
}

TEST(without_biases_nothing_is_added) {
  std::vector<float> row(kFfn, 1.0f);
  ExpertBiases().add_inner(0, 0, kFfn, {row.data(), kFfn, 1}, {row.data(), kFfn, 1});
  ExpertBiases().add_outer(0, 0, kFfn, {row.data(), kFfn, 1});
  CHECK(row == std::vector<float>(kFfn, 1.0f));
}
