// Matrix products in every kernel set, against sums of doubles.
#include <algorithm>

#include "check.h"
#include "random_matrix.h"

using namespace smoe;
using namespace testing;

namespace {

constexpr double unit_roundoff = 0x1p-24;

struct Shape {
  int rows, cols, tokens;
};
constexpr Shape shapes[] = {{1, 1, 1},   {3, 63, 2},  {5, 65, 3},   {7, 100, 9},  {2, 64, 1},   {17, 64, 5},
                            {9, 128, 4}, {6, 192, 2}, {33, 320, 13}, {21, 576, 7}, {18, 1088, 26}, {4, 2048, 3},
                            {19, 2880, 5},  {34, 320, 18}, {67, 576, 67}};

struct Product {
  const RandomMatrix& w;
  std::vector<float> x;
  int tokens;
  std::size_t stride;
  Numerics numerics = Numerics::f32;
  std::vector<char> prepared;

  Product(const RandomMatrix& w, int tokens) : w(w), tokens(tokens), stride(std::size_t(w.cols) + 3) {
    x = normal_floats((tokens - 1) * stride + w.cols);
    for (std::size_t i = 0; i < x.size(); i += 97) x[i] *= 20;  // outliers, as real activations have
  }

  void prepare(const Kernels& kernels, Numerics wanted) {
    numerics = wanted;
    prepared.assign(kernels.prepared_bytes(w.storage, numerics, w.cols) * tokens, char(0x55));
    kernels.prepare(w.storage, numerics, x.data(), stride, tokens, w.cols, prepared.data());
  }

  // Rows [row0, row1) of tokens [token0, token1), in an exact buffer.
  std::vector<float> run(const Kernels& kernels, int row0, int row1, int token0, int token1) const {
    const std::size_t row = kernels.prepared_bytes(w.storage, numerics, w.cols);
    const Activations part{token1 - token0, w.cols, x.data() + token0 * stride, stride,
                           prepared.empty() ? nullptr : prepared.data() + token0 * row, numerics};
    std::vector<float> y(std::size_t(token1 - token0) * w.rows, NAN);
    kernels.matmul(w.view(), row0, row1, part, y.data(), w.rows);
    return y;
  }

  std::vector<float> run(const Kernels& kernels) const { return run(kernels, 0, w.rows, 0, tokens); }
};

// Sum of |w x| over a row and token: what rounding errors are relative to.
struct Expected {
  double sum = 0, magnitude = 0;
};

Expected expected(const Product& p, int row, int token) {
  Expected result;
  for (int k = 0; k < p.w.cols; k++) {
    const double term = p.w.at(row, k) * p.x[token * p.stride + k];
    result.sum += term;
    result.magnitude += std::fabs(term);
  }
  return result;
}

constexpr Numerics integer_numerics[] = {Numerics::i16, Numerics::i8};

double most_code(Numerics numerics) { return numerics == Numerics::i16 ? 32639 : 127; }

// Quantizing a group moves each of its activations by at most half a step.
double quantization_bound(const Product& p, int row, int token) {
  double bound = 0;
  for (int k = 0; k < p.w.cols; k += 64) {
    double largest = 0, weights = 0;
    for (int i = k; i < k + 64; i++) {
      largest = std::max(largest, std::fabs(double(p.x[token * p.stride + i])));
      weights += std::fabs(p.w.at(row, i));
    }
    bound += largest / (2 * most_code(p.numerics)) * weights;
  }
  return bound;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && !std::memcmp(a.data(), b.data(), a.size() * sizeof(float));
}

void check_products(const Kernels& kernels, const Product& p) {
  const std::vector<float> y = p.run(kernels);
  for (int t = 0; t < p.tokens; t++)
    for (int r = 0; r < p.w.rows; r++) {
      const Expected want = expected(p, r, t);
      // Any order of summation of n terms, the weight rounded twice more: (n + 3) u sum|w x|.
      double tolerance = (p.w.cols + 3) * unit_roundoff * want.magnitude;
      if (!p.prepared.empty()) tolerance += quantization_bound(p, r, t) * (1 + p.w.cols * unit_roundoff);
      CHECK_NEAR(y[std::size_t(t) * p.w.rows + r], want.sum, tolerance + 1e-30);
    }
}

// Every way to ask for a part gives the whole's bits.
void check_independence(const Kernels& kernels, const Product& p) {
  const std::vector<float> whole = p.run(kernels);
  for (int token = 0; token < p.tokens; token++)
    for (int count : {1, 2, 3, 5, 12}) {
      if (token + count > p.tokens) break;
      const int row0 = int(generator()() % p.w.rows), row1 = row0 + 1 + int(generator()() % (p.w.rows - row0));
      const std::vector<float> part = p.run(kernels, row0, row1, token, token + count);
      for (int t = 0; t < count; t++)
        for (int r = 0; r < p.w.rows; r++) {
          const float got = part[std::size_t(t) * p.w.rows + r];
          if (r < row0 || r >= row1) CHECK(std::isnan(got));
          else CHECK_EQ(got, whole[std::size_t(token + t) * p.w.rows + r]);
        }
    }
}

}  // namespace

