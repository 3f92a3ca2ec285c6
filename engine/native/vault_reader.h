// Opens a .smoe file and its scout: everything checked against the files' lengths before use; errors are values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "error.h"
#include "file_io.h"
#include "kernels.h"
#include "rope.h"
#include "safetensors.h"

namespace smoe {

// A router's logits become shares of one, or a probability each, or those of the chosen experts become shares of one.
enum class Scoring : std::uint8_t { softmax, sigmoid, softmax_of_chosen };

// Keys and values of all heads from one vector a position (DeepSeek-V2, https://arxiv.org/abs/2405.04434). A head's queries
// and keys are head_dim - rotary_dim elements of its own, then rotary_dim that RoPE turns; those of keys are of all heads.
struct LatentAttention {
  int query_rank;  // of the latent that queries come from; 0: they come from the hidden state
  int rank;        // of the latent that keys and values come from
  int value_dim;   // of a head
  RopePairs pairs;
  float scale;     // of scores
};

// Experts in groups of equal size; only those of the best groups can be chosen (DeepSeek-V3, https://arxiv.org/abs/2412.19437).
struct ExpertGroups {
  int count = 1, kept = 1;
};

// The architecture, from the arch block (version 2), or from the checkpoint's config that a version-1 vault needs
// (--config config.json, or the scout's metadata key "config") checked against the scout's shapes. What the block cannot
// say (family.h) comes from that config in either version.
struct Architecture {
  std::string model_type;
  bool renormalize_top_k, qk_norm, first_layer_dense;
  bool qk_norm_whole;  // the norm of Q and K is over all heads together, not over each
  Scoring scoring;
  float routed_scale = 1;  // of the chosen experts' weights
  ExpertGroups groups;
  int rotary_dim;      // elements of each head that RoPE turns, the first ones
  std::optional<Yarn> yarn;
  std::optional<LatentAttention> latent;  // in place of grouped-query attention
  std::vector<int> layer_windows;  // positions that a layer's queries see, up to their own, 0: all; empty: all in every layer
  bool attention_sinks;
  bool biased_experts;                  // and their router
  std::optional<ClampedSwiglu> swiglu;  // the experts'; none: SiLU
  float rope_theta, rms_epsilon;
  int heads, kv_heads, head_dim, top_k, moe_ffn, dense_ffn, shared_ffn, layers, d_model, vocab;
  int moe_layers, experts, bits;  // experts: of the layer that has most
  int trained_context;            // positions the model was trained for; 0: unknown
  std::string assumed;            // what no file says or files disagree on, in words; empty where nothing was guessed
};

// One expert's place in the file; offsets of gate, up, down (codes, scales) inside its record.
struct ExpertRecord {
  std::uint64_t offset;
  std::uint64_t bytes;         // to be read: raw_size
  std::uint64_t padded_bytes;  // multiple of 16,384
  struct Part { int rows, cols; std::uint64_t codes, scales; } gate, up, down;
};

class Vault {
 public:
  // scout_path may be empty for a version-2 vault: then nothing is checked against the scout's shapes.
  static Error open(const std::string& path, const std::string& scout_path, const std::string& config_path,
                    std::unique_ptr<Vault>* out);
  virtual ~Vault() = default;

  virtual const Architecture& architecture() const = 0;
  virtual const std::string& path() const = 0;
  virtual std::uint64_t file_bytes() const = 0;
  virtual const File& file() const = 0;

  virtual bool is_moe_layer(int layer) const = 0;
  virtual int moe_index(int layer) const = 0;   // 0 .. moe_layers - 1 in layer order; -1 for a dense layer
  virtual int layer_of(int moe_index) const = 0;
  virtual int experts(int moe_index) const = 0;  // numbered 0 .. experts - 1
  virtual const ExpertRecord& expert(int moe_index, int expert) const = 0;
  virtual int total_experts() const = 0;
  virtual std::uint64_t largest_record() const = 0;  // padded bytes
  // A record's bytes in memory as the matrices of the expert. bytes: aligned to 2 at least.
  virtual void matrices(const ExpertRecord& record, const void* bytes, Matrix* gate, Matrix* up,
                        Matrix* down) const = 0;
};

}  // namespace smoe
