// The kernel set for AVX-512 with VNNI. Compiled for those instructions alone: everything here but the table has
// internal linkage, so that the linker can never give this file's copy of a function to another machine's code path.
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels_prepared.h"
#include "kernels_sets.h"

namespace smoe {
namespace {

using Vec = __m512;
constexpr int width = 16;
constexpr int row_tile = 2, token_tile = 4, attend_vectors = 4;

Vec load_f32(const float* x) { return _mm512_loadu_ps(x); }
Vec load_f16(const std::uint16_t* x) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
}
Vec load_bf16(const std::uint16_t* x) {
  const __m256i elements = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(elements), 16));
}
void store_f32(float* x, Vec v) { _mm512_storeu_ps(x, v); }
void store_f16(std::uint16_t* x, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(x), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
Vec broadcast(float v) { return _mm512_set1_ps(v); }
Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
Vec multiply(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
Vec divide(Vec a, Vec b) { return _mm512_div_ps(a, b); }
Vec maximum(Vec a, Vec b) { return _mm512_max_ps(a, b); }
Vec minimum(Vec a, Vec b) { return _mm512_min_ps(a, b); }
Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
Vec round_to_integer(Vec v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
Vec times_power_of_two(Vec v, Vec n) { return _mm512_scalef_ps(v, n); }
Vec zero_below(Vec v, Vec x, float limit) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_NLT_UQ), v);
}
float sum(Vec v) { return _mm512_reduce_add_ps(v); }
float largest(Vec v) { return _mm512_reduce_max_ps(v); }
float scale_of(std::uint16_t h) { return _cvtsh_ss(h); }
void round_to_codes(Vec v, std::int16_t* out) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(v)));
}
void round_to_codes(Vec v, std::int8_t* out) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v)));
}

// 16 codes of a group from code j on. The table look-ups use the low four bits of each lane and ignore the rest, so
// shifting each lane's code to the bottom is all the unpacking that 4- and 2-bit codes need.
template <Storage S>
Vec decode(const std::uint8_t* group, int j);

template <>
Vec decode<Storage::q8>(const std::uint8_t* group, int j) {
  const __m512i codes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(group + j)));
  return _mm512_sub_ps(_mm512_cvtepi32_ps(codes), _mm512_set1_ps(128.0f));
}

template <>
Vec decode<Storage::q4>(const std::uint8_t* group, int j) {
  const __m512 values = _mm512_setr_ps(-7.5f, -6.5f, -5.5f, -4.5f, -3.5f, -2.5f, -1.5f, -0.5f, 0.5f, 1.5f, 2.5f, 3.5f,
                                       4.5f, 5.5f, 6.5f, 7.5f);
  const __m512i dword = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  const __m512i shift = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(group + j / 2));
  const __m512i spread = _mm512_permutexvar_epi32(dword, _mm512_castsi128_si512(bytes));
  return _mm512_permutexvar_ps(_mm512_srlv_epi32(spread, shift), values);
}

template <>
Vec decode<Storage::q2>(const std::uint8_t* group, int j) {
  const __m512 values = _mm512_broadcast_f32x4(_mm_setr_ps(-1.5f, -0.5f, 0.5f, 1.5f));
  const __m512i shift = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i spread = _mm512_broadcastd_epi32(_mm_loadu_si32(group + j / 4));
  return _mm512_permutexvar_ps(_mm512_srlv_epi32(spread, shift), values);
}

#include "kernels_avx512_transpose.inl"

[[gnu::always_inline]] inline void transpose(Vec* v) {
  __m512i rows[16];
  for (int i = 0; i < 16; i++) rows[i] = _mm512_castps_si512(v[i]);
  transpose_dwords(rows);
  for (int i = 0; i < 16; i++) v[i] = _mm512_castsi512_ps(rows[i]);
}

#include "kernels_exp.inl"

#include "kernels_float.inl"

#include "kernels_attend.inl"

#include "kernels_avx512_codes.inl"

#include "kernels_avx512_rows.inl"

#include "kernels_avx512_panel.inl"

#include "kernels_avx512_panels.inl"

constexpr Order order = Order::halves;

#include "kernels_encode.inl"

#include "kernels_quantized.inl"

}  // namespace

constinit const Kernels avx512_kernels = table("avx512");

}  // namespace smoe
#endif
