// Integer products of the NEON set for many tokens: panel_rows transposes 16 rows at a time into the order that lets one
// instruction serve 4 rows, with the codes spread out as the activations want them, and uses that for all tokens.

constexpr int panel_rows_count = 16;
constexpr int panel_quads = panel_rows_count / 4;
constexpr int panel_groups = 8;       // groups of a row at a time: 8 KiB of steps stay in any first-level cache
constexpr int most_panel_tokens = 4;  // the sums of 4 tokens fill 16 of the 32 registers
constexpr int fewest_panel_tokens = 3;
constexpr int group_steps = group_size / 4;

// steps[g][s][i]: four codes of each of rows 4 i to 4 i + 3, the ones that step s of group g multiplies.
struct Panel {
  int8x16_t steps[panel_groups][group_steps][panel_quads];
  alignas(16) float scales[panel_groups][panel_rows_count];
};

// Column d of 16 bytes of codes that begin at byte `at` of the panel's first group, for one quad of rows.
template <Storage S, int P = 0>
void store_column(uint8x16_t column, int dword, int quad, Panel& panel) {
  constexpr int dwords = group_bytes(S) / 4;  // of a group in one row
  panel.steps[dword / dwords][P * dwords + dword % dwords][quad] = plane<S, P>(column);
  if constexpr (P + 1 < planes(S)) store_column<S, P + 1>(column, dword, quad, panel);
}

// Fills the panel with `groups` groups of 16 rows; `rows` of them exist, the others repeat the last.
template <Storage S>
void fill_panel(const std::uint8_t* codes, const std::uint16_t* scales, int rows, int groups, int row_groups, Panel& panel) {
  const auto start = [&](int row) { return std::size_t(row < rows ? row : rows - 1) * std::size_t(row_groups); };
  for (int quad = 0; quad < panel_quads; quad++)
    for (int at = 0; at < groups * group_bytes(S); at += 16) {
      Vec v[4];
      for (int i = 0; i < 4; i++)
        v[i] = vreinterpretq_f32_u8(vld1q_u8(codes + start(quad * 4 + i) * group_bytes(S) + at));
      transpose(v);
      for (int d = 0; d < 4; d++) store_column<S>(vreinterpretq_u8_f32(v[d]), at / 4 + d, quad, panel);
    }
  for (int row = 0; row < panel_rows_count; row++)
    for (int g = 0; g < groups; g++) panel.scales[g][row] = scale_of(scales[start(row) + g]);
}

// T tokens' prepared activations for the groups of a panel. Tokens are `stride` bytes apart.
struct PanelActivations {
  const char* codes;
  const char* scales;
  const char* offsets;
  std::size_t stride;

  template <class Value>
  Value at(const char* first, int t, int g) const {
    Value value;
    __builtin_memcpy(&value, first + t * stride + g * sizeof value, sizeof value);
    return value;
  }
};

// Adds step L of four to sums[token][quad of rows]; q: what the four multiply, of each token.
template <int T, int L = 0>
[[gnu::always_inline]] inline void add_steps(int32x4_t (*sums)[panel_quads], const int8x16_t (*steps)[panel_quads], const int8x16_t* q) {
  for (int quad = 0; quad < panel_quads; quad++)
    for (int t = 0; t < T; t++) sums[t][quad] = vdotq_laneq_s32(sums[t][quad], steps[L][quad], q[t], L);
  if constexpr (L + 1 < 4) add_steps<T, L + 1>(sums, steps, q);
}

// Adds the products of a group's codes with the activations from `codes` on. Called, it would pass sums by memory.
template <Storage S, int T>
[[gnu::always_inline]] inline void add_group(int32x4_t (*sums)[panel_quads], const int8x16_t (*steps)[panel_quads], const char* codes,
                                             std::size_t stride) {
  for (int p = 0; p < planes(S); p++)
    for (int b = 0; b < group_bytes(S); b += 16, steps += 4) {
      int8x16_t q[T];
      for (int t = 0; t < T; t++) q[t] = vld1q_s8(reinterpret_cast<const std::int8_t*>(codes + t * stride + p * unit_bytes + b));
      add_steps<T>(sums, steps, q);
    }
}

