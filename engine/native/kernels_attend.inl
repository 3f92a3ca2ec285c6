// Attention of some query heads over one key/value head, written once over the vector type of kernels_float.inl.
// One pass with a running maximum (Milakov & Gimelshein, "Online normalizer calculation for softmax", 2018).

template <class Element>
struct Ring {
  const KeyValues& kv;

  std::size_t slot(int i) const { return std::size_t((kv.first + i) % kv.capacity); }
  const Element* key(int i) const { return static_cast<const Element*>(kv.keys) + slot(i) * kv.key_stride; }
  const Element* value(int i) const { return static_cast<const Element*>(kv.values) + slot(i) * kv.value_stride; }
};

// Rows of other heads may lie between: too far apart for the processor to see the pattern.
constexpr int rows_ahead = 8;

template <class Element>
void prefetch_row(const Element* row, int dim) {
  for (int d = 0; d < dim; d += int(64 / sizeof(Element))) __builtin_prefetch(row + d);
}

// scores[h * attend_block] = scale * q[h] . key for H heads: the key is read once.
template <class Element, Vec (*load)(const Element*), int H>
void score_key(const Element* key, const float* q, int dim, float scale, float* scores) {
  Vec total[H];
  for (int h = 0; h < H; h++) total[h] = broadcast(0.0f);
  for_vectors(
      dim,
      [&](int d) {
        const Vec k = load(key + d);
        for (int h = 0; h < H; h++) total[h] = fma(k, load_f32(q + std::size_t(h) * dim + d), total[h]);
      },
      [&](int d, int rest) {
        const Vec k = load_first<load>(key + d, rest);
        for (int h = 0; h < H; h++)
          total[h] = fma(k, load_first<load_f32>(q + std::size_t(h) * dim + d, rest), total[h]);
      });
  for (int h = 0; h < H; h++) scores[h * attend_block] = scale * sum(total[h]);
}

// out[h][d..] = out * decay[h] + sum over the block of weights[h][i] * value i, for H heads and D vectors from d on: as
// many as a cache line of values has, so that each is fetched once a block.
template <class Element, Vec (*load)(const Element*), int H, int D>
void add_values(const Ring<Element>& ring, int begin, int end, int d, const float* weights, const float* decay,
                float* out) {
  const std::size_t dim = ring.kv.value_dim;
  Vec total[H][D];
  for (int h = 0; h < H; h++)
    for (int j = 0; j < D; j++)
      total[h][j] = multiply(load_f32(out + h * dim + d + j * width), broadcast(decay[h]));
  for (int i = begin; i < end; i++) {
    const Element* at = ring.value(i) + d;
    Vec value[D];
    for (int j = 0; j < D; j++) value[j] = load(at + j * width);
    for (int h = 0; h < H; h++) {
      const Vec weight = broadcast(weights[h * attend_block + i - begin]);
      for (int j = 0; j < D; j++) total[h][j] = fma(weight, value[j], total[h][j]);
    }
  }
  for (int h = 0; h < H; h++)
    for (int j = 0; j < D; j++) store_f32(out + h * dim + d + j * width, total[h][j]);
}

// The same for the last `rest` values, less than a vector.
template <class Element, Vec (*load)(const Element*), int H>
void add_last_values(const Ring<Element>& ring, int begin, int end, int d, int rest, const float* weights,
                     const float* decay, float* out) {
  for (int h = 0; h < H; h++) {
    float* at = out + std::size_t(h) * ring.kv.value_dim + d;
    Vec total = multiply(load_first<load_f32>(at, rest), broadcast(decay[h]));
    for (int i = begin; i < end; i++)
      total = fma(broadcast(weights[h * attend_block + i - begin]), load_first<load>(ring.value(i) + d, rest), total);
    store_first(at, total, rest);
  }
}

template <class Element, Vec (*load)(const Element*), int H>
void add_block(const Ring<Element>& ring, int begin, int end, const float* weights, const float* decay, float* out) {
  const int vectors = ring.kv.value_dim / width, rest = ring.kv.value_dim % width;
  for_tiles<2>(0, vectors, [&](auto count, int i) {
    add_values<Element, load, H, count.value>(ring, begin, end, i * width, weights, decay, out);
  });
  if (rest) add_last_values<Element, load, H>(ring, begin, end, vectors * width, rest, weights, decay, out);
}

// What a head has seen so far: the largest score, and the sum of exp(score - largest).
struct Running {
  float largest, total;
};

// Turns a block's scores into weights; how much what was summed before must shrink.
float weigh_block(float* scores, int n, Running& running) {
  const float before = running.largest;
  const float found = largest_of(scores, n);
  if (found > before) running.largest = found;
  const float decay = before == -__builtin_inff() ? 0.0f : __builtin_expf(before - running.largest);
  running.total = running.total * decay + exponentials(scores, running.largest, n);
  return decay;
}

template <class Element, Vec (*load)(const Element*), int H>
void attend_tile(const float* q, const KeyValues& kv, float scale, float* scores, float* out) {
  const Ring<Element> ring{kv};
  Running running[H];
  for (Running& head : running) head = {-__builtin_inff(), 0.0f};
  for (int i = 0; i < H * kv.value_dim; i++) out[i] = 0.0f;

  int end;
  for (int begin = 0; begin < kv.count; begin = end) {
    end = begin + attend_block - int((kv.first_position + begin) % attend_block);
    if (end > kv.count) end = kv.count;
    for (int i = begin; i < end; i++) {
      prefetch_row(ring.key(i + rows_ahead), kv.key_dim);
      prefetch_row(ring.value(i), kv.value_dim);
      score_key<Element, load, H>(ring.key(i), q, kv.key_dim, scale, scores + (i - begin));
    }
    float decay[H];
    for (int h = 0; h < H; h++) decay[h] = weigh_block(scores + h * attend_block, end - begin, running[h]);
    add_block<Element, load, H>(ring, begin, end, scores, decay, out);
  }
  for (int h = 0; h < H; h++)
    scale_by(out + std::size_t(h) * kv.value_dim, 1.0f / running[h].total, kv.value_dim);
}

template <class Element, Vec (*load)(const Element*)>
void attend_heads(const float* q, int heads, const KeyValues& kv, float scale, float* scratch, float* out) {
  for_tiles<head_tile>(0, heads, [&](auto count, int h) {
    attend_tile<Element, load, count.value>(q + std::size_t(h) * kv.key_dim, kv, scale, scratch,
                                            out + std::size_t(h) * kv.value_dim);
  });
}

void attend(const float* q, int heads, const KeyValues& kv, float scale, float* scratch, float* out) {
  if (kv.half) attend_heads<std::uint16_t, load_f16>(q, heads, kv, scale, scratch, out);
  else attend_heads<float, load_f32>(q, heads, kv, scale, scratch, out);
}
