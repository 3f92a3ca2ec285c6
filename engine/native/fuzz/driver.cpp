// Runs a fuzz target without libFuzzer: replays the files and folders given, then `-runs=N` mutations of them from a
// fixed seed (`-seed=S`). An input that crashes can be had back: `-trace=FILE` writes each input before it runs.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;

struct Options {
  std::uint64_t runs = 0, seed = 1;
  std::string trace;
  std::vector<std::string> paths;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.rfind("-runs=", 0) == 0) options.runs = std::strtoull(word.c_str() + 6, nullptr, 10);
    else if (word.rfind("-seed=", 0) == 0) options.seed = std::strtoull(word.c_str() + 6, nullptr, 10);
    else if (word.rfind("-trace=", 0) == 0) options.trace = word.substr(7);
    else if (word[0] != '-') options.paths.push_back(word);  // libFuzzer's other flags mean nothing here
  }
  return options;
}

void read_inputs(const std::filesystem::path& path, std::vector<Input>* out) {
  if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::directory_iterator(path)) read_inputs(entry.path(), out);
    return;
  }
  std::ifstream file(path, std::ios::binary);
  out->emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

void mutate_once(std::mt19937_64& random, const std::vector<Input>& inputs, Input* input) {
  static constexpr std::uint8_t kEdges[] = {0, 1, 2, 3, 4, 7, 8, 0x20, 0x22, 0x7F, 0x80, 0xFF};
  const auto below = [&](std::size_t n) { return n ? static_cast<std::size_t>(random() % n) : 0; };
  const auto to = [&](std::size_t i) { return input->begin() + static_cast<std::ptrdiff_t>(i); };
  const std::size_t place = below(input->size());
  const std::size_t kind = input->empty() ? 3 : below(6);
  if (kind == 0) (*input)[place] ^= static_cast<std::uint8_t>(1u << below(8));
  if (kind == 1) (*input)[place] = kEdges[below(sizeof kEdges)];
  if (kind == 2) input->erase(to(place), to(place + below(input->size() - place)));
  if (kind == 3) input->insert(to(place), kEdges[below(sizeof kEdges)]);
  if (kind == 4) {  // a piece of another input over this one
    const Input& other = inputs[below(inputs.size())];
    const std::size_t from = below(other.size());
    const std::size_t bytes = std::min({below(16), other.size() - from, input->size() - place});
    std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(from), bytes, to(place));
  }
  if (kind == 5) input->resize(place);
}

void run(const Input& input, const std::string& trace) {
  if (!trace.empty())
    std::ofstream(trace, std::ios::binary).write(reinterpret_cast<const char*>(input.data()),
                                                 static_cast<std::streamsize>(input.size()));
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  std::vector<Input> inputs;
  for (const std::string& path : options.paths) read_inputs(path, &inputs);
  for (const Input& input : inputs) run(input, options.trace);
  if (inputs.empty()) inputs.emplace_back();
  std::mt19937_64 random(options.seed);
  for (std::uint64_t i = 0; i < options.runs; ++i) {
    Input input = inputs[random() % inputs.size()];
    for (std::uint64_t n = 1 + random() % 4; n > 0; --n) mutate_once(random, inputs, &input);
    run(input, options.trace);
  }
  std::printf("%zu inputs, %llu mutations\n", inputs.size(), static_cast<unsigned long long>(options.runs));
}
