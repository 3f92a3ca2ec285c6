// y = W x + b for some tokens, over all threads.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <vector>

#include "runtime.h"

namespace smoe {

struct Linear {
  Matrix weight;
  std::vector<float> bias;  // [rows]; empty: none
};

// Rows are shared out in blocks: enough to be worth a call, few enough to be even.
inline constexpr int kRowBlock = 32;

inline int row_blocks(int rows) { return (rows + kRowBlock - 1) / kRowBlock; }

// How many items of so many multiplications each are worth another thread's wake-up (some microseconds).
inline int worthwhile(std::size_t multiplications) {
  constexpr std::size_t kLeast = 1 << 16;
  return static_cast<int>((kLeast + multiplications - 1) / multiplications);
}

// Some tokens' activations, prepared at most once for each storage of weights that they meet.
class Input {
 public:
  explicit Input(const Runtime& runtime) : runtime_(runtime) {}

  // Of a token, at most: whatever storage the weights are.
  static std::uint64_t most_bytes(const Runtime& runtime, int cols);
  // No batch has more rows until this is said again: prepare() takes memory for so many, once.
  void fit(int tokens);
  // These rows from now on; x stays the caller's.
  void set(const float* x, std::size_t stride, int tokens, int cols);
  int tokens() const { return tokens_; }
  int cols() const { return cols_; }

  // Before rows() is asked for this storage; never inside parallel work.
  void prepare(Storage storage);
  Activations rows(Storage storage) const { return rows(storage, 0, tokens_); }
  Activations rows(Storage storage, int first, int count) const;

 private:
  struct Prepared {
    std::vector<unsigned char> memory;
    std::size_t row_bytes = 0;
    bool valid = false;

    std::size_t start() const;  // of row 0 in memory: aligned for the kernels' vectors
  };
  const Prepared& of(Storage storage) const { return prepared_[static_cast<std::size_t>(storage)]; }
  Prepared& of(Storage storage) { return prepared_[static_cast<std::size_t>(storage)]; }

  const Runtime& runtime_;
  const float* x_ = nullptr;
  std::size_t stride_ = 0;
  int tokens_ = 0, cols_ = 0, most_tokens_ = 1;
  std::array<Prepared, 6> prepared_;  // by Storage
};

struct Product {
  const Linear* linear;
  float* out;  // [tokens][stride]
  std::size_t stride;
};

// All products of one input as a single parallel phase.
void multiply(const Runtime& runtime, Input& input, std::initializer_list<Product> products);

}  // namespace smoe
