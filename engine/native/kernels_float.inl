// Float kernels, written once over a vector type. A kernel set includes this inside its anonymous namespace after
// defining, for its instruction set: `Vec`, `width` (lanes, dividing 64), the powers of two row_tile and token_tile
// (what a product keeps in registers at a time), load_f32/f16/bf16, store_f32/f16,
// broadcast, add, multiply, divide, minimum, maximum, fma(a, b, c) = a * b + c, sum and largest (over lanes, in a fixed tree),
// exponential, scale_of (an f16 scale) and decode<storage>(group, j): weights j .. j + width of a group's codes, minus
// the middle code.
//
// Every function sums in an order that depends on lengths alone, never on how many rows, tokens or heads come along.

// The first n lanes, the rest zero.
template <Vec (*load)(const float*)>
Vec load_first(const float* x, int n) {
  float lanes[width] = {};
  for (int i = 0; i < n; i++) lanes[i] = x[i];
  return load(lanes);
}

template <Vec (*load)(const std::uint16_t*)>
Vec load_first(const std::uint16_t* x, int n) {
  std::uint16_t lanes[width] = {};
  for (int i = 0; i < n; i++) lanes[i] = x[i];
  return load(lanes);
}

void store_first(float* x, Vec v, int n) {
  float lanes[width];
  store_f32(lanes, v);
  for (int i = 0; i < n; i++) x[i] = lanes[i];
}

// Calls full(i) for each whole vector of 0..n and last(i, rest) for what remains.
template <class Full, class Last>
void for_vectors(int n, Full full, Last last) {
  int i = 0;
  for (; i + width <= n; i += width) full(i);
  if (i < n) last(i, n - i);
}

float dot(const float* a, const float* b, int n) {
  Vec total = broadcast(0.0f);
  for_vectors(
      n, [&](int i) { total = fma(load_f32(a + i), load_f32(b + i), total); },
      [&](int i, int rest) {
        total = fma(load_first<load_f32>(a + i, rest), load_first<load_f32>(b + i, rest), total);
      });
  return sum(total);
}

void rms_norm(const float* x, const float* weight, float epsilon, int n, float* y) {
  const float scale = 1.0f / __builtin_sqrtf(dot(x, x, n) / float(n) + epsilon);
  for_vectors(
      n,
      [&](int i) { store_f32(y + i, multiply(multiply(load_f32(x + i), broadcast(scale)), load_f32(weight + i))); },
      [&](int i, int rest) {
        for (int j = i; j < i + rest; j++) y[j] = x[j] * scale * weight[j];
      });
}

void add_scaled(const float* x, float scale, int n, float* y) {
  const Vec factor = broadcast(scale);
  for_vectors(
      n, [&](int i) { store_f32(y + i, fma(load_f32(x + i), factor, load_f32(y + i))); },
      [&](int i, int rest) {
        store_first(y + i, fma(load_first<load_f32>(x + i, rest), factor, load_first<load_f32>(y + i, rest)), rest);
      });
}

Vec silu(Vec x) {
  return divide(x, add(broadcast(1.0f), exponential(multiply(x, broadcast(-1.0f)))));
}

void silu_multiply(const float* gate, const float* up, int n, float* y) {
  for_vectors(
      n, [&](int i) { store_f32(y + i, multiply(silu(load_f32(gate + i)), load_f32(up + i))); },
      [&](int i, int rest) {
        const Vec product = multiply(silu(load_first<load_f32>(gate + i, rest)), load_first<load_f32>(up + i, rest));
        store_first(y + i, product, rest);
      });
}

// A NaN stays one: it is the second operand.
Vec clamp_and_gate(Vec gate, Vec up, ClampedSwiglu kind) {
  const Vec g = minimum(broadcast(kind.limit), gate);
  const Vec u = maximum(broadcast(-kind.limit), minimum(broadcast(kind.limit), up));
  const Vec gated = divide(g, add(broadcast(1.0f), exponential(multiply(g, broadcast(-kind.alpha)))));
  return multiply(gated, add(u, broadcast(1.0f)));
}

