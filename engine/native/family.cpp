#include "family.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace smoe {
namespace {

// What comes with gpt-oss' class; the values are those where the config does not say.
struct GptOss {
  Yarn yarn;
  int sliding_window;  // of every other layer, from the first on
  ClampedSwiglu swiglu;
};

constexpr GptOss kGptOss = {{.factor = 32, .beta_fast = 32, .beta_slow = 1, .original = 4096, .truncate = false,
                             .attention_factor = 1.3465735902799727},  // 0.1 ln(factor) + 1
                            128,
                            {.alpha = 1.702f, .limit = 7.0f}};

// What comes with a class of latent attention.
struct Latent {
  int query_rank, rank, rope_dim, plain_dim, value_dim;
};

// How a class' routers choose and weigh.
struct Routing {
  double scale = 1;
  bool grouped = false;  // its config may say n_group and topk_group
  ExpertGroups groups = {};
};

constexpr Latent kDeepSeek = {.query_rank = 1536, .rank = 512, .rope_dim = 64, .plain_dim = 128, .value_dim = 128};
constexpr Latent kGlmLite = {.query_rank = 768, .rank = 512, .rope_dim = 64, .plain_dim = 192, .value_dim = 256};

struct Family {
  std::string_view model_type;
  ClassDefaults defaults;
  Scoring scoring = Scoring::softmax;
  bool qk_norm_whole = false;
  double rotary_share = 1.0;  // of a head, where the config does not say
  Routing routing = {};
  const GptOss* oss = nullptr;
  const Latent* latent = nullptr;
};

constexpr Family deepseek_v3(std::string_view model_type) {
  return {.model_type = model_type,
          .defaults = {.renormalize = true, .rope_theta = 1e4, .rms_epsilon = 1e-6},
          .scoring = Scoring::sigmoid,
          .routing = {.scale = 2.5, .grouped = true, .groups = {.count = 8, .kept = 4}},
          .latent = &kDeepSeek};
}

constexpr Family kFamilies[] = {
    {.model_type = "glm4_moe",
     .defaults = {.renormalize = true, .rope_theta = 1e4, .rms_epsilon = 1e-5},
     .scoring = Scoring::sigmoid,
     .rotary_share = 0.5,
     .routing = {.grouped = true}},
    {.model_type = "minimax_m2",
     .defaults = {.renormalize = true, .rope_theta = 5e6, .rms_epsilon = 1e-6},
     .scoring = Scoring::sigmoid,
     .qk_norm_whole = true},
    {.model_type = "olmoe",
     .defaults = {.renormalize = false, .rope_theta = 1e4, .rms_epsilon = 1e-5},
     .qk_norm_whole = true},
    {.model_type = "gpt_oss",
     .defaults = {.renormalize = true, .rope_theta = 1.5e5, .rms_epsilon = 1e-5},
     .scoring = Scoring::softmax_of_chosen,
     .oss = &kGptOss},
    deepseek_v3("deepseek_v3"),
    deepseek_v3("kimi_k2"),
    {.model_type = "glm4_moe_lite",
     .defaults = {.renormalize = true, .rope_theta = 1e4, .rms_epsilon = 1e-5},
     .scoring = Scoring::sigmoid,
     .routing = {.scale = 1.8, .grouped = true},
     .latent = &kGlmLite},
    {.model_type = "deepseek_v2",
     .defaults = {.renormalize = false, .rope_theta = 1e4, .rms_epsilon = 1e-6},
     .routing = {.grouped = true},
     .latent = &kDeepSeek},
};

const Family* find_family(std::string_view model_type) {
  const auto* const found = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                         [&](const Family& family) { return family.model_type == model_type; });
  return found == std::end(kFamilies) ? nullptr : found;
}

// Released MiniMax checkpoints say rotary_dim, everyone else a share of the head; Python's int() cuts off, too.
void read_rotary_dim(const Family& family, ConfigReader& config, Architecture* out) {
  const auto share = config.number(config.find_rope("partial_rotary_factor"), "partial_rotary_factor");
  const auto dim = share ? std::nullopt : config.count("rotary_dim");
  if (dim) {
    out->rotary_dim = *dim;
  } else if (const double factor = share.value_or(family.rotary_share); factor > 0 && factor <= 1) {
    out->rotary_dim = static_cast<int>(out->head_dim * factor);
  } else {
    config.refuse("partial_rotary_factor", "not above 0 and up to 1");
  }
}

// Whether they fit the experts of each layer is the vault reader's to say.
void read_groups(const Routing& otherwise, ConfigReader& config, Architecture* out) {
  const ExpertGroups groups = {config.count("n_group").value_or(otherwise.groups.count),
                               config.count("topk_group").value_or(otherwise.groups.kept)};
  if (!otherwise.grouped && groups.count != 1) config.refuse("n_group", "experts in several groups cannot be run");
  if (groups.count < 1) config.refuse("n_group", "not above 0");
  if (groups.kept < 1 || groups.kept > groups.count) config.refuse("topk_group", "not within 1 to n_group");
  out->groups = groups;
}

