// Where the numbers of an Architecture come from, and what is refused. Messages lack the vault's path.
#pragma once

#include <string>

#include "config_reader.h"
#include "vault_format.h"
#include "vault_reader.h"

namespace smoe {

// The config of --config, else of the scout's metadata key "config", else none.
Error find_checkpoint_config(const std::string& config_path, const SafetensorsHeader& scout, CheckpointConfig* out);

// Each fills what its source tells; what the expert table tells (d_model, moe_ffn, experts, ...) is there already.
Error apply_arch_block(const format::ArchBlock& block, Architecture* out);
Error apply_config(const CheckpointConfig& config, const SafetensorsHeader& scout, Architecture* out);

// max_position_embeddings, and where the config contradicts the arch block (which is followed), a word in `assumed`.
void note_config(const CheckpointConfig& config, Architecture* out);

Error check_ranges(const Architecture& architecture);

}  // namespace smoe
