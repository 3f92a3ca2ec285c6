// Who owns what: the compute thread alone maps experts to slots, pins, and keeps the order of eviction, so a hit
// takes no lock. The mutex guards the two queues of reads. A slot's state passes from the I/O thread that filled it
// to the compute thread: everything before the store of `whole` or `failed` is seen after its load.
#include "expert_ring.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "index_list.h"
#include "memory.h"
#include "next_use.h"

namespace smoe {
namespace {

constexpr int kNone = -1;
constexpr int kHintReaders = 2;  // at most, and never all threads
constexpr int kSpins = 2000;  // tens of microseconds: less than a wake-up where the read is about to end

enum State : std::uint32_t { pending, whole, failed };

struct Slot {
  std::atomic<std::uint32_t> state{pending};
  int expert = kNone;  // flat number; written while no read of this slot is queued or under way
  int pins = 0;        // requests not yet released
  Error error;         // of a failed read
};

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Ring : public ExpertRing {
 public:
  explicit Ring(const Vault& vault, int slots)
      : vault_(vault), next_use_(static_cast<std::size_t>(vault.total_experts())), slots_(static_cast<std::size_t>(slots)), free_(slots), cold_(slots),
        usable_(slots), demands_(slots), hints_(slots) {
    for (int i = 0; i < vault.architecture().moe_layers; ++i) {
      first_.push_back(static_cast<int>(records_.size()));
      for (int e = 0; e < vault.experts(i); ++e) records_.push_back(&vault.expert(i, e));
    }
    slot_of_.assign(records_.size(), kNone);
    uses_ = std::vector<std::atomic<std::uint32_t>>(records_.size());
    for (int s = 0; s < slots; ++s) free_.push_back(s);
  }

  ~Ring() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  Error start(int workers) {
    std::uint64_t bytes;
    if (__builtin_mul_overflow(std::uint64_t{slots_.size()}, slot_bytes(), &bytes))
      return {"expert ring: " + std::to_string(slots_.size()) + " slots of " + std::to_string(slot_bytes()) + " bytes"};
    if (Error error = Pages::allocate(bytes, &pool_)) return {"expert ring: " + error.message};
    hint_readers_ = std::clamp(workers - 1, 1, kHintReaders);
    try {
      for (int i = 0; i < workers; ++i) workers_.emplace_back([this] { serve_reads(); });
    } catch (const std::system_error& error) {
      return {"expert ring: " + std::to_string(workers) + " I/O threads: " + error.what()};
    }
    return {};
  }

  bool request(int moe_index, int expert) override {
    const int number = flat(moe_index, expert);
    int s = slot_of_[at(number)];
    const bool hit = s != kNone && slots_[at(s)].state.load(std::memory_order_acquire) == whole;
    if (s == kNone) {
      s = slot_for_request();
      if (s == kNone) return false;
      bind(s, number);
      read_later(s, demands_);
    } else if (!hit) {
      hasten(s);
    }
    add(hit ? hits_ : misses_, std::uint64_t{1});
    add(uses_[at(number)], 1u);
    next_use_.use(at(number));
    pin(s);
    return true;
  }

  const void* wait(int moe_index, int expert) override {
    const int s = slot_of_[at(flat(moe_index, expert))];
    Slot& slot = slots_[at(s)];
    if (slot.state.load(std::memory_order_acquire) == pending) stall(slot);
    if (slot.state.load(std::memory_order_acquire) == whole) return data(s);
    error_ = slot.error;
    return nullptr;
  }

  bool ready(int moe_index, int expert) const override {
    const int s = slot_of_[at(flat(moe_index, expert))];
    return s != kNone && slots_[at(s)].pins > 0 && slots_[at(s)].state.load(std::memory_order_acquire) != pending;
  }

  void release(int moe_index, int expert) override {
    const int s = slot_of_[at(flat(moe_index, expert))];
    Slot& slot = slots_[at(s)];
    if (--slot.pins > 0) return;
    const bool no_use = slot.state.load(std::memory_order_acquire) == failed || cancel(s, demands_);
    if (no_use) drop(s);
    else cold_.push_back(s);
  }

  bool prefetch(int moe_index, int expert) override {
    const int number = flat(moe_index, expert);
    int s = slot_of_[at(number)];
    if (s != kNone) {
      refresh(s);
      return false;
    }
    s = slot_for_hint();
    if (s == kNone) return false;
    bind(s, number);
    cold_.push_back(s);
    read_later(s, hints_);
    return true;
  }

  void forget(int moe_index, int expert) override {
    const int s = slot_of_[at(flat(moe_index, expert))];
    if (s == kNone || !cancel(s, hints_)) return;
    cold_.remove(s);
    drop(s);
  }

  void expect(int moe_index, int expert, float share) override { next_use_.expect(at(flat(moe_index, expert)), share); }

  bool hints_wait() const override {
    const std::lock_guard lock(mutex_);
    return !hints_.empty();
  }

  int free_slots() const override { return usable_.load(std::memory_order_relaxed) - used_.load(std::memory_order_relaxed); }

  // Slots go from the pool's end, so that whole huge pages go, and what lies there moves: a piece of a huge page goes on
  // taking the memory of all of it.
  void resize(int slots) override {
    const int wanted = std::clamp(slots, 1, static_cast<int>(slots_.size()));
    while (usable_ > wanted && vacate(usable_ - 1)) {
      --usable_;
      pool_.discard(at(usable_) * slot_bytes(), slot_bytes());
    }
    for (; usable_ < wanted; ++usable_) free_.push_back(usable_);
  }

  int slots() const override { return usable_.load(std::memory_order_relaxed); }
  void touch(int slot) override { pool_.touch(at(slot) * slot_bytes(), slot_bytes()); }

  std::uint64_t resident() const override { return pool_.resident(); }
  std::uint64_t slot_bytes() const override { return vault_.largest_record(); }
  int used() const override { return used_.load(std::memory_order_relaxed); }

  RingCounters counters() const override {
    const auto get = [](const std::atomic<std::uint64_t>& n) { return n.load(std::memory_order_relaxed); };
    return {get(hits_), get(misses_), get(bytes_read_), static_cast<double>(get(stall_ns_)) * 1e-6};
  }

  std::uint32_t uses(int moe_index, int expert) const override {
    return uses_[at(flat(moe_index, expert))].load(std::memory_order_relaxed);
  }

  Error error() const override { return error_; }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  int flat(int moe_index, int expert) const { return first_[at(moe_index)] + expert; }
  unsigned char* data(int s) const { return pool_.data() + at(s) * slot_bytes(); }

  template <class Number>
  static void add(std::atomic<Number>& to, Number n) { to.fetch_add(n, std::memory_order_relaxed); }

  // --- the compute thread

  void bind(int s, int number) {
    slots_[at(s)].expert = number;
    slots_[at(s)].state.store(pending, std::memory_order_relaxed);
    slot_of_[at(number)] = s;
    add(used_, 1);
  }

  void unbind(int s) {
    slot_of_[at(slots_[at(s)].expert)] = kNone;
    add(used_, -1);
  }

  void drop(int s) {
    unbind(s);
    free_.push_back(s);
  }

  int evict(int s) {
    cold_.remove(s);
    unbind(s);
    return s;
  }

  // A free slot, or of those that nobody pins or reads the one needed last (of equals the least recently used).
  int slot_for_hint() {
    if (!free_.empty()) return free_.pop_front();
    int found = kNone;
    float latest = 0;
    for (int s = cold_.front(); s != cold_.end(); s = cold_.next(s)) {
      const Slot& slot = slots_[at(s)];
      if (slot.state.load(std::memory_order_acquire) == pending) continue;
      const float distance = next_use_.distance(at(slot.expert));
      if (distance > latest) {
        latest = distance;
        found = s;
      }
    }
    return found == kNone ? kNone : evict(found);
  }

  // Has the slot hold nothing: what it holds goes into another in place of what is needed last. False while it is pinned; a
  // hint's read that has begun is waited for.
  bool vacate(int s) {
    if (free_.contains(s)) {
      free_.remove(s);
      return true;
    }
    Slot& slot = slots_[at(s)];
    if (slot.pins > 0) return false;
    if (slot.state.load(std::memory_order_acquire) == pending && !cancel(s, hints_)) stall(slot);
    const int to = slot.state.load(std::memory_order_acquire) == whole ? slot_for_hint() : s;
    if (to == s || to == kNone) {
      if (cold_.contains(s)) evict(s);
      return true;
    }
    const int number = slot.expert;
    std::memcpy(data(to), data(s), slot_bytes());
    evict(s);
    bind(to, number);
    slots_[at(to)].state.store(whole, std::memory_order_relaxed);
    cold_.push_back(to);
    return true;
  }

  // The same, or else that of a hint: one whose read has not begun, or the oldest once its read has ended.
  int slot_for_request() {
    if (const int s = slot_for_hint(); s != kNone) return s;
    for (int s = cold_.front(); s != cold_.end(); s = cold_.next(s))
      if (cancel(s, hints_)) return evict(s);
    if (cold_.empty()) return kNone;
    stall(slots_[at(cold_.front())]);
    return evict(cold_.front());
  }

  // A read that is queued as a hint moves on to the demands; one that failed as a hint is tried again.
  void hasten(int s) {
    Slot& slot = slots_[at(s)];
    const bool failed_hint = slot.pins == 0 && slot.state.load(std::memory_order_acquire) == failed;
    if (failed_hint) slot.state.store(pending, std::memory_order_relaxed);
    if (failed_hint || cancel(s, hints_)) read_later(s, demands_);
  }

  void pin(int s) {
    if (slots_[at(s)].pins++ == 0 && cold_.contains(s)) cold_.remove(s);
  }

  void refresh(int s) {
    if (!cold_.contains(s)) return;
    cold_.remove(s);
    cold_.push_back(s);
  }

  void stall(const Slot& slot) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kSpins && slot.state.load(std::memory_order_acquire) == pending; ++i) relax();
    slot.state.wait(pending, std::memory_order_acquire);
    const std::chrono::nanoseconds passed = std::chrono::steady_clock::now() - start;
    add(stall_ns_, static_cast<std::uint64_t>(passed.count()));
  }

