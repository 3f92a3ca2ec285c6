// A vault, booted: what lives as long as the process, made in the order in which memory is needed.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "args.h"
#include "kv_cache.h"
#include "memory_plan.h"
#include "model.h"
#include "prewarm.h"

namespace smoe {

class Engine {
 public:
  // One line of progress for people.
  using Log = std::function<void(const std::string&)>;
  static Error boot(const Args& args, const Log& log, std::unique_ptr<Engine>* out);

  Model& model() { return *model_; }
  Conversations& conversations() { return conversations_; }
  const ExpertRing& ring() const { return *ring_; }
  const Vault& vault() const { return *vault_; }
  const std::set<int>& end_ids() const { return end_ids_; }
  const PhaseTimes& times() const { return runtime_->times; }
  std::uint64_t trunk_bytes() const { return trunk_->bytes(); }
  std::uint64_t buffer_bytes() const { return buffer_bytes_; }  // with the program; any thread may ask
  // Fits the ring to the memory that is available now; looks at most twice a second. Between batches only.
  void adapt();
  // The most ids that are computed at once behind so many positions.
  int most_at_once(int positions) const;
  // Memory for a batch of so many ids, of which the ring gives what is not free.
  void make_room(Conversation& conversation, int tokens);
  // Reads experts into free slots while the engine is idle. False: the counts are not this vault's, and unused.
  bool warm(const Popularity& popularity);
  // The next few of them; false where there is nothing to do for now. Between batches only.
  bool warm_on() { return prewarm_.step(*ring_); }
  int context() const { return shape_.window; }
  int chunk() const { return shape_.chunk; }
  const std::string& name() const { return name_; }  // the vault's stem

 private:
  Engine() = default;
  Error open(const Args& args, const Log& log);
  Error choose_kernels(const Args& args);
  Error read_end_ids(const Args& args);
  Error allocate(const Args& args);
  Error load(const Args& args, const Log& log);
  Error plan(const Args& args, const Log& log);
  void fit_buffers(int tokens);
  void take_from_ring(std::uint64_t held);
  std::uint64_t held(std::uint64_t conversations, int fitted) const;
  int slots_beside(std::uint64_t held) const;
  std::uint64_t memory_for_all(const Args& args, const Log& log) const;

  std::string name_;
  std::unique_ptr<Vault> vault_;
  std::unique_ptr<Trunk> trunk_;
  std::set<int> end_ids_;
  KvShape shape_{};
  MemoryPlan plan_;
  std::uint64_t reserve_ = 0;
  std::uint64_t fixed_bytes_ = 0, token_bytes_ = 0;  // of buffers: the program and what every batch takes, and a token of a batch
  std::atomic<std::uint64_t> buffer_bytes_ = 0;
  Stopwatch since_adapted_;
  Conversations conversations_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<ExpertRing> ring_;
  std::unique_ptr<Model> model_;
  Prewarm prewarm_;
};

}  // namespace smoe
