#include "prewarm.h"

#include <algorithm>
#include <numeric>

#include "expert_ring.h"

namespace smoe {
namespace {

constexpr int kAtOnce = 8;  // reads that wait: some 10 ms of a disk's work, which the next request may find under way

}  // namespace

bool has_shape_of(const Vault& vault, const Popularity& uses) {
  if (uses.size() != static_cast<std::size_t>(vault.architecture().moe_layers)) return false;
  for (std::size_t layer = 0; layer < uses.size(); ++layer)
    if (uses[layer].size() != static_cast<std::size_t>(vault.experts(static_cast<int>(layer)))) return false;
  return true;
}

void Prewarm::begin(const Vault& vault, const Popularity& uses, ExpertRing& ring) {
  order_.clear();
  next_ = 0;
  const int layers = vault.architecture().moe_layers;
  for (int layer = 0; layer < layers; ++layer) {
    const std::vector<std::uint32_t>* const counts = uses.empty() ? nullptr : &uses[static_cast<std::size_t>(layer)];
    const double sum = counts ? std::accumulate(counts->begin(), counts->end(), 0.0) : 0;
    for (int expert = 0; expert < vault.experts(layer); ++expert) {
      const double count = sum > 0 ? (*counts)[static_cast<std::size_t>(expert)] : 0;
      order_.push_back({layer, expert, sum > 0 ? static_cast<float>(count / sum) : 0});
    }
  }
  const RingCounters counters = ring.counters();
  const bool has_seen_requests = counters.hits + counters.misses > 0;  // what it has learned from them stays
  for (const Place& place : order_)
    if (!has_seen_requests) ring.expect(place.moe_index, place.expert, place.share * static_cast<float>(vault.architecture().top_k));
  // Of equal ones those of all layers in turn: a ring that holds a part of the vault then has a part of each layer.
  std::stable_sort(order_.begin(), order_.end(), [](const Place& a, const Place& b) {
    return a.share != b.share ? a.share > b.share : a.expert < b.expert;
  });
}

// A ring that has become larger again has lost some of what had been read.
bool Prewarm::step(ExpertRing& ring) {
  if (ring.slots() > slots_) next_ = 0;
  slots_ = ring.slots();
  if (next_ == order_.size() || ring.free_slots() == 0) return false;
  if (ring.hints_wait()) return true;
  for (int queued = 0; queued < kAtOnce && next_ < order_.size() && ring.free_slots() > 0; ++next_)
    queued += ring.prefetch(order_[next_].moe_index, order_[next_].expert);
  return true;
}

}  // namespace smoe
