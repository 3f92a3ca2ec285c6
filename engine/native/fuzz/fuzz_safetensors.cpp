// Any bytes as a safetensors file: what loads must have every byte that its tensors claim.
#include <cstdint>

#include "safetensors.h"
#include "scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static ScratchFile file(".safetensors");
  const std::string& path = file.holds(data, size, size);
  std::unique_ptr<smoe::Safetensors> loaded;
  if (smoe::Safetensors::load(path, &loaded)) return 0;

  std::unique_ptr<smoe::File> again;
  smoe::SafetensorsHeader header;
  if (smoe::File::open(path, &again) || smoe::read_safetensors_header(*again, &header)) __builtin_trap();
  volatile unsigned char sink = 0;
  for (const auto& [name, entry] : header.entries) {
    const smoe::Tensor* tensor = loaded->find(name);
    if (!loaded->has(name) || (tensor && loaded->require(name, entry.shape, &tensor))) __builtin_trap();
    if (!tensor) continue;
    const auto* bytes = static_cast<const unsigned char*>(tensor->data);
    for (std::uint64_t i = 0; i < tensor->bytes; ++i) sink = sink ^ bytes[i];
  }
  return 0;
}
