#include "engine.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <functional>
#include <future>
#include <limits>
#include <system_error>

#include "json.h"
#include "memory.h"
#include "protocol.h"
#include "resident.h"

namespace smoe {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kLargestConfig = 16 * kMiB;

std::string default_scout(std::string vault) {
  constexpr std::string_view kSuffix = ".smoe";
  if (vault.ends_with(kSuffix)) vault.resize(vault.size() - kSuffix.size());
  return vault + ".scout.safetensors";
}

std::string stem(const std::string& path) {
  const std::string file = path.substr(path.find_last_of('/') + 1);
  return file.substr(0, file.rfind('.'));
}

// A line each tenth, so that a slow disk shows movement and a fast one does not chatter.
LoadProgress tenths(const Engine::Log& log) {
  return [&log, told = std::uint64_t{0}](std::uint64_t done, std::uint64_t total) mutable {
    const std::uint64_t tenth = total == 0 ? 10 : done * 10 / total;
    if (tenth == told) return;
    told = tenth;
    log("loading scout " + std::to_string(tenth * 10) + " %");
  };
}

// parse_args() has seen that the name is one.
TrunkForm trunk_form(const Args& args) {
  const TrunkForm form = parse_trunk_form(args.trunk).value_or(TrunkForm::automatic);
  return form == TrunkForm::automatic && args.exact ? TrunkForm::stored : form;
}

// On a thread of its own; without one, when its result is asked for.
std::future<void> begin(const std::function<void()>& work) {
  try {
    return std::async(std::launch::async, work);
  } catch (const std::system_error&) {
    return std::async(std::launch::deferred, work);
  }
}

std::string megabytes(std::uint64_t bytes) { return std::to_string((bytes + kMiB - 1) / kMiB) + " MiB"; }

}  // namespace

Error Engine::boot(const Args& args, const Log& log, std::unique_ptr<Engine>* out) {
  std::unique_ptr<Engine> engine(new Engine());
  engine->reserve_ = system_reserve(available_memory());
  if (Error error = engine->choose_kernels(args)) return error;
  if (Error error = engine->open(args, log)) return error;
  if (Error error = engine->read_end_ids(args)) return error;
  if (Error error = engine->allocate(args)) return error;
  if (Error error = engine->load(args, log)) return error;
  *out = std::move(engine);
  return {};
}

Error Engine::choose_kernels(const Args& args) {
  const Kernels* kernels = select_kernels(args.kernels.empty() ? nullptr : args.kernels.c_str());
  if (kernels == nullptr) return {"--kernels: this machine does not run " + args.kernels};
  pool_ = std::make_unique<ThreadPool>(args.threads);
  runtime_.reset(new Runtime{*kernels, *pool_, numerics(args), {}});
  return {};
}

Error Engine::open(const Args& args, const Log& log) {
  name_ = stem(args.vault);
  const std::string scout = args.scout.empty() ? default_scout(args.vault) : args.scout;
  if (Error error = Vault::open(args.vault, scout, args.config, &vault_)) return error;
  const Architecture& a = vault_->architecture();
  log("vault " + name_ + ": " + a.model_type + ", " + std::to_string(a.layers) + " layers, " +
      std::to_string(a.moe_layers) + " x " + std::to_string(a.experts) + " experts of " + std::to_string(a.bits) +
      " bits, top " + std::to_string(a.top_k));
  if (!a.assumed.empty()) log("assumed: " + a.assumed);
  if (!args.config.empty()) {
    std::string config;
    if (Error error = read_text(args.config, kLargestConfig, &config)) return error;
    if (Error error = refuse_unknown_features(config, args.config, a.model_type)) return error;
  }
  if (Error error = Trunk::open(scout, a.layers, trunk_form(args), &trunk_)) return error;
  if (const std::string* config = trunk_->metadata("config"))
    if (Error error = refuse_unknown_features(*config, scout, a.model_type)) return error;
  return plan(args, log);
}

