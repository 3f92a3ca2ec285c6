// The safetensors format (https://github.com/huggingface/safetensors#format): u64 length, JSON header, data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "error.h"
#include "file_io.h"
#include "kernels.h"

namespace smoe {

struct SafetensorsEntry {
  std::string dtype;                // as written: "BF16", "F8_E4M3", ...
  std::vector<std::int64_t> shape;
  std::uint64_t begin, end;         // relative to the data section
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry, std::less<>> entries;
  std::map<std::string, std::string, std::less<>> metadata;
  std::uint64_t data_offset = 0;  // of the data section in the file

  const SafetensorsEntry* find(std::string_view name) const;
};

// The JSON part alone, checked against the length of the data section. The message lacks the file's name.
Error parse_safetensors_header(std::string_view json, std::uint64_t data_bytes, SafetensorsHeader* out);
Error read_safetensors_header(const File& file, SafetensorsHeader* out);

// The storage that the engine computes with; none for other element types.
std::optional<Storage> storage_of(std::string_view dtype);

// Bytes an element; 0 for types that this reader does not know (their sizes are then not checked).
std::uint64_t element_bytes(std::string_view dtype);

std::string shape_text(const std::vector<std::int64_t>& shape);  // "[2, 3]"

// n elements of f32, f16 or bf16 as they lie in a file, aligned or not.
void to_floats(Storage storage, const void* elements, std::size_t n, float* out);

}  // namespace smoe
