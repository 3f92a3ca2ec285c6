#include "vault_reader.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "architecture.h"
#include "family.h"
#include "vault_format.h"

namespace smoe {
namespace {

using format::ArchBlock;
using format::Header;
using format::TableEntry;
using format::TensorDescriptor;

constexpr std::uint32_t kMostExperts = 1u << 20;  // in all; bounds what a forged header can make us allocate
constexpr std::uint32_t kWidest = 1u << 24;
constexpr const char* kTensorNames[] = {"gate", "up", "down"};

Error field(const std::string& name, const std::string& what) { return {name + ": " + what}; }

Error incomplete(const std::string& what, std::uint64_t needed, std::uint64_t has) {
  return field(what, "incomplete: needs " + std::to_string(needed) + " bytes, has " + std::to_string(has));
}

std::string expert_name(const TableEntry& entry) {
  return "expert " + std::to_string(entry.expert_id) + " of layer " + std::to_string(entry.layer_id);
}

// Whether [begin, begin + bytes) lies within `limit`, without overflow.
bool within(std::uint64_t begin, std::uint64_t bytes, std::uint64_t limit) {
  return begin <= limit && bytes <= limit - begin;
}

Storage storage_of(std::uint32_t bits) {
  return bits == 2 ? Storage::q2 : bits == 4 ? Storage::q4 : Storage::q8;
}

Error check_header(const Header& h, std::uint64_t file_bytes) {
  if (std::memcmp(h.magic, format::kMagic, sizeof h.magic) != 0) return {"not a vault: it does not begin with SMOE"};
  if (h.version != 1 && h.version != 2)
    return field("version", std::to_string(h.version) + " is unknown (can read 1 and 2)");
  if (h.group_size != format::kGroupSize) return field("group_size", std::to_string(h.group_size) + " is not 64");
  if (h.bits != 2 && h.bits != 4 && h.bits != 8)
    return field("bits", std::to_string(h.bits) + " is unknown (can read 2, 4 and 8)");
  if (h.d_model == 0 || h.d_model > kWidest) return field("d_model", std::to_string(h.d_model) + " is out of range");
  if (h.total_experts == 0 || h.total_experts > kMostExperts)
    return field("total_experts", std::to_string(h.total_experts) + " is out of range");
  if (h.table_offset < sizeof(Header)) return field("table_offset", "lies inside the header");
  const std::uint64_t table = std::uint64_t{h.total_experts} *
                              (sizeof(TableEntry) + format::kTensorsPerExpert * sizeof(TensorDescriptor));
  if (!within(h.table_offset, table, std::numeric_limits<std::uint64_t>::max()))
    return field("table_offset", "overflows");
  if (h.table_offset + table > file_bytes)
    return incomplete("expert table", h.table_offset + table, file_bytes);
  if (h.data_offset < h.table_offset + table) return field("data_offset", "lies inside the expert table");
  if (h.data_offset % format::kRecordAlignment) return field("data_offset", "is not a multiple of 16384");
  if (h.version == 1) return {};
  if (h.arch_offset % format::kArchAlignment || h.arch_offset < h.table_offset + table ||
      !within(h.arch_offset, sizeof(ArchBlock), h.data_offset))
    return field("arch_offset", std::to_string(h.arch_offset) + " is not 64-byte aligned between table and data");
  if (!within(h.arch_offset, sizeof(ArchBlock), file_bytes))
    return incomplete("arch block", h.arch_offset + sizeof(ArchBlock), file_bytes);
  return {};
}

Error check_entry(const TableEntry& entry, const Header& header, std::uint64_t file_bytes) {
  const std::string name = expert_name(entry);
  if (entry.expert_id >= header.max_experts_per_layer)
    return field(name, "max_experts_per_layer is " + std::to_string(header.max_experts_per_layer));
  if (entry.group_size != format::kGroupSize)
    return field(name, "group_size " + std::to_string(entry.group_size) + " is not 64");
  if (entry.byte_offset % format::kRecordAlignment) return field(name, "byte_offset is not a multiple of 16384");
  if (entry.padded_size % format::kRecordAlignment) return field(name, "padded_size is not a multiple of 16384");
  if (entry.raw_size > entry.padded_size) return field(name, "raw_size is more than padded_size");
  if (entry.byte_offset < header.data_offset) return field(name, "byte_offset lies before data_offset");
  if (!within(entry.byte_offset, entry.padded_size, std::numeric_limits<std::int64_t>::max()))
    return field(name, "byte_offset overflows");
  if (entry.byte_offset + entry.padded_size > file_bytes)
    return incomplete(name, entry.byte_offset + entry.padded_size, file_bytes);
  return {};
}

// Codes may fill the last group or stop with the last weight: both are seen as sizes.
Error check_tensor(const std::string& name, const TensorDescriptor& tensor, std::uint32_t rows, std::uint32_t cols,
                   std::uint32_t bits, std::uint64_t record_bytes) {
  if (tensor.ndim != 2) return field(name, "ndim " + std::to_string(tensor.ndim) + " is not 2");
  if (tensor.rows != rows || tensor.cols != cols)
    return field(name, "rows x cols " + std::to_string(tensor.rows) + " x " + std::to_string(tensor.cols) +
                           " is not " + std::to_string(rows) + " x " + std::to_string(cols));
  const std::uint64_t weights = std::uint64_t{rows} * cols;  // below 2^48
  const std::uint64_t groups = (weights + format::kGroupSize - 1) / format::kGroupSize;
  const std::uint64_t least = (weights * bits + 7) / 8, most = groups * format::kGroupSize * bits / 8;
  if (tensor.packed_size < least || tensor.packed_size > most)
    return field(name, "packed_size " + std::to_string(tensor.packed_size) + " is not " + std::to_string(least));
  if (tensor.scales_size != groups * format::kScaleBytes)
    return field(name, "scales_size " + std::to_string(tensor.scales_size) + " is not " +
                           std::to_string(groups * format::kScaleBytes));
  if (!within(tensor.packed_offset, tensor.packed_size, record_bytes))
    return field(name, "packed_offset is past raw_size");
  if (!within(tensor.scales_offset, tensor.scales_size, record_bytes))
    return field(name, "scales_offset is past raw_size");
  if (tensor.scales_offset % format::kScaleBytes) return field(name, "scales_offset is odd");
  return {};
}

std::uint64_t groups_of(const TensorDescriptor& tensor) { return tensor.scales_size / format::kScaleBytes; }

ExpertRecord::Part part(const TensorDescriptor& tensor) {
  return {static_cast<int>(tensor.rows), static_cast<int>(tensor.cols), tensor.packed_offset, tensor.scales_offset};
}

class VaultFile : public Vault {
 public:
  Error open(const std::string& path) {
    if (Error error = File::open(path, &file_)) return error;
    if (file_->size() < sizeof(Header)) return here(incomplete("header", sizeof(Header), file_->size()));
    if (Error error = file_->read(0, &header_, sizeof header_)) return error;
    if (Error error = check_header(header_, file_->size())) return here(error);
    if (Error error = read_table()) return error;
    if (Error error = index_layers()) return here(error);
    if (Error error = check_overlaps()) return here(error);
    return header_.version == 2 ? file_->read(header_.arch_offset, &block_, sizeof block_) : Error{};
  }