// Adds the panel's products to y for T tokens and 16 rows, or stores them there.
template <Storage S, Numerics N, int T>
void panel_tile(const Panel& panel, int groups, const PanelActivations& x, bool add, float* y, std::size_t ldy) {
  Vec total[T][panel_quads];
  for (int t = 0; t < T; t++)
    for (int quad = 0; quad < panel_quads; quad++) total[t][quad] = add ? vld1q_f32(y + t * ldy + quad * 4) : vdupq_n_f32(0.0f);
  for (int g = 0; g < groups; g++) {
    const char* const codes = x.codes + group_at<S, N>(g);
    int32x4_t sums[T][panel_quads];
    for (int t = 0; t < T; t++)
      for (int quad = 0; quad < panel_quads; quad++) sums[t][quad] = vdupq_n_s32(0);
    add_group<S, T>(sums, panel.steps[g], codes, x.stride);
    if constexpr (N == Numerics::i16) {
      for (int t = 0; t < T; t++)
        for (int quad = 0; quad < panel_quads; quad++) sums[t][quad] = vshlq_n_s32(sums[t][quad], 8);  // of the high halves
      add_group<S, T>(sums, panel.steps[g], codes + planes(S) * unit_bytes, x.stride);
    }
    for (int t = 0; t < T; t++) {
      const int32x4_t offset = vdupq_n_s32(S == Storage::q8 ? 0 : x.at<std::int32_t>(x.offsets, t, g));
      const Vec step = broadcast(x.at<float>(x.scales, t, g));
      for (int quad = 0; quad < panel_quads; quad++) {
        const Vec product = multiply(vcvtq_f32_s32(vaddq_s32(sums[t][quad], offset)), step);
        total[t][quad] = fma(product, vld1q_f32(panel.scales[g] + quad * 4), total[t][quad]);
      }
    }
  }
  for (int t = 0; t < T; t++)
    for (int quad = 0; quad < panel_quads; quad++) vst1q_f32(y + t * ldy + quad * 4, total[t][quad]);
}

template <Storage S, Numerics N, int T = most_panel_tokens>
void panel_tokens(int tokens, const Panel& panel, int groups, const PanelActivations& x, bool add, float* y, std::size_t ldy) {
  if constexpr (T > 1)
    if (tokens < T) return panel_tokens<S, N, T - 1>(tokens, panel, groups, x, add, y, ldy);
  panel_tile<S, N, T>(panel, groups, x, add, y, ldy);
}

// As panel_tokens, for a panel of which `rows` rows exist.
template <Storage S, Numerics N>
void panel_edge(int tokens, const Panel& panel, int groups, const PanelActivations& x, bool add, int rows, float* y, std::size_t ldy) {
  float whole[most_panel_tokens][panel_rows_count] = {};
  const auto each = [&](auto copy) {
    for (int t = 0; t < tokens && t < most_panel_tokens; t++)
      for (int row = 0; row < rows; row++) copy(whole[t][row], y[t * ldy + row]);
  };
  if (add) each([](float& kept, float& there) { kept = there; });
  panel_tokens<S, N>(tokens, panel, groups, x, add, whole[0], panel_rows_count);
  each([](float& kept, float& there) { there = kept; });
}

template <Storage S, Numerics N>
void panel_rows(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  const PreparedLayout layout = prepared_layout(S, N, w.cols);
  const auto* codes = static_cast<const std::uint8_t*>(w.data);
  const auto* prepared = static_cast<const char*>(x.prepared);
  Panel panel;
  for (int r = row0; r < row1; r += panel_rows_count) {
    const int rows = row1 - r < panel_rows_count ? row1 - r : panel_rows_count;
    for (int g = 0; g < layout.groups; g += panel_groups) {
      const int groups = layout.groups - g < panel_groups ? layout.groups - g : panel_groups;
      const std::size_t first_group = std::size_t(r) * layout.groups + g;
      fill_panel<S>(codes + first_group * group_bytes(S), w.scales + first_group, rows, groups, layout.groups, panel);
      for (int t = 0; t < x.tokens; t += most_panel_tokens) {
        const char* const token = prepared + t * layout.bytes;
        const PanelActivations part{token + group_at<S, N>(g), token + layout.scales_at + g * sizeof(float),
                                    token + layout.offsets_at + g * sizeof(std::int32_t), layout.bytes};
        float* const out = y + t * ldy + r;
        if (rows == panel_rows_count) panel_tokens<S, N>(x.tokens - t, panel, groups, part, g > 0, out, ldy);
        else panel_edge<S, N>(x.tokens - t, panel, groups, part, g > 0, rows, out, ldy);
      }
    }
  }
}

template <Storage S, Numerics N>
void integer_rows(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  if (x.tokens < fewest_panel_tokens) rows_of_four<S, N>(w, row0, row1, x, y, ldy);
  else panel_rows<S, N>(w, row0, row1, x, y, ldy);
}
