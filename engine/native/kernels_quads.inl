// Integer products for sets with short vectors: four rows at a time, four groups at a time. The set defines `Quad` (four
// floats), quad_zero, quad_fma, quad_store, transpose_quads(Quad[4]), quad_scales(scales, n) and
// quad_products<storage, numerics>(codes, n, x, g): float(D) * (a / d) for n <= 4 groups from g on, zeros beyond, reading no code
// after them.

constexpr int codes_ahead = 2560;  // bytes; four rows' distance, which is often 4096 and its multiples, was slower

// Into the second-level cache: the processor's own prefetching loses its way among four short rows.
template <Storage S>
void prefetch_groups(const std::uint8_t* codes) {
  for (int byte = 0; byte < 4 * group_bytes(S); byte += 64) __builtin_prefetch(codes + byte, 0, 2);
}

// Four rows' sums with n <= 4 groups added, from group g of `groups` on. `rows` of them exist; the others repeat the last.
template <Storage S, Numerics N>
[[gnu::always_inline]] inline Quad add_groups(const std::uint8_t* codes, const std::uint16_t* scales, int rows, int groups, int g, int n,
                                              const PreparedRow& x, Quad total) {
  Quad product[4], scale[4];
  for (int i = 0; i < 4; i++) {
    const std::size_t at = std::size_t(i < rows ? i : rows - 1) * groups + g;
    prefetch_groups<S>(codes + at * group_bytes(S) + codes_ahead);
    product[i] = quad_products<S, N>(codes + at * group_bytes(S), n, x, g);
    scale[i] = quad_scales(scales + at, n);
  }
  transpose_quads(product);
  transpose_quads(scale);
  for (int i = 0; i < n; i++) total = quad_fma(product[i], scale[i], total);
  return total;
}

// Sums of four rows for one token.
template <Storage S, Numerics N>
void four_rows(const std::uint8_t* codes, const std::uint16_t* scales, int rows, int groups, const PreparedRow& x,
               float* y) {
  Quad total = quad_zero();
  int g = 0;
  for (; g + 4 <= groups; g += 4) total = add_groups<S, N>(codes, scales, rows, groups, g, 4, x, total);
  if (g < groups) total = add_groups<S, N>(codes, scales, rows, groups, g, groups - g, x, total);
  float sums[4];
  quad_store(sums, total);
  for (int i = 0; i < rows; i++) y[i] = sums[i];
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