  Error read_architecture(const std::string& scout_path, const std::string& config_path) {
    const Error error = derive_architecture(scout_path, config_path);
    return error ? here(error) : error;
  }

  const Architecture& architecture() const override { return architecture_; }
  const std::string& path() const override { return file_->path(); }
  std::uint64_t file_bytes() const override { return file_->size(); }
  const File& file() const override { return *file_; }

  bool is_moe_layer(int layer) const override { return moe_index(layer) >= 0; }

  int moe_index(int layer) const override {
    const bool known = layer >= 0 && static_cast<std::size_t>(layer) < moe_index_.size();
    return known ? moe_index_[static_cast<std::size_t>(layer)] : -1;
  }

  int layer_of(int moe_index) const override { return layers_[static_cast<std::size_t>(moe_index)].id; }

  int experts(int moe_index) const override {
    return static_cast<int>(layers_[static_cast<std::size_t>(moe_index)].experts.size());
  }

  const ExpertRecord& expert(int moe_index, int expert) const override {
    return layers_[static_cast<std::size_t>(moe_index)].experts[static_cast<std::size_t>(expert)];
  }

  int total_experts() const override { return static_cast<int>(header_.total_experts); }
  std::uint64_t largest_record() const override { return largest_record_; }

  void matrices(const ExpertRecord& record, const void* bytes, Matrix* gate, Matrix* up, Matrix* down) const override {
    *gate = matrix(record.gate, bytes);
    *up = matrix(record.up, bytes);
    *down = matrix(record.down, bytes);
  }

