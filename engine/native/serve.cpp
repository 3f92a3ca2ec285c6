#include "serve.h"

#include <algorithm>

#include "resident.h"
#include "version.h"

namespace smoe {
namespace {

constexpr std::chrono::milliseconds kIdleLook{1000};  // at the memory that is available, while nothing is to be done
constexpr std::chrono::milliseconds kWarmLook{2};     // whether the disk wants more to read

std::string field(const char* name, std::uint64_t value) { return std::string(" ") + name + "=" + std::to_string(value); }

double rate(int count, double milliseconds) { return milliseconds > 0 ? count * 1000.0 / milliseconds : 0; }

std::string phase_line(const PhaseTimes& t, double stall_ms) {
  char text[160];
  std::snprintf(text, sizeof text, "phases since boot: attention=%.1f router=%.1f experts=%.1f head=%.1f stall=%.1f ms",
                t.attention, t.router, t.experts, t.head, stall_ms);
  return text;
}

}  // namespace

// One generation's way to the client.
class Server::Answer : public Listener {
 public:
  Answer(Server& server, Wishes& wishes) : server_(server), wishes_(wishes) {}

  void progress(int done, int total, int cached) override {
    server_.publish();
    if (server_.version_ >= 2) server_.out_.write(format_progress(done, total, cached));
    if (done == total) server_.state_ = State::decode;
  }

  void token(int token, const Logprobs* logprobs) override {
    server_.out_.write(format_token(token, server_.version_ >= 2 ? logprobs : nullptr));
    ++server_.generated_;
    server_.publish();
  }

  void prompt_token(int token, const Logprobs* logprobs) override { server_.out_.write(format_prompt_token(token, logprobs)); }

  bool next_mask(Mask* mask) override {
    std::unique_lock lock(server_.mutex_);
    server_.changed_.wait(lock, [&] { return interrupted() || wishes_.unreadable || !wishes_.masks.empty(); });
    if (interrupted() || wishes_.unreadable) return false;
    *mask = std::move(wishes_.masks.front());
    wishes_.masks.pop_front();
    return true;
  }

  bool interrupted() override { return wishes_.cancelled || server_.ending_ || server_.out_.gone(); }

