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
constexpr int row_tile = 1, token_tile = 4, attend_vectors = 2;

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
[[gnu::always_inline]] inline void transpose(Vec* v) {
  Vec pairs[8], quads[8];  // of rows, side by side in each 128-bit lane
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; j++) {
      quads[i + 2 * j] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], _MM_SHUFFLE(1, 0, 1, 0));
      quads[i + 2 * j + 1] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], _MM_SHUFFLE(3, 2, 3, 2));
    }
  for (int i = 0; i < 4; i++) {
    v[i] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
    v[i + 4] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
  }
}
float scale_of(std::uint16_t h) { return _cvtsh_ss(h); }
__m128i round_to_words(Vec v) {
  const __m256i dwords = _mm256_cvtps_epi32(v);
  return _mm_packs_epi32(_mm256_castsi256_si128(dwords), _mm256_extracti128_si256(dwords, 1));
}
void round_to_codes(Vec v, std::int16_t* out) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), round_to_words(v));
}
void round_to_codes(Vec v, std::int8_t* out) {
  const __m128i words = round_to_words(v);
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

#include "kernels_avx2_rows.inl"

#include "kernels_avx2_panels.inl"

constexpr Order order = Order::words;

#include "kernels_encode.inl"

#include "kernels_quantized.inl"

}  // namespace

constinit const Kernels avx2_kernels = table("avx2");

}  // namespace smoe
#endif
