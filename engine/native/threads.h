// One persistent pool of compute threads. The caller of run() is thread 0 and works too.
#pragma once

#include <functional>

namespace smoe {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // 0: the cores this process may use (affinity, cgroup quota)
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // work(thread, threads) on every thread; returns when all have ended. Spins briefly, then sleeps, between calls.
  void run(const std::function<void(int thread, int threads)>& work);

  // work(begin, end) over [0, count) in contiguous pieces that are multiples of `grain`, one or more a thread.
  void for_range(int count, int grain, const std::function<void(int begin, int end)>& work);

 private:
  struct State;
  State* state_;
};

}  // namespace smoe
