#include "family.h"

#include <algorithm>
#include <cmath>
#include <iterator>

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

struct Family {
  std::string_view model_type;
  ClassDefaults defaults;
  Scoring scoring;
  bool qk_norm_whole;
  double rotary_share;  // of a head, where the config does not say
  const GptOss* oss = nullptr;
};

constexpr Family kFamilies[] = {
    {"glm4_moe", {.renormalize = true, .rope_theta = 1e4, .rms_epsilon = 1e-5}, Scoring::sigmoid, false, 0.5},
    {"minimax_m2", {.renormalize = true, .rope_theta = 5e6, .rms_epsilon = 1e-6}, Scoring::sigmoid, true, 1.0},
    {"olmoe", {.renormalize = false, .rope_theta = 1e4, .rms_epsilon = 1e-5}, Scoring::softmax, true, 1.0},
    {"gpt_oss", {.renormalize = true, .rope_theta = 1.5e5, .rms_epsilon = 1e-5}, Scoring::softmax_of_chosen, false, 1.0, &kGptOss},
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

// With one group, the choice within groups is the choice among all.
void check_groups(ConfigReader& config) {
  for (const char* name : {"n_group", "topk_group"})
    if (config.count(name).value_or(1) != 1) config.refuse(name, "experts in several groups cannot be run");
}

void read_sigmoid_router(ConfigReader& config, Architecture* out) {
  const std::string scoring = config.text("scoring_func");
  if (!scoring.empty() && scoring != "sigmoid") config.refuse("scoring_func", "\"" + scoring + "\" cannot be run");
  check_groups(config);
  const auto scale = config.number(config.find("routed_scaling_factor"), "routed_scaling_factor");
  out->routed_scale = static_cast<float>(scale.value_or(1.0));
}

// Where the config does not say it.
double attention_factor(ConfigReader& config, const json::Value& rope, double factor) {
  const auto grown = [&](const char* name) {
    const double scale = config.positive(rope.find(name), name, 1.0);
    return factor > 1 ? 0.1 * scale * std::log(factor) + 1 : 1.0;
  };
  const auto given = [&](const char* name) {
    const json::Value* value = rope.find(name);
    return value && !value->is(json::Kind::null);
  };
  if (given("mscale") && given("mscale_all_dim")) return grown("mscale") / grown("mscale_all_dim");
  return factor > 1 ? 0.1 * std::log(factor) + 1 : 1.0;
}

void read_yarn(const Yarn& otherwise, ConfigReader& config, Architecture* out) {
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
  read_rotary_dim(*family, reader, out);
  if (family->scoring == Scoring::sigmoid) read_sigmoid_router(reader, out);
  if (family->oss) read_oss(*family->oss, reader, out);
  return reader.error();
}

bool family_reads(std::string_view model_type, std::string_view field) {
  const Family* const family = find_family(model_type);
  if (!family) return false;
  const bool of_router = field == "scoring_func" || field == "routed_scaling_factor";
  const bool of_oss = field == "yarn" || field == "sliding_window" || field == "layer_types" || field.starts_with("swiglu_");
  return field == "partial_rotary_factor" || (of_router && family->scoring == Scoring::sigmoid) || (of_oss && family->oss);
}

}  // namespace smoe
