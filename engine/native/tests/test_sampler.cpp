#include "sampler.h"

#include "check.h"

using namespace smoe;

namespace {

constexpr int kVocabulary = 6;

std::vector<float> logits() { return {1.0f, 3.0f, 2.0f, 3.0f, -1.0f, 0.0f}; }

SamplingOptions greedy() {
  SamplingOptions options;
  options.temperature = 0;
  return options;
}

int first(const SamplingOptions& options, const std::vector<int>& prompt = {}, const Mask* mask = nullptr) {
  Sampler sampler(kVocabulary);
  sampler.begin(options, prompt);
  return sampler.sample(logits().data(), mask, nullptr);
}

// Shares of many draws from the same logits, each draw a generation of its own.
std::vector<double> shares(SamplingOptions options, int draws = 20000) {
  std::vector<double> out(kVocabulary);
  options.seeded = true;
  for (int i = 0; i < draws; ++i) {
    options.seed = static_cast<std::uint64_t>(i);
    out[static_cast<std::size_t>(first(options))] += 1.0 / draws;
  }
  return out;
}

SamplingOptions plain() {
  SamplingOptions options;
  options.temperature = 1;
  options.top_p = 1;
  options.top_k = 0;
  return options;
}

// softmax of logits() over the given tokens
std::vector<double> expected(const std::vector<int>& tokens, double temperature = 1) {
  std::vector<double> out(kVocabulary);
  double sum = 0;
  for (const int token : tokens) sum += std::exp(logits()[static_cast<std::size_t>(token)] / temperature);
  for (const int token : tokens)
    out[static_cast<std::size_t>(token)] = std::exp(logits()[static_cast<std::size_t>(token)] / temperature) / sum;
  return out;
}

void check_shares(const SamplingOptions& options, const std::vector<double>& wanted) {
  const std::vector<double> got = shares(options);
  for (std::size_t i = 0; i < got.size(); ++i) CHECK_NEAR(got[i], wanted[i], 0.015);  // 4 sigma of 20,000 draws
}

Mask mask_of(const char* text) {
  Mask mask;
  CHECK(Mask::parse(text, kVocabulary, &mask));
  return mask;
}

}  // namespace

TEST(greedy_takes_the_lowest_of_equal_ids) { CHECK_EQ(first(greedy()), 1); }

TEST(greedy_begins_below_1e_4) {
  SamplingOptions options = plain();
  options.temperature = 0.99e-4;
  for (options.seed = 0; options.seed < 50; ++options.seed) {
    options.seeded = true;
    CHECK_EQ(first(options), 1);
  }
}

TEST(repetition_penalty_divides_positive_and_multiplies_negative_logits) {
  SamplingOptions options = greedy();
  options.repetition_penalty = 2;
  CHECK_EQ(first(options, {1}), 3);
  CHECK_EQ(first(options, {1, 3}), 2);
  CHECK_EQ(first(options, {1, 1, 1, 3}), 2);     // once for each distinct token: 1.5, not 0.375
  CHECK_EQ(first(options, {0, 1, 2, 3, 5}), 1);  // all halved: the order stays
  options.repetition_penalty = 0.5;              // a reward
  CHECK_EQ(first(options, {3}), 3);
  Sampler sampler(2);
  const float negative[] = {-1.0f, -1.5f};
  options.repetition_penalty = 2;
  sampler.begin(options, {0});
  CHECK_EQ(sampler.sample(negative, nullptr, nullptr), 1);
}

TEST(repetition_penalty_looks_at_the_last_256_tokens) {
  SamplingOptions options = greedy();
  options.repetition_penalty = 2;
  std::vector<int> prompt(256, 5);
  prompt[0] = 1;
  CHECK_EQ(first(options, prompt), 3);
  prompt.push_back(5);
  CHECK_EQ(first(options, prompt), 1);
}

TEST(presence_and_frequency_look_at_the_reply_alone) {
  SamplingOptions options = greedy();
  options.presence_penalty = 0.5;
  options.frequency_penalty = 0.3;
  Sampler sampler(kVocabulary);
  sampler.begin(options, {1, 1, 1});
  // Token 1 and 3: 3.0, then 2.2, 1.9, 1.6 as they are said; token 2: 2.0, then 1.2.
  for (const int token : {1, 3, 1, 3, 2, 1, 3}) CHECK_EQ(sampler.sample(logits().data(), nullptr, nullptr), token);
}

