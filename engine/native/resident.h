#pragma once

#include <cstdint>

namespace smoe {

// Bytes of this process that are in memory now; 0 when the system does not tell.
std::uint64_t resident_memory();

}  // namespace smoe