void read_word(const char* name, const char* known, ConfigReader& config) {
  const std::string word = config.text(name);
  if (!word.empty() && word != known) config.refuse(name, "\"" + word + "\" cannot be run");
}

void read_sigmoid_router(const Routing& otherwise, ConfigReader& config, Architecture* out) {
  read_word("scoring_func", "sigmoid", config);
  read_word("topk_method", "noaux_tc", config);
  read_groups(otherwise, config, out);
}

// Only one of the two methods knows groups.
void read_softmax_router(const Routing& otherwise, ConfigReader& config, Architecture* out) {
  constexpr const char* kGrouped = "group_limited_greedy";
  read_word("scoring_func", "softmax", config);
  if (out->renormalize_top_k) config.refuse("norm_topk_prob", "true cannot be run");
  if (config.text("topk_method") == kGrouped) read_groups(otherwise, config, out);
  else read_word("topk_method", "greedy", config);
}

void read_router(const Family& family, ConfigReader& config, Architecture* out) {
  if (family.scoring == Scoring::sigmoid) read_sigmoid_router(family.routing, config, out);
  else if (family.routing.grouped) read_softmax_router(family.routing, config, out);
  else return;
  const auto scale = config.number(config.find("routed_scaling_factor"), "routed_scaling_factor");
  out->routed_scale = static_cast<float>(scale.value_or(family.routing.scale));
}

bool is_given(const json::Value& rope, const char* name) {
  const json::Value* const value = rope.find(name);
  return value && !value->is(json::Kind::null);
}

// By the field `name`, 1 where it is missing.
double magnitude(ConfigReader& config, const json::Value& rope, const char* name, double factor) {
  const double scale = config.positive(rope.find(name), name, 1.0);
  return factor > 1 ? 0.1 * scale * std::log(factor) + 1 : 1.0;
}

// Where the config does not say it.
double attention_factor(ConfigReader& config, const json::Value& rope, double factor) {
  if (is_given(rope, "mscale") && is_given(rope, "mscale_all_dim"))
    return magnitude(config, rope, "mscale", factor) / magnitude(config, rope, "mscale_all_dim", factor);
  return factor > 1 ? 0.1 * std::log(factor) + 1 : 1.0;
}

void read_yarn(const std::optional<Yarn>& otherwise, ConfigReader& config, Architecture* out) {
  const json::Value* const rope = config.rope_settings();
  if (!rope) out->yarn = otherwise;
  if (!rope || ConfigReader::rope_kind(*rope) == "default") return;
  const std::string kind(ConfigReader::rope_kind(*rope));
  if (kind != "yarn") return config.refuse("rope_type", "RoPE kind \"" + kind + "\" cannot be run");
  const auto number = [&](const char* name, double missing) { return config.positive(rope->find(name), name, missing); };
  constexpr const char* kOriginal = "original_max_position_embeddings";
  const double longest = config.positive(config.find("max_position_embeddings"), "max_position_embeddings", 1 << 17);
  const double original = config.positive(config.find(kOriginal), kOriginal, number(kOriginal, longest));
  const double factor = number("factor", longest / original);
  out->yarn = Yarn{.factor = factor,
                   .beta_fast = number("beta_fast", 32),
                   .beta_slow = number("beta_slow", 1),
                   .original = original,
                   .truncate = config.flag(rope->find("truncate"), "truncate", true),
                   .attention_factor = number("attention_factor", attention_factor(config, *rope, factor))};
  if (out->rope_theta <= 1) config.refuse("rope_theta", "not above 1");
}

void read_layer_windows(int otherwise, ConfigReader& config, Architecture* out) {
  constexpr int kMostLayers = 1 << 14;
  const int window = config.count("sliding_window").value_or(otherwise);
  if (window < 1) config.refuse("sliding_window", "not above 0");
  if (out->layers > kMostLayers) return config.refuse("num_hidden_layers", "more than " + std::to_string(kMostLayers));
  const auto layers = static_cast<std::size_t>(out->layers);
  const json::Value* const kinds = config.find("layer_types");
  if (kinds && kinds->items.size() != layers)
    return config.refuse("layer_types", "not one for each of " + std::to_string(layers) + " layers");
  out->layer_windows.assign(layers, 0);
  for (std::size_t i = 0; i < layers; ++i) {
    const std::string kind = kinds ? kinds->items[i].string : i % 2 ? "full_attention" : "sliding_attention";
    if (kind == "sliding_attention") out->layer_windows[i] = window;
    else if (kind != "full_attention") config.refuse("layer_types", "\"" + kind + "\" cannot be run");
  }
}

