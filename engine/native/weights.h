// The scout's tensors as the model's pieces ask for them, and the refusal of everything that no piece asked for.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "embedding.h"
#include "error.h"
#include "linear.h"
#include "trunk.h"
#include "vault_reader.h"

namespace smoe {

class Weights {
 public:
  Weights(const Architecture& architecture, const Trunk& trunk) : architecture_(architecture), trunk_(trunk) {}

  const Architecture& architecture() const { return architecture_; }
  bool has(const std::string& name) const { return trunk_.has(name); }

  // `name`.weight of this shape, and `name`.bias where there is one.
  Error linear(const std::string& name, int rows, int cols, Linear* out);
  // The tensor `name` as it lies in the trunk.
  Error matrix(const std::string& name, int rows, int cols, Matrix* out);
  Error embedding(const std::string& name, int rows, int cols, Embedding* out);
  Error vector(const std::string& name, int count, std::vector<float>* out);

  // A tensor of the layers, the last norm or the head that nothing asked for belongs to a feature that this engine
  // does not have: running without it would answer wrongly.
  Error refuse_unused() const;

 private:
  Error require(const std::string& name, const std::vector<std::int64_t>& shape, Tensor* out);

  const Architecture& architecture_;
  const Trunk& trunk_;
  std::set<std::string, std::less<>> used_;
};

// One line that names the field where config.json (as text; of the scout's metadata) asks for something that the
// engine does not have, or has for other families than the vault's model_type only.
Error refuse_unknown_features(const std::string& config, const std::string& path, const std::string& model_type);

}  // namespace smoe
