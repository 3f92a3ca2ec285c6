// The two ends of a client's pipe. Neither ever blocks for good: both give up when the client is gone.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>

namespace smoe {

// Wakes whoever polls its descriptor, once and for good. wake() may be called from a signal handler.
class Wake {
 public:
  Wake();
  ~Wake();
  Wake(const Wake&) = delete;
  Wake& operator=(const Wake&) = delete;

  int descriptor() const { return ends_[0]; }
  void wake() const;

 private:
  int ends_[2] = {-1, -1};
};

// Whole lines to stdout from any thread, each in one write where the pipe takes it.
class LineWriter {
 public:
  // `client`: the descriptor whose hang-up means that the client is gone although nobody reads it just now.
  // `wake`: one that becomes readable when writing must end.
  LineWriter(int descriptor, int client, int wake) : descriptor_(descriptor), client_(client), wake_(wake) {}

  void write(std::string_view text);
  bool gone() const { return gone_; }  // what is written now goes nowhere

 private:
  bool wait_writable() const;

  int descriptor_, client_, wake_;
  std::mutex mutex_;
  std::atomic<bool> gone_{false};
};

// Lines from stdin, one at a time.
class LineReader {
 public:
  enum class Result : unsigned char { line, too_long, end };

  // `wake`: a descriptor that becomes readable when reading must end.
  LineReader(int descriptor, int wake, std::size_t longest)
      : descriptor_(descriptor), wake_(wake), longest_(longest) {}

  // Without its newline, valid until the next call. too_long: it has been skipped; the text is its beginning.
  Result next(std::string_view* line);
  // Blocks until the client is gone (false) or `ready` says so; takes nothing from the pipe.
  bool client_stays(const std::atomic<bool>& ready) const;

 private:
  bool fill();

  int descriptor_, wake_;
  std::size_t longest_;
  std::string buffer_;
  std::size_t start_ = 0;    // of the next line in buffer_
  std::size_t scanned_ = 0;  // no newline before it
};

}  // namespace smoe