TEST(products_of_float32_activations) {
  for (Storage storage : every_storage)
    for (const Shape& shape : shapes) {
      const RandomMatrix w(storage, shape.rows, shape.cols);
      const Product p(w, shape.tokens);
      for (const Kernels* kernels : every_set()) {
        check_products(*kernels, p);
        check_independence(*kernels, p);
      }
    }
}

TEST(products_of_quantized_activations) {
  for (Numerics numerics : integer_numerics)
    for (Storage storage : every_storage)
      for (const Shape& shape : shapes) {
        const RandomMatrix w(storage, shape.rows, shape.cols);
        Product p(w, shape.tokens);
        std::vector<float> first;
        for (const Kernels* kernels : every_set()) {
          p.prepare(*kernels, numerics);
          CHECK_EQ(!p.prepared.empty(), code_bits(storage) && shape.cols % 64 == 0);
          check_products(*kernels, p);
          check_independence(*kernels, p);
          if (p.prepared.empty()) continue;
          if (first.empty()) first = p.run(*kernels);
          CHECK(same_bits(first, p.run(*kernels)));  // integer products leave nothing to the order of summation
        }
      }
}

TEST(activations_of_8_bits_are_the_same_bytes_in_every_set) {
  for (Storage storage : code_storages)
    for (int cols : {64, 192, 576, 2048}) {
      const RandomMatrix w(storage, 1, cols);
      Product p(w, 2);
      std::vector<char> first;
      for (const Kernels* kernels : every_set()) {
        p.prepare(*kernels, Numerics::i8);
        if (first.empty()) first = p.prepared;
        CHECK(first == p.prepared);
      }
    }
}

// Activations at the ends of their range: overflow in 8- or 16-bit intermediate sums would show, and a low half of -128
// taken for 128. `x(k)` tells column k's.
struct Extreme {
  const char* name;
  float (*x)(int k);
};
constexpr Extreme extremes[] = {
    {"all largest", [](int) { return 1.0f; }},
    {"all smallest", [](int) { return -1.0f; }},
    {"huge", [](int) { return 1e30f; }},
    {"signs alternate", [](int k) { return k % 2 ? 1.0f : -1.0f; }},
    {"signs alternate by pairs", [](int k) { return k % 4 < 2 ? 3.0f : -3.0f; }},
    {"low halves of -128", [](int k) { return k % 64 == 0 ? 32639.0f : float(256 * (k % 101) - 128); }},
    {"low halves of 127", [](int k) { return k % 64 == 0 ? -32639.0f : float(127 - 256 * (k % 101)); }},
    {"one outlier a group", [](int k) { return k % 64 == 31 ? 1e4f : 1e-3f; }},
    {"zeros", [](int) { return 0.0f; }},
    {"denormal", [](int k) { return k % 2 ? 1e-38f : -1e-44f; }},
    {"zeros beside a denormal group", [](int k) { return k < 64 ? 1e-40f : k < 128 ? 0.0f : 1.0f; }},
};

TEST(extreme_codes_and_activations) {
  for (Numerics numerics : integer_numerics)
    for (Storage storage : code_storages)
      for (int code : {0x00, 0xff, 0x0f, 0x33})
        for (const Extreme& extreme : extremes)
          for (int tokens : {1, 4, 13}) {
            RandomMatrix w(storage, 18, 192);
            std::fill(w.data.begin(), w.data.end(), std::uint8_t(code));
            std::fill(w.scales.begin(), w.scales.end(), std::uint16_t(0x1400));  // 2^-10
            Product p(w, tokens);
            for (int t = 0; t < tokens; t++)
              for (int k = 0; k < w.cols; k++) p.x[t * p.stride + k] = extreme.x(k);
            std::vector<float> first;
            for (const Kernels* kernels : every_set()) {
              p.prepare(*kernels, numerics);
              check_products(*kernels, p);
              if (first.empty()) first = p.run(*kernels);
              CHECK(same_bits(first, p.run(*kernels)));
            }
          }
}