  void read_later(int s, IndexList& queue) {
    {
      const std::lock_guard lock(mutex_);
      queue.push_back(s);
    }
    work_.notify_one();
  }

  // True when the slot's read was still in that queue, and now is not.
  bool cancel(int s, IndexList& queue) {
    const std::lock_guard lock(mutex_);
    if (!queue.contains(s)) return false;
    queue.remove(s);
    return true;
  }

  // --- the I/O threads: next_read() and finish() are all that another way of reading (io_uring) would need

  void serve_reads() {
    bool is_hint = false;
    for (int s = next_read(&is_hint); s != kNone; s = next_read(&is_hint)) {
      const ExpertRecord& record = *records_[at(slots_[at(s)].expert)];
      finish(s, record, vault_.file().read_direct(record.offset, data(s), record.bytes));
    }
  }

  // Two threads at a time read hints, where more than two read: enough to keep a disk busy, little for a demand to wait behind.
  int next_read(bool* is_hint) {
    std::unique_lock lock(mutex_);
    if (*is_hint) --reading_hints_;
    work_.wait(lock, [this] { return stopping_ || !demands_.empty() || (!hints_.empty() && reading_hints_ < hint_readers_); });
    if (stopping_) return kNone;
    *is_hint = demands_.empty();
    if (*is_hint) ++reading_hints_;
    return (*is_hint ? hints_ : demands_).pop_front();
  }

