#include "architecture.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "family.h"

namespace smoe {
namespace {

constexpr std::uint64_t kLargestConfig = std::uint64_t{16} << 20;
constexpr int kLargest = ConfigReader::kLargest;
constexpr int kMostLayers = 1 << 14;

Error field(const std::string& name, const std::string& what) { return {name + ": " + what}; }

int saturate(std::uint32_t value) {
  return static_cast<int>(std::min<std::uint32_t>(value, std::numeric_limits<int>::max()));
}

void assume(const std::string& what, Architecture* out) {
  out->assumed += (out->assumed.empty() ? "" : "; ") + what;
}

void check_rope_kind(ConfigReader& config, const std::string& model_type) {
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const json::Value* parameters = config.find(name);
    if (!parameters) continue;
    const std::string kind(ConfigReader::rope_kind(*parameters));
    if (kind != "default" && !(kind == "yarn" && family_reads(model_type, "yarn")))
      config.refuse(name, "RoPE kind \"" + kind + "\" cannot be run");
  }
}

void read_rope(ConfigReader& config, Architecture* out) {
  check_rope_kind(config, out->model_type);
  const auto theta = config.number(config.find_rope("rope_theta"), "rope_theta");
  const double otherwise = defaults_of(out->model_type).rope_theta;
  out->rope_theta = static_cast<float>(theta.value_or(otherwise));
  if (!theta) assume("rope_theta " + std::to_string(std::lround(otherwise)) + " (not in the config)", out);
}

void read_attention(ConfigReader& config, Architecture* out) {
  out->heads = config.needed("num_attention_heads");
  out->kv_heads = config.count("num_key_value_heads").value_or(out->heads);
  out->head_dim = has_latent_attention(out->model_type)
                      ? 0  // apply_family() knows; checkpoints say another width
                      : config.count("head_dim").value_or(out->heads > 0 ? out->d_model / out->heads : 0);
  if (config.flag("use_sliding_window", false)) config.refuse("use_sliding_window", "cannot be run");
}

void read_router(ConfigReader& config, Architecture* out) {
  const bool otherwise = defaults_of(out->model_type).renormalize;
  out->top_k = config.needed("num_experts_per_tok");
  out->renormalize_top_k = config.flag("norm_topk_prob", otherwise);
  if (!config.find("norm_topk_prob"))
    assume(std::string("norm_topk_prob ") + (otherwise ? "true" : "false") + " (not in the config)", out);
  for (const char* name : {"num_experts", "num_local_experts", "n_routed_experts"})
    if (const auto experts = config.count(name); experts && *experts != out->experts)
      config.refuse(name, std::to_string(*experts) + ", the vault has " + std::to_string(out->experts) + " a layer");
}

void read_widths(ConfigReader& config, Architecture* out) {
  out->layers = config.needed("num_hidden_layers");
  out->dense_ffn = config.count("intermediate_size").value_or(0);
  const auto moe_ffn = config.count("moe_intermediate_size");
  if (moe_ffn && *moe_ffn != out->moe_ffn)
    config.refuse("moe_intermediate_size",
                  std::to_string(*moe_ffn) + ", the vault's experts have " + std::to_string(out->moe_ffn));
  const int shared = config.count("n_shared_experts").value_or(0);
  out->shared_ffn = config.count("shared_expert_intermediate_size").value_or(std::min(shared, 1024) * out->moe_ffn);
  const auto d_model = config.count("hidden_size");
  if (d_model && *d_model != out->d_model)
    config.refuse("hidden_size", std::to_string(*d_model) + ", the vault has " + std::to_string(out->d_model));
}

void read_rest(ConfigReader& config, Architecture* out) {
  const std::string activation = config.text("hidden_act");
  if (!activation.empty() && activation != "silu") config.refuse("hidden_act", "\"" + activation + "\" cannot be run");
  const auto epsilon = config.number(config.find("rms_norm_eps"), "rms_norm_eps");
  const ClassDefaults otherwise = defaults_of(out->model_type);
  out->rms_epsilon = static_cast<float>(epsilon.value_or(otherwise.rms_epsilon));
  if (!epsilon) assume(std::string("rms_norm_eps ") + (otherwise.rms_epsilon == 1e-5 ? "1e-5" : "1e-6") + " (not in the config)", out);
}

std::string layer_tensor(int layer, const char* name) {
  return "model.layers." + std::to_string(layer) + "." + name;
}

// The scout is the last word on whether Q and K are normalised, and on the widths that the config gave.
Error check_attention_shapes(const SafetensorsHeader& scout, Architecture* out) {
  for (int layer = 0; layer < out->layers; ++layer) {
    const auto check = [&](const char* name, std::vector<std::int64_t> shape) {
      const std::string full = layer_tensor(layer, name);
      const SafetensorsEntry* entry = scout.find(full);
      const bool fits = !entry || entry->shape == shape;
      return fits ? Error{} : field("the scout's " + full, "its shape does not fit the config");
    };
    const std::int64_t width = out->head_dim, d_model = out->d_model;
    if (Error error = check("self_attn.q_proj.weight", {out->heads * width, d_model})) return error;
    if (Error error = check("self_attn.k_proj.weight", {out->kv_heads * width, d_model})) return error;
    if (Error error = check("self_attn.q_norm.weight", {out->qk_norm_whole ? out->heads * width : width})) return error;
  }
  out->qk_norm = scout.find(layer_tensor(0, "self_attn.q_norm.weight")) != nullptr;
  return {};
}

Error check_range(const char* name, int value, int least, int most) {
  if (value >= least && value <= most) return {};
  return field(name, std::to_string(value) + " is not within " + std::to_string(least) + " to " +
                         std::to_string(most));
}

Error check_latent(const LatentAttention& latent) {
  constexpr int kMostRank = 1 << 14;
  if (Error error = check_range("q_lora_rank", latent.query_rank, 0, kLargest)) return error;
  if (Error error = check_range("kv_lora_rank", latent.rank, 16, kMostRank)) return error;
  if (latent.rank % 16) return field("kv_lora_rank", std::to_string(latent.rank) + " is not a multiple of 16");
  return check_range("v_head_dim", latent.value_dim, 1, 1 << 12);
}

Error check_float(const char* name, float value, bool zero_allowed) {
  if (std::isfinite(value) && (value > 0 || (zero_allowed && value == 0))) return {};
  return field(name, std::to_string(value) + " is not a positive number");
}

}  // namespace

