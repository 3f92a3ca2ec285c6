// A strict JSON reader (RFC 8259) for headers and configs that anyone may have made: no duplicate keys, no
// trailing bytes, valid UTF-8, bounded depth and number of values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "error.h"

namespace smoe::json {

enum class Kind : std::uint8_t { null, boolean, number, string, array, object };

struct Value {
  struct Member;

  Kind kind = Kind::null;
  bool boolean = false;
  double number = 0;
  std::optional<std::int64_t> integer;  // of a number written without fraction and exponent that fits
  std::string string;
  std::vector<Value> items;      // array
  std::vector<Member> members;   // object, sorted by key

  bool is(Kind k) const { return kind == k; }
  // A member of an object; null when absent or when this is no object.
  const Value* find(std::string_view key) const;
};

struct Value::Member {
  std::string key;
  Value value;
};

// What Python's json module writes beyond the standard: NaN, Infinity, -Infinity.
enum class Dialect : std::uint8_t { strict, python };

// On error the message is "byte N: what is wrong", without a file name.
Error parse(std::string_view text, Value* out, Dialect dialect = Dialect::strict);

}  // namespace smoe::json