 private:
  struct Layer {
    int id;
    std::vector<ExpertRecord> experts;
  };

  Error here(const Error& error) const { return field(file_->path(), error.message); }

  Error derive_architecture(const std::string& scout_path, const std::string& config_path) {
    SafetensorsHeader scout;
    if (Error error = read_scout(scout_path, &scout)) return error;
    architecture_ = table_facts(scout);
    CheckpointConfig config;
    const Error config_error = find_checkpoint_config(config_path, scout, &config);
    // Most version-2 vaults need no config: what their scout keeps may be broken, what the caller names may not.
    if (config_error && (header_.version == 1 || !config_path.empty())) return config_error;
    if (Error error = apply_source(config, scout, scout_path)) return error;
    if (config.found()) note_config(config, &architecture_);
    if (Error error = check_ranges(architecture_)) return error;
    if (Error error = check_layers()) return error;
    return check_scout(scout);
  }
  Error read_table() {
    table_.resize(header_.total_experts);
    descriptors_.resize(std::size_t{header_.total_experts} * format::kTensorsPerExpert);
    const std::uint64_t bytes = table_.size() * sizeof(TableEntry);
    if (Error error = file_->read(header_.table_offset, table_.data(), bytes)) return error;
    return file_->read(header_.table_offset + bytes, descriptors_.data(),
                       descriptors_.size() * sizeof(TensorDescriptor));
  }

  Error index_layers() {
    std::map<std::uint32_t, std::map<std::uint32_t, ExpertRecord>> layers;
    for (std::size_t i = 0; i < table_.size(); ++i) {
      ExpertRecord record;
      if (Error error = check_entry(table_[i], header_, file_->size())) return error;
      if (Error error = read_record(table_[i], &descriptors_[i * format::kTensorsPerExpert], &record)) return error;
      const std::uint32_t layer = table_[i].layer_id, number = table_[i].expert_id;
      if (!layers[layer].emplace(number, record).second)
        return field(expert_name(table_[i]), "is in the table twice");
      largest_record_ = std::max(largest_record_, record.padded_bytes);
    }
    return flatten(layers);
  }

  Error read_record(const TableEntry& entry, const TensorDescriptor* tensors, ExpertRecord* out) const {
    const std::uint32_t ffn = descriptors_[0].rows, d_model = header_.d_model;
    if (ffn == 0 || ffn > kWidest) return field(expert_name(entry) + ", gate", "rows is out of range");
    for (int i = 0; i < format::kTensorsPerExpert; ++i) {
      const std::string name = expert_name(entry) + ", " + kTensorNames[i];
      if (tensors[i].tensor_type != i)
        return field(name, "tensor_type " + std::to_string(tensors[i].tensor_type) + " is not " + std::to_string(i));
      const bool down = i == 2;
      if (Error error = check_tensor(name, tensors[i], down ? d_model : ffn, down ? ffn : d_model, header_.bits,
                                     entry.raw_size))
        return error;
    }
    const std::uint64_t groups = groups_of(tensors[0]) + groups_of(tensors[1]) + groups_of(tensors[2]);
    if (entry.num_groups != groups)
      return field(expert_name(entry), "num_groups " + std::to_string(entry.num_groups) + " is not " +
                                           std::to_string(groups));
    *out = {entry.byte_offset, entry.raw_size,   entry.padded_size,
            part(tensors[0]),  part(tensors[1]), part(tensors[2])};
    return {};
  }

