#include "weights.h"

namespace smoe {

Error Weights::require(const std::string& name, const std::vector<std::int64_t>& shape, Tensor* out) {
  used_.insert(name);
  return trunk_.require(name, shape, out);
}

Error Weights::linear(const std::string& name, int rows, int cols, Linear* out) {
  if (Error error = matrix(name + ".weight", rows, cols, &out->weight)) return error;
  return has(name + ".bias") ? vector(name + ".bias", rows, &out->bias) : Error{};
}

Error Weights::matrix(const std::string& name, int rows, int cols, Matrix* out) {
  Tensor tensor;
  if (Error error = require(name, {rows, cols}, &tensor)) return error;
  *out = {tensor.storage, rows, cols, tensor.data, tensor.scales};
  return {};
}

Error Weights::embedding(const std::string& name, int rows, int cols, Embedding* out) {
  Tensor tensor;
  if (Error error = require(name + ".weight", {rows, cols}, &tensor)) return error;
  *out = tensor.data ? Embedding({tensor.storage, rows, cols, tensor.data, tensor.scales})
                     : Embedding(trunk_.file(), tensor.begin, tensor.storage, rows, cols);
  return {};
}

Error Weights::vector(const std::string& name, int count, std::vector<float>* out) {
  Tensor tensor;
  if (Error error = require(name, {count}, &tensor)) return error;
  out->resize(static_cast<std::size_t>(count));
  to_floats(tensor.storage, tensor.data, out->size(), out->data());
  return {};
}

Error Weights::refuse_unused() const {
  for (const auto& [name, entry] : trunk_.header().entries)
    if (is_of_trunk(name, architecture_.layers) && !used_.contains(name))
      return {trunk_.path() + ": tensor " + name + " is of a feature that this engine does not run (model_type " +
              architecture_.model_type + ")"};
  return {};
}

}  // namespace smoe
