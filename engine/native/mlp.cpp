#include "mlp.h"

#include <algorithm>
#include <cmath>

#include "buffer.h"

namespace smoe {

void MlpWorkspace::fit(int tokens) {
  const auto count = static_cast<std::size_t>(tokens);
  for (Input* const input : {&h, &hidden}) input->fit(tokens);
  for (std::vector<float>* const inner : {&gate, &up}) reallocate(*inner, count * static_cast<std::size_t>(ffn));
  reallocate(out, count * static_cast<std::size_t>(d_model));
  reallocate(share, count);
}

std::uint64_t MlpWorkspace::token_bytes(const Runtime& runtime, int d_model, int ffn) {
  const auto floats = 2 * static_cast<std::uint64_t>(ffn) + static_cast<std::uint64_t>(d_model) + 1;
  if (ffn == 0) return floats * sizeof(float);
  return floats * sizeof(float) + Input::most_bytes(runtime, d_model) + Input::most_bytes(runtime, ffn);
}

Error Mlp::forward(int tokens, const float* h, float* x, FunctionRef<void()> meanwhile) {
  meanwhile();
  const Timed timed(&runtime_.times.experts);
  const int d_model = weights_.down.weight.rows, ffn = weights_.down.weight.cols;
  const auto stride = static_cast<std::size_t>(ffn), model_stride = static_cast<std::size_t>(d_model);
  space_.h.set(h, model_stride, tokens, d_model);
  multiply(runtime_, space_.h,
           {{&weights_.gate, space_.gate.data(), stride}, {&weights_.up, space_.up.data(), stride}});
  runtime_.kernels.silu_multiply(space_.gate.data(), space_.up.data(), tokens * ffn, space_.gate.data());
  space_.hidden.set(space_.gate.data(), stride, tokens, ffn);
  multiply(runtime_, space_.hidden, {{&weights_.down, space_.out.data(), model_stride}});
  scale_shares(tokens);
  for (int token = 0; token < tokens; ++token)
    runtime_.kernels.add_scaled(&space_.out[static_cast<std::size_t>(token) * model_stride],
                                space_.share[static_cast<std::size_t>(token)], d_model,
                                x + static_cast<std::size_t>(token) * model_stride);
  return {};
}

void Mlp::scale_shares(int tokens) {
  if (weights_.share.weight.rows == 0) {
    std::fill_n(space_.share.begin(), tokens, 1.0f);
    return;
  }
  multiply(runtime_, space_.h, {{&weights_.share, space_.share.data(), 1}});
  for (int token = 0; token < tokens; ++token) {
    float& share = space_.share[static_cast<std::size_t>(token)];
    share = 1.0f / (1.0f + std::exp(-share));
  }
}

}  // namespace smoe
