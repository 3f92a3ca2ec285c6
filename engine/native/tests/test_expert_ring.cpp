#include <unistd.h>

#include <algorithm>
#include <list>
#include <random>
#include <set>
#include <thread>

#include "check.h"
#include "expert_ring.h"
#include "prewarm.h"
#include "vault_files.h"

using namespace smoe;
using namespace vault_files;

// A vault of 3 MoE layers with 5, 8 and 6 experts, and a ring over it.
struct Bench {
  Folder folder;
  VaultParts parts;
  std::unique_ptr<Vault> vault;
  std::unique_ptr<ExpertRing> ring;

  explicit Bench(int slots, int workers = 2) {
    Shape shape;
    shape.hidden_layers = 3;
    shape.layers = {{0, 5}, {1, 8}, {2, 6}};
    parts = make_vault(shape);
    CHECK_EQ(Vault::open(folder.write("v", parts.bytes()), "", "", &vault).message, "");
    CHECK_EQ(ExpertRing::create(*vault, {slots, workers}, &ring).message, "");
  }

  // The record that this expert has in the file; layers lie in the table one after the other.
  const std::string& record(int layer, int expert) const {
    static constexpr int kFirst[] = {0, 5, 13};
    return parts.records[static_cast<std::size_t>(kFirst[layer] + expert)];
  }

  bool right(const void* bytes, int layer, int expert) const {
    const std::string& expected = record(layer, expert);
    return bytes && std::memcmp(bytes, expected.data(), expected.size()) == 0;
  }

  // Requests, waits, compares, releases: whether it was a hit.
  bool use(int layer, int expert) {
    const RingCounters before = ring->counters();
    CHECK(ring->request(layer, expert));
    CHECK(right(ring->wait(layer, expert), layer, expert));
    CHECK(ring->ready(layer, expert));
    ring->release(layer, expert);
    const RingCounters after = ring->counters();
    CHECK_EQ(after.hits + after.misses, before.hits + before.misses + 1);
    return after.hits > before.hits;
  }

  std::uint64_t record_bytes() const { return parts.records[0].size(); }
};

static std::pair<int, int> random_expert(std::mt19937& random) {
  static constexpr int kExperts[] = {5, 8, 6};
  const int layer = static_cast<int>(random() % 3);
  return {layer, static_cast<int>(random() % static_cast<unsigned>(kExperts[layer]))};
}

// What a cache that evicts by least recent use would do.
class Lru {
 public:
  explicit Lru(std::size_t slots) : slots_(slots) {}

  bool use(std::pair<int, int> expert) {
    const auto place = std::find(order_.begin(), order_.end(), expert);
    const bool hit = place != order_.end();
    if (hit) order_.erase(place);
    else if (order_.size() == slots_) order_.pop_front();
    order_.push_back(expert);
    return hit;
  }

 private:
  std::size_t slots_;
  std::list<std::pair<int, int>> order_;
};

TEST(hits_and_misses_are_counted) {
  for (const int slots : {1, 2, 3, 7, 18, 19}) {
    Bench bench(slots, 1 + slots % 4);
    std::mt19937 random(static_cast<unsigned>(slots));
    std::uint64_t misses = 0;
    for (int i = 0; i < 1500; ++i) {
      const auto expert = random_expert(random);
      misses += !bench.use(expert.first, expert.second);
    }
    CHECK_EQ(bench.ring->counters().misses, misses);
    CHECK_EQ(bench.ring->counters().bytes_read, misses * bench.record_bytes());
    CHECK_EQ(bench.ring->used(), slots);
    if (slots == 19) CHECK_EQ(misses, 19u);
  }
}

