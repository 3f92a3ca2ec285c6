// Any bytes as JSON, in both dialects: what is accepted must be safe to walk.
#include <cstdint>
#include <string_view>

#include "json.h"

static std::size_t walk(const smoe::json::Value& value) {
  std::size_t total = value.string.size() + 1;
  for (const auto& item : value.items) total += walk(item);
  for (const auto& [key, member] : value.members) {
    if (value.find(key) != &member) __builtin_trap();  // keys are unique and found
    total += walk(member);
  }
  return total;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  smoe::json::Value strict, python;
  const bool good = !smoe::json::parse(text, &strict);
  if (good) walk(strict);
  const bool also_good = !smoe::json::parse(text, &python, smoe::json::Dialect::python);
  if (good && !also_good) __builtin_trap();
  if (also_good) walk(python);
  return 0;
}
