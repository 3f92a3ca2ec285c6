// `smoe-engine bench`: how fast this vault runs here, and where the time goes.
#pragma once

#include <string>

#include "generate.h"

namespace smoe {

// One part of the measurement. Phases in milliseconds; what none of them is, is `rest`.
struct Measured {
  std::string name;  // prefill, decode
  int tokens = 0;
  double milliseconds = 0, stall_ms = 0;
  std::uint64_t hits = 0, misses = 0, bytes_read = 0;
  PhaseTimes phases;

  double rate() const { return milliseconds > 0 ? tokens * 1000.0 / milliseconds : 0; }  // tokens per second
  double hit_rate() const;  // of the experts asked for, 0 to 1; 1 where none was
  double rest_ms() const;
};

// A prompt of random ids, cold as the engine is; then as many random ids one by one, since random or greedy weights left to
// themselves soon repeat the same few experts. The ids are always the same.
Error measure(Engine& engine, int prompt, int tokens, Measured* prefill, Measured* decode);

std::string as_text(const Measured& measured);
std::string as_json(const Engine& engine, const Measured& prefill, const Measured& decode);

}  // namespace smoe
