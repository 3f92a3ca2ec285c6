// The whole engine in this process, against the golden results of a float32 Hugging Face model (tests/interop), with
// rings, threads and chunks that must not change a bit.
#include <algorithm>
#include <fstream>

#include "check.h"
#include "engine.h"
#include "generate.h"
#include "json.h"
#include "vault_files.h"

using namespace smoe;

namespace {

struct Case {
  std::vector<int> prompt, greedy;
  std::vector<double> logits;
};

std::vector<double> numbers(const json::Value& value) {
  std::vector<double> out;
  for (const json::Value& item : value.items) out.push_back(item.number);
  return out;
}

std::vector<int> ids(const json::Value& value) {
  const std::vector<double> all = numbers(value);
  return {all.begin(), all.end()};
}

std::vector<Case> golden(const std::string& name) {
  json::Value file;
  CHECK(!json::parse(vault_files::read_file((vault_files::interop(name) / "golden.json").string()), &file));
  std::vector<Case> cases;
  for (const json::Value& one : file.find("cases")->items)
    cases.push_back({ids(*one.find("prompt_ids")), ids(*one.find("greedy_ids")), numbers(*one.find("first_logits"))});
  return cases;
}

Args args(const std::string& name) {
  Args out;
  out.vault = (vault_files::interop(name) / "tiny-qwen3moe.smoe").string();
  out.serve = true;
  out.ctx = 256;
  out.threads = 1;
  return out;
}

std::unique_ptr<Engine> boot(const Args& args) {
  std::unique_ptr<Engine> engine;
  const Error error = Engine::boot(args, [](const std::string&) {}, &engine);
  CHECK_EQ(error.message, "");
  return engine;
}

class Collector : public Listener {
 public:
  void progress(int, int, int) override {}
  void token(int token, const Logprobs*) override { ids.push_back(token); }
  bool next_mask(Mask*) override { return false; }
  bool interrupted() override { return --layers_left < 0; }

  std::vector<int> ids;
  int layers_left = 1 << 30;
};

GenerateRequest greedy(const std::vector<int>& prompt, std::size_t count) {
  GenerateRequest request;
  request.ids = prompt;
  request.max_tokens = static_cast<int>(count);
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  return request;
}

std::vector<int> generate(Generator& generator, const std::vector<int>& prompt, std::size_t count, Figures* figures) {
  Collector collector;
  const Failure failure = generator.run(greedy(prompt, count), collector, figures);
  CHECK_EQ(failure.reason, "");
  return collector.ids;
}

// Cold, then the same again (warm), then with the reply cut off in the middle (diverged).
void check_case(Generator& generator, const Case& one) {
  Figures figures;
  CHECK(generate(generator, one.prompt, one.greedy.size(), &figures) == one.greedy);
  CHECK(generate(generator, one.prompt, one.greedy.size(), &figures) == one.greedy);
  CHECK_EQ(figures.cached, static_cast<int>(one.prompt.size()) - 1);
  const std::size_t half = one.greedy.size() / 2;
  std::vector<int> longer = one.prompt;
  longer.insert(longer.end(), one.greedy.begin(), one.greedy.begin() + static_cast<std::ptrdiff_t>(half));
  longer.push_back((longer.back() + 1) % 512);
  generate(generator, longer, 3, &figures);
  longer.pop_back();
  const std::vector<int> rest(one.greedy.begin() + static_cast<std::ptrdiff_t>(half), one.greedy.end());
  CHECK(generate(generator, longer, rest.size(), &figures) == rest);
}

void check_golden(const Args& args, const std::vector<Case>& cases) {
  const std::unique_ptr<Engine> engine = boot(args);
  if (!engine) return;
  Generator generator(*engine);
  for (const Case& one : cases) check_case(generator, one);
}

std::vector<float> logits_after(Engine& engine, const std::vector<int>& prompt) {
  engine.conversations().reset();
  Conversation& conversation = engine.conversations().open({0, 0});
  const std::span<const int> all = prompt;
  int last = 0;
  while (conversation.length() < static_cast<int>(prompt.size())) {
    const auto rest = all.subspan(static_cast<std::size_t>(conversation.length()));
    const auto part = rest.first(std::min<std::size_t>(rest.size(), static_cast<std::size_t>(engine.most_at_once(conversation.length()))));
    engine.make_room(conversation, static_cast<int>(part.size()));
    bool interrupted = false;
    CHECK(!engine.model().forward(conversation, part, [](int) { return true; }, &interrupted));
    last = static_cast<int>(part.size()) - 1;
  }
  const float* const logits = engine.model().logits(last);
  return {logits, logits + engine.model().vocabulary()};
}

}  // namespace

