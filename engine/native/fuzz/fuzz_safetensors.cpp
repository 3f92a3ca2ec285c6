// Any bytes as a safetensors file: what loads, in any form, must have every byte that its tensors claim.
#include <cstdint>

#include "scratch_file.h"
#include "trunk.h"

static void load(const std::string& path, smoe::TrunkForm form) {
  constexpr int kLayers = 2;
  std::unique_ptr<smoe::Trunk> trunk;
  if (smoe::Trunk::open(path, kLayers, form, &trunk)) return;
  if (trunk->load(*smoe::select_kernels(), 1)) __builtin_trap();

  volatile unsigned char sink = 0;
  for (const auto& [name, entry] : trunk->header().entries) {
    smoe::Tensor tensor{};
    if (!smoe::storage_of(entry.dtype) || !smoe::is_of_trunk(name, kLayers)) continue;
    if (trunk->require(name, entry.shape, &tensor)) __builtin_trap();
    const std::uint64_t elements = (entry.end - entry.begin) / smoe::element_bytes(entry.dtype);
    const std::uint64_t bytes = tensor.scales ? smoe::code_bytes(tensor.storage, elements) : entry.end - entry.begin;
    for (std::uint64_t i = 0; i < bytes; ++i) sink = sink ^ static_cast<const unsigned char*>(tensor.data)[i];
    for (std::uint64_t i = 0; tensor.scales && i < elements / 64; ++i) sink = sink ^ static_cast<unsigned char>(tensor.scales[i]);
  }
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static ScratchFile file(".safetensors");
  const std::string& path = file.holds(data, size, size);
  for (const auto form : {smoe::TrunkForm::automatic, smoe::TrunkForm::q8, smoe::TrunkForm::q4}) load(path, form);
  return 0;
}
