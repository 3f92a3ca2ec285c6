#include "router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

namespace smoe {
namespace {

// The top k by `score(expert)`, the lower number where two are equal, in ascending order of their numbers. NaN never
// compares greater: the first free expert stays.
template <class Score>
void choose_top(int experts, int top_k, const Score& score, int* chosen) {
  for (int k = 0; k < top_k; ++k) {
    int best = -1;
    for (int i = 0; i < experts; ++i) {
      if (std::find(chosen, chosen + k, i) != chosen + k) continue;
      if (best < 0 || score(i) > score(best)) best = i;
    }
    chosen[k] = best;
  }
  std::sort(chosen, chosen + top_k);
}

// Leaves the experts of the best groups their scores; those of the others get one that any other is above.
template <class Quality>
void leave_best_groups(ExpertGroups groups, const Quality& quality, std::span<float> scores) {
  if (groups.kept >= groups.count) return;
  const std::size_t size = scores.size() / static_cast<std::size_t>(groups.count);
  const auto group = [&](int i) { return scores.subspan(static_cast<std::size_t>(i) * size, size); };
  std::vector<float> qualities(static_cast<std::size_t>(groups.count));
  for (int i = 0; i < groups.count; ++i) qualities[static_cast<std::size_t>(i)] = quality(group(i));
  std::vector<int> kept(static_cast<std::size_t>(groups.kept));
  choose_top(groups.count, groups.kept, [&](int i) { return qualities[static_cast<std::size_t>(i)]; }, kept.data());
  for (int i = 0; i < groups.count; ++i)
    if (!std::binary_search(kept.begin(), kept.end(), i))
      std::ranges::fill(group(i), -std::numeric_limits<float>::infinity());
}

// Softmax over all experts, the top k of it, renormalised or not. A group is as good as its best expert (DeepSeek-V2,
// https://arxiv.org/abs/2405.04434).
class SoftmaxRouter : public Router {
 public:
  SoftmaxRouter(const Kernels& kernels, int experts, const Architecture& a)
      : kernels_(kernels),
        experts_(experts),
        top_k_(a.top_k),
        renormalize_(a.renormalize_top_k),
        scale_(a.routed_scale),
        groups_(a.groups) {}

  void choose(float* logits, int* experts, float* weights) const override {
    kernels_.softmax(logits, experts_);
    const auto best = [](std::span<const float> scores) { return *std::max_element(scores.begin(), scores.end()); };
    leave_best_groups(groups_, best, {logits, static_cast<std::size_t>(experts_)});
    choose_top(experts_, top_k_, [&](int i) { return logits[i]; }, experts);
    for (int k = 0; k < top_k_; ++k) weights[k] = logits[experts[k]];
    const float sum = renormalize_ ? std::accumulate(weights, weights + top_k_, 0.0f) : 1.0f;
    for (int k = 0; k < top_k_; ++k) weights[k] = weights[k] / sum * scale_;
  }

 private:
  const Kernels& kernels_;
  int experts_, top_k_;
  bool renormalize_;
  float scale_;
  ExpertGroups groups_;
};

// The two largest of a group's scores, added up: how good the group is.
float best_two(std::span<const float> scores) {
  float best = -std::numeric_limits<float>::infinity(), second = best;
  for (const float score : scores) {
    if (score > best) second = std::exchange(best, score);
    else if (score > second) second = score;
  }
  return best + second;
}

// A sigmoid for each expert by itself. A learned correction, which kept the experts evenly used in training, is added for
// the choice alone: the weights are the chosen ones' own scores (DeepSeek-V3, https://arxiv.org/abs/2412.19437).
class SigmoidRouter : public Router {
 public:
  SigmoidRouter(std::vector<float> correction, const Architecture& a)
      : correction_(std::move(correction)),
        top_k_(a.top_k),
        renormalize_(a.renormalize_top_k),
        scale_(a.routed_scale),
        groups_(a.groups) {}

  void choose(float* logits, int* experts, float* weights) const override {
    const int count = static_cast<int>(correction_.size());
    for (int i = 0; i < count; ++i) logits[i] = 1.0f / (1.0f + std::exp(-logits[i]));
    std::vector<float> scores(correction_);
    for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = logits[i] + scores[i];
    leave_best_groups(groups_, best_two, scores);
    choose_top(count, top_k_, [&](int i) { return scores[static_cast<std::size_t>(i)]; }, experts);
    for (int k = 0; k < top_k_; ++k) weights[k] = logits[experts[k]];
    const float sum = renormalize_ ? std::accumulate(weights, weights + top_k_, 0.0f) + kLeastSum : 1.0f;
    for (int k = 0; k < top_k_; ++k) weights[k] = weights[k] / sum * scale_;
  }

 private:
  static constexpr float kLeastSum = 1e-20f;  // where every chosen score is zero

  std::vector<float> correction_;  // [experts]
  int top_k_;
  bool renormalize_;
  float scale_;
  ExpertGroups groups_;
};

// The top k of the logits, and a softmax over these alone.
class ChosenSoftmaxRouter : public Router {
 public:
  ChosenSoftmaxRouter(const Kernels& kernels, int experts, int top_k) : kernels_(kernels), experts_(experts), top_k_(top_k) {}

  void choose(float* logits, int* experts, float* weights) const override {
    choose_top(experts_, top_k_, [&](int i) { return logits[i]; }, experts);
    for (int k = 0; k < top_k_; ++k) weights[k] = logits[experts[k]];
    kernels_.softmax(weights, top_k_);
  }

 private:
  const Kernels& kernels_;
  int experts_, top_k_;
};

}  // namespace

std::unique_ptr<Router> make_router(const Architecture& architecture, const Kernels& kernels, int experts,
                                    std::vector<float> correction) {
  if (architecture.scoring == Scoring::sigmoid)
    return std::make_unique<SigmoidRouter>(std::move(correction), architecture);
  if (architecture.scoring == Scoring::softmax_of_chosen)
    return std::make_unique<ChosenSoftmaxRouter>(kernels, experts, architecture.top_k);
  return std::make_unique<SoftmaxRouter>(kernels, experts, architecture);
}

}  // namespace smoe
