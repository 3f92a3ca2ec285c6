// Integer products of the AVX-512 set (kernels_prepared.h tells the layout and the arithmetic).
//
// One or two tokens: rows_of_four streams weights once, as memory delivers them. More: panel_rows transposes 16 rows at
// a time into the order that lets one instruction serve 16 rows, and uses that for all tokens.

// Plane P of 64 bytes of codes, times code_factor.
template <Storage S, int P>
__m512i plane(__m512i bytes) {
  if constexpr (S == Storage::q8) return bytes;
  constexpr int shift = 8 / planes(S) * P - 1;
  const __m512i mask = _mm512_set1_epi8(S == Storage::q4 ? 0x1e : 0x06);
  if constexpr (shift < 0) return _mm512_and_si512(_mm512_add_epi8(bytes, bytes), mask);
  else return _mm512_and_si512(_mm512_srli_epi16(bytes, shift), mask);
}

__m512i load_codes(const void* p) { return _mm512_loadu_si512(p); }

// A unit's sums over raw codes, spread over lanes: group h of the unit has lanes h * 16 / planes and following.
template <Storage S>
__m512i unit_product(__m512i bytes, const std::int8_t* q) {
  __m512i total = _mm512_dpbusd_epi32(_mm512_setzero_si512(), plane<S, 0>(bytes), load_codes(q));
  if constexpr (planes(S) >= 2) total = _mm512_dpbusd_epi32(total, plane<S, 1>(bytes), load_codes(q + 64));
  if constexpr (planes(S) == 4) {
    total = _mm512_dpbusd_epi32(total, plane<S, 2>(bytes), load_codes(q + 128));
    total = _mm512_dpbusd_epi32(total, plane<S, 3>(bytes), load_codes(q + 192));
  }
  return total;
}

// Each 128-bit lane of the result: the sums of that lane of a, b, c, d.
__m512i sum_lanes(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

// Neighbouring 128-bit lanes added: a's two sums, then b's two.
__m512i sum_neighbours(__m512i a, __m512i b) {
  return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, _MM_SHUFFLE(2, 0, 2, 0)),
                          _mm512_shuffle_i32x4(a, b, _MM_SHUFFLE(3, 1, 3, 1)));
}

// The sums of 16 groups in order, from their units' products.
template <Storage S>
__m512i group_sums(const __m512i* unit) {
  if constexpr (S == Storage::q8) {
    const __m512i low = sum_neighbours(sum_lanes(unit[0], unit[1], unit[2], unit[3]),
                                       sum_lanes(unit[4], unit[5], unit[6], unit[7]));
    const __m512i high = sum_neighbours(sum_lanes(unit[8], unit[9], unit[10], unit[11]),
                                        sum_lanes(unit[12], unit[13], unit[14], unit[15]));
    return sum_neighbours(low, high);
  } else if constexpr (S == Storage::q4) {
    const __m512i mixed = sum_neighbours(sum_lanes(unit[0], unit[1], unit[2], unit[3]),
                                         sum_lanes(unit[4], unit[5], unit[6], unit[7]));
    const __m512i order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    return _mm512_permutexvar_epi32(order, mixed);
  } else {
    const __m512i mixed = sum_lanes(unit[0], unit[1], unit[2], unit[3]);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, mixed);
  }
}

// Up to 64 bytes of a row's codes; zeros after its end.
__m512i load_rest(const std::uint8_t* codes, int bytes) {
  if (bytes >= unit_bytes) return load_codes(codes);
  const __mmask64 within = bytes <= 0 ? 0 : ~__mmask64{0} >> (unit_bytes - bytes);
  return _mm512_maskz_loadu_epi8(within, codes);
}

// float(D) * (a / d) for 16 groups of a row from group g on; `bytes` of codes are left in the row.
template <Storage S>
__m512 scaled_products(const std::uint8_t* codes, int bytes, const PreparedRow& x, int g) {
  constexpr int units = 16 / planes(S);
  const std::int8_t* q = x.codes + std::size_t(g) * group_size;
  __m512i unit[units];
  if (bytes >= units * unit_bytes) {
    for (int u = 0; u < units; u++)
      unit[u] = unit_product<S>(load_codes(codes + u * unit_bytes), q + u * unit_bytes * planes(S));
  } else {
    for (int u = 0; u < units; u++)
      unit[u] = bytes > u * unit_bytes ? unit_product<S>(load_rest(codes + u * unit_bytes, bytes - u * unit_bytes),
                                                         q + u * unit_bytes * planes(S))
                                       : _mm512_setzero_si512();
  }
  const __m512i products = _mm512_add_epi32(group_sums<S>(unit), load_codes(x.offsets + g));
  return _mm512_mul_ps(_mm512_cvtepi32_ps(products), _mm512_loadu_ps(x.scales + g));
}

__m512 load_scales(const std::uint16_t* scales, int n) {
  const __mmask16 within = n >= 16 ? 0xffff : (1u << n) - 1;
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(within, scales));
}

