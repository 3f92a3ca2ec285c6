// Any bytes as lines of the serve protocol: what is accepted keeps within the limits that the engine relies on.
#include <cmath>
#include <cstdint>
#include <string_view>

#include "numbers.h"
#include "protocol.h"

namespace {

constexpr int kVocabulary = 300;

void expect(bool holds) {
  if (!holds) __builtin_trap();
}

void check(const smoe::GenerateRequest& request) {
  expect(request.max_tokens >= 0 && request.max_tokens <= smoe::kMostNewTokens);
  expect(!request.ids.empty() && request.ids.size() <= smoe::kMostIds);
  for (const int id : request.ids) expect(id >= 0 && id < kVocabulary);
  for (const int id : request.stop) expect(id >= 0 && id < kVocabulary);
  for (const auto& [id, bias] : request.sampling.bias) expect(id >= 0 && id < kVocabulary && std::fabs(bias) <= 100);
  expect(std::isfinite(request.sampling.temperature) && request.sampling.repetition_penalty > 0);
  expect(request.sampling.top_k >= 0 && request.sampling.top_k <= smoe::kMostTopK);
  expect(request.sampling.logprobs >= 0 && request.sampling.logprobs <= smoe::kMostLogprobs);
  expect(request.prompt_logprobs >= 0 && request.prompt_logprobs <= smoe::kMostLogprobs);
  expect(!request.mask || request.id != 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  while (!text.empty()) {
    const smoe::Request request = smoe::parse_request(smoe::take_word(&text, '\n'), {2, kVocabulary, {}});
    if (request.kind == smoe::RequestKind::generate) check(request.generate);
    smoe::Mask mask;
    if (request.kind == smoe::RequestKind::mask && smoe::Mask::parse(request.mask_set, kVocabulary, &mask))
      for (int id = 0; id < kVocabulary; ++id) mask.allows(id);
    for (const char c : smoe::format_error(2, request.reason, request.detail)) expect(c == '\n' || (c >= ' ' && c <= '~'));
  }
  return 0;
}
