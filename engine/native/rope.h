// Rotary position embedding over the first `dim` elements of a head (Su et al. 2021, https://arxiv.org/abs/2104.09864).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace smoe {

// For contexts `factor` times longer than the first training's `original` positions: frequencies of more than beta_fast
// turns over these stay, those of fewer than beta_slow are divided by the factor, between them there is a ramp
// (Peng et al. 2023, https://arxiv.org/abs/2309.00071).
struct Yarn {
  double factor, beta_fast, beta_slow, original;
  bool truncate;            // the ramp's ends to whole elements
  double attention_factor;  // of cosines and sines
};

// Which elements turn together: i and i + dim / 2 (rotate_half), or 2 i and 2 i + 1 (the paper's, DeepSeek).
enum class RopePairs : std::uint8_t { halves, neighbours };

// [dim / 2], in radians a position.
std::vector<double> rope_frequencies(double theta, int dim, const std::optional<Yarn>& yarn);

class Rope {
 public:
  Rope(double theta, int dim, const std::optional<Yarn>& yarn = {}, RopePairs pairs = RopePairs::halves);

  void fit(int tokens);  // the most that set_positions() is asked for
  // The angles of the positions first .. first + tokens - 1, computed in double.
  void set_positions(int first, int tokens);
  void rotate(int token, float* head) const;

 private:
  std::size_t half_;
  std::size_t step_, apart_;         // elements from one pair to the next, and between the two of a pair
  std::vector<double> frequencies_;  // [half]
  double stretch_;                   // of cosines and sines
  std::vector<float> cos_, sin_;     // [tokens][half]
};

}  // namespace smoe
