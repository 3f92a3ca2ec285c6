// Experts that are read into free slots while nothing is asked, the popular ones first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace smoe {

class ExpertRing;
class Vault;

// Uses of each expert in earlier runs: a list a MoE layer, or no list at all.
using Popularity = std::vector<std::vector<std::uint32_t>>;

bool has_shape_of(const Vault& vault, const Popularity& uses);

class Prewarm {
 public:
  // Only the free slots are filled: what is cached stays.
  void begin(const Vault& vault, const Popularity& uses, ExpertRing& ring);
  // Hands a few reads to the ring, unless it still has some. False where there is nothing to do for now.
  bool step(ExpertRing& ring);

 private:
  struct Place {
    int moe_index, expert;
    float share;  // of its layer's uses
  };
  std::vector<Place> order_;
  std::size_t next_ = 0;
  int slots_ = 0;  // of the ring at the last step
};

}  // namespace smoe
