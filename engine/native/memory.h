// Memory that this process may really take, and pages taken from the system in one piece.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "error.h"

namespace smoe {

// Bytes that can be taken without swapping or being killed: the system's available memory, and on Linux no more
// than any control group above this process leaves (v1 and v2; its inactive file cache counts as free). `root`
// stands before /proc and /sys, for tests. UINT64_MAX when the system tells nothing.
std::uint64_t available_memory(const std::string& root = "");

// Whether tasks wait for memory noticeably often (Linux: pressure stall information of the system or of this
// process's version-2 group, a tenth of the last ten seconds). False where the system does not tell.
bool memory_pressed(const std::string& root = "");

std::uint64_t page_bytes();  // of the system's small pages

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

  // Gives back what whole pages of this range hold: zeroed again (on macOS maybe not yet) when next touched.
  void discard(std::uint64_t offset, std::uint64_t bytes);
  // Small pages where the whole of them lie in this range: for what may stay far from full.
  void keep_small(std::uint64_t offset, std::uint64_t bytes);
  // Has this range in memory, zeroed, before it is written; where a system cannot, writing does it a page at a time.
  void touch(std::uint64_t offset, std::uint64_t bytes);
  // Bytes that are in memory now. Any thread may ask.
  std::uint64_t resident() const;

 private:
  std::pair<std::uint64_t, std::uint64_t> whole_pages(std::uint64_t offset, std::uint64_t bytes) const;  // begin, end

  unsigned char* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace smoe