 private:
  Server& server_;
  Wishes& wishes_;
};

Server::Server(int in, int out, const Wake& wake, Log log)
    : in_(in), wake_(wake), out_(out, in, wake.descriptor()), log_(std::move(log)) {}

Server::~Server() {
  ending_ = true;
  wake_.wake();
  if (reader_.joinable()) reader_.join();
}

void Server::listen(std::function<void()> gone_before_ready) {
  reader_ = std::thread([this, gone = std::move(gone_before_ready)] {
    LineReader reader(in_, wake_.descriptor(), kLongestLine);
    if (reader.client_stays(ready_)) read_lines(reader);
    else if (!ending_) gone();
  });
}

void Server::read_lines(LineReader& reader) {
  std::string_view line;
  for (;;) {
    const LineReader::Result result = reader.next(&line);
    if (result == LineReader::Result::end) break;
    take_line(result, line);
    if (out_.gone()) break;
  }
  const std::lock_guard lock(mutex_);
  ending_ = true;
  changed_.notify_all();
}

void Server::take_line(LineReader::Result result, std::string_view line) {
  Request request = result == LineReader::Result::line
                        ? parse_request(line, dialect_)
                        : refusal(line.starts_with("GEN ") ? "ctx_overflow" : "bad_request", "line");
  if (request.kind == RequestKind::hello) dialect_.version = 2;
  const bool known = dialect_.version >= 2;
  if (known && (request.kind == RequestKind::cancel || request.kind == RequestKind::mask)) return pass_on(request);
  if (version_ >= 2 && request.kind == RequestKind::status) return out_.write(status_line());
  if (version_ >= 2 && request.kind == RequestKind::heat) return out_.write(heat_line());
  const bool is_version_1 = request.kind == RequestKind::generate || request.kind == RequestKind::reset;
  if (!known && !is_version_1 && request.kind != RequestKind::refused) request = refusal("bad_request", "");
  enqueue(std::move(request));
}

void Server::enqueue(Request request) {
  const std::lock_guard lock(mutex_);
  Job job{std::move(request), nullptr};
  const std::uint64_t id = job.request.generate.id;
  if (job.request.kind == RequestKind::generate) {
    job.wishes = std::make_shared<Wishes>();
    if (id != 0 && !wishes_.emplace(id, job.wishes).second) job = {refusal("bad_request", "id"), nullptr};
  }
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

// To the generation of that id; one that has ended is not there any more.
void Server::pass_on(const Request& request) {
  const std::lock_guard lock(mutex_);
  const auto found = wishes_.find(request.id);
  if (found == wishes_.end()) return;
  Wishes& wishes = *found->second;
  if (request.kind == RequestKind::cancel) wishes.cancelled = true;
  else if (Mask mask; Mask::parse(request.mask_set, dialect_.vocabulary, &mask)) wishes.masks.push_back(std::move(mask));
  else wishes.unreadable = true;
  changed_.notify_all();
}

void Server::run(Engine& engine, const SamplingOptions& defaults, bool instrument) {
  engine_ = &engine;
  dialect_ = {1, engine.model().vocabulary(), defaults};
  instrument_ = instrument;
  generator_ = std::make_unique<Generator>(engine);
  ready_ = true;
  Job job;
  while (next_job(&job)) serve(job);
}

bool Server::next_job(Job* job) {
  std::unique_lock lock(mutex_);
  bool warming = true;  // perhaps
  while (!changed_.wait_for(lock, warming ? kWarmLook : kIdleLook,
                            [&] { return ending_ || out_.gone() || !jobs_.empty(); })) {
    lock.unlock();
    engine_->adapt();
    warming = engine_->warm_on();
    lock.lock();
  }
  if (ending_ || out_.gone()) return false;
  *job = std::move(jobs_.front());
  jobs_.pop_front();
  return true;
}

void Server::serve(Job& job) {
  switch (job.request.kind) {
    case RequestKind::generate: return serve_generation(job);
    case RequestKind::hello: out_.write(hello_line()); version_ = 2; return;
    case RequestKind::status: return out_.write(status_line());
    case RequestKind::heat: return out_.write(heat_line());
    case RequestKind::warm:
      if (!engine_->warm(job.request.popularity)) log_("WARM: its counts are of another vault; read in order instead");
      return;
    case RequestKind::reset:
      engine_->conversations().reset();
      publish();
      return out_.write("<<DONE>>\n");
    default: return refuse(job.request.reason, job.request.detail);
  }
}

void Server::serve_generation(const Job& job) {
  Answer answer(*this, *job.wishes);
  Figures figures;
  state_ = State::prefill;
  const Failure failure = generator_->run(job.request.generate, answer, &figures);
  state_ = State::idle;
  publish();
  bool unreadable = false;
  {
    const std::lock_guard lock(mutex_);
    wishes_.erase(job.request.generate.id);
    unreadable = job.wishes->unreadable;
  }
  if (!failure.reason.empty()) refuse(failure.reason, failure.detail);
  else if (unreadable) refuse("bad_request", "field=mask");
  else out_.write(format_end(version_, figures));
  tell(figures);
}

void Server::refuse(const std::string& reason, const std::string& detail) {
  log_("refused: " + reason + (detail.empty() ? "" : " " + detail));
  out_.write(format_error(version_, reason, detail));
}

// The figures that the reader may tell while we compute.
void Server::publish() {
  cached_ = engine_->conversations().positions();
  conversations_ = engine_->conversations().used();
}

void Server::tell(const Figures& f) {
  char text[240];
  std::snprintf(text, sizeof text,
                "%s: prompt %d (cached %d) at %.1f tok/s, generated %d at %.1f tok/s, experts %llu hit %llu read, stall %.0f ms",
                f.finish, f.prompt, f.cached, rate(f.prompt - f.cached, f.prefill_ms), f.generated,
                rate(f.generated, f.decode_ms), static_cast<unsigned long long>(f.hits),
                static_cast<unsigned long long>(f.misses), f.stall_ms);
  log_(text);
  if (instrument_) log_(phase_line(engine_->times(), engine_->ring().counters().stall_ms));
}

std::string Server::hello_line() const {
  return std::string("<<HELLO version=2 engine=smoe-engine/") + kVersion + field("ctx", static_cast<std::uint64_t>(engine_->context())) +
         field("vocab", static_cast<std::uint64_t>(dialect_.vocabulary)) + " vault=" + protocol_value(engine_->name()) +
         " features=cancel,seed,progress,logprobs,prompt_logprobs,mask,status,heat,warm>>\n";
}

std::string Server::status_line() const {
  static constexpr const char* kStates[] = {"idle", "prefill", "decode"};
  const ExpertRing& ring = engine_->ring();
  const RingCounters counters = ring.counters();
  std::string out = std::string("<<STATUS state=") + kStates[static_cast<int>(state_.load())] +
                    " vault=" + protocol_value(engine_->name());
  const std::pair<const char*, std::uint64_t> fields[] = {
      {"ctx", engine_->context()},
      {"cached", cached_},
      {"conversations", conversations_},
      {"rss", resident_memory()},
      {"trunk", engine_->trunk_bytes()},
      {"ring", ring.resident()},
      {"ring_slots", ring.slots()},
      {"ring_used", ring.used()},
      {"slot_bytes", ring.slot_bytes()},
      {"kv", engine_->conversations().resident()},
      {"buffers", engine_->buffer_bytes()},
      {"hits", counters.hits},
      {"misses", counters.misses},
      {"bytes", counters.bytes_read},
      {"generated", generated_},
      {"uptime_ms", static_cast<std::uint64_t>(uptime_.milliseconds())},
  };
  for (const auto& [name, value] : fields) out += field(name, value);
  return out + ">>\n";
}

std::string Server::heat_line() const {
  const Vault& vault = engine_->vault();
  const int layers = vault.architecture().moe_layers;
  std::string counts;
  for (int layer = 0; layer < layers; ++layer) {
    if (layer > 0) counts += ';';
    for (int expert = 0; expert < vault.experts(layer); ++expert) {
      if (expert > 0) counts += ',';
      counts += std::to_string(engine_->ring().uses(layer, expert));
    }
  }
  return "<<HEAT layers=" + std::to_string(layers) + " experts=" + std::to_string(vault.architecture().experts) +
         " first=" + std::to_string(vault.layer_of(0)) + " counts=" + counts + ">>\n";
}

}  // namespace smoe