Error find_checkpoint_config(const std::string& config_path, const SafetensorsHeader& scout, CheckpointConfig* out) {
  std::string text;
  const auto kept = scout.metadata.find("config");
  if (!config_path.empty()) {
    if (Error error = read_text(config_path, kLargestConfig, &text)) return error;
  } else if (kept != scout.metadata.end()) {
    text = kept->second;
  } else {
    return {};
  }
  const std::string source = config_path.empty() ? "the scout's metadata key \"config\"" : config_path;
  if (Error error = json::parse(text, &out->root, json::Dialect::python)) return field(source, error.message);
  if (!out->root.is(json::Kind::object)) return field(source, "not a JSON object");
  out->source = source;
  return {};
}

Error apply_arch_block(const format::ArchBlock& block, Architecture* out) {
  if (std::memcmp(block.magic, format::kArchMagic, sizeof block.magic) != 0)
    return field("arch block", "does not begin with SARC");
  if (block.block_version != 1)
    return field("arch block_version", std::to_string(block.block_version) + " is unknown (can read 1)");
  if (block.block_size != sizeof block)
    return field("arch block_size", std::to_string(block.block_size) + " is not 128");
  if (const std::uint32_t unknown = block.flags & ~format::kKnownFlags)
    return field("arch flags", "bits " + std::to_string(unknown) + " ask for something that is unknown here");
  if (block.activation != 0)
    return field("activation", std::to_string(block.activation) + " is unknown (can run 0, SiLU)");
  if (block.moe_ffn_dim != 0 && saturate(block.moe_ffn_dim) != out->moe_ffn)
    return field("moe_ffn_dim", std::to_string(block.moe_ffn_dim) + ", the experts' tensors have " +
                                    std::to_string(out->moe_ffn));
  const std::string type(block.model_type, ::strnlen(block.model_type, sizeof block.model_type));
  if (!std::all_of(type.begin(), type.end(), [](char c) { return c > ' ' && c < 0x7F; }))
    return field("model_type", "not a printable word");
  out->model_type = type;
  out->renormalize_top_k = block.flags & format::kRenormalizeTopK;
  out->qk_norm = block.flags & format::kQkNorm;
  out->first_layer_dense = block.flags & format::kFirstLayerDense;
  out->rope_theta = block.rope_theta;
  out->rms_epsilon = block.rms_norm_eps;
  out->heads = saturate(block.num_heads);
  out->kv_heads = saturate(block.num_kv_heads);
  out->head_dim = saturate(block.head_dim);
  out->top_k = saturate(block.moe_top_k);
  out->dense_ffn = saturate(block.dense_ffn_dim);
  out->shared_ffn = saturate(block.shared_expert_ffn_dim);
  out->layers = saturate(block.num_hidden_layers);
  return {};
}

