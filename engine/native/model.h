// The transformer: embedding, layers of attention and feed-forward, norm, head.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "attention.h"
#include "feed_forward.h"
#include "kv_cache.h"

namespace smoe {

class Model {
 public:
  // Everything referred to must outlive the model.
  Model(const Vault& vault, const Trunk& trunk, ExpertRing& ring, Runtime& runtime);
  // Its layers, of a trunk that is loaded by now; before forward().
  Error load();

  // Buffers for batches of so many tokens; between batches, after whose end no logits are asked for any more.
  void fit(int tokens);
  int fitted() const { return fitted_; }
  // Bytes of buffers: those of each token of a batch, and those of any batch.
  static std::uint64_t buffer_bytes_token(const Architecture& architecture, const Runtime& runtime);
  static std::uint64_t buffer_bytes(const Architecture& architecture, const Runtime& runtime);

  // Appends ids to the conversation: no more than fit() was told. Stops before a layer when `go_on` does not want it: then
  // the conversation is as it was before, and so it is after an error.
  Error forward(Conversation& conversation, std::span<const int> ids, FunctionRef<bool(int layer)> go_on, bool* interrupted);

  // The next token's logits after tokens first .. first + count - 1 of the last batch: [count][vocabulary], valid until
  // the next call.
  const float* logits(int first, int count = 1);

  int vocabulary() const { return head_.weight.rows; }

 private:
  struct Layer {
    std::vector<float> attention_norm, feed_forward_norm;
    std::unique_ptr<Attention> attention;
    std::unique_ptr<FeedForward> feed_forward;
  };

  Error load_head();
  Error load_layer(int layer, Layer* out);
  Error embed(std::span<const int> ids);
  const float* normed(const std::vector<float>& weight, int tokens);
  Error run_layer(std::size_t index, const Batch& batch);
  void expect(std::size_t index);

  Runtime& runtime_;
  int layer_count_, d_model_, vocab_, fitted_ = 0;
  float epsilon_;
  Embedding embedding_;
  Linear head_;
  std::vector<float> norm_;
  Weights weights_;
  std::unique_ptr<AttentionFactory> attention_;
  std::unique_ptr<FeedForwardFactory> feed_forward_;
  std::vector<Layer> layers_;
  Input head_input_;
  std::vector<float> x_, h_;     // [fitted][d_model]
  std::vector<float> ahead_;     // [d_model]
  std::vector<float> logits_;    // [at least 1][vocabulary]
};

}  // namespace smoe
