// A vault, booted: what lives as long as the process, made in the order in which memory is needed.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "args.h"
#include "kv_cache.h"
#include "model.h"

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
  std::uint64_t trunk_bytes() const { return scout_->bytes(); }
  int context() const { return shape_.window; }
  int chunk() const { return shape_.chunk; }
  const std::string& name() const { return name_; }  // the vault's stem

 private:
  Engine() = default;
  Error open(const Args& args, const Log& log);
  Error choose_kernels(const Args& args);
  Error read_end_ids(const Args& args);
  Error allocate(const Args& args, const Log& log);
  int conversation_count(const Args& args) const;
  int slot_count(const Args& args) const;

  std::string name_, scout_path_;
  std::unique_ptr<Vault> vault_;
  std::unique_ptr<Safetensors> scout_;
  std::set<int> end_ids_;
  KvShape shape_{};
  Conversations conversations_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<ExpertRing> ring_;
  std::unique_ptr<Model> model_;
};

}  // namespace smoe
