// The routers' choices and weights, against their definitions.
#include <cmath>
#include <limits>

#include "check.h"
#include "router.h"

using namespace smoe;

namespace {

struct Choice {
  std::vector<int> experts;
  std::vector<float> weights;
};

Choice choose(const Architecture& architecture, std::vector<float> logits, std::vector<float> correction = {}) {
  const int experts = static_cast<int>(logits.size());
  const auto router = make_router(architecture, *select_kernels("scalar"), experts, std::move(correction));
  const auto top_k = static_cast<std::size_t>(architecture.top_k);
  Choice choice{std::vector<int>(top_k), std::vector<float>(top_k)};
  router->choose(logits.data(), choice.experts.data(), choice.weights.data());
  return choice;
}

Architecture sigmoid(int top_k, bool renormalize, float scale) {
  Architecture a{};
  a.scoring = Scoring::sigmoid;
  a.top_k = top_k;
  a.renormalize_top_k = renormalize;
  a.routed_scale = scale;
  return a;
}

float score(float logit) { return 1.0f / (1.0f + std::exp(-logit)); }

}  // namespace

TEST(a_softmax_router_takes_the_largest_and_the_lower_of_equals) {
  Architecture a{};
  a.top_k = 2;
  a.renormalize_top_k = true;
  const Choice choice = choose(a, {0.0f, 3.0f, 1.0f, 3.0f, 3.0f});
  CHECK(choice.experts == (std::vector<int>{1, 3}));
  CHECK_EQ(choice.weights[0], 0.5f);
}

TEST(a_correction_changes_the_choice_and_not_the_weights) {
  const std::vector<float> logits = {2.0f, 0.0f, -1.0f, 1.0f}, correction = {-0.5f, 0.3f, 0.4f, 0.0f};
  const Choice choice = choose(sigmoid(2, false, 1.0f), logits, correction);
  CHECK(choice.experts == (std::vector<int>{1, 3}));
  CHECK_EQ(choice.weights[0], score(0.0f));
  CHECK_EQ(choice.weights[1], score(1.0f));
}

TEST(a_sigmoid_router_renormalises_before_it_scales) {
  const Choice choice = choose(sigmoid(2, true, 2.5f), {2.0f, 0.0f, -9.0f}, {0.0f, 0.0f, 0.0f});
  CHECK(choice.experts == (std::vector<int>{0, 1}));
  const float sum = score(2.0f) + score(0.0f);
  CHECK(std::abs(choice.weights[0] - score(2.0f) / sum * 2.5f) < 1e-6f);
  CHECK(std::abs(choice.weights[0] + choice.weights[1] - 2.5f) < 1e-6f);
}

TEST(only_experts_of_the_best_groups_are_chosen) {
  Architecture a = sigmoid(2, false, 1.0f);
  a.groups = {.count = 3, .kept = 2};
  // By their two best: 0.5 + 0.5, the sum of 3 and 0 less corrections, 1 + 1.
  const std::vector<float> logits = {0.0f, -9.0f, 0.0f, 3.0f, 0.0f, -8.0f, 1.0f, 1.0f, -7.0f};
  const std::vector<float> correction = {0, 0, 0, -0.7f, -0.1f, 0, 0, 0, 0};
  const Choice choice = choose(a, logits, correction);
  CHECK(choice.experts == (std::vector<int>{6, 7}));
  a.top_k = 3;
  CHECK(choose(a, logits, correction).experts == (std::vector<int>{0, 6, 7}));
  a.top_k = 5;
  CHECK(choose(a, logits, correction).experts == (std::vector<int>{0, 2, 6, 7, 8}));  // though 3 and 4 score more than 8
  a.groups.kept = 3;
  CHECK(choose(a, logits, correction).experts == (std::vector<int>{0, 2, 4, 6, 7}));
}

TEST(one_outstanding_expert_does_not_make_its_group_the_best) {
  Architecture a = sigmoid(1, true, 2.0f);
  a.groups = {.count = 2, .kept = 1};
  const Choice choice = choose(a, {9.0f, -9.0f, 0.5f, 0.25f}, std::vector<float>(4));
  CHECK(choice.experts == (std::vector<int>{2}));
  CHECK_EQ(choice.weights[0], 2.0f);
}

TEST(a_softmax_of_the_chosen_sees_no_other_logit) {
  Architecture a{};
  a.scoring = Scoring::softmax_of_chosen;
  a.top_k = 2;
  const Choice choice = choose(a, {1.0f, -500.0f, 3.0f, 3.0f, 0.5f});
  CHECK(choice.experts == (std::vector<int>{2, 3}));
  CHECK(choice.weights == (std::vector<float>{0.5f, 0.5f}));
  const Choice far = choose(a, {-900.0f, -1000.0f, -2000.0f, -1001.0f});
  CHECK(far.experts == (std::vector<int>{0, 1}));
  CHECK_EQ(far.weights[0], 1.0f);
  CHECK(far.weights[1] < 1e-40f);
  const Choice near = choose(a, {1.0f, 0.0f, 0.25f});
  CHECK(near.experts == (std::vector<int>{0, 2}));
  CHECK(std::abs(near.weights[0] - score(0.75f)) < 1e-6f);
}

TEST(whatever_the_logits_are_the_experts_differ_and_ascend) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();
  for (const bool corrected : {false, true}) {
    const Architecture a = corrected ? sigmoid(3, true, 1.0f) : [] { Architecture b{}; b.top_k = 3; return b; }();
    const Choice lost = choose(a, {nan, nan, nan, nan}, corrected ? std::vector<float>(4, nan) : std::vector<float>{});
    CHECK(lost.experts == (std::vector<int>{0, 1, 2}));
  }
  Architecture grouped = sigmoid(3, true, 1.0f);
  grouped.groups = {.count = 4, .kept = 2};
  CHECK(choose(grouped, std::vector<float>(8, nan), std::vector<float>(8)).experts == (std::vector<int>{0, 1, 2}));
  const std::vector<float> some = {nan, nan, nan, nan, 1.0f, 1.0f, nan, 0.0f};
  CHECK(choose(grouped, some, std::vector<float>(8)).experts == (std::vector<int>{0, 1, 4}));
  Architecture chosen{};
  chosen.scoring = Scoring::softmax_of_chosen;
  chosen.top_k = 3;
  CHECK(choose(chosen, {nan, nan, nan, nan}).experts == (std::vector<int>{0, 1, 2}));
  const Choice none = choose(sigmoid(2, true, 1.0f), {-infinite, -infinite, -infinite}, {0.0f, 1.0f, 2.0f});
  CHECK(none.experts == (std::vector<int>{1, 2}));
  CHECK(none.weights == (std::vector<float>{0.0f, 0.0f}));
}

TEST(of_a_softmax_the_group_of_the_best_expert_is_the_best) {
  Architecture a{};
  a.top_k = 2;
  a.routed_scale = 16.0f;
  a.groups = {.count = 3, .kept = 1};
  const std::vector<float> logits = {1.0f, 1.0f, 2.0f, -5.0f, 0.0f, 0.0f};
  const Choice choice = choose(a, logits);
  CHECK(choice.experts == (std::vector<int>{2, 3}));
  float sum = 0.0f;
  for (const float logit : logits) sum += std::exp(logit);
  CHECK_NEAR(choice.weights[0], 16 * std::exp(2.0f) / sum, 1e-5);  // of all, not of the chosen ones
  a.groups.kept = 3;
  CHECK(choose(a, logits).experts == (std::vector<int>{0, 2}));
}
