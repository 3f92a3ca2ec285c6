// The flags: declared once, in args.cpp, and used for defaults, --help and parsing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "error.h"
#include "sampler.h"

namespace smoe {

struct Args {
  std::string vault, scout, config;
  bool serve = false;
  std::string tokens_in, logits;
  int tokens = 128;

  int ctx = 4096, chunk = 512, conversations = 4;
  std::string kv = "f32";
  int kv_cache_mb = 0;
  int ring = 0, workers = 4, slot_mb = 0, threads = 0;
  std::string kernels;
  bool exact = false, fast = false;

  double temperature = 0.6, top_p = 0.95, min_p = 0, rep_penalty = 1.0;
  int top_k = 50;
  std::int64_t seed = -1;
  std::string eos_ids;

  bool raw_ids = false, instrument = false, debug = false, version = false, help = false;
};

// The message names the flag.
Error parse_args(const std::vector<std::string>& words, Args* out);
std::string help_text();
SamplingOptions sampling_defaults(const Args& args);

}  // namespace smoe
