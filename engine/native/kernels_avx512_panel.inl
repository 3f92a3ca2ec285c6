// A panel: rows of weights in the order that lets one instruction serve 16 of them, for the AVX-512 and AMX products of
// many tokens.

constexpr int panel_rows_count = 32;
constexpr int panel_groups = 8;       // groups of a row at a time: 16 KiB of codes, half of a first-level cache

// 32 rows side by side. codes[g][s][h]: four codes of each of 16 rows, the ones that step s of group g multiplies.
struct Panel {
  alignas(64) std::uint8_t codes[panel_groups][16][2][64];
  alignas(64) float scales[panel_groups][2][16];
};

template <Storage S, int P = 0>
void store_planes(const __m512i* column, int half, std::uint8_t (*steps)[16][2][64]) {
  constexpr int dwords = 16 / planes(S);  // of a group in one row
  for (int d = 0; d < 16; d++)
    _mm512_store_si512(steps[d / dwords][P * dwords + d % dwords][half], plane<S, P>(column[d]));
  if constexpr (P + 1 < planes(S)) store_planes<S, P + 1>(column, half, steps);
}

// Fills one half of the panel with `groups` groups of 16 rows; `rows` of them exist, the others become zeros.
template <Storage S>
void fill_half(const std::uint8_t* codes, const std::uint16_t* scales, int rows, int groups, int row_groups, int half,
               Panel& panel) {
  const std::size_t row_bytes = std::size_t(row_groups) * group_bytes(S);
  for (int g = 0; g < groups; g += planes(S)) {
    __m512i v[16];
    for (int r = 0; r < 16; r++)
      v[r] = r < rows ? load_rest(codes + r * row_bytes + g * group_bytes(S), (groups - g) * group_bytes(S))
                      : _mm512_setzero_si512();
    transpose_dwords(v);
    store_planes<S>(v, half, panel.codes + g);
  }
  __m512i v[16];
  for (int r = 0; r < 16; r++)
    v[r] = r < rows ? _mm512_castps_si512(load_scales(scales + std::size_t(r) * row_groups, groups))
                    : _mm512_setzero_si512();
  transpose_dwords(v);
  for (int g = 0; g < panel_groups; g++) _mm512_store_ps(panel.scales[g][half], _mm512_castsi512_ps(v[g]));
}

__mmask16 first_lanes(int n) { return n >= 16 ? 0xffff : n <= 0 ? 0 : __mmask16((1u << n) - 1); }

// Calls work(panel, row, group, groups, masks) for each panel of rows [row0, row1), groups in order; masks[h]: the rows
// of half h that exist. Inlined, for the work's loops are the time.
template <Storage S, class Work>
[[gnu::always_inline]] inline void for_panels(const Matrix& w, int row0, int row1, Work work) {
  const int row_groups = w.cols / group_size;
  const auto* codes = static_cast<const std::uint8_t*>(w.data);
  Panel panel;
  for (int r = row0; r < row1; r += panel_rows_count) {
    const int rows = row1 - r;
    const __mmask16 masks[2] = {first_lanes(rows), first_lanes(rows - 16)};
    for (int g = 0; g < row_groups; g += panel_groups) {
      const int groups = row_groups - g < panel_groups ? row_groups - g : panel_groups;
      for (int half = 0; half < 2; half++) {
        const std::size_t first_group = std::size_t(r + half * 16) * row_groups + g;
        fill_half<S>(codes + first_group * group_bytes(S), w.scales + first_group, rows - half * 16, groups, row_groups,
                     half, panel);
      }
      work(panel, r, g, groups, masks);
    }
  }
}

// Prepared activations from a token and a panel's first group on. Tokens are `stride` bytes apart.
struct PanelActivations {
  const char* codes;
  const char* scales;
  const char* offsets;
  std::size_t stride;
};

template <Storage S, Numerics N>
PanelActivations panel_activations(const Activations& x, const PreparedLayout& layout, int token, int group) {
  const char* const row = static_cast<const char*>(x.prepared) + token * layout.bytes;
  return {row + group_at<S, N>(group), row + layout.scales_at + group * sizeof(float),
          row + layout.offsets_at + group * sizeof(std::int32_t), layout.bytes};
}