TEST(golden_ids_with_every_kernel_set) {
  for (const char* name : {"tiny-qwen3moe-q4", "tiny-qwen3moe-q2"}) {
    const std::vector<Case> cases = golden(name);
    for (const char* const* kernels = available_kernels(); *kernels != nullptr; ++kernels) {
      Args one = args(name);
      one.kernels = *kernels;
      check_golden(one, cases);
    }
  }
}

TEST(golden_ids_with_rings_workers_threads_and_chunks) {
  const std::vector<Case> cases = golden("tiny-qwen3moe-q4");
  const int variants[][4] = {{1, 1, 1, 512}, {2, 16, 3, 7}, {3, 4, 2, 1}, {24, 4, 4, 16}};
  for (const auto& [ring, workers, threads, chunk] : variants) {
    Args one = args("tiny-qwen3moe-q4");
    one.ring = ring;
    one.workers = workers;
    one.threads = threads;
    one.chunk = chunk;
    check_golden(one, {cases[1]});  // the shortest: more threads than cores are slow
  }
}

TEST(first_logits_are_the_references) {
  for (const char* name : {"tiny-qwen3moe-q4", "tiny-qwen3moe-q2"}) {
    const std::unique_ptr<Engine> engine = boot(args(name));
    for (const Case& one : golden(name)) {
      const std::vector<float> got = logits_after(*engine, one.prompt);
      double largest = 0, error = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        largest = std::max(largest, std::fabs(one.logits[i]));
        error = std::max(error, std::fabs(one.logits[i] - got[i]));
      }
      CHECK(error <= 1e-3 * largest);
    }
  }
}

TEST(logits_have_the_same_bits_whatever_the_chunk_the_ring_and_the_threads) {
  const std::vector<int> prompt = golden("tiny-qwen3moe-q4")[4].prompt;
  for (const auto& [activations, trunk] :
       {std::pair{"f32", "auto"}, {"16", "auto"}, {"8", "auto"}, {"f32", "q8"}, {"16", "q8"}, {"8", "q4"}}) {
    Args one = args("tiny-qwen3moe-q4");
    one.activations = activations;
    one.trunk = trunk;
    const std::vector<float> wanted = logits_after(*boot(one), prompt);
    for (const int chunk : {1, 3, 64}) {
      one.chunk = chunk;
      one.ring = chunk;
      one.threads = 1 + chunk % 3;
      CHECK(logits_after(*boot(one), prompt) == wanted);
    }
  }
}

// The ring counts the requests for each expert by itself: with chunks of one token, one for each token routed to it.
TEST(the_routing_is_written_as_the_ring_is_asked) {
  const std::vector<int> prompt = golden("tiny-qwen3moe-q4")[4].prompt;
  const vault_files::Folder folder;
  std::string written;
  for (const int chunk : {1, 5}) {
    Args one = args("tiny-qwen3moe-q4");
    one.chunk = chunk;
    one.routing = folder.path("routing.i32");
    const std::unique_ptr<Engine> engine = boot(one);
    logits_after(*engine, prompt);
    const std::string bytes = vault_files::read_file(one.routing);
    if (chunk == 1) written = bytes;
    CHECK(bytes == written);  // whatever the chunk
    if (chunk != 1) continue;
    const Architecture& a = engine->vault().architecture();
    std::vector<std::uint32_t> uses(static_cast<std::size_t>(a.moe_layers * a.experts));
    std::vector<std::int32_t> routed(bytes.size() / sizeof(std::int32_t));
    std::memcpy(routed.data(), bytes.data(), routed.size() * sizeof(std::int32_t));
    CHECK_EQ(routed.size(), prompt.size() * static_cast<std::size_t>(a.moe_layers * a.top_k));
    for (std::size_t i = 0; i < routed.size(); ++i) {
      const int layer = static_cast<int>(i) / a.top_k % a.moe_layers;
      ++uses[static_cast<std::size_t>(layer * a.experts + routed[i])];
      CHECK(i % static_cast<std::size_t>(a.top_k) == 0 || routed[i - 1] < routed[i]);
    }
    for (int layer = 0; layer < a.moe_layers; ++layer)
      for (int expert = 0; expert < a.experts; ++expert)
        CHECK_EQ(uses[static_cast<std::size_t>(layer * a.experts + expert)], engine->ring().uses(layer, expert));
  }
}

TEST(a_routing_that_cannot_be_written_is_an_error) {
  Args one = args("tiny-qwen3moe-q4");
  one.routing = "/no such folder/routing.i32";
  std::unique_ptr<Engine> engine;
  CHECK_EQ(Engine::boot(one, [](const std::string&) {}, &engine).message,
           "--routing: /no such folder/routing.i32 cannot be written");
#if defined(__linux__)
  one.routing = "/dev/full";
  Generator generator(*(engine = boot(one)));
  Collector collector;
  Figures figures;
  CHECK(generator.run(greedy({1, 2, 3}, 2), collector, &figures).detail.find("/dev/full") != std::string::npos);
#endif
}

