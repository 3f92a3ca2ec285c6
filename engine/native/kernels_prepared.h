// How quantized activations of a token are laid out, shared by every kernel set.
//
// A weight qN = (w / d) * s with an integer w (q8: code - 128, q4: 2 code - 15, q2: 2 code - 3; d = 127, 15, 3). With
// activations x = a * q of a group, q an integer of 8 or 16 bits, the group's product is D * (a / d) * s, where the
// integer D = sum(w * q) has the same value however it is computed. So a row's result, added up group by group in order
// as sum = fma(float(D) * (a / d), s, sum), has the same bits in every kernel set.
//
// |q| <= 127 (i8) or 32639 (i16): D and the sums over raw codes stay below 255 * 64 * 32639 < 2^30.
//
// Vector code takes weight codes 64 bytes at a time (a unit: 64 * planes weights, planes = codes a byte) and separates
// the codes of a byte by shifts. Plane p of a unit of activations therefore holds what byte b's code p multiplies:
// q[b * planes + p]. 16-bit codes come in one of two orders, as a set's instructions want them:
//   halves: the planes of `high`, then those of `low`, where q = 256 high + low, high in -127..127, low in -128..127;
//   words : planes of 32 words; plane p holds what code p of the 16-bit word b of the unit multiplies,
//           q[b * 2 planes + p].
// Either way a unit has code_planes planes of 64 bytes, and a group begins at the same byte of each.
// Units are padded with zeros, scales and offsets to a multiple of 16 groups.
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

// Of activations: the largest code, and the planes of a unit.
constexpr float largest_code(Numerics numerics) { return numerics == Numerics::i16 ? 32639.0f : 127.0f; }
constexpr int code_planes(Storage storage, Numerics numerics) {
  return planes(storage) * (numerics == Numerics::i16 ? 2 : 1);
}

enum class Order : std::uint8_t { halves, words };  // of 16-bit codes

// The part of a token's prepared bytes. All offsets are multiples of 64.
struct PreparedLayout {
  int groups, units, padded_groups;
  std::size_t scales_at, offsets_at, bytes;
};

constexpr PreparedLayout prepared_layout(Storage storage, Numerics numerics, int cols) {
  const int groups = cols / group_size;
  const int units = (groups + planes(storage) - 1) / planes(storage);
  const int padded_groups = (groups + 15) / 16 * 16;
  const std::size_t codes = std::size_t(units) * unit_bytes * code_planes(storage, numerics);
  const std::size_t table = std::size_t(padded_groups) * 4;
  return {groups, units, padded_groups, codes, codes + table, codes + 2 * table};
}

constexpr bool has_integer_product(Storage storage, Numerics numerics, int cols) {
  return numerics != Numerics::f32 && planes(storage) > 0 && cols > 0 && cols % group_size == 0;
}

// From a token's codes to what group g's first byte multiplies in the first plane.
template <Storage S, Numerics N>
constexpr std::size_t group_at(int g) {
  return std::size_t(g / planes(S)) * code_planes(S, N) * unit_bytes + std::size_t(g % planes(S)) * group_bytes(S);
}

// One token's prepared activations.
struct PreparedRow {
  const std::int8_t* codes;     // [units][code_planes][64]
  const float* scales;          // [padded_groups] a / d
  const std::int32_t* offsets;  // [padded_groups] -code_offset * sum(q): turns a sum over raw codes into D
};

inline PreparedRow prepared_row(const void* prepared, const PreparedLayout& layout, int token) {
  const char* row = static_cast<const char*>(prepared) + layout.bytes * token;
  return {reinterpret_cast<const std::int8_t*>(row), reinterpret_cast<const float*>(row + layout.scales_at),
          reinterpret_cast<const std::int32_t*>(row + layout.offsets_at)};
}

// Calls work<storage, numerics>() for what was chosen at run time; has_integer_product holds.
template <class Work>
void with_forms(Storage storage, Numerics numerics, Work work) {
  const auto with_numerics = [&]<Storage S>() {
    if (numerics == Numerics::i16) work.template operator()<S, Numerics::i16>();
    else work.template operator()<S, Numerics::i8>();
  };
  if (storage == Storage::q8) with_numerics.template operator()<Storage::q8>();
  else if (storage == Storage::q4) with_numerics.template operator()<Storage::q4>();
  else with_numerics.template operator()<Storage::q2>();
}

}  // namespace
}  // namespace smoe
