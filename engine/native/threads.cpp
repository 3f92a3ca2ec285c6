// The pool's hand-over is one word, the gate: a call's number, whether it is open, and how many workers are inside. The
// caller publishes the work and opens the gate; a worker that sees it open goes in, takes pieces until none is left and
// goes out; the caller, once it finds no piece left either, shuts the gate and waits for those inside alone. Both
// sides spin first, because the next piece of a forward pass is usually some microseconds away, then sleep in
// std::atomic::wait (a futex on Linux).
#include "threads.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
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

// The first value that `wanted` accepts.
template <class Wanted>
std::uint32_t await(const std::atomic<std::uint32_t>& state, bool spin, const Wanted& wanted) {
  std::uint32_t value = state.load(std::memory_order_acquire);
  for (const auto end = std::chrono::steady_clock::now() + spin_time; spin && std::chrono::steady_clock::now() < end;)
    for (int i = 0; i < pauses_between_clock_reads; i++) {
      if (wanted(value)) return value;
      pause_briefly();
      value = state.load(std::memory_order_acquire);
    }
  while (!wanted(value)) {
    state.wait(value, std::memory_order_acquire);
    value = state.load(std::memory_order_acquire);
  }
  return value;
}

// The gate's word. A call's number may wrap around: who slept through them all misses one call, which waits for nobody.
constexpr std::uint32_t inside_mask = (1u << 11) - 1, open_bit = 1u << 11, number_step = 1u << 12;

std::uint32_t number_of(std::uint32_t gate) { return gate / number_step; }

}  // namespace

struct ThreadPool::State {
  explicit State(int threads) : size(threads), spin(threads <= available_cores()) {
    for (int thread = 1; thread < size; thread++) workers.emplace_back([this] { serve(); });
  }

  ~State() {
    work = nullptr;
    open();
    for (std::thread& worker : workers) worker.join();
  }

  void open() {
    gate.store((number_of(gate.load(std::memory_order_relaxed)) + 1) * number_step | open_bit, std::memory_order_release);
    gate.notify_all();
  }

  void shut_and_wait() {
    const std::uint32_t last = gate.fetch_and(~open_bit, std::memory_order_acq_rel);
    if ((last & inside_mask) != 0) await(left, spin, [&](std::uint32_t number) { return number == number_of(last); });
  }

  void serve() {
    for (std::uint32_t seen = 0;;) {
      std::uint32_t now = await(gate, spin, [&](std::uint32_t g) { return (g & open_bit) != 0 && number_of(g) != seen; });
      if (!gate.compare_exchange_strong(now, now + 1, std::memory_order_acq_rel)) continue;
      seen = number_of(now);
      if (work == nullptr) return;
      (*work)();
      leave();
    }
  }

  // The last one out of a shut gate tells the caller, who alone waits for `left`.
  void leave() {
    const std::uint32_t now = gate.fetch_sub(1, std::memory_order_acq_rel) - 1;
    if ((now & (open_bit | inside_mask)) != 0) return;
    left.store(number_of(now), std::memory_order_release);
    left.notify_one();
  }

  const int size;
  const bool spin;  // with more threads than cores, a spinning thread keeps a working one from its core
  const FunctionRef<void()>* work = nullptr;
  alignas(64) std::atomic<std::uint32_t> gate{0};
  alignas(64) std::atomic<std::uint32_t> left{0};  // number of the last call that some worker was waited for
  std::vector<std::thread> workers;
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>(threads > 0 ? threads : available_cores())) {}

ThreadPool::~ThreadPool() = default;

int ThreadPool::size() const { return state_->size; }

void ThreadPool::for_range(int count, int grain, FunctionRef<void(int, int)> work) {
  if (count <= 0) return;
  const int grains = (count + grain - 1) / grain;
  const int wanted = state_->size * pieces_per_thread;
  const int piece = (grains + wanted - 1) / wanted * grain;
  if (state_->size == 1 || piece >= count) return work(0, count);

  const int pieces = (count + piece - 1) / piece;
  std::atomic<int> next{0};
  const auto take_pieces = [&] {
    for (int i; (i = next.fetch_add(1, std::memory_order_relaxed)) < pieces;)
      work(i * piece, std::min(count, (i + 1) * piece));
  };
  const FunctionRef<void()> shared(take_pieces);
  state_->work = &shared;
  state_->open();
  take_pieces();
  state_->shut_and_wait();
}

}  // namespace smoe