// Every pass needs all 19: of a cycle, the best that can be done is to keep all slots but the one that reads.
TEST(a_cycle_larger_than_the_ring_hits_as_far_as_it_fits) {
  for (const int slots : {2, 5, 12, 18}) {
    Bench bench(slots);
    int hits = 0;
    constexpr int kPasses = 20, kExperts[] = {5, 8, 6};
    for (int pass = 0; pass < kPasses; ++pass)
      for (int layer = 0; layer < 3; ++layer)
        for (int e = 0; e < kExperts[layer]; ++e) hits += bench.use(layer, e) && pass > 0;
    CHECK(hits >= (slots - 1) * (kPasses - 1));
  }
}

// Passes of two experts a layer, experts 0 and 1 in most of them: they stay, whatever else comes by.
TEST(popular_experts_stay) {
  Bench bench(8);
  Lru lru(8);
  std::mt19937 random(5);
  int hits = 0, lru_hits = 0;
  for (int pass = 0; pass < 600; ++pass)
    for (int layer = 0; layer < 3; ++layer)
      for (const int e : {0, 1}) {
        const int expert = random() % 10 < 7 ? e : 2 + static_cast<int>(random() % 3);
        hits += bench.use(layer, expert);
        lru_hits += lru.use({layer, expert});
      }
  CHECK(hits > lru_hits);
  CHECK(hits > 600 * 6 * 7 / 10);
}

// Fame fades: what was popular long ago goes first.
TEST(what_was_popular_once_leaves) {
  Bench bench(2);
  for (int pass = 0; pass < 200; ++pass) {
    bench.use(0, 0);
    bench.use(2, 0);
  }
  int hits = 0;
  for (int pass = 0; pass < 400; ++pass) {
    hits += bench.use(0, 1);
    hits += bench.use(2, 1);
  }
  CHECK(hits > 400);
}

TEST(no_more_slots_than_experts) {
  Bench bench(1000);
  CHECK_EQ(bench.ring->slots(), 19);
  CHECK_EQ(bench.ring->slot_bytes(), 16384u);
  CHECK_EQ(bench.ring->used(), 0);
  bench.use(0, 0);
  bench.use(0, 0);
  bench.use(2, 5);
  CHECK_EQ(bench.ring->used(), 2);
  CHECK_EQ(bench.ring->uses(0, 0), 2u);
  CHECK_EQ(bench.ring->uses(2, 5), 1u);
  CHECK_EQ(bench.ring->uses(1, 0), 0u);
}

TEST(slots_go_and_come_back) {
  Bench bench(6);
  for (int e = 0; e < 6; ++e) bench.use(1, e);
  CHECK(bench.ring->request(1, 0));  // in use: stays
  const std::uint64_t before = bench.ring->resident();
  bench.ring->resize(3);
  CHECK_EQ(bench.ring->slots(), 3);
  CHECK_EQ(bench.ring->used(), 3);
#if !defined(__APPLE__)
  CHECK_EQ(bench.ring->resident() * 2, before);
#endif
  CHECK(bench.right(bench.ring->wait(1, 0), 1, 0));
  bench.ring->release(1, 0);
  CHECK(bench.use(1, 0));
  bench.ring->resize(100);
  CHECK_EQ(bench.ring->slots(), 6);
  for (int e = 0; e < 8; ++e) bench.use(1, e);
  CHECK_EQ(bench.ring->used(), 6);
  bench.ring->resize(0);
  CHECK_EQ(bench.ring->slots(), 1);
  CHECK(!bench.use(2, 0));
  CHECK(bench.use(2, 0));
}

// What lies at the pool's end moves there, and the last to be needed goes in its place.
TEST(what_is_needed_stays_when_slots_go) {
  Bench bench(6);
  for (int pass = 0; pass < 40; ++pass)
    for (int e = 0; e < 6; ++e)
      if (e >= 3 || pass == 0) bench.use(1, e);
  bench.ring->resize(3);
  CHECK_EQ(bench.ring->used(), 3);
  const std::uint64_t read = bench.ring->counters().bytes_read;
  for (int e = 3; e < 6; ++e) CHECK(bench.use(1, e));
  CHECK_EQ(bench.ring->counters().bytes_read, read);
}