// Codes that are the activations themselves: nothing is lost, so the product is the integer sum's float.
TEST(sixteen_bits_hold_integers_exactly) {
  for (Storage storage : code_storages) {
    RandomMatrix w(storage, 20, 256);
    std::fill(w.scales.begin(), w.scales.end(), std::uint16_t(0x3c00));  // 1
    Product p(w, 5);
    for (int t = 0; t < p.tokens; t++)
      for (int k = 0; k < w.cols; k++)
        p.x[t * p.stride + k] = k % 64 == 7 ? 32639.0f : float(int(generator()() % 65279) - 32639);
    for (const Kernels* kernels : every_set()) {
      p.prepare(*kernels, Numerics::i16);
      const std::vector<float> y = p.run(*kernels);
      for (int t = 0; t < p.tokens; t++)
        for (int r = 0; r < w.rows; r++) {
          const Expected want = expected(p, r, t);
          CHECK_NEAR(y[std::size_t(t) * w.rows + r], want.sum, 16 * unit_roundoff * want.magnitude);
        }
    }
  }
}

TEST(dequantized_rows) {
  for (Storage storage : every_storage)
    for (int cols : {1, 63, 64, 100, 576}) {
      const RandomMatrix w(storage, 3, cols);
      for (const Kernels* kernels : every_set())
        for (int r = 0; r < w.rows; r++) {
          std::vector<float> row(cols);
          kernels->dequantize_row(w.view(), r, row.data());
          for (int k = 0; k < cols; k++) CHECK_NEAR(row[k], w.at(r, k), 2 * unit_roundoff * std::fabs(w.at(r, k)));
          std::vector<float> scalar(cols);
          select_kernels("scalar")->dequantize_row(w.view(), r, scalar.data());
          CHECK(row == scalar);
        }
    }
}

TEST(quantized_rows_are_within_half_a_step_and_the_same_in_every_set) {
  for (Storage storage : code_storages)
    for (int n : {1, 64, 100, 1024}) {
      std::vector<float> x = normal_floats(n);
      if (n > 200) std::fill_n(x.begin() + 64, 64, 0.0f);
      RandomMatrix w(storage, 1, n);
      every_set()[0]->quantize_row(storage, x.data(), n, w.data.data(), w.scales.data());
      for (int i = 0; i < n; i++) {
        const double scale = half_value(w.scales[i / 64]);
        const double step = scale / (storage == Storage::q8 ? 127 : storage == Storage::q4 ? 7.5 : 1.5);
        // The scale is a rounded half: the largest value may lie 2^-11 of it beyond the last code.
        CHECK_NEAR(w.at(0, i), x[i], step / 2 * (1 + 1e-6) + scale * 0x1p-11);
      }
      for (const Kernels* kernels : every_set()) {
        RandomMatrix same(storage, 1, n);
        kernels->quantize_row(storage, x.data(), n, same.data.data(), same.scales.data());
        CHECK(same.scales == w.scales);
        for (int i = 0; i < n; i++) CHECK_EQ(same.at(0, i), w.at(0, i));
      }
    }
}

// Largest magnitudes that a half cannot hold are clipped; one that underflows makes zeros; a NaN stays one.
TEST(quantized_groups_at_the_edges_of_a_half) {
  constexpr float nan = __builtin_nanf("");
  for (const Kernels* kernels : every_set()) {
    for (Storage storage : code_storages)
      for (const auto& [value, expected] :
           {std::pair{1e6f, 65504.0}, {-1e6f, -65504.0}, {1e-9f, 0.0}, {0x1p-24f, 0x1p-24}}) {
        const std::vector<float> x(64, value);
        RandomMatrix w(storage, 1, 64);
        kernels->quantize_row(storage, x.data(), 64, w.data.data(), w.scales.data());
        CHECK_NEAR(w.at(0, 63), expected, 1e-6 * std::fabs(expected));
      }
    std::vector<float> x = normal_floats(128);
    x[70] = nan;
    std::uint8_t codes[128];
    std::uint16_t scales[2];
    kernels->quantize_row(Storage::q8, x.data(), 128, codes, scales);
    CHECK(std::isfinite(half_to_float(scales[0])) && std::isnan(half_to_float(scales[1])));
  }
}
