#include "rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "buffer.h"

namespace smoe {
namespace {

// The element, as a fraction, whose frequency makes so many turns over the original positions.
double element_of_turns(double turns, double theta, int dim, const Yarn& yarn) {
  return dim * std::log(yarn.original / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

void stretch_frequencies(double theta, int dim, const Yarn& yarn, std::vector<double>& frequencies) {
  double low = element_of_turns(yarn.beta_fast, theta, dim, yarn), high = element_of_turns(yarn.beta_slow, theta, dim, yarn);
  if (yarn.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  const double width = low == high ? 0.001 : high - low;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / width, 0.0, 1.0);
    frequencies[i] = frequencies[i] / yarn.factor * stretched + frequencies[i] * (1 - stretched);
  }
}

}  // namespace

std::vector<double> rope_frequencies(double theta, int dim, const std::optional<Yarn>& yarn) {
  std::vector<double> frequencies(static_cast<std::size_t>(dim) / 2);
  for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / dim);
  if (yarn) stretch_frequencies(theta, dim, *yarn, frequencies);
  return frequencies;
}

Rope::Rope(double theta, int dim, const std::optional<Yarn>& yarn, RopePairs pairs)
    : half_(static_cast<std::size_t>(dim) / 2),
      step_(pairs == RopePairs::halves ? 1 : 2),
      apart_(pairs == RopePairs::halves ? half_ : 1),
      frequencies_(rope_frequencies(theta, dim, yarn)),
      stretch_(yarn ? yarn->attention_factor : 1.0) {}

void Rope::fit(int tokens) {
  for (std::vector<float>* const turns : {&cos_, &sin_}) reallocate(*turns, half_ * static_cast<std::size_t>(tokens));
}

void Rope::set_positions(int first, int tokens) {
  for (std::size_t token = 0; token < static_cast<std::size_t>(tokens); ++token) {
    for (std::size_t i = 0; i < half_; ++i) {
      const double angle = (static_cast<double>(first) + static_cast<double>(token)) * frequencies_[i];
      cos_[token * half_ + i] = static_cast<float>(stretch_ * std::cos(angle));
      sin_[token * half_ + i] = static_cast<float>(stretch_ * std::sin(angle));
    }
  }
}

void Rope::rotate(int token, float* head) const {
  const float* const cos = &cos_[static_cast<std::size_t>(token) * half_];
  const float* const sin = &sin_[static_cast<std::size_t>(token) * half_];
  for (std::size_t i = 0; i < half_; ++i) {
    float& first = head[i * step_];
    float& second = head[i * step_ + apart_];
    const float a = first, b = second;
    first = a * cos[i] - b * sin[i];
    second = b * cos[i] + a * sin[i];
  }
}

}  // namespace smoe
