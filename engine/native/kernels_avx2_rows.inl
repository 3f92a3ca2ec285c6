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
  if constexpr (N == Numerics::i16 && bits * (P + 1) == 16) return shifted;  // no other code is left in the word
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

// A value that is in a register here. GCC else moves sums about: it makes many products before it adds the first, keeps
// them on the stack, and reads again what it had.
[[gnu::always_inline]] inline __m256i in_register(__m256i v) {
  asm("" : "+x"(v));
  return v;
}

// Sums over 32 bytes of codes from plane P on, added to what the planes before gave: in words for 8-bit activations, in
// dwords for 16-bit ones.
template <Storage S, Numerics N, int P = 0>
[[gnu::always_inline]] inline __m256i plane_sums(__m256i codes, const std::int8_t* q, __m256i before = _mm256_setzero_si256()) {
  const __m256i w = plane<S, N, P>(codes), x = load_codes(q + P * unit_bytes);
  __m256i sums = N == Numerics::i16 ? _mm256_madd_epi16(w, x) : byte_pairs<S>(w, x);
  if constexpr (P > 0) sums = in_register(N == Numerics::i16 ? _mm256_add_epi32(before, sums) : _mm256_add_epi16(before, sums));
  if constexpr (P + 1 < code_planes(S, N)) return plane_sums<S, N, P + 1>(codes, q, sums);
  else return sums;
}

template <Storage S, Numerics N>
[[gnu::always_inline]] inline __m256i lane_sums(__m256i codes, const std::int8_t* q) {
  const __m256i sums = plane_sums<S, N>(codes, q);
  return N == Numerics::i16 ? sums : add_pairs(sums);
}

constexpr int row_tile_count = 4;  // rows whose sums fill a 128-bit lane
constexpr int row_groups_together = 4;

// Each row's eight sums added up: the first lane has those of the first four vectors' low halves, the second of their high ones.
[[gnu::always_inline]] inline __m256i add_lanes(const __m256i* v) {
  return _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
}

// The sums over raw or centred codes of group g (first lane) and g + 1 (second) of four rows, whose codes of group g begin at
// rows[i] + at. `both`: whether there is a group g + 1; nothing of it is read otherwise.
template <Storage S, Numerics N>
[[gnu::always_inline]] inline __m256i pair_sums(const std::uint8_t* const* rows, std::size_t at, bool both, const std::int8_t* codes,
                                                int g) {
  __m256i v[2][row_tile_count];
  if constexpr (S == Storage::q2) {
    for (int i = 0; i < row_tile_count; i++) {
      const __m256i pair = both ? load_codes(rows[i] + at) : _mm256_zextsi128_si256(_mm_loadu_si128(as_128(rows[i] + at)));
      v[0][i] = lane_sums<S, N>(pair, codes + group_at<S, N>(g));
    }
    return add_lanes(v[0]);
  }
  for (int k = 0; k < 2; k++) {
    const std::int8_t* const q = codes + group_at<S, N>(g + (both ? k : 0));
    for (int i = 0; i < row_tile_count; i++) {
      const std::uint8_t* const group = rows[i] + at + (both ? k : 0) * group_bytes(S);
      v[k][i] = lane_sums<S, N>(load_codes(group), q);
      if constexpr (S == Storage::q8) v[k][i] = _mm256_add_epi32(v[k][i], lane_sums<S, N>(load_codes(group + 32), q + 32));
    }
  }
  const __m256i first = add_lanes(v[0]), second = add_lanes(v[1]);
  return _mm256_add_epi32(_mm256_permute2x128_si256(first, second, 0x20), _mm256_permute2x128_si256(first, second, 0x31));
}

