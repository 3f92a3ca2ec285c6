#include "pipe.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace smoe {
namespace {

// POSIX: a pipe that polls as writable takes this much without blocking.
#ifdef PIPE_BUF
constexpr std::size_t kAtOnce = PIPE_BUF;
#else
constexpr std::size_t kAtOnce = 512;
#endif
constexpr std::size_t kReadAtOnce = 64 << 10;
constexpr int kBootPollMs = 5;

}  // namespace

Wake::Wake() {
  if (::pipe(ends_) != 0) return;  // no descriptors left: nothing else will open either, and boot says so
  for (const int end : ends_) ::fcntl(end, F_SETFD, FD_CLOEXEC);
}

Wake::~Wake() {
  for (const int end : ends_) ::close(end);
}

void Wake::wake() const {
  const ssize_t ignored = ::write(ends_[1], "", 1);
  static_cast<void>(ignored);
}

void LineWriter::write(std::string_view text) {
  const std::lock_guard lock(mutex_);
  while (!text.empty() && !gone_) {
    if (!wait_writable()) {
      gone_ = true;
      return;
    }
    const ssize_t written = ::write(descriptor_, text.data(), std::min(text.size(), kAtOnce));
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (written < 0) gone_ = true;
    else text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// A client that hangs up without reading what we wrote must not leave us waiting for it.
bool LineWriter::wait_writable() const {
  pollfd descriptors[] = {{descriptor_, POLLOUT, 0}, {client_, 0, 0}, {wake_, POLLIN, 0}};
  for (;;) {
    const int ready = ::poll(descriptors, 3, -1);
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return true;  // let write() say what is wrong
    if ((descriptors[0].revents & (POLLOUT | POLLERR | POLLNVAL)) != 0) return true;
    if ((descriptors[1].revents & (POLLHUP | POLLERR)) != 0 || descriptors[2].revents != 0) return false;
  }
}

LineReader::Result LineReader::next(std::string_view* line) {
  bool skipping = false;
  for (;;) {
    const std::size_t newline = buffer_.find('\n', scanned_);
    if (newline != std::string::npos) {
      *line = std::string_view(buffer_).substr(start_, skipping ? 64 : newline - start_);
      start_ = scanned_ = newline + 1;
      return skipping ? Result::too_long : Result::line;
    }
    scanned_ = buffer_.size();
    if (scanned_ - start_ > longest_) {
      skipping = true;
      buffer_.resize(start_ + 64);
      scanned_ = buffer_.size();
    }
    if (!fill()) return Result::end;
  }
}

bool LineReader::fill() {
  buffer_.erase(0, start_);
  scanned_ -= start_;
  start_ = 0;
  pollfd descriptors[] = {{descriptor_, POLLIN, 0}, {wake_, POLLIN, 0}};
  for (;;) {
    if (::poll(descriptors, 2, -1) < 0 && errno != EINTR) return false;
    if (descriptors[1].revents != 0) return false;
    if (descriptors[0].revents == 0) continue;
    const std::size_t before = buffer_.size();
    buffer_.resize(before + kReadAtOnce);
    const ssize_t count = ::read(descriptor_, buffer_.data() + before, kReadAtOnce);
    buffer_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    return count > 0;
  }
}

bool LineReader::client_stays(const std::atomic<bool>& ready) const {
  while (!ready) {
    pollfd descriptors[] = {{descriptor_, 0, 0}, {wake_, POLLIN, 0}};
    if (::poll(descriptors, 2, kBootPollMs) < 0 && errno != EINTR) return false;
    if (descriptors[1].revents != 0) return false;
    if ((descriptors[0].revents & (POLLHUP | POLLERR)) != 0) return false;
  }
  return true;
}

}  // namespace smoe
