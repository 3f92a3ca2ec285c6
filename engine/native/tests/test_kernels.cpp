// Vector functions and attention in every kernel set, against doubles.
#include <algorithm>
#include <tuple>

#include "check.h"
#include "random_matrix.h"

using namespace smoe;
using namespace testing;

namespace {

constexpr double unit_roundoff = 0x1p-24;
constexpr double exp_error = 4 * unit_roundoff;  // of a set's exp, relative
constexpr int lengths[] = {1, 7, 8, 15, 16, 17, 63, 64, 100, 576};

double silu(double x) { return x / (1 + std::exp(-x)); }

struct Heads {
  int heads, key_dim, value_dim, count, capacity;
  std::int64_t first_position;
  int tokens = 1, window = 1 << 30;

  int queries() const { return tokens * heads; }
};

// Keys and values of a run of positions, stored in a ring from any slot on; other slots hold NaN.
struct RandomRing {
  Heads shape;
  bool half;
  std::size_t key_stride, value_stride;
  std::vector<float> q, keys, values;  // keys and values by position, as stored (rounded to f16 where half)
  std::vector<float> sinks;            // [heads]; empty: none

  RandomRing(const Heads& shape, bool half, bool with_sinks = false)
      : shape(shape), half(half), key_stride(shape.key_dim + 5), value_stride(shape.value_dim + 2) {
    q = normal_floats(std::size_t(shape.queries()) * shape.key_dim);
    keys = normal_floats(std::size_t(shape.count) * shape.key_dim);
    values = normal_floats(std::size_t(shape.count) * shape.value_dim);
    if (with_sinks) sinks = normal_floats(shape.heads, 3.0f);
    if (!half) return;
    for (float& key : keys) key = half_to_float(float_to_half(key));
    for (float& value : values) value = half_to_float(float_to_half(value));
  }

  template <class Element>
  std::vector<Element> stored(const std::vector<float>& rows, int dim, std::size_t stride, int first) const {
    std::vector<Element> ring((shape.capacity - 1) * stride + dim, Element(0x7fff));
    for (int i = 0; i < shape.count; i++)
      for (int d = 0; d < dim; d++) {
        Element& at = ring[std::size_t((first + i) % shape.capacity) * stride + d];
        const float value = rows[std::size_t(i) * dim + d];
        if constexpr (sizeof(Element) == 2) at = float_to_half(value);
        else at = value;
      }
    return ring;
  }

  // Of heads [head0, head0 + heads) of tokens [token0, token0 + tokens).
  template <class Element>
  std::vector<float> attend_as(const Kernels& kernels, int first, int token0, int tokens, int head0, int heads) const {
    const auto key_ring = stored<Element>(keys, shape.key_dim, key_stride, first);
    const auto value_ring = stored<Element>(values, shape.value_dim, value_stride, first);
    const int oldest = first_seen(token0), end = last_seen(token0 + tokens - 1) + 1;
    const KeyValues kv{key_ring.data(), value_ring.data(), half, key_stride, value_stride, shape.key_dim, shape.value_dim,
                       (first + oldest) % shape.capacity, end - oldest, shape.capacity, shape.first_position + oldest,
                       shape.window};
    std::vector<float> out(std::size_t(tokens) * heads * shape.value_dim);
    std::vector<float> scratch(AttendScratch::size(tokens * heads, shape.key_dim, shape.value_dim), NAN);
    const Queries queries{q.data() + (std::size_t(token0) * shape.heads + head0) * shape.key_dim, out.data(),
                          std::size_t(shape.heads) * shape.key_dim, std::size_t(heads) * shape.value_dim, tokens, heads,
                          sinks.empty() ? nullptr : &sinks[std::size_t(head0)]};
    kernels.attend(queries, kv, scale(), scratch.data());
    return out;
  }

  std::vector<float> attend(const Kernels& kernels, int first, int token0, int tokens, int head0, int heads) const {
    return half ? attend_as<std::uint16_t>(kernels, first, token0, tokens, head0, heads)
                : attend_as<float>(kernels, first, token0, tokens, head0, heads);
  }

  std::vector<float> attend(const Kernels& kernels, int first) const {
    return attend(kernels, first, 0, shape.tokens, 0, shape.heads);
  }

