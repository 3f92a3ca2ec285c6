#include "file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace smoe {
namespace {

constexpr std::uint64_t kLargestRead = std::uint64_t{1} << 30;  // macOS refuses 2 GiB and more in one call

ssize_t pread_some(int fd, unsigned char* buffer, std::uint64_t bytes, std::uint64_t offset) {
  for (;;) {
    const ssize_t n = ::pread(fd, buffer, std::min(bytes, kLargestRead), static_cast<off_t>(offset));
    if (n >= 0 || errno != EINTR) return n;
  }
}

// -1 where the file system refuses at once; some accept the flag and refuse the first read.
int open_direct(const std::string& path) {
#if defined(O_DIRECT)
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
#elif defined(F_NOCACHE)
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd >= 0) ::fcntl(fd, F_NOCACHE, 1);
  return fd;
#else
  return -1;
#endif
}

bool same_file(int a, int b) {
  struct stat x, y;
  return ::fstat(a, &x) == 0 && ::fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool refuses_direct(int error_number) {
  return error_number == EINVAL || error_number == ENOTSUP || error_number == EOPNOTSUPP;
}

}  // namespace

File::File(std::string path, std::uint64_t size, int fd, int direct_fd)
    : path_(std::move(path)), size_(size), fd_(fd), direct_fd_(direct_fd), direct_(direct_fd >= 0) {}

File::~File() {
  ::close(fd_);
  if (direct_fd_ >= 0) ::close(direct_fd_);
}

Error File::open(const std::string& path, std::unique_ptr<File>* out) {
  // O_NONBLOCK: opening a named pipe must not wait for its writer; it means nothing for regular files.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {path + ": cannot be opened: " + std::strerror(errno)};
  struct stat status;
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd);
    return {path + ": not a regular file"};
  }
  int direct_fd = open_direct(path);
  if (direct_fd >= 0 && !same_file(fd, direct_fd)) {  // replaced between the two calls
    ::close(direct_fd);
    direct_fd = -1;
  }
  out->reset(new File(path, static_cast<std::uint64_t>(status.st_size), fd, direct_fd));
  return {};
}

Error File::failed(std::uint64_t offset, int error_number) const {
  const std::string why = error_number ? std::strerror(error_number) : "the file ends there; was it truncated?";
  return {path_ + ": read at byte " + std::to_string(offset) + " failed: " + why};
}

Error File::read(std::uint64_t offset, void* buffer, std::uint64_t bytes) const {
  auto* to = static_cast<unsigned char*>(buffer);
  for (std::uint64_t done = 0; done < bytes;) {
    const ssize_t n = pread_some(fd_, to + done, bytes - done, offset + done);
    if (n <= 0) return failed(offset + done, n < 0 ? errno : 0);
    done += static_cast<std::uint64_t>(n);
  }
  return {};
}

Error File::read_direct(std::uint64_t offset, void* buffer, std::uint64_t bytes) const {
  auto* to = static_cast<unsigned char*>(buffer);
  const std::uint64_t wanted = round_up(bytes, kIoBlock);
  std::uint64_t done = 0;
  // A count that is no multiple of the block is the end of the file, or a file system that stops short: what is
  // left then goes through the page cache, for direct I/O could not start there.
  while (done < bytes && done % kIoBlock == 0 && direct()) {
    const ssize_t n = pread_some(direct_fd_, to + done, wanted - done, offset + done);
    if (n < 0 && !refuses_direct(errno)) return failed(offset + done, errno);
    if (n < 0) direct_.store(false, std::memory_order_relaxed);
    if (n == 0) break;
    if (n > 0) done += static_cast<std::uint64_t>(n);
  }
  return done < bytes ? read(offset + done, to + done, bytes - done) : Error{};
}

void File::drop_cached(std::uint64_t offset, std::uint64_t bytes) const {
#if defined(POSIX_FADV_DONTNEED)
  ::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
#else
  (void)offset, (void)bytes;  // macOS: the pages of the F_NOCACHE descriptor never stayed
#endif
}

Error read_text(const std::string& path, std::uint64_t limit, std::string* out) {
  std::unique_ptr<File> file;
  if (Error error = File::open(path, &file)) return error;
  if (file->size() > limit)
    return {path + ": " + std::to_string(file->size()) + " bytes, more than the " + std::to_string(limit) +
            " expected"};
  out->resize(file->size());
  return file->read(0, out->data(), out->size());
}

}  // namespace smoe
