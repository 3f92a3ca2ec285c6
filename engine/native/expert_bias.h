// What is added to the products of a layer's experts: rows of the trunk's tensors, which stay as stored there.
#pragma once

#include "kernels.h"

namespace smoe {

// `tokens` rows of floats, `stride` from one to the next.
struct TokenRows {
  float* first;
  std::size_t stride;
  int tokens;
};

class ExpertBiases {
 public:
  ExpertBiases() = default;  // none
  // gate_up: [experts][2 ffn], gate and up in turns; down: [experts][d_model]. Of plain elements.
  ExpertBiases(const Kernels& kernels, const Matrix& gate_up, const Matrix& down)
      : kernels_(&kernels), gate_up_(gate_up), down_(down) {}

  // To elements [begin, end) of each row.
  void add_inner(int expert, int begin, int end, const TokenRows& gate, const TokenRows& up) const;
  void add_outer(int expert, int begin, int end, const TokenRows& out) const;

 private:
  const Kernels* kernels_ = nullptr;
  Matrix gate_up_{}, down_{};
};

}  // namespace smoe
