// Attention of queries over one key/value head, written once over the vector type of kernels_float.inl. The set defines
// transpose(Vec[width]): width rows of width lanes become columns; and attend_vectors, a power of two.
//
// One pass with a running maximum (Milakov & Gimelshein, "Online normalizer calculation for softmax", 2018), a block of
// positions at a time: its keys become floats in columns and its values floats in rows, once for all queries. Both
// products are then small matrix products that add up over dimensions, and over positions, strictly in order. What a query
// does not see has weight zero and adds nothing, so a query's bits do not depend on which others come along.

constexpr int attend_rows = 4;  // queries whose sums are in registers at a time, with attend_vectors vectors each

// c[m][..] = decay[m] * c[m][..] + sum over k of a[m][k] * b[k][..], for M rows and N vectors; no decay: c is 0 before.
template <int M, int N>
void product_tile(const float* a, std::size_t lda, const float* b, std::size_t ldb, int depth, const float* decay, float* c,
                  std::size_t ldc) {
  Vec total[M][N];
  for (int m = 0; m < M; m++)
    for (int n = 0; n < N; n++)
      total[m][n] = decay ? multiply(load_f32(c + m * ldc + n * width), broadcast(decay[m])) : broadcast(0.0f);
  for (int k = 0; k < depth; k++) {
    Vec row[N];
    for (int n = 0; n < N; n++) row[n] = load_f32(b + k * ldb + n * width);
    for (int m = 0; m < M; m++) {
      const Vec factor = broadcast(a[m * lda + k]);
      for (int n = 0; n < N; n++) total[m][n] = fma(factor, row[n], total[m][n]);
    }
  }
  for (int m = 0; m < M; m++)
    for (int n = 0; n < N; n++) store_f32(c + m * ldc + n * width, total[m][n]);
}

void product(int rows, int vectors, const float* a, std::size_t lda, const float* b, std::size_t ldb, int depth,
             const float* decay, float* c, std::size_t ldc) {
  for_tiles<attend_vectors>(0, vectors, [&](auto n, int v) {
    for_tiles<attend_rows>(0, rows, [&](auto m, int r) {
      product_tile<m.value, n.value>(a + r * lda, lda, b + v * width, ldb, depth, decay ? decay + r : nullptr,
                                     c + r * ldc + v * width, ldc);
    });
  });
}

void float_product(int rows, int columns, int depth, const float* a, std::size_t lda, const float* b, std::size_t ldb, float* c,
                   std::size_t ldc) {
  product(rows, columns / width, a, lda, b, ldb, depth, nullptr, c, ldc);
}

// The rows of a block's positions in the ring: null for those that nothing asks for.
template <class Element>
struct BlockRows {
  const Element* of[attend_block] = {};

  BlockRows(const void* elements, std::size_t stride, const KeyValues& kv, int begin, int end, int offset) {
    int slot = int((std::int64_t(kv.first) + begin) % kv.capacity);
    for (int i = offset; i < offset + end - begin; i++) {
      of[i] = static_cast<const Element*>(elements) + slot * stride;
      if (++slot == kv.capacity) slot = 0;
    }
  }
};

// The processor does not see the pattern of rows among those of other heads. Ahead by less than a block would be too late.
template <class Element>
void prefetch_rows(const BlockRows<Element>& rows, int dim) {
  for (const Element* row : rows.of)
    for (int d = 0; row && d < dim; d += int(64 / sizeof(Element))) __builtin_prefetch(row + d, 0, 2);
}

// columns[dim][attend_block]: keys side by side, zero where there is none.
template <class Element, Vec (*load)(const Element*)>
void load_keys(const BlockRows<Element>& rows, int dim, float* columns) {
  for (int i = 0; i < attend_block; i += width) {
    const Element* const* const row = rows.of + i;
    for_vectors(
        dim,
        [&](int d) {
          Vec v[width];
          for (int j = 0; j < width; j++) v[j] = row[j] ? load(row[j] + d) : broadcast(0.0f);
          transpose(v);
          for (int j = 0; j < width; j++) store_f32(columns + std::size_t(d + j) * attend_block + i, v[j]);
        },
        [&](int d, int rest) {
          Vec v[width];
          for (int j = 0; j < width; j++) v[j] = row[j] ? load_first<load>(row[j] + d, rest) : broadcast(0.0f);
          transpose(v);
          for (int j = 0; j < rest; j++) store_f32(columns + std::size_t(d + j) * attend_block + i, v[j]);
        });
  }
}

// out[attend_block][padded dim]; rows that nothing asks for stay as they are.
template <class Element, Vec (*load)(const Element*)>
void load_values(const BlockRows<Element>& rows, int dim, float* out) {
  for (int i = 0; i < attend_block; i++) {
    const Element* const row = rows.of[i];
    if (!row) continue;
    float* const to = out + i * attend_padded(dim);
    for_vectors(dim, [&](int d) { store_f32(to + d, load(row + d)); },
                [&](int d, int rest) { store_f32(to + d, load_first<load>(row + d, rest)); });
  }
}