void clamped_swiglu(const float* gate, const float* up, ClampedSwiglu kind, int n, float* y) {
  for_vectors(
      n, [&](int i) { store_f32(y + i, clamp_and_gate(load_f32(gate + i), load_f32(up + i), kind)); },
      [&](int i, int rest) {
        store_first(y + i, clamp_and_gate(load_first<load_f32>(gate + i, rest), load_first<load_f32>(up + i, rest), kind), rest);
      });
}

float largest_of(const float* x, int n) {
  Vec found = broadcast(-__builtin_inff());
  int i = 0;
  for (; i + width <= n; i += width) found = maximum(found, load_f32(x + i));
  float result = largest(found);
  for (; i < n; i++) result = x[i] > result ? x[i] : result;
  return result;
}

// x = exp(x - shift); the sum of what was written.
float exponentials(float* x, float shift, int n) {
  const Vec minus_shift = broadcast(-shift);
  Vec total = broadcast(0.0f);
  for_vectors(
      n,
      [&](int i) {
        const Vec e = exponential(add(load_f32(x + i), minus_shift));
        store_f32(x + i, e);
        total = add(total, e);
      },
      [&](int i, int rest) {
        store_first(x + i, exponential(add(load_first<load_f32>(x + i, rest), minus_shift)), rest);
        total = add(total, load_first<load_f32>(x + i, rest));
      });
  return sum(total);
}

void scale_by(float* x, float factor, int n) {
  for (int i = 0; i < n; i++) x[i] *= factor;
}

void softmax(float* x, int n) {
  if (n <= 0) return;
  const float total = exponentials(x, largest_of(x, n), n);
  scale_by(x, 1.0f / total, n);
}

void to_half(const float* x, int n, std::uint16_t* out) {
  for_vectors(
      n, [&](int i) { store_f16(out + i, load_f32(x + i)); },
      [&](int i, int rest) {
        std::uint16_t lanes[width];
        store_f16(lanes, load_first<load_f32>(x + i, rest));
        for (int j = 0; j < rest; j++) out[i + j] = lanes[j];
      });
}

// ---- products with float32 activations ----

// Of weights that are streamed: further ahead than the processor goes by itself, into the second-level cache.
template <class Element>
void prefetch_ahead(const Element* weights) {
  constexpr std::size_t bytes = 4096, step = 2 * width * sizeof(Element);
  for (std::size_t at = bytes; at < bytes + step; at += 64) __builtin_prefetch(reinterpret_cast<const char*>(weights) + at, 0, 2);
}

// y[t * ldy + r] for R rows of plain elements and T tokens. Two sums each, over even and odd vectors.
template <class Element, Vec (*load)(const Element*), int R, int T>
void plain_tile(const Element* w, int cols, const float* x, std::size_t stride, float* y, std::size_t ldy) {
  Vec even[R][T], odd[R][T];
  for (int r = 0; r < R; r++)
    for (int t = 0; t < T; t++) even[r][t] = odd[r][t] = broadcast(0.0f);
  const auto multiply_vectors = [&](int k, Vec(&sums)[R][T]) {
    Vec row[R];
    for (int r = 0; r < R; r++) row[r] = load(w + std::size_t(r) * cols + k);
    for (int t = 0; t < T; t++) {
      const Vec token = load_f32(x + t * stride + k);
      for (int r = 0; r < R; r++) sums[r][t] = fma(row[r], token, sums[r][t]);
    }
  };
  int k = 0;
  for (; k + 2 * width <= cols; k += 2 * width) {
    if constexpr (T == 1) prefetch_ahead(w + k);
    multiply_vectors(k, even);
    multiply_vectors(k + width, odd);
  }
  for (; k < cols; k += width) {
    const int rest = cols - k < width ? cols - k : width;
    for (int t = 0; t < T; t++) {
      const Vec token = load_first<load_f32>(x + t * stride + k, rest);
      for (int r = 0; r < R; r++)
        even[r][t] = fma(load_first<load>(w + std::size_t(r) * cols + k, rest), token, even[r][t]);
    }
  }
  for (int r = 0; r < R; r++)
    for (int t = 0; t < T; t++) y[t * ldy + r] = sum(add(even[r][t], odd[r][t]));
}

