// down(silu(gate(h)) * up(h)), in the trunk: a dense layer's MLP, or the expert that every token goes to.
#pragma once

#include "feed_forward.h"
#include "linear.h"

namespace smoe {

struct MlpWeights {
  Linear gate, up, down;
  Linear share;  // [1][d_model]: the output is scaled by sigmoid(share . h); no rows: by 1
};

// Buffers that all layers use in turn.
struct MlpWorkspace {
  MlpWorkspace(const Runtime& runtime, int d_model, int ffn) : d_model(d_model), ffn(ffn), h(runtime), hidden(runtime) {}

  void fit(int tokens);
  static std::uint64_t token_bytes(const Runtime& runtime, int d_model, int ffn);

  int d_model, ffn;
  Input h, hidden;
  std::vector<float> gate, up, out, share;  // [tokens][ffn], [tokens][ffn], [tokens][d_model], [tokens]
};

class Mlp : public FeedForward {
 public:
  Mlp(Runtime& runtime, MlpWorkspace& space, MlpWeights weights)
      : runtime_(runtime), space_(space), weights_(std::move(weights)) {}
  Error forward(int tokens, const float* h, float* x, FunctionRef<void()> meanwhile) override;

 private:
  void scale_shares(int tokens);

  Runtime& runtime_;
  MlpWorkspace& space_;
  MlpWeights weights_;
};

}  // namespace smoe