TEST(an_interrupted_generation_leaves_no_trace) {
  const std::vector<Case> cases = golden("tiny-qwen3moe-q4");
  Args one = args("tiny-qwen3moe-q4");
  one.chunk = 8;
  const std::unique_ptr<Engine> engine = boot(one);
  Generator generator(*engine);
  for (int layers = 0; layers < 40; layers += 7) {
    Collector collector;
    collector.layers_left = layers;
    Figures figures;
    CHECK_EQ(generator.run(greedy(cases[4].prompt, 50), collector, &figures).reason, "");
    CHECK_EQ(std::string(figures.finish), "cancel");
    CHECK_EQ(figures.generated, static_cast<int>(collector.ids.size()));
    CHECK(generate(generator, cases[4].prompt, 5, &figures) ==
          std::vector<int>(cases[4].greedy.begin(), cases[4].greedy.begin() + 5));
    engine->conversations().reset();
  }
}

TEST(a_token_enters_the_cache_when_it_is_processed) {
  const Case one = golden("tiny-qwen3moe-q4")[0];
  const std::unique_ptr<Engine> engine = boot(args("tiny-qwen3moe-q4"));
  Generator generator(*engine);
  Figures figures;
  generate(generator, one.prompt, 4, &figures);
  CHECK_EQ(engine->conversations().positions(), static_cast<int>(one.prompt.size()) + 3);
}

TEST(more_new_ids_than_the_window) {
  const Case one = golden("tiny-qwen3moe-q4")[0];
  Args narrow = args("tiny-qwen3moe-q4");
  narrow.ctx = 16;
  const std::unique_ptr<Engine> engine = boot(narrow);
  Generator generator(*engine);
  Collector collector;
  Figures figures;
  GenerateRequest request = greedy(one.prompt, 2);
  CHECK_EQ(generator.run(request, collector, &figures).reason, "suffix_too_long");
  request.slide = true;
  CHECK_EQ(generator.run(request, collector, &figures).reason, "");
  CHECK_EQ(figures.slid, 2);  // 17 ids and the first reply token, in a window of 16
}

TEST(a_record_that_cannot_be_read_fails_that_generation_alone) {
  namespace fs = std::filesystem;
  const vault_files::Folder folder;
  const fs::path source = vault_files::interop("tiny-qwen3moe-q4");
  for (const char* suffix : {".smoe", ".scout.safetensors"})
    fs::copy_file(source / (std::string("tiny-qwen3moe") + suffix), folder.path(std::string("v") + suffix));
  const std::string whole = vault_files::read_file(folder.path("v.smoe"));
  const Case one = golden("tiny-qwen3moe-q4")[0];
  Args here = args("tiny-qwen3moe-q4");
  here.vault = folder.path("v.smoe");
  const std::unique_ptr<Engine> engine = boot(here);
  fs::permissions(here.vault, fs::perms::owner_all);
  fs::resize_file(here.vault, 16384);
  Generator generator(*engine);
  Collector collector;
  Figures figures;
  CHECK_EQ(generator.run(greedy(one.prompt, 4), collector, &figures).reason, "read_failed");
  folder.write("v.smoe", whole);
  CHECK(generate(generator, one.prompt, one.greedy.size(), &figures) == one.greedy);
}

TEST(what_cannot_run_is_refused_in_one_line_that_names_it) {
  const auto refusal = [](const std::string& config) { return refuse_unknown_features(config, "c", "qwen3_moe").message; };
  CHECK_EQ(refusal(R"({"hidden_act": "silu", "sliding_window": null, "rope_scaling": null, "n_group": 1})"), "");
  CHECK_EQ(refusal(R"({"use_sliding_window": false, "sliding_window": 4096, "rope_parameters": {"rope_type": "default"}})"), "");
  for (const auto& [field, config] : std::vector<std::pair<std::string, std::string>>{
           {"hidden_act", R"({"hidden_act": "gelu"})"},
           {"sliding_window", R"({"sliding_window": 128})"},
           {"rope_scaling", R"({"rope_scaling": {"type": "yarn", "factor": 4}})"},
           {"rope_parameters", R"({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}})"},
           {"scoring_func", R"({"scoring_func": "sigmoid"})"},
           {"layer_types", R"({"layer_types": ["full_attention", "linear_attention"]})"},
           {"routed_scaling_factor", R"({"routed_scaling_factor": 2.5})"},
           {"clip_qkv", R"({"clip_qkv": 8.0})"}})
    CHECK_EQ(refusal(config), "c: config field " + field + " asks for a feature that this engine does not run");
}
