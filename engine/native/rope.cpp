#include "rope.h"

#include <cmath>

#include "buffer.h"

namespace smoe {

Rope::Rope(double theta, int dim) : half_(static_cast<std::size_t>(dim) / 2), frequencies_(half_) {
  for (std::size_t i = 0; i < half_; ++i) frequencies_[i] = std::pow(theta, -2.0 * static_cast<double>(i) / dim);
}

void Rope::fit(int tokens) {
  for (std::vector<float>* const turns : {&cos_, &sin_}) reallocate(*turns, half_ * static_cast<std::size_t>(tokens));
}

void Rope::set_positions(int first, int tokens) {
  for (std::size_t token = 0; token < static_cast<std::size_t>(tokens); ++token) {
    for (std::size_t i = 0; i < half_; ++i) {
      const double angle = (static_cast<double>(first) + static_cast<double>(token)) * frequencies_[i];
      cos_[token * half_ + i] = static_cast<float>(std::cos(angle));
      sin_[token * half_ + i] = static_cast<float>(std::sin(angle));
    }
  }
}

void Rope::rotate(int token, float* head) const {
  const float* const cos = &cos_[static_cast<std::size_t>(token) * half_];
  const float* const sin = &sin_[static_cast<std::size_t>(token) * half_];
  for (std::size_t i = 0; i < half_; ++i) {
    const float a = head[i], b = head[i + half_];
    head[i] = a * cos[i] - b * sin[i];
    head[i + half_] = b * cos[i] + a * sin[i];
  }
}

}  // namespace smoe