  // Ids are unique by now and below max_experts_per_layer: a layer with a gap has an id that is not below its count.
  Error flatten(const std::map<std::uint32_t, std::map<std::uint32_t, ExpertRecord>>& layers) {
    std::size_t most = 0;
    for (const auto& [id, experts] : layers) {
      if (id > kMostExperts) return field("layer " + std::to_string(id), "layer_id is out of range");
      if (experts.rbegin()->first >= experts.size())
        return field("layer " + std::to_string(id), "experts are missing: it has " + std::to_string(experts.size()) +
                                                        " up to number " + std::to_string(experts.rbegin()->first));
      most = std::max(most, experts.size());
      Layer& layer = layers_.emplace_back(Layer{static_cast<int>(id), {}});
      for (const auto& [number, record] : experts) layer.experts.push_back(record);
    }
    if (layers_.size() != header_.num_moe_layers)
      return field("num_moe_layers", std::to_string(header_.num_moe_layers) + ", the table has " +
                                         std::to_string(layers_.size()));
    if (most != header_.max_experts_per_layer)
      return field("max_experts_per_layer", std::to_string(header_.max_experts_per_layer) + ", the table has " +
                                                std::to_string(most));
    moe_index_.assign(static_cast<std::size_t>(layers_.back().id) + 1, -1);
    for (std::size_t i = 0; i < layers_.size(); ++i)
      moe_index_[static_cast<std::size_t>(layers_[i].id)] = static_cast<int>(i);
    return {};
  }

  Error check_overlaps() {
    std::sort(table_.begin(), table_.end(),
              [](const TableEntry& a, const TableEntry& b) { return a.byte_offset < b.byte_offset; });
    for (std::size_t i = 1; i < table_.size(); ++i)
      if (table_[i].byte_offset < table_[i - 1].byte_offset + table_[i - 1].padded_size)
        return field(expert_name(table_[i]), "its record overlaps that of " + expert_name(table_[i - 1]));
    table_ = {};
    descriptors_ = {};
    return {};
  }

  Error read_scout(const std::string& path, SafetensorsHeader* out) {
    if (path.empty()) return {};
    std::unique_ptr<File> file;
    if (Error error = File::open(path, &file)) return error;
    return read_safetensors_header(*file, out);
  }

  Architecture table_facts(const SafetensorsHeader& scout) const {
    Architecture facts{};
    facts.moe_ffn = expert(0, 0).gate.rows;
    facts.d_model = static_cast<int>(header_.d_model);
    facts.moe_layers = static_cast<int>(layers_.size());
    facts.experts = static_cast<int>(header_.max_experts_per_layer);
    facts.bits = static_cast<int>(header_.bits);
    facts.vocab = static_cast<int>(std::min(std::uint32_t{header_.vocab_size}, kWidest + 1));
    const SafetensorsEntry* embedding = scout.find("model.embed_tokens.weight");
    if (facts.vocab == 0 && embedding && !embedding->shape.empty())
      facts.vocab = static_cast<int>(std::min<std::int64_t>(embedding->shape[0], kWidest + 1));
    return facts;
  }

  Error apply_source(const CheckpointConfig& config, const SafetensorsHeader& scout, const std::string& scout_path) {
    if (header_.version == 2) {
      const Error error = apply_arch_block(block_, &architecture_);
      return error ? error : apply_family(config, &architecture_);
    }
    if (scout_path.empty()) return {"version 1: its scout is needed too (--scout)"};
    if (!config.found())
      return {"version 1 holds no architecture (num_attention_heads, num_experts_per_tok, ...) and neither does the "
              "scout's metadata: give the checkpoint's config.json with --config"};
    return apply_config(config, scout, &architecture_);
  }

