// The set of tokens that may come next, as a MASK line names it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace smoe {

class Mask {
 public:
  // all | none | only:<id>;... | not:<id>;... | bits:<padded base64>. False when it cannot be read or names an id
  // that is not in the vocabulary.
  static bool parse(std::string_view text, int vocabulary, Mask* out);

  bool allows_all() const { return all_; }
  bool allows(int token) const {
    return all_ || (bits_[static_cast<std::size_t>(token) / 8] >> (token % 8) & 1) != 0;
  }
  bool empty() const;

 private:
  static bool parse_ids(std::string_view text, int vocabulary, bool allowed, Mask* out);
  static bool parse_bits(std::string_view text, int vocabulary, Mask* out);

  bool all_ = true;
  std::vector<std::uint8_t> bits_;  // bit i of the little-endian string: token i; bits past the vocabulary are 0
};

}  // namespace smoe