TEST(queued_hints_give_way_when_slots_go) {
  constexpr int kRounds = 40;
  std::uint64_t read = 0, most = 0;
  for (int round = 0; round < kRounds; ++round) {
    Bench bench(8, 1);
    for (int e = 0; e < 8; ++e) bench.ring->prefetch(1, e);
    bench.ring->resize(1);
    CHECK_EQ(bench.ring->slots(), 1);
    read += bench.ring->counters().bytes_read;
    most += 8 * bench.record_bytes();
    for (int e = 0; e < 8; ++e) bench.use(1, e);
    bench.ring->resize(1);
    CHECK_EQ(bench.ring->slots(), 1);
    CHECK(bench.use(1, 7));
  }
  CHECK(read < most / 2);  // the others were not waited for
}

TEST(a_hint_that_is_being_read_does_not_keep_its_slot) {
  for (int round = 0; round < 200; ++round) {
    Bench bench(2, 1);
    for (int e = 0; e < 2; ++e) bench.ring->prefetch(1, e);
    while (bench.ring->counters().bytes_read == 0) std::this_thread::yield();
    bench.ring->resize(1);  // while the second is being read, most times
    CHECK_EQ(bench.ring->slots(), 1);
  }
}

TEST(slots_go_whose_experts_have_had_no_turn_yet) {
  Bench bench(12);
  bench.use(0, 3);
  Prewarm prewarm;
  prewarm.begin(*bench.vault, {}, *bench.ring);
  while (prewarm.step(*bench.ring)) std::this_thread::yield();
  bench.ring->resize(2);
  CHECK_EQ(bench.ring->slots(), 2);
  CHECK_EQ(bench.ring->used(), 2);
  for (int e = 0; e < 5; ++e) bench.use(0, e);
}

TEST(slots_in_use_cannot_go) {
  Bench bench(3);
  for (int e = 0; e < 3; ++e) CHECK(bench.ring->request(1, e));
  for (int e = 0; e < 3; ++e) CHECK(bench.right(bench.ring->wait(1, e), 1, e));
  bench.ring->resize(1);
  CHECK_EQ(bench.ring->slots(), 3);
  for (int e = 0; e < 3; ++e) bench.ring->release(1, e);
  bench.ring->resize(1);
  CHECK_EQ(bench.ring->slots(), 1);
  CHECK_EQ(bench.ring->used(), 1);
}

TEST(wrong_options) {
  Bench bench(1);
  std::unique_ptr<ExpertRing> ring;
  CHECK(bool{ExpertRing::create(*bench.vault, {0, 1}, &ring)});
  CHECK(bool{ExpertRing::create(*bench.vault, {1, 0}, &ring)});
}

TEST(a_full_ring_of_pins_refuses_and_recovers) {
  Bench bench(2);
  CHECK(bench.ring->request(0, 0));
  CHECK(bench.ring->request(0, 1));
  CHECK(!bench.ring->request(0, 2));
  CHECK_EQ(bench.ring->uses(0, 2), 0u);
  CHECK(bench.ring->request(0, 1));  // a second pin needs no slot
  CHECK(bench.right(bench.ring->wait(0, 1), 0, 1));
  bench.ring->release(0, 1);
  CHECK(!bench.ring->request(0, 2));
  bench.ring->release(0, 1);
  CHECK(bench.ring->request(0, 2));
  CHECK(bench.right(bench.ring->wait(0, 2), 0, 2));
  CHECK(bench.right(bench.ring->wait(0, 0), 0, 0));  // never moved
  bench.ring->release(0, 0);
  bench.ring->release(0, 2);
}

TEST(requests_for_one_expert_share_its_read) {
  Bench bench(3, 1);
  for (int i = 0; i < 3; ++i) CHECK(bench.ring->request(1, 7));
  for (int i = 0; i < 3; ++i) CHECK(bench.right(bench.ring->wait(1, 7), 1, 7));
  for (int i = 0; i < 3; ++i) bench.ring->release(1, 7);
  CHECK_EQ(bench.ring->counters().bytes_read, bench.record_bytes());
  CHECK_EQ(bench.ring->counters().hits + bench.ring->counters().misses, 3u);
  CHECK_EQ(bench.ring->used(), 1);
}

