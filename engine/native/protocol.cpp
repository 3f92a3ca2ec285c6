#include "protocol.h"

#include <algorithm>
#include <cstdio>

#include "numbers.h"

namespace smoe {
namespace {

Request refused_field(std::string_view field) { return refusal("bad_request", field); }

bool parse_within(std::string_view word, double least, double most, double* out) {
  return parse_real(word, out) && *out >= least && *out <= most;
}

bool parse_clamped(std::string_view word, double least, double most, double* out) {
  if (!parse_real(word, out)) return false;
  *out = std::clamp(*out, least, most);
  return true;
}

bool parse_int_within(std::string_view word, int least, int most, int* out) {
  return parse_integer(word, out) && *out >= least && *out <= most;
}

bool parse_flag(std::string_view word, bool* out) {
  *out = word == "1";
  return word == "0" || word == "1";
}

bool parse_client_id(std::string_view word, std::uint64_t* out) {
  return parse_integer(word, out) && *out >= 1 && *out <= std::uint64_t{1} << 53;
}

bool parse_penalty(std::string_view word, double* out) {
  double value = 0;
  if (!parse_real(word, &value) || value <= 0) return false;
  *out = std::clamp(value, 1e-4, 1e4);  // beyond it a float32 logit overflows
  return true;
}

bool parse_seed(std::string_view word, SamplingOptions* sampling) {
  sampling->seeded = true;
  return parse_integer(word, &sampling->seed);
}

bool parse_bias(std::string_view text, int vocabulary, std::vector<std::pair<int, double>>* out) {
  out->clear();
  while (!text.empty()) {
    std::string_view one = take_word(&text, ';');
    int id = 0;
    double bias = 0;
    if (!parse_int_within(take_word(&one, ':'), 0, vocabulary - 1, &id)) return false;
    if (!parse_within(one, -100, 100, &bias)) return false;
    out->emplace_back(id, bias);
  }
  return true;
}

// One `key=value` of GEN; an unknown key is true: it is ignored.
bool parse_option(std::string_view key, std::string_view value, const Dialect& dialect, GenerateRequest* out) {
  SamplingOptions& sampling = out->sampling;
  const int vocabulary = dialect.vocabulary;
  if (key == "t") return parse_real(value, &sampling.temperature);
  if (key == "p") return parse_clamped(value, 0.01, 1, &sampling.top_p);
  if (key == "k") return parse_int_within(value, 0, kMostTopK, &sampling.top_k);
  if (key == "r") return parse_penalty(value, &sampling.repetition_penalty);
  if (dialect.version < 2) return true;
  if (key == "m") return parse_within(value, 0, 1, &sampling.min_p);
  if (key == "pp") return parse_within(value, -2, 2, &sampling.presence_penalty);
  if (key == "fp") return parse_within(value, -2, 2, &sampling.frequency_penalty);
  if (key == "seed") return parse_seed(value, &sampling);
  if (key == "lb") return parse_bias(value, vocabulary, &sampling.bias);
  if (key == "lp") return parse_int_within(value, 0, kMostLogprobs, &sampling.logprobs);
  if (key == "plp") return parse_int_within(value, 0, kMostLogprobs, &out->prompt_logprobs);
  if (key == "id") return parse_client_id(value, &out->id);
  if (key == "stop") return parse_ids(value, ';', vocabulary, &out->stop);
  if (key == "ignore_eos") return parse_flag(value, &out->ignore_eos);
  if (key == "mask") return parse_flag(value, &out->mask);
  if (key == "slide") return parse_flag(value, &out->slide);
  return true;
}

std::string_view take_field(std::string_view* text) {
  const std::size_t start = std::min(text->find_first_not_of(' '), text->size());
  text->remove_prefix(start);
  return take_word(text, ' ');
}

Request parse_generate(std::string_view rest, const Dialect& dialect) {
  Request request;
  request.kind = RequestKind::generate;
  GenerateRequest& generate = request.generate;
  generate.sampling = dialect.defaults;
  const int least = dialect.version < 2 ? 1 : 0;
  if (!parse_int_within(take_field(&rest), least, kMostNewTokens, &generate.max_tokens)) return refused_field("max_tokens");
  std::string_view word = take_field(&rest);
  for (; word.find('=') != std::string_view::npos; word = take_field(&rest)) {
    std::string_view value = word;
    const std::string_view key = take_word(&value, '=');
    if (!parse_option(key, value, dialect, &generate)) return refused_field(key);
  }
  if (std::count(word.begin(), word.end(), ',') >= kMostIds) return refusal("ctx_overflow", "ids");
  if (!parse_ids(word, ',', dialect.vocabulary, &generate.ids) || !take_field(&rest).empty()) return refused_field("ids");
  if (generate.mask && generate.id == 0) return refused_field("id");
  return request;
}

Request parse_cancel(std::string_view rest) {
  Request request;
  if (!parse_client_id(take_field(&rest), &request.id)) return refused_field("id");
  request.kind = RequestKind::cancel;
  return request;
}

Request parse_mask(std::string_view rest) {
  Request request = parse_cancel(take_field(&rest));
  if (request.kind != RequestKind::cancel) return request;
  request.kind = RequestKind::mask;
  request.mask_set = take_field(&rest);
  return request;
}

Request parse_warm(std::string_view rest) {
  Request request;
  const std::string_view counts = take_field(&rest);
  if (!counts.empty() && !parse_popularity(counts, &request.popularity)) return refused_field("counts");
  request.kind = RequestKind::warm;
  return request;
}

// A client that speaks a later version may hope for this one.
Request parse_hello(std::string_view rest) {
  Request request;
  int version = 0;
  if (!parse_integer(take_field(&rest), &version) || version < 2) return refused_field("version");
  request.kind = RequestKind::hello;
  return request;
}

Request bare(RequestKind kind) {
  Request request;
  request.kind = kind;
  return request;
}

void append(std::string* out, const char* format, auto... values) {
  char text[160];
  const int length = std::snprintf(text, sizeof text, format, values...);
  out->append(text, static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(sizeof text) - 1)));
}

}  // namespace

