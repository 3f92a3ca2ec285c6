#include "args.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <variant>

#include "numbers.h"
#include "trunk_layout.h"

namespace smoe {
namespace {

struct Range {
  double least, most;
};

struct Flag {
  const char* name;
  const char* value;  // what the help calls it; null: a switch
  std::variant<bool Args::*, int Args::*, std::int64_t Args::*, double Args::*, std::string Args::*> target;
  const char* help;
  Range range = {0, 0};  // of numbers
};

constexpr double kMany = 1e9;

const Flag kFlags[] = {
    {"--vault", "FILE", &Args::vault, "the experts: a .smoe file"},
    {"--scout", "FILE", &Args::scout, "the trunk: its .scout.safetensors (default: beside the vault)"},
    {"--config", "FILE", &Args::config, "the checkpoint's config.json, where vault and scout do not hold what it says; or $SMOE_ENGINE_CONFIG"},
    {"--serve", nullptr, &Args::serve, "speak the serve protocol on stdin and stdout"},
    {"--tokens-in", "CSV", &Args::tokens_in, "run once on these ids and print the ids that follow"},
    {"--tokens", "N", &Args::tokens, "ids to generate with --tokens-in or bench", {0, 8192}},
    {"--prompt", "N", &Args::prompt, "with bench: ids of the prompt", {1, 1 << 20}},
    {"--json", nullptr, &Args::json, "with bench: figures as JSON"},
    {"--logits", "FILE", &Args::logits, "with --tokens-in: float32 logits after every id, [ids][vocabulary]"},
    {"--ctx", "N", &Args::ctx,
     "window: positions that attention sees; 0: the longest up to the trained length that --kv-cache-mb holds, 4096 at least",
     {0, 1 << 20}},
    {"--chunk", "N", &Args::chunk, "most ids that prefill computes at once; 0: 512, up to 2048 where experts are streamed",
     {0, 1 << 16}},
    {"--conversations", "N", &Args::conversations, "most conversations kept, within --kv-cache-mb (16)", {1, 1024}},
    {"--kv-cache-mb", "N", &Args::kv_cache_mb, "memory for conversations, one of full length at least; 0: 1/8 of all",
     {0, kMany}},
    {"--memory", "SIZE", &Args::memory, "for everything together, such as 6G or 800M (default: what is available)"},
    {"--trunk", "FORM", &Args::trunk,
     "the trunk's matrices stored, as in the file, or quantized to q8 or q4; auto: q8 where they exceed 1 GiB"},
    {"--kv", "TYPE", &Args::kv, "keys and values kept as f16 or f32 (default: f16, with float32 activations f32)"},
    {"--ring", "N", &Args::ring, "slots of the expert cache; 0: what memory allows", {0, kMany}},
    {"--slot-mb", "N", &Args::slot_mb, "accepted and unused: a slot is as large as the largest expert", {0, kMany}},
    {"--workers", "N", &Args::workers, "threads that read experts", {1, 256}},
    {"--threads", "N", &Args::threads, "threads that compute; 0: the cores of this process", {0, 1024}},
    {"--kernels", "NAME", &Args::kernels, "kernel set (default: the best that this machine runs)"},
    {"--activations", "FORM", &Args::activations, "what quantized weights meet: f32, or integers of 16 or 8 bits (default: 16)"},
    {"--exact", nullptr, &Args::exact, "short for --activations f32, and --trunk stored unless that says otherwise"},
    {"--temperature", "X", &Args::temperature, "below 0.0001: greedy", {0, kMany}},
    {"--top-p", "X", &Args::top_p, "1: off", {0, 1}},
    {"--top-k", "N", &Args::top_k, "0: off", {0, kMostTopK}},
    {"--min-p", "X", &Args::min_p, "0: off", {0, 1}},
    {"--rep-penalty", "X", &Args::rep_penalty, "over the last 256 tokens; 1: off", {1e-4, 1e4}},
    {"--seed", "N", &Args::seed, "for requests without one; -1: from the clock", {-1, 9e18}},
    {"--eos-ids", "CSV", &Args::eos_ids, "end of sequence, beside those that the scout names"},
    {"--raw-ids", nullptr, &Args::raw_ids, "accepted: ids are all that this engine prints"},
    {"--routing", "FILE", &Args::routing, "write the experts of each token: int32 [tokens][MoE layers][top k]"},
    {"--instrument", nullptr, &Args::instrument, "time of each phase on stderr"},
    {"--debug", nullptr, &Args::debug, "one line a request on stderr"},
    {"--version", nullptr, &Args::version, "print the version"},
    {"--help", nullptr, &Args::help, "print this"},
};

const Flag* find(const std::string& name) {
  for (const Flag& flag : kFlags)
    if (name == flag.name) return &flag;
  return nullptr;
}

bool within(double value, const Range& range) { return value >= range.least && value <= range.most; }

struct Assign {
  const Flag& flag;
  const std::string& word;
  Args* args;

