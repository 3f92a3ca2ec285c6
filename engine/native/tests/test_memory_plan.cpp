#include "check.h"
#include "memory_plan.h"

using namespace smoe;

static constexpr std::uint64_t kMiB = 1 << 20;

// 100 experts of 10 MiB, 1000 MiB of trunk; a position takes 64 KiB, a token of the chunk 1 MiB.
static MemoryFacts facts(std::uint64_t total_mib) {
  return {.total = total_mib * kMiB, .trunk = 1000 * kMiB, .program = 20 * kMiB, .slot = 10 * kMiB, .experts = 100,
          .top_k = 4, .trained_context = 32768, .position = kMiB / 16, .buffers = 10 * kMiB, .buffers_token = kMiB};
}

static MemoryPlan plan(const MemoryFacts& facts, const MemoryWishes& wishes) {
  MemoryPlan out;
  CHECK_EQ(plan_memory(facts, wishes, &out).message, "");
  return out;
}

// What buffers of the longest chunk take beyond those of a chunk.
static std::uint64_t lengthened(const MemoryFacts& facts, const MemoryPlan& plan) {
  return static_cast<std::uint64_t>(plan.long_chunk - plan.chunk) * facts.buffers_token;
}

static std::uint64_t sum(const MemoryFacts& facts, const MemoryPlan& plan, std::uint64_t held) {
  const auto slots = static_cast<std::uint64_t>(plan.slots_beside(held, facts.slot));
  return facts.trunk + slots * facts.slot + held + plan.buffers;
}