// A hint's read ends at some time: request it until it is a hit at once.
TEST(a_hint_that_has_been_read_is_a_hit) {
  Bench bench(4);
  bench.ring->prefetch(1, 3);
  while (bench.ring->counters().bytes_read == 0) std::this_thread::yield();
  CHECK(!bench.ring->ready(1, 3));  // not requested
  bench.use(1, 3);
  bench.use(1, 3);
  CHECK(bench.ring->counters().hits >= 1);
  CHECK_EQ(bench.ring->counters().bytes_read, bench.record_bytes());
}

TEST(hints_never_take_what_is_pinned) {
  Bench bench(2);
  CHECK(bench.ring->request(0, 0));
  CHECK(bench.ring->request(0, 1));
  for (int e = 0; e < 8; ++e) bench.ring->prefetch(1, e);
  CHECK(bench.right(bench.ring->wait(0, 0), 0, 0));
  CHECK(bench.right(bench.ring->wait(0, 1), 0, 1));
  CHECK_EQ(bench.ring->counters().bytes_read, 2 * bench.record_bytes());
  bench.ring->release(0, 0);
  bench.ring->release(0, 1);
}

TEST(a_request_gets_its_slot_from_hints) {
  Bench bench(1, 1);
  for (int i = 0; i < 200; ++i) {
    bench.ring->prefetch(1, i % 8);
    CHECK(bench.ring->request(0, i % 5));
    CHECK(bench.right(bench.ring->wait(0, i % 5), 0, i % 5));
    bench.ring->release(0, i % 5);
  }
}

// Whatever the threads got to before: what is still held is being read, and is read no second time.
TEST(forgotten_hints_give_their_slots_back) {
  for (int round = 0; round < 50; ++round) {
    Bench bench(8, 1);
    for (int e = 0; e < 8; ++e) bench.ring->prefetch(1, e);
    for (int e = 0; e < 8; ++e) bench.ring->forget(1, e);
    CHECK(!bench.ring->hints_wait());
    const int held = bench.ring->used();
    CHECK_EQ(bench.ring->free_slots(), 8 - held);
    for (int e = 0; e < 8; ++e) bench.use(1, e);
    CHECK_EQ(bench.ring->counters().bytes_read, 8 * bench.record_bytes());
  }
}

TEST(a_requested_hint_is_not_forgotten) {
  Bench bench(4, 1);
  for (int e = 0; e < 4; ++e) bench.ring->prefetch(1, e);
  CHECK(bench.ring->request(1, 3));
  bench.ring->forget(1, 3);
  CHECK(bench.right(bench.ring->wait(1, 3), 1, 3));
  bench.ring->release(1, 3);
}

TEST(other_hints_stay_when_one_is_forgotten) {
  Bench bench(8, 1);
  for (int e = 0; e < 8; ++e) bench.ring->prefetch(1, e);
  for (int e = 0; e < 8; ++e) bench.ring->forget(0, e % 5);  // nobody's
  CHECK_EQ(bench.ring->used(), 8);
  bench.ring->forget(1, 7);
  CHECK(bench.ring->used() >= 7);
  for (int e = 0; e < 8; ++e) bench.use(1, e);
  CHECK_EQ(bench.ring->counters().bytes_read, 8 * bench.record_bytes());
}

TEST(a_hint_tells_whether_it_queued_a_read) {
  Bench bench(2);
  CHECK(bench.ring->prefetch(1, 3));
  CHECK(!bench.ring->prefetch(1, 3));
  bench.use(1, 3);
  CHECK(!bench.ring->prefetch(1, 3));
  CHECK(bench.ring->request(0, 0));
  CHECK(bench.ring->request(0, 1));
  CHECK(!bench.ring->prefetch(0, 2));
  for (int e = 0; e < 2; ++e) bench.ring->release(0, e);
}