// Four rows' vectors of 16 groups, turned so that each group's four values are side by side.
struct Quadruples {
  alignas(64) float of[16][4];
};

void interleave(const __m512* row, Quadruples& out) {
  const __m512 low01 = _mm512_unpacklo_ps(row[0], row[1]), high01 = _mm512_unpackhi_ps(row[0], row[1]);
  const __m512 low23 = _mm512_unpacklo_ps(row[2], row[3]), high23 = _mm512_unpackhi_ps(row[2], row[3]);
  const auto pairs = [](__m512 a, __m512 b, bool high) {
    const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    return _mm512_castpd_ps(high ? _mm512_unpackhi_pd(x, y) : _mm512_unpacklo_pd(x, y));
  };
  // Vector j has groups j, j + 4, j + 8, j + 12.
  const __m512 v[4] = {pairs(low01, low23, false), pairs(low01, low23, true), pairs(high01, high23, false),
                       pairs(high01, high23, true)};
  for (int j = 0; j < 4; j++) _mm512_store_ps(out.of[j * 4], v[j]);
}
constexpr int quadruple_of(int group) { return group % 4 * 4 + group / 4; }

// The next four rows: the processor's own prefetching loses its way where rows are as short as these.
void prefetch_codes(const std::uint8_t* codes, int bytes) {
  for (int i = 0; i < bytes; i += 64) _mm_prefetch(codes + i, _MM_HINT_T0);
}

// Sums of four rows for one token. `rows` of them exist; the others repeat the last.
template <Storage S>
void four_rows(const std::uint8_t* codes, const std::uint16_t* scales, int rows, int groups, const PreparedRow& x,
               float* y) {
  const std::size_t row_bytes = std::size_t(groups) * group_bytes(S);
  __m128 total = _mm_setzero_ps();
  for (int g = 0; g < groups; g += 16) {
    const int n = groups - g < 16 ? groups - g : 16;
    prefetch_codes(codes + 4 * row_bytes + 4 * std::size_t(g) * group_bytes(S), 4 * n * group_bytes(S));
    __m512 product[4], scale[4];
    for (int i = 0; i < 4; i++) {
      const int row = i < rows ? i : rows - 1;
      product[i] =
          scaled_products<S>(codes + row * row_bytes + g * group_bytes(S), (groups - g) * group_bytes(S), x, g);
      scale[i] = load_scales(scales + std::size_t(row) * groups + g, n);
    }
    Quadruples products, factors;
    interleave(product, products);
    interleave(scale, factors);
    for (int i = 0; i < n; i++)
      total = _mm_fmadd_ps(_mm_load_ps(products.of[quadruple_of(i)]), _mm_load_ps(factors.of[quadruple_of(i)]), total);
  }
  _mm_mask_storeu_ps(y, __mmask8((1u << rows) - 1), total);
}

template <Storage S>
void rows_of_four(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  const PreparedLayout layout = prepared_layout(S, w.cols);
  const auto* codes = static_cast<const std::uint8_t*>(w.data);
  for (int r = row0; r < row1; r += 4) {
    const int rows = row1 - r < 4 ? row1 - r : 4;
    for (int t = 0; t < x.tokens; t++)
      four_rows<S>(codes + std::size_t(r) * layout.groups * group_bytes(S), w.scales + std::size_t(r) * layout.groups,
                   rows, layout.groups, prepared_row(x.prepared, layout, t), y + t * ldy + r);
  }
}

// ---- panels of 16 rows ----

constexpr int panel_rows_count = 16;
constexpr int panel_groups = 16;  // groups of a row at a time: 16 KiB of codes, half of a first-level cache

// 16 rows side by side. codes[g][s]: four codes of each row, the ones that step s of group g multiplies.
struct Panel {
  alignas(64) std::uint8_t codes[panel_groups][16][64];
  alignas(64) float scales[panel_groups][16];
};

