// Weights of 2 to 8 bits as the AVX-512 and AMX products load them: codes a unit at a time, scales as floats.

// Plane P of 64 bytes of codes, times code_factor.
template <Storage S, int P>
__m512i plane(__m512i bytes) {
  if constexpr (S == Storage::q8) return bytes;
  constexpr int shift = 8 / planes(S) * P - 1;
  const __m512i mask = _mm512_set1_epi8(S == Storage::q4 ? 0x1e : 0x06);
  if constexpr (shift < 0) return _mm512_and_si512(_mm512_add_epi8(bytes, bytes), mask);
  else return _mm512_and_si512(_mm512_srli_epi16(bytes, shift), mask);
}

// The same, not doubled: an instruction less for the first plane.
template <Storage S, int P>
__m512i raw_plane(__m512i bytes) {
  if constexpr (S == Storage::q8) return bytes;
  const __m512i mask = _mm512_set1_epi8(S == Storage::q4 ? 0x0f : 0x03);
  if constexpr (P == 0) return _mm512_and_si512(bytes, mask);
  else return _mm512_and_si512(_mm512_srli_epi16(bytes, 8 / planes(S) * P), mask);
}

__m512i load_codes(const void* p) { return _mm512_loadu_si512(p); }

// Up to 64 bytes of a row's codes; zeros after its end.
__m512i load_rest(const std::uint8_t* codes, int bytes) {
  if (bytes >= unit_bytes) return load_codes(codes);
  const __mmask64 within = bytes <= 0 ? 0 : ~__mmask64{0} >> (unit_bytes - bytes);
  return _mm512_maskz_loadu_epi8(within, codes);
}

__m512 load_scales(const std::uint16_t* scales, int n) {
  const __mmask16 within = n >= 16 ? 0xffff : (1u << n) - 1;
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(within, scales));
}