TEST(a_hint_keeps_what_is_cached_from_the_next_eviction) {
  Bench bench(2);
  bench.use(0, 0);
  bench.use(0, 1);
  bench.ring->prefetch(0, 0);
  bench.use(0, 2);
  CHECK(bench.use(0, 0));
}

TEST(releasing_without_waiting) {
  Bench bench(2, 1);
  for (int i = 0; i < 300; ++i) {
    CHECK(bench.ring->request(1, i % 8));
    bench.ring->release(1, i % 8);
  }
  CHECK(!bench.use(0, 0));
  CHECK(bench.use(0, 0));
}

TEST(a_ring_that_ends_while_reads_are_queued) {
  for (int i = 0; i < 20; ++i) {
    Bench bench(19, 1);
    for (int e = 0; e < 8; ++e) CHECK(bench.ring->request(1, e));
    for (int e = 0; e < 6; ++e) bench.ring->prefetch(2, e);
    bench.ring.reset();
  }
}

TEST(a_read_error_concerns_one_expert) {
  Bench bench(3);
  const ExpertRecord& last = bench.vault->expert(2, 5);
  const std::string path = bench.folder.path("v");
  const std::string whole = read_file(path);
  CHECK_EQ(::truncate(path.c_str(), static_cast<off_t>(last.offset + 100)), 0);
  for (int i = 0; i < 2; ++i) {
    CHECK(bench.ring->request(2, 5));
    CHECK(bench.ring->request(2, 5));
    CHECK(bench.ring->wait(2, 5) == nullptr);
    CHECK(bench.ring->wait(2, 5) == nullptr);
    CHECK_EQ(bench.ring->error().message, path + ": read at byte " + std::to_string(last.offset + 100) +
                                              " failed: the file ends there; was it truncated?");
    bench.ring->release(2, 5);
    bench.ring->release(2, 5);
    bench.use(0, 1);
  }
  bench.ring->prefetch(2, 5);  // fails unseen
  bench.use(1, 1);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << whole;
  // The hint's read may still end as failed before this request sees it; the next one reads again.
  if (bench.ring->request(2, 5), bench.ring->wait(2, 5) == nullptr) {
    bench.ring->release(2, 5);
    CHECK(bench.ring->request(2, 5));
  }
  CHECK(bench.right(bench.ring->wait(2, 5), 2, 5));
  bench.ring->release(2, 5);
}

// Batches pinned together, hints between, counters read by another thread: what the model does in a prefill.
TEST(stress) {
  for (const int slots : {1, 2, 6, 12}) {
    Bench bench(slots, 4);
    std::mt19937 random(99u + static_cast<unsigned>(slots));
    std::atomic<bool> over{false};
    std::thread watcher([&] {
      while (!over) {
        const RingCounters counters = bench.ring->counters();
        if (counters.stall_ms < 0 || bench.ring->resident() > UINT32_MAX || bench.ring->used() > slots || bench.ring->uses(0, 0) > 100000) over = true;
        std::this_thread::yield();
      }
    });
    std::uint64_t granted = 0;
    for (int round = 0; round < 800 && !over; ++round) {
      for (int e = 0; round % 3 == 0 && e < 8; ++e) bench.ring->forget(1, e);
      if (round % 40 == 0) bench.ring->resize(1 + static_cast<int>(random() % static_cast<unsigned>(slots)));
      std::vector<std::pair<int, int>> batch;
      for (unsigned n = 1 + random() % 8; n > 0; --n) {
        const auto expert = random_expert(random);
        if (random() % 3 == 0) bench.ring->prefetch(expert.first, expert.second);
        else if (bench.ring->request(expert.first, expert.second)) batch.push_back(expert);
      }
      granted += batch.size();
      std::shuffle(batch.begin(), batch.end(), random);
      for (const auto& [layer, expert] : batch) {
        if (random() % 8 != 0) CHECK(bench.right(bench.ring->wait(layer, expert), layer, expert));
        bench.ring->release(layer, expert);
      }
    }
    CHECK(!over);
    over = true;
    watcher.join();
    CHECK_EQ(bench.ring->counters().hits + bench.ring->counters().misses, granted);
    CHECK_EQ(bench.ring->error().message, "");
  }
}

