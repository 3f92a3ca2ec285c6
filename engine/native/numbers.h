// Decimal numbers as the protocol and the flags write them: the whole word or nothing, whatever the locale.
#pragma once

#include <charconv>
#include <string_view>
#include <system_error>

namespace smoe {

template <class Integer>
bool parse_integer(std::string_view word, Integer* out) {
  const char* const end = word.data() + word.size();
  const auto [stopped, error] = std::from_chars(word.data(), end, *out);
  return error == std::errc() && stopped == end && !word.empty();
}

// Finite numbers only; no hexadecimal, no leading space or plus.
bool parse_real(std::string_view word, double* out);

// The piece of `text` before the next `separator`, which both are taken from `text`.
std::string_view take_word(std::string_view* text, char separator);

}  // namespace smoe
