// The packed structs against a file that another tool wrote, at the offsets that the format's description gives.
#include "check.h"
#include "vault_files.h"

using namespace smoe::format;
using vault_files::interop;
using vault_files::read_file;

template <class T>
static T take(const std::string& bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

TEST(header_of_another_tool) {
  const auto h = take<Header>(read_file(interop("tiny-qwen3moe-q4/tiny-qwen3moe.smoe")), 0);
  CHECK(std::memcmp(h.magic, "SMOE\xDE\xEA\x00\x01", 8) == 0);
  CHECK_EQ(std::uint32_t{h.version}, 2u);
  CHECK_EQ(std::uint32_t{h.num_moe_layers}, 3u);
  CHECK_EQ(std::uint32_t{h.max_experts_per_layer}, 8u);
  CHECK_EQ(std::uint32_t{h.total_experts}, 24u);
  CHECK_EQ(std::uint64_t{h.table_offset}, 64u);
  CHECK_EQ(std::uint64_t{h.data_offset}, 16384u);
  CHECK_EQ(std::uint32_t{h.group_size}, 64u);
  CHECK_EQ(std::uint32_t{h.bits}, 4u);
  CHECK_EQ(std::uint32_t{h.d_model}, 128u);
  CHECK_EQ(std::uint32_t{h.vocab_size}, 512u);
  CHECK_EQ(std::uint32_t{h.arch_offset}, 4416u);
}

TEST(table_and_descriptors_of_another_tool) {
  const std::string file = read_file(interop("tiny-qwen3moe-q2/tiny-qwen3moe.smoe"));
  const auto entry = take<TableEntry>(file, 64 + 20 * 48);
  CHECK_EQ(std::uint32_t{entry.layer_id}, 2u);
  CHECK_EQ(std::uint32_t{entry.expert_id}, 4u);
  CHECK_EQ(std::uint64_t{entry.byte_offset}, 344064u);
  CHECK_EQ(std::uint64_t{entry.raw_size}, 6912u);
  CHECK_EQ(std::uint64_t{entry.padded_size}, 16384u);
  CHECK_EQ(std::uint64_t{entry.num_groups}, 384u);
  const auto down = take<TensorDescriptor>(file, 64 + 24 * 48 + 2 * 44);
  CHECK_EQ(int{down.tensor_type}, 2);
  CHECK_EQ(std::uint32_t{down.rows}, 128u);
  CHECK_EQ(std::uint32_t{down.cols}, 64u);
  CHECK_EQ(std::uint64_t{down.packed_offset}, 4608u);
  CHECK_EQ(std::uint64_t{down.packed_size}, 2048u);
  CHECK_EQ(std::uint64_t{down.scales_offset}, 6656u);
  CHECK_EQ(std::uint64_t{down.scales_size}, 256u);
}

TEST(arch_block_of_another_tool) {
  const auto block = take<ArchBlock>(read_file(interop("tiny-qwen3moe-q4/tiny-qwen3moe.smoe")), 4416);
  CHECK(std::memcmp(block.magic, "SARC", 4) == 0);
  CHECK_EQ(std::uint32_t{block.block_version}, 1u);
  CHECK_EQ(std::uint32_t{block.flags}, kRenormalizeTopK | kQkNorm);
  CHECK_EQ(float{block.rope_theta}, 1e6f);
  CHECK_EQ(float{block.rms_norm_eps}, 1e-6f);
  CHECK_EQ(std::uint32_t{block.num_hidden_layers}, 3u);
  CHECK_EQ(std::string(block.model_type), "qwen3_moe");
}