// v: 16 rows of 16 dwords; becomes 16 columns.
void transpose_dwords(__m512i* v) {
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

template <Storage S, int P = 0>
void store_planes(const __m512i* column, std::uint8_t (*steps)[16][64]) {
  constexpr int dwords = 16 / planes(S);  // of a group in one row
  for (int d = 0; d < 16; d++)
    _mm512_store_si512(steps[d / dwords][P * dwords + d % dwords], plane<S, P>(column[d]));
  if constexpr (P + 1 < planes(S)) store_planes<S, P + 1>(column, steps);
}

// Fills the panel with `groups` groups of 16 rows; `rows` of them exist, the others become zeros.
template <Storage S>
void fill_panel(const std::uint8_t* codes, const std::uint16_t* scales, int rows, int groups, int row_groups,
                Panel& panel) {
  const std::size_t row_bytes = std::size_t(row_groups) * group_bytes(S);
  for (int g = 0; g < groups; g += planes(S)) {
    __m512i v[16];
    for (int r = 0; r < 16; r++)
      v[r] = r < rows ? load_rest(codes + r * row_bytes + g * group_bytes(S), (groups - g) * group_bytes(S))
                      : _mm512_setzero_si512();
    transpose_dwords(v);
    store_planes<S>(v, panel.codes + g);
  }
  __m512i v[16];
  for (int r = 0; r < 16; r++)
    v[r] = r < rows ? _mm512_castps_si512(load_scales(scales + std::size_t(r) * row_groups, groups))
                    : _mm512_setzero_si512();
  transpose_dwords(v);
  for (int g = 0; g < panel_groups; g++) _mm512_store_ps(panel.scales[g], _mm512_castsi512_ps(v[g]));
}

// T tokens' prepared activations for the groups of a panel. Tokens are `stride` bytes apart.
struct PanelActivations {
  const char* codes;
  const char* scales;
  const char* offsets;
  std::size_t stride;
};

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

// Adds the panel's products to y for T tokens and 16 rows, or stores them there.
template <int T>
void panel_tile(const Panel& panel, int planes, int groups, const PanelActivations& x, bool add, __mmask16 rows,
                float* y, std::size_t ldy) {
  const TokenPointers<T> scales(x.scales, x.stride), offsets(x.offsets, x.stride);
  __m512 total[T];
  for (int t = 0; t < T; t++) total[t] = add ? _mm512_maskz_loadu_ps(rows, y + t * ldy) : _mm512_setzero_ps();
  for (int g = 0; g < groups; g++) {
    const int dwords = 16 / planes;
    const std::size_t group_at = std::size_t(g / planes) * planes * unit_bytes + g % planes * dwords * 4;
    __m512i product[T];
    for (int t = 0; t < T; t++) product[t] = offsets.spread_dword(t, g * sizeof(std::int32_t));
    const std::uint8_t* weights = panel.codes[g][0];
    for (int p = 0; p < planes; p++) {
      const TokenPointers<T> four(x.codes + group_at + p * unit_bytes, x.stride);
      for (int d = 0; d < dwords; d++, weights += 64) {
        const __m512i w = _mm512_load_si512(weights);
        for (int t = 0; t < T; t++) product[t] = _mm512_dpbusd_epi32(product[t], w, four.spread_dword(t, d * 4));
      }
    }
    const __m512 scale = _mm512_load_ps(panel.scales[g]);
    for (int t = 0; t < T; t++) {
      const __m512 step = _mm512_castsi512_ps(scales.spread_dword(t, g * sizeof(float)));
      total[t] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(product[t]), step), scale, total[t]);
    }
  }
  for (int t = 0; t < T; t++) _mm512_mask_storeu_ps(y + t * ldy, rows, total[t]);
}

constexpr int most_panel_tokens = 12;  // products and totals of 12 tokens fill 24 of the 32 registers

template <int T = most_panel_tokens>
void panel_tokens(int tokens, const Panel& panel, int planes, int groups, const PanelActivations& x, bool add,
                  __mmask16 rows, float* y, std::size_t ldy) {
  if constexpr (T > 1)
    if (tokens < T) return panel_tokens<T - 1>(tokens, panel, planes, groups, x, add, rows, y, ldy);
  panel_tile<T>(panel, planes, groups, x, add, rows, y, ldy);
}

template <Storage S>
void panel_rows(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  const PreparedLayout layout = prepared_layout(S, w.cols);
  const auto* codes = static_cast<const std::uint8_t*>(w.data);
  const auto* prepared = static_cast<const char*>(x.prepared);
  const int tiles = (x.tokens + most_panel_tokens - 1) / most_panel_tokens;
  Panel panel;
  for (int r = row0; r < row1; r += panel_rows_count) {
    const int rows = row1 - r < panel_rows_count ? row1 - r : panel_rows_count;
    const auto mask = __mmask16((1u << rows) - 1);
    for (int g = 0; g < layout.groups; g += panel_groups) {
      const int groups = layout.groups - g < panel_groups ? layout.groups - g : panel_groups;
      const std::size_t first_group = std::size_t(r) * layout.groups + g;
      fill_panel<S>(codes + first_group * group_bytes(S), w.scales + first_group, rows, groups, layout.groups, panel);
      for (int tile = 0; tile < tiles; tile++) {
        const int begin = x.tokens * tile / tiles, end = x.tokens * (tile + 1) / tiles;
        const char* token = prepared + begin * layout.bytes;
        const PanelActivations part{token + std::size_t(g) * group_size, token + layout.scales_at + g * sizeof(float),
                                    token + layout.offsets_at + g * sizeof(std::int32_t), layout.bytes};
        panel_tokens(end - begin, panel, planes(S), groups, part, g > 0, mask, y + begin * ldy + r, ldy);
      }
    }
  }
}

constexpr int fewest_panel_tokens = 3;

template <Storage S>
void fast_rows(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  if (x.tokens < fewest_panel_tokens) rows_of_four<S>(w, row0, row1, x, y, ldy);
  else panel_rows<S>(w, row0, row1, x, y, ldy);
}
