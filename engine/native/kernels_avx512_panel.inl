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