// An id past the vocabulary is no mistake worth a refusal: it can never be sampled.
Error Engine::read_end_ids(const Args& args) {
  const int vocab = vault_->architecture().vocab;
  std::vector<int> ids;
  if (!args.eos_ids.empty() && !parse_ids(args.eos_ids, ',', std::numeric_limits<int>::max(), &ids))
    return {"--eos-ids: wants ids separated by commas, not '" + args.eos_ids + "'"};
  end_ids_.insert(ids.begin(), ids.end());
  const std::string* const written = trunk_->metadata("eos_token_ids");
  if (written == nullptr) return {};
  json::Value value;
  if (Error error = json::parse(*written, &value)) return {trunk_->path() + ": metadata eos_token_ids: " + error.message};
  for (const json::Value& id : value.items)
    if (id.integer && *id.integer >= 0 && *id.integer < vocab) end_ids_.insert(static_cast<int>(*id.integer));
  return {};
}

// What the heap, the stacks and the kernel's tables grow by after this.
constexpr std::uint64_t kProgramGrowth = 16 * kMiB;

Error Engine::plan(const Args& args, const Log& log) {
  const Architecture& a = vault_->architecture();
  const bool half = args.kv.empty() ? runtime_->numerics != Numerics::f32 : args.kv == "f16";
  shape_ = kv_shape(a, half);
  const std::uint64_t program = resident_memory();
  const MemoryFacts facts = {.total = memory_for_all(args, log),
                             .trunk = trunk_->bytes(),
                             .program = program + kProgramGrowth,
                             .slot = vault_->largest_record(),
                             .experts = vault_->total_experts(),
                             .top_k = a.top_k,
                             .trained_context = a.trained_context,
                             .position = shape_.bytes(),
                             .buffers = Model::buffer_bytes(a, *runtime_),
                             .buffers_token = Model::buffer_bytes_token(a, *runtime_)};
  const MemoryWishes wishes = {args.ring, args.ctx, args.chunk, args.conversations,
                               static_cast<std::uint64_t>(args.kv_cache_mb) * kMiB};
  if (Error error = plan_memory(facts, wishes, &plan_)) return error;
  shape_.window = plan_.context;
  shape_.chunk = plan_.chunk;
  token_bytes_ = facts.buffers_token;
  buffer_bytes_ = fixed_bytes_ = program + facts.buffers;
  if (args.ring > plan_.slots && plan_.slots < vault_->total_experts())
    log("--ring: " + std::to_string(plan_.slots) + " slots fit into memory beside full conversations, not " + std::to_string(args.ring));
  return {};
}

std::uint64_t Engine::memory_for_all(const Args& args, const Log& log) const {
  const std::uint64_t available = available_memory();
  const std::uint64_t most = available - std::min(available, reserve_) + resident_memory();
  std::uint64_t asked = most;
  if (!args.memory.empty()) parse_bytes(args.memory, &asked);
  if (asked > most) log("--memory: no more than " + megabytes(most) + " can be had now");
  return std::min(asked, most);
}

Error Engine::allocate(const Args& args) {
  if (Error error = Conversations::create(shape_, args.conversations, plan_.conversations, &conversations_)) return error;
  if (Error error = ExpertRing::create(*vault_, {plan_.most_slots, args.workers}, &ring_)) return error;
  conversations_.before_growth([this](std::uint64_t conversations) { take_from_ring(held(conversations, model_->fitted())); });
  return {};
}