  int last_seen(int token) const { return shape.count - shape.tokens + token; }
  int first_seen(int token) const { return std::max(0, last_seen(token) - shape.window + 1); }

  float scale() const { return 1.0f / std::sqrt(float(shape.key_dim)); }

  std::vector<double> expected(int query) const {
    const int token = query / shape.heads, begin = first_seen(token), end = last_seen(token) + 1;
    std::vector<double> weights(shape.count), out(shape.value_dim, 0.0);
    double largest = -INFINITY, total = 0;
    for (int i = begin; i < end; i++) {
      for (int d = 0; d < shape.key_dim; d++)
        weights[i] += double(q[std::size_t(query) * shape.key_dim + d]) * keys[std::size_t(i) * shape.key_dim + d];
      largest = std::max(largest, weights[i] *= scale());
    }
    if (!sinks.empty()) {
      const double sink = sinks[std::size_t(query % shape.heads)];
      largest = std::max(largest, sink);
      total = std::exp(sink - largest);
    }
    for (int i = begin; i < end; i++) total += weights[i] = std::exp(weights[i] - largest);
    for (int i = begin; i < end; i++)
      for (int d = 0; d < shape.value_dim; d++)
        out[d] += weights[i] / total * values[std::size_t(i) * shape.value_dim + d];
    return out;
  }
};

// The last: as latent attention asks.
constexpr Heads attentions[] = {{1, 1, 1, 1, 1, 0},      {2, 16, 16, 5, 8, 61},     {3, 20, 12, 64, 70, 0},
                                {4, 64, 64, 129, 130, 3}, {9, 64, 64, 200, 300, 63}, {8, 128, 128, 333, 333, 1000},
                                {5, 100, 72, 150, 151, 5000000000},
                                {2, 16, 16, 3, 9, 62, 3},  {3, 20, 12, 200, 203, 30, 17},
                                {8, 64, 64, 330, 340, 7, 70, 64}, {1, 40, 24, 40, 64, 100, 39, 2},
                                {5, 576, 512, 150, 160, 30, 3}};

}  // namespace

TEST(every_set_is_named_and_chosen) {
  CHECK_EQ(std::string(available_kernels()[0]), "scalar");
  CHECK(select_kernels("no such set") == nullptr);
  const Kernels* best = nullptr;
  for (const Kernels* kernels : every_set()) {
    CHECK(select_kernels(kernels->name) == kernels);
    best = kernels;
  }
  CHECK(select_kernels() == best);
}

TEST(halves_have_their_definition_s_values) {
  for (unsigned h = 0; h < 0x10000; h++) {
    const auto bits = std::uint16_t(h);
    if ((h & 0x7c00) == 0x7c00) {
      CHECK(h & 0x3ff ? std::isnan(half_to_float(bits)) : std::isinf(half_to_float(bits)));
      continue;
    }
    CHECK_EQ(double(half_to_float(bits)), half_value(bits));
    CHECK_EQ(float_to_half(half_to_float(bits)), bits);
  }
}

TEST(floats_round_to_the_nearest_half_and_ties_to_even) {
  for (std::uint16_t h = 0; h < 0x7bff; h++) {
    const auto low = float(half_value(h)), high = float(half_value(std::uint16_t(h + 1)));
    const float middle = (low + high) / 2;
    CHECK_EQ(float_to_half(std::nextafter(middle, 0.0f)), h);
    CHECK_EQ(float_to_half(middle), h & 1 ? h + 1 : h);
    CHECK_EQ(float_to_half(-std::nextafter(middle, 1e9f)), 0x8000 | (h + 1));
  }
  CHECK_EQ(float_to_half(65519.996f), 0x7bff);
  CHECK_EQ(float_to_half(65520.0f), 0x7c00);
  CHECK_EQ(float_to_half(-INFINITY), 0xfc00);
  CHECK(std::isnan(half_to_float(float_to_half(NAN))));
}

TEST(rows_become_halves) {
  for (const Kernels* kernels : every_set())
    for (int n : lengths) {
      const std::vector<float> x = normal_floats(n);
      std::vector<std::uint16_t> halves(n);
      kernels->to_half(x.data(), n, halves.data());
      for (int i = 0; i < n; i++) CHECK_EQ(halves[i], float_to_half(x[i]));
    }
}

