// How fast numerics lay out a token's activations, shared by every kernel set.
//
// A weight qN = (w / d) * s with an integer w (q8: code - 128, q4: 2 code - 15, q2: 2 code - 3; d = 127, 15, 3). With
// activations x = a * q of a group, q in -127..127, the group's product is D * (a / d) * s, where the integer
// D = sum(w * q) has the same value however it is computed. So a row's result, added up group by group in order as
// sum = fma(float(D) * (a / d), s, sum), has the same bits in every kernel set.
//
// Vector code takes weight codes 64 bytes at a time (a unit: 64 * planes weights, planes = codes a byte) and separates
// the codes of a byte by shifts. Plane p of a unit of activations therefore holds what byte b's code p multiplies:
// q[b * planes + p]. Units are padded with zeros, scales and offsets to a multiple of 16 groups.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.h"

namespace smoe {
namespace {

constexpr int group_size = 64;
constexpr int unit_bytes = 64;

constexpr int planes(Storage storage) {
  return storage == Storage::q8 ? 1 : storage == Storage::q4 ? 2 : storage == Storage::q2 ? 4 : 0;
}
constexpr int code_factor(Storage storage) { return storage == Storage::q8 ? 1 : 2; }
constexpr int code_offset(Storage storage) { return storage == Storage::q8 ? 128 : storage == Storage::q4 ? 15 : 3; }
constexpr float code_divisor(Storage storage) {
  return storage == Storage::q8 ? 127.0f : storage == Storage::q4 ? 15.0f : 3.0f;
}
constexpr int group_bytes(Storage storage) { return group_size / planes(storage); }

// The part of a token's prepared bytes. All offsets are multiples of 64.
struct PreparedLayout {
  int groups, units, padded_groups;
  std::size_t scales_at, offsets_at, bytes;
};

constexpr PreparedLayout prepared_layout(Storage storage, int cols) {
  const int groups = cols / group_size;
  const int units = (groups + planes(storage) - 1) / planes(storage);
  const int padded_groups = (groups + 15) / 16 * 16;
  const std::size_t codes = std::size_t(units) * unit_bytes * planes(storage);
  const std::size_t table = std::size_t(padded_groups) * 4;
  return {groups, units, padded_groups, codes, codes + table, codes + 2 * table};
}

constexpr bool has_fast_product(Storage storage, int cols) {
  return planes(storage) > 0 && cols > 0 && cols % group_size == 0;
}

// One token's prepared activations.
struct PreparedRow {
  const std::int8_t* codes;     // [units][planes][64]
  const float* scales;          // [padded_groups] a / d
  const std::int32_t* offsets;  // [padded_groups] -code_offset * sum(q): turns a sum over raw codes into D
};

inline PreparedRow prepared_row(const void* prepared, const PreparedLayout& layout, int token) {
  const char* row = static_cast<const char*>(prepared) + layout.bytes * token;
  return {reinterpret_cast<const std::int8_t*>(row), reinterpret_cast<const float*>(row + layout.scales_at),
          reinterpret_cast<const std::int32_t*>(row + layout.offsets_at)};
}

}  // namespace
}  // namespace smoe
