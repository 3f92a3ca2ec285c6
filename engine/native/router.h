// Which experts a token goes to, from its router logits. A new kind is a new class that make_router() chooses.
#pragma once

#include <memory>
#include <vector>

#include "kernels.h"
#include "vault_reader.h"

namespace smoe {

class Router {
 public:
  virtual ~Router() = default;
  // logits: [experts], may be changed. experts, weights: [top_k], in ascending order of the experts' numbers, all
  // different, whatever the logits are.
  virtual void choose(float* logits, int* experts, float* weights) const = 0;
};

// experts: of the layer. correction: [experts], what is added to a sigmoid's scores for the choice alone; else empty.
std::unique_ptr<Router> make_router(const Architecture& architecture, const Kernels& kernels, int experts,
                                    std::vector<float> correction);

}  // namespace smoe
