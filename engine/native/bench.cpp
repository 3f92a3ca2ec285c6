#include "bench.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <random>

#include "resident.h"

namespace smoe {
namespace {

// Forces given ids.
class Given : public Listener {
 public:
  Given(std::vector<int> ids, int vocabulary) : ids_(std::move(ids)), vocabulary_(vocabulary) {}

  void progress(int, int, int) override {}
  void token(int, const Logprobs*) override { ++next_; }
  bool next_mask(Mask* mask) override {
    return Mask::parse("only:" + std::to_string(ids_[next_ % ids_.size()]), vocabulary_, mask);
  }
  bool interrupted() override { return false; }

 private:
  std::vector<int> ids_;
  int vocabulary_;
  std::size_t next_ = 0;
};

std::vector<int> random_ids(int count, int vocabulary, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int> ids(static_cast<std::size_t>(count));
  for (int& id : ids) id = static_cast<int>(random() % static_cast<unsigned>(vocabulary));
  return ids;
}

PhaseTimes operator-(const PhaseTimes& a, const PhaseTimes& b) {
  return {a.attention - b.attention, a.router - b.router, a.experts - b.experts, a.head - b.head};
}

Error generate(Engine& engine, Generator& generator, const GenerateRequest& request, Measured* out) {
  Given given(random_ids(request.max_tokens, engine.model().vocabulary(), 2), engine.model().vocabulary());
  const PhaseTimes before = engine.times();
  Figures figures;
  const Failure failure = generator.run(request, given, &figures);
  if (!failure.reason.empty()) return {"bench: " + failure.reason + " " + failure.detail};
  out->milliseconds = figures.prefill_ms + figures.decode_ms;
  out->stall_ms = figures.stall_ms;
  out->hits = figures.hits;
  out->misses = figures.misses;
  out->bytes_read = figures.bytes_read;
  out->phases = engine.times() - before;
  return {};
}

__attribute__((format(printf, 1, 2))) std::string printed(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

std::string part_json(const Measured& m) {
  return printed("\"%s\": {\"tokens\": %d, \"tokens_per_second\": %.3f, \"milliseconds\": %.1f, \"bytes_read\": %llu, "
                 "\"hits\": %llu, \"misses\": %llu, \"hit_rate\": %.4f, ",
                 m.name.c_str(), m.tokens, m.rate(), m.milliseconds, static_cast<unsigned long long>(m.bytes_read),
                 static_cast<unsigned long long>(m.hits), static_cast<unsigned long long>(m.misses), m.hit_rate()) +
         printed("\"phases_ms\": {\"attention\": %.1f, \"router\": %.1f, \"experts\": %.1f, \"stall\": %.1f, "
                 "\"head\": %.1f, \"rest\": %.1f}}",
                 m.phases.attention, m.phases.router, m.phases.experts, m.stall_ms, m.phases.head, m.rest_ms());
}

}  // namespace

double Measured::hit_rate() const {
  const auto asked = static_cast<double>(hits + misses);
  return asked > 0 ? static_cast<double>(hits) / asked : 1;
}

double Measured::rest_ms() const {
  return std::max(0.0, milliseconds - stall_ms - phases.attention - phases.router - phases.experts - phases.head);
}

Error measure(Engine& engine, int prompt, int tokens, Measured* prefill, Measured* decode) {
  Generator generator(engine);
  GenerateRequest request;
  request.sampling.temperature = 0;
  request.ignore_eos = request.mask = request.slide = true;
  request.ids = random_ids(prompt, engine.model().vocabulary(), 1);
  request.max_tokens = 1;
  *prefill = {.name = "prefill", .tokens = prompt, .phases = {}};
  if (Error error = generate(engine, generator, request, prefill)) return error;
  request.max_tokens = tokens;  // the prompt's last id is computed again, the reply's last one is not: `tokens` passes
  *decode = {.name = "decode", .tokens = tokens, .phases = {}};
  return generate(engine, generator, request, decode);
}

std::string as_text(const Measured& m) {
  const auto share = [&](double part) { return m.milliseconds > 0 ? part * 100 / m.milliseconds : 0; };
  return printed("%s: %d tokens at %.2f tok/s, %.1f MB read a token, experts %.1f %% hit, stall %.1f ms a token\n",
                 m.name.c_str(), m.tokens, m.rate(), static_cast<double>(m.bytes_read) / 1e6 / m.tokens,
                 m.hit_rate() * 100, m.stall_ms / m.tokens) +
         printed("  attention %.1f %%, router %.1f %%, experts %.1f %%, stall %.1f %%, head %.1f %%, rest %.1f %%\n",
                 share(m.phases.attention), share(m.phases.router), share(m.phases.experts), share(m.stall_ms),
                 share(m.phases.head), share(m.rest_ms()));
}

std::string as_json(const Engine& engine, const Measured& prefill, const Measured& decode) {
  return printed("{\"ring_slots\": %d, \"slot_bytes\": %llu, \"trunk_bytes\": %llu, \"rss_bytes\": %llu, ",
                 engine.ring().slots(), static_cast<unsigned long long>(engine.ring().slot_bytes()),
                 static_cast<unsigned long long>(engine.trunk_bytes()),
                 static_cast<unsigned long long>(resident_memory())) +
         part_json(prefill) + ", " + part_json(decode) + "}\n";
}

}  // namespace smoe
