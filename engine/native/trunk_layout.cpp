#include "trunk_layout.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

namespace smoe {
namespace {

constexpr std::uint64_t kAlignment = 64;  // of each tensor in memory: a cache line, a vector
constexpr std::int64_t kGroup = 64;       // weights that share a scale
constexpr std::pair<TrunkForm, std::string_view> kForms[] = {
    {TrunkForm::automatic, "auto"}, {TrunkForm::stored, "stored"}, {TrunkForm::q8, "q8"}, {TrunkForm::q4, "q4"}};
constexpr std::string_view kEmbedding = "model.embed_tokens.weight", kHead = "lm_head.weight";

// A tied embedding is the head too. Routers (mlp.gate, shared_expert_gate) choose by small differences and stay.
bool is_quantizable(std::string_view name, const SafetensorsEntry& entry, bool tied) {
  const bool projection = name.ends_with("_proj.weight") || name.ends_with("_proj_with_mqa.weight");
  const bool matrix = projection || name == kHead || (tied && name == kEmbedding);
  return matrix && entry.shape.size() == 2 && entry.shape[1] % kGroup == 0 && storage_of(entry.dtype).has_value();
}

bool stays_in_file(std::string_view name, const SafetensorsEntry& entry, bool tied) {
  return name == kEmbedding && !tied && entry.end - entry.begin > kLargestEmbedding;
}

struct Placing {
  const SafetensorsHeader& header;
  int layers;
  bool tied;
  TrunkLayout layout;

  std::uint64_t take(std::uint64_t bytes) {
    return std::exchange(layout.bytes, round_up(layout.bytes + bytes, kAlignment));
  }

  void place(std::string_view name, const SafetensorsEntry& entry) {
    const auto source = storage_of(entry.dtype);
    if (!source || !is_of_trunk(name, layers)) return;
    const std::uint64_t bytes = entry.end - entry.begin;
    PlacedTensor tensor{name, *source, *source, bytes / element_bytes(entry.dtype), header.data_offset + entry.begin, 0, 0};
    if (stays_in_file(name, entry, tied)) {
      layout.left_in_file = tensor;
      return;
    }
    if (layout.form == TrunkForm::stored || !is_quantizable(name, entry, tied)) {
      tensor.data = take(bytes);
    } else {
      tensor.storage = layout.form == TrunkForm::q4 ? Storage::q4 : Storage::q8;
      tensor.data = take(code_bytes(tensor.storage, tensor.elements));
      tensor.scales = take(tensor.elements / kGroup * sizeof(std::uint16_t));
    }
    layout.tensors.push_back(tensor);
  }

  TrunkForm automatic() const {
    std::uint64_t bytes = 0;
    for (const auto& [name, entry] : header.entries)
      if (is_of_trunk(name, layers) && is_quantizable(name, entry, tied)) bytes += entry.end - entry.begin;
    return bytes > kLargestStored ? TrunkForm::q8 : TrunkForm::stored;
  }
};

}  // namespace

std::optional<TrunkForm> parse_trunk_form(std::string_view name) {
  for (const auto& [form, known] : kForms)
    if (name == known) return form;
  return std::nullopt;
}

std::string_view name_of(TrunkForm form) {
  return std::find_if(std::begin(kForms), std::end(kForms), [&](const auto& one) { return one.first == form; })->second;
}

std::uint64_t code_bytes(Storage storage, std::uint64_t weights) {
  return storage == Storage::q8 ? weights : storage == Storage::q4 ? weights / 2 : weights / 4;
}

// Layers past the last one are what checkpoints keep for multi-token prediction; inv_freq is a table that old ones carry.
bool is_of_trunk(std::string_view name, int layers) {
  constexpr std::string_view kLayers = "model.layers.";
  for (const std::string_view prefix : {"lm_head.", "model.norm.", "model.embed_tokens."})
    if (name.starts_with(prefix)) return true;
  if (!name.starts_with(kLayers) || name.ends_with("rotary_emb.inv_freq")) return false;
  name.remove_prefix(kLayers.size());
  int layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  return error != std::errc() || layer < layers;
}

TrunkLayout lay_out_trunk(const SafetensorsHeader& header, int layers, TrunkForm form) {
  Placing placing{header, layers, header.find(kHead) == nullptr, {}};
  placing.layout.form = form == TrunkForm::automatic ? placing.automatic() : form;
  for (const auto& [name, entry] : header.entries) placing.place(name, entry);
  std::sort(placing.layout.tensors.begin(), placing.layout.tensors.end(),
            [](const PlacedTensor& a, const PlacedTensor& b) { return a.begin < b.begin; });
  return std::move(placing.layout);
}

}  // namespace smoe
