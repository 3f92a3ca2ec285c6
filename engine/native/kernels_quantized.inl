// Quantized activations: preparing them (kernels_prepared.h), written once over the vector type of kernels_float.inl,
// and the choice between the numerics. The set defines round_to_codes(Vec, int8_t* or int16_t*) (to nearest even,
// saturated), `order` of its 16-bit codes, and integer_rows<storage, numerics>(w, row0, row1, x, y, ldy).

template <Numerics N>
struct CodeType {
  using Type = std::int8_t;
};
template <>
struct CodeType<Numerics::i16> {
  using Type = std::int16_t;
};
template <Numerics N>
using Code = typename CodeType<N>::Type;

float largest_magnitude(const float* x) {
  Vec found = broadcast(0.0f);
  for (int j = 0; j < group_size; j += width) {
    const Vec v = load_f32(x + j);
    found = maximum(found, maximum(v, multiply(v, broadcast(-1.0f))));
  }
  return largest(found);
}

// q = round(x / a) with a = largest / largest_code; returns a. Too small to divide by: all zero.
template <Numerics N>
float quantize_group(const float* x, Code<N>* q) {
  const float magnitude = largest_magnitude(x);
  const bool vanishes = magnitude < 1e-30f;
  const Vec steps = broadcast(vanishes ? 0.0f : largest_code(N) / magnitude);
  for (int j = 0; j < group_size; j += width) round_to_codes(multiply(load_f32(x + j), steps), q + j);
  return vanishes ? 0.0f : magnitude / largest_code(N);
}

template <Storage S>
void separate_planes(const std::int8_t* q, std::int8_t* out) {
  for (int p = 0; p < planes(S); p++)
    for (int b = 0; b < unit_bytes; b++) out[p * unit_bytes + b] = q[b * planes(S) + p];
}

template <Storage S>
void separate_planes(const std::int16_t* q, std::int8_t* out) {
  if constexpr (order == Order::words) {
    constexpr int word_planes = 2 * planes(S), words = unit_bytes / 2;
    std::int16_t plane[words];
    for (int p = 0; p < word_planes; p++) {
      for (int b = 0; b < words; b++) plane[b] = q[b * word_planes + p];
      __builtin_memcpy(out + p * unit_bytes, plane, sizeof plane);
    }
  } else {
    constexpr int n = unit_bytes * planes(S);
    std::int8_t high[n], low[n];
    for (int i = 0; i < n; i++) {
      low[i] = std::int8_t(q[i]);
      high[i] = std::int8_t((q[i] - low[i]) >> 8);
    }
    separate_planes<S>(high, out);
    separate_planes<S>(low, out + n);
  }
}

template <Storage S, Numerics N>
void prepare_row(const float* x, const PreparedLayout& layout, char* out) {
  auto* codes = reinterpret_cast<std::int8_t*>(out);
  auto* scales = reinterpret_cast<float*>(out + layout.scales_at);
  auto* offsets = reinterpret_cast<std::int32_t*>(out + layout.offsets_at);
  for (int u = 0; u < layout.units; u++) {
    Code<N> q[unit_bytes * planes(S)] = {};
    for (int g = u * planes(S); g < (u + 1) * planes(S) && g < layout.groups; g++) {
      Code<N>* group = q + (g - u * planes(S)) * group_size;
      scales[g] = quantize_group<N>(x + g * group_size, group) / code_divisor(S);
      int total = 0;
      for (int j = 0; j < group_size; j++) total += group[j];
      offsets[g] = -code_offset(S) * total;
    }
    separate_planes<S>(q, codes + std::size_t(u) * sizeof q);
  }
  for (int g = layout.groups; g < layout.padded_groups; g++) {
    scales[g] = 0.0f;
    offsets[g] = 0;
  }
}

std::size_t prepared_bytes(Storage weights, Numerics numerics, int cols) {
  return has_integer_product(weights, numerics, cols) ? prepared_layout(weights, numerics, cols).bytes : 0;
}

void prepare(Storage weights, Numerics numerics, const float* x, std::size_t stride, int tokens, int cols, void* out) {
  if (!has_integer_product(weights, numerics, cols)) return;
  const PreparedLayout layout = prepared_layout(weights, numerics, cols);
  with_forms(weights, numerics, [&]<Storage S, Numerics N>() {
    for (int t = 0; t < tokens; t++) prepare_row<S, N>(x + t * stride, layout, static_cast<char*>(out) + t * layout.bytes);
  });
}

void matmul(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  if (!x.prepared || !has_integer_product(w.storage, x.numerics, w.cols)) return f32_product(w, row0, row1, x, y, ldy);
  with_forms(w.storage, x.numerics,
             [&]<Storage S, Numerics N>() { integer_rows<S, N>(w, row0, row1, x, y, ldy); });
}

constexpr Kernels table(const char* name) {
  return {name, prepared_bytes, prepare,        matmul,       rms_norm, silu_multiply, clamped_swiglu,
          add_scaled, dot,      float_product, softmax, dequantize_row, quantize_row, to_half,  attend};
}
