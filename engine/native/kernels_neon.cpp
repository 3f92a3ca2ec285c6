// The kernel set for 64-bit ARM with dot products (ARMv8.2: Apple silicon, Graviton 2 and later, Raspberry Pi 5).
// Compiled for those instructions alone: everything here but the table has internal linkage (see kernels_avx2.cpp).
#if defined(__aarch64__)
#include <arm_neon.h>

#include "kernels_prepared.h"
#include "kernels_sets.h"

namespace smoe {
namespace {

using Vec = float32x4_t;
constexpr int width = 4;
constexpr int row_tile = 2, token_tile = 4, attend_vectors = 4;

Vec load_f32(const float* x) { return vld1q_f32(x); }
Vec load_f16(const std::uint16_t* x) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x))); }
Vec load_bf16(const std::uint16_t* x) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(x), 16)); }
void store_f32(float* x, Vec v) { vst1q_f32(x, v); }
void store_f16(std::uint16_t* x, Vec v) { vst1_u16(x, vreinterpret_u16_f16(vcvt_f16_f32(v))); }
Vec broadcast(float v) { return vdupq_n_f32(v); }
Vec add(Vec a, Vec b) { return vaddq_f32(a, b); }
Vec multiply(Vec a, Vec b) { return vmulq_f32(a, b); }
Vec divide(Vec a, Vec b) { return vdivq_f32(a, b); }
Vec maximum(Vec a, Vec b) { return vmaxq_f32(a, b); }
Vec minimum(Vec a, Vec b) { return vminq_f32(a, b); }
Vec fma(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }
Vec round_to_integer(Vec v) { return vrndnq_f32(v); }
Vec times_power_of_two(Vec v, Vec n) {
  const int32x4_t exponent = vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127));
  return vmulq_f32(v, vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23)));
}
Vec zero_below(Vec v, Vec x, float limit) {
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(v), vcltq_f32(x, vdupq_n_f32(limit))));
}
float sum(Vec v) { return vaddvq_f32(v); }
float largest(Vec v) { return vmaxvq_f32(v); }
void transpose(Vec* v) {
  const float32x4x2_t ab = vtrnq_f32(v[0], v[1]), cd = vtrnq_f32(v[2], v[3]);
  v[0] = vcombine_f32(vget_low_f32(ab.val[0]), vget_low_f32(cd.val[0]));
  v[1] = vcombine_f32(vget_low_f32(ab.val[1]), vget_low_f32(cd.val[1]));
  v[2] = vcombine_f32(vget_high_f32(ab.val[0]), vget_high_f32(cd.val[0]));
  v[3] = vcombine_f32(vget_high_f32(ab.val[1]), vget_high_f32(cd.val[1]));
}

float scale_of(std::uint16_t h) { return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0); }
int16x4_t round_to_words(Vec v) { return vqmovn_s32(vcvtnq_s32_f32(v)); }
void round_to_codes(Vec v, std::int16_t* out) { vst1_s16(out, round_to_words(v)); }
void round_to_codes(Vec v, std::int8_t* out) {
  const int16x4_t words = round_to_words(v);
  std::int8_t bytes[8];
  vst1_s8(bytes, vqmovn_s16(vcombine_s16(words, words)));
  for (int i = 0; i < width; i++) out[i] = bytes[i];
}

// Four codes that lie side by side in the low bits of a word, minus the middle one.
Vec spread_codes(std::uint32_t codes, int bits, float middle) {
  const std::int32_t shifts[4] = {0, -bits, -2 * bits, -3 * bits};
  const uint32x4_t lanes = vshlq_u32(vdupq_n_u32(codes), vld1q_s32(shifts));
  return vsubq_f32(vcvtq_f32_u32(vandq_u32(lanes, vdupq_n_u32((1u << bits) - 1))), vdupq_n_f32(middle));
}

template <Storage S>
Vec decode(const std::uint8_t* group, int j);