Request refusal(std::string reason, std::string_view field) {
  Request request;
  request.reason = std::move(reason);
  if (!field.empty()) request.detail = "field=" + protocol_value(field);
  return request;
}

bool parse_ids(std::string_view text, char separator, int vocabulary, std::vector<int>* out) {
  out->clear();
  if (text.empty() || text.back() == separator) return false;
  while (!text.empty()) {
    int id = 0;
    if (!parse_int_within(take_word(&text, separator), 0, vocabulary - 1, &id)) return false;
    out->push_back(id);
  }
  return true;
}

bool parse_popularity(std::string_view text, Popularity* out) {
  out->clear();
  if (text.empty() || text.back() == ';') return false;
  while (!text.empty()) {
    std::string_view layer = take_word(&text, ';');
    std::vector<std::uint32_t>& counts = out->emplace_back();
    if (layer.empty() || layer.back() == ',') return false;
    while (!layer.empty())
      if (!parse_integer(take_word(&layer, ','), &counts.emplace_back())) return false;
  }
  return true;
}

Request parse_request(std::string_view line, const Dialect& dialect) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const std::string_view verb = take_field(&line);
  if (verb == "GEN") return parse_generate(line, dialect);
  if (verb == "CANCEL") return parse_cancel(line);
  if (verb == "MASK") return parse_mask(line);
  if (verb == "WARM") return parse_warm(line);
  if (verb == "HELLO") return parse_hello(line);
  if (!take_field(&line).empty()) return refused_field("request");
  if (verb == "RESET") return bare(RequestKind::reset);
  if (verb == "STATUS") return bare(RequestKind::status);
  if (verb == "HEAT") return bare(RequestKind::heat);
  return refused_field("request");
}

// The words may hold a file's name: no byte of it may end the line.
std::string format_error(int version, std::string_view reason, std::string_view detail) {
  std::string out = "<<ERR ";
  out += reason;
  if (version >= 2 && !detail.empty()) (out += ' ') += detail;
  for (char& c : out)
    if (static_cast<unsigned char>(c) < ' ') c = '_';
  return out += ">>\n";
}

std::string format_progress(int done, int total, int cached) {
  std::string out;
  append(&out, "<<PREFILL done=%d total=%d cached=%d>>\n", done, total, cached);
  return out;
}

namespace {

std::string token_words(int token, const Logprobs* logprobs) {
  std::string out = std::to_string(token);
  if (logprobs != nullptr) append(&out, " lp=%.6g", logprobs->chosen);
  const char* before = " top=";
  for (std::size_t i = 0; logprobs != nullptr && i < logprobs->top.size(); ++i) {
    append(&out, "%s%d:%.6g", before, logprobs->top[i].first, logprobs->top[i].second);
    before = ";";
  }
  return out;
}

}  // namespace

std::string format_token(int token, const Logprobs* logprobs) { return token_words(token, logprobs) + "\n"; }

std::string format_prompt_token(int token, const Logprobs* logprobs) {
  return "<<PROMPT " + token_words(token, logprobs) + ">>\n";
}

std::string format_end(int version, const Figures& f) {
  std::string out;
  if (version >= 2) {
    append(&out, "prompt=%d cached=%d generated=%d prefill_ms=%.1f decode_ms=%.1f", f.prompt, f.cached, f.generated,
           f.prefill_ms, f.decode_ms);
    append(&out, " hits=%llu misses=%llu bytes=%llu", static_cast<unsigned long long>(f.hits),
           static_cast<unsigned long long>(f.misses), static_cast<unsigned long long>(f.bytes_read));
    append(&out, " stall_ms=%.1f slid=%d ", f.stall_ms, f.slid);
  }
  return out + "fin=" + f.finish + " <<DONE>>\n";
}

std::string protocol_value(std::string_view name) {
  std::string out(name.empty() ? "_" : name.substr(0, 80));
  for (char& c : out)
    if (c < '!' || c > '~') c = '_';
  return out;
}

}  // namespace smoe
