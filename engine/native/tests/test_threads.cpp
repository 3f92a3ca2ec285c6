// The thread pool's promises; meant to be run under ThreadSanitizer too.
#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "check.h"
#include "threads.h"

using namespace smoe;

TEST(run_reaches_every_thread_once) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    CHECK_EQ(pool.size(), threads);
    for (int round = 0; round < 50; round++) {
      std::vector<int> calls(threads);
      std::mutex lock;
      std::set<std::thread::id> ids;
      pool.run([&](int thread, int total) {
        calls[thread]++;
        const std::lock_guard guard(lock);
        ids.insert(std::this_thread::get_id());
        CHECK_EQ(total, threads);
      });
      CHECK(calls == std::vector<int>(threads, 1));
      CHECK_EQ(int(ids.size()), threads);
      CHECK(ids.contains(std::this_thread::get_id()));
    }
  }
}

TEST(what_the_work_wrote_is_there_when_run_returns) {
  ThreadPool pool(4);
  std::vector<int> values(4);
  for (int round = 1; round <= 2000; round++) {
    pool.run([&](int thread, int) { values[thread] += thread + 1; });
    for (int thread = 0; thread < 4; thread++) CHECK_EQ(values[thread], round * (thread + 1));
  }
}

TEST(ranges_are_covered_once_in_pieces_of_the_grain) {
  for (int threads : {1, 2, 5})
    for (int count : {0, 1, 15, 16, 17, 100, 1000})
      for (int grain : {1, 4, 16, 2000}) {
        ThreadPool pool(threads);
        std::vector<int> seen(count);
        std::mutex lock;
        pool.for_range(count, grain, [&](int begin, int end) {
          const std::lock_guard guard(lock);
          CHECK_EQ(begin % grain, 0);
          CHECK(end == count || end % grain == 0);
          CHECK(begin < end && end <= count);
          for (int i = begin; i < end; i++) seen[i]++;
        });
        CHECK(seen == std::vector<int>(count, 1));
      }
}

TEST(pieces_of_a_range_are_always_the_same) {
  ThreadPool pool(3);
  using Pieces = std::set<std::pair<int, int>>;
  const auto pieces = [&] {
    Pieces found;
    std::mutex lock;
    pool.for_range(1000, 7, [&](int begin, int end) {
      const std::lock_guard guard(lock);
      found.insert({begin, end});
    });
    return found;
  };
  const Pieces first = pieces();
  CHECK(first.size() >= 3);
  for (int round = 0; round < 20; round++) CHECK(pieces() == first);
}

TEST(sleeping_workers_wake_up) {
  ThreadPool pool(3);
  std::atomic<int> calls{0};
  for (int round = 0; round < 5; round++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // longer than the workers spin
    pool.run([&](int, int) { calls++; });
  }
  CHECK_EQ(calls.load(), 15);
}

TEST(pools_begin_and_end_without_work) {
  for (int round = 0; round < 20; round++) ThreadPool pool(1 + round % 4);
}

TEST(the_default_is_what_the_process_may_use) {
  CHECK(available_cores() >= 1);
  CHECK(available_cores() <= int(std::thread::hardware_concurrency()));
  CHECK_EQ(ThreadPool(0).size(), available_cores());
}
