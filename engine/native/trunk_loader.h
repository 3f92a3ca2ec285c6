// Brings the scout's tensors into memory: one block is converted on all threads while the next is read.
#pragma once

#include <cstdint>
#include <functional>

#include "error.h"
#include "file_io.h"
#include "threads.h"
#include "trunk_layout.h"

namespace smoe {

using LoadProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;  // bytes of the file

// memory: layout.bytes, aligned to 64. Takes two blocks of 8 MiB besides while it runs.
Error load_tensors(const File& scout, const TrunkLayout& layout, const Kernels& kernels, ThreadPool& pool, const LoadProgress& progress,
                   unsigned char* memory);

}  // namespace smoe
