// What a checkpoint's config.json can ask for beyond what the arch block says and the engine runs.
#include <cmath>
#include <string_view>

#include "config_reader.h"
#include "family.h"
#include "json.h"
#include "weights.h"

namespace smoe {
namespace {

using json::Kind;
using json::Value;

// A field is harmless when absent, null, false, or the one value that means "not used".
struct Neutral {
  const char* field;
  double number;       // NaN: no number is harmless
  const char* string;  // null: no string is harmless
};

constexpr Neutral kNeutral[] = {
    {"hidden_act", NAN, "silu"},
    {"clip_qkv", NAN, nullptr},
    {"partial_rotary_factor", 1, nullptr},
    {"rope_interleave", NAN, nullptr},
    {"kv_lora_rank", NAN, nullptr},
    {"index_topk", NAN, nullptr},
    {"scoring_func", NAN, "softmax"},
    {"n_group", 1, nullptr},
    {"topk_method", NAN, "greedy"},
    {"routed_scaling_factor", 1, nullptr},
    {"attn_logit_softcapping", NAN, nullptr},
    {"final_logit_softcapping", NAN, nullptr},
    {"swiglu_alpha", NAN, nullptr},
    {"swiglu_limit", NAN, nullptr},
    {"embedding_multiplier", 1, nullptr},
    {"residual_multiplier", 1, nullptr},
    {"logits_scaling", 1, nullptr},
    {"attention_multiplier", NAN, nullptr},
    {"hc_count", 1, nullptr},
};

bool is_harmless(const Value& value, const Neutral& neutral) {
  switch (value.kind) {
    case Kind::null: return true;
    case Kind::boolean: return !value.boolean;
    case Kind::number: return value.number == neutral.number;
    case Kind::string: return neutral.string != nullptr && value.string == neutral.string;
    default: return false;
  }
}

bool scales_rope(const Value* rope, std::string_view model_type) {
  if (rope == nullptr || !rope->is(Kind::object)) return false;
  const std::string_view kind = ConfigReader::rope_kind(*rope);
  const bool other = kind != "default" && !(kind == "yarn" && family_reads(model_type, "yarn"));
  const Value* partial = rope->find("partial_rotary_factor");
  const bool turns_part = partial != nullptr && partial->number != 1 && !family_reads(model_type, "partial_rotary_factor");
  return other || turns_part;
}

bool slides(const Value& config) {
  const Value* use = config.find("use_sliding_window");
  const Value* window = config.find("sliding_window");
  return window != nullptr && window->is(Kind::number) && (use == nullptr || use->boolean);
}

bool has_other_layers(const Value& config) {
  const Value* types = config.find("layer_types");
  if (types == nullptr) return false;
  for (const Value& type : types->items)
    if (type.string != "full_attention") return true;
  return false;
}

const char* unknown_feature(const Value& config, std::string_view model_type) {
  for (const Neutral& neutral : kNeutral) {
    if (family_reads(model_type, neutral.field)) continue;
    const Value* value = config.find(neutral.field);
    if (value != nullptr && !is_harmless(*value, neutral)) return neutral.field;
  }
  for (const char* field : {"rope_scaling", "rope_parameters"})
    if (scales_rope(config.find(field), model_type)) return field;
  if (slides(config) && !family_reads(model_type, "sliding_window")) return "sliding_window";
  return has_other_layers(config) && !family_reads(model_type, "layer_types") ? "layer_types" : nullptr;
}

}  // namespace

Error refuse_unknown_features(const std::string& config, const std::string& path, const std::string& model_type) {
  Value value;
  if (Error error = json::parse(config, &value, json::Dialect::python)) return {path + ": config: " + error.message};
  const char* const field = unknown_feature(value, model_type);
  if (field == nullptr) return {};
  return {path + ": config field " + field + " asks for a feature that this engine does not run"};
}

}  // namespace smoe
