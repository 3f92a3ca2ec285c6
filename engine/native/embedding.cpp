#include "embedding.h"

#include "safetensors.h"

namespace smoe {

Embedding::Embedding(const File& file, std::uint64_t begin, Storage storage, int rows, int cols)
    : table_{storage, rows, cols, nullptr, nullptr},
      file_(&file),
      begin_(begin),
      bytes_(static_cast<std::size_t>(cols) * (storage == Storage::f32 ? 4 : 2)) {}

Error Embedding::row(const Kernels& kernels, int id, float* out) {
  if (file_ == nullptr) {
    kernels.dequantize_row(table_, id, out);
    return {};
  }
  const std::uint64_t offset = begin_ + static_cast<std::uint64_t>(id) * bytes_.size();
  if (Error error = file_->read(offset, bytes_.data(), bytes_.size())) return error;
  to_floats(table_.storage, bytes_.data(), static_cast<std::size_t>(table_.cols), out);
  return {};
}

}  // namespace smoe
