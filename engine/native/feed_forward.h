// What follows a layer's attention: a dense MLP, or routed experts beside an optional shared one.
#pragma once

#include <memory>

#include "expert_ring.h"
#include "runtime.h"
#include "weights.h"

namespace smoe {

class FeedForward {
 public:
  virtual ~FeedForward() = default;
  // x += f(h) for all tokens; h, x: [tokens][d_model]. Fails when an expert cannot be read. Calls `meanwhile` once:
  // when its own reads are asked for, and before x changes.
  virtual Error forward(int tokens, const float* h, float* x, FunctionRef<void()> meanwhile) = 0;
  // A guess of a coming forward()'s h, of one token: what would be needed for it may be read ahead.
  virtual void expect(const float* /*h*/) {}
};

class FeedForwardFactory {
 public:
  virtual ~FeedForwardFactory() = default;
  virtual Error make(int layer, std::unique_ptr<FeedForward>* out) = 0;
  // Buffers for batches of so many tokens; between batches.
  virtual void fit(int tokens) = 0;
};

// Bytes of buffers that each token of a batch takes.
std::uint64_t feed_forward_buffer_bytes(const Architecture& architecture, const Runtime& runtime);

std::unique_ptr<FeedForwardFactory> make_feed_forward_factory(Weights& weights, Runtime& runtime, const Vault& vault,
                                                              ExpertRing& ring);

}  // namespace smoe