constexpr float float_divisor(Storage s) { return s == Storage::q8 ? 127.0f : s == Storage::q4 ? 7.5f : 1.5f; }

// The same for rows that are whole groups of codes: each group's sum is scaled as it is complete.
template <Storage S, int R, int T>
void group_tile(const std::uint8_t* codes, const std::uint16_t* scales, int groups, const float* x,
                std::size_t stride, float* y, std::size_t ldy) {
  const std::size_t row_bytes = std::size_t(groups) * group_bytes(S);
  Vec total[R][T];
  for (int r = 0; r < R; r++)
    for (int t = 0; t < T; t++) total[r][t] = broadcast(0.0f);
  for (int g = 0; g < groups; g++) {
    Vec group[R][T];
    for (int r = 0; r < R; r++)
      for (int t = 0; t < T; t++) group[r][t] = broadcast(0.0f);
    for (int j = 0; j < group_size; j += width) {
      Vec row[R];
      for (int r = 0; r < R; r++) row[r] = decode<S>(codes + r * row_bytes + g * group_bytes(S), j);
      for (int t = 0; t < T; t++) {
        const Vec token = load_f32(x + t * stride + g * group_size + j);
        for (int r = 0; r < R; r++) group[r][t] = fma(row[r], token, group[r][t]);
      }
    }
    for (int r = 0; r < R; r++) {
      const Vec scale = broadcast(scale_of(scales[std::size_t(r) * groups + g]) / float_divisor(S));
      for (int t = 0; t < T; t++) total[r][t] = fma(group[r][t], scale, total[r][t]);
    }
  }
  for (int r = 0; r < R; r++)
    for (int t = 0; t < T; t++) y[t * ldy + r] = sum(total[r][t]);
}

// One weight of a matrix whose groups and bytes need not begin with its rows.
template <Storage S>
float weight_at(const Matrix& w, std::size_t index) {
  constexpr int bits = 8 / planes(S);
  const std::uint8_t byte = static_cast<const std::uint8_t*>(w.data)[index / planes(S)];
  const int code = byte >> (index % planes(S) * bits) & ((1 << bits) - 1);
  const float middle = S == Storage::q8 ? 128.0f : float_divisor(S);
  return (float(code) - middle) * (scale_of(w.scales[index / group_size]) / float_divisor(S));
}

template <Storage S>
void straddling_row(const Matrix& w, int row, const Activations& x, float* y, std::size_t ldy) {
  for (int t = 0; t < x.tokens; t++) y[t * ldy] = 0.0f;
  for (int k = 0; k < w.cols; k += group_size) {
    const int n = w.cols - k < group_size ? w.cols - k : group_size;
    float weights[group_size];
    for (int i = 0; i < n; i++) weights[i] = weight_at<S>(w, std::size_t(row) * w.cols + k + i);
    for (int t = 0; t < x.tokens; t++) y[t * ldy] += dot(weights, x.x + t * x.stride + k, n);
  }
}

template <int N>
struct Size {
  static constexpr int value = N;
};

// Calls part(size, first) for tiles of Most, Most / 2, ... and 1 that make up [begin, end).
template <int Most, class Part>
void for_tiles(int begin, int end, Part part) {
  for (; begin + Most <= end; begin += Most) part(Size<Most>{}, begin);
  if constexpr (Most > 1) for_tiles<Most / 2>(begin, end, part);
}

// Calls part(rows, first row, tokens, first token) for tiles that make up rows [row0, row1) of all tokens. A single
// token takes row after row: one stream of weights is what memory delivers fastest.
template <class Part>
void for_row_and_token_tiles(int row0, int row1, int tokens, Part part) {
  for_tiles<token_tile>(0, tokens, [&](auto token_count, int t) {
    constexpr int rows = token_count.value == 1 ? 1 : row_tile;
    for_tiles<rows>(row0, row1, [&](auto row_count, int r) { part(row_count, r, token_count, t); });
  });
}

