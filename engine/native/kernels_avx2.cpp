// The kernel set for AVX2 with FMA and F16C. Compiled for those instructions alone: everything here but the table has
// internal linkage, so that the linker can never give this file's copy of a function to another machine's code path.
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels_prepared.h"
#include "kernels_sets.h"

namespace smoe {
namespace {

using Vec = __m256;
constexpr int width = 8;
constexpr int row_tile = 1, token_tile = 4, head_tile = 4;

const __m128i* as_128(const void* p) { return static_cast<const __m128i*>(p); }
const __m256i* as_256(const void* p) { return static_cast<const __m256i*>(p); }

Vec load_f32(const float* x) { return _mm256_loadu_ps(x); }
Vec load_f16(const std::uint16_t* x) { return _mm256_cvtph_ps(_mm_loadu_si128(as_128(x))); }
Vec load_bf16(const std::uint16_t* x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(as_128(x))), 16));
}
void store_f32(float* x, Vec v) { _mm256_storeu_ps(x, v); }
void store_f16(std::uint16_t* x, Vec v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(x), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
Vec broadcast(float v) { return _mm256_set1_ps(v); }
Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
Vec multiply(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
Vec divide(Vec a, Vec b) { return _mm256_div_ps(a, b); }
Vec maximum(Vec a, Vec b) { return _mm256_max_ps(a, b); }
Vec minimum(Vec a, Vec b) { return _mm256_min_ps(a, b); }
Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
Vec round_to_integer(Vec v) { return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
Vec times_power_of_two(Vec v, Vec n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_mul_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}
Vec zero_below(Vec v, Vec x, float limit) {
  return _mm256_and_ps(_mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_NLT_UQ), v);
}
float sum(Vec v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
float largest(Vec v) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
float scale_of(std::uint16_t h) { return _cvtsh_ss(h); }
void round_to_int8(Vec v, std::int8_t* out) {
  const __m256i dwords = _mm256_cvtps_epi32(v);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(dwords), _mm256_extracti128_si256(dwords, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out), _mm_packs_epi16(words, words));
}

Vec minus_middle(__m256i codes, float middle) { return _mm256_sub_ps(_mm256_cvtepi32_ps(codes), broadcast(middle)); }

template <Storage S>
Vec decode(const std::uint8_t* group, int j);

template <>
Vec decode<Storage::q8>(const std::uint8_t* group, int j) {
  return minus_middle(_mm256_cvtepu8_epi32(_mm_loadl_epi64(as_128(group + j))), 128.0f);
}

template <>
Vec decode<Storage::q4>(const std::uint8_t* group, int j) {
  const __m256i spread = _mm256_broadcastd_epi32(_mm_loadu_si32(group + j / 2));
  const __m256i codes = _mm256_srlv_epi32(spread, _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
  return minus_middle(_mm256_and_si256(codes, _mm256_set1_epi32(15)), 7.5f);
}

template <>
Vec decode<Storage::q2>(const std::uint8_t* group, int j) {
  const __m256i spread = _mm256_set1_epi32(group[j / 4] | group[j / 4 + 1] << 8);
  const __m256i codes = _mm256_srlv_epi32(spread, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
  return minus_middle(_mm256_and_si256(codes, _mm256_set1_epi32(3)), 1.5f);
}

#include "kernels_exp.inl"

#include "kernels_float.inl"

#include "kernels_attend.inl"

// ---- integer products ----

__m256i load_codes(const void* p) { return _mm256_loadu_si256(as_256(p)); }

// Pairs of products of unsigned and signed bytes, in 16 bits: codes <= 30 and |q| <= 127 keep sums of four in range.
template <int Shift>
__m256i plane_pairs(__m256i bytes, __m256i mask, const std::int8_t* q) {
  const __m256i shifted = Shift < 0 ? _mm256_add_epi8(bytes, bytes) : _mm256_srli_epi16(bytes, Shift < 0 ? 0 : Shift);
  return _mm256_maddubs_epi16(_mm256_and_si256(shifted, mask), load_codes(q));
}

__m256i add_pairs(__m256i words) { return _mm256_madd_epi16(words, _mm256_set1_epi16(1)); }

// Signed codes as |w| times q with w's sign: |w| <= 128 and |q| <= 127, so that two products fit 16 bits.
__m256i q8_half(const std::uint8_t* codes, const std::int8_t* q) {
  const __m256i w = _mm256_xor_si256(load_codes(codes), _mm256_set1_epi8(char(0x80)));
  return add_pairs(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(load_codes(q), w)));
}

__m256i q4_group(const std::uint8_t* codes, const std::int8_t* q) {
  const __m256i bytes = load_codes(codes), mask = _mm256_set1_epi8(0x1e);
  return add_pairs(
      _mm256_add_epi16(plane_pairs<-1>(bytes, mask, q), plane_pairs<3>(bytes, mask, q + unit_bytes)));
}

// Two groups, one a 128-bit lane.
__m256i q2_groups(__m256i bytes, const std::int8_t* q) {
  const __m256i mask = _mm256_set1_epi8(0x06);
  const __m256i low = _mm256_add_epi16(plane_pairs<-1>(bytes, mask, q), plane_pairs<1>(bytes, mask, q + unit_bytes));
  const __m256i high = _mm256_add_epi16(plane_pairs<3>(bytes, mask, q + 2 * unit_bytes),
                                        plane_pairs<5>(bytes, mask, q + 3 * unit_bytes));
  return add_pairs(_mm256_add_epi16(low, high));
}

__m128i add_halves(__m256i v) { return _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)); }

// The sums over the eight lanes of each of four vectors.
__m128i sum_each(const __m256i* v) {
  return add_halves(_mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3])));
}

