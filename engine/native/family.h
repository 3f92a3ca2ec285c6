// What the class of a model_type does beyond what the arch block can say, and its defaults for what a config leaves out
// (those of the model classes in transformers 5.24). A family that the table does not have is told by the block alone.
#pragma once

#include <string_view>

#include "config_reader.h"
#include "vault_reader.h"

namespace smoe {

struct ClassDefaults {
  bool renormalize;
  double rope_theta, rms_epsilon;
};

ClassDefaults defaults_of(std::string_view model_type);

// Whether the config says how wide heads are, by qk_nope_head_dim and qk_rope_head_dim.
bool has_latent_attention(std::string_view model_type);

// Fills what the arch block cannot say (latent, rotary_dim, yarn, layer_windows, scoring, groups, ...); the rest of `out`
// is there already. Refuses a family that needs the checkpoint's config where none is found, and a config of another model.
Error apply_family(const CheckpointConfig& config, Architecture* out);

// Whether apply_family() has taken this field of the config into account: then any value of it is of a known feature.
// "yarn": whether it has where RoPE is of that kind.
bool family_reads(std::string_view model_type, std::string_view field);

}  // namespace smoe
