// Integer products of the AVX2 set for many tokens: panel_rows transposes 16 rows at a time into the order that lets one
// instruction serve 8 rows, with the codes spread out as the activations want them, and uses that for all tokens.
//
// A step multiplies one dword of activations (four 8-bit codes or two 16-bit ones) with what each of 16 rows has for it.

constexpr int panel_rows_count = 16;
constexpr int panel_groups = 8;       // groups of a row at a time: 8 or 16 KiB of steps, half of a first-level cache
constexpr int most_panel_tokens = 4;  // the sums of 4 tokens fill 8 of the 16 registers
constexpr int fewest_panel_tokens = 3;

// Whether steps hold the weights' integers w themselves, not raw codes.
constexpr bool integer_steps(Storage storage, Numerics numerics) {
  return numerics == Numerics::i16 || centred(storage, numerics);
}

constexpr int group_steps(Numerics numerics) { return numerics == Numerics::i16 ? 32 : 16; }

template <Numerics N>
struct Panel {
  alignas(32) __m256i steps[panel_groups][group_steps(N)][2];
  alignas(32) float scales[panel_groups][panel_rows_count];
};

// Four dwords of each of 8 rows as four columns: lane r of v[c] is dword c of row r.
[[gnu::always_inline]] inline void load_columns(const std::uint8_t* const* rows, std::size_t at, __m256i* v) {
  const auto load = [&](int row) { return _mm_loadu_si128(as_128(rows[row] + at)); };
  const __m256i a = _mm256_set_m128i(load(4), load(0)), b = _mm256_set_m128i(load(5), load(1));
  const __m256i c = _mm256_set_m128i(load(6), load(2)), d = _mm256_set_m128i(load(7), load(3));
  const __m256i ab_low = _mm256_unpacklo_epi32(a, b), ab_high = _mm256_unpackhi_epi32(a, b);
  const __m256i cd_low = _mm256_unpacklo_epi32(c, d), cd_high = _mm256_unpackhi_epi32(c, d);
  v[0] = _mm256_unpacklo_epi64(ab_low, cd_low);
  v[1] = _mm256_unpackhi_epi64(ab_low, cd_low);
  v[2] = _mm256_unpacklo_epi64(ab_high, cd_high);
  v[3] = _mm256_unpackhi_epi64(ab_high, cd_high);
}

// Plane P of a column as a step has it: words are the weight's integer w, bytes as in plane().
template <Storage S, Numerics N, int P>
__m256i step_codes(__m256i column) {
  if constexpr (N == Numerics::i8) return plane<S, N, P>(column);
  constexpr int bits = 8 / planes(S), up = code_factor(S) - 1, mask = ((1 << bits) - 1) << up;
  const __m256i shifted = P == 0 ? _mm256_slli_epi16(column, up) : _mm256_srli_epi16(column, bits * P - up);
  return _mm256_sub_epi16(_mm256_and_si256(shifted, _mm256_set1_epi16(mask)), _mm256_set1_epi16(code_offset(S)));
}

template <Storage S, Numerics N, int P = 0>
[[gnu::always_inline]] inline void store_column(__m256i column, __m256i (*steps)[2], int dword, int half) {
  constexpr int dwords = group_bytes(S) / 4;  // of a group in one row
  steps[P * dwords + dword][half] = step_codes<S, N, P>(column);
  if constexpr (P + 1 < code_planes(S, N)) store_column<S, N, P + 1>(column, steps, dword, half);
}

// The scales of 8 rows' groups, turned: each group's eight side by side, panel_rows_count floats from the last's.
void store_scales(const std::uint16_t* const* rows, int groups, float* out) {
  Vec v[8];
  for (int i = 0; i < 8; i++) {
    std::uint16_t some[panel_groups] = {};
    if (groups < panel_groups)
      for (int g = 0; g < groups; g++) some[g] = rows[i][g];
    v[i] = load_f16(groups < panel_groups ? some : rows[i]);
  }
  transpose(v);
  for (int g = 0; g < groups; g++) store_f32(out + g * panel_rows_count, v[g]);
}