template <Storage S>
__m128i quad_sums(const std::uint8_t* codes, int n, const PreparedRow& x, int g);

template <>
__m128i quad_sums<Storage::q8>(const std::uint8_t* codes, int n, const PreparedRow& x, int g) {
  __m256i sums[4];
  for (int i = 0; i < 4; i++) {
    const std::int8_t* q = x.codes + std::size_t(g + i) * 64;
    sums[i] = i < n ? _mm256_add_epi32(q8_half(codes + i * 64, q), q8_half(codes + i * 64 + 32, q + 32))
                    : _mm256_setzero_si256();
  }
  return sum_each(sums);
}

template <>
__m128i quad_sums<Storage::q4>(const std::uint8_t* codes, int n, const PreparedRow& x, int g) {
  __m256i sums[4];
  for (int i = 0; i < 4; i++) {
    const std::int8_t* q = x.codes + std::size_t(g / 2 + i / 2) * 128 + i % 2 * 32;
    sums[i] = i < n ? q4_group(codes + i * 32, q) : _mm256_setzero_si256();
  }
  return _mm_add_epi32(sum_each(sums), _mm_loadu_si128(as_128(x.offsets + g)));
}

template <>
__m128i quad_sums<Storage::q2>(const std::uint8_t* codes, int n, const PreparedRow& x, int g) {
  __m256i bytes[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  for (int i = 0; i < n; i += 2)
    bytes[i / 2] = i + 1 < n ? load_codes(codes + i * 16)
                             : _mm256_zextsi128_si256(_mm_loadu_si128(as_128(codes + i * 16)));
  const std::int8_t* q = x.codes + std::size_t(g / 4) * 256;
  const __m256i halves = _mm256_hadd_epi32(q2_groups(bytes[0], q), q2_groups(bytes[1], q + 32));
  const __m256i even_odd = _mm256_hadd_epi32(halves, halves);  // groups 0 2 0 2, then 1 3 1 3
  const __m128i in_order =
      _mm_unpacklo_epi32(_mm256_castsi256_si128(even_odd), _mm256_extracti128_si256(even_odd, 1));
  return _mm_add_epi32(in_order, _mm_loadu_si128(as_128(x.offsets + g)));
}

using Quad = __m128;
Quad quad_zero() { return _mm_setzero_ps(); }
Quad quad_fma(Quad a, Quad b, Quad c) { return _mm_fmadd_ps(a, b, c); }
void quad_store(float* x, Quad v) { _mm_storeu_ps(x, v); }
void transpose_quads(Quad* v) { _MM_TRANSPOSE4_PS(v[0], v[1], v[2], v[3]); }

Quad quad_scales(const std::uint16_t* scales, int n) {
  if (n == 4) return _mm_cvtph_ps(_mm_loadl_epi64(as_128(scales)));
  std::uint16_t padded[4] = {};
  for (int i = 0; i < n; i++) padded[i] = scales[i];
  return _mm_cvtph_ps(_mm_loadl_epi64(as_128(padded)));
}

template <Storage S>
Quad quad_products(const std::uint8_t* codes, int n, const PreparedRow& x, int g) {
  return _mm_mul_ps(_mm_cvtepi32_ps(quad_sums<S>(codes, n, x, g)), _mm_loadu_ps(x.scales + g));
}

#include "kernels_quads.inl"

#include "kernels_fast.inl"

}  // namespace

constinit const Kernels avx2_kernels = table("avx2");

}  // namespace smoe
#endif