TEST(dot_products) {
  for (const Kernels* kernels : every_set())
    for (int n : lengths) {
      const std::vector<float> a = normal_floats(n), b = normal_floats(n);
      double want = 0, magnitude = 0;
      for (int i = 0; i < n; i++) {
        want += double(a[i]) * b[i];
        magnitude += std::fabs(double(a[i]) * b[i]);
      }
      CHECK_NEAR(kernels->dot(a.data(), b.data(), n), want, (n + 1) * unit_roundoff * magnitude);
    }
}

TEST(rms_norms) {
  for (const Kernels* kernels : every_set())
    for (int n : lengths) {
      const std::vector<float> x = normal_floats(n), weight = normal_floats(n);
      double squares = 0;
      for (float v : x) squares += double(v) * v;
      std::vector<float> y(n);
      kernels->rms_norm(x.data(), weight.data(), 1e-5f, n, y.data());
      for (int i = 0; i < n; i++) {
        const double want = x[i] / std::sqrt(squares / n + 1e-5) * weight[i];
        CHECK_NEAR(y[i], want, (n / 2 + 6) * unit_roundoff * std::fabs(want));
      }
    }
}

TEST(scaled_additions) {
  for (const Kernels* kernels : every_set())
    for (int n : lengths) {
      const std::vector<float> x = normal_floats(n), before = normal_floats(n);
      std::vector<float> y = before;
      kernels->add_scaled(x.data(), 0.3f, n, y.data());
      for (int i = 0; i < n; i++) {
        const double product = double(0.3f) * x[i];
        CHECK_NEAR(y[i], before[i] + product, 2 * unit_roundoff * (std::fabs(before[i]) + std::fabs(product)));
      }
    }
}

TEST(gated_units) {
  for (const Kernels* kernels : every_set())
    for (int n : lengths) {
      std::vector<float> gate = normal_floats(n, 20.0f), up = normal_floats(n), y(n);
      if (n > 8) gate[3] = -200.0f, gate[4] = 200.0f, gate[5] = 0.0f;
      kernels->silu_multiply(gate.data(), up.data(), n, y.data());
      for (int i = 0; i < n; i++) {
        const double want = silu(gate[i]) * up[i];
        CHECK_NEAR(y[i], want, (exp_error + 4 * unit_roundoff) * std::fabs(want) + 1e-34);
      }
    }
}

TEST(clamped_swiglu_of_gate_and_up) {
  constexpr ClampedSwiglu kind = {.alpha = 1.702f, .limit = 2.5f};
  for (const Kernels* kernels : every_set())
    for (int n : lengths) {
      std::vector<float> gate = normal_floats(n, 3.0f), up = normal_floats(n, 3.0f), y(n);
      gate[0] = -200.0f;  // whose sigmoid is zero
      if (n > 7) gate[6] = up[5] = NAN;
      kernels->clamped_swiglu(gate.data(), up.data(), kind, n, y.data());
      for (int i = 0; i < n; i++) {
        const double g = std::min<double>(gate[i], kind.limit), u = std::clamp<double>(up[i], -kind.limit, kind.limit);
        const double want = (u + 1) * g / (1 + std::exp(-double(kind.alpha) * g));
        const double relative = exp_error + (6 + 2 * std::fabs(g)) * unit_roundoff;  // exp's argument is rounded too
        if (std::isnan(want)) CHECK(std::isnan(y[i]));
        else CHECK_NEAR(y[i], want, relative * std::fabs(want) + 4 * unit_roundoff * std::fabs(g) + 1e-34);
        float alone;
        kernels->clamped_swiglu(&gate[i], &up[i], kind, 1, &alone);
        CHECK(alone == y[i] || std::isnan(want));
      }
    }
}

