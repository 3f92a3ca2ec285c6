#include "family.h"

#include <algorithm>
#include <iterator>

namespace smoe {
namespace {

struct Family {
  std::string_view model_type;
  ClassDefaults defaults;
  bool sigmoid_router, qk_norm_whole;
  double rotary_share;  // of a head, where the config does not say
};

constexpr Family kFamilies[] = {
    {"glm4_moe", {.renormalize = true, .rope_theta = 1e4, .rms_epsilon = 1e-5}, true, false, 0.5},
    {"minimax_m2", {.renormalize = true, .rope_theta = 5e6, .rms_epsilon = 1e-6}, true, true, 1.0},
    {"olmoe", {.renormalize = false, .rope_theta = 1e4, .rms_epsilon = 1e-5}, false, true, 1.0},
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
  out->scoring = Scoring::sigmoid;
  out->routed_scale = static_cast<float>(scale.value_or(1.0));
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
  read_rotary_dim(*family, reader, out);
  if (family->sigmoid_router) read_sigmoid_router(reader, out);
  return reader.error();
}

bool family_reads(std::string_view model_type, std::string_view field) {
  const Family* const family = find_family(model_type);
  if (!family) return false;
  const bool of_router = field == "scoring_func" || field == "routed_scaling_factor";
  return field == "partial_rotary_factor" || (of_router && family->sigmoid_router);
}

}  // namespace smoe