// While the disk is busy with the trunk, the slots that a first token fills get their memory.
Error Engine::load(const Args& args, const Log& log) {
  const Architecture& a = vault_->architecture();
  std::atomic<bool> loaded{false};
  const auto take_memory = [&] {
    const int slots = std::min(ring_->slots(), a.moe_layers * a.top_k);
    for (int slot = 0; slot < slots && !loaded; ++slot) ring_->touch(slot);
  };
  std::future<void> memory = begin(take_memory);
  const Error error = trunk_->load(runtime_->kernels, pool_->size(), tenths(log));
  loaded = true;
  memory.get();
  if (error) return error;
  if (!args.routing.empty())
    if (Error error = RoutingLog::create(args.routing, a.moe_layers, a.top_k, plan_.long_chunk, &runtime_->routing)) return error;
  model_ = std::make_unique<Model>(*vault_, *trunk_, *ring_, *runtime_);
  if (Error error = model_->load()) return error;
  log("ready: " + std::string(runtime_->kernels.name) + ", " + std::to_string(pool_->size()) + " threads, trunk " +
      megabytes(trunk_->bytes()) + " (" + std::string(name_of(trunk_->form())) + "), ring " + std::to_string(ring_->slots()) + " slots " +
      megabytes(static_cast<std::uint64_t>(ring_->slots()) * ring_->slot_bytes()) +
      (plan_.slots < plan_.most_slots ? " (" + std::to_string(plan_.slots) + " beside full conversations)" : "") + ", window " +
      std::to_string(shape_.window) + " positions, conversations within " + megabytes(plan_.conversations) +
      ", chunks of " + std::to_string(shape_.chunk) + (plan_.long_chunk > shape_.chunk ? " to " + std::to_string(plan_.long_chunk) : "") +
      ", program and buffers " + megabytes(plan_.buffers - kProgramGrowth));
  return {};
}

bool Engine::warm(const Popularity& popularity) {
  const bool fits = popularity.empty() || has_shape_of(*vault_, popularity);
  prewarm_.begin(*vault_, fits ? popularity : Popularity{}, *ring_);
  return fits;
}

void Engine::adapt() {
  constexpr double kInterval = 500;  // milliseconds
  if (since_adapted_.milliseconds() < kInterval) return;
  since_adapted_ = {};
  const std::int64_t excess = ring_excess(available_memory(), reserve_, memory_pressed());
  const auto slot = static_cast<std::int64_t>(ring_->slot_bytes());
  const std::int64_t slots = ring_->slots() - (excess > 0 ? (excess + slot - 1) / slot : excess / slot);
  const int most = slots_beside(held(conversations_.held(), model_->fitted()));
  const int least = std::min(most, vault_->architecture().top_k);
  ring_->resize(static_cast<int>(std::clamp<std::int64_t>(slots, least, most)));
}

// Behind them only as many as there are positions that nothing is kept in yet.
int Engine::most_at_once(int positions) const {
  return std::max(shape_.chunk, std::min(plan_.long_chunk, shape_.capacity() - positions));
}

void Engine::make_room(Conversation& conversation, int tokens) {
  adapt();
  if (tokens > model_->fitted()) fit_buffers(std::min(plan_.long_chunk, static_cast<int>(std::bit_ceil(static_cast<unsigned>(tokens)))));
  else if (tokens == 1 && model_->fitted() > shape_.chunk) fit_buffers(shape_.chunk);  // decoding: the ring has more use for the memory
  conversations_.make_room(conversation, conversation.length() + tokens);
}

void Engine::fit_buffers(int tokens) {
  take_from_ring(held(conversations_.held(), tokens));
  buffer_bytes_ = fixed_bytes_ + static_cast<std::uint64_t>(tokens) * token_bytes_;
  model_->fit(tokens);
}

// Before conversations and buffers hold so much: also where pressure has made the ring smaller already.
void Engine::take_from_ring(std::uint64_t to_hold) {
  const int beside = slots_beside(to_hold), less = slots_beside(held(conversations_.held(), model_->fitted())) - beside;
  const int slots = std::min(beside, ring_->slots() - less);
  const int least = std::min(plan_.slots, vault_->architecture().top_k);
  if (slots < ring_->slots()) ring_->resize(std::max(slots, least));
}

// Of the memory that the ring lends, when conversations take so much and buffers hold so many tokens.
std::uint64_t Engine::held(std::uint64_t conversations, int fitted) const {
  return conversations + static_cast<std::uint64_t>(std::max(0, fitted - shape_.chunk)) * token_bytes_;
}

int Engine::slots_beside(std::uint64_t held) const { return plan_.slots_beside(held, ring_->slot_bytes()); }

}  // namespace smoe
