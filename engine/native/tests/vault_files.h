// Tiny vaults and scouts that tests make, break and put into a folder of their own.
#pragma once

#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "vault_format.h"

namespace vault_files {

namespace fs = std::filesystem;
using namespace smoe::format;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "smoe-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }

  std::string path(const std::string& name) const { return (path_ / name).string(); }

  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

 private:
  fs::path path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline fs::path interop(const std::string& name) {
  return fs::path(__FILE__).parent_path() / "../../../tests/interop" / name;
}

template <class T>
void append(std::string* to, const T& value) {
  to->append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + kRecordAlignment - 1) / kRecordAlignment * kRecordAlignment;
}

// The parts of a vault; change any of them before bytes().
struct VaultParts {
  Header header{};
  std::vector<TableEntry> table;
  std::vector<TensorDescriptor> tensors;
  ArchBlock block{};
  std::vector<std::string> records;  // unpadded, in the order of the table

  std::string bytes() const {
    std::string out;
    append(&out, header);
    for (const TableEntry& entry : table) append(&out, entry);
    for (const TensorDescriptor& tensor : tensors) append(&out, tensor);
    if (header.version == 2) {
      out.resize(header.arch_offset);
      append(&out, block);
    }
    for (std::size_t i = 0; i < records.size(); ++i) {
      out.resize(std::max<std::size_t>(out.size(), table[i].byte_offset));
      out.replace(table[i].byte_offset, records[i].size(), records[i]);
      out.resize(padded(out.size()));
    }
    return out;
  }
};

struct Shape {
  int bits = 4, d_model = 64, ffn = 32, vocab = 100;
  int hidden_layers = 2;
  std::vector<std::pair<int, int>> layers = {{0, 4}, {1, 4}};  // id, experts; in the order of the table
};

inline char filler(std::size_t record, std::size_t i) { return static_cast<char>(record * 31 + i * 7 + i / 251); }

inline void add_expert(const Shape& shape, int layer, int expert, VaultParts* out) {
  TableEntry entry{};
  std::uint64_t at = 0;
  for (int type = 0; type < kTensorsPerExpert; ++type) {
    const std::uint32_t rows = static_cast<std::uint32_t>(type == 2 ? shape.d_model : shape.ffn);
    const std::uint32_t cols = static_cast<std::uint32_t>(type == 2 ? shape.ffn : shape.d_model);
    const std::uint64_t codes = (std::uint64_t{rows} * cols * static_cast<unsigned>(shape.bits) + 7) / 8;
    const std::uint64_t groups = (std::uint64_t{rows} * cols + kGroupSize - 1) / kGroupSize;
    out->tensors.push_back({static_cast<std::uint8_t>(type), 2, {}, rows, cols, at, codes, at + codes, groups * 2});
    at += codes + groups * 2;
    entry.num_groups += groups;
  }
  std::string record(at, '\0');
  for (std::size_t i = 0; i < record.size(); ++i) record[i] = filler(out->records.size(), i);
  out->records.push_back(record);
  entry.layer_id = static_cast<std::uint32_t>(layer);
  entry.expert_id = static_cast<std::uint32_t>(expert);
  entry.raw_size = at;
  entry.padded_size = padded(at);
  entry.group_size = kGroupSize;
  out->table.push_back(entry);
}

inline ArchBlock arch_block(const Shape& shape) {
  ArchBlock block{};
  std::memcpy(block.magic, kArchMagic, sizeof block.magic);
  block.block_version = 1;
  block.block_size = sizeof block;
  block.flags = kRenormalizeTopK | kQkNorm;
  block.rope_theta = 1e6f;
  block.num_heads = 4;
  block.num_kv_heads = 2;
  block.head_dim = 16;
  block.moe_top_k = 2;
  block.moe_ffn_dim = static_cast<std::uint32_t>(shape.ffn);
  block.dense_ffn_dim = 48;
  block.num_hidden_layers = static_cast<std::uint32_t>(shape.hidden_layers);
  block.rms_norm_eps = 1e-6f;
  std::memcpy(block.model_type, "qwen3_moe", 9);
  return block;
}

inline void place(VaultParts* parts) {
  Header& h = parts->header;
  const std::uint64_t table =
      parts->table.size() * sizeof(TableEntry) + parts->tensors.size() * sizeof(TensorDescriptor);
  const std::uint64_t arch = (sizeof h + table + kArchAlignment - 1) / kArchAlignment * kArchAlignment;
  h.arch_offset = static_cast<std::uint32_t>(arch);
  h.data_offset = padded(arch + sizeof(ArchBlock));
  std::uint64_t at = h.data_offset;
  for (TableEntry& entry : parts->table) {
    entry.byte_offset = at;
    at += entry.padded_size;
  }
}

inline VaultParts make_vault(const Shape& shape = {}) {
  VaultParts parts;
  std::uint32_t most = 0;
  for (const auto& [layer, experts] : shape.layers) {
    for (int e = 0; e < experts; ++e) add_expert(shape, layer, e, &parts);
    most = std::max(most, static_cast<std::uint32_t>(experts));
  }
  Header& h = parts.header;
  std::memcpy(h.magic, kMagic, sizeof h.magic);
  h.version = 2;
  h.num_moe_layers = static_cast<std::uint32_t>(shape.layers.size());
  h.max_experts_per_layer = most;
  h.total_experts = static_cast<std::uint32_t>(parts.table.size());
  h.table_offset = sizeof h;
  h.group_size = kGroupSize;
  h.bits = static_cast<std::uint32_t>(shape.bits);
  h.d_model = static_cast<std::uint32_t>(shape.d_model);
  h.vocab_size = static_cast<std::uint32_t>(shape.vocab);
  h.ffn_dim = static_cast<std::uint32_t>(shape.ffn);
  place(&parts);
  parts.block = arch_block(shape);
  return parts;
}

// The same without its arch block.
inline VaultParts make_version1(const Shape& shape = {}) {
  VaultParts parts = make_vault(shape);
  parts.header.version = 1;
  parts.header.arch_offset = 0;
  return parts;
}

// A safetensors file of this JSON header and `data`.
inline std::string safetensors(const std::string& json, const std::string& data = "") {
  std::string out;
  append(&out, std::uint64_t{json.size()});
  return out + json + data;
}

}  // namespace vault_files
