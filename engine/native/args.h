// The flags: declared once, in args.cpp, and used for defaults, --help and parsing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "error.h"
#include "kernels.h"
#include "sampler.h"

namespace smoe {

struct Args {
  std::string vault, scout, config;
  bool serve = false, bench = false;
  std::string tokens_in, logits, routing;
  int tokens = 128, prompt = 512;
  bool json = false;

  int ctx = 0, chunk = 0, conversations = 16;
  std::string trunk = "auto", kv;
  int kv_cache_mb = 0;
  std::string memory;
  int ring = 0, workers = 4, slot_mb = 0, threads = 0;
  std::string kernels;
  bool exact = false;
  std::string activations;

  double temperature = 0.6, top_p = 0.95, min_p = 0, rep_penalty = 1.0;
  int top_k = 50;
  std::int64_t seed = -1;
  std::string eos_ids;

  bool raw_ids = false, instrument = false, debug = false, version = false, help = false;
};

// "6G", "1.5GiB", "800M": bytes, in powers of 1024. False where it is no amount.
bool parse_bytes(const std::string& text, std::uint64_t* out);

// The first word may be the command `bench`. The message names the flag.
Error parse_args(const std::vector<std::string>& words, Args* out);
std::string help_text();
SamplingOptions sampling_defaults(const Args& args);
Numerics numerics(const Args& args);

}  // namespace smoe
