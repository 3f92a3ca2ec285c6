// smoe-engine: flags in, one vault served or run once.
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#if defined(__GLIBC__)
#include <malloc.h>
#endif
#include <unistd.h>

#include "args.h"
#include "bench.h"
#include "engine.h"
#include "generate.h"
#include "serve.h"
#include "version.h"

namespace {

using namespace smoe;

constexpr int kUsage = 2;

const Wake* signalled = nullptr;

void log_line(const std::string& line) { std::cerr << "smoe-engine: " + line + "\n" << std::flush; }

int fail(const Error& error, int status = 1) {
  log_line(error.message);
  return status;
}

// SIGINT too: in a terminal it reaches every process of the group.
void end_on_signals(const Wake& wake) {
  signalled = &wake;
  for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, [](int) { signalled->wake(); });
}

int serve(const Args& args) {
  const Wake wake;
  end_on_signals(wake);
  Server server(STDIN_FILENO, STDOUT_FILENO, wake, log_line);
  server.listen([] { std::_Exit(0); });  // nothing to lose: the engine only reads files
  std::unique_ptr<Engine> engine;
  if (Error error = Engine::boot(args, log_line, &engine)) return fail(error);
  server.run(*engine, sampling_defaults(args), args.instrument);
  return 0;
}

// What was asked for must have arrived: a full disk behind stdout is a failure, not an end.
int finish_output() {
  std::cout.flush();
  return std::cout.good() ? 0 : fail({"stdout: cannot be written"});
}

// Tokens to stdout as they come.
class Printer : public Listener {
 public:
  void progress(int, int, int) override {}
  void token(int token, const Logprobs*) override { std::cout << token << std::endl; }
  bool next_mask(Mask*) override { return false; }
  bool interrupted() override { return !std::cout.good(); }
};

Error write_logits(Engine& engine, const std::vector<int>& ids, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  Conversation& conversation = engine.conversations().open({0, 0});
  const std::span<const int> all = ids;
  while (conversation.length() < static_cast<int>(ids.size())) {
    const auto chunk = all.subspan(static_cast<std::size_t>(conversation.length()));
    const auto part = chunk.first(std::min<std::size_t>(chunk.size(), static_cast<std::size_t>(engine.most_at_once(conversation.length()))));
    bool interrupted = false;
    engine.make_room(conversation, static_cast<int>(part.size()));
    if (Error error = engine.model().forward(conversation, part, [](int) { return true; }, &interrupted)) return error;
    for (int i = 0; i < static_cast<int>(part.size()); ++i)
      file.write(reinterpret_cast<const char*>(engine.model().logits(i)),
                 static_cast<std::streamsize>(sizeof(float)) * engine.model().vocabulary());
  }
  file.close();
  return file ? Error{} : Error{path + ": cannot be written"};
}

int run_once(const Args& args) {
  std::unique_ptr<Engine> engine;
  if (Error error = Engine::boot(args, log_line, &engine)) return fail(error);
  GenerateRequest request;
  if (!parse_ids(args.tokens_in, ',', engine->model().vocabulary(), &request.ids))
    return fail({"--tokens-in: wants ids below " + std::to_string(engine->model().vocabulary()) + ", separated by commas"});
  if (!args.logits.empty())
    if (Error error = write_logits(*engine, request.ids, args.logits)) return fail(error);
  if (args.tokens == 0) return 0;
  request.max_tokens = args.tokens;
  request.sampling = sampling_defaults(args);
  request.slide = true;
  Printer printer;
  Figures figures;
  const Failure failure = Generator(*engine).run(request, printer, &figures);
  if (!std::cout.good()) return finish_output();  // the cause of an interruption, where there is one
  return failure.reason.empty() ? 0 : fail({failure.reason + " " + failure.detail});
}

int bench(const Args& args) {
  std::unique_ptr<Engine> engine;
  if (Error error = Engine::boot(args, log_line, &engine)) return fail(error);
  Measured prefill, decode;
  if (Error error = measure(*engine, args.prompt, args.tokens, &prefill, &decode)) return fail(error);
  std::cout << (args.json ? as_json(*engine, prefill, decode) : as_text(prefill) + as_text(decode));
  return finish_output();
}

int run(int argc, char** argv) {
  Args args;
  if (Error error = parse_args({argv + 1, argv + argc}, &args)) return fail(error, kUsage);
  if (const char* const config = std::getenv("SMOE_ENGINE_CONFIG"); config != nullptr && args.config.empty()) args.config = config;
  if (args.help) std::cout << help_text();
  if (args.version) std::cout << "smoe-engine " << kVersion << "\n";
  if (args.help || args.version) return finish_output();
  if (args.bench) return bench(args);
  return args.serve ? serve(args) : run_once(args);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
#if defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, 1 << 20);  // a threshold of its own choice rises, and tens of freed megabytes then stay resident
#endif
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    return fail({"the system gives no more memory: ask for less with --memory, --ctx or --chunk"});
  } catch (const std::system_error& error) {
    return fail({std::string("the system refuses: ") + error.what()});
  }
}
