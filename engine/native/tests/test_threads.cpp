// The thread pool's promises; meant to be run under ThreadSanitizer too.
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "check.h"
#include "threads.h"

using namespace smoe;

TEST(what_the_work_wrote_is_there_when_it_returns) {
  for (int threads : {1, 2, 4, 8}) {
    ThreadPool pool(threads);
    std::vector<int> values(64);
    for (int round = 1; round <= 2000; round++) {
      pool.for_range(64, 1, [&](int begin, int end) {
        for (int i = begin; i < end; i++) values[i] += i;
      });
      for (int i = 0; i < 64; i++) CHECK_EQ(values[i], round * i);
    }
  }
}

// Each piece waits until all threads have one: the workers do take part.
TEST(every_thread_works) {
  for (int threads : {2, 3, 8}) {
    ThreadPool pool(threads);
    std::atomic<int> inside{0};
    std::mutex lock;
    std::set<std::thread::id> ids;
    pool.for_range(threads, 1, [&](int, int) {
      inside++;
      while (inside < threads) std::this_thread::yield();
      const std::lock_guard guard(lock);
      ids.insert(std::this_thread::get_id());
    });
    CHECK_EQ(int(ids.size()), threads);
    CHECK(ids.contains(std::this_thread::get_id()));
  }
}

// The callable and what it refers to are gone right after each call: a worker that wakes late must not touch them.
TEST(late_wakers_do_not_touch_the_work) {
  ThreadPool pool(6);
  for (int round = 0; round < 3000; round++) {
    auto sum = std::make_unique<std::atomic<int>>(0);
    pool.for_range(6, 1, [&](int begin, int) { *sum += begin; });
    CHECK_EQ(sum->load(), 15);
    if (round % 100 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
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
  for (int round = 0; round < 5; round++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // longer than the workers spin
    std::atomic<int> inside{0};
    pool.for_range(3, 1, [&](int, int) {
      inside++;
      while (inside < 3) std::this_thread::yield();
    });
    CHECK_EQ(inside.load(), 3);
  }
}

TEST(pools_begin_and_end_without_work) {
  for (int round = 0; round < 20; round++) ThreadPool pool(1 + round % 4);
}

TEST(the_default_is_what_the_process_may_use) {
  CHECK(available_cores() >= 1);
  CHECK(available_cores() <= int(std::thread::hardware_concurrency()));
  CHECK_EQ(ThreadPool(0).size(), available_cores());
}
