// Opens a .smoe file and its scout: everything checked against the files' lengths before use; errors are values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels.h"

namespace smoe {

// Empty message: no error. Otherwise one line that names the file, the field and what is wrong.
struct Error {
  std::string message;
  explicit operator bool() const { return !message.empty(); }
};

// The architecture, from the arch block (version 2), or from the scout's shapes and the sidecar that a version-1
// vault needs (--config config.json): then every number that came from a guess is named in `assumed`.
struct Architecture {
  std::string model_type;
  bool renormalize_top_k, qk_norm, first_layer_dense;
  float rope_theta, rms_epsilon;
  int heads, kv_heads, head_dim, top_k, moe_ffn, dense_ffn, shared_ffn, layers, d_model, vocab;
  int moe_layers, experts, bits;
  std::string assumed;
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
  static Error open(const std::string& path, const std::string& scout_path, const std::string& config_path,
                    std::unique_ptr<Vault>* out);
  virtual ~Vault() = default;

  virtual const Architecture& architecture() const = 0;
  virtual const std::string& path() const = 0;
  virtual std::uint64_t file_bytes() const = 0;

  virtual bool is_moe_layer(int layer) const = 0;
  virtual int moe_index(int layer) const = 0;  // 0 .. moe_layers - 1
  virtual const ExpertRecord& expert(int moe_index, int expert) const = 0;
  virtual std::uint64_t largest_record() const = 0;  // padded bytes
  // A record's bytes in memory as the matrices of the expert.
  virtual void matrices(const ExpertRecord& record, const void* bytes, Matrix* gate, Matrix* up,
                        Matrix* down) const = 0;
};

// The scout's tensors by checkpoint name. load() reads the whole file into memory that the object owns (never
// mapped: a file that shrinks must not kill the engine).
struct Tensor {
  std::string name;
  Storage storage;  // f32, f16, bf16
  std::vector<std::int64_t> shape;
  const void* data;
  std::uint64_t bytes;
};

class Safetensors {
 public:
  static Error load(const std::string& path, std::unique_ptr<Safetensors>* out);
  virtual ~Safetensors() = default;
  virtual const Tensor* find(const std::string& name) const = 0;  // null when absent
  virtual const std::string* metadata(const std::string& key) const = 0;
  virtual std::uint64_t bytes() const = 0;
};

}  // namespace smoe
