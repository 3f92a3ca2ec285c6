// The serve loop (docs/serve-protocol.md). Two threads: the reader takes lines, answers what can be answered at once and
// queues the rest; the caller of run() computes. What they share is behind mutex_ or atomic.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "generate.h"
#include "pipe.h"

namespace smoe {

// What the reader tells a waiting or running generation.
struct Wishes {
  std::atomic<bool> cancelled{false};
  std::deque<Mask> masks;     // behind Server::mutex_
  bool unreadable = false;    // a mask that cannot be read: behind Server::mutex_
};

class Server {
 public:
  using Log = std::function<void(const std::string&)>;

  // `wake` ends the server, for example from a signal handler.
  Server(int in, int out, const Wake& wake, Log log);
  ~Server();

  // Watches the client from the start on, so that an engine whose client is gone does not go on booting: the reader
  // thread then calls gone_before_ready.
  void listen(std::function<void()> gone_before_ready);
  // Serves until the client is gone.
  void run(Engine& engine, const SamplingOptions& defaults, bool instrument);

 private:
  class Answer;
  struct Job {
    Request request;
    std::shared_ptr<Wishes> wishes;  // of a generation
  };
  enum class State : std::uint8_t { idle, prefill, decode };

  void read_lines(LineReader& reader);
  void take_line(LineReader::Result result, std::string_view line);
  void enqueue(Request request);
  bool is_taken(std::uint64_t id) const;
  void pass_on(const Request& request);
  bool next_job(Job* job);
  void serve(Job& job);
  void serve_generation(const Job& job);
  void refuse(const std::string& reason, const std::string& detail);
  void publish();
  void tell(const Figures& figures);
  std::string hello_line() const;
  std::string status_line() const;
  std::string heat_line() const;

  const int in_;
  const Wake& wake_;
  LineWriter out_;
  Log log_;
  Engine* engine_ = nullptr;  // set before ready_
  Dialect dialect_{};         // its version is what the reader has heard
  bool instrument_ = false;
  std::unique_ptr<Generator> generator_;

  std::atomic<bool> ready_{false}, ending_{false};
  std::atomic<int> version_{1};  // what has been answered
  std::atomic<State> state_{State::idle};
  std::atomic<int> cached_{0}, conversations_{0};
  std::atomic<std::uint64_t> generated_{0};
  const Stopwatch uptime_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::map<std::uint64_t, std::shared_ptr<Wishes>> wishes_;  // waiting and running generations with an id

  std::thread reader_;
};

}  // namespace smoe