  void finish(int s, const ExpertRecord& record, Error error) {
    Slot& slot = slots_[at(s)];
    if (!error) add(bytes_read_, record.bytes);
    const State outcome = error ? failed : whole;
    slot.error = std::move(error);
    slot.state.store(outcome, std::memory_order_release);
    slot.state.notify_all();
  }

  const Vault& vault_;
  NextUse next_use_;
  std::vector<const ExpertRecord*> records_;  // by flat number
  std::vector<int> first_;                    // flat number of each MoE layer's expert 0
  Pages pool_;
  std::vector<Slot> slots_;

  std::vector<int> slot_of_;  // by flat number; kNone: not in the ring
  IndexList free_;
  IndexList cold_;            // bound and unpinned, least recently used first
  std::atomic<int> usable_;   // from the first on; the memory of the others is given back to the system
  Error error_;

  mutable std::mutex mutex_;  // guards demands_, hints_, stopping_, reading_hints_
  std::condition_variable work_;
  IndexList demands_, hints_;
  bool stopping_ = false;
  int reading_hints_ = 0, hint_readers_ = 1;
  std::vector<std::thread> workers_;

  std::atomic<std::uint64_t> hits_{0}, misses_{0}, bytes_read_{0}, stall_ns_{0};
  std::atomic<int> used_{0};
  std::vector<std::atomic<std::uint32_t>> uses_;
};

}  // namespace

Error ExpertRing::create(const Vault& vault, const Options& options, std::unique_ptr<ExpertRing>* out) {
  if (options.slots < 1 || options.workers < 1) return {"expert ring: it needs a slot and an I/O thread at least"};
  auto ring = std::make_unique<Ring>(vault, std::min(options.slots, vault.total_experts()));
  if (Error error = ring->start(options.workers)) return error;
  *out = std::move(ring);
  return {};
}

}  // namespace smoe