template <class Element, Vec (*load)(const Element*)>
void plain_rows(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  const auto* elements = static_cast<const Element*>(w.data);
  for_row_and_token_tiles(row0, row1, x.tokens, [&](auto rows, int r, auto tokens, int t) {
    plain_tile<Element, load, rows.value, tokens.value>(elements + std::size_t(r) * w.cols, w.cols,
                                                        x.x + t * x.stride, x.stride, y + t * ldy + r, ldy);
  });
}

template <Storage S>
void group_rows(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  if (w.cols % group_size) {
    for (int r = row0; r < row1; r++) straddling_row<S>(w, r, x, y + r, ldy);
    return;
  }
  const int groups = w.cols / group_size;
  const auto* codes = static_cast<const std::uint8_t*>(w.data);
  for_row_and_token_tiles(row0, row1, x.tokens, [&](auto rows, int r, auto tokens, int t) {
    group_tile<S, rows.value, tokens.value>(codes + std::size_t(r) * groups * group_bytes(S),
                                            w.scales + std::size_t(r) * groups, groups, x.x + t * x.stride, x.stride,
                                            y + t * ldy + r, ldy);
  });
}

void f32_product(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  switch (w.storage) {
    case Storage::f32: return plain_rows<float, load_f32>(w, row0, row1, x, y, ldy);
    case Storage::f16: return plain_rows<std::uint16_t, load_f16>(w, row0, row1, x, y, ldy);
    case Storage::bf16: return plain_rows<std::uint16_t, load_bf16>(w, row0, row1, x, y, ldy);
    case Storage::q8: return group_rows<Storage::q8>(w, row0, row1, x, y, ldy);
    case Storage::q4: return group_rows<Storage::q4>(w, row0, row1, x, y, ldy);
    case Storage::q2: return group_rows<Storage::q2>(w, row0, row1, x, y, ldy);
  }
}

// ---- one row as floats ----

template <class Element, Vec (*load)(const Element*)>
void plain_to_float(const Matrix& w, int row, float* out) {
  const Element* elements = static_cast<const Element*>(w.data) + std::size_t(row) * w.cols;
  for_vectors(
      w.cols, [&](int i) { store_f32(out + i, load(elements + i)); },
      [&](int i, int rest) { store_first(out + i, load_first<load>(elements + i, rest), rest); });
}

template <Storage S>
void codes_to_float(const Matrix& w, int row, float* out) {
  if (w.cols % group_size) {
    for (int k = 0; k < w.cols; k++) out[k] = weight_at<S>(w, std::size_t(row) * w.cols + k);
    return;
  }
  const std::size_t first = std::size_t(row) * w.cols / group_size;  // group
  const auto* codes = static_cast<const std::uint8_t*>(w.data) + first * group_bytes(S);
  for (int g = 0; g < w.cols / group_size; g++) {
    const Vec scale = broadcast(scale_of(w.scales[first + g]) / float_divisor(S));
    for (int j = 0; j < group_size; j += width)
      store_f32(out + g * group_size + j, multiply(decode<S>(codes + g * group_bytes(S), j), scale));
  }
}

void dequantize_row(const Matrix& w, int row, float* out) {
  switch (w.storage) {
    case Storage::f32: return plain_to_float<float, load_f32>(w, row, out);
    case Storage::f16: return plain_to_float<std::uint16_t, load_f16>(w, row, out);
    case Storage::bf16: return plain_to_float<std::uint16_t, load_bf16>(w, row, out);
    case Storage::q8: return codes_to_float<Storage::q8>(w, row, out);
    case Storage::q4: return codes_to_float<Storage::q4>(w, row, out);
    case Storage::q2: return codes_to_float<Storage::q2>(w, row, out);
  }
}
