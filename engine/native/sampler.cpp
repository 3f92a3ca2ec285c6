#include "sampler.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>

namespace smoe {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

std::uint64_t splitmix64(std::uint64_t* state) {
  std::uint64_t z = *state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

std::uint64_t rotate_left(std::uint64_t x, int k) { return x << k | x >> (64 - k); }

std::uint64_t clock_seed() {
  return static_cast<std::uint64_t>(std::chrono::high_resolution_clock::now().time_since_epoch().count());
}

int best_token(const std::vector<float>& logits) {
  int best = Sampler::kNoToken;
  float most = kForbidden;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] <= most) continue;
    most = logits[i];
    best = static_cast<int>(i);
  }
  return best;
}

double log_sum_exp(const float* logits, std::size_t count) {
  const double most = *std::max_element(logits, logits + count);
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += std::exp(logits[i] - most);
  return most + std::log(sum);
}

}  // namespace

bool all_finite(const float* logits, int vocabulary) {
  constexpr std::uint32_t kExponent = 0x7f800000;  // all ones: NaN or infinite
  bool finite = true;
  for (int i = 0; i < vocabulary; ++i) finite &= (std::bit_cast<std::uint32_t>(logits[i]) & kExponent) != kExponent;
  return finite;
}

Logprobs logprobs_of(const float* logits, int vocabulary, int token, int best) {
  const auto better = [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  };
  const double norm = log_sum_exp(logits, static_cast<std::size_t>(vocabulary));
  const auto count = static_cast<std::size_t>(best);
  Logprobs out{.chosen = logits[token] - norm, .top = {}};
  for (int i = 0; i < vocabulary && best > 0; ++i) {
    const std::pair<int, double> one{i, logits[i] - norm};
    if (out.top.size() == count && !better(one, out.top.back())) continue;
    if (out.top.size() == count) out.top.pop_back();
    out.top.insert(std::upper_bound(out.top.begin(), out.top.end(), one, better), one);
  }
  return out;
}

Random::Random(std::uint64_t seed) {
  for (std::uint64_t& word : state_) word = splitmix64(&seed);
}

double Random::uniform() {
  const std::uint64_t result = rotate_left(state_[1] * 5, 7) * 9;
  const std::uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = rotate_left(state_[3], 45);
  return static_cast<double>(result >> 11) * 0x1p-53;
}

Sampler::Sampler(int vocabulary)
    : logits_(static_cast<std::size_t>(vocabulary)), recent_count_(static_cast<std::size_t>(vocabulary)) {
  candidates_.reserve(static_cast<std::size_t>(vocabulary));
}

void Sampler::begin(const SamplingOptions& options, const std::vector<int>& prompt) {
  options_ = options;
  random_ = Random(options.seeded ? options.seed : clock_seed());
  said_ = 0;
  std::fill(recent_count_.begin(), recent_count_.end(), std::uint16_t{0});
  reply_count_.clear();
  const std::size_t window = std::min<std::size_t>(prompt.size(), kPenaltyWindow);
  for (std::size_t i = prompt.size() - window; i < prompt.size(); ++i) remember(prompt[i]);
}

void Sampler::remember(int token) {
  int& place = recent_[static_cast<std::size_t>(said_ % kPenaltyWindow)];
  if (said_ >= kPenaltyWindow) --recent_count_[static_cast<std::size_t>(place)];
  place = token;
  ++recent_count_[static_cast<std::size_t>(token)];
  ++said_;
}

int Sampler::sample(const float* logits, const Mask* mask, Logprobs* logprobs) {
  std::copy_n(logits, logits_.size(), logits_.begin());
  if (!all_finite(logits, static_cast<int>(logits_.size()))) return kNotFinite;
  penalise();
  if (mask != nullptr && !mask->allows_all())
    for (std::size_t i = 0; i < logits_.size(); ++i)
      if (!mask->allows(static_cast<int>(i))) logits_[i] = kForbidden;
  const int token = options_.temperature < kGreedyTemperature ? best_token(logits_) : draw();
  if (token < 0) return token;
  if (logprobs != nullptr)
    *logprobs = logprobs_of(logits, static_cast<int>(logits_.size()), token, std::max(0, options_.logprobs - 1));
  remember(token);
  ++reply_count_[token];
  return token;
}

// Repetition: Keskar et al. 2019 (CTRL) in Hugging Face's form, once for each distinct token of the window.
// Presence and frequency: as OpenAI defines them, over the reply.
void Sampler::penalise() {
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  const int window = std::min(said_, kPenaltyWindow);
  std::vector<int> distinct(recent_.begin(), recent_.begin() + (penalty == 1 ? 0 : window));
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  for (const int token : distinct) {
    float& logit = logits_[static_cast<std::size_t>(token)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
  for (const auto& [token, count] : reply_count_)
    logits_[static_cast<std::size_t>(token)] -=
        static_cast<float>(options_.presence_penalty + options_.frequency_penalty * count);
  for (const auto& [token, bias] : options_.bias) logits_[static_cast<std::size_t>(token)] += static_cast<float>(bias);
}

int Sampler::draw() {
  limit_top_k();
  if (candidates_.empty()) return kNoToken;
  const double most = std::max_element(candidates_.begin(), candidates_.end(), [](const auto& a, const auto& b) {
                        return a.logit < b.logit;
                      })->logit;
  for (Candidate& one : candidates_) one.weight = std::exp((one.logit - most) / options_.temperature);
  limit_top_p();
  limit_min_p();
  double sum = 0;
  for (const Candidate& one : candidates_) sum += one.weight;
  double left = random_.uniform() * sum;
  for (const Candidate& one : candidates_)
    if ((left -= one.weight) < 0) return one.token;
  return candidates_.back().token;
}

// The k best as candidates, best first where k is set; equal logits by id, so that a seed tells everything.
void Sampler::limit_top_k() {
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  const auto limit = static_cast<std::size_t>(options_.top_k);
  candidates_.clear();
  for (std::size_t i = 0; i < logits_.size(); ++i) {
    const Candidate one{logits_[i], static_cast<int>(i), 0};
    if (one.logit == kForbidden) continue;
    if (limit == 0 || candidates_.size() < limit) {
      candidates_.push_back(one);
      if (candidates_.size() == limit) std::make_heap(candidates_.begin(), candidates_.end(), better);
    } else if (better(one, candidates_.front())) {
      std::pop_heap(candidates_.begin(), candidates_.end(), better);
      candidates_.back() = one;
      std::push_heap(candidates_.begin(), candidates_.end(), better);
    }
  }
  if (limit != 0 || options_.top_p < 1) std::sort(candidates_.begin(), candidates_.end(), better);
}

// The smallest set of the best whose share reaches top_p.
void Sampler::limit_top_p() {
  if (options_.top_p >= 1) return;
  double sum = 0;
  for (const Candidate& one : candidates_) sum += one.weight;
  double reached = 0;
  std::size_t kept = 0;
  while (kept < candidates_.size() && reached < options_.top_p * sum) reached += candidates_[kept++].weight;
  candidates_.resize(std::max<std::size_t>(kept, 1));
}

// Weights are relative to the best one's, which is 1.
void Sampler::limit_min_p() {
  if (options_.min_p <= 0) return;
  std::erase_if(candidates_, [this](const Candidate& one) { return one.weight < options_.min_p; });
}

}  // namespace smoe
