// Fast numerics: preparing activations (kernels_prepared.h), written once over the vector type of kernels_float.inl
// and `round_to_int8(Vec, int8_t*)` (to nearest even, saturated), and the choice between the two numerics. The set
// defines fast_rows<storage>(w, row0, row1, x, y, ldy).

float largest_magnitude(const float* x) {
  Vec found = broadcast(0.0f);
  for (int j = 0; j < group_size; j += width) {
    const Vec v = load_f32(x + j);
    found = maximum(found, maximum(v, multiply(v, broadcast(-1.0f))));
  }
  return largest(found);
}

// q = round(x / a) with a = largest / 127; returns a. Too small to divide by: all zero.
float quantize_group(const float* x, std::int8_t* q) {
  const float magnitude = largest_magnitude(x);
  const bool vanishes = magnitude < 1e-30f;
  const Vec steps = broadcast(vanishes ? 0.0f : 127.0f / magnitude);
  for (int j = 0; j < group_size; j += width) round_to_int8(multiply(load_f32(x + j), steps), q + j);
  return vanishes ? 0.0f : magnitude / 127.0f;
}

template <Storage S>
void separate_planes(const std::int8_t* q, std::int8_t* out) {
  for (int p = 0; p < planes(S); p++)
    for (int b = 0; b < unit_bytes; b++) out[p * unit_bytes + b] = q[b * planes(S) + p];
}

template <Storage S>
void prepare_row(const float* x, const PreparedLayout& layout, char* out) {
  auto* codes = reinterpret_cast<std::int8_t*>(out);
  auto* scales = reinterpret_cast<float*>(out + layout.scales_at);
  auto* offsets = reinterpret_cast<std::int32_t*>(out + layout.offsets_at);
  for (int u = 0; u < layout.units; u++) {
    std::int8_t q[unit_bytes * planes(S)] = {};
    for (int g = u * planes(S); g < (u + 1) * planes(S) && g < layout.groups; g++) {
      std::int8_t* group = q + (g - u * planes(S)) * group_size;
      scales[g] = quantize_group(x + g * group_size, group) / code_divisor(S);
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

std::size_t prepared_bytes(Storage weights, int cols) {
  return has_fast_product(weights, cols) ? prepared_layout(weights, cols).bytes : 0;
}

template <Storage S>
void prepare_rows(const float* x, std::size_t stride, int tokens, int cols, char* out) {
  const PreparedLayout layout = prepared_layout(S, cols);
  for (int t = 0; t < tokens; t++) prepare_row<S>(x + t * stride, layout, out + t * layout.bytes);
}

void prepare(Storage weights, const float* x, std::size_t stride, int tokens, int cols, void* out) {
  if (!has_fast_product(weights, cols)) return;
  auto* bytes = static_cast<char*>(out);
  if (weights == Storage::q8) prepare_rows<Storage::q8>(x, stride, tokens, cols, bytes);
  else if (weights == Storage::q4) prepare_rows<Storage::q4>(x, stride, tokens, cols, bytes);
  else prepare_rows<Storage::q2>(x, stride, tokens, cols, bytes);
}

void matmul(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  if (!x.prepared || !has_fast_product(w.storage, w.cols)) return exact_product(w, row0, row1, x, y, ldy);
  if (w.storage == Storage::q8) fast_rows<Storage::q8>(w, row0, row1, x, y, ldy);
  else if (w.storage == Storage::q4) fast_rows<Storage::q4>(w, row0, row1, x, y, ldy);
  else fast_rows<Storage::q2>(w, row0, row1, x, y, ldy);
}

constexpr Kernels table(const char* name) {
  return {name,          prepared_bytes, prepare, matmul,         rms_norm, silu_multiply, add_scaled,
          dot,           softmax,        dequantize_row, to_half, attend};
}
