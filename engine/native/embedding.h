// The embedding table, of which a token needs one row: in memory, or left in the scout.
#pragma once

#include <cstdint>
#include <vector>

#include "error.h"
#include "file_io.h"
#include "kernels.h"

namespace smoe {

class Embedding {
 public:
  Embedding() = default;
  // In memory, which must outlive the object.
  explicit Embedding(const Matrix& table) : table_(table) {}
  // In the file, which must outlive the object, from `begin` on; storage: f32, f16 or bf16.
  Embedding(const File& file, std::uint64_t begin, Storage storage, int rows, int cols);

  // out: [cols]
  Error row(const Kernels& kernels, int id, float* out);

 private:
  Matrix table_{};              // data is null where the rows are in the file
  const File* file_ = nullptr;
  std::uint64_t begin_ = 0;
  std::vector<unsigned char> bytes_;  // of one row
};

}  // namespace smoe
