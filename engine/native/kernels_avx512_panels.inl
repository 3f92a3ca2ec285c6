// Integer products of the AVX-512 set for many tokens: panel_rows transposes 32 rows at a time into the order that lets
// one instruction serve 16 rows, and uses that for all tokens.

constexpr int most_panel_tokens = 6;  // products and totals of 6 tokens fill 24 of the 32 registers
constexpr int fewest_panel_tokens = 3;

// T tokens from `first` on, addressed as every third one's pointer plus 0, 1 or 2 strides: a pointer for each would
// not fit the general registers.
template <int T>
struct TokenPointers {
  const char* third[(T + 2) / 3];
  std::size_t stride;

  TokenPointers(const char* first, std::size_t stride) : stride(stride) {
    for (int i = 0; i < (T + 2) / 3; i++) third[i] = first + i * 3 * stride;
  }
  __m512i spread_dword(int t, std::size_t at) const {
    int dword;
    __builtin_memcpy(&dword, third[t / 3] + t % 3 * stride + at, sizeof dword);
    return _mm512_set1_epi32(dword);
  }
};

// Adds the products of a group's codes with the activations from `codes` on. Called, it would pass sums by memory.
template <Storage S, int T>
[[gnu::always_inline]] inline void add_group(__m512i (*sums)[2], const std::uint8_t (*steps)[2][64], const char* codes,
                                             std::size_t stride) {
  constexpr int dwords = 16 / planes(S);
  for (int p = 0; p < planes(S); p++) {
    const TokenPointers<T> four(codes + p * unit_bytes, stride);
    for (int d = 0; d < dwords; d++, steps++) {
      const __m512i low = _mm512_load_si512((*steps)[0]), high = _mm512_load_si512((*steps)[1]);
      for (int t = 0; t < T; t++) {
        const __m512i q = four.spread_dword(t, d * 4);
        sums[t][0] = _mm512_dpbusd_epi32(sums[t][0], low, q);
        sums[t][1] = _mm512_dpbusd_epi32(sums[t][1], high, q);
      }
    }
  }
}

// Adds the panel's products to y for T tokens and 32 rows, or stores them there. 16 bits: the sums over the high halves,
// moved up where they are, take up those over the low ones, so that a token needs no more registers than with 8.
template <Storage S, Numerics N, int T>
void panel_tile(const Panel& panel, int groups, const PanelActivations& x, bool add, const __mmask16* rows, float* y,
                std::size_t ldy) {
  const TokenPointers<T> scales(x.scales, x.stride), offsets(x.offsets, x.stride);
  __m512 total[T][2];
  for (int t = 0; t < T; t++)
    for (int h = 0; h < 2; h++)
      total[t][h] = add ? _mm512_maskz_loadu_ps(rows[h], y + t * ldy + h * 16) : _mm512_setzero_ps();
  for (int g = 0; g < groups; g++) {
    const char* codes = x.codes + group_at<S, N>(g);
    __m512i sums[T][2];
    for (int t = 0; t < T; t++) sums[t][0] = sums[t][1] = _mm512_setzero_si512();
    add_group<S, T>(sums, panel.codes[g], codes, x.stride);
    if constexpr (N == Numerics::i16) {
      for (int t = 0; t < T; t++)
        for (int h = 0; h < 2; h++) sums[t][h] = _mm512_slli_epi32(sums[t][h], 8);
      add_group<S, T>(sums, panel.codes[g], codes + planes(S) * unit_bytes, x.stride);
    }
    for (int t = 0; t < T; t++) {
      const __m512i offset = offsets.spread_dword(t, g * 4);
      const __m512 step = _mm512_castsi512_ps(scales.spread_dword(t, g * 4));
      for (int h = 0; h < 2; h++) {
        const __m512 product = _mm512_cvtepi32_ps(_mm512_add_epi32(sums[t][h], offset));
        total[t][h] = _mm512_fmadd_ps(_mm512_mul_ps(product, step), _mm512_load_ps(panel.scales[g][h]), total[t][h]);
      }
    }
  }
  for (int t = 0; t < T; t++)
    for (int h = 0; h < 2; h++) _mm512_mask_storeu_ps(y + t * ldy + h * 16, rows[h], total[t][h]);
}

template <Storage S, Numerics N, int T = most_panel_tokens>
void panel_tokens(int tokens, const Panel& panel, int groups, const PanelActivations& x, bool add,
                  const __mmask16* rows, float* y, std::size_t ldy) {
  if constexpr (T > 1)
    if (tokens < T) return panel_tokens<S, N, T - 1>(tokens, panel, groups, x, add, rows, y, ldy);
  panel_tile<S, N, T>(panel, groups, x, add, rows, y, ldy);
}

template <Storage S, Numerics N>
void panel_rows(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  const PreparedLayout layout = prepared_layout(S, N, w.cols);
  const int tiles = (x.tokens + most_panel_tokens - 1) / most_panel_tokens;
  for_panels<S>(w, row0, row1, [&](const Panel& panel, int r, int g, int groups, const __mmask16* masks) {
    for (int tile = 0; tile < tiles; tile++) {
      const int begin = x.tokens * tile / tiles, end = x.tokens * (tile + 1) / tiles;
      panel_tokens<S, N>(end - begin, panel, groups, panel_activations<S, N>(x, layout, begin, g), g > 0, masks,
                         y + begin * ldy + r, ldy);
    }
  });
}

template <Storage S, Numerics N>
void integer_rows(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  if (x.tokens < fewest_panel_tokens) rows_of_four<S, N>(w, row0, row1, x, y, ldy);
  else panel_rows<S, N>(w, row0, row1, x, y, ldy);
}
