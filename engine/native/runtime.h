// What every piece of the model computes with.
#pragma once

#include <chrono>
#include <memory>

#include "kernels.h"
#include "routing_log.h"
#include "threads.h"

namespace smoe {

// Milliseconds of computing since the boot, by phase. Waiting for the disk is not among them (RingCounters::stall_ms).
struct PhaseTimes {
  double attention = 0, router = 0, experts = 0, head = 0;
};

struct Runtime {
  const Kernels& kernels;
  ThreadPool& pool;
  Numerics numerics;
  PhaseTimes times;
  std::unique_ptr<RoutingLog> routing = nullptr;  // null: nobody asked for it
};

class Stopwatch {
 public:
  double milliseconds() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Adds the time until the end of the scope to a phase.
class Timed {
 public:
  explicit Timed(double* phase) : phase_(phase) {}
  ~Timed() { *phase_ += watch_.milliseconds(); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double* phase_;
  Stopwatch watch_;
};

}  // namespace smoe
