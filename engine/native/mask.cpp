#include "mask.h"

#include <algorithm>
#include <cstddef>

#include "numbers.h"

namespace smoe {
namespace {

std::size_t mask_bytes(int vocabulary) { return (static_cast<std::size_t>(vocabulary) + 7) / 8; }

void clear_tail(int vocabulary, std::vector<std::uint8_t>* bits) {
  if (vocabulary % 8 != 0) bits->back() &= static_cast<std::uint8_t>((1 << (vocabulary % 8)) - 1);
}

int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

// RFC 4648 section 4, padded, exactly `count` bytes.
bool decode_base64(std::string_view text, std::size_t count, std::vector<std::uint8_t>* out) {
  if (text.size() != (count + 2) / 3 * 4) return false;
  const std::size_t padding = (3 - count % 3) % 3;
  if (text.substr(text.size() - padding) != std::string_view("==", padding)) return false;
  text.remove_suffix(padding);
  out->clear();
  out->reserve(count);
  std::uint32_t held = 0;
  int bits = 0;
  for (const char c : text) {
    const int value = base64_value(c);
    if (value < 0) return false;
    held = held << 6 | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    out->push_back(static_cast<std::uint8_t>(held >> bits));
  }
  return out->size() == count;
}

}  // namespace

bool Mask::parse(std::string_view text, int vocabulary, Mask* out) {
  *out = Mask();
  if (text == "all") return true;
  if (text == "none") return parse_ids("", vocabulary, true, out);
  const std::string_view kind = take_word(&text, ':');
  if (kind == "only") return !text.empty() && parse_ids(text, vocabulary, true, out);
  if (kind == "not") return !text.empty() && parse_ids(text, vocabulary, false, out);
  return kind == "bits" && parse_bits(text, vocabulary, out);
}

bool Mask::empty() const {
  return !all_ && std::all_of(bits_.begin(), bits_.end(), [](std::uint8_t byte) { return byte == 0; });
}

bool Mask::parse_ids(std::string_view text, int vocabulary, bool allowed, Mask* out) {
  out->all_ = false;
  out->bits_.assign(mask_bytes(vocabulary), allowed ? 0 : 0xff);
  clear_tail(vocabulary, &out->bits_);
  while (!text.empty()) {
    int id = 0;
    if (!parse_integer(take_word(&text, ';'), &id) || id < 0 || id >= vocabulary) return false;
    std::uint8_t& byte = out->bits_[static_cast<std::size_t>(id) / 8];
    const auto bit = static_cast<std::uint8_t>(1 << (id % 8));
    byte = static_cast<std::uint8_t>(allowed ? byte | bit : byte & ~bit);
  }
  return true;
}

bool Mask::parse_bits(std::string_view text, int vocabulary, Mask* out) {
  out->all_ = false;
  if (!decode_base64(text, mask_bytes(vocabulary), &out->bits_)) return false;
  clear_tail(vocabulary, &out->bits_);
  return true;
}

}  // namespace smoe
