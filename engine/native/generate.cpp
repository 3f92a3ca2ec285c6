#include "generate.h"

#include <algorithm>

namespace smoe {
namespace {

constexpr int kLogitsAtOnce = 8;  // of a vocabulary of 150,000: 5 MB, for which a program's growth (engine.cpp) has room

}  // namespace

Failure Generator::run(const GenerateRequest& request, Listener& listener, Figures* figures) {
  *figures = {};
  failure_ = {};
  figures->prompt = static_cast<int>(request.ids.size());
  figures->finish = "cancel";
  if (listener.interrupted()) return {};
  Conversations::Match match{};
  if (Failure refusal = admit(request, &match); !refusal.reason.empty()) return refusal;

  Conversation& conversation = engine_.conversations().open(match);
  const RingCounters before = engine_.ring().counters();
  figures->cached = match.cached;
  Stopwatch watch;
  Step step = prefill(request, listener, conversation);
  given_up_ = step == Step::interrupted;
  figures->prefill_ms = watch.milliseconds();
  if (step == Step::go_on) step = decode(request, listener, conversation, figures);
  figures->decode_ms = watch.milliseconds() - figures->prefill_ms;

  const RingCounters after = engine_.ring().counters();
  figures->hits = after.hits - before.hits;
  figures->misses = after.misses - before.misses;
  figures->bytes_read = after.bytes_read - before.bytes_read;
  figures->stall_ms = after.stall_ms - before.stall_ms;
  figures->slid = std::max(0, conversation.length() - engine_.context());
  return failure_;
}

Failure Generator::admit(const GenerateRequest& request, Conversations::Match* match) const {
  *match = engine_.conversations().match(request.ids);
  if (request.prompt_logprobs > 0) match->cached = 0;  // logits are not kept
  const int fresh = static_cast<int>(request.ids.size()) - match->cached;
  if (request.slide || fresh <= engine_.context()) return {};
  return {"suffix_too_long", "new=" + std::to_string(fresh) + " ctx=" + std::to_string(engine_.context())};
}

Generator::Step Generator::prefill(const GenerateRequest& request, Listener& listener, Conversation& conversation) {
  const std::span<const int> ids = request.ids;
  const int total = static_cast<int>(ids.size()), cached = conversation.length();
  listener.progress(cached, total, cached);
  for (int done = cached; done < total; done = conversation.length()) {
    const int count = std::min(given_up_ ? engine_.chunk() : engine_.most_at_once(done), total - done);
    const auto chunk = ids.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(count));
    // In a long chunk the layers tell how far it is, as often as chunks would.
    int told = done;
    const auto tell = [&](int layer) {
      const int far = done + static_cast<int>(std::int64_t{count} * layer / engine_.vault().architecture().layers);
      if (far - told < engine_.chunk()) return;
      told = far;
      listener.progress(far, total, cached);
    };
    if (const Step step = forward(chunk, listener, conversation, tell); step != Step::go_on) return step;
    if (request.prompt_logprobs > 0)
      if (const Step step = tell_prompt(request, done, count, listener); step != Step::go_on) return step;
    listener.progress(done + count, total, cached);
  }
  return Step::go_on;
}

// Of the chunk at `done`: the logits after an id tell of the next one.
Generator::Step Generator::tell_prompt(const GenerateRequest& request, int done, int count, Listener& listener) {
  const int vocabulary = engine_.model().vocabulary(), total = static_cast<int>(request.ids.size());
  if (done == 0) listener.prompt_token(request.ids.front(), nullptr);
  for (int first = 0; first < count; first += kLogitsAtOnce) {
    const int rows = std::min({kLogitsAtOnce, count - first, total - done - first - 1});
    if (rows <= 0) break;
    if (listener.interrupted()) return Step::interrupted;
    const float* const logits = engine_.model().logits(first, rows);
    for (int row = 0; row < rows; ++row) {
      const float* const after = logits + static_cast<std::ptrdiff_t>(row) * vocabulary;
      if (!all_finite(after, vocabulary)) return not_finite();
      const int next = request.ids[static_cast<std::size_t>(done + first + row + 1)];
      const Logprobs told = logprobs_of(after, vocabulary, next, request.prompt_logprobs - 1);
      listener.prompt_token(next, &told);
    }
  }
  return Step::go_on;
}

Generator::Step Generator::decode(const GenerateRequest& request, Listener& listener, Conversation& conversation,
                                  Figures* figures) {
  sampler_.begin(request.sampling, request.ids);
  Mask mask;
  Logprobs logprobs;
  Logprobs* const asked = request.sampling.logprobs > 0 ? &logprobs : nullptr;
  figures->finish = "length";
  if (request.max_tokens == 0) return Step::go_on;
  for (;;) {
    const float* const logits = engine_.model().logits(last_);
    if (request.mask && !listener.next_mask(&mask)) return Step::interrupted;
    const int token = sampler_.sample(logits, request.mask ? &mask : nullptr, asked);
    if (token == Sampler::kNotFinite) return not_finite();
    figures->finish = "stop";
    if (token == Sampler::kNoToken || ends(token, request)) return Step::go_on;
    listener.token(token, asked);
    figures->finish = "length";
    if (++figures->generated == request.max_tokens) return Step::go_on;
    figures->finish = "cancel";
    if (const Step step = forward({&token, 1}, listener, conversation, [](int) {}); step != Step::go_on) return step;
  }
}

Generator::Step Generator::forward(std::span<const int> ids, Listener& listener, Conversation& conversation,
                                   FunctionRef<void(int)> before_layer) {
  engine_.make_room(conversation, static_cast<int>(ids.size()));
  bool interrupted = false;
  const auto go_on = [&](int layer) {
    before_layer(layer);
    return !listener.interrupted();
  };
  const Error error = engine_.model().forward(conversation, ids, go_on, &interrupted);
  if (error) {
    failure_ = {"read_failed", error.message};
    return Step::failed;
  }
  last_ = static_cast<int>(ids.size()) - 1;
  return interrupted ? Step::interrupted : Step::go_on;
}

Generator::Step Generator::not_finite() {
  failure_ = {"nonfinite_logits", ""};
  return Step::failed;
}

bool Generator::ends(int token, const GenerateRequest& request) const {
  if (!request.ignore_eos && engine_.end_ids().contains(token)) return true;
  return std::find(request.stop.begin(), request.stop.end(), token) != request.stop.end();
}

}  // namespace smoe
