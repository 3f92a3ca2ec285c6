// Gives a fuzz target's bytes a name in the file system, for readers that take paths.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

class ScratchFile {
 public:
  explicit ScratchFile(const std::string& name)
      : path_((std::filesystem::temp_directory_path() / ("smoe-fuzz-" + std::to_string(::getpid()) + name)).string()),
        fd_(::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {
    if (fd_ < 0) std::abort();
  }
  ~ScratchFile() {
    ::close(fd_);
    ::unlink(path_.c_str());
  }

  // `bytes`, then zeros (a hole) up to `length`.
  const std::string& holds(const std::uint8_t* data, std::size_t bytes, std::uint64_t length) {
    if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, data, bytes, 0) != static_cast<ssize_t>(bytes)) std::abort();
    if (length > bytes && ::ftruncate(fd_, static_cast<off_t>(length)) != 0) std::abort();
    return path_;
  }

 private:
  std::string path_;
  int fd_;
};
