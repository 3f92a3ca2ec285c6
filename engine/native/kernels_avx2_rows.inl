// Integer products of the AVX2 set for few tokens: four rows at a time, streamed as memory delivers them.
// kernels_prepared.h tells the layout and the arithmetic.

__m256i load_codes(const void* p) { return _mm256_loadu_si256(as_256(p)); }

constexpr bool centred(Storage storage, Numerics numerics) {
  return storage == Storage::q8 && numerics == Numerics::i8;
}

// Plane P of 32 bytes of codes, as bytes for 8-bit activations and as words for 16-bit ones: raw, but q8 as bytes is
// centred.
template <Storage S, Numerics N, int P>
__m256i plane(__m256i codes) {
  if constexpr (centred(S, N)) return _mm256_xor_si256(codes, _mm256_set1_epi8(char(0x80)));
  constexpr int bits = 8 / planes(S), mask = (1 << bits) - 1;
  const __m256i shifted = _mm256_srli_epi16(codes, bits * P);
  return _mm256_and_si256(shifted, N == Numerics::i16 ? _mm256_set1_epi16(mask) : _mm256_set1_epi8(char(mask)));
}

// Sums of neighbouring products, in words. Codes of 4 and 2 bits are at most 15: eight such sums still fit. Centred
// codes enter as |w| <= 128 times q with w's sign: |q| <= 127 keeps one sum in range.
template <Storage S>
__m256i byte_pairs(__m256i w, __m256i q) {
  if constexpr (S == Storage::q8) return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
  else return _mm256_maddubs_epi16(w, q);
}

__m256i add_pairs(__m256i words) { return _mm256_madd_epi16(words, _mm256_set1_epi16(1)); }

// Sums over 32 bytes of codes, by lanes: in words for 8-bit activations, in dwords for 16-bit ones.
template <Storage S, Numerics N, int P = 0>
__m256i plane_sums(__m256i codes, const std::int8_t* q) {
  const __m256i w = plane<S, N, P>(codes), x = load_codes(q + P * unit_bytes);
  const __m256i sums = N == Numerics::i16 ? _mm256_madd_epi16(w, x) : byte_pairs<S>(w, x);
  if constexpr (P + 1 == code_planes(S, N)) return sums;
  else if constexpr (N == Numerics::i16) return _mm256_add_epi32(sums, plane_sums<S, N, P + 1>(codes, q));
  else return _mm256_add_epi16(sums, plane_sums<S, N, P + 1>(codes, q));
}

template <Storage S, Numerics N>
__m256i lane_sums(__m256i codes, const std::int8_t* q) {
  const __m256i sums = plane_sums<S, N>(codes, q);
  return N == Numerics::i16 ? sums : add_pairs(sums);
}

__m128i add_halves(__m256i v) { return _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)); }

// The sums over the eight lanes of each of four vectors.
__m128i sum_each(const __m256i* v) {
  return add_halves(_mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3])));
}

// Sums over the codes of n <= 4 groups from g on.
template <Storage S, Numerics N>
__m128i group_sums(const std::uint8_t* codes, int n, const std::int8_t* q, int g) {
  __m256i sums[4];
  for (int i = 0; i < 4; i++) {
    const std::uint8_t* group = codes + i * group_bytes(S);
    const std::int8_t* x = q + group_at<S, N>(g + i);
    sums[i] = i < n ? lane_sums<S, N>(load_codes(group), x) : _mm256_setzero_si256();
    if (S == Storage::q8 && i < n)
      sums[i] = _mm256_add_epi32(sums[i], lane_sums<S, N>(load_codes(group + 32), x + 32));
  }
  return sum_each(sums);
}

// Two groups of 2-bit codes share 32 bytes, one a 128-bit lane; g is a multiple of four.
template <Numerics N>
__m128i paired_group_sums(const std::uint8_t* codes, int n, const std::int8_t* q, int g) {
  __m256i sums[2];
  for (int i = 0; i < 4; i += 2) {
    const std::uint8_t* pair = codes + i * 16;
    const __m256i bytes = i + 1 < n ? load_codes(pair)
                          : i < n   ? _mm256_zextsi128_si256(_mm_loadu_si128(as_128(pair)))
                                    : _mm256_setzero_si256();
    sums[i / 2] = lane_sums<Storage::q2, N>(bytes, q + group_at<Storage::q2, N>(g + i));
  }
  const __m256i halves = _mm256_hadd_epi32(sums[0], sums[1]);
  const __m256i even_odd = _mm256_hadd_epi32(halves, halves);  // groups 0 2 0 2, then 1 3 1 3
  return _mm_unpacklo_epi32(_mm256_castsi256_si128(even_odd), _mm256_extracti128_si256(even_odd, 1));
}

template <Storage S, Numerics N>
__m128i quad_sums(const std::uint8_t* codes, int n, const PreparedRow& x, int g) {
  __m128i sums;
  if constexpr (S == Storage::q2) sums = paired_group_sums<N>(codes, n, x.codes, g);
  else sums = group_sums<S, N>(codes, n, x.codes, g);
  if constexpr (centred(S, N)) return sums;
  return _mm_add_epi32(_mm_slli_epi32(sums, code_factor(S) - 1), _mm_loadu_si128(as_128(x.offsets + g)));
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

template <Storage S, Numerics N>
Quad quad_products(const std::uint8_t* codes, int n, const PreparedRow& x, int g) {
  return _mm_mul_ps(_mm_cvtepi32_ps(quad_sums<S, N>(codes, n, x, g)), _mm_loadu_ps(x.scales + g));
}

#include "kernels_quads.inl"
