// One layer's attention. A new kind (linear, say) is a new class and a factory that make_attention_factory() chooses.
#pragma once

#include <memory>
#include <string>

#include "kv_cache.h"
#include "runtime.h"
#include "weights.h"

namespace smoe {

// Some consecutive tokens on their way through the layers.
struct Batch {
  int tokens, first;  // first: absolute position of token 0
  Conversation* conversation;
};

class Attention {
 public:
  virtual ~Attention() = default;
  // x += attention(h) for all tokens; their keys and values are stored. h, x: [tokens][d_model].
  virtual void forward(const Batch& batch, const float* h, float* x) = 0;
};

// Buffers and tables that the layers share.
class AttentionFactory {
 public:
  virtual ~AttentionFactory() = default;
  virtual Error make(int layer, std::unique_ptr<Attention>* out) = 0;
  // Buffers for batches of so many tokens; between batches.
  virtual void fit(int tokens) = 0;
  // Once for each batch, before its first layer.
  virtual void begin(const Batch& batch) = 0;
};

// Bytes of buffers that each token of a batch takes, and of those of any batch.
std::uint64_t attention_buffer_bytes(const Architecture& architecture, const Runtime& runtime);
std::uint64_t attention_scratch_bytes(const Architecture& architecture, const Runtime& runtime);

// Of one position (a window of 1, no chunk): the plan tells how many there are.
KvShape kv_shape(const Architecture& architecture, bool half);

std::unique_ptr<AttentionFactory> make_attention_factory(Weights& weights, Runtime& runtime);

}  // namespace smoe