Error apply_config(const CheckpointConfig& config, const SafetensorsHeader& scout, Architecture* out) {
  ConfigReader reader(config);
  out->model_type = reader.text("model_type");
  read_attention(reader, out);
  read_router(reader, out);
  read_widths(reader, out);
  read_rope(reader, out);
  read_rest(reader, out);
  if (Error error = reader.error()) return error;
  if (Error error = apply_family(config, out)) return error;
  if (Error error = check_ranges(*out)) return error;  // before shapes are made of them
  return check_attention_shapes(scout, out);
}

void note_config(const CheckpointConfig& config, Architecture* out) {
  ConfigReader reader(config);
  out->trained_context = reader.count("max_position_embeddings").value_or(0);
  const json::Value* theta = reader.find_rope("rope_theta");
  if (theta && theta->is(json::Kind::number) && static_cast<float>(theta->number) != out->rope_theta)
    assume("rope_theta " + std::to_string(out->rope_theta) + " as the vault says (the config says " +
               std::to_string(theta->number) + ")",
           out);
}

Error check_ranges(const Architecture& a) {
  struct {
    const char* name;
    int value, least, most;
  } const ranges[] = {
      {"num_heads", a.heads, 1, 1 << 12},        {"num_kv_heads", a.kv_heads, 1, a.heads},
      {"head_dim", a.head_dim, 2, 1 << 12},      {"num_hidden_layers", a.layers, 1, kMostLayers},
      {"moe_top_k", a.top_k, 1, a.experts},      {"d_model", a.d_model, 1, kLargest},
      {"vocab_size", a.vocab, 1, kLargest},      {"dense_ffn_dim", a.dense_ffn, 0, kLargest},
      {"moe_ffn_dim", a.moe_ffn, 1, kLargest},   {"shared_expert_ffn_dim", a.shared_ffn, 0, kLargest},
      {"rotary dimension", a.rotary_dim, 2, a.head_dim},
  };
  for (const auto& range : ranges)
    if (Error error = check_range(range.name, range.value, range.least, range.most)) return error;
  if (a.head_dim % 2) return field("head_dim", std::to_string(a.head_dim) + " is odd: RoPE turns pairs");
  if (a.rotary_dim % 2) return field("rotary dimension", std::to_string(a.rotary_dim) + " is odd: RoPE turns pairs");
  if (a.latent)
    if (Error error = check_latent(*a.latent)) return error;
  if (a.heads % a.kv_heads)
    return field("num_kv_heads", std::to_string(a.kv_heads) + " does not divide num_heads " + std::to_string(a.heads));
  if (Error error = check_float("rope_theta", a.rope_theta, false)) return error;
  if (Error error = check_float("routed_scaling_factor", a.routed_scale, false)) return error;
  return check_float("rms_norm_eps", a.rms_epsilon, true);
}

}  // namespace smoe