// tmpfs refuses direct I/O on many kernels; either way the bytes must come.
TEST(a_vault_in_shared_memory) {
  if (::access("/dev/shm", W_OK) != 0) return;
  ::setenv("TMPDIR", "/dev/shm", 1);
  {
    Bench bench(3);
    for (int e = 0; e < 8; ++e) bench.use(1, e);
  }
  ::unsetenv("TMPDIR");
}

static void warm_up(Prewarm& prewarm, ExpertRing& ring) {
  while (prewarm.step(ring)) std::this_thread::yield();
}

TEST(warming_reads_every_expert_that_has_a_slot) {
  Bench bench(19);
  Prewarm prewarm;
  prewarm.begin(*bench.vault, {}, *bench.ring);
  warm_up(prewarm, *bench.ring);
  CHECK_EQ(bench.ring->used(), 19);
  for (int layer = 0; layer < 3; ++layer)
    for (int expert = 0; expert < bench.vault->experts(layer); ++expert) bench.use(layer, expert);
  CHECK_EQ(bench.ring->counters().bytes_read, 19 * bench.record_bytes());  // none twice
}

TEST(warming_reads_again_what_a_smaller_ring_lost) {
  Bench bench(19);
  Prewarm prewarm;
  prewarm.begin(*bench.vault, {}, *bench.ring);
  warm_up(prewarm, *bench.ring);
  for (int layer = 0; layer < 3; ++layer)
    for (int expert = 0; expert < bench.vault->experts(layer); ++expert) bench.use(layer, expert);
  bench.ring->resize(10);
  warm_up(prewarm, *bench.ring);
  CHECK_EQ(bench.ring->used(), 10);
  bench.ring->resize(19);
  warm_up(prewarm, *bench.ring);
  CHECK_EQ(bench.ring->used(), 19);
}

TEST(warming_takes_the_popular_experts_and_no_cached_one_away) {
  Bench bench(4);
  bench.use(2, 5);
  Prewarm prewarm;
  prewarm.begin(*bench.vault, {{0, 0, 9, 0, 1}, {0, 0, 0, 0, 0, 0, 0, 7}, {1, 1, 1, 1, 1, 5}}, *bench.ring);
  warm_up(prewarm, *bench.ring);
  CHECK_EQ(bench.ring->used(), 4);
  for (const auto& [layer, expert] : {std::pair{2, 5}, {0, 2}, {1, 7}, {2, 0}}) bench.use(layer, expert);
  CHECK_EQ(bench.ring->counters().bytes_read, 4 * bench.record_bytes());
}

TEST(what_was_needed_before_warming_is_not_forgotten) {
  Bench bench(3);
  for (int pass = 0; pass < 8; ++pass) {
    bench.use(0, 2);
    bench.use(1, pass);
  }
  Prewarm prewarm;
  prewarm.begin(*bench.vault, {}, *bench.ring);
  for (const auto& [layer, expert] : {std::pair{2, 1}, {0, 0}, {1, 0}, {2, 0}}) bench.use(layer, expert);
  CHECK(bench.use(0, 2));
}

TEST(what_earlier_runs_needed_most_stays_longest) {
  Bench bench(3);
  Prewarm prewarm;
  prewarm.begin(*bench.vault, {{0, 0, 90, 0, 10}, {0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}}, *bench.ring);
  for (const auto& [layer, expert] : {std::pair{0, 2}, {1, 3}, {2, 1}, {0, 0}, {1, 0}, {2, 0}}) bench.use(layer, expert);
  CHECK(bench.use(0, 2));
}