// What a query has seen so far: the largest score, and the sum of exp(score - largest).
struct Running {
  float largest = -__builtin_inff(), total = 0.0f;
};

// Turns a block's scores into weights, of those in [begin, end) that the query sees; how much what was summed before
// must shrink.
float weigh_block(float* scores, int begin, int end, Running& running) {
  if (begin >= end) {
    for (int i = 0; i < attend_block; i++) scores[i] = 0.0f;
    return 1.0f;
  }
  for (int i = 0; i < begin; i++) scores[i] = -__builtin_inff();
  for (int i = end; i < attend_block; i++) scores[i] = -__builtin_inff();
  const float before = running.largest;
  const float found = largest_of(scores, attend_block);
  if (found > before) running.largest = found;
  const float decay = before == running.largest ? 1.0f : __builtin_expf(before - running.largest);
  running.total = running.total * decay + exponentials(scores, running.largest, attend_block);
  return decay;
}

// attend() of kernels.h, for elements of one kind.
template <class Element, auto load>
struct Attending {
  const Queries& queries;
  const KeyValues& kv;
  const AttendScratch& scratch;
  int count = queries.tokens * queries.heads;
  std::size_t padded = attend_padded(kv.value_dim);

  // Blocks are counted from absolute position 0, so that the order of summation depends on positions alone.
  void run(float scale) {
    copy_queries(scale);
    Running* const running = reinterpret_cast<Running*>(scratch.running);
    for (int i = 0; i < count; i++) running[i] = before_any(i);
    for (std::size_t i = 0; i < count * padded; i++) scratch.out[i] = 0.0f;
    int end;
    for (int begin = 0; begin < kv.count; begin = end) {
      const int offset = int((kv.first_position + begin) % attend_block);
      end = begin + attend_block - offset < kv.count ? begin + attend_block - offset : kv.count;
      load_block(begin, end, offset);
      product(count, attend_block / width, scratch.q, kv.key_dim, scratch.keys, attend_block, kv.key_dim, nullptr,
              scratch.scores, attend_block);
      weigh(begin, end, offset, running);
      product(count, int(padded) / width, scratch.scores + offset, attend_block, scratch.values + offset * padded, padded,
              end - begin, scratch.decay, scratch.out, padded);
    }
    for (int i = 0; i < count; i++) {
      float* const to = queries.out + i / queries.heads * queries.out_stride + std::size_t(i % queries.heads) * kv.value_dim;
      for (int d = 0; d < kv.value_dim; d++) to[d] = scratch.out[i * padded + d] * (1.0f / running[i].total);
    }
  }

  // A sink is seen before the first position, and its value is zero.
  Running before_any(int query) const {
    return queries.sinks ? Running{queries.sinks[query % queries.heads], 1.0f} : Running{};
  }

  void copy_queries(float scale) {
    for (int i = 0; i < count; i++) {
      const float* const from = queries.q + i / queries.heads * queries.q_stride + std::size_t(i % queries.heads) * kv.key_dim;
      for (int d = 0; d < kv.key_dim; d++) scratch.q[std::size_t(i) * kv.key_dim + d] = from[d] * scale;
    }
  }

  void load_block(int begin, int end, int offset) {
    const int next = end + attend_block < kv.count ? end + attend_block : kv.count;
    prefetch_rows<Element>({kv.keys, kv.key_stride, kv, end, next, 0}, kv.key_dim);
    load_keys<Element, load>({kv.keys, kv.key_stride, kv, begin, end, offset}, kv.key_dim, scratch.keys);
    prefetch_rows<Element>({kv.values, kv.value_stride, kv, end, next, 0}, kv.value_dim);
    load_values<Element, load>({kv.values, kv.value_stride, kv, begin, end, offset}, kv.value_dim, scratch.values);
  }

  // The newest position belongs to the last token, and so on back; each sees `window` positions at most.
  void weigh(int begin, int end, int offset, Running* running) {
    for (int i = 0; i < count; i++) {
      const int seen_end = kv.count - queries.tokens + i / queries.heads + 1;
      const int seen_begin = seen_end > kv.window ? seen_end - kv.window : 0;
      const int from = begin > seen_begin ? begin : seen_begin, to = end < seen_end ? end : seen_end;
      scratch.decay[i] = weigh_block(scratch.scores + std::size_t(i) * attend_block, offset + from - begin,
                                     offset + to - begin, running[i]);
    }
  }
};

void attend(const Queries& queries, const KeyValues& kv, float scale, float* memory) {
  const AttendScratch scratch(memory, queries.tokens * queries.heads, kv.key_dim, kv.value_dim);
  if (kv.half) Attending<std::uint16_t, load_f16>{queries, kv, scratch}.run(scale);
  else Attending<float, load_f32>{queries, kv, scratch}.run(scale);
}
