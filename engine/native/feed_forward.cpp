#include "feed_forward.h"

#include <algorithm>

#include "mlp.h"
#include "moe.h"

namespace smoe {
namespace {

class Factory : public FeedForwardFactory {
 public:
  Factory(Weights& weights, Runtime& runtime, const Vault& vault, ExpertRing& ring)
      : weights_(weights),
        runtime_(runtime),
        vault_(vault),
        ring_(ring),
        mlp_space_(runtime, arch().d_model, std::max(arch().dense_ffn, arch().shared_ffn)),
        moe_space_(runtime, arch()) {}

  Error make(int layer, std::unique_ptr<FeedForward>* out) override {
    const std::string name = "model.layers." + std::to_string(layer) + ".mlp";
    return vault_.is_moe_layer(layer) ? make_moe(name, layer, out) : make_mlp(name, arch().dense_ffn, {}, out);
  }

  void fit(int tokens) override {
    mlp_space_.fit(tokens);
    moe_space_.fit(tokens);
  }

 private:
  const Architecture& arch() const { return weights_.architecture(); }

  Error make_mlp(const std::string& name, int ffn, const Linear& share, std::unique_ptr<FeedForward>* out) {
    MlpWeights found;
    if (Error error = weights_.linear(name + ".gate_proj", ffn, arch().d_model, &found.gate)) return error;
    if (Error error = weights_.linear(name + ".up_proj", ffn, arch().d_model, &found.up)) return error;
    if (Error error = weights_.linear(name + ".down_proj", arch().d_model, ffn, &found.down)) return error;
    found.share = share;
    *out = std::make_unique<Mlp>(runtime_, mlp_space_, std::move(found));
    return {};
  }

  Error make_moe(const std::string& name, int layer, std::unique_ptr<FeedForward>* out) {
    Moe::Parts parts;
    parts.moe_index = vault_.moe_index(layer);
    const int experts = vault_.experts(parts.moe_index);
    if (Error error = make_gate(layer, experts, &parts.gate)) return error;
    if (Error error = make_shared(name, &parts.shared)) return error;
    if (Error error = make_layer_router(layer, experts, &parts.router)) return error;
    if (Error error = make_biases(name, experts, &parts.biases)) return error;
    parts.swiglu = arch().swiglu;
    *out = std::make_unique<Moe>(runtime_, moe_space_, vault_, ring_, std::move(parts));
    return {};
  }

  Error make_gate(int layer, int experts, Linear* out) {
    const std::string name = router_name(layer);
    if (Error error = weights_.linear(name, experts, arch().d_model, out)) return error;
    return arch().biased_experts && out->bias.empty() ? weights_.vector(name + ".bias", experts, &out->bias) : Error{};
  }

  Error make_biases(const std::string& name, int experts, ExpertBiases* out) {
    if (!arch().biased_experts) return {};
    Matrix gate_up, down;
    if (Error error = weights_.matrix(name + ".experts.gate_up_proj_bias", experts, 2 * arch().moe_ffn, &gate_up)) return error;
    if (Error error = weights_.matrix(name + ".experts.down_proj_bias", experts, arch().d_model, &down)) return error;
    *out = {runtime_.kernels, gate_up, down};
    return {};
  }

  Error make_layer_router(int layer, int experts, std::unique_ptr<Router>* out) {
    std::vector<float> correction;
    if (arch().scoring == Scoring::sigmoid)
      if (Error error = weights_.vector(correction_name(layer), experts, &correction)) return error;
    *out = make_router(arch(), runtime_.kernels, experts, std::move(correction));
    return {};
  }

  // Mixtral's and MiniMax' checkpoints call it block_sparse_moe.
  bool is_sparse_block(int layer) const { return weights_.has(layer_name(layer) + "block_sparse_moe.gate.weight"); }

  static std::string layer_name(int layer) { return "model.layers." + std::to_string(layer) + "."; }

  std::string router_name(int layer) const {
    if (is_sparse_block(layer)) return layer_name(layer) + "block_sparse_moe.gate";
    return layer_name(layer) + (weights_.has(layer_name(layer) + "mlp.router.weight") ? "mlp.router" : "mlp.gate");
  }

  std::string correction_name(int layer) const {
    const bool beside = is_sparse_block(layer);  // the router, where others have it inside
    return layer_name(layer) + (beside ? "block_sparse_moe" : "mlp.gate") + ".e_score_correction_bias";
  }

  // Both spellings are in use: shared_expert (Qwen), shared_experts (DeepSeek, GLM).
  Error make_shared(const std::string& name, std::unique_ptr<FeedForward>* out) {
    if (arch().shared_ffn == 0) return {};
    const bool plural = weights_.has(name + ".shared_experts.gate_proj.weight");
    Linear share{};
    if (weights_.has(name + ".shared_expert_gate.weight"))
      if (Error error = weights_.linear(name + ".shared_expert_gate", 1, arch().d_model, &share)) return error;
    return make_mlp(name + (plural ? ".shared_experts" : ".shared_expert"), arch().shared_ffn, share, out);
  }

  Weights& weights_;
  Runtime& runtime_;
  const Vault& vault_;
  ExpertRing& ring_;
  MlpWorkspace mlp_space_;
  MoeWorkspace moe_space_;
};

}  // namespace

std::uint64_t feed_forward_buffer_bytes(const Architecture& a, const Runtime& runtime) {
  return MlpWorkspace::token_bytes(runtime, a.d_model, std::max(a.dense_ffn, a.shared_ffn)) +
         MoeWorkspace::token_bytes(runtime, a);
}

std::unique_ptr<FeedForwardFactory> make_feed_forward_factory(Weights& weights, Runtime& runtime, const Vault& vault,
                                                              ExpertRing& ring) {
  return std::make_unique<Factory>(weights, runtime, vault, ring);
}

}  // namespace smoe
