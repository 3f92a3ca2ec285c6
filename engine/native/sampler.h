// From logits to the next token. The order of the steps (Hugging Face's): repetition, presence and frequency penalty,
// logit bias, mask, then greedy below kGreedyTemperature, else temperature, top_k, top_p, min_p and the draw.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mask.h"

namespace smoe {

inline constexpr double kGreedyTemperature = 1e-4;
inline constexpr int kPenaltyWindow = 256;  // tokens of prompt and reply that the repetition penalty looks at
inline constexpr int kMostTopK = 1024;
inline constexpr int kMostLogprobs = 21;

struct SamplingOptions {
  double temperature = 0.6, top_p = 0.95, min_p = 0;
  int top_k = 50;  // 0: off
  double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  bool seeded = false;
  std::uint64_t seed = 0;
  std::vector<std::pair<int, double>> bias;
  int logprobs = 0;  // 0: none; 1: of the chosen token; 1 + n: and of the n best
};

// Natural logarithms of the model's own distribution: temperature 1, before penalties, bias and mask.
struct Logprobs {
  double chosen = 0;
  std::vector<std::pair<int, double>> top;  // best first; equal ones by id
};

bool all_finite(const float* logits, int vocabulary);

// Of a token after these logits, and of the `best` tokens.
Logprobs logprobs_of(const float* logits, int vocabulary, int token, int best);

// xoshiro256** 1.0 (Blackman and Vigna, https://prng.di.unimi.it/), seeded by splitmix64.
class Random {
 public:
  explicit Random(std::uint64_t seed);
  double uniform();  // [0, 1), 53 bits

 private:
  std::array<std::uint64_t, 4> state_;
};

class Sampler {
 public:
  static constexpr int kNoToken = -1;    // nothing is allowed
  static constexpr int kNotFinite = -2;  // the logits hold a NaN or an infinity

  explicit Sampler(int vocabulary);

  // A new generation after these prompt ids.
  void begin(const SamplingOptions& options, const std::vector<int>& prompt);
  // The next token, which then counts as said; or one of the two above. mask and logprobs may be null.
  int sample(const float* logits, const Mask* mask, Logprobs* logprobs);

 private:
  struct Candidate {
    float logit;
    int token;
    double weight;  // of the draw: not normalised
  };

  void remember(int token);
  void penalise();
  int draw();
  void limit_top_k();
  void limit_top_p();
  void limit_min_p();

  SamplingOptions options_;
  Random random_{0};
  std::vector<float> logits_;           // [vocabulary], changed by the penalties
  std::vector<Candidate> candidates_;   // [at most vocabulary]
  std::array<int, kPenaltyWindow> recent_{};
  int said_ = 0;                        // tokens of prompt and reply so far
  std::vector<std::uint16_t> recent_count_;  // [vocabulary] of recent_
  std::unordered_map<int, int> reply_count_;
};

}  // namespace smoe