TEST(everything_fits) {
  const MemoryPlan p = plan(facts(100'000), {});
  CHECK_EQ(p.slots, 100);
  CHECK_EQ(p.context, 32768);
  CHECK_EQ(p.chunk, 512);
  CHECK_EQ(p.long_chunk, 512);
  CHECK_EQ(p.conversations, 4 * (32768 + 512) * (kMiB / 16));
  CHECK_EQ(p.buffers, (20 + 10 + 512) * kMiB);
}

TEST(an_open_window_takes_an_eighth) {
  const MemoryPlan p = plan(facts(8000), {});
  CHECK_EQ(p.context, 1000 * 16 - 512);
  CHECK_EQ(p.conversations, 1000 * kMiB);
  CHECK_EQ(p.slots, 100);
}

TEST(an_open_window_of_a_budget) {
  const MemoryPlan p = plan(facts(8000), {.conversation_bytes = 500 * kMiB});
  CHECK_EQ(p.context, 500 * 16 - 512);
  CHECK_EQ(plan(facts(8000), {.conversation_bytes = kMiB}).context, 4096);
}

TEST(an_open_window_of_unknown_length_is_4096) {
  MemoryFacts unknown = facts(8000);
  unknown.trained_context = 0;
  CHECK_EQ(plan(unknown, {}).context, 4096);
  unknown.trained_context = 2048;
  CHECK_EQ(plan(unknown, {}).context, 2048);
}

TEST(a_window_that_is_asked_for_is_kept) {
  CHECK_EQ(plan(facts(8000), {.context = 100}).context, 100);
  CHECK_EQ(plan(facts(8000), {.context = 100}).chunk, 100);
  CHECK_EQ(plan(facts(8000), {.context = 65536}).context, 65536);
  MemoryPlan p;
  CHECK(plan_memory(facts(3000), {.context = 65536}, &p).message.find("one window of 65536 positions") !=
        std::string::npos);
}

TEST(what_conversations_do_not_hold_is_the_rings) {
  const MemoryPlan p = plan(facts(2200), {});  // 1542 MiB are trunk and buffers, 275 conversations
  CHECK_EQ(p.slots, 100 * (2200 - 1542 - 288) / 1000);
  CHECK_EQ(p.most_slots, 65);
  CHECK_EQ(p.slots_beside(100 * kMiB, 10 * kMiB), 55);
  CHECK_EQ(plan(facts(2200), {.ring = 50}).most_slots, 50);
  CHECK_EQ(plan(facts(100'000), {}).most_slots, 100);
}

TEST(a_ring_that_is_asked_for_is_kept_where_it_fits) {
  CHECK_EQ(plan(facts(8000), {.ring = 3}).slots, 3);
  CHECK_EQ(plan(facts(8000), {.ring = 1000}).slots, 100);
  CHECK(plan(facts(2200), {.ring = 90}).slots < 90);
}

TEST(a_long_chunk_costs_a_sixteenth_of_the_ring_at_most) {
  MemoryFacts f = facts(10'000);
  f.experts = 2000;
  const MemoryPlan p = plan(f, {});  // 1542 MiB are trunk and buffers, 1250 conversations
  CHECK_EQ(p.long_chunk, 512);       // 1024 tokens take 512 MiB more, which are 16 * 512 = 8192 of a ring's 7208
  CHECK_EQ(p.slots, (10'000 - 1542 - 1250) / 10);
  f.total = 30'000 * kMiB;
  CHECK_EQ(plan(f, {}).long_chunk, 512);  // all have a slot
  f.total = 12'000 * kMiB;
  const MemoryPlan larger = plan(f, {});
  CHECK_EQ(larger.long_chunk, 1024);
  CHECK_EQ(larger.slots, (12'000 - 1542 - 1500 - 512) / 10);
  CHECK_EQ(larger.most_slots, (12'000 - 1542) / 10);
}

TEST(a_chunk_that_is_asked_for_is_kept_and_no_longer_than_the_window) {
  for (const int chunk : {1, 700, 4096}) {
    CHECK_EQ(plan(facts(100'000), {.chunk = chunk}).chunk, chunk);
    CHECK_EQ(plan(facts(100'000), {.chunk = chunk}).long_chunk, chunk);
  }
  MemoryFacts f = facts(12'000);
  f.experts = 2000;
  CHECK_EQ(plan(f, {.context = 1000}).long_chunk, 512);
  CHECK_EQ(plan(f, {.context = 1024}).long_chunk, 1024);
}

TEST(the_chunk_shrinks_before_a_refusal) {
  const MemoryPlan p = plan(facts(1500), {});
  CHECK_EQ(p.chunk, 128);
  CHECK_EQ(p.context, 4096 + static_cast<int>((p.conversations - (4096 + 128) * (kMiB / 16)) / (kMiB / 16)));
  CHECK(p.slots >= 4);
}

TEST(the_refusal_adds_up) {
  MemoryPlan p;
  CHECK_EQ(plan_memory(facts(1300), {}, &p).message,
           "memory: needs at least 1360 MiB: trunk 1000 MiB, one window of 4096 positions 258 MiB, 4 experts 40 MiB, "
           "program and buffers 62 MiB; there are 1300 MiB");
  CHECK_EQ(plan_memory(facts(1360), {}, &p).message, "");
}

TEST(whatever_is_planned_fits) {
  for (std::uint64_t total = 1360; total < 12000; total += 37)
    for (const int ring : {0, 1, 50})
      for (const int context : {0, 64, 4096})
        for (const std::uint64_t kv : {0, 1, 300, 5000}) {
          const MemoryFacts f = facts(total);
          const MemoryPlan p = plan(f, {.ring = ring, .context = context, .conversation_bytes = kv * kMiB});
          const std::uint64_t most = p.conversations + lengthened(f, p);
          for (const std::uint64_t eighths : {0, 1, 5, 8}) CHECK(sum(f, p, most * eighths / 8) <= f.total);
          CHECK_EQ(p.slots_beside(most, f.slot), p.slots);
          CHECK(p.long_chunk == p.chunk || p.long_chunk <= p.context);
          CHECK_EQ(p.slots_beside(0, f.slot), p.most_slots);
          CHECK(p.slots >= 1 && p.chunk >= 32 && p.context >= 64);
          CHECK(p.conversations >= static_cast<std::uint64_t>(p.context + p.chunk) * f.position);
        }
}

TEST(more_memory_is_never_less_of_anything) {
  MemoryPlan before = plan(facts(1360), {});
  for (std::uint64_t total = 1361; total < 12000; total += 13) {
    const MemoryPlan p = plan(facts(total), {});
    CHECK(p.chunk >= before.chunk);
    if (p.long_chunk == before.long_chunk) CHECK(p.slots >= before.slots && p.context >= before.context);
    before = p;
  }
}

TEST(what_is_left_to_the_system) {
  CHECK_EQ(system_reserve(400 * kMiB), 100 * kMiB);
  CHECK_EQ(system_reserve(2048 * kMiB), 256 * kMiB);
  CHECK_EQ(system_reserve(16384 * kMiB), 1024 * kMiB);
}

TEST(the_ring_follows_the_pressure) {
  constexpr std::int64_t kReserve = 256 * kMiB;
  CHECK_EQ(ring_excess(100 * kMiB, kReserve, false), 28 * std::int64_t{kMiB});
  CHECK_EQ(ring_excess(100 * kMiB, kReserve, true), 412 * std::int64_t{kMiB});
  CHECK_EQ(ring_excess(kReserve, kReserve, false), std::int64_t{0});
  CHECK_EQ(ring_excess(300 * kMiB, kReserve, false), -44 * std::int64_t{kMiB});
  CHECK_EQ(ring_excess(0, 0, true), std::int64_t{0});
}