// Fills the panel with `groups` groups of 16 rows; `rows` of them exist, the others repeat the last.
template <Storage S, Numerics N>
void fill_panel(const std::uint8_t* codes, const std::uint16_t* scales, int rows, int groups, int row_groups,
                Panel<N>& panel) {
  for (int half = 0; half < 2; half++) {
    const std::uint8_t* row_codes[8];
    const std::uint16_t* row_scales[8];
    for (int i = 0; i < 8; i++) {
      const int row = half * 8 + i;
      const std::size_t first = std::size_t(row < rows ? row : rows - 1) * row_groups;
      row_codes[i] = codes + first * group_bytes(S);
      row_scales[i] = scales + first;
    }
    for (int g = 0; g < groups; g++)
      for (int at = 0; at < group_bytes(S); at += 16) {
        __m256i v[4];
        load_columns(row_codes, std::size_t(g) * group_bytes(S) + at, v);
        for (int c = 0; c < 4; c++) store_column<S, N>(v[c], panel.steps[g], at / 4 + c, half);
      }
    store_scales(row_scales, groups, panel.scales[0] + half * 8);
  }
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

// Adds the products of `steps` steps to sums[token][half of the rows]: in dwords for 16-bit activations, in words for
// 8-bit ones. Called, it would pass sums by memory.
template <Storage S, Numerics N, int T, int steps_count>
[[gnu::always_inline]] inline void add_steps(__m256i (*sums)[2], const __m256i (*steps)[2], const PanelActivations& x,
                                             const char* codes) {
#pragma GCC unroll 8
  for (int i = 0; i < steps_count; i++) {
    const __m256i w[2] = {in_register(steps[i][0]), in_register(steps[i][1])};
    for (int t = 0; t < T; t++) {
      const __m256i q = x.spread_dword(codes, t, i * 4);
      for (int half = 0; half < 2; half++) {
        __m256i& sum = sums[t][half];
        if constexpr (N == Numerics::i16) sum = in_register(_mm256_add_epi32(sum, _mm256_madd_epi16(w[half], q)));
        else sum = in_register(_mm256_add_epi16(sum, byte_pairs<S>(w[half], q)));
      }
    }
  }
}

// Adds the products of one plane of a group to sums[token][half of the rows], in dwords.
template <Storage S, Numerics N, int T>
[[gnu::always_inline]] inline void add_plane(__m256i (*sums)[2], const __m256i (*steps)[2], const PanelActivations& x,
                                             const char* codes) {
  constexpr int dwords = group_bytes(S) / 4;
  constexpr int together = N == Numerics::i8 && S == Storage::q8 ? 1 : dwords < 8 ? dwords : 8;
#pragma GCC unroll 1
  for (int d = 0; d < dwords; d += together) {
    if constexpr (N == Numerics::i16) {
      add_steps<S, N, T, together>(sums, steps + d, x, codes + d * 4);
    } else {
      __m256i words[T][2];  // sums that still fit
      for (int t = 0; t < T; t++) words[t][0] = words[t][1] = _mm256_setzero_si256();
      add_steps<S, N, T, together>(words, steps + d, x, codes + d * 4);
      for (int t = 0; t < T; t++)
        for (int half = 0; half < 2; half++)
          sums[t][half] = _mm256_add_epi32(sums[t][half], add_pairs(words[t][half]));
    }
  }
}

// Adds the panel's products to y for T tokens and 16 rows, or stores them there. A function of its own: inlined, what its
// callers keep in registers pushed sums onto the stack.
template <Storage S, Numerics N, int T>
[[gnu::noinline]] void panel_tile(const Panel<N>& panel, int groups, const PanelActivations& x, bool add, const __m256i* rows, float* y,
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
      for (int half = 0; half < 2; half++) {
        __m256i product = sums[t][half];
        if constexpr (!integer_steps(S, N))
          product = _mm256_add_epi32(_mm256_slli_epi32(product, code_factor(S) - 1), x.spread_dword(x.offsets, t, g * 4));
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

// A part of a product: rows [row, row + rows), at most a panel's, and groups [group, group + groups).
struct PanelPart {
  int row, rows, group, groups;
};

template <Storage S, Numerics N>
struct PanelProduct {
  const Matrix& w;
  const Activations& x;
  float* y;
  std::size_t ldy;
  PreparedLayout layout = prepared_layout(S, N, w.cols);

  void fill(const PanelPart& part, Panel<N>& panel) const {
    const std::size_t first = std::size_t(part.row) * layout.groups + part.group;
    const auto* codes = static_cast<const std::uint8_t*>(w.data) + first * group_bytes(S);
    fill_panel<S, N>(codes, w.scales + first, part.rows, part.groups, layout.groups, panel);
  }

  void multiply(const PanelPart& part, const Panel<N>& panel, int token, int end) const {
    const __m256i masks[2] = {first_lanes(part.rows), first_lanes(part.rows - 8)};
    for (; token < end; token += most_panel_tokens) {
      const char* row = static_cast<const char*>(x.prepared) + token * layout.bytes;
      const PanelActivations q{row + group_at<S, N>(part.group), row + layout.scales_at + part.group * sizeof(float),
                               row + layout.offsets_at + part.group * sizeof(std::int32_t), layout.bytes};
      panel_tokens<S, N>(end - token, panel, part.groups, q, part.group > 0, masks, y + token * ldy + part.row, ldy);
    }
  }
};

// Panels of up to 64 rows meet 64 tokens before the next 64: activations, half a megabyte of 512 tokens, come from the
// second-level cache for all panels but the first.
template <Storage S, Numerics N>
void panel_rows(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  constexpr int most_panels = 4, tokens_together = 64;
  const PanelProduct<S, N> product{w, x, y, ldy};
  const int row_groups = product.layout.groups;
  const bool used_again = x.tokens > tokens_together;  // a panel that is not stays in the first-level cache
  Panel<N> panels[most_panels];
  for (int r0 = row0; r0 < row1; r0 += most_panels * panel_rows_count)
    for (int g = 0; g < row_groups; g += panel_groups)
      for (int token = 0; token < x.tokens; token += tokens_together)
        for (int p = 0, r = r0; p < most_panels && r < row1; p++, r += panel_rows_count) {
          const PanelPart part{r, row1 - r < panel_rows_count ? row1 - r : panel_rows_count, g,
                               row_groups - g < panel_groups ? row_groups - g : panel_groups};
          Panel<N>& panel = panels[used_again ? p : 0];
          if (token == 0) product.fill(part, panel);
          product.multiply(part, panel, token, x.tokens - token < tokens_together ? x.tokens : token + tokens_together);
        }
}

template <Storage S, Numerics N>
void integer_rows(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  if (x.tokens < fewest_panel_tokens) rows_of_four<S, N>(w, row0, row1, x, y, ldy);
  else panel_rows<S, N>(w, row0, row1, x, y, ldy);
}