TEST(float_products) {
  for (const Kernels* kernels : every_set())
    for (const auto& [rows, columns, depth] : {std::tuple{1, 16, 1}, {3, 48, 24}, {5, 64, 128}, {32, 512, 20}, {2, 32, 0}}) {
      const std::size_t lda = std::size_t(depth) + 3, ldb = std::size_t(columns) + 5, ldc = std::size_t(columns) + 2;
      const std::vector<float> a = normal_floats(rows * lda), b = normal_floats((depth + 1) * ldb);
      std::vector<float> c(rows * ldc, 9.0f), one(columns);
      kernels->float_product(rows, columns, depth, a.data(), lda, b.data(), ldb, c.data(), ldc);
      for (int m = 0; m < rows; m++) {
        for (int n = 0; n < columns; n++) {
          double want = 0, magnitude = 0;
          for (int k = 0; k < depth; k++) {
            want += double(a[m * lda + k]) * b[k * ldb + n];
            magnitude += std::fabs(double(a[m * lda + k]) * b[k * ldb + n]);
          }
          CHECK_NEAR(c[m * ldc + n], want, (depth + 1) * unit_roundoff * magnitude);
        }
        kernels->float_product(1, columns, depth, a.data() + m * lda, lda, b.data(), ldb, one.data(), ldc);
        CHECK(std::equal(one.begin(), one.end(), c.begin() + std::ptrdiff_t(m * ldc)));  // alone: the same bits
        CHECK_EQ(c[m * ldc + columns], 9.0f);
      }
    }
}

TEST(softmax_of_scores) {
  for (const Kernels* kernels : every_set())
    for (int n : lengths) {
      std::vector<float> x = normal_floats(n, 10.0f);
      if (n > 8) x[1] = x[0] - 200.0f;
      std::vector<double> want(x.begin(), x.end());
      const double largest = *std::max_element(want.begin(), want.end());
      double total = 0;
      for (double& v : want) total += v = std::exp(v - largest);
      kernels->softmax(x.data(), n);
      for (int i = 0; i < n; i++) {
        // The shift by the largest is rounded too: relative to exp, by |x - largest| u.
        const double shift = std::fabs(std::log(std::max(want[i], 1e-300))) + 1;
        CHECK_NEAR(x[i], want[i] / total, (exp_error + (n + shift) * unit_roundoff) * want[i] / total + 1e-37);
      }
    }
}

TEST(attention_over_a_ring) {
  for (const Heads& shape : attentions)
    for (const auto& [half, sinks] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
      const RandomRing ring(shape, half, sinks);
      for (const Kernels* kernels : every_set()) {
        const std::vector<float> out = ring.attend(*kernels, 0);
        for (int query = 0; query < shape.queries(); query++) {
          const std::vector<double> want = ring.expected(query);
          // Scores are O(1) with an error of key_dim u; the weighted sum adds count u more; values reach about 5.
          const double tolerance = (4.0 * shape.key_dim + shape.count + 64) * unit_roundoff * 5;
          for (int d = 0; d < shape.value_dim; d++)
            CHECK_NEAR(out[std::size_t(query) * shape.value_dim + d], want[d], tolerance);
        }
      }
    }
}

TEST(attention_does_not_depend_on_the_ring_s_start_nor_on_other_queries) {
  for (const Heads& shape : attentions)
    for (const auto& [half, sinks] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
      const RandomRing ring(shape, half, sinks);
      for (const Kernels* kernels : every_set()) {
        const std::vector<float> whole = ring.attend(*kernels, 0);
        CHECK(ring.attend(*kernels, shape.capacity / 2) == whole);
        CHECK(ring.attend(*kernels, shape.capacity - 1) == whole);
        for (int query = 0; query < shape.queries(); query++) {
          const auto begin = whole.begin() + std::size_t(query) * shape.value_dim;
          CHECK(ring.attend(*kernels, shape.capacity / 3, query / shape.heads, 1, query % shape.heads, 1) ==
                std::vector<float>(begin, begin + shape.value_dim));
        }
        const int half_way = shape.tokens / 2;
        const std::vector<float> later = ring.attend(*kernels, 1, half_way, shape.tokens - half_way, 0, shape.heads);
        CHECK(std::equal(later.rbegin(), later.rend(), whole.rbegin()));
      }
    }
}

TEST(a_sink_far_below_the_scores_changes_nothing_and_one_far_above_leaves_nothing) {
  const Heads shape = {2, 16, 16, 100, 120, 61, 3, 40};
  for (const Kernels* kernels : every_set()) {
    RandomRing ring(shape, false);
    const std::vector<float> without = ring.attend(*kernels, 0);
    for (const float least : {-1000.0f, -INFINITY}) {
      ring.sinks.assign(2, least);
      CHECK(ring.attend(*kernels, 0) == without);
    }
    ring.sinks.assign(2, 1000.0f);
    for (const float out : ring.attend(*kernels, 0)) CHECK_EQ(out, 0.0f);
  }
}
