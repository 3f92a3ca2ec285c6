// v: 16 rows of 16 dwords; becomes 16 columns.
[[gnu::always_inline]] inline void transpose_dwords(__m512i* v) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // v[4 a + j], lane l: column 4 l + j of rows 4 a .. 4 a + 3.
  for (int j = 0; j < 4; j++) {
    const __m512i low01 = _mm512_shuffle_i32x4(v[j], v[4 + j], _MM_SHUFFLE(2, 0, 2, 0));
    const __m512i high01 = _mm512_shuffle_i32x4(v[j], v[4 + j], _MM_SHUFFLE(3, 1, 3, 1));
    const __m512i low23 = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], _MM_SHUFFLE(2, 0, 2, 0));
    const __m512i high23 = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], _MM_SHUFFLE(3, 1, 3, 1));
    t[j] = _mm512_shuffle_i32x4(low01, low23, _MM_SHUFFLE(2, 0, 2, 0));
    t[8 + j] = _mm512_shuffle_i32x4(low01, low23, _MM_SHUFFLE(3, 1, 3, 1));
    t[4 + j] = _mm512_shuffle_i32x4(high01, high23, _MM_SHUFFLE(2, 0, 2, 0));
    t[12 + j] = _mm512_shuffle_i32x4(high01, high23, _MM_SHUFFLE(3, 1, 3, 1));
  }
  for (int i = 0; i < 16; i++) v[i] = t[i];
}
