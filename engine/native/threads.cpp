// The pool's hand-over: run() publishes the work and bumps `generation`; each worker sees the bump, works, and counts
// `running` down; the caller sees zero. Both sides spin first, because the next piece of a forward pass is usually
// some microseconds away, then sleep in std::atomic::wait (a futex on Linux).
#include "threads.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace smoe {
namespace {

constexpr std::chrono::microseconds spin_time{100};
constexpr int pauses_between_clock_reads = 64;
constexpr int pieces_per_thread = 4;  // so that a thread that was held up does not hold up all

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

template <class Value>
void await_change(const std::atomic<Value>& state, Value old, bool spin) {
  if (spin) {
    const auto end = std::chrono::steady_clock::now() + spin_time;
    do {
      for (int i = 0; i < pauses_between_clock_reads; i++) {
        if (state.load(std::memory_order_acquire) != old) return;
        pause_briefly();
      }
    } while (std::chrono::steady_clock::now() < end);
  }
  state.wait(old, std::memory_order_acquire);
}

}  // namespace

struct ThreadPool::State {
  explicit State(int threads) : size(threads), spin(threads <= available_cores()) {
    for (int thread = 1; thread < size; thread++) workers.emplace_back([this, thread] { serve(thread); });
  }

  ~State() {
    work = nullptr;
    announce();
    for (std::thread& worker : workers) worker.join();
  }

  void announce() {
    generation.fetch_add(1, std::memory_order_release);
    generation.notify_all();
  }

  void serve(int thread) {
    for (int seen = 0;; seen++) {
      await_change(generation, seen, spin);
      if (!work) return;
      (*work)(thread, size);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
    }
  }

  const int size;
  const bool spin;  // with more threads than cores, a spinning thread keeps a working one from its core
  const FunctionRef<void(int, int)>* work = nullptr;
  alignas(64) std::atomic<int> generation{0};
  alignas(64) std::atomic<int> running{0};
  std::vector<std::thread> workers;
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>(threads > 0 ? threads : available_cores())) {}

ThreadPool::~ThreadPool() = default;

int ThreadPool::size() const { return state_->size; }

void ThreadPool::run(FunctionRef<void(int, int)> work) {
  if (state_->size > 1) {
    state_->work = &work;
    state_->running.store(state_->size - 1, std::memory_order_relaxed);
    state_->announce();
  }
  work(0, state_->size);
  for (int left; (left = state_->running.load(std::memory_order_acquire)) != 0;)
    await_change(state_->running, left, state_->spin);
}

void ThreadPool::for_range(int count, int grain, FunctionRef<void(int, int)> work) {
  if (count <= 0) return;
  const int grains = (count + grain - 1) / grain;
  const int wanted = state_->size * pieces_per_thread;
  const int piece = (grains + wanted - 1) / wanted * grain;
  if (state_->size == 1 || piece >= count) return work(0, count);

  const int pieces = (count + piece - 1) / piece;
  std::atomic<int> next{0};
  run([&](int, int) {
    for (int i; (i = next.fetch_add(1, std::memory_order_relaxed)) < pieces;)
      work(i * piece, std::min(count, (i + 1) * piece));
  });
}

}  // namespace smoe
