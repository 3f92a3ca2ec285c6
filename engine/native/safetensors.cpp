#include "safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "json.h"
#include "memory.h"

namespace smoe {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read as they lie: little-endian");

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLargestHeader = 100'000'000;  // the reference implementation's limit
constexpr std::uint64_t kReadBytes = std::uint64_t{16} << 20;

Error field(const std::string& name, const std::string& what) { return {name + ": " + what}; }

std::string in(const std::string& path, const Error& error) { return path + ": " + error.message; }

std::string show(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t n : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(n);
  return text + "]";
}

// Bytes an element; 0 for types that this reader does not know (their sizes are then not checked).
std::uint64_t element_bytes(std::string_view dtype) {
  static constexpr std::pair<std::string_view, int> kTypes[] = {
      {"BOOL", 1}, {"U8", 1},   {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1}, {"I16", 2}, {"U16", 2},
      {"F16", 2},  {"BF16", 2}, {"I32", 4}, {"U32", 4},     {"F32", 4},     {"I64", 8},     {"U64", 8}, {"F64", 8}};
  for (const auto& [name, bytes] : kTypes)
    if (name == dtype) return static_cast<std::uint64_t>(bytes);
  return 0;
}

std::optional<Storage> storage_of(std::string_view dtype) {
  if (dtype == "F32") return Storage::f32;
  if (dtype == "F16") return Storage::f16;
  if (dtype == "BF16") return Storage::bf16;
  return std::nullopt;
}

bool multiply(std::uint64_t a, std::uint64_t b, std::uint64_t* out) {
  return !__builtin_mul_overflow(a, b, out);
}

Error parse_shape(const std::string& name, const json::Value* value, std::vector<std::int64_t>* out) {
  if (!value || !value->is(json::Kind::array)) return field(name, "shape is missing");
  for (const json::Value& n : value->items) {
    if (!n.integer || *n.integer < 0) return field(name, "shape is not made of counts");
    out->push_back(*n.integer);
  }
  return {};
}

Error parse_offsets(const std::string& name, const json::Value* value, std::uint64_t data_bytes,
                    SafetensorsEntry* out) {
  if (!value || value->items.size() != 2 || !value->items[0].integer || !value->items[1].integer)
    return field(name, "data_offsets is not a pair of offsets");
  const std::int64_t begin = *value->items[0].integer, end = *value->items[1].integer;
  if (begin < 0 || end < begin) return field(name, "data_offsets do not ascend from 0");
  out->begin = static_cast<std::uint64_t>(begin);
  out->end = static_cast<std::uint64_t>(end);
  if (out->end > data_bytes)
    return field(name, "incomplete: data_offsets need " + std::to_string(out->end) + " bytes of data, the file has " +
                           std::to_string(data_bytes));
  return {};
}

Error check_bytes(const std::string& name, const SafetensorsEntry& entry) {
  std::uint64_t bytes = element_bytes(entry.dtype);
  if (bytes == 0) return {};
  for (const std::int64_t n : entry.shape)
    if (!multiply(bytes, static_cast<std::uint64_t>(n), &bytes)) return field(name, "shape overflows");
  if (bytes != entry.end - entry.begin)
    return field(name, "shape " + show(entry.shape) + " of " + entry.dtype + " needs " + std::to_string(bytes) +
                           " bytes, data_offsets give " + std::to_string(entry.end - entry.begin));
  return {};
}

Error parse_entry(const std::string& name, const json::Value& value, std::uint64_t data_bytes,
                  SafetensorsEntry* out) {
  const json::Value* dtype = value.find("dtype");
  if (!dtype || !dtype->is(json::Kind::string)) return field(name, "dtype is missing");
  out->dtype = dtype->string;
  if (Error error = parse_shape(name, value.find("shape"), &out->shape)) return error;
  if (Error error = parse_offsets(name, value.find("data_offsets"), data_bytes, out)) return error;
  return check_bytes(name, *out);
}

Error parse_metadata(const json::Value& value, SafetensorsHeader* out) {
  if (!value.is(json::Kind::object)) return field("__metadata__", "not an object");
  for (const auto& [key, text] : value.members) {
    if (!text.is(json::Kind::string)) return field("__metadata__." + key, "not a string");
    out->metadata.emplace(key, text.string);
  }
  return {};
}

Error check_overlaps(const SafetensorsHeader& header) {
  std::vector<std::pair<const std::string*, const SafetensorsEntry*>> order;
  for (const auto& [name, entry] : header.entries)
    if (entry.begin < entry.end) order.emplace_back(&name, &entry);
  std::sort(order.begin(), order.end(), [](auto& a, auto& b) { return a.second->begin < b.second->begin; });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (order[i].second->begin < order[i - 1].second->end)
      return field(*order[i].first, "data_offsets overlap those of " + *order[i - 1].first);
  return {};
}

class LoadedFile : public Safetensors {
 public:
  static Error load(const File& file, const Progress& progress, std::unique_ptr<LoadedFile>* out) {
    auto loaded = std::make_unique<LoadedFile>();
    loaded->path_ = file.path();
    if (Error error = read_safetensors_header(file, &loaded->header_)) return error;
    if (Error error = loaded->read_data(file, progress)) return error;
    for (const auto& [name, entry] : loaded->header_.entries) loaded->add(name, entry);
    *out = std::move(loaded);
    return {};
  }

