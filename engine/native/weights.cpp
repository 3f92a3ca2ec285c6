#include "weights.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace smoe {
namespace {

float element(const Tensor& tensor, std::size_t i) {
  switch (tensor.storage) {
    case Storage::f32: return static_cast<const float*>(tensor.data)[i];
    case Storage::f16: return half_to_float(static_cast<const std::uint16_t*>(tensor.data)[i]);
    default: return bfloat_to_float(static_cast<const std::uint16_t*>(tensor.data)[i]);
  }
}

// Layers past the last one are what checkpoints keep for multi-token prediction.
bool is_of_model(std::string_view name, int layers) {
  constexpr std::string_view kLayers = "model.layers.";
  if (name.starts_with("lm_head.") || name.starts_with("model.norm.")) return true;
  if (!name.starts_with(kLayers)) return false;
  name.remove_prefix(kLayers.size());
  int layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  return error != std::errc() || layer < layers;
}

}  // namespace

Error Weights::require(const std::string& name, const std::vector<std::int64_t>& shape, const Tensor** out) {
  used_.insert(name);
  return scout_.require(name, shape, out);
}

Error Weights::linear(const std::string& name, int rows, int cols, Linear* out) {
  const Tensor* tensor = nullptr;
  if (Error error = require(name + ".weight", {rows, cols}, &tensor)) return error;
  out->weight = {tensor->storage, rows, cols, tensor->data, nullptr};
  return has(name + ".bias") ? vector(name + ".bias", rows, &out->bias) : Error{};
}

Error Weights::vector(const std::string& name, int count, std::vector<float>* out) {
  const Tensor* tensor = nullptr;
  if (Error error = require(name, {count}, &tensor)) return error;
  out->resize(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out->size(); ++i) (*out)[i] = element(*tensor, i);
  return {};
}

Error Weights::refuse_unused(const SafetensorsHeader& header) const {
  for (const auto& [name, entry] : header.entries) {
    if (used_.contains(name) || !is_of_model(name, architecture_.layers)) continue;
    if (name.ends_with("rotary_emb.inv_freq")) continue;  // a table that old checkpoints carry
    return {path_ + ": tensor " + name + " is of a feature that this engine does not run (model_type " +
            architecture_.model_type + ")"};
  }
  return {};
}

}  // namespace smoe