// x[0] in the first lane, x[1] in the second.
[[gnu::always_inline]] inline __m256 spread_pair(const float* x) {
  const __m256 pair = _mm256_castpd_ps(_mm256_broadcast_sd(reinterpret_cast<const double*>(x)));
  return _mm256_permutevar_ps(pair, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
}

// float(D) * (a / d) of groups g and g + 1 of four rows.
template <Storage S, Numerics N>
[[gnu::always_inline]] inline __m256 pair_products(const std::uint8_t* const* rows, std::size_t at, bool both, const PreparedRow& x,
                                                   int g) {
  __m256i sums = pair_sums<S, N>(rows, at, both, x.codes, g);
  if constexpr (!centred(S, N)) {
    const __m256 offsets = spread_pair(reinterpret_cast<const float*>(x.offsets + g));
    sums = _mm256_add_epi32(_mm256_slli_epi32(sums, code_factor(S) - 1), _mm256_castps_si256(offsets));
  }
  return _mm256_mul_ps(_mm256_cvtepi32_ps(sums), spread_pair(x.scales + g));
}

// Scales of n <= 4 groups: out[i] has those of group 2 i of four rows in its first lane, of 2 i + 1 in its second.
[[gnu::always_inline]] inline void spread_scales(const std::uint16_t* const* rows, int g, int n, __m256* out) {
  __m128i v[row_tile_count];
  for (int i = 0; i < row_tile_count; i++) {
    std::uint16_t some[row_groups_together] = {};
    if (n < row_groups_together)
      for (int k = 0; k < n; k++) some[k] = rows[i][g + k];
    v[i] = _mm_loadl_epi64(as_128(n < row_groups_together ? some : rows[i] + g));
  }
  const __m128i a = _mm_unpacklo_epi16(v[0], v[1]), b = _mm_unpacklo_epi16(v[2], v[3]);
  out[0] = _mm256_cvtph_ps(_mm_unpacklo_epi32(a, b));
  out[1] = _mm256_cvtph_ps(_mm_unpackhi_epi32(a, b));
}

// Four rows of a matrix; where fewer exist, the last stands for the others.
template <Storage S>
struct RowTile {
  const std::uint8_t* codes[row_tile_count];
  const std::uint16_t* scales[row_tile_count];

  RowTile(const Matrix& w, int row, int rows, int groups) {
    for (int i = 0; i < row_tile_count; i++) {
      const std::size_t first = std::size_t(row + (i < rows ? i : rows - 1)) * groups;
      codes[i] = static_cast<const std::uint8_t*>(w.data) + first * group_bytes(S);
      scales[i] = w.scales + first;
    }
  }
};

// While the tile's codes from byte `at` of each row on are used, asks for as many bytes of what follows, in the order in
// which they lie: far enough ahead that the next tile's last row, too, is there in time. A Zen 3 read 8-bit codes at 25
// GB/s so, at 21 when each row's were asked for some way ahead of their use, and at 15 by itself.
template <Storage S>
[[gnu::always_inline]] inline void prefetch_next(const RowTile<S>& tile, std::size_t at) {
  constexpr std::size_t early = 2048;
  const std::size_t row_bytes = tile.codes[1] - tile.codes[0];
  const std::uint8_t* const ahead = tile.codes[0] + row_tile_count * at + (row_tile_count - 1) * row_bytes + early;
  for (int byte = 0; byte < row_tile_count * 2 * group_bytes(S); byte += 64) __builtin_prefetch(ahead + byte, 0, 2);
}

// The rows' sums with n <= 4 groups added, from group g on, one group after the other.
template <Storage S, Numerics N>
[[gnu::always_inline]] inline __m128 add_row_groups(const RowTile<S>& tile, int g, int n, const PreparedRow& x, __m128 total) {
  __m256 scales[row_groups_together / 2];
  spread_scales(tile.scales, g, n, scales);
  for (int i = 0; i < n; i += 2) {
    const std::size_t at = std::size_t(g + i) * group_bytes(S);
    prefetch_next<S>(tile, at);
    const __m256 products = pair_products<S, N>(tile.codes, at, i + 1 < n, x, g + i);
    total = _mm_fmadd_ps(_mm256_castps256_ps128(products), _mm256_castps256_ps128(scales[i / 2]), total);
    if (i + 1 < n) total = _mm_fmadd_ps(_mm256_extractf128_ps(products, 1), _mm256_extractf128_ps(scales[i / 2], 1), total);
  }
  return total;
}

template <Storage S, Numerics N>
void rows_of_four(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  const PreparedLayout layout = prepared_layout(S, N, w.cols);
  for (int r = row0; r < row1; r += row_tile_count) {
    const int rows = row1 - r < row_tile_count ? row1 - r : row_tile_count;
    const RowTile<S> tile(w, r, rows, layout.groups);
    for (int t = 0; t < x.tokens; t++) {
      const PreparedRow token = prepared_row(x.prepared, layout, t);
      __m128 total = _mm_setzero_ps();
      int g = 0;
      for (; g + row_groups_together <= layout.groups; g += row_groups_together)
        total = add_row_groups<S, N>(tile, g, row_groups_together, token, total);
      if (g < layout.groups) total = add_row_groups<S, N>(tile, g, layout.groups - g, token, total);
      float sums[row_tile_count];
      _mm_storeu_ps(sums, total);
      for (int i = 0; i < rows; i++) y[t * ldy + r + i] = sums[i];
    }
  }
}
