// The kernel set for any machine, one lane at a time: also what the vector sets are compared with.
#include <cmath>

#include "kernels_prepared.h"
#include "kernels_sets.h"

namespace smoe {
namespace {

using Vec = float;
constexpr int width = 1;
constexpr int row_tile = 1, token_tile = 4, attend_vectors = 4;

Vec load_f32(const float* x) { return *x; }
Vec load_f16(const std::uint16_t* x) { return half_to_float(*x); }
Vec load_bf16(const std::uint16_t* x) { return bfloat_to_float(*x); }
void store_f32(float* x, Vec v) { *x = v; }
void store_f16(std::uint16_t* x, Vec v) { *x = float_to_half(v); }
Vec broadcast(float v) { return v; }
Vec add(Vec a, Vec b) { return a + b; }
Vec multiply(Vec a, Vec b) { return a * b; }
Vec divide(Vec a, Vec b) { return a / b; }
Vec maximum(Vec a, Vec b) { return a > b ? a : b; }
Vec minimum(Vec a, Vec b) { return a < b ? a : b; }
// Rounded twice: without the instruction, std::fma is a call that takes longer than the rest of the kernel.
Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
float sum(Vec v) { return v; }
float largest(Vec v) { return v; }
Vec exponential(Vec v) { return std::exp(v); }
void transpose(Vec*) {}
float scale_of(std::uint16_t h) { return half_to_float(h); }
template <class Code>
void round_to_codes(Vec v, Code* out) {
  constexpr int most = sizeof(Code) == 1 ? 127 : 32767;
  *out = Code(std::fmin(std::fmax(std::nearbyint(v), -most), most));
}

template <Storage S>
int code(const std::uint8_t* group, int j) {
  constexpr int bits = 8 / planes(S);
  return group[j / planes(S)] >> (j % planes(S) * bits) & ((1 << bits) - 1);
}

template <Storage S>
Vec decode(const std::uint8_t* group, int j) {
  return float(code<S>(group, j)) - (S == Storage::q8 ? 128.0f : S == Storage::q4 ? 7.5f : 1.5f);
}

#include "kernels_float.inl"

#include "kernels_attend.inl"

// D of kernels_prepared.h. `q` points at what the group's first byte multiplies in the first plane.
template <Storage S>
std::int32_t raw_product(const std::uint8_t* group, const std::int8_t* q) {
  std::int32_t total = 0;
  for (int b = 0; b < group_bytes(S); b++)
    for (int p = 0; p < planes(S); p++) total += code<S>(group, b * planes(S) + p) * q[p * unit_bytes + b];
  return total;
}

template <Storage S, Numerics N>
std::int32_t group_product(const std::uint8_t* group, const std::int8_t* q, std::int32_t offset) {
  std::int32_t raw = raw_product<S>(group, q);
  if constexpr (N == Numerics::i16) raw = 256 * raw + raw_product<S>(group, q + planes(S) * unit_bytes);
  return raw * code_factor(S) + offset;
}

template <Storage S, Numerics N>
float integer_row(const std::uint8_t* codes, const std::uint16_t* scales, int groups, const PreparedRow& x) {
  float total = 0.0f;
  for (int g = 0; g < groups; g++) {
    const std::int32_t product =
        group_product<S, N>(codes + g * group_bytes(S), x.codes + group_at<S, N>(g), x.offsets[g]);
    total = std::fma(float(product) * x.scales[g], half_to_float(scales[g]), total);
  }
  return total;
}

template <Storage S, Numerics N>
void integer_rows(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  const PreparedLayout layout = prepared_layout(S, N, w.cols);
  const auto* codes = static_cast<const std::uint8_t*>(w.data);
  for (int r = row0; r < row1; r++)
    for (int t = 0; t < x.tokens; t++)
      y[t * ldy + r] = integer_row<S, N>(codes + std::size_t(r) * layout.groups * group_bytes(S),
                                         w.scales + std::size_t(r) * layout.groups, layout.groups,
                                         prepared_row(x.prepared, layout, t));
}

constexpr Order order = Order::halves;

#include "kernels_encode.inl"

#include "kernels_quantized.inl"

}  // namespace

constinit const Kernels scalar_kernels = table("scalar");

}  // namespace smoe
