// Rotary position embedding over the first `dim` elements of a head, in Hugging Face's rotate_half arrangement:
// element i turns with element i + dim / 2 (Su et al. 2021, https://arxiv.org/abs/2104.09864).
#pragma once

#include <cstddef>
#include <vector>

namespace smoe {

class Rope {
 public:
  Rope(double theta, int dim);

  void fit(int tokens);  // the most that set_positions() is asked for
  // The angles of the positions first .. first + tokens - 1, computed in double.
  void set_positions(int first, int tokens);
  void rotate(int token, float* head) const;

 private:
  std::size_t half_;
  std::vector<double> frequencies_;  // [half]
  std::vector<float> cos_, sin_;     // [tokens][half]
};

}  // namespace smoe
