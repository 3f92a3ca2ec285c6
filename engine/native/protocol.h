// The lines of the serve protocol (docs/serve-protocol.md): text to requests and figures to text. No I/O, no state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mask.h"
#include "prewarm.h"
#include "sampler.h"

namespace smoe {

inline constexpr int kMostIds = 1 << 20;                 // ids in one GEN line
inline constexpr int kMostNewTokens = 8192;              // max_tokens
inline constexpr std::size_t kLongestLine = 16u << 20;   // bytes; kMostIds ids of 10 digits fit

struct GenerateRequest {
  int max_tokens = 0;
  std::vector<int> ids;
  SamplingOptions sampling;
  std::uint64_t id = 0;  // 0: none
  std::vector<int> stop;
  bool ignore_eos = false, mask = false, slide = false;
  int prompt_logprobs = 0;  // as SamplingOptions::logprobs, of the prompt's ids after the first
};

enum class RequestKind : std::uint8_t { generate, reset, hello, status, heat, warm, cancel, mask, refused };

struct Request {
  RequestKind kind = RequestKind::refused;
  GenerateRequest generate;
  std::uint64_t id = 0;       // cancel, mask
  std::string_view mask_set;  // mask: a part of the line
  Popularity popularity;      // warm
  std::string reason, detail; // refused: `bad_request`, `field=max_tokens`
};

// What a line is read against.
struct Dialect {
  int version;     // what the client speaks: keys of a later version are unknown ones
  int vocabulary;
  SamplingOptions defaults;  // of a GEN line that says nothing about sampling
};

// A line without its newline.
Request parse_request(std::string_view line, const Dialect& dialect);

// What answers a line that cannot be served. field: what is wrong with it; may be empty.
Request refusal(std::string reason, std::string_view field);

// `1,2,3`: false when a word is no id below `vocabulary` or there is none.
bool parse_ids(std::string_view text, char separator, int vocabulary, std::vector<int>* out);

// `1,2;3,4`: a list a layer.
bool parse_popularity(std::string_view text, Popularity* out);

// Exact figures of one generation.
struct Figures {
  int prompt = 0, cached = 0, generated = 0, slid = 0;
  double prefill_ms = 0, decode_ms = 0, stall_ms = 0;
  std::uint64_t hits = 0, misses = 0, bytes_read = 0;
  const char* finish = "stop";
};

// Each ends with its newline. `version`: what the client speaks; 1 leaves out all that version 1 does not know.
std::string format_error(int version, std::string_view reason, std::string_view detail);
std::string format_progress(int done, int total, int cached);
std::string format_token(int token, const Logprobs* logprobs);
std::string format_prompt_token(int token, const Logprobs* logprobs);
std::string format_end(int version, const Figures& figures);

// A name as a value of the protocol: printable ASCII without spaces.
std::string protocol_value(std::string_view name);

}  // namespace smoe
