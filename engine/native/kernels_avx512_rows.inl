// Integer products of the AVX-512 set for one or two tokens: rows_of_four streams weights once, as memory delivers
// them. kernels_prepared.h tells the layout and the arithmetic.

// Of code bytes: how far ahead of its use a line is asked for. Less comes late; 4096, the distance of four rows of 2048
// 4-bit codes, and its multiples were slower by a tenth. Into the second-level cache, which has more reads under way
// than the first.
constexpr std::size_t codes_ahead = 2560;
constexpr int scale_rows_ahead = 8;

// Adds the products of a unit's codes, which are not doubled, with `planes` planes of activations from q on.
template <Storage S, int P = 0>
[[gnu::always_inline]] inline __m512i add_planes(__m512i total, __m512i bytes, const std::int8_t* q) {
  total = _mm512_dpbusd_epi32(total, raw_plane<S, P>(bytes), load_codes(q + P * unit_bytes));
  if constexpr (P + 1 < planes(S)) return add_planes<S, P + 1>(total, bytes, q);
  else return total;
}

// A unit's sums over raw codes, spread over lanes: group h of the unit has lanes h * 16 / planes and following.
template <Storage S, Numerics N>
[[gnu::always_inline]] inline __m512i unit_product(__m512i bytes, const std::int8_t* q) {
  const __m512i total = add_planes<S>(_mm512_setzero_si512(), bytes, q);
  if constexpr (N == Numerics::i8) return total;
  return add_planes<S>(_mm512_slli_epi32(total, 8), bytes, q + planes(S) * unit_bytes);
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

// Whether a row has all 16 groups that are computed at a time; else its bytes are counted.
enum class Left : std::uint8_t { all, some };

// Of four units: each 128-bit lane has that lane's sums of them. Added up at once, so that they stay in registers.
template <Storage S, Numerics N, Left L>
[[gnu::always_inline]] inline __m512i four_products(const std::uint8_t* codes, int bytes, const std::int8_t* q) {
  __m512i unit[4];
  for (int u = 0; u < 4; u++, codes += unit_bytes, bytes -= unit_bytes, q += unit_bytes * code_planes(S, N)) {
    _mm_prefetch(codes + codes_ahead, _MM_HINT_T1);
    if constexpr (L == Left::all) unit[u] = unit_product<S, N>(load_codes(codes), q);
    else unit[u] = bytes > 0 ? unit_product<S, N>(load_rest(codes, bytes), q) : _mm512_setzero_si512();
  }
  return sum_lanes(unit[0], unit[1], unit[2], unit[3]);
}

// The sums of 16 groups in order.
template <Storage S, Numerics N, Left L>
[[gnu::always_inline]] inline __m512i group_sums(const std::uint8_t* codes, int bytes, const std::int8_t* q) {
  constexpr int four_units = 4 * unit_bytes, four_unit_codes = four_units * code_planes(S, N);
  const auto four = [&](int i) __attribute__((always_inline)) {
    return four_products<S, N, L>(codes + i * four_units, bytes - i * four_units, q + i * four_unit_codes);
  };
  if constexpr (S == Storage::q8) {
    const __m512i low = sum_neighbours(four(0), four(1));
    return sum_neighbours(low, sum_neighbours(four(2), four(3)));
  } else if constexpr (S == Storage::q4) {
    const __m512i order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    return _mm512_permutexvar_epi32(order, sum_neighbours(four(0), four(1)));
  } else {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, four(0));
  }
}

// float(D) * (a / d) for 16 groups of a row from group g on, of which `n` exist.
template <Storage S, Numerics N, Left L>
[[gnu::always_inline]] inline __m512 scaled_products(const std::uint8_t* codes, int n, const PreparedRow& x, int g) {
  const __m512i sums = group_sums<S, N, L>(codes, n * group_bytes(S), x.codes + group_at<S, N>(g));
  const __m512i products = _mm512_add_epi32(code_factor(S) == 1 ? sums : _mm512_add_epi32(sums, sums), load_codes(x.offsets + g));
  return _mm512_mul_ps(_mm512_cvtepi32_ps(products), _mm512_loadu_ps(x.scales + g));
}

// The same for groups g to g + n of a row, whose codes begin at `codes`.
template <Storage S, Numerics N>
[[gnu::always_inline]] inline void row_products(const std::uint8_t* codes, int n, const PreparedRow& x, int g, float* out) {
  int i = 0;
  for (; i + 16 <= n; i += 16)
    _mm512_store_ps(out + i, scaled_products<S, N, Left::all>(codes + i * group_bytes(S), 16, x, g + i));
  if (i < n) _mm512_store_ps(out + i, scaled_products<S, N, Left::some>(codes + i * group_bytes(S), n - i, x, g + i));
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

// total + product * scale, group after group, for each of four rows.
[[gnu::always_inline]] inline __m128 add_scaled_groups(const __m512* product, const __m512* scale, int n, __m128 total) {
  Quadruples products, factors;
  interleave(product, products);
  interleave(scale, factors);
  for (int i = 0; i < n; i++)
    total = _mm_fmadd_ps(_mm_load_ps(products.of[quadruple_of(i)]), _mm_load_ps(factors.of[quadruple_of(i)]), total);
  return total;
}

constexpr int span = 64;  // groups of a row that are read before the next row's: most rows have no more

// Sums of four rows for one token. `rows` of them exist; the others repeat the last. A row's codes are read one after the
// other, as the processor's own prefetching likes it, and meet the scales once four rows' products are there.
template <Storage S, Numerics N>
void four_rows(const std::uint8_t* codes, const std::uint16_t* scales, int rows, int groups, const PreparedRow& x, float* y) {
  const auto start = [&](int i) { return std::size_t(i < rows ? i : rows - 1) * std::size_t(groups); };
  __m128 total = _mm_setzero_ps();
  for (int g = 0; g < groups; g += span) {
    const int n = groups - g < span ? groups - g : span;
    alignas(64) float products[4][span];
    for (int i = 0; i < 4; i++) {
      const std::size_t at = start(i) + std::size_t(g);
      _mm_prefetch(scales + at + scale_rows_ahead * groups, _MM_HINT_T1);
      row_products<S, N>(codes + at * group_bytes(S), n, x, g, products[i]);
    }
    for (int h = 0; h < n; h += 16) {
      const int count = n - h < 16 ? n - h : 16;
      __m512 product[4], scale[4];
      for (int i = 0; i < 4; i++) {
        product[i] = _mm512_load_ps(products[i] + h);
        scale[i] = load_scales(scales + start(i) + g + h, count);
      }
      total = add_scaled_groups(product, scale, count, total);
    }
  }
  _mm_mask_storeu_ps(y, __mmask8((1u << rows) - 1), total);
}

template <Storage S, Numerics N>
void rows_of_four(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  const PreparedLayout layout = prepared_layout(S, N, w.cols);
  const auto* codes = static_cast<const std::uint8_t*>(w.data);
  for (int r = row0; r < row1; r += 4) {
    const int rows = row1 - r < 4 ? row1 - r : 4;
    for (int t = 0; t < x.tokens; t++)
      four_rows<S, N>(codes + std::size_t(r) * layout.groups * group_bytes(S), w.scales + std::size_t(r) * layout.groups,
                   rows, layout.groups, prepared_row(x.prepared, layout, t), y + t * ldy + r);
  }
}