  bool operator()(bool Args::* member) const {
    args->*member = true;
    return true;
  }
  bool operator()(std::string Args::* member) const {
    args->*member = word;
    return !word.empty();
  }
  bool operator()(double Args::* member) const {
    return parse_real(word, &(args->*member)) && within(args->*member, flag.range);
  }
  template <class Integer>
  bool operator()(Integer Args::* member) const {
    return parse_integer(word, &(args->*member)) && within(static_cast<double>(args->*member), flag.range);
  }
};

std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

// A number's default; nothing for the others.
struct Default {
  std::string operator()(bool Args::*) const { return ""; }
  std::string operator()(std::string Args::* member) const { return Args().*member; }
  template <class Number>
  std::string operator()(Number Args::* member) const {
    return shown(static_cast<double>(Args().*member));
  }
};

std::string range_text(const Range& range) {
  return range.most == 0 ? "a value" : "a number from " + shown(range.least) + " to " + shown(range.most);
}

Error check(const Args& args) {
  if (args.help || args.version) return {};
  if (args.vault.empty()) return {"--vault: name the .smoe file to run"};
  if (!args.kv.empty() && args.kv != "f32" && args.kv != "f16") return {"--kv: f32 or f16, not " + args.kv};
  if (!parse_trunk_form(args.trunk)) return {"--trunk: auto, stored, q8 or q4, not " + args.trunk};
  std::uint64_t bytes;
  if (!args.memory.empty() && !parse_bytes(args.memory, &bytes))
    return {"--memory: wants an amount such as 6G or 800M, not '" + args.memory + "'"};
  const std::string& form = args.activations;
  if (!form.empty() && form != "f32" && form != "16" && form != "8")
    return {"--activations: f32, 16 or 8, not " + form};
  if (args.exact && !form.empty() && form != "f32") return {"--exact and --activations " + form + " exclude each other"};
  if (args.serve + args.bench + !args.tokens_in.empty() != 1)
    return {"--serve, --tokens-in or bench: exactly one of them"};
  if (args.bench && args.tokens == 0) return {"--tokens: bench wants one at least"};
  if (!args.logits.empty() && args.tokens_in.empty()) return {"--logits: goes with --tokens-in"};
  if (args.json && !args.bench) return {"--json: goes with bench"};
  return {};
}

}  // namespace

bool parse_bytes(const std::string& text, std::uint64_t* out) {
  constexpr std::string_view kUnits = "KMGT";
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string unit = text.substr(digits);
  if (unit.ends_with("iB")) unit.resize(unit.size() - 2);
  double number = 0;
  if (!parse_real(text.substr(0, digits), &number) || unit.size() > 1) return false;
  const std::size_t power = unit.empty() ? 0 : kUnits.find(static_cast<char>(std::toupper(unit[0])));
  if (power == std::string_view::npos) return false;
  const double bytes = std::ldexp(number, 10 * static_cast<int>(unit.empty() ? 0 : power + 1));
  if (bytes < 1 || bytes > 9e18) return false;
  *out = static_cast<std::uint64_t>(bytes);
  return true;
}

Error parse_args(const std::vector<std::string>& words, Args* out) {
  out->bench = !words.empty() && words[0] == "bench";
  for (std::size_t i = out->bench ? 1 : 0; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    const Flag* const flag = find(words[i].substr(0, equals));
    if (flag == nullptr) return {words[i] + ": unknown flag (see --help)"};
    std::string value;
    if (flag->value == nullptr && equals != std::string::npos) return {std::string(flag->name) + ": takes no value"};
    if (equals != std::string::npos) value = words[i].substr(equals + 1);
    else if (flag->value != nullptr && i + 1 < words.size()) value = words[++i];
    if (!std::visit(Assign{*flag, value, out}, flag->target))
      return {std::string(flag->name) + ": wants " + range_text(flag->range) + ", not '" + value + "'"};
  }
  return check(*out);
}

std::string help_text() {
  std::string out = "smoe-engine --vault FILE --serve | --tokens-in CSV [flags]\nsmoe-engine bench --vault FILE [flags]\n\n";
  for (const Flag& flag : kFlags) {
    std::string left = std::string("  ") + flag.name + (flag.value != nullptr ? std::string(" ") + flag.value : "");
    left.resize(std::max<std::size_t>(left.size() + 2, 24), ' ');
    const std::string value = std::visit(Default{}, flag.target);
    out += left + flag.help + (value.empty() ? "" : " [" + value + "]") + "\n";
  }
  return out;
}

SamplingOptions sampling_defaults(const Args& args) {
  SamplingOptions options;
  options.temperature = args.temperature;
  options.top_p = std::max(args.top_p, 0.01);
  options.min_p = args.min_p;
  options.top_k = args.top_k;
  options.repetition_penalty = args.rep_penalty;
  options.seeded = args.seed >= 0;
  options.seed = static_cast<std::uint64_t>(args.seed);
  return options;
}

Numerics numerics(const Args& args) {
  if (args.exact || args.activations == "f32") return Numerics::f32;
  return args.activations == "8" ? Numerics::i8 : Numerics::i16;
}

}  // namespace smoe
