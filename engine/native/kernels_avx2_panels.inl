// Integer products of the AVX2 set for many tokens: panel_rows transposes 16 rows at a time into the order that lets one
// instruction serve 8 rows, with the codes spread out as the activations want them, and uses that for all tokens.
//
// A step multiplies one dword of activations (four 8-bit codes or two 16-bit ones) with what each of 16 rows has for it.

constexpr int panel_rows_count = 16;
constexpr int panel_groups = 8;       // groups of a row at a time: 8 or 16 KiB of steps, half of a first-level cache
constexpr int most_panel_tokens = 4;  // the sums of 4 tokens fill 8 of the 16 registers
constexpr int fewest_panel_tokens = 3;

constexpr int group_steps(Numerics numerics) { return numerics == Numerics::i16 ? 32 : 16; }

template <Numerics N>
struct Panel {
  alignas(32) __m256i steps[panel_groups][group_steps(N)][2];
  alignas(32) float scales[panel_groups][panel_rows_count];
};

// v: 8 rows of 8 dwords; becomes 8 columns.
void transpose_dwords(__m256i* v) {
  __m256i t[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    v[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // v[4 a + j], lane l: column 4 l + j of rows 4 a .. 4 a + 3.
  for (int j = 0; j < 4; j++) {
    t[j] = _mm256_permute2x128_si256(v[j], v[4 + j], 0x20);
    t[4 + j] = _mm256_permute2x128_si256(v[j], v[4 + j], 0x31);
  }
  for (int i = 0; i < 8; i++) v[i] = t[i];
}

// 32 bytes of a row's codes, of which `bytes` exist; zeros after them.
__m256i load_rest(const std::uint8_t* codes, int bytes) {
  return bytes >= 32 ? load_codes(codes) : _mm256_zextsi128_si256(_mm_loadu_si128(as_128(codes)));
}

// Column d of 32 bytes of codes that begin at group g, one half (8 rows) of the panel.
template <Storage S, Numerics N, int P = 0>
void store_column(__m256i column, int g, int dword, int half, Panel<N>& panel) {
  constexpr int dwords = group_bytes(S) / 4;  // of a group in one row
  panel.steps[g + dword / dwords][P * dwords + dword % dwords][half] = plane<S, N, P>(column);
  if constexpr (P + 1 < code_planes(S, N)) store_column<S, N, P + 1>(column, g, dword, half, panel);
}

// Fills the panel with `groups` groups of 16 rows; `rows` of them exist, the others repeat the last.
template <Storage S, Numerics N>
void fill_panel(const std::uint8_t* codes, const std::uint16_t* scales, int rows, int groups, int row_groups,
                Panel<N>& panel) {
  const std::size_t row_bytes = std::size_t(row_groups) * group_bytes(S);
  const int bytes = groups * group_bytes(S);
  for (int at = 0; at < bytes; at += 32)
    for (int half = 0; half < 2; half++) {
      __m256i v[8];
      for (int i = 0; i < 8; i++) {
        const int row = half * 8 + i < rows ? half * 8 + i : rows - 1;
        v[i] = load_rest(codes + row * row_bytes + at, bytes - at);
      }
      transpose_dwords(v);
      for (int d = 0; d < 8; d++)
        store_column<S, N>(v[d], at / group_bytes(S), at % group_bytes(S) / 4 + d, half, panel);
    }
  for (int row = 0; row < panel_rows_count; row++)
    for (int g = 0; g < groups; g++)
      panel.scales[g][row] = scale_of(scales[std::size_t(row < rows ? row : rows - 1) * row_groups + g]);
}

// T tokens' prepared activations for the groups of a panel. Tokens are `stride` bytes apart.
struct PanelActivations {
  const char* codes;
  const char* scales;
  const char* offsets;
  std::size_t stride;

  __m256i spread_dword(const char* first, int t, std::size_t at) const {
    int dword;
    __builtin_memcpy(&dword, first + t * stride + at, sizeof dword);
    return _mm256_set1_epi32(dword);
  }
};

// How many sums of neighbouring byte products are added in words before they are widened.
constexpr int narrow_steps(Storage storage) { return storage == Storage::q8 ? 1 : 8; }

// Adds the products of one plane of a group, `dwords` steps, to sums[token][half of the rows]. Called, it would
// pass sums by memory.
template <Storage S, Numerics N, int T>
[[gnu::always_inline]] inline void add_plane(__m256i (*sums)[2], const __m256i (*steps)[2], const PanelActivations& x,
                                             const char* codes) {
  constexpr int dwords = group_bytes(S) / 4;
  constexpr int together = N == Numerics::i16 ? 1 : narrow_steps(S) < dwords ? narrow_steps(S) : dwords;
  for (int d = 0; d < dwords; d += together) {
    __m256i words[T][2];  // 8 bits: sums that still fit
    for (int t = 0; t < T; t++) words[t][0] = words[t][1] = _mm256_setzero_si256();
    for (int i = 0; i < together; i++)
      for (int t = 0; t < T; t++) {
        const __m256i q = x.spread_dword(codes, t, (d + i) * 4);
        for (int half = 0; half < 2; half++) {
          const __m256i w = steps[d + i][half];
          if constexpr (N == Numerics::i16) sums[t][half] = _mm256_add_epi32(sums[t][half], _mm256_madd_epi16(w, q));
          else words[t][half] = _mm256_add_epi16(words[t][half], byte_pairs<S>(w, q));
        }
      }
    if constexpr (N == Numerics::i8)
      for (int t = 0; t < T; t++)
        for (int half = 0; half < 2; half++)
          sums[t][half] = _mm256_add_epi32(sums[t][half], add_pairs(words[t][half]));
  }
}

// Adds the panel's products to y for T tokens and 16 rows, or stores them there.
template <Storage S, Numerics N, int T>
void panel_tile(const Panel<N>& panel, int groups, const PanelActivations& x, bool add, const __m256i* rows, float* y,
                std::size_t ldy) {
  __m256 total[T][2];
  for (int t = 0; t < T; t++)
    for (int half = 0; half < 2; half++)
      total[t][half] = add ? _mm256_maskload_ps(y + t * ldy + half * 8, rows[half]) : _mm256_setzero_ps();
  for (int g = 0; g < groups; g++) {
    __m256i sums[T][2];
    for (int t = 0; t < T; t++) sums[t][0] = sums[t][1] = _mm256_setzero_si256();
    for (int p = 0; p < code_planes(S, N); p++)
      add_plane<S, N, T>(sums, panel.steps[g] + p * (group_bytes(S) / 4), x,
                         x.codes + group_at<S, N>(g) + p * unit_bytes);
    for (int t = 0; t < T; t++) {
      const __m256 step = _mm256_castsi256_ps(x.spread_dword(x.scales, t, g * 4));
      const __m256i offset = centred(S, N) ? _mm256_setzero_si256() : x.spread_dword(x.offsets, t, g * 4);
      for (int half = 0; half < 2; half++) {
        const __m256i product = _mm256_add_epi32(_mm256_slli_epi32(sums[t][half], code_factor(S) - 1), offset);
        total[t][half] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(product), step),
                                         _mm256_load_ps(panel.scales[g] + half * 8), total[t][half]);
      }
    }
  }
  for (int t = 0; t < T; t++)
    for (int half = 0; half < 2; half++)
      _mm256_maskstore_ps(y + t * ldy + half * 8, rows[half], total[t][half]);
}

