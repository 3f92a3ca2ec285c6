// Quantization of weights at load: symmetric codes, one f16 scale for each group of 64.
#include <algorithm>
#include <cmath>

#include "kernels.h"

namespace smoe {
namespace {

constexpr int group = 64;

struct CodeRange {
  int bits;
  float middle, divisor, top;
};

CodeRange code_range(Storage storage) {
  switch (storage) {
    case Storage::q8: return {8, 128.0f, 127.0f, 255.0f};
    case Storage::q4: return {4, 7.5f, 7.5f, 15.0f};
    default: return {2, 1.5f, 1.5f, 3.0f};
  }
}

float largest_magnitude(const float* x, int n) {
  float largest = 0.0f;
  for (int i = 0; i < n; i++) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

}  // namespace

void quantize_row(Storage storage, const float* x, int n, std::uint8_t* codes, std::uint16_t* scales) {
  const CodeRange range = code_range(storage);
  const int codes_per_byte = 8 / range.bits;
  std::fill_n(codes, (n + codes_per_byte - 1) / codes_per_byte, std::uint8_t{0});
  for (int start = 0; start < n; start += group) {
    const int count = std::min(group, n - start);
    const std::uint16_t scale = float_to_half(std::min(largest_magnitude(x + start, count), 65504.0f));
    scales[start / group] = scale;
    // The codes fit the scale as it is stored; a scale that underflowed to zero makes every weight zero.
    const float rounded_scale = half_to_float(scale);
    const float steps = rounded_scale > 0.0f ? range.divisor / rounded_scale : 0.0f;
    for (int i = start; i < start + count; i++) {
      const float code = std::clamp(std::nearbyint(x[i] * steps + range.middle), 0.0f, range.top);
      codes[i / codes_per_byte] |= std::uint8_t(int(code) << (i % codes_per_byte * range.bits));
    }
  }
}

}  // namespace smoe
