// Integer products of the AVX-512 set for one or two tokens: rows_of_four streams weights once, as memory delivers
// them. kernels_prepared.h tells the layout and the arithmetic.

// Adds the products of a unit's codes with `planes` planes of activations from q on.
template <Storage S, int P = 0>
__m512i add_planes(__m512i total, __m512i bytes, const std::int8_t* q) {
  total = _mm512_dpbusd_epi32(total, plane<S, P>(bytes), load_codes(q + P * unit_bytes));
  if constexpr (P + 1 < planes(S)) return add_planes<S, P + 1>(total, bytes, q);
  else return total;
}

// A unit's sums over raw codes, spread over lanes: group h of the unit has lanes h * 16 / planes and following.
template <Storage S, Numerics N>
__m512i unit_product(__m512i bytes, const std::int8_t* q) {
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

// A unit's codes, and those `ahead` of them into the second-level cache, which has more reads under way than the first: the
// processor's own prefetching loses its way among four short rows. One at a time, for a burst of them waits for itself.
template <class Load>
__m512i streamed(const std::uint8_t* codes, std::size_t ahead, Load load) {
  _mm_prefetch(codes + ahead, _MM_HINT_T1);
  return load(codes);
}

// float(D) * (a / d) for 16 groups of a row from group g on; `bytes` of codes are left in the row.
template <Storage S, Numerics N>
__m512 scaled_products(const std::uint8_t* codes, int bytes, std::size_t ahead, const PreparedRow& x, int g) {
  constexpr int units = 16 / planes(S);
  constexpr int unit_codes = unit_bytes * code_planes(S, N);
  const std::int8_t* q = x.codes + group_at<S, N>(g);
  __m512i unit[units];
  if (bytes >= units * unit_bytes) {
    for (int u = 0; u < units; u++)
      unit[u] = unit_product<S, N>(streamed(codes + u * unit_bytes, ahead, load_codes), q + u * unit_codes);
  } else {
    for (int u = 0; u < units; u++) {
      const int left = bytes - u * unit_bytes;
      const auto load = [&](const std::uint8_t* from) { return load_rest(from, left); };
      unit[u] = left > 0 ? unit_product<S, N>(streamed(codes + u * unit_bytes, ahead, load), q + u * unit_codes)
                         : _mm512_setzero_si512();
    }
  }
  const __m512i products = _mm512_add_epi32(group_sums<S>(unit), load_codes(x.offsets + g));
  return _mm512_mul_ps(_mm512_cvtepi32_ps(products), _mm512_loadu_ps(x.scales + g));
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

// Sums of four rows for one token. `rows` of them exist; the others repeat the last.
template <Storage S, Numerics N>
void four_rows(const std::uint8_t* codes, const std::uint16_t* scales, int rows, int groups, const PreparedRow& x,
               float* y) {
  const std::size_t row_bytes = std::size_t(groups) * group_bytes(S);
  __m128 total = _mm_setzero_ps();
  for (int g = 0; g < groups; g += 16) {
    const int n = groups - g < 16 ? groups - g : 16;
    __m512 product[4], scale[4];
    for (int i = 0; i < 4; i++) {
      const int row = i < rows ? i : rows - 1;
      product[i] = scaled_products<S, N>(codes + row * row_bytes + g * group_bytes(S), (groups - g) * group_bytes(S),
                                         4 * row_bytes, x, g);
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
