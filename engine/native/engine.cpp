#include "engine.h"

#include <algorithm>
#include <limits>

#include "json.h"
#include "memory.h"
#include "protocol.h"

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
Safetensors::Progress tenths(const Engine::Log& log) {
  return [&log, told = std::uint64_t{0}](std::uint64_t done, std::uint64_t total) mutable {
    const std::uint64_t tenth = total == 0 ? 10 : done * 10 / total;
    if (tenth == told) return;
    told = tenth;
    log("loading scout " + std::to_string(tenth * 10) + " %");
  };
}

std::string megabytes(std::uint64_t bytes) { return std::to_string((bytes + kMiB - 1) / kMiB) + " MiB"; }

}  // namespace

Error Engine::boot(const Args& args, const Log& log, std::unique_ptr<Engine>* out) {
  std::unique_ptr<Engine> engine(new Engine());
  if (Error error = engine->choose_kernels(args)) return error;
  if (Error error = engine->open(args, log)) return error;
  if (Error error = engine->read_end_ids(args)) return error;
  if (Error error = engine->allocate(args, log)) return error;
  *out = std::move(engine);
  return {};
}

Error Engine::choose_kernels(const Args& args) {
  const Kernels* kernels = select_kernels(args.kernels.empty() ? nullptr : args.kernels.c_str());
  if (kernels == nullptr) return {"--kernels: this machine does not run " + args.kernels};
  pool_ = std::make_unique<ThreadPool>(args.threads);
  runtime_.reset(new Runtime{*kernels, *pool_, args.fast ? Numerics::fast : Numerics::exact, {}});
  return {};
}

Error Engine::open(const Args& args, const Log& log) {
  name_ = stem(args.vault);
  scout_path_ = args.scout.empty() ? default_scout(args.vault) : args.scout;
  if (Error error = Vault::open(args.vault, scout_path_, args.config, &vault_)) return error;
  const Architecture& a = vault_->architecture();
  log("vault " + name_ + ": " + a.model_type + ", " + std::to_string(a.layers) + " layers, " +
      std::to_string(a.moe_layers) + " x " + std::to_string(a.experts) + " experts of " + std::to_string(a.bits) +
      " bits, top " + std::to_string(a.top_k));
  if (!a.assumed.empty()) log("assumed: " + a.assumed);
  if (!args.config.empty()) {
    std::string config;
    if (Error error = read_text(args.config, kLargestConfig, &config)) return error;
    if (Error error = refuse_unknown_features(config, args.config)) return error;
  }
  return Safetensors::load(scout_path_, &scout_, tenths(log));
}

// An id past the vocabulary is no mistake worth a refusal: it can never be sampled.
Error Engine::read_end_ids(const Args& args) {
  const int vocab = vault_->architecture().vocab;
  std::vector<int> ids;
  if (!args.eos_ids.empty() && !parse_ids(args.eos_ids, ',', std::numeric_limits<int>::max(), &ids))
    return {"--eos-ids: wants ids separated by commas, not '" + args.eos_ids + "'"};
  end_ids_.insert(ids.begin(), ids.end());
  const std::string* const written = scout_->metadata("eos_token_ids");
  if (written == nullptr) return {};
  json::Value value;
  if (Error error = json::parse(*written, &value)) return {scout_path_ + ": metadata eos_token_ids: " + error.message};
  for (const json::Value& id : value.items)
    if (id.integer && *id.integer >= 0 && *id.integer < vocab) end_ids_.insert(static_cast<int>(*id.integer));
  return {};
}

Error Engine::allocate(const Args& args, const Log& log) {
  const Architecture& a = vault_->architecture();
  shape_ = {a.layers, a.kv_heads * a.head_dim, args.ctx, std::min(args.chunk, args.ctx), args.kv == "f16"};
  if (Error error = Conversations::create(shape_, conversation_count(args), &conversations_)) return error;
  if (Error error = ExpertRing::create(*vault_, {slot_count(args), args.workers}, &ring_)) return error;
  if (Error error = Model::create(*vault_, *scout_, scout_path_, *ring_, *runtime_, shape_.chunk, &model_)) return error;
  log("ready: " + std::string(runtime_->kernels.name) + ", " + std::to_string(pool_->size()) + " threads, trunk " +
      megabytes(scout_->bytes()) + ", ring " + std::to_string(ring_->slots()) + " slots " +
      megabytes(static_cast<std::uint64_t>(ring_->slots()) * ring_->slot_bytes()) + ", kv " +
      std::to_string(conversations_.count()) + " x " + std::to_string(shape_.window) + " positions " +
      megabytes(conversations_.bytes()));
  return {};
}

int Engine::conversation_count(const Args& args) const {
  const std::uint64_t budget =
      args.kv_cache_mb > 0 ? static_cast<std::uint64_t>(args.kv_cache_mb) * kMiB : available_memory() / 8;
  const std::uint64_t fit = budget / shape_.bytes();
  return static_cast<int>(std::clamp<std::uint64_t>(fit, 1, static_cast<std::uint64_t>(args.conversations)));
}

// The conversations' pages are not touched yet, and the system wants some room.
int Engine::slot_count(const Args& args) const {
  if (args.ring > 0) return args.ring;
  const std::uint64_t available = available_memory();
  const std::uint64_t reserve = conversations_.bytes() + std::max(256 * kMiB, available / 16);
  return ring_slots(available, reserve, vault_->largest_record(), vault_->total_experts());
}

}  // namespace smoe
