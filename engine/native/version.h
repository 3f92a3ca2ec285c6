#pragma once

namespace smoe {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace smoe
