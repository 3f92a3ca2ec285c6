#include "trunk.h"

namespace smoe {

Error Trunk::open(const std::string& path, int layers, TrunkForm form, std::unique_ptr<Trunk>* out) {
  std::unique_ptr<Trunk> trunk(new Trunk());
  trunk->path_ = path;
  if (Error error = File::open(path, &trunk->file_)) return error;
  if (Error error = read_safetensors_header(*trunk->file_, &trunk->header_)) return error;
  trunk->layout_ = lay_out_trunk(trunk->header_, layers, form);
  *out = std::move(trunk);
  return {};
}

Error Trunk::load(const Kernels& kernels, int threads, const LoadProgress& progress) {
  if (Error error = Pages::allocate(layout_.bytes, &pages_)) return {path_ + ": " + error.message};
  if (Error error = load_tensors(*file_, layout_, kernels, threads, progress, pages_.data())) return error;
  for (const PlacedTensor& tensor : layout_.tensors) {
    const bool scaled = tensor.storage != tensor.source;
    const auto* scales = reinterpret_cast<const std::uint16_t*>(pages_.data() + tensor.scales);
    tensors_.emplace(tensor.name,
                     Tensor{tensor.storage, pages_.data() + tensor.data, scaled ? scales : nullptr, tensor.begin});
  }
  if (const auto& left = layout_.left_in_file)
    tensors_.emplace(left->name, Tensor{left->source, nullptr, nullptr, left->begin});
  return {};
}

const std::string* Trunk::metadata(std::string_view key) const {
  const auto place = header_.metadata.find(key);
  return place == header_.metadata.end() ? nullptr : &place->second;
}

Error Trunk::require(std::string_view name, const std::vector<std::int64_t>& shape, Tensor* out) const {
  const std::string where = path_ + ": " + std::string(name) + ": ";
  const SafetensorsEntry* const entry = header_.find(name);
  if (entry == nullptr) return {where + "missing"};
  if (!storage_of(entry->dtype)) return {where + "dtype " + entry->dtype + " (can use F32, F16, BF16)"};
  if (entry->shape != shape) return {where + "shape " + shape_text(entry->shape) + ", expected " + shape_text(shape)};
  const auto place = tensors_.find(name);
  if (place == tensors_.end()) return {where + "not a tensor of the trunk"};
  *out = place->second;
  return {};
}

}  // namespace smoe
