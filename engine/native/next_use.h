// When each expert is likely to be needed next: what an eviction goes by.
//
// Experts are asked for in ascending order of layer and number, again and again: a pass is a token or a chunk. One that
// was in a share r of its recent passes is needed again after 1/r passes on average, and not before its turn comes. So
// experts that every pass needs are kept as far as they fit (where "least recently used" keeps none of a cycle that is
// larger than the cache), and popular ones longer than others. Uses fade, with a half-life of 32 passes.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

namespace smoe {

class NextUse {
 public:
  explicit NextUse(std::size_t experts) : uses_(experts), turns_(experts) {
    for (std::size_t age = 0; age < kAges; ++age) faded_[age] = std::exp2(-static_cast<float>(age) / kHalfLife);
    for (std::size_t turns = 1; turns < kAges; ++turns) most_[turns] = most_[turns - 1] + faded_[turns - 1];
  }

  // The expert of this number, counted through all layers, is needed now.
  void use(std::size_t expert) {
    if (expert <= current_) ++passes_;
    current_ = expert;
    uses_[expert] = faded_uses(expert) + 1;
    turns_[expert] = turns(expert);
  }

  // It was needed in this share of the passes before the first use() here.
  void expect(std::size_t expert, float share) {
    passes_ = kAges;
    uses_[expert] = share * most_.back();
    turns_[expert] = turns(expert);
  }

  // Passes from now until its next use.
  float distance(std::size_t expert) const {
    constexpr float kNever = 1e-6f;
    const float most = most_[std::min(turns(expert), kAges - 1)];
    const float share = most > 0 ? faded_uses(expert) / most : 0;  // no turn yet: it was read ahead in the first pass
    const std::size_t to_go = expert > current_ ? expert - current_ : expert + uses_.size() - current_;
    return 1 / (share + kNever) + static_cast<float>(to_go) / static_cast<float>(uses_.size());
  }

 private:
  static constexpr float kHalfLife = 32;
  static constexpr std::size_t kAges = 512;  // after so many turns a use has all but faded

  // In this pass its turn may have come already.
  std::size_t turns(std::size_t expert) const { return passes_ + (expert <= current_ ? 1 : 0); }

  float faded_uses(std::size_t expert) const {
    const std::size_t age = turns(expert) - turns_[expert];
    return age < kAges ? uses_[expert] * faded_[age] : 0;
  }

  std::size_t passes_ = 0, current_ = 0;
  std::vector<float> uses_;          // by expert, faded as of its last use
  std::vector<std::size_t> turns_;   // by expert: its turns up to its last use
  std::array<float, kAges> faded_{};  // what is left of a use, by age in turns
  std::array<float, kAges> most_{};   // faded uses of an expert that was used at each of so many turns
};

}  // namespace smoe