// DeepSeek's class scales scores for longer contexts, where others scale cosines and sines.
double score_scale(ConfigReader& config, const Architecture& a) {
  const json::Value* const rope = config.rope_settings();
  const bool grows = a.yarn && rope && is_given(*rope, "mscale_all_dim");
  const double grown = grows ? magnitude(config, *rope, "mscale_all_dim", a.yarn->factor) : 1.0;
  return grown * grown / std::sqrt(a.head_dim);
}

void read_latent(const Latent& otherwise, ConfigReader& config, Architecture* out) {
  const int plain = config.count("qk_nope_head_dim").value_or(otherwise.plain_dim);
  out->rotary_dim = config.count("qk_rope_head_dim").value_or(otherwise.rope_dim);
  const int told = std::exchange(out->head_dim, plain + out->rotary_dim);
  if (told != 0 && told != out->head_dim)
    config.refuse("qk_nope_head_dim", std::to_string(plain) + ", with qk_rope_head_dim " + std::to_string(out->rotary_dim) +
                                          ", but the vault has head_dim " + std::to_string(told));
  if (config.number(config.find_rope("partial_rotary_factor"), "partial_rotary_factor").value_or(1) != 1)
    config.refuse("partial_rotary_factor", "RoPE turns all of qk_rope_head_dim");
  read_yarn({}, config, out);
  const bool direct = config.is_null("q_lora_rank");
  out->latent = LatentAttention{.query_rank = direct ? 0 : config.count("q_lora_rank").value_or(otherwise.query_rank),
                                .rank = config.count("kv_lora_rank").value_or(otherwise.rank),
                                .value_dim = config.count("v_head_dim").value_or(otherwise.value_dim),
                                .pairs = config.flag("rope_interleave", true) ? RopePairs::neighbours : RopePairs::halves,
                                .scale = static_cast<float>(score_scale(config, *out))};
}

void read_oss(const GptOss& otherwise, ConfigReader& config, Architecture* out) {
  const auto number = [&](const char* name, float missing) {
    return static_cast<float>(config.positive(config.find(name), name, missing));
  };
  out->attention_sinks = out->biased_experts = true;
  out->swiglu = {number("swiglu_alpha", otherwise.swiglu.alpha), number("swiglu_limit", otherwise.swiglu.limit)};
  read_yarn(otherwise.yarn, config, out);
  read_layer_windows(otherwise.sliding_window, config, out);
}

}  // namespace

ClassDefaults defaults_of(std::string_view model_type) {
  if (const Family* const family = find_family(model_type)) return family->defaults;
  return {.renormalize = model_type == "mixtral", .rope_theta = 1e4, .rms_epsilon = 1e-6};
}

bool has_latent_attention(std::string_view model_type) {
  const Family* const family = find_family(model_type);
  return family && family->latent;
}

Error apply_family(const CheckpointConfig& config, Architecture* out) {
  out->rotary_dim = out->head_dim;
  out->routed_scale = 1;
  ConfigReader reader(config);
  const std::string told = reader.text("model_type");
  const Family* const family = find_family(out->model_type);
  if (told != out->model_type && (find_family(told) || (family && config.found())))
    reader.refuse("model_type", "\"" + told + "\", but the vault is of \"" + out->model_type + "\"");
  if (!family || reader.error()) return reader.error();
  if (!config.found())
    return {"model_type " + out->model_type + ": the arch block cannot say all of it and the scout's metadata holds no "
            "config that can be read: shatter the checkpoint again, or give its config.json with --config"};
  out->qk_norm_whole = family->qk_norm_whole;
  out->qk_norm = out->qk_norm || family->qk_norm_whole;
  out->scoring = family->scoring;
  if (family->latent) read_latent(*family->latent, reader, out);
  else read_rotary_dim(*family, reader, out);
  read_router(*family, reader, out);
  if (family->oss) read_oss(*family->oss, reader, out);
  return reader.error();
}

bool family_reads(std::string_view model_type, std::string_view field) {
  const Family* const family = find_family(model_type);
  if (!family) return false;
  if (field == "yarn") return family->oss || family->latent;
  const bool of_router =
      field == "scoring_func" || field == "routed_scaling_factor" || field == "n_group" || field == "topk_method";
  const bool of_oss = field == "sliding_window" || field == "layer_types" || field.starts_with("swiglu_");
  const bool of_latent = field == "kv_lora_rank" || field == "rope_interleave";
  const bool reads_router = family->scoring == Scoring::sigmoid || family->routing.grouped;
  return field == "partial_rotary_factor" || (of_router && reads_router) || (of_oss && family->oss) ||
         (of_latent && family->latent);
}

}  // namespace smoe
