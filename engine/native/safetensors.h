// The safetensors format (https://github.com/huggingface/safetensors#format): u64 length, JSON header, data.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
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

// A tensor in memory that the Safetensors object owns.
struct Tensor {
  std::string name;
  Storage storage;  // f32, f16, bf16
  std::vector<std::int64_t> shape;
  const void* data;  // aligned to its element
  std::uint64_t bytes;
};

// The scout's tensors by checkpoint name. load() reads the whole file into memory that the object owns (never
// mapped: a file that shrinks must not kill the engine).
class Safetensors {
 public:
  using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;
  static Error load(const std::string& path, std::unique_ptr<Safetensors>* out, const Progress& progress = {});
  virtual ~Safetensors() = default;

  virtual bool has(std::string_view name) const = 0;  // of any element type
  // Null when absent, or of an element type that the engine cannot use (require() says which).
  virtual const Tensor* find(std::string_view name) const = 0;
  // One line when it is absent, of a wrong element type, or not of this shape.
  virtual Error require(std::string_view name, const std::vector<std::int64_t>& shape, const Tensor** out) const = 0;
  virtual const std::string* metadata(std::string_view key) const = 0;  // null when absent
  virtual std::uint64_t bytes() const = 0;                              // of memory held
};

}  // namespace smoe