template <Storage S, Numerics N, int T = most_panel_tokens>
void panel_tokens(int tokens, const Panel<N>& panel, int groups, const PanelActivations& x, bool add,
                  const __m256i* rows, float* y, std::size_t ldy) {
  if constexpr (T > 1)
    if (tokens < T) return panel_tokens<S, N, T - 1>(tokens, panel, groups, x, add, rows, y, ldy);
  panel_tile<S, N, T>(panel, groups, x, add, rows, y, ldy);
}

__m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

template <Storage S, Numerics N>
void panel_rows(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  const PreparedLayout layout = prepared_layout(S, N, w.cols);
  const auto* codes = static_cast<const std::uint8_t*>(w.data);
  const auto* prepared = static_cast<const char*>(x.prepared);
  Panel<N> panel;
  for (int r = row0; r < row1; r += panel_rows_count) {
    const int rows = row1 - r < panel_rows_count ? row1 - r : panel_rows_count;
    const __m256i masks[2] = {first_lanes(rows), first_lanes(rows - 8)};
    for (int g = 0; g < layout.groups; g += panel_groups) {
      const int groups = layout.groups - g < panel_groups ? layout.groups - g : panel_groups;
      const std::size_t first_group = std::size_t(r) * layout.groups + g;
      fill_panel<S, N>(codes + first_group * group_bytes(S), w.scales + first_group, rows, groups, layout.groups,
                       panel);
      for (int t = 0; t < x.tokens; t += most_panel_tokens) {
        const char* token = prepared + t * layout.bytes;
        const PanelActivations part{token + group_at<S, N>(g), token + layout.scales_at + g * sizeof(float),
                                    token + layout.offsets_at + g * sizeof(std::int32_t), layout.bytes};
        panel_tokens<S, N>(x.tokens - t, panel, groups, part, g > 0, masks, y + t * ldy + r, ldy);
      }
    }
  }
}

template <Storage S, Numerics N>
void integer_rows(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  if (x.tokens < fewest_panel_tokens) rows_of_four<S, N>(w, row0, row1, x, y, ldy);
  else panel_rows<S, N>(w, row0, row1, x, y, ldy);
}
