#include "safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "json.h"

namespace smoe {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read as they lie: little-endian");

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLargestHeader = 100'000'000;  // the reference implementation's limit

Error field(const std::string& name, const std::string& what) { return {name + ": " + what}; }

std::string in(const std::string& path, const Error& error) { return path + ": " + error.message; }

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
    return field(name, "shape " + shape_text(entry.shape) + " of " + entry.dtype + " needs " + std::to_string(bytes) +
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

}  // namespace

std::optional<Storage> storage_of(std::string_view dtype) {
  if (dtype == "F32") return Storage::f32;
  if (dtype == "F16") return Storage::f16;
  if (dtype == "BF16") return Storage::bf16;
  return std::nullopt;
}

std::uint64_t element_bytes(std::string_view dtype) {
  static constexpr std::pair<std::string_view, int> kTypes[] = {
      {"BOOL", 1}, {"U8", 1},   {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1}, {"I16", 2}, {"U16", 2},
      {"F16", 2},  {"BF16", 2}, {"I32", 4}, {"U32", 4},     {"F32", 4},     {"I64", 8},     {"U64", 8}, {"F64", 8}};
  for (const auto& [name, bytes] : kTypes)
    if (name == dtype) return static_cast<std::uint64_t>(bytes);
  return 0;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t n : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(n);
  return text + "]";
}

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

void to_floats(Storage storage, const void* elements, std::size_t n, float* out) {
  if (storage == Storage::f32) {
    std::memcpy(out, elements, n * sizeof(float));
    return;
  }
  const auto* const bytes = static_cast<const unsigned char*>(elements);
  for (std::size_t i = 0; i < n; ++i) {
    std::uint16_t half;
    std::memcpy(&half, bytes + i * sizeof half, sizeof half);
    out[i] = storage == Storage::bf16 ? std::bit_cast<float>(std::uint32_t{half} << 16) : half_to_float(half);
  }
}

}  // namespace smoe