template <>
Vec decode<Storage::q8>(const std::uint8_t* group, int j) {
  std::uint32_t codes;
  __builtin_memcpy(&codes, group + j, 4);
  return spread_codes(codes, 8, 128.0f);
}

template <>
Vec decode<Storage::q4>(const std::uint8_t* group, int j) {
  return spread_codes(group[j / 2] | unsigned(group[j / 2 + 1]) << 8, 4, 7.5f);
}

template <>
Vec decode<Storage::q2>(const std::uint8_t* group, int j) {
  return spread_codes(group[j / 4], 2, 1.5f);
}

#include "kernels_exp.inl"

#include "kernels_float.inl"

#include "kernels_attend.inl"

// ---- integer products ----

// Plane P of 16 bytes of codes, times code_factor. q8's are centred at once: as they are, they do not fit a signed byte.
template <Storage S, int P>
int8x16_t plane(uint8x16_t bytes) {
  if constexpr (S == Storage::q8) return vreinterpretq_s8_u8(veorq_u8(bytes, vdupq_n_u8(0x80)));
  constexpr int shift = 8 / planes(S) * P - 1;
  const uint8x16_t mask = vdupq_n_u8(S == Storage::q4 ? 0x1e : 0x06);
  if constexpr (shift < 0) return vreinterpretq_s8_u8(vandq_u8(vshlq_n_u8(bytes, 1), mask));
  else return vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(bytes, shift), mask));
}

template <Storage S, int P = 0>
int32x4_t add_planes(int32x4_t total, uint8x16_t bytes, const std::int8_t* q) {
  total = vdotq_s32(total, plane<S, P>(bytes), vld1q_s8(q + P * unit_bytes));
  if constexpr (P + 1 < planes(S)) return add_planes<S, P + 1>(total, bytes, q);
  else return total;
}

template <Storage S, Numerics N>
int32x4_t group_product(const std::uint8_t* codes, const std::int8_t* q) {
  int32x4_t total = vdupq_n_s32(0);
  for (int b = 0; b < group_bytes(S); b += 16) total = add_planes<S>(total, vld1q_u8(codes + b), q + b);
  if constexpr (N == Numerics::i16) {
    total = vshlq_n_s32(total, 8);  // of the high halves
    q += planes(S) * unit_bytes;
    for (int b = 0; b < group_bytes(S); b += 16) total = add_planes<S>(total, vld1q_u8(codes + b), q + b);
  }
  return total;
}

using Quad = float32x4_t;
Quad quad_zero() { return vdupq_n_f32(0.0f); }
Quad quad_fma(Quad a, Quad b, Quad c) { return vfmaq_f32(c, a, b); }
void quad_store(float* x, Quad v) { vst1q_f32(x, v); }

void transpose_quads(Quad* v) { transpose(v); }

Quad quad_scales(const std::uint16_t* scales, int n) {
  return n == 4 ? load_f16(scales) : load_first<load_f16>(scales, n);
}

template <Storage S, Numerics N>
Quad quad_products(const std::uint8_t* codes, int n, const PreparedRow& x, int g) {
  int32x4_t sums[4];
  for (int i = 0; i < 4; i++)
    sums[i] = i < n ? group_product<S, N>(codes + i * group_bytes(S), x.codes + group_at<S, N>(g + i)) : vdupq_n_s32(0);
  int32x4_t products = vpaddq_s32(vpaddq_s32(sums[0], sums[1]), vpaddq_s32(sums[2], sums[3]));
  if constexpr (S != Storage::q8) products = vaddq_s32(products, vld1q_s32(x.offsets + g));
  return vmulq_f32(vcvtq_f32_s32(products), vld1q_f32(x.scales + g));
}

#include "kernels_quads.inl"

#include "kernels_neon_panels.inl"

constexpr Order order = Order::halves;

#include "kernels_encode.inl"

#include "kernels_quantized.inl"

}  // namespace

constinit const Kernels neon_kernels = table("neon");

}  // namespace smoe
#endif
