#include "memory_plan.h"

#include <algorithm>
#include <string>

namespace smoe {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr int kLeastContext = 4096, kLeastChunk = 32, kChunk = 512, kLongestChunk = 2048;
constexpr std::uint64_t kLongChunkShare = 16;  // of the ring, at most one part in so many

std::string mebibytes(std::uint64_t bytes) { return std::to_string((bytes + kMiB - 1) / kMiB) + " MiB"; }

std::uint64_t count(int n) { return static_cast<std::uint64_t>(n); }

class Planner {
 public:
  Planner(const MemoryFacts& facts, const MemoryWishes& wishes) : facts_(facts), wishes_(wishes) {
    const int longest = facts.trained_context > 0 ? facts.trained_context : kLeastContext;
    least_context_ = wishes.context > 0 ? wishes.context : std::min(kLeastContext, longest);
    most_context_ = wishes.context > 0 ? wishes.context : longest;
    least_slots_ = std::min(facts.experts, wishes.ring > 0 ? std::min(wishes.ring, facts.top_k) : facts.top_k);
  }

  Error plan(MemoryPlan* out) const {
    int chunk = std::min(wishes_.chunk > 0 ? wishes_.chunk : kChunk, least_context_);
    while (least(chunk) > facts_.total && chunk > kLeastChunk) chunk = std::max(kLeastChunk, chunk / 2);
    if (least(chunk) > facts_.total) return refusal(chunk);
    out->chunk = chunk;
    out->buffers = facts_.program + buffers(chunk);
    std::uint64_t room = facts_.total - least(chunk);  // beyond the least of everything
    room -= share_out_conversations(room, out);
    room -= lengthen_chunk(room, out);
    const std::uint64_t slots = count(least_slots_) + room / facts_.slot;
    const int most = most_slots();
    out->slots = static_cast<int>(std::min(slots, count(most)));
    out->shared = facts_.total - facts_.trunk - out->buffers;
    out->most_slots = static_cast<int>(std::min(out->shared / facts_.slot, count(most)));
    return {};
  }

 private:
  std::uint64_t buffers(int chunk) const { return facts_.buffers + count(chunk) * facts_.buffers_token; }
  std::uint64_t window(int context, int chunk) const { return count(context + chunk) * facts_.position; }
  int most_slots() const { return wishes_.ring > 0 ? std::min(wishes_.ring, facts_.experts) : facts_.experts; }
  std::uint64_t ring() const { return count(least_slots_) * facts_.slot; }

  std::uint64_t least(int chunk) const {
    return facts_.trunk + facts_.program + buffers(chunk) + window(least_context_, chunk) + ring();
  }

  // Returns what it takes of the room. Unless the flags say how much, half of the room stays the ring's.
  std::uint64_t share_out_conversations(std::uint64_t room, MemoryPlan* out) const {
    const std::uint64_t one = window(least_context_, out->chunk);
    const bool asked = wishes_.conversation_bytes > 0;
    const std::uint64_t wanted = asked ? wishes_.conversation_bytes : facts_.total / 8;
    const std::uint64_t budget = std::clamp(wanted, one, one + (asked ? room : room / 2));
    const std::uint64_t longest = budget / facts_.position - count(out->chunk);
    out->context = static_cast<int>(std::clamp(longest, count(least_context_), count(most_context_)));
    out->conversations = std::min(budget, count(wishes_.conversations) * window(out->context, out->chunk));
    return out->conversations - one;
  }

  // The same, for buffers. Where every expert has a slot it is not worth what is lost when a client gives up.
  std::uint64_t lengthen_chunk(std::uint64_t room, MemoryPlan* out) const {
    const bool streams = std::min(count(least_slots_) + room / facts_.slot, count(most_slots())) < count(facts_.experts);
    const auto more = [&](int chunk) { return count(chunk - out->chunk) * facts_.buffers_token; };
    int chunk = out->chunk;
    while (streams && wishes_.chunk == 0 && 2 * chunk <= std::min(kLongestChunk, out->context) && more(2 * chunk) <= room / kLongChunkShare) chunk *= 2;
    out->long_chunk = chunk;
    return more(chunk);
  }

  Error refusal(int chunk) const {
    return {"memory: needs at least " + mebibytes(least(chunk)) + ": trunk " + mebibytes(facts_.trunk) + ", one window of " +
            std::to_string(least_context_) + " positions " + mebibytes(window(least_context_, chunk)) + ", " +
            std::to_string(least_slots_) + " experts " + mebibytes(ring()) + ", program and buffers " +
            mebibytes(facts_.program + buffers(chunk)) + "; there are " + mebibytes(facts_.total)};
  }

  const MemoryFacts& facts_;
  const MemoryWishes& wishes_;
  int least_context_, most_context_, least_slots_;
};

}  // namespace

Error plan_memory(const MemoryFacts& facts, const MemoryWishes& wishes, MemoryPlan* out) {
  return Planner(facts, wishes).plan(out);
}

int MemoryPlan::slots_beside(std::uint64_t held, std::uint64_t slot_bytes) const {
  const std::uint64_t fit = (shared - std::min(shared, held)) / slot_bytes;
  return static_cast<int>(std::clamp(fit, count(slots), count(most_slots)));
}

std::uint64_t system_reserve(std::uint64_t available) {
  return std::max(std::min(256 * kMiB, available / 4), available / 16);
}

std::int64_t ring_excess(std::uint64_t available, std::uint64_t reserve, bool pressed) {
  const std::uint64_t low = pressed ? 2 * reserve : reserve / 2;
  if (available < low) return static_cast<std::int64_t>(low - available);
  const std::uint64_t plenty = low + reserve / 2;  // further up, so that it does not go to and fro
  return -static_cast<std::int64_t>(available - std::min(available, plenty));
}

}  // namespace smoe