  bool has(std::string_view name) const override { return header_.find(name); }

  const Tensor* find(std::string_view name) const override {
    const auto place = tensors_.find(name);
    return place == tensors_.end() ? nullptr : &place->second;
  }

  Error require(std::string_view name, const std::vector<std::int64_t>& shape, const Tensor** out) const override {
    const std::string where = path_ + ": " + std::string(name);
    const SafetensorsEntry* entry = header_.find(name);
    if (!entry) return field(where, "missing");
    if (!storage_of(entry->dtype)) return field(where, "dtype " + entry->dtype + " (can use F32, F16, BF16)");
    if (entry->shape != shape) return field(where, "shape " + show(entry->shape) + ", expected " + show(shape));
    *out = find(name);
    return {};
  }

  const std::string* metadata(std::string_view key) const override {
    const auto place = header_.metadata.find(key);
    return place == header_.metadata.end() ? nullptr : &place->second;
  }

  std::uint64_t bytes() const override { return pages_.bytes() + realigned_bytes_; }

 private:
  // Reads start at a whole block before the data section, so that they can be direct.
  Error read_data(const File& file, const Progress& progress) {
    const std::uint64_t start = header_.data_offset / kIoBlock * kIoBlock, total = file.size() - start;
    if (Error error = Pages::allocate(round_up(total, kIoBlock), &pages_)) return {in(path_, error)};
    for (std::uint64_t done = 0; done < total;) {
      const std::uint64_t bytes = std::min(kReadBytes, total - done);
      if (Error error = file.read_direct(start + done, pages_.data() + done, bytes)) return error;
      if (!file.direct()) file.drop_cached(start + done, bytes);
      done += bytes;
      if (progress) progress(done, total);
    }
    data_ = pages_.data() + (header_.data_offset - start);
    return {};
  }

  void add(const std::string& name, const SafetensorsEntry& entry) {
    const auto storage = storage_of(entry.dtype);
    if (!storage) return;
    const std::uint64_t bytes = entry.end - entry.begin;
    const void* data = aligned(data_ + entry.begin, bytes, element_bytes(entry.dtype));
    tensors_.emplace(name, Tensor{name, *storage, entry.shape, data, bytes});
  }

  // Old writers did not pad the header: a tensor that is misaligned because of it is copied.
  const void* aligned(const unsigned char* data, std::uint64_t bytes, std::uint64_t element) {
    if (reinterpret_cast<std::uintptr_t>(data) % element == 0) return data;
    auto& copy = realigned_.emplace_back(new std::uint64_t[(bytes + 7) / 8]);
    std::memcpy(copy.get(), data, bytes);
    realigned_bytes_ += round_up(bytes, 8);
    return copy.get();
  }

  std::string path_;
  SafetensorsHeader header_;
  Pages pages_;
  const unsigned char* data_ = nullptr;
  std::vector<std::unique_ptr<std::uint64_t[]>> realigned_;
  std::uint64_t realigned_bytes_ = 0;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace

const SafetensorsEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto place = entries.find(name);
  return place == entries.end() ? nullptr : &place->second;
}

Error parse_safetensors_header(std::string_view text, std::uint64_t data_bytes, SafetensorsHeader* out) {
  json::Value root;
  if (Error error = json::parse(text, &root)) return field("header", error.message);
  if (!root.is(json::Kind::object)) return field("header", "not a JSON object");
  for (const auto& [name, value] : root.members) {
    Error error = name == "__metadata__" ? parse_metadata(value, out)
                                         : parse_entry(name, value, data_bytes, &out->entries[name]);
    if (error) return error;
  }
  return check_overlaps(*out);
}

Error read_safetensors_header(const File& file, SafetensorsHeader* out) {
  std::uint64_t length = 0;
  if (file.size() < kLengthBytes)
    return field(file.path(), "incomplete: needs 8 bytes at least, has " + std::to_string(file.size()));
  if (Error error = file.read(0, &length, kLengthBytes)) return error;
  if (length > kLargestHeader)
    return field(file.path(), "not a safetensors file: a header of " + std::to_string(length) + " bytes");
  if (length > file.size() - kLengthBytes)
    return field(file.path(), "incomplete: needs " + std::to_string(kLengthBytes + length) + " bytes, has " +
                                  std::to_string(file.size()));
  std::string text(length, '\0');
  if (Error error = file.read(kLengthBytes, text.data(), length)) return error;
  out->data_offset = kLengthBytes + length;
  Error error = parse_safetensors_header(text, file.size() - out->data_offset, out);
  return error ? Error{in(file.path(), error)} : error;
}

Error Safetensors::load(const std::string& path, std::unique_ptr<Safetensors>* out, const Progress& progress) {
  std::unique_ptr<File> file;
  if (Error error = File::open(path, &file)) return error;
  std::unique_ptr<LoadedFile> loaded;
  if (Error error = LoadedFile::load(*file, progress, &loaded)) return error;
  *out = std::move(loaded);
  return {};
}

}  // namespace smoe