  Error check_layers() {
    const Architecture& a = architecture_;
    if (layers_.back().id >= a.layers)
      return field("num_hidden_layers", std::to_string(a.layers) + ", but layer " + std::to_string(layers_.back().id) +
                                            " has experts");
    for (const Layer& layer : layers_)
      if (layer.experts.size() < static_cast<std::size_t>(a.top_k))
        return field("moe_top_k", std::to_string(a.top_k) + " is more than the " +
                                      std::to_string(layer.experts.size()) + " experts of layer " +
                                      std::to_string(layer.id));
    if (a.groups.count > 1)
      if (Error error = check_groups()) return error;
    if (a.first_layer_dense && is_moe_layer(0))
      return field("arch flags", "layer 0 is said to be dense, but it has experts");
    if (a.moe_layers < a.layers && a.dense_ffn == 0)
      return field("dense_ffn_dim", "0, but " + std::to_string(a.layers - a.moe_layers) + " layers have no experts");
    architecture_.first_layer_dense = !is_moe_layer(0);
    return {};
  }

  // A group's two best experts are looked at, and the kept groups have what a token needs.
  Error check_groups() const {
    const auto count = static_cast<std::size_t>(architecture_.groups.count);
    const auto kept = static_cast<std::size_t>(architecture_.groups.kept);
    for (const Layer& layer : layers_) {
      const std::size_t size = layer.experts.size() / count;
      if (layer.experts.size() % count || size < 2 || kept * size < static_cast<std::size_t>(architecture_.top_k))
        return field("n_group", std::to_string(count) + ", of which topk_group " + std::to_string(kept) + ", do not fit the " +
                                    std::to_string(layer.experts.size()) + " experts of layer " + std::to_string(layer.id) +
                                    " and top " + std::to_string(architecture_.top_k));
    }
    return {};
  }

  // A vault beside another model's scout would give nonsense: their common widths must agree.
  Error check_scout(const SafetensorsHeader& scout) const {
    const auto check = [&](const std::string& name, std::int64_t rows) {
      const SafetensorsEntry* entry = scout.find(name);
      const std::vector<std::int64_t> shape = {rows, architecture_.d_model};
      if (!entry || entry->shape == shape) return Error{};
      return field("the scout's " + name, "its shape is not " + std::to_string(rows) + " x " +
                                              std::to_string(architecture_.d_model) + ": not this vault's scout");
    };
    if (Error error = check("model.embed_tokens.weight", architecture_.vocab)) return error;
    for (int i = 0; i < architecture_.moe_layers; ++i)
      if (Error error = check("model.layers." + std::to_string(layer_of(i)) + ".mlp.gate.weight", experts(i)))
        return error;
    return {};
  }

  Matrix matrix(const ExpertRecord::Part& part, const void* bytes) const {
    const auto* record = static_cast<const unsigned char*>(bytes);
    return {storage_of(header_.bits), part.rows, part.cols, record + part.codes,
            reinterpret_cast<const std::uint16_t*>(record + part.scales)};
  }

  std::unique_ptr<File> file_;
  Header header_{};
  ArchBlock block_{};  // version 2
  std::vector<TableEntry> table_;              // while opening
  std::vector<TensorDescriptor> descriptors_;  // while opening
  std::vector<Layer> layers_;
  std::vector<int> moe_index_;  // by layer; -1: dense
  std::uint64_t largest_record_ = 0;
  Architecture architecture_{};
};

}  // namespace

Error Vault::open(const std::string& path, const std::string& scout_path, const std::string& config_path,
                  std::unique_ptr<Vault>* out) {
  auto vault = std::make_unique<VaultFile>();
  if (Error error = vault->open(path)) return error;
  if (Error error = vault->read_architecture(scout_path, config_path)) return error;
  *out = std::move(vault);
  return {};
}

}  // namespace smoe
