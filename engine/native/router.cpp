#include "router.h"

#include <algorithm>
#include <numeric>

namespace smoe {
namespace {

// Softmax over all experts, the top k of it (the lower number where two are equal), renormalised or not.
class SoftmaxRouter : public Router {
 public:
  SoftmaxRouter(const Kernels& kernels, int experts, int top_k, bool renormalize)
      : kernels_(kernels), experts_(experts), top_k_(top_k), renormalize_(renormalize) {}

  void choose(float* logits, int* experts, float* weights) const override {
    kernels_.softmax(logits, experts_);
    for (int k = 0; k < top_k_; ++k) experts[k] = best(logits, experts, k);
    std::sort(experts, experts + top_k_);
    for (int k = 0; k < top_k_; ++k) weights[k] = logits[experts[k]];
    if (!renormalize_) return;
    const float sum = std::accumulate(weights, weights + top_k_, 0.0f);
    for (int k = 0; k < top_k_; ++k) weights[k] /= sum;
  }

 private:
  // NaN never compares greater: the first free expert stays.
  int best(const float* shares, const int* taken, int count) const {
    int found = -1;
    for (int i = 0; i < experts_; ++i) {
      if (std::find(taken, taken + count, i) != taken + count) continue;
      if (found < 0 || shares[i] > shares[found]) found = i;
    }
    return found;
  }

  const Kernels& kernels_;
  int experts_, top_k_;
  bool renormalize_;
};

}  // namespace

std::unique_ptr<Router> make_router(const Architecture& architecture, const Kernels& kernels, int experts) {
  return std::make_unique<SoftmaxRouter>(kernels, experts, architecture.top_k, architecture.renormalize_top_k);
}

}  // namespace smoe
