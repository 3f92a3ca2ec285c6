// One persistent pool of compute threads. The caller of for_range() works too.
#pragma once

#include <memory>
#include <type_traits>

namespace smoe {

// A borrowed callable: std::function's calling side, without its allocation. Valid while the callable lives.
template <class Signature>
class FunctionRef;

template <class Result, class... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  template <class Callable>
    requires(!std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef>)
  FunctionRef(const Callable& callable)
      : callable_(&callable), call_([](const void* target, Arguments... arguments) -> Result {
          return (*static_cast<const Callable*>(target))(arguments...);
        }) {}

  Result operator()(Arguments... arguments) const { return call_(callable_, arguments...); }

 private:
  const void* callable_;
  Result (*call_)(const void*, Arguments...);
};

// The cores that this process may use: its affinity mask and its cgroup's quota (v1 and v2); at least 1.
int available_cores();

// One thread at a time may call for_range(), and never from inside the work. Work must not throw.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // 0: available_cores()
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // work(begin, end) over [0, count) in contiguous pieces that are multiples of `grain` (but the last). The pieces
  // depend on count, grain and size() only; which thread takes which is decided as they go. Returns when the last
  // piece is done: a thread that has not woken by then is not waited for. Between calls threads spin briefly, then sleep.
  void for_range(int count, int grain, FunctionRef<void(int begin, int end)> work);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace smoe