TEST(bias_moves_a_token) {
  SamplingOptions options = greedy();
  options.bias = {{4, 100.0}};
  CHECK_EQ(first(options), 4);
  options.bias = {{1, -100.0}};
  CHECK_EQ(first(options), 3);
}

TEST(temperature_scales_the_distribution) {
  check_shares(plain(), expected({0, 1, 2, 3, 4, 5}));
  SamplingOptions hot = plain();
  hot.temperature = 2;
  check_shares(hot, expected({0, 1, 2, 3, 4, 5}, 2));
}

TEST(top_k_keeps_the_k_best) {
  SamplingOptions options = plain();
  options.top_k = 3;
  check_shares(options, expected({1, 2, 3}));
  options.top_k = 1;
  CHECK_EQ(first(options), 1);
  options.top_k = 1024;
  check_shares(options, expected({0, 1, 2, 3, 4, 5}));
}

TEST(top_p_keeps_the_smallest_set_that_reaches_it) {
  SamplingOptions options = plain();
  options.top_p = 0.7;  // 1 and 3 have 0.386 each
  check_shares(options, expected({1, 3}));
  options.top_p = 0.8;
  check_shares(options, expected({1, 2, 3}));
  options.top_p = 0.01;
  CHECK_EQ(first(options), 1);
}

TEST(top_p_counts_shares_after_top_k) {
  SamplingOptions options = plain();
  options.top_k = 3;     // 0.422, 0.422, 0.155
  options.top_p = 0.84;  // of all it would need the third
  check_shares(options, expected({1, 3}));
}

TEST(min_p_is_relative_to_the_best) {
  SamplingOptions options = plain();
  options.min_p = 0.3;  // e^-1 = 0.37 stays, e^-2 = 0.14 goes
  check_shares(options, expected({1, 2, 3}));
}

TEST(a_seed_tells_everything) {
  SamplingOptions options = plain();
  options.seeded = true;
  std::vector<int> runs[2];
  for (auto& run : runs) {
    Sampler sampler(kVocabulary);
    options.seed = 7;
    sampler.begin(options, {2});
    for (int i = 0; i < 50; ++i) run.push_back(sampler.sample(logits().data(), nullptr, nullptr));
  }
  CHECK(runs[0] == runs[1]);
}

TEST(xoshiro_gives_its_authors_numbers) {
  // xoshiro256** after splitmix64 from seed 0, as the authors' C programs print them.
  Random random(0);
  CHECK_EQ(random.uniform(), static_cast<double>(0x99ec5f36cb75f2b4ull >> 11) * 0x1p-53);
  CHECK_EQ(random.uniform(), static_cast<double>(0xbf6e1f784956452aull >> 11) * 0x1p-53);
}

TEST(masks_forbid) {
  const Mask only = mask_of("only:2;4"), none = mask_of("none"), but = mask_of("not:1");
  CHECK_EQ(first(greedy(), {}, &only), 2);
  CHECK_EQ(first(greedy(), {}, &but), 3);
  CHECK_EQ(first(greedy(), {}, &none), Sampler::kNoToken);
  CHECK_EQ(first(plain(), {}, &none), Sampler::kNoToken);
  const Mask one = mask_of("only:4");
  CHECK_EQ(first(plain(), {}, &one), 4);
}

TEST(logits_that_are_no_numbers_are_told) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> broken = logits();
    broken[2] = bad;
    for (const SamplingOptions& options : {greedy(), plain()}) {
      Sampler sampler(kVocabulary);
      sampler.begin(options, {});
      CHECK_EQ(sampler.sample(broken.data(), nullptr, nullptr), Sampler::kNotFinite);
    }
  }
}

TEST(logprobs_are_of_the_raw_distribution) {
  SamplingOptions options = greedy();
  options.temperature = 0;
  options.logprobs = 4;
  options.bias = {{0, 50.0}};
  Sampler sampler(kVocabulary);
  sampler.begin(options, {});
  Logprobs got;
  const Mask mask = mask_of("only:0;4");
  CHECK_EQ(sampler.sample(logits().data(), &mask, &got), 0);
  const std::vector<double> p = expected({0, 1, 2, 3, 4, 5});
  CHECK_NEAR(got.chosen, std::log(p[0]), 1e-6);
  CHECK_EQ(got.top.size(), std::size_t{3});
  for (std::size_t i = 0; i < got.top.size(); ++i) {
    CHECK_EQ(got.top[i].first, (std::vector<int>{1, 3, 2})[i]);
    CHECK_NEAR(got.top[i].second, std::log(p[static_cast<std::size_t>(got.top[i].first)]), 1e-6);
  }
}
