// Memory that this process may really take, and pages taken from the system in one piece.
#pragma once

#include <cstdint>
#include <string>

#include "error.h"

namespace smoe {

// Bytes that can be taken without swapping or being killed: the system's available memory, and on Linux no more
// than any control group above this process leaves (v1 and v2; its inactive file cache counts as free). `root`
// stands before /proc and /sys, for tests. UINT64_MAX when the system tells nothing.
std::uint64_t available_memory(const std::string& root = "");

// How many slots fit into available - reserve: at least 1, at most `experts`.
int ring_slots(std::uint64_t available, std::uint64_t reserve, std::uint64_t slot_bytes, int experts);

// Zeroed private pages, in huge pages where the system has them; freed with the object.
class Pages {
 public:
  Pages() = default;
  ~Pages();
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;

  static Error allocate(std::uint64_t bytes, Pages* out);
  unsigned char* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  unsigned char* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace smoe
