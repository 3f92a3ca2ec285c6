// Reads of whole byte ranges from files that are larger than memory, past the page cache where the system allows.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "error.h"

namespace smoe {

// What direct I/O wants offsets, lengths and buffers to be multiples of.
inline constexpr std::uint64_t kIoBlock = 4096;

inline constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Safe to read from any number of threads at once.
class File {
 public:
  static Error open(const std::string& path, std::unique_ptr<File>* out);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // when it was opened
  bool direct() const { return direct_.load(std::memory_order_relaxed); }

  // Exactly `bytes` bytes from `offset`, through the page cache.
  Error read(std::uint64_t offset, void* buffer, std::uint64_t bytes) const;

  // The same past the page cache; through it where the file system refuses (tmpfs, some network mounts).
  // offset and buffer: multiples of kIoBlock; the buffer holds `bytes` rounded up to kIoBlock.
  Error read_direct(std::uint64_t offset, void* buffer, std::uint64_t bytes) const;

  // Tells the system that cached pages of this range are not wanted any more.
  void drop_cached(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  File(std::string path, std::uint64_t size, int fd, int direct_fd);
  Error failed(std::uint64_t offset, int error_number) const;

  std::string path_;
  std::uint64_t size_;
  int fd_, direct_fd_;
  mutable std::atomic<bool> direct_;  // turns false for good when a direct read is refused
};

// A whole small file as text; refused when it is larger than `limit` bytes.
Error read_text(const std::string& path, std::uint64_t limit, std::string* out);

}  // namespace smoe
