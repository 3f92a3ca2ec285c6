#include "numbers.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

namespace smoe {
namespace {

// Longer spellings of a number exist, but nobody means well with one.
constexpr std::size_t kLongestReal = 63;

}  // namespace

// strtod and not from_chars, which macOS lacks for floats; the engine never leaves the "C" locale.
bool parse_real(std::string_view word, double* out) {
  if (word.empty() || word.size() > kLongestReal || word[0] == '+') return false;
  if (word.find_first_not_of("0123456789+-.eE") != std::string_view::npos) return false;
  char text[kLongestReal + 1];
  std::memcpy(text, word.data(), word.size());
  text[word.size()] = '\0';
  char* stopped = nullptr;
  *out = std::strtod(text, &stopped);
  return stopped == text + word.size() && std::isfinite(*out);
}

std::string_view take_word(std::string_view* text, char separator) {
  const std::size_t end = text->find(separator);
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return word;
}

}  // namespace smoe
