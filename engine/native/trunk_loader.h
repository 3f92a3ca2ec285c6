// Brings the scout's tensors into memory: some blocks are converted while others are read.
#pragma once

#include <cstdint>
#include <functional>

#include "error.h"
#include "file_io.h"
#include "trunk_layout.h"

namespace smoe {

using LoadProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;  // bytes of the file

// memory: layout.bytes, aligned to 64. `threads` may compute; those and two more take a block of 2 MiB each while it runs.
// `progress` is called by one of them at a time.
Error load_tensors(const File& scout, const TrunkLayout& layout, const Kernels& kernels, int threads, const LoadProgress& progress,
                   unsigned char* memory);

}  // namespace smoe
