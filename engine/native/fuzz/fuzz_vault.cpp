// A vault and a config made of any bytes: [u16 pages][u16 length][vault's first `length` bytes][config.json].
// The vault is filled with zeros up to 4096 x pages bytes, so that small inputs can have records. A vault that opens
// must have every byte that its matrices claim.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "file_io.h"
#include "memory.h"
#include "scratch_file.h"
#include "vault_reader.h"

static void touch(const smoe::Matrix& m) {
  const std::uint64_t weights = static_cast<std::uint64_t>(m.rows) * static_cast<std::uint64_t>(m.cols);
  const std::uint64_t bits = m.storage == smoe::Storage::q8 ? 8 : m.storage == smoe::Storage::q4 ? 4 : 2;
  const auto* codes = static_cast<const unsigned char*>(m.data);
  volatile unsigned sink = codes[0];
  sink = sink ^ codes[(weights * bits + 7) / 8 - 1];
  sink = sink ^ m.scales[0] ^ m.scales[(weights + 63) / 64 - 1];
}

static void read_experts(const smoe::Vault& vault) {
  smoe::Pages pages;
  if (smoe::Pages::allocate(vault.largest_record(), &pages)) return;
  for (int i = 0; i < vault.architecture().moe_layers; ++i)
    for (int e = 0; e < vault.experts(i); ++e) {
      const smoe::ExpertRecord& record = vault.expert(i, e);
      if (vault.file().read_direct(record.offset, pages.data(), record.bytes)) __builtin_trap();
      // On the heap in its exact size: a byte too far is then seen.
      std::vector<unsigned char> exact(pages.data(), pages.data() + record.bytes);
      smoe::Matrix gate, up, down;
      vault.matrices(record, exact.data(), &gate, &up, &down);
      for (const auto& matrix : {gate, up, down}) touch(matrix);
    }
}

static std::string scout() {
  const std::string json = R"({"model.embed_tokens.weight":{"dtype":"BF16","shape":[2,4],"data_offsets":[0,16]},
    "model.layers.0.self_attn.q_norm.weight":{"dtype":"BF16","shape":[2],"data_offsets":[16,20]}})";
  const std::uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + json + std::string(20, '\0');
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static ScratchFile vault_file(".smoe"), scout_file(".scout"), config_file(".json");
  static const std::string trunk = scout();
  static const std::string scout_path =
      scout_file.holds(reinterpret_cast<const std::uint8_t*>(trunk.data()), trunk.size(), trunk.size());
  std::uint16_t pages, length;
  if (size < 4) return 0;
  std::memcpy(&pages, data, 2);
  std::memcpy(&length, data + 2, 2);
  const std::size_t head = std::min<std::size_t>(length, size - 4), rest = size - 4 - head;
  const std::string& path = vault_file.holds(data + 4, head, std::uint64_t{pages} * 4096);
  const std::string& config = config_file.holds(data + 4 + head, rest, rest);

  std::unique_ptr<smoe::Vault> vault;
  const smoe::Error error = smoe::Vault::open(path, rest ? scout_path : "", rest ? config : "", &vault);
  if (error && error.message.rfind(path, 0) != 0) __builtin_trap();  // every refusal names the vault
  if (!error) read_experts(*vault);
  return 0;
}
