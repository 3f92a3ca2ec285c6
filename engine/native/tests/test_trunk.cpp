// What becomes of a scout's tensors in memory: which are kept, in which form, and with which values.
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "check.h"
#include "random_matrix.h"
#include "trunk.h"
#include "vault_files.h"

using namespace smoe;
using vault_files::Folder;
using vault_files::safetensors;

namespace {

constexpr int kLayers = 3;
const std::string kInterop = vault_files::interop("tiny-qwen3moe-q4/tiny-qwen3moe.scout.safetensors");

// A tensor to write; its values are those of a random matrix.
struct Source {
  std::string name;
  testing::RandomMatrix matrix;
};

std::string dtype(Storage storage) {
  return storage == Storage::f32 ? "F32" : storage == Storage::f16 ? "F16" : "BF16";
}

std::string header_of(const std::vector<Source>& sources) {
  std::string json;
  std::uint64_t at = 0;
  for (const auto& [name, matrix] : sources) {
    json += (json.empty() ? "{\"" : ",\"") + name + "\":{\"dtype\":\"" + dtype(matrix.storage) + "\",\"shape\":[" +
            std::to_string(matrix.rows) + "," + std::to_string(matrix.cols) + "],\"data_offsets\":[" + std::to_string(at) +
            "," + std::to_string(at + matrix.data.size()) + "]}";
    at += matrix.data.size();
  }
  return json + "}";
}

std::string bytes_of(const std::vector<Source>& sources) {
  std::string bytes;
  for (const Source& source : sources)
    bytes.append(reinterpret_cast<const char*>(source.matrix.data.data()), source.matrix.data.size());
  return bytes;
}

std::unique_ptr<Trunk> open(const std::string& path, TrunkForm form) {
  std::unique_ptr<Trunk> trunk;
  CHECK_EQ(Trunk::open(path, kLayers, form, &trunk).message, "");
  return trunk;
}

std::unique_ptr<Trunk> load(const std::string& path, TrunkForm form, int threads = 1) {
  std::unique_ptr<Trunk> trunk = open(path, form);
  CHECK_EQ(trunk->load(*select_kernels(), threads).message, "");
  return trunk;
}

Matrix matrix(const Trunk& trunk, const std::string& name, int rows, int cols) {
  Tensor tensor{};
  CHECK_EQ(trunk.require(name, {rows, cols}, &tensor).message, "");
  return {tensor.storage, rows, cols, tensor.data, tensor.scales};
}

// A row by the scalar quantize_row whose arithmetic has a test of its own, at once and not piece by piece.
std::vector<float> quantized_at_once(const testing::RandomMatrix& source, Storage storage) {
  const int n = source.rows * source.cols;
  std::vector<float> values(static_cast<std::size_t>(n));
  to_floats(source.storage, source.data.data(), values.size(), values.data());
  std::vector<std::uint8_t> codes(code_bytes(storage, values.size()));
  std::vector<std::uint16_t> scales(values.size() / 64);
  select_kernels("scalar")->quantize_row(storage, values.data(), n, codes.data(), scales.data());
  select_kernels("scalar")->dequantize_row({storage, 1, n, codes.data(), scales.data()}, 0, values.data());
  return values;
}

std::vector<float> floats(const Matrix& w) {
  std::vector<float> out(static_cast<std::size_t>(w.rows) * static_cast<std::size_t>(w.cols));
  for (int row = 0; row < w.rows; ++row)
    select_kernels("scalar")->dequantize_row(w, row, &out[static_cast<std::size_t>(row) * static_cast<std::size_t>(w.cols)]);
  return out;
}

Storage form_of(const std::string& json, std::uint64_t data_bytes, TrunkForm form, const std::string& name) {
  SafetensorsHeader header;
  CHECK_EQ(parse_safetensors_header(json, data_bytes, &header).message, "");
  for (const PlacedTensor& tensor : lay_out_trunk(header, kLayers, form).tensors)
    if (tensor.name == name) return tensor.storage;
  CHECK(false);
  return {};
}

std::string one(const std::string& name, const std::string& type, std::uint64_t rows, std::uint64_t cols) {
  const std::uint64_t bytes = rows * cols * (type == "F32" ? 4 : 2);
  return "\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":[" + std::to_string(rows) + "," + std::to_string(cols) +
         "],\"data_offsets\":[0," + std::to_string(bytes) + "]}";
}

}  // namespace

TEST(stored_tensors_keep_every_bit) {
  const std::string file = vault_files::read_file(kInterop);
  const std::unique_ptr<Trunk> trunk = load(kInterop, TrunkForm::stored);
  const Matrix head = matrix(*trunk, "lm_head.weight", 512, 128);
  CHECK(head.storage == Storage::bf16 && head.scales == nullptr);
  // The header of that file is 3,080 bytes long and lm_head is its first tensor.
  CHECK(std::memcmp(head.data, file.data() + 8 + 3080, 131072) == 0);
  CHECK(trunk->bytes() < file.size() && trunk->metadata("config") == nullptr);
}

// 3 layers of 8 experts' router, 128 wide; 4 heads of 32 and 2 of keys and values.
TEST(only_what_every_token_multiplies_with_is_quantized) {
  for (const auto& [form, storage] : {std::pair{TrunkForm::q8, Storage::q8}, std::pair{TrunkForm::q4, Storage::q4}}) {
    const std::unique_ptr<Trunk> trunk = load(kInterop, form);
    const std::string layer = "model.layers.1.";
    CHECK_EQ(matrix(*trunk, "lm_head.weight", 512, 128).storage, storage);
    for (const char* name : {"q", "o"}) CHECK_EQ(matrix(*trunk, layer + "self_attn." + name + "_proj.weight", 128, 128).storage, storage);
    for (const char* name : {"k", "v"}) CHECK_EQ(matrix(*trunk, layer + "self_attn." + name + "_proj.weight", 64, 128).storage, storage);
    CHECK_EQ(matrix(*trunk, layer + "mlp.gate.weight", 8, 128).storage, Storage::bf16);
    CHECK_EQ(matrix(*trunk, "model.embed_tokens.weight", 512, 128).storage, Storage::bf16);
  }
}

TEST(forms_by_name_and_shape) {
  const auto q8 = [](const std::string& tensor, const std::string& name) {
    return form_of("{" + tensor + "}", 1 << 20, TrunkForm::q8, name);
  };
  const auto is_q8 = [&](const std::string& name, std::uint64_t cols) {
    return q8(one(name, "BF16", 2, cols), name) == Storage::q8;
  };
  CHECK(is_q8("model.layers.0.mlp.down_proj.weight", 64));
  CHECK(is_q8("model.layers.0.mlp.shared_experts.up_proj.weight", 128));
  CHECK(is_q8("model.layers.0.self_attn.kv_a_proj_with_mqa.weight", 64));
  CHECK(!is_q8("model.layers.0.self_attn.kv_a_layernorm.weight", 64));
  CHECK(!is_q8("model.layers.0.mlp.down_proj.weight", 72));
  CHECK(!is_q8("model.layers.0.mlp.shared_expert_gate.weight", 64));
  CHECK(!is_q8("model.layers.0.block_sparse_moe.gate.weight", 64));
  CHECK(!is_q8("model.layers.0.self_attn.q_norm.weight", 64));
  CHECK(is_q8("model.embed_tokens.weight", 64));  // tied: there is no other head
  const std::string empty_head = R"(,"lm_head.weight":{"dtype":"BF16","shape":[0,64],"data_offsets":[0,0]})";
  CHECK_EQ(q8(one("model.embed_tokens.weight", "BF16", 2, 64) + empty_head, "model.embed_tokens.weight"), Storage::bf16);
}

// Only sizes are read here and below: the files that these headers belong to are not there.
TEST(a_large_embedding_stays_in_the_file_unless_it_is_the_head) {
  const std::string name = "model.embed_tokens.weight";
  const std::string head = R"(,"lm_head.weight":{"dtype":"BF16","shape":[0,64],"data_offsets":[0,0]})";
  const auto layout = [&](std::uint64_t rows, const std::string& others) {
    SafetensorsHeader header;
    const std::string json = "{" + one(name, "BF16", rows, 1024) + others + "}";
    CHECK_EQ(parse_safetensors_header(json, std::uint64_t{1} << 40, &header).message, "");
    const TrunkLayout found = lay_out_trunk(header, kLayers, TrunkForm::stored);
    return std::pair{found.left_in_file.has_value(), found.bytes};
  };
  constexpr std::uint64_t kBytes = 64 << 20;  // of 32,768 rows
  CHECK(layout(32768, head) == (std::pair{false, kBytes}));
  CHECK(layout(32769, head) == (std::pair{true, std::uint64_t{0}}));
  CHECK(layout(32769, "") == (std::pair{false, kBytes + 2048}));
}

TEST(automatic_quantizes_beyond_a_gibibyte) {
  const std::string name = "lm_head.weight";
  const auto form = [&](std::uint64_t rows, std::uint64_t cols) {
    return form_of("{" + one(name, "BF16", rows, cols) + "}", std::uint64_t{1} << 40, TrunkForm::automatic, name);
  };
  CHECK_EQ(form(1 << 19, 1024), Storage::bf16);  // 2^19 * 2^10 * 2 bytes
  CHECK_EQ(form((1 << 19) + 1, 1024), Storage::q8);
  CHECK_EQ(form(1 << 24, 1000), Storage::bf16);  // not one that can be quantized
}

TEST(what_no_layer_uses_takes_no_memory) {
  std::vector<Source> sources;
  for (const char* name : {"vision.patch.weight", "model.layers.0.mlp.up_proj.weight", "model.layers.3.eh_proj.weight",
                           "model.layers.0.self_attn.rotary_emb.inv_freq", "model.norm.weight"})
    sources.push_back({name, testing::RandomMatrix(Storage::bf16, 32, 64)});
  const Folder folder;
  const std::string path = folder.write("t", safetensors(header_of(sources), bytes_of(sources)));
  const std::unique_ptr<Trunk> trunk = load(path, TrunkForm::stored);
  CHECK_EQ(trunk->bytes(), 2u * 32 * 64 * 2);
  CHECK(floats(matrix(*trunk, "model.norm.weight", 32, 64))[7] == static_cast<float>(sources[4].matrix.at(0, 7)));
  Tensor tensor;
  CHECK_EQ(trunk->require("vision.patch.weight", {32, 64}, &tensor).message,
           path + ": vision.patch.weight: not a tensor of the trunk");
}

// Larger than two blocks of 8 MiB, from an odd place on, in every type, on some threads.
TEST(a_file_of_several_blocks_is_what_it_would_be_at_once) {
  std::vector<Source> sources;
  sources.push_back({"model.layers.0.self_attn.q_proj.weight", testing::RandomMatrix(Storage::f32, 1, 64)});
  sources.push_back({"model.layers.0.self_attn.k_proj.weight", testing::RandomMatrix(Storage::f32, 1501, 1984)});
  sources.push_back({"model.layers.0.self_attn.v_proj.weight", testing::RandomMatrix(Storage::f16, 777, 1984)});
  sources.push_back({"model.layers.1.input_layernorm.weight", testing::RandomMatrix(Storage::bf16, 1, 3)});
  sources.push_back({"model.layers.1.self_attn.o_proj.weight", testing::RandomMatrix(Storage::bf16, 1999, 1984)});
  const Folder folder;
  for (const std::string pad : {"", " "}) {
    const std::string path = folder.write("t", safetensors(header_of(sources) + pad, bytes_of(sources)));
    for (const auto& [form, storage] : {std::pair{TrunkForm::q8, Storage::q8}, std::pair{TrunkForm::q4, Storage::q4}}) {
      const std::unique_ptr<Trunk> trunk = load(path, form, 3);
      for (const auto& [name, source] : sources)
        if (name.ends_with("_proj.weight"))
          CHECK(floats(matrix(*trunk, name, source.rows, source.cols)) == quantized_at_once(source, storage));
    }
    const std::unique_ptr<Trunk> stored = load(path, TrunkForm::stored, 3);
    for (const auto& [name, source] : sources) {
      const Matrix found = matrix(*stored, name, source.rows, source.cols);
      CHECK(std::memcmp(found.data, source.data.data(), source.data.size()) == 0);
      CHECK_EQ(reinterpret_cast<std::uintptr_t>(found.data) % 64, 0u);
    }
  }
}

// Wherever it comes from: a trunk of which a part was not read would compute with zeros.
TEST(what_a_loading_thread_throws_is_thrown_by_the_load) {
  const std::vector<Source> sources = {{"lm_head.weight", testing::RandomMatrix(Storage::f32, 1501, 1984)}};
  const Folder folder;
  const std::string path = folder.write("t", safetensors(header_of(sources), bytes_of(sources)));
  const std::thread::id own = std::this_thread::get_id();
  for (const bool by_another : {false, true}) {
    const std::unique_ptr<Trunk> trunk = open(path, TrunkForm::stored);
    std::atomic<int> thrown = 0;
    bool told = false;
    try {
      CHECK_EQ(trunk->load(*select_kernels(), 3, [&](std::uint64_t, std::uint64_t) {
        if ((std::this_thread::get_id() != own) != by_another) return;
        ++thrown;
        throw std::runtime_error("progress");
      }).message, "");
    } catch (const std::runtime_error&) {
      told = true;
    }
    CHECK_EQ(told, thrown > 0);
  }
}

// |sum of (w - w') x| <= sum of (half a step + the scale's own rounding) |x|, and the float sum's rounding.
TEST(a_quantized_product_is_within_the_quantizations_error) {
  constexpr int kRows = 70, kCols = 320;
  std::vector<Source> sources = {{"lm_head.weight", testing::RandomMatrix(Storage::bf16, kRows, kCols)}};
  const testing::RandomMatrix& w = sources[0].matrix;
  const Folder folder;
  const std::string path = folder.write("t", safetensors(header_of(sources), bytes_of(sources)));
  const std::vector<float> x = testing::normal_floats(kCols);
  for (const auto& [form, span] : {std::pair{TrunkForm::q8, 127.0}, std::pair{TrunkForm::q4, 7.5}}) {
    const std::unique_ptr<Trunk> trunk = load(path, form);
    const Matrix quantized = matrix(*trunk, "lm_head.weight", kRows, kCols);
    for (const Kernels* kernels : testing::every_set()) {
      std::vector<float> y(kRows);
      kernels->matmul(quantized, 0, kRows, {1, kCols, x.data(), kCols, nullptr}, y.data(), kRows);
      for (int row = 0; row < kRows; ++row) {
        double exact = 0, bound = 0;
        for (int col = 0; col < kCols; ++col) {
          double largest = 0;
          for (int i = 0; i < 64; ++i) largest = std::max(largest, std::fabs(w.at(row, col / 64 * 64 + i)));
          const double step = largest * (1 + 0x1p-11) / span;
          exact += w.at(row, col) * x[static_cast<std::size_t>(col)];
          bound += (step / 2 + largest * 0x1p-11 + largest * kCols * 0x1p-24) * std::fabs(x[static_cast<std::size_t>(col)]);
        }
        CHECK_NEAR(y[static_cast<std::size_t>(row)], exact, bound);
      }
    }
  }
}

TEST(what_a_piece_of_the_model_may_not_have) {
  const std::unique_ptr<Trunk> trunk = load(kInterop, TrunkForm::stored);
  Tensor tensor;
  CHECK_EQ(trunk->require("model.norm.weight", {128}, &tensor).message, "");
  CHECK_EQ(trunk->require("model.norm.weight", {64}, &tensor).message,
           kInterop + ": model.norm.weight: shape [128], expected [64]");
  CHECK_EQ(trunk->require("model.absent", {64}, &tensor).message, kInterop + ": model.absent: missing");
  const Folder folder;
  const std::string json = R"({"lm_head.weight":{"dtype":"I8","shape":[1,64],"data_offsets":[0,64]}})";
  const std::string path = folder.write("t", safetensors(json, std::string(64, '\0')));
  CHECK_EQ(load(path, TrunkForm::q8)->require("lm_head.weight", {1, 64}, &tensor).message,
           path + ": lm_head.weight: dtype I8 (can use F32, F16, BF16)");
}

TEST(a_file_that_shrinks_while_it_is_read) {
  std::vector<Source> sources = {{"lm_head.weight", testing::RandomMatrix(Storage::f32, 1200, 4096)}};
  const Folder folder;
  const std::string path = folder.write("t", safetensors(header_of(sources), bytes_of(sources)));
  const std::unique_ptr<Trunk> trunk = open(path, TrunkForm::q8);
  std::filesystem::resize_file(path, 12 << 20);
  CHECK(trunk->load(*select_kernels(), 2).message.find("was it truncated?") != std::string::npos);
}
