// Random weight matrices in every storage, with their values as doubles computed from the format's definition.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels.h"

namespace testing {

inline std::mt19937& generator() {
  static std::mt19937 state(20240229);
  return state;
}

inline std::vector<float> normal_floats(std::size_t n, float deviation = 1.0f) {
  std::normal_distribution<float> distribution(0.0f, deviation);
  std::vector<float> values(n);
  for (float& value : values) value = distribution(generator());
  return values;
}

inline int code_bits(smoe::Storage storage) {
  switch (storage) {
    case smoe::Storage::q8: return 8;
    case smoe::Storage::q4: return 4;
    case smoe::Storage::q2: return 2;
    default: return 0;
  }
}

// A half's value, by its definition.
inline double half_value(std::uint16_t h) {
  const int exponent = h >> 10 & 31, fraction = h & 1023;
  const double magnitude = exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
  return h & 0x8000 ? -magnitude : magnitude;
}

struct RandomMatrix {
  smoe::Storage storage;
  int rows, cols;
  std::vector<std::uint8_t> data;  // exactly as long as the format says, so that a sanitizer sees reads beyond it
  std::vector<std::uint16_t> scales;

  RandomMatrix(smoe::Storage storage, int rows, int cols) : storage(storage), rows(rows), cols(cols) {
    const std::size_t n = std::size_t(rows) * cols;
    if (storage == smoe::Storage::f32) fill_floats(n);
    else if (!code_bits(storage)) fill_halves(n);
    else fill_codes(n);
  }

  void fill_codes(std::size_t n) {
    data.resize((n * code_bits(storage) + 7) / 8);
    for (auto& byte : data) byte = std::uint8_t(generator()());
    for (std::size_t g = 0; g < (n + 63) / 64; g++) scales.push_back(random_scale(g));
  }

  // Ordinary scales, and now and then zero, the smallest subnormal, the largest half and a negative one.
  static std::uint16_t random_scale(std::size_t g) {
    constexpr std::uint16_t edges[] = {0x0000, 0x0001, 0x5bff, 0xa800};
    if (g % 17 == 5) return edges[generator()() % 4];
    return std::uint16_t(0x2000 + generator()() % 0x1000);
  }

  void fill_floats(std::size_t n) {
    const std::vector<float> values = normal_floats(n, 0.1f);
    data.resize(n * sizeof(float));
    if (n) std::memcpy(data.data(), values.data(), data.size());
  }

  void fill_halves(std::size_t n) {
    data.resize(n * 2);
    for (std::size_t i = 0; i < n; i++) {
      const float value = normal_floats(1, 0.1f)[0];
      std::uint32_t bits;
      std::memcpy(&bits, &value, 4);
      const std::uint16_t element =
          storage == smoe::Storage::bf16 ? std::uint16_t(bits >> 16) : smoe::float_to_half(value);
      std::memcpy(&data[i * 2], &element, 2);
    }
  }

  smoe::Matrix view() const {
    return {storage, rows, cols, data.data(), scales.empty() ? nullptr : scales.data()};
  }

  double at(int row, int col) const {
    const std::size_t i = std::size_t(row) * cols + col;
    if (storage == smoe::Storage::f32) {
      float value;
      std::memcpy(&value, &data[i * 4], 4);
      return value;
    }
    if (const int bits = code_bits(storage)) {
      const int code = data[i * bits / 8] >> (i * bits % 8) & ((1 << bits) - 1);
      const double middle = bits == 8 ? 128 : bits == 4 ? 7.5 : 1.5, divisor = bits == 8 ? 127 : middle;
      return (code - middle) / divisor * half_value(scales[i / 64]);
    }
    std::uint16_t element;
    std::memcpy(&element, &data[i * 2], 2);
    if (storage == smoe::Storage::f16) return half_value(element);
    const std::uint32_t bits = std::uint32_t(element) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
};

inline std::vector<const smoe::Kernels*> every_set() {
  std::vector<const smoe::Kernels*> sets;
  for (const char* const* name = smoe::available_kernels(); *name; name++) sets.push_back(smoe::select_kernels(*name));
  return sets;
}

constexpr smoe::Storage every_storage[] = {smoe::Storage::f32, smoe::Storage::f16, smoe::Storage::bf16,
                                           smoe::Storage::q8,  smoe::Storage::q4,  smoe::Storage::q2};
constexpr smoe::Storage code_storages[] = {smoe::Storage::q8, smoe::Storage::q4, smoe::Storage::q2};

}  // namespace testing
