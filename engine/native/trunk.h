// The scout in memory: the tensors that the model uses, by their names in checkpoints.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "memory.h"
#include "trunk_loader.h"

namespace smoe {

struct Tensor {
  Storage storage;
  const void* data;             // aligned to 64; null: left in the file
  const std::uint16_t* scales;  // null unless storage is qN
  std::uint64_t begin;          // in the file
};

class Trunk {
 public:
  // Reads the header and settles what will be where; layers: the model's. Nothing is allocated for tensors yet.
  static Error open(const std::string& path, int layers, TrunkForm form, std::unique_ptr<Trunk>* out);
  // Reads the tensors: into memory that the object owns, for a mapped file that shrinks would kill the engine.
  Error load(const Kernels& kernels, int threads, const LoadProgress& progress = {});

  const std::string& path() const { return path_; }
  const File& file() const { return *file_; }
  const SafetensorsHeader& header() const { return header_; }
  std::uint64_t bytes() const { return layout_.bytes; }  // of memory that the tensors take
  TrunkForm form() const { return layout_.form; }
  const std::string* metadata(std::string_view key) const;  // null when absent
  bool has(std::string_view name) const { return header_.find(name) != nullptr; }

  // After load(). One line when the tensor is absent, of a wrong element type, or not of this shape.
  Error require(std::string_view name, const std::vector<std::int64_t>& shape, Tensor* out) const;

 private:
  Trunk() = default;

  std::string path_;
  std::unique_ptr<File> file_;
  SafetensorsHeader header_;
  TrunkLayout layout_;
  Pages pages_;
  std::map<std::string_view, Tensor> tensors_;
};

}  // namespace smoe
