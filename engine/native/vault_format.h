// The .smoe file, byte for byte: all integers little-endian, structs packed, offsets from the start of the file
// unless a comment says otherwise. A header, one table entry an expert, three tensor descriptors an expert, from
// version 2 an arch block, padding, then one padded record an expert.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace smoe::format {

static_assert(std::endian::native == std::endian::little, "structs are read as they lie in the file");

inline constexpr unsigned char kMagic[8] = {'S', 'M', 'O', 'E', 0xDE, 0xEA, 0x00, 0x01};
inline constexpr unsigned char kArchMagic[4] = {'S', 'A', 'R', 'C'};
inline constexpr std::uint64_t kRecordAlignment = 16384;
inline constexpr std::uint64_t kArchAlignment = 64;
inline constexpr std::uint32_t kGroupSize = 64;  // weights that share a scale
inline constexpr std::uint32_t kScaleBytes = 2;  // float16
inline constexpr int kTensorsPerExpert = 3;      // gate, up, down

#pragma pack(push, 1)

struct Header {
  unsigned char magic[8];
  std::uint32_t version;  // 1 or 2
  std::uint32_t num_moe_layers;
  std::uint32_t max_experts_per_layer;
  std::uint32_t total_experts;
  std::uint64_t table_offset;
  std::uint64_t data_offset;
  std::uint32_t group_size;
  std::uint32_t bits;
  std::uint32_t d_model;
  std::uint32_t vocab_size;
  std::uint32_t ffn_dim;      // not dependable: writers in the wild put other widths here; descriptors tell the truth
  std::uint32_t arch_offset;  // 0 in version 1
};
static_assert(sizeof(Header) == 64 && offsetof(Header, table_offset) == 24 && offsetof(Header, arch_offset) == 60);

struct TableEntry {
  std::uint32_t layer_id;  // absolute transformer layer
  std::uint32_t expert_id;
  std::uint64_t byte_offset;  // multiple of kRecordAlignment
  std::uint64_t raw_size;
  std::uint64_t padded_size;  // multiple of kRecordAlignment
  std::uint32_t group_size;
  std::uint64_t num_groups;  // of the three tensors together
  unsigned char padding[4];
};
static_assert(sizeof(TableEntry) == 48 && offsetof(TableEntry, num_groups) == 36);

struct TensorDescriptor {
  std::uint8_t tensor_type;  // 0 gate, 1 up, 2 down
  std::uint8_t ndim;         // 2
  unsigned char padding[2];
  std::uint32_t rows, cols;
  std::uint64_t packed_offset, packed_size;  // relative to the expert's record
  std::uint64_t scales_offset, scales_size;  // the same
};
static_assert(sizeof(TensorDescriptor) == 44 && offsetof(TensorDescriptor, packed_offset) == 12);

enum ArchFlags : std::uint32_t {
  kRenormalizeTopK = 1u << 0,
  kQkNorm = 1u << 1,  // per-head RMS norm of Q and K before RoPE
  kFirstLayerDense = 1u << 2,
  kKnownFlags = kRenormalizeTopK | kQkNorm | kFirstLayerDense,
};

struct ArchBlock {
  unsigned char magic[4];
  std::uint32_t block_version;  // 1
  std::uint32_t block_size;     // 128
  std::uint32_t flags;
  float rope_theta;
  std::uint32_t num_heads;
  std::uint32_t num_kv_heads;
  std::uint32_t head_dim;
  std::uint32_t moe_top_k;
  std::uint32_t moe_ffn_dim;
  std::uint32_t dense_ffn_dim;
  std::uint32_t shared_expert_ffn_dim;  // 0: none
  std::uint32_t activation;             // 0: SiLU
  std::uint32_t num_hidden_layers;
  float rms_norm_eps;
  char model_type[24];  // Hugging Face's, padded with zeros
  unsigned char reserved[44];
};
static_assert(sizeof(ArchBlock) == 128 && offsetof(ArchBlock, rms_norm_eps) == 56 &&
              offsetof(ArchBlock, model_type) == 60);

#pragma pack(pop)

}  // namespace smoe::format
